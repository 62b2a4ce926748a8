"""One path in a browser: probability, uncertainty and every feature that moves, over the steps."""

from itertools import pairwise
from typing import Any

import pandas as pd

from counterpath.explanation import Explanation, wording
from counterpath.explanation.plots.style import INK, MOST_FEATURES, PALETTE
from counterpath.explanation.tables import numeric_features, path_features
from counterpath.explorer import figures
from counterpath.explorer.figures import Figure

_HEADING, _GAP = 22, 10
"""Pixels above each panel for a line of what it shows, and below it for some air."""
_PROBABILITY, _UNCERTAINTY, _NUMBER, _CATEGORY = 112, 54, 46, 32
"""Heights of panels in pixels: as much as each needs to be read, so that ten features still fit a screen or two."""
_MARGIN = {"l": 52, "r": 16, "t": 6, "b": 46}
"""Pixels: on the left six digits fit, below the steps and what they are."""
_MOST_MARKERS = 40
"""A path of more points is a line without markers, which would run into each other on a phone."""
_MOST_VISITED = 4
"""So many categories, one after the other, fit a heading on a phone."""
_HIGH_CONFIDENCE = 0.8
"""Above it there is no room over the line of the confidence for what it says: that is written below."""
_CURSOR = 0.0035
"""The width of the cursor as a share of all steps: a pixel or two."""
_POINT = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGOQllcBAAC3AF+0tpLBAAAAAElFTkSuQmCC"
)
"""A picture of one point, in the colour `plots.INK`."""


def path_figure(result: Explanation, i: Any) -> Figure:
    """The path of one row: every feature that moves, below probability and uncertainty, with a cursor at the end.

    `cursor` moves it.

    Args:
        result: The explanation.
        i: The row, as in `Explanation.path`.

    Raises:
        InputError: There is no such row, or its path was not kept.
    """
    path = result.path(i)
    features = path_features(path, result.schema.names)
    moving = [name for name in result.schema.names if features[name].astype(object).nunique(dropna=False) > 1]
    drawn, numbers = moving[:MOST_FEATURES], numeric_features(result.schema, result.factuals)
    steps, probabilities = path["step"].tolist(), path["probability"].tolist()
    milestones = result.milestones(i).iloc[1:]
    confidence = float(result.request["confidence"])
    outcome = wording.outcome(wording.value(result.request["target_class"]))
    panels = [_probability_panel(steps, probabilities, milestones, outcome)]
    if path["uncertainty"].notna().any():
        panels.append(_uncertainty_panel(steps, path["uncertainty"].tolist()))
    panels += [_feature_panel(steps, features[name], name in numbers) for name in drawn]
    marks = milestones["step"].tolist() if len(milestones) > 1 else []
    first, last = (steps[0], steps[-1]) if len(steps) > 1 else (steps[0] - 1, steps[0] + 1)
    return figures.stacked(
        panels,
        f"Path of {steps[-1]} steps: the probability of {outcome} goes from {wording.probability(probabilities[0])} to "
        f"{wording.probability(probabilities[-1])}; moving features: {wording.listed(moving) or 'none'}.",
        heading=_HEADING,
        gap=_GAP,
        margin=_MARGIN,
        annotations=[_confidence_note(confidence)],
        hovermode="x unified",
        hoversubplots="axis",
        xaxis=_step_axis(first, last, hidden=len(moving) - len(drawn), below=len(panels)),
        shapes=[_confidence_line(confidence), *(_milestone_line(mark) for mark in marks)],
        images=[_cursor_image(steps[-1], last - first)],
    )


def cursor(step: int) -> dict[str, Any]:
    """What to call `Plotly.relayout` with to move the cursor of a `path_figure`: nothing else is drawn again."""
    return {"images[0].x": step}


def _step_axis(first: int, last: int, *, hidden: int, below: int) -> dict[str, Any]:
    title = "step" + (f" ({hidden} more features move)" if hidden else "")
    margin = 0.02 * (last - first)
    return figures.axis(
        range=[first - margin, last + margin],
        anchor=f"y{'' if below == 1 else below}",
        title={"text": title, "font": figures.soft_font(), "standoff": 6},
        ticks="outside",
        tickcolor=figures.LINE,
        tickformat="d",
        nticks=8,
        unifiedhovertitle={"text": "step %{x}"},
    )


def _heading(name: str, values: str) -> str:
    return f"<b>{figures.label(name, 26)}</b>  {values}"


