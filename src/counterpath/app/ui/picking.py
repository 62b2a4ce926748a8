"""Picks a person: by search, at random, or the next whom the model rejects; and says what the model decides."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from nicegui import ui

from counterpath.app.ui import parts
from counterpath.app.ui.people import MOST_MATCHES, People
from counterpath.explanation import wording


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
