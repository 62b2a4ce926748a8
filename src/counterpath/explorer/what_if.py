"""What if one feature were another: the model's answer for each of its values, all else as it is.

It is no plan: nothing follows from the change, nothing is checked against the data, and no limit counts.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from nicegui import background_tasks, ui

from counterpath.data.axes import NumberAxis, value_axis
from counterpath.data.schema import KINDS, Feature
from counterpath.explainer.explainer import Explainer
from counterpath.explainer.request import OTHER
from counterpath.explanation import wording
from counterpath.explanation.plots.style import INK
from counterpath.explorer import elements, figures
from counterpath.explorer.distribution import Scale
from counterpath.explorer.state import LoadedModel
from counterpath.utils.errors import CounterpathError, InputError

_POINTS = 41
"""Values of a number that the model is asked about: steps that are not seen in a figure of 600 pixels."""
_HEIGHT = 220
"""Pixels: as much as shows where it rises, and leaves the table below in sight."""
_BAR_HEIGHT = 26
"""Pixels for each category."""
_PAUSE = 0.4
"""Seconds after the last edit before the model is asked: the decision comes first."""
_LEAD = (
    "How the model's answer moves with one feature, all others as they are. It is no plan: limits do not count here."
)


@dataclass(frozen=True)
class Curve:
    """The model's answer by the value of one feature.

    Attributes:
        feature: The feature.
        values: Its values, in order; the person's own is among them.
        answers: The probability of the outcome for each; of a regressor, the predicted number.
        own: The index of the person's own value.
        outcome: What the probability is of; empty for a regressor.
    """

    feature: Feature
    values: tuple[Any, ...]
    answers: tuple[float, ...]
    own: int
    outcome: str

    def text(self, answer: float) -> str:
        """An answer in words."""
        return wording.percent(answer) if self.outcome else wording.rounded(answer)

    @property
    def sentence(self) -> str:
        """What there is to see."""
        low, high = int(np.argmin(self.answers)), int(np.argmax(self.answers))
        of = f"the probability of {self.outcome}" if self.outcome else "the prediction"
        name = self.feature.title
        if self.text(self.answers[low]) == self.text(self.answers[high]):
            return f"Whatever {name} is, {of} stays at {self.text(self.answers[self.own])}."
        ends = (
            f"{self.text(self.answers[at])} at {wording.amount(self.feature, self.values[at])}" for at in (low, high)
        )
        now = f"{self.text(self.answers[self.own])} at {wording.amount(self.feature, self.values[self.own])}"
        return f"With {name} alone, {of} goes from {' to '.join(ends)}; now it is {now}."


def values_of(explainer: Explainer, feature: Feature, own: Any) -> list[Any]:
    """Values of a feature to ask about, in order, the person's own among them."""
    index = explainer.schema_.index(feature.name)
    axis = value_axis(explainer.encoder_.axes[index])
    if not isinstance(axis, NumberAxis):
        codes = [code for code in explainer.encoder_.seen[index] if code < len(feature.categories)]
        return [feature.categories[code] for code in codes]
    scale = Scale(axis.lower, axis.upper, feature.transform == "log1p", axis.whole)
    numbers = {scale.number(place) for place in np.linspace(0, 1, _POINTS)}
    numbers |= {own} if isinstance(own, int | float) and own not in feature.codes else set()
    return sorted(int(each) if axis.whole else each for each in numbers)


def table_of(explainer: Explainer, row: pd.DataFrame, feature: Feature, values: list[Any]) -> pd.DataFrame:
    """The row once for each value of a feature."""
    repeated = row.iloc[[0] * len(values)].reset_index(drop=True)
    repeated[feature.name] = pd.Series(values, dtype=object)
    encoder = explainer.encoder_
    return encoder.align(encoder.in_own_types(repeated))


