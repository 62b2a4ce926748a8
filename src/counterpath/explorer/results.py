"""The plans that were found, a card each; or why there is none, and what would have to be loosened."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pandas as pd
from nicegui import ui

from counterpath.data.schema import Schema
from counterpath.explanation import Explanation, StatusCode, wording
from counterpath.explanation.tables import path_features
from counterpath.explorer import parts
from counterpath.explorer.figures_path import cursor, path_figure
from counterpath.explorer.plotting import Drawing
from counterpath.explorer.state import Plan, side_by_side

_LOOSEN = {
    "lock": "Unlock {}",
    "up": "Let {} go down, too",
    "down": "Let {} go up, too",
    "range": "Drop the range of {}",
}
_MOST_OBSTACLES = 4
_UNBROKEN = "\N{NO-BREAK SPACE}"
_HEADS = {
    StatusCode.FOUND: ("found", "cp-found"),
    StatusCode.CROSSES_GAP: ("found, across a gap in the data", "cp-gap"),
    StatusCode.ALREADY: ("already so", "cp-found"),
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
        if plan.status is StatusCode.CROSSES_GAP:
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
            parts.text("h3", "Nothing has to change" if plan.status is StatusCode.ALREADY else "No plan was found")
            parts.text("span", head, f"cp-badge {look}")
        parts.text("p", plan.sentence if plan.status.valid else plan.reason)
        if plan.binding:
            self._obstacles(plan)

    def _obstacles(self, plan: Plan) -> None:
        words = "; ".join(map(str, plan.binding))
        parts.text("p", f"In the way: {words}.", "cp-soft")
        with ui.element("div").classes("cp-row"):
            for constraint in plan.binding[:_MOST_OBSTACLES]:
                kind, name = constraint.kind, constraint.feature
                if kind == "immutable":
                    parts.text("span", f"{name} cannot change", "cp-badge")
                    continue
                words = f"Allow more than {name} changes" if kind == "max_changes" else _LOOSEN[kind].format(name)
                loosen = ui.button(words, on_click=lambda kind=kind, name=name: self._on_loosen(kind, name))
                loosen.props("outline dense no-caps")


class Walking:
    """Shows one path; a step of it is chosen by the slider."""

    def __init__(self) -> None:
        self._hint = parts.text("p", "The path of a plan appears here.", "cp-soft")
        self._outer = ui.element("div").classes("cp-stack")

    def clear(self) -> None:
        """Show no path."""
        self._outer.clear()
        self._hint.set_visibility(True)

    def show(self, plan: Plan) -> None:
        """Show the path of a plan, from its end."""
        self.clear()
        self._hint.set_visibility(False)
        with self._outer:
            _Path(plan)


class _Path:
    def __init__(self, plan: Plan) -> None:
        self._points = plan.explanation.path(plan.label)
        self._features = path_features(self._points, plan.explanation.schema.names)
        steps, stops = self._points["step"].tolist(), plan.stops["step"].tolist()
        self._stops = {steps.index(step): number for number, step in enumerate(stops)}
        last, wanted = len(self._points) - 1, plan.wanted
        parts.text("h3", f"Plan {plan.number}, by {plan.method}")
        with ui.element("div").classes("cp-slider"):
            self._slider = ui.slider(
                min=0, max=max(last, 1), step=1, value=last, on_change=lambda e: self._go(int(e.value))
            )
            self._slider.props["marker-labels"] = [
                {"value": place, "label": self._milestone(place, short=True)} for place in self._stops
            ]
            parts.named(self._slider, "Step along the path")
            self._slider.set_enabled(last > 0)
        with ui.element("div").classes("cp-row"):
            for place in self._stops:
                words = f"To {self._milestone(place)}"
                ui.button(words, on_click=lambda place=place: self._slider.set_value(place)).props("flat dense no-caps")
        self._where = parts.text("p", "", "cp-odds")
        self._where.props["aria-live"] = "polite"
        self._said = parts.text("p", "", "cp-soft")
        self._wanted = wanted
        self._drawing = Drawing()
        self._drawing.show(path_figure(plan.explanation, plan.label))
        self._cells = self._table()
        self._tell(last)

    def _table(self) -> dict[str, tuple[Any, Any]]:
        """All features now and at a step; what is to be written there when another step is chosen."""
        cells = {}
        with ui.expansion("All values at this step").props("dense"), ui.element("table").classes("cp-table"):
            parts.text("caption", "All values at this step of the path", "cp-hidden")
            with ui.element("thead"), ui.element("tr"):
                for head in ("feature", "now", "at this step"):
                    parts.text("th", head).props["scope"] = "col"
            with ui.element("tbody"):
                for name in self._features:
                    with ui.element("tr") as row:
                        parts.text("th", str(name)).props["scope"] = "row"
                        parts.text("td", wording.value(self._features[name].iloc[0]))
                        cells[str(name)] = (row, parts.text("td", ""))
        return cells

    def _go(self, place: int) -> None:
        """Move to a point of the path."""
        self._tell(place)
        self._drawing.relayout(cursor(int(self._points["step"].iloc[place])))

    def _tell(self, place: int) -> None:
        """Show what holds at a point of the path."""
        point, last = self._points.iloc[place], len(self._points) - 1
        stop = f" · {self._milestone(place)}" if place in self._stops else ""
        self._where.set_text(f"Step {place} of {last}{stop}")
        chance, doubt = wording.probability(point["probability"]), wording.value(point["uncertainty"], digits=3)
        self._said.set_text(f"Probability of {self._wanted}: {chance} · uncertainty of the generative model: {doubt}")
        for name, (row, cell) in self._cells.items():
            first, here = self._features[name].iloc[0], self._features[name].iloc[place]
            cell.set_text(wording.texts((first, here))[1])
            moved = first != here
            row.classes(add="cp-moved" if moved else "", remove="" if moved else "cp-moved")

    def _milestone(self, place: int, *, short: bool = False) -> str:
        number = self._stops[place]
        if place == 0:
            return "now" if short else "the row as asked"
        if number == len(self._stops) - 1:
            return "plan" if short else "the plan"
        return f"{number}" if short else f"milestone {number}"


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


Tables: TypeAlias = Mapping[str, pd.DataFrame]
Writer: TypeAlias = Callable[[Explanation, Path, Tables], Any]

FORMATS: dict[str, tuple[str, Writer]] = {
    "json": ("application/json", lambda result, path, tables: result.to_json(path)),
    "csv": ("text/csv", lambda result, path, tables: result.to_csv(path)),
    "html": ("text/html", lambda result, path, tables: result.to_html(path, tables=tables)),
}
"""By the end of a file's name its media type, and what writes it."""


