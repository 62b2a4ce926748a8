"""The plans of a person, each on a card; or why there is none, and what would have to be loosened."""

from collections.abc import Callable, Sequence
from typing import Any

from nicegui import ui

from counterpath.data.status import BindingConstraint
from counterpath.explanation import StatusCode, wording
from counterpath.explanation.milestones import steps_between
from counterpath.explorer import elements
from counterpath.explorer.state import BOTH, Plan, side_by_side

MOST_BOOKMARKS = 6
"""Plans side by side: more columns do not fit a screen."""
NO_PLANS = "Press “Find plans” to see what would have to change."
OUTDATED = "Out of date: something has changed since these plans were found."
LOOSEN: dict[str, tuple[str, dict[str, Any]]] = {
    "lock": ("Unlock {}", {"locked": False}),
    "not_actionable": ("Allow {} to change", {"locked": False}),
    "up": ("Let {} go down, too", {"direction": BOTH}),
    "down": ("Let {} go up, too", {"direction": BOTH}),
    "range": ("Drop the range of {}", {"low": None, "high": None, "allowed": ()}),
    "max_changes": ("Allow more than {} changes", {}),
    "rule": ("Drop the rule {}", {}),
}
"""How to offer to loosen a binding constraint, by its kind; and what a feature's constraint is replaced with then."""
_MOST_BUTTONS = 4
"""Constraints that can be loosened by a click: those that cost most come first, and a row of buttons has an end."""
_BADGES = {
    StatusCode.FOUND: ("found", "cp-found"),
    StatusCode.CROSSES_GAP: ("found, across a gap in the data", "cp-gap"),
    StatusCode.IMPLAUSIBLE: ("found, but far from the data", "cp-gap"),
    StatusCode.FRAGILE: ("none that lasts", "cp-gap"),
    StatusCode.ALREADY: ("already so", "cp-found"),
}

_NO_PLAN = {
    StatusCode.ALREADY: "Nothing has to change",
    StatusCode.FRAGILE: "No plan that lasts was found",
}
"""The headings of cards whose sentence says more than the reason."""


