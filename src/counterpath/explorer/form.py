"""A card for each feature: its value, and what may become of it."""

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pandas as pd
from nicegui import background_tasks, ui

from counterpath.data.axes import NumberAxis
from counterpath.data.constraints import DOWN, UP, is_interval
from counterpath.data.schema import KINDS, Feature
from counterpath.explainer.explainer import Explainer
from counterpath.explanation import wording
from counterpath.explorer import parts, state
from counterpath.explorer.opening import Opened
from counterpath.explorer.state import BOTH, MOST_MATCHES, Limit, People, framed
from counterpath.service.dispatcher import Dispatcher
from counterpath.utils.errors import CounterpathError


class Picking:
    """The controls that choose a row of the people's table.

    Args:
        people: Whom to pick from.
        on_pick: Called with the place of whoever was picked.
        wanted: The class that is wanted now, for which people are rejected.
    """

    def __init__(self, people: People, on_pick: Callable[[int], None], wanted: Callable[[], Any]) -> None:
        self._people, self._on_pick, self._wanted = people, on_pick, wanted
        self._random = Random()
        self._place, self._label = -1, ""
        self._search = ui.input("Search people", on_change=self._searched).props(
            "dense outlined clearable debounce=150"
        )
        self._search.props["hint"] = "values, or name=value; several words narrow it down"
        parts.named(self._search, "Search people by their values")
        self._matches = ui.element("div").classes("cp-matches")
        self._matches.props["role"] = "list"
        parts.named(self._matches, "People found")
        self._matches.set_visibility(False)
        with ui.element("div").classes("cp-row"):
            ui.button("Random", on_click=self._anybody).props("outline dense no-caps")
            ui.button("Next rejected", on_click=self._rejected).props("outline dense no-caps")
        self._who = parts.text("p", "", "cp-soft")
        self._who.props["aria-live"] = "polite"

    def pick(self, place: int) -> None:
        """Take this person."""
        self._place, self._label = place, self._people.label(place)
        self._matches.set_visibility(False)
        self._who.set_text(f"Row {self._label}, one of {len(self._people):,} people, as in the table.")
        self._on_pick(place)

    def elsewhere(self, label: str) -> None:
        """Say that the person comes from another table."""
        self._label = label
        self._who.set_text(f"Row {label}, opened from a group.")

    def edited(self) -> None:
        """Say that the person on the page is no longer the one in the table."""
        self._who.set_text(f"Row {self._label}, with values that you have edited.")

    def first_rejected(self) -> int:
        """The first person whom the model rejects, or else the first one."""
        place = self._people.next_rejected(-1, self._wanted())
        return 0 if place is None else place

    def _searched(self) -> None:
        text = (self._search.value or "").strip()
        self._matches.clear()
        self._matches.set_visibility(bool(text))
        if not text:
            return
        found = self._people.search(text)
        with self._matches:
            for place in found:
                self._match(place)
            if not found:
                ui.label("Nobody has that; try fewer words, or age=40.").classes("cp-soft")
            if len(found) == MOST_MATCHES:
                ui.label(f"The first {MOST_MATCHES} are shown; more words narrow it down.").classes("cp-soft")

    def _match(self, place: int) -> None:
        decision = self._people.decided[place]
        said = "a value unknown to the model" if decision is None else f"the model says {wording.value(decision)}"
        with ui.item(on_click=lambda: self.pick(place)).props("dense role=listitem"), ui.item_section():
            ui.item_label(f"Row {self._people.label(place)}: {said}")
            ui.item_label(self._people.summary(place)).props("caption")

    def _anybody(self) -> None:
        self.pick(self._people.at_random(self._random))

    def _rejected(self) -> None:
        place = self._people.next_rejected(self._place, self._wanted())
        if place is None:
            ui.notify("The model rejects nobody in this table.")
        else:
            self.pick(place)