def content(result: Explanation, suffix: str, tables: Tables) -> bytes:
    """The file as bytes; nothing of it stays on the disk.

    Args:
        result: What to write.
        suffix: A key of `FORMATS`.
        tables: Further tables for a report, by their headings.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"explanation.{suffix}"
        FORMATS[suffix][1](result, path, tables)
        return path.read_bytes()


class TakingHome:
    """A button for every format, hidden until there is something to take.

    Args:
        name: Of the files, and of what they hold.
        what: What they hold, for those who do not see it.
        shown: Gives the explanation and further tables for a report.
        problem: Where to say what goes wrong.
    """

    def __init__(
        self, name: str, what: str, shown: Callable[[], tuple[Explanation, Tables] | None], problem: ui.label
    ) -> None:
        self._name, self._shown, self._problem = name, shown, problem
        with ui.element("div").classes("cp-row") as self._row:
            ui.label("Take it home:").classes("cp-soft")
            for suffix in FORMATS:
                save = ui.button(suffix.upper(), on_click=lambda suffix=suffix: self._save(suffix))
                save.props("outline dense no-caps")
                parts.named(save, f"Download {what} as {suffix.upper()}")
        self.show(there=False)

    def show(self, *, there: bool) -> None:
        """Whether there is something to take."""
        self._row.set_visibility(there)

    async def _save(self, suffix: str) -> None:
        shown = self._shown()
        if shown is not None:
            with parts.told(self._problem):
                data = await asyncio.to_thread(content, shown[0], suffix, shown[1])
                ui.download.content(data, f"{self._name}.{suffix}", FORMATS[suffix][0])