def _probability_panel(steps: list[int], values: list[float], milestones: pd.DataFrame, outcome: str) -> figures.Panel:
    texts = [figures.label(wording.probability(value)) for value in values]
    traces = [_line(steps, values, figures.RISES, "probability", texts)]
    if len(milestones) > 1:
        numbers: dict[str, Any] = {
            "text": [str(number) for number in range(1, len(milestones) + 1)],
            "textfont": {"size": figures.SMALL_FONT, "color": "white"},
            "textposition": "middle center",
        }
        marker = {"size": 18, "color": figures.RISES, "line": {"color": "white", "width": 1.5}}
        at = milestones["step"], milestones["probability"]
        traces.append(
            figures.scatter(*at, "markers+text", **numbers, marker=marker, hoverinfo="skip", cliponaxis=False)
        )
    heading = _heading(f"probability of {outcome}", f"{texts[0]} → {texts[-1]}")
    ticks = {"range": [-0.04, 1.04], "tickvals": [0, 0.5, 1], "showgrid": True, "gridcolor": "#eef1f4"}
    return figures.Panel(heading, _PROBABILITY, tuple(traces), ticks)


def _uncertainty_panel(steps: list[int], values: list[float]) -> figures.Panel:
    texts = [figures.label(value) for value in values]
    line = _line(steps, values, PALETTE[3], "uncertainty", texts)
    return figures.Panel(_heading("uncertainty", f"{texts[0]} → {texts[-1]}"), _UNCERTAINTY, (line,), _scale(values))


def _feature_panel(steps: list[int], values: pd.Series, is_number: bool) -> figures.Panel:
    """One feature: numbers as a line over all that they move, categories as steps."""
    name = str(values.name)
    if is_number:
        change = wording.change(name, values.iloc[0], values.iloc[-1], ordered=False)
        numbers = values.astype(float).tolist()
        line = _line(steps, numbers, PALETTE[4], name, [figures.label(value) for value in values])
        heading = _heading(name, f"{figures.label(change.old, 14)} → {figures.label(change.new, 14)}")
        return figures.Panel(heading, _NUMBER, (line,), _scale(numbers))
    codes = [float(code) for code in pd.factorize(values.astype(object))[0]]
    line = _line(steps, codes, PALETTE[2], name, [figures.label(value, 40) for value in values])
    line["line"]["shape"] = "hv"
    visited = [values.iloc[0], *(new for old, new in pairwise(values.tolist()) if old != new)]
    between = visited[1:-1] if len(visited) <= _MOST_VISITED else ["…"]
    heading = _heading(name, " → ".join(figures.label(value, 20) for value in [visited[0], *between, visited[-1]]))
    return figures.Panel(heading, _CATEGORY, (line,), {"range": _padded(codes), "showticklabels": False})


def _line(steps: list[int], values: list[float], color: str, name: str, texts: list[str]) -> dict[str, Any]:
    return figures.scatter(
        steps,
        values,
        "lines+markers" if len(steps) <= _MOST_MARKERS else "lines",
        line={"color": color, "width": 2},
        marker={"color": color, "size": 4},
        name=figures.label(name),
        customdata=texts,
        hovertemplate=f"{figures.template_label(name)}: <b>%{{customdata}}</b><extra></extra>",
        cliponaxis=False,
    )


def _scale(values: list[float]) -> dict[str, Any]:
    """A scale that says where it begins and ends, in original units."""
    known = [value for value in values if value == value]
    ends = sorted({min(known), max(known)})
    return {"range": _padded(known), "tickvals": ends, "ticktext": [figures.label(value, 8) for value in ends]}


def _padded(values: list[float]) -> list[float]:
    low, high = min(values), max(values)
    margin = 0.14 * ((high - low) or 1.0)
    return [low - margin, high + margin]


def _cursor_image(step: int, span: int) -> dict[str, Any]:
    """A line through all panels: a picture of one dark point, stretched.

    Plotly moves a picture in under a millisecond, where it computes and draws the whole figure again for a line.
    """
    position = {"x": step, "xref": "x", "xanchor": "center", "y": 1, "yref": "paper"}
    size = {"sizex": _CURSOR * span, "sizey": 1, "sizing": "stretch"}
    return {"source": _POINT, **position, **size, "layer": "below"}


def _milestone_line(step: int) -> dict[str, Any]:
    ends = {"x0": step, "x1": step, "y0": 0, "y1": 1, "yref": "paper"}
    return {"type": "line", **ends, "line": {"color": "#b9d4e6", "width": 1}, "layer": "below"}


def _confidence_line(confidence: float) -> dict[str, Any]:
    ends = {"x0": 0, "x1": 1, "xref": "paper", "y0": confidence, "y1": confidence, "yref": "y"}
    return {"type": "line", **ends, "line": {"color": INK, "width": 1, "dash": "dash"}, "layer": "below"}


def _confidence_note(confidence: float) -> dict[str, Any]:
    anchor = "top" if confidence > _HIGH_CONFIDENCE else "bottom"
    text = f"asked: {wording.value(confidence)}"
    return figures.annotation(text, x=0, y=confidence, yref="y", yanchor=anchor, xshift=2, font=figures.soft_font())
