"""The person on the page: picked or typed in, with what the model decides, live, and what they say of each feature."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
from nicegui import background_tasks

from counterpath.app.desk import Desk
from counterpath.app.ui import parts
from counterpath.app.ui.features import FeatureCard
from counterpath.app.ui.limits import Limit
from counterpath.app.ui.opening import Opened
from counterpath.app.ui.people import framed
from counterpath.app.ui.picking import Decision, Picking
from counterpath.errors import CounterpathError
from counterpath.explanation import wording

PAUSE = 0.2
"""Seconds without a keystroke after which the model is asked about values that are edited."""


class Form:
    """The sections Person and Features.

    Args:
        opened: The model, and whom to pick from.
        desk: Where it is asked.
        wanted: The class that is wanted now.
        on_other: Called when somebody else is on the page.
        on_edit: Called when a value was edited, or a limit.
    """

    def __init__(
        self,
        opened: Opened,
        desk: Desk,
        wanted: Callable[[], Any],
        on_other: Callable[[], None],
        on_edit: Callable[[], None],
    ) -> None:
        self._opened, self._desk, self._on_other, self._on_edit = opened, desk, on_other, on_edit
        self._label: Any = ""
        self._asking: asyncio.Task[Any] | None = None
        with parts.section("person", "Person", "Pick somebody, then change any value below."):
            self.picking = Picking(opened.people, self._picked, wanted)
            self._decision = Decision()
        lead = "Values can be edited. Lock what must stay; set limits to what may change."
        with parts.section("features", "Features", lead):
            self._cards = {
                feature.name: FeatureCard(opened.explainer, feature, self._edited, self._limited)
                for feature in opened.explainer.schema_
            }

    @property
    def limits(self) -> dict[str, Limit]:
        """What is said about each feature."""
        return {name: card.limit for name, card in self._cards.items()}

    def loosen(self, name: str, limit: Limit) -> None:
        """Put another limit on a card."""
        self._cards[name].show_limit(limit)

    def open(self, row: pd.DataFrame) -> None:
        """Take a person who need not be one of those to pick from: one row, under its label."""
        label = row.index.tolist()[0]
        self.picking.elsewhere(wording.value(label))
        self._take(label, {str(name): row[name].tolist()[0] for name in row})

    def row(self) -> pd.DataFrame | None:
        """The person as a row, if their values can be; else those that cannot are marked."""
        sound = [card.check_value(self._label) for card in self._cards.values()]
        if not all(sound):
            return None
        return framed(self._opened.explainer, {name: card.value for name, card in self._cards.items()}, self._label)

    def sound_row(self) -> pd.DataFrame | None:
        """The same, if the limits can be, too, and are kept by the person as they are."""
        row = self.row()
        known = row is not None and bool(self._opened.explainer.encoder_.known(row).all())
        kept = [card.check_limit(row if known else None) for card in self._cards.values()]
        return row if all(kept) else None

    def leave(self) -> None:
        """Ask nothing more."""
        if self._asking is not None:
            self._asking.cancel()

    def _picked(self, place: int) -> None:
        self._take(self._opened.people.label(place), self._opened.people.values(place))

    def _take(self, label: Any, values: Mapping[str, Any]) -> None:
        self._label = label
        for name, value in values.items():
            self._cards[name].show_value(value)
        self._on_other()
        self._ask(0)

    def _edited(self) -> None:
        self.picking.edited()
        self._on_edit()
        self._ask(PAUSE)

    def _limited(self) -> None:
        self._on_edit()
        self.sound_row()

    def _ask(self, pause: float) -> None:
        self.leave()
        self._asking = background_tasks.create(self._decide(pause), name="predict")

    async def _decide(self, pause: float) -> None:
        await asyncio.sleep(pause)
        self.sound_row()  # a range may be wrong for other values
        row = self.row()
        if row is None:
            self._decision.unknown("A value cannot be; it is marked in red.")
            return
        try:
            answers = await self._desk.predict(self._opened.name, row)
        except CounterpathError as error:
            self._decision.unknown(str(error))
        else:
            self._decision.show(answers.iloc[0].to_dict())
