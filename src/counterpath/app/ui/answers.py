"""The plans that were found, a card each; or why there is none, and what would have to be loosened."""

from collections.abc import Callable, Sequence

from nicegui import ui

from counterpath.app.ui import parts
from counterpath.app.ui.limits import binding
from counterpath.app.ui.plans import Plan
from counterpath.data.schema import Schema
from counterpath.explanation import Status

_LOOSEN = {
    "lock": "Unlock {}",
    "up": "Let {} go down, too",
    "down": "Let {} go up, too",
    "range": "Drop the range of {}",
}
_MOST_OBSTACLES = 4
_UNBROKEN = "\N{NO-BREAK SPACE}"
_HEADS = {
    Status.FOUND: ("found", "cp-found"),
    Status.CROSSES_GAP: ("found, across a gap in the data", "cp-gap"),
    Status.ALREADY: ("already so", "cp-found"),
}


class Answers:
    """Shows plans.

    Args:
        schema: What the features are.
        on_show: Called with the plan whose path is to be shown.
        on_bookmark: Called with the plan to keep.
        on_loosen: Called with the kind and the name of a constraint to loosen.
    """

    def __init__(
        self,
        schema: Schema,
        on_show: Callable[[Plan], None],
        on_bookmark: Callable[[Plan], None],
        on_loosen: Callable[[str, str], None],
    ) -> None:
        self._schema, self._on_show, self._on_bookmark, self._on_loosen = schema, on_show, on_bookmark, on_loosen
        self._cards: dict[int, ui.element] = {}
        self._outer = ui.element("div").classes("cp-plans")
        self._outer.props["aria-live"] = "polite"
        self.clear("Ask for plans to see what would have to change.")

    def clear(self, words: str) -> None:
        """Show nothing but a remark."""
        self._outer.clear()
        self._cards = {}
        with self._outer:
            ui.label(words).classes("cp-soft")

    def show(self, plans: Sequence[Plan]) -> None:
        """Show these plans instead of what is shown."""
        self._outer.clear()
        self._cards = {}
        with self._outer:
            for plan in plans:
                with ui.element("article").classes("cp-plan") as card:
                    parts.named(card, f"Plan {plan.number}")
                    self._cards[plan.number] = card
                    if plan.status.found:
                        self._plan(plan)
                    else:
                        self._no_plan(plan)

    def choose(self, plan: Plan) -> None:
        """Mark the plan whose path is shown."""
        for number, card in self._cards.items():
            chosen = number == plan.number
            card.classes(add="cp-chosen" if chosen else "", remove="" if chosen else "cp-chosen")

    def _plan(self, plan: Plan) -> None:
        head, look = _HEADS[plan.status]
        with ui.element("div").classes("cp-card-head"):
            parts.text("h3", f"Plan {plan.number}")
            parts.text("span", head, f"cp-badge {look}")
        odds = _UNBROKEN.join((plan.odds[0], "→", plan.odds[1]))
        parts.text("p", f"Probability of {plan.wanted}: {odds}", "cp-odds")
        with ui.element("ul").classes("cp-changes") as listed:
            parts.named(listed, f"What changes in plan {plan.number}")
            for change in plan.changes:
                with ui.element("li"):
                    parts.text("span", change.feature, "cp-feature")
                    parts.text("span", change.old)
                    parts.text("span", "→")
                    parts.text("span", change.new, "cp-new")
        parts.text("p", plan.sentence)
        if plan.status is Status.CROSSES_GAP:
            parts.text("p", plan.reason, "cp-soft")
        if plan.steps:
            parts.text("p", "Step by step:", "cp-soft")
            with ui.element("ol").classes("cp-steps"):
                for step in plan.steps:
                    parts.text("li", step)
        with ui.element("div").classes("cp-row"):
            path = ui.button("Show path", on_click=lambda: self._on_show(plan)).props("outline dense no-caps")
            keep = ui.button("Bookmark", on_click=lambda: self._on_bookmark(plan)).props("flat dense no-caps")
            parts.named(path, f"Show the path of plan {plan.number}")
            parts.named(keep, f"Bookmark plan {plan.number}")

    def _no_plan(self, plan: Plan) -> None:
        head, look = _HEADS.get(plan.status, ("no plan", "cp-none"))
        with ui.element("div").classes("cp-card-head"):
            parts.text("h3", "Nothing has to change" if plan.status is Status.ALREADY else "No plan was found")
            parts.text("span", head, f"cp-badge {look}")
        parts.text("p", plan.sentence if plan.status.valid else plan.reason)
        if plan.binding:
            self._obstacles(plan)

    def _obstacles(self, plan: Plan) -> None:
        found = binding(self._schema, plan.binding)
        parts.text("p", f"In the way: {plan.binding}.", "cp-soft")
        with ui.element("div").classes("cp-row"):
            for kind, name in found[:_MOST_OBSTACLES]:
                if kind == "immutable":
                    parts.text("span", f"{name} cannot change", "cp-badge")
                    continue
                words = f"Allow more than {name} changes" if kind == "max_changes" else _LOOSEN[kind].format(name)
                loosen = ui.button(words, on_click=lambda kind=kind, name=name: self._on_loosen(kind, name))
                loosen.props("outline dense no-caps")
