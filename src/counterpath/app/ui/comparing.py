"""Methods and bookmarked plans, side by side."""

from collections.abc import Callable, Mapping

import pandas as pd
from nicegui import ui

from counterpath.app.ui import parts
from counterpath.app.ui.plans import Plan, side_by_side
from counterpath.explanation import Explanation, wording

_COLUMNS = {
    "l0": "changes",
    "l1": "l1",
    "ld_sq": "ld²",
    "confidence": "probability",
    "steps": "steps",
    "seconds": "seconds",
}
_LEGEND = (
    "changes: features that change. l1: how far, all together, each as a share of its range. ld²: how far from the "
    "nearest training row, squared. Smaller is better in all three."
)
MOST_BOOKMARKS = 6


class Methods:
    """What several methods find for this person.

    Args:
        on_compare: Called when they are to be compared.
    """

    def __init__(self, on_compare: Callable[[], None]) -> None:
        parts.text("h3", "Methods")
        with ui.element("div").classes("cp-row"):
            self._button = ui.button("Compare methods", on_click=on_compare).props("outline no-caps")
            self._doing = ui.label().classes("cp-soft")
            self._doing.props["role"] = "status"
        self._outer = ui.element("div")

    def busy(self, doing: str) -> None:
        """Say what is being done."""
        self._button.disable()
        self._doing.set_text(doing)

    def rest(self) -> None:
        """Nothing is being done."""
        self._button.enable()
        self._doing.set_text("")

    def clear(self) -> None:
        """Compare nothing."""
        self._outer.clear()

    def show(self, table: pd.DataFrame, results: Mapping[str, Explanation]) -> None:
        """Show the table of a comparison, and what each method found."""
        self._outer.clear()
        head = ["method", "result", *_COLUMNS.values()]
        rows = []
        for name, numbers in table.iterrows():
            status = str(results[str(name)].status["status"].iloc[0]).replace("_", " ")
            rows.append([str(name), status, *(wording.value(numbers[column], digits=3) for column in _COLUMNS)])
        with self._outer:
            parts.text("p", _LEGEND, "cp-soft")
            parts.table("What each method finds for this person", head, rows, "cp-numbers")


class Bookmarks:
    """Plans that are kept while the tab is open, each in a column."""

    def __init__(self) -> None:
        self._kept: list[Plan] = []
        parts.text("h3", "Bookmarked plans")
        self._outer = ui.element("div").classes("cp-stack")
        self._show()

    def add(self, plan: Plan) -> None:
        """Keep a plan; of many the oldest is dropped."""
        self._kept = [*self._kept, plan][-MOST_BOOKMARKS:]
        self._show()

    def _drop(self, plan: Plan) -> None:
        self._kept = [kept for kept in self._kept if kept is not plan]
        self._show()

    def _show(self) -> None:
        self._outer.clear()
        with self._outer:
            if not self._kept:
                ui.label("Bookmark plans, of one person or of several, to see them side by side.").classes("cp-soft")
                return
            names = [f"{number}. {plan.title}" for number, plan in enumerate(self._kept, start=1)]
            parts.table("Bookmarked plans side by side", ["", *names], side_by_side(self._kept))
            with ui.element("div").classes("cp-row"):
                for number, plan in enumerate(self._kept, start=1):
                    remove = ui.button(f"Remove {number}", on_click=lambda plan=plan: self._drop(plan))
                    remove.props("flat dense no-caps")