class Decision:
    """What the model decides, and how probable it finds each class."""

    def __init__(self) -> None:
        with ui.element("div").classes("cp-decision") as outer:
            outer.props["role"] = "status"
            parts.named(outer, "Decision of the model")
            self._verdict = parts.text("div", "…", "cp-verdict")
            self._bars = ui.element("div").classes("cp-stack")
        self.problem = parts.problem()

    def show(self, probabilities: Mapping[Any, float]) -> None:
        """Show the probability of each class; the greatest decides."""
        best = max(probabilities, key=lambda label: probabilities[label])
        self.problem.set_text("")
        self._verdict.set_text(f"The model says {wording.value(best)} ({wording.probability(probabilities[best])})")
        self._bars.clear()
        with self._bars:
            for label, probability in probabilities.items():
                bar(wording.value(label), probability)

    def unknown(self, reason: str) -> None:
        """Say why there is no decision."""
        self._verdict.set_text("No decision")
        self._bars.clear()
        self.problem.set_text(reason)


def bar(label: str, probability: float) -> None:
    """A probability as a bar with its number."""
    with ui.element("div").classes("cp-bar"):
        ui.label(label)
        with ui.element("div").classes("cp-track"):
            ui.element("div").classes("cp-fill").style(f"width: {100 * probability:.1f}%")
        ui.label(wording.probability(probability))


_DIRECTIONS = {BOTH: "up or down", UP: "only up", DOWN: "only down"}