class PlanCards:
    """A card for each plan; or why there is none.

    Args:
        on_show: Called with the plan whose path is to be shown.
        on_bookmark: Called with the plan to keep.
        on_loosen: Called with the constraint to loosen.
    """

    def __init__(
        self,
        on_show: Callable[[Plan], None],
        on_bookmark: Callable[[Plan], None],
        on_loosen: Callable[[BindingConstraint], None],
    ) -> None:
        self._on_show, self._on_bookmark, self._on_loosen = on_show, on_bookmark, on_loosen
        self._cards: dict[int, ui.element] = {}
        self._shown: dict[int, Plan] = {}
        self._outdated = elements.text("p", "", "cp-outdated", role="status")
        self._outer = elements.box("div", "cp-plans", aria_live="polite")
        self.clear()

    def clear(self) -> None:
        """Show no plans."""
        self.show([])
        with self._outer:
            elements.text("p", NO_PLANS, "cp-soft")

    def show(self, plans: Sequence[Plan]) -> None:
        """Show these plans; the card of a plan that is shown already stays as it is."""
        kept = [plan for plan in plans if self._same(plan)]
        if not kept or len(kept) < len(self._shown):
            self._outer.clear()
            self._cards, self._shown, kept = {}, {}, []
        self.mark_outdated(False)
        with self._outer:
            for plan in plans:
                if plan in kept:
                    continue
                name = f"Plan {plan.number}" if plan.row.status.found else "No plan"
                with elements.box("article", "cp-plan", aria_label=name) as card:
                    self._cards[plan.number], self._shown[plan.number] = card, plan
                    if plan.row.status.found:
                        self._build_plan(plan)
                    else:
                        self._build_reason(plan)

    def _same(self, plan: Plan) -> bool:
        before = self._shown.get(plan.number)
        if before is None or not plan.row.status.found:
            return False
        return (before.row.changes, before.odds) == (plan.row.changes, plan.odds)

    def mark(self, plan: Plan) -> None:
        """Mark the plan whose path is shown."""
        for number, card in self._cards.items():
            elements.set_class(card, "cp-chosen", number == plan.number)

    def mark_outdated(self, on: bool) -> None:
        """Say that the plans are of what stood on the page before, or that they are not."""
        elements.set_class(self._outer, "cp-old", on)
        self._outdated.set_text(OUTDATED if on else "")
        self._outdated.set_visibility(on)

    def _build_head(self, title: str, plan: Plan) -> None:
        words, look = _BADGES.get(plan.row.status, ("no plan", "cp-none"))
        with ui.element("div").classes("cp-card-head"):
            elements.text("h3", title)
            elements.text("span", words, f"cp-badge {look}")

    def _build_plan(self, plan: Plan) -> None:
        number = plan.number
        self._build_head(f"Plan {number}", plan)
        now, then = plan.odds
        said = "Prediction" if plan.row.wanted else f"Probability of {plan.outcome}"
        elements.text("p", f"{said}: {now} → {then}", "cp-odds")
        if plan.row.retrained:
            accepting, count = plan.row.retrained
            elements.text("p", f"Accepted by {accepting} of {count} retrained models", "cp-soft")
        with elements.box("ul", "cp-changes", aria_label=f"What changes in plan {number}"):
            for change in plan.row.changes:
                with ui.element("li"):
                    elements.text("span", change.name, "cp-feature")
                    elements.text("span", change.old)
                    elements.text("span", "→")
                    elements.text("span", change.then, "cp-new")
        with elements.box("details", "cp-details"):
            elements.text("summary", "In words, step by step")
            elements.text("p", plan.row.sentence)
            if plan.row.status is StatusCode.CROSSES_GAP:
                elements.text("p", plan.row.reason, "cp-soft")
            steps = steps_between(plan.milestones)
            with elements.box("ol", "cp-steps"):
                for step in steps:
                    reached = f" (probability {wording.percent(step.probability)})" if not plan.row.wanted else ""
                    elements.text("li", f"{step.changes or 'no change'}{reached}")
        with ui.element("div").classes("cp-row"):
            show = elements.button("Show path", name=f"Show path of plan {number}")
            show.on_click(lambda: self._on_show(plan)).on_click(lambda: elements.focus("path-title"))
            elements.button("Bookmark", lambda: self._on_bookmark(plan), "flat dense", f"Bookmark plan {number}")

    def _build_reason(self, plan: Plan) -> None:
        title = _NO_PLAN.get(plan.row.status)
        self._build_head(title or "No plan was found", plan)
        elements.text("p", plan.row.sentence if title else plan.row.reason)
        if not plan.row.binding:
            return
        elements.text("p", f"In the way: {plan.row.binding}.", "cp-soft")
        titles = wording.titles(plan.explanation.schema)
        with ui.element("div").classes("cp-row"):
            for constraint in plan.binding[:_MOST_BUTTONS]:
                name = titles.get(constraint.feature, constraint.feature)  # of `max_changes` it is a number
                always = constraint.kind == "rule" and name in plan.explanation.schema.rules
                if always:
                    elements.text("span", f"the rule {name}", "cp-badge")
                elif constraint.kind in LOOSEN:
                    words = LOOSEN[constraint.kind][0].format(name)
                    elements.button(words, lambda constraint=constraint: self._on_loosen(constraint))
                else:
                    elements.text("span", f"{name} cannot change", "cp-badge")


class Bookmarks:
    """The plans on the page side by side, and below them those that are kept while the tab is open."""

    def __init__(self) -> None:
        self._plans: list[Plan] = []
        elements.text("h3", "Plans side by side")
        self._current = ui.element("div").classes("cp-stack")
        self.compare([])
        elements.text("h3", "Bookmarked plans")
        self._outer = ui.element("div").classes("cp-stack")
        self._show()

    def compare(self, plans: Sequence[Plan]) -> None:
        """Show the plans of the page, each in a column."""
        found = [plan for plan in plans if plan.row.status.found]
        self._current.clear()
        with self._current:
            if not found:
                elements.text("p", "The plans that were found appear here, each in a column.", "cp-soft")
                return
            head = ["", *(f"Plan {plan.number}" for plan in found)]
            elements.table("Plans side by side", head, side_by_side(found))

    def add(self, plan: Plan) -> None:
        """Keep a plan; of many the oldest is dropped."""
        self._plans = [*self._plans, plan][-MOST_BOOKMARKS:]
        self._show()

    def _remove(self, plan: Plan) -> None:
        elements.focus("compare-title")  # the button goes away
        self._plans = [other for other in self._plans if other is not plan]
        self._show()

    def _show(self) -> None:
        self._outer.clear()
        with self._outer:
            if not self._plans:
                hint = "Bookmark plans, of one person or of several, to keep them side by side."
                elements.text("p", hint, "cp-soft")
                return
            titles = [f"{number}. {plan.title}" for number, plan in enumerate(self._plans, start=1)]
            elements.table("Bookmarked plans side by side", ["", *titles], side_by_side(self._plans))
            with ui.element("div").classes("cp-row"):
                for number, plan in enumerate(self._plans, start=1):
                    elements.button(f"Remove {number}", lambda plan=plan: self._remove(plan), "flat dense")