def curve_figure(curve: Curve) -> figures.Figure:
    """The curve of a number, or a bar for each category; the person's own value stands out."""
    of = f"probability of {curve.outcome}" if curve.outcome else "prediction"
    texts = [figures.label(f"{curve.text(answer)}") for answer in curve.answers]
    top = {"range": [-0.04, 1.04], "tickformat": ".0%"} if curve.outcome else {}
    names = [figures.label(wording.amount(curve.feature, value), 24) for value in curve.values]
    margin = {"l": 52, "r": 16, "t": 8, "b": 44}
    if KINDS[curve.feature.kind].categories is None:
        hover = [f"{name}: {text}" for name, text in zip(names, texts, strict=True)]
        numbers = [float(value) for value in curve.values]
        line = figures.scatter(numbers, curve.answers, "lines", line={"color": figures.RISES, "width": 2})
        dot = {"size": 12, "color": "white", "line": {"color": INK, "width": 2.5}}
        own = figures.scatter([numbers[curve.own]], [curve.answers[curve.own]], "markers", marker=dot)
        shown = {"hoverinfo": "text"}
        unit = f" ({curve.feature.unit})" if curve.feature.unit else ""
        return figures.figure(
            [line | shown | {"text": hover}, own | shown | {"text": [f"now: {hover[curve.own]}"]}],
            curve.sentence,
            height=_HEIGHT,
            margin=margin,
            xaxis=figures.axis(title=figures.title(figures.label(curve.feature.title + unit, 40), standoff=6)),
            yaxis=figures.axis(
                title=figures.title(figures.label(of, 30)), showgrid=True, gridcolor=figures.LINE, **top
            ),
        )
    colors = [INK if index == curve.own else figures.RISES for index in range(len(names))]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": figures.rounded(curve.answers),
        "y": list(range(len(names))),
        "marker": {"color": colors},
        "text": [f"{text}{' (now)' if at == curve.own else ''}" for at, text in enumerate(texts)],
        "textposition": "outside",
        "hoverinfo": "skip",
        "cliponaxis": False,
    }
    ticks = {"tickvals": list(range(len(names))), "ticktext": names, "autorange": "reversed", "automargin": True}
    # Beside the longest bar there is room for what it says.
    across = {"range": [0, 1.2], "tickvals": [0, 0.5, 1], "tickformat": ".0%"} if curve.outcome else {}
    height = _BAR_HEIGHT * len(names) + margin["t"] + margin["b"]
    return figures.figure(
        [bars],
        curve.sentence,
        height=height,
        margin=margin,
        xaxis=figures.axis(title=figures.title(figures.label(of, 40), standoff=6), **across),
        yaxis=figures.axis(**ticks),
    )


class WhatIf:
    """The section: a choice of the feature, the figure, and the same as a table.

    Args:
        model: The model.
        target: Gives the outcome that is wanted now.
    """

    def __init__(self, model: LoadedModel, target: Any) -> None:
        self._model, self._target = model, target
        self._row: pd.DataFrame | None = None
        self._task: asyncio.Task[Any] | None = None
        schema = model.explainer.schema_
        names = {each.name: each.title for each in schema if not KINDS[each.kind].times}
        free = [each for each in schema if each.name in names and each.actionable and not each.immutable]
        first = min(free, key=lambda each: bool(each.categories), default=None)  # a number, whose curve says most
        with elements.section("what-if", "What if", _LEAD):
            self._feature = ui.select(
                names, label="Feature", value=None if first is None else first.name, on_change=self._again
            ).classes("cp-which")
            self._sentence = elements.text("p", "", "", aria_live="polite")
            self._drawing = elements.Drawing()
            with ui.expansion("As a table").props("dense"):
                self._table = ui.element("div")
        ui.context.client.on_delete(self._cancel)

    def show(self, row: pd.DataFrame | None) -> None:
        """Show what holds for another person, or for the same one with other values; None if they cannot be."""
        self._row = row
        self._again()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _again(self) -> None:
        self._cancel()
        self._task = background_tasks.create(self._update(), name="what if")

    async def _update(self) -> None:
        await asyncio.sleep(_PAUSE)
        row, name = self._row, self._feature.value
        if row is None or not name:
            self._say("Nothing to show: a value is invalid.")
            return
        try:
            curve = await self._curve(row, self._model.explainer.schema_[name])
        except CounterpathError as error:
            self._say(elements.sentence(str(error)))
            return
        self._sentence.set_text(curve.sentence)
        self._drawing.show(curve_figure(curve))
        self._table.clear()
        with self._table:
            head = [curve.feature.title, f"Probability of {curve.outcome}" if curve.outcome else "Prediction"]
            rows = [
                [wording.amount(curve.feature, value) + (" (now)" if at == curve.own else ""), curve.text(answer)]
                for at, (value, answer) in enumerate(zip(curve.values, curve.answers, strict=True))
            ]
            elements.table(f"What if {curve.feature.title} were another", head, rows)

    def _say(self, words: str) -> None:
        self._sentence.set_text(words)
        self._drawing.clear()
        self._table.clear()

    async def _curve(self, row: pd.DataFrame, feature: Feature) -> Curve:
        explainer = self._model.explainer
        own = row[feature.name].tolist()[0]
        values = values_of(explainer, feature, own)
        asked = values if own in values else [own, *values]
        found = await self._model.predict_rows(table_of(explainer, row, feature, asked))
        at = asked.index(own)
        if found.iloc[at].isna().any():
            raise InputError("Nothing to show: the model does not know a value of this person.")
        if explainer.models_.explained.numbers:
            return Curve(feature, tuple(asked), tuple(found.iloc[:, 0].tolist()), at, "")
        target = self._target()
        if target == OTHER:
            now = self._model.decision(found.iloc[at].to_dict())
            answers = 1 - found[now]
            outcome = "another decision"
        else:
            answers, outcome = found[target], wording.class_text(explainer.schema_, target)
        return Curve(feature, tuple(asked), tuple(answers.astype(float).tolist()), at, outcome)