class FeatureCard:
    """The controls of one feature.

    Args:
        explainer: Knows what is legal.
        feature: The feature.
        on_value: Called when the value was edited.
        on_limit: Called when what may become of it was.
    """

    def __init__(
        self, explainer: Explainer, feature: Feature, on_value: Callable[[], None], on_limit: Callable[[], None]
    ) -> None:
        self.feature = feature
        self.limit = Limit()
        self._explainer, self._on_value, self._on_limit = explainer, on_value, on_limit
        place = explainer.schema_.index(feature.name)
        self._axis, self._seen = explainer.encoder_.axes[place], explainer.encoder_.seen[place]
        self._silent = False
        self._low: ui.number | ui.select
        self._high: ui.number | ui.select
        with ui.element("article").classes("cp-card") as self._card:
            parts.named(self._card, f"Feature {feature.name}")
            if feature.immutable:
                self._card.classes("cp-fixed")
            self._build()

    @property
    def value(self) -> Any:
        """The value as it stands in the field."""
        return state.whole(self._field.value)

    def show_value(self, value: Any) -> None:
        """Put a value into its field, without telling anybody."""
        self._silent = True
        if isinstance(self._field, ui.select):
            options = self._categories()
            self._field.set_options(options if value in options else {**options, value: wording.value(value)})
        self._field.set_value(value)
        self._silent = False

    def show_limit(self, limit: Limit) -> None:
        """Put a limit into its controls, without telling anybody."""
        self._silent = True
        self.limit = limit
        if not self.feature.immutable:
            self._lock.set_value(limit.locked)
            self._direction.set_value(limit.direction)
            self._cost.set_value(limit.feature_costs)
            if isinstance(self._axis, NumberAxis) or is_interval(self.feature):
                self._low.set_value(limit.low)
                self._high.set_value(limit.high)
            else:
                self._allowed.set_value(list(limit.allowed))
            self._tell_limit()
        self._silent = False

    def check_value(self, label: Any) -> bool:
        """Whether the value can be one of this feature; what is wrong with it is written beside it."""
        wrong = state.value_problem(self.feature, self.value, label)
        self._value_problem.set_text(wrong)
        return not wrong

    def check_limit(self, person: pd.DataFrame | None) -> bool:
        """Whether the limit can be; what is wrong with it is written beside it.

        Args:
            person: The whole row, if it can be used: it must keep its own limits.
        """
        wrong = state.limit_problem(self._explainer, self.feature, self.limit, person)
        self._limit_problem.set_text(wrong)
        return not wrong

    def _build(self) -> None:
        feature = self.feature
        with ui.element("div").classes("cp-card-head"):
            parts.text("h3", feature.name)
            if feature.immutable:
                parts.text("span", "cannot change", "cp-badge")
            self._lock = ui.switch("Lock", value=feature.immutable, on_change=self._limited).props("dense")
            self._lock.set_enabled(not feature.immutable)
            parts.named(self._lock, f"Lock {feature.name}")
        self._field = self._value_field()
        parts.named(self._field, f"Value of {feature.name}")
        self._value_problem = parts.problem()
        if feature.immutable:
            self._limit_problem = parts.problem()
            return
        with ui.expansion("Limits: none").props("dense dense-toggle") as self._more:
            self._build_limits()
        self._limit_problem = parts.problem()

    def _build_limits(self) -> None:
        axis = self._axis
        with ui.element("div").classes("cp-fields"):
            self._direction = ui.select(_DIRECTIONS, label="Direction", value=BOTH, on_change=self._limited)
            if KINDS[self.feature.kind].one_hot:
                self._direction.disable()
                self._direction.props["hint"] = "its values have no order"
            self._cost = ui.number("Cost of change", value=1, min=0, step=0.5, on_change=self._limited)
            self._cost.props["hint"] = "1 is usual"
            if isinstance(axis, NumberAxis):
                self._low = ui.number("At least", on_change=self._limited)
                self._high = ui.number("At most", on_change=self._limited)
            elif is_interval(self.feature):
                options = self._categories()
                self._low = ui.select(options, label="At least", clearable=True, on_change=self._limited)
                self._high = ui.select(options, label="At most", clearable=True, on_change=self._limited)
        if not isinstance(axis, NumberAxis) and not is_interval(self.feature):
            options = self._categories()
            self._allowed = ui.select(options, label="Allowed values", multiple=True, on_change=self._limited)
            self._allowed.classes("cp-full").props["hint"] = "none chosen: all are"

    def _value_field(self) -> ui.number | ui.select:
        axis = self._axis
        if not isinstance(axis, NumberAxis):
            return ui.select(self._categories(), on_change=self._edited).props("dense options-dense")
        field = ui.number(on_change=self._edited).props("dense")
        field.props["step"] = 1 if axis.whole else "any"
        field.props["hint"] = f"{wording.value(axis.lower)} to {wording.value(axis.upper)} is usual"
        return field

    def _categories(self) -> dict[Any, str]:
        """The values that the model has seen."""
        return {self.feature.categories[place]: wording.value(self.feature.categories[place]) for place in self._seen}

    def _edited(self) -> None:
        if not self._silent:
            self._on_value()

    def _limited(self) -> None:
        if self._silent:
            return
        ordered = isinstance(self._axis, NumberAxis) or is_interval(self.feature)
        self.limit = Limit(
            locked=bool(self._lock.value),
            direction=str(self._direction.value),
            low=state.whole(self._low.value) if ordered else None,
            high=state.whole(self._high.value) if ordered else None,
            allowed=() if ordered else tuple(self._allowed.value),
            feature_costs=state.whole(self._cost.value),
        )
        self._tell_limit()
        self._on_limit()

    def _tell_limit(self) -> None:
        told = self.limit.told(self.feature)
        self._more.set_text(f"Limits: {told or 'none'}")
        self._card.classes(add="cp-limited" if told else "", remove="" if told else "cp-limited")


PAUSE = 0.2
"""Seconds without a keystroke after which the model is asked about values that are edited."""


class Form:
    """The sections Person and Features.

    Args:
        opened: The model, and whom to pick from.
        dispatcher: Where it is asked.
        wanted: The class that is wanted now.
        on_other: Called when somebody else is on the page.
        on_edit: Called when a value was edited, or a limit.
    """

    def __init__(
        self,
        opened: Opened,
        dispatcher: Dispatcher,
        wanted: Callable[[], Any],
        on_other: Callable[[], None],
        on_edit: Callable[[], None],
    ) -> None:
        self._opened, self._dispatcher, self._on_other, self._on_edit = opened, dispatcher, on_other, on_edit
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
            answers = await self._dispatcher.predict(self._opened.name, row)
        except CounterpathError as error:
            self._decision.unknown(str(error))
        else:
            self._decision.show(answers.iloc[0].to_dict())
