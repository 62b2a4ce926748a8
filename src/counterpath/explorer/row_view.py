"""One row on a tab of its own: the row, what may become of each feature, the plans that were found and their paths."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from nicegui import ui

from counterpath.data.status import BindingConstraint
from counterpath.explainer.compare import COMPARED, Comparison
from counterpath.explainer.request import Request
from counterpath.explanation import Explanation, StatusCode, wording
from counterpath.explanation.milestones import steps_between
from counterpath.explanation.tables import path_features
from counterpath.explorer import elements
from counterpath.explorer.figures import cursor, path_figure
from counterpath.explorer.figures_map import VolumeGrid, map_figure
from counterpath.explorer.forms import RowForm, TargetFields, as_integer, available_methods
from counterpath.explorer.state import BOTH, LoadedModel, Plan, plans_of, request_arguments, side_by_side
from counterpath.search.methods import NEAREST, resolve_method
from counterpath.utils.errors import InputError

MOST_BOOKMARKS = 6
"""Plans side by side: more columns do not fit a screen."""
NO_PLANS = "Ask for plans to see what would have to change."
_LOOSEN: dict[str, tuple[str, dict[str, Any]]] = {
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
_NO_BREAK = "\N{NO-BREAK SPACE}"
_BADGES = {
    StatusCode.FOUND: ("found", "cp-found"),
    StatusCode.CROSSES_GAP: ("found, across a gap in the data", "cp-gap"),
    StatusCode.IMPLAUSIBLE: ("found, but far from the data", "cp-gap"),
    StatusCode.FRAGILE: ("found, but it does not last", "cp-gap"),
    StatusCode.ALREADY: ("already so", "cp-found"),
}
_COMPARED = {"l0": "changes", "l1": "l1", "ld_sq": "ld²", "confidence": "probability"} | {
    name: name for name in ("steps", "seconds")
}
"""Columns of a comparison of methods, and what they are called on the page."""
_LEGEND = (
    "changes: features that change. l1: how far, all together, each as a share of its range. ld²: how far from the "
    "nearest training row, squared. Smaller is better in all three."
)


class PlanCards:
    """A card for each plan; or why there is none, and what would have to be loosened.

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
        self._outer = elements.box("div", "cp-plans", aria_live="polite")
        self.clear()

    def clear(self) -> None:
        """Show no plans."""
        self.show([])
        with self._outer:
            ui.label(NO_PLANS).classes("cp-soft")

    def show(self, plans: Sequence[Plan]) -> None:
        """Show these plans instead of what is shown."""
        self._outer.clear()
        self._cards = {}
        with self._outer:
            for plan in plans:
                with elements.box("article", "cp-plan", aria_label=f"Plan {plan.number}") as card:
                    self._cards[plan.number] = card
                    if plan.row.status.found:
                        self._build_plan(plan)
                    else:
                        self._build_reason(plan)

    def mark(self, plan: Plan) -> None:
        """Mark the plan whose path is shown."""
        for number, card in self._cards.items():
            elements.set_class(card, "cp-chosen", number == plan.number)

    def _build_head(self, title: str, plan: Plan) -> None:
        words, look = _BADGES.get(plan.row.status, ("no plan", "cp-none"))
        with ui.element("div").classes("cp-card-head"):
            elements.text("h3", title)
            elements.text("span", words, f"cp-badge {look}")

    def _build_plan(self, plan: Plan) -> None:
        self._build_head(f"Plan {plan.number}", plan)
        probabilities = plan.row.probabilities.replace(" → ", f"{_NO_BREAK}→{_NO_BREAK}")
        said = f"Prediction: {probabilities}" if plan.row.wanted else f"Probability of {plan.outcome}: {probabilities}"
        elements.text("p", said, "cp-odds")
        with elements.box("ul", "cp-changes", aria_label=f"What changes in plan {plan.number}"):
            for change in plan.row.changes:
                with ui.element("li"):
                    elements.text("span", change.name, "cp-feature")
                    elements.text("span", change.old)
                    elements.text("span", "→")
                    elements.text("span", change.then, "cp-new")
        elements.text("p", plan.row.sentence)
        if plan.row.status is StatusCode.CROSSES_GAP:
            elements.text("p", plan.row.reason, "cp-soft")
        steps = steps_between(plan.milestones)
        if steps:
            elements.text("p", "Step by step:", "cp-soft")
            with ui.element("ol").classes("cp-steps"):
                for step in steps:
                    elements.text("li", step.line)
        with ui.element("div").classes("cp-row"):
            number = plan.number
            elements.button("Show path", lambda: self._on_show(plan), name=f"Show the path of plan {number}")
            elements.button("Bookmark", lambda: self._on_bookmark(plan), "flat dense", f"Bookmark plan {number}")

    def _build_reason(self, plan: Plan) -> None:
        already = plan.row.status is StatusCode.ALREADY
        self._build_head("Nothing has to change" if already else "No plan was found", plan)
        elements.text("p", plan.row.sentence if already else plan.row.reason)
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
                elif constraint.kind in _LOOSEN:
                    words = _LOOSEN[constraint.kind][0].format(name)
                    elements.button(words, lambda constraint=constraint: self._on_loosen(constraint))
                else:
                    elements.text("span", f"{name} cannot change", "cp-badge")


class PathView:
    """Shows one path; a step of it is chosen by the slider."""

    def __init__(self) -> None:
        self._hint = elements.text("p", "The path of a plan appears here.", "cp-soft")
        self._outer = ui.element("div").classes("cp-stack")

    def clear(self) -> None:
        """Show no path."""
        self._outer.clear()
        self._hint.set_visibility(True)

    def show(self, plan: Plan) -> None:
        """Show the path of a plan, from its end."""
        self.clear()
        self._hint.set_visibility(False)
        self._outcome = plan.outcome
        self._points, self._schema = plan.explanation.path(plan.label), plan.explanation.schema
        self._features = path_features(self._points, self._schema.names)
        steps = self._points["step"].tolist()
        self._milestones = [steps.index(step) for step in plan.milestones["step"]]
        with self._outer:
            elements.text("h3", f"Plan {plan.number}, by {plan.method}")
            last = len(steps) - 1
            self._build_slider(last)
            self._position = elements.text("p", "", "cp-odds", aria_live="polite")
            self._values = elements.text("p", "", "cp-soft")
            self._drawing = elements.Drawing()
            self._drawing.show(path_figure(plan.explanation, plan.label))
            with ui.expansion("All values at this step").props("dense"):
                rows = [
                    [feature.title, wording.amount(feature, self._features[feature.name].array[0]), ""]
                    for feature in self._schema
                ]
                head = ["feature", "now", "at this step"]
                self._rows = elements.table("All values at this step of the path", head, rows)
        self._show_point(len(steps) - 1)

    def _build_slider(self, last: int) -> None:
        with ui.element("div").classes("cp-slider"):
            slider = ui.slider(
                min=0, max=max(last, 1), step=1, value=last, on_change=lambda e: self._move(int(e.value))
            )
            labels = [{"value": index, "label": self._milestone(index, short=True)} for index in self._milestones]
            elements.describe(slider, marker_labels=labels, aria_label="Step along the path")
            slider.set_enabled(last > 0)
        with ui.element("div").classes("cp-row"):
            for index in self._milestones:
                words = f"To {self._milestone(index)}"
                elements.button(words, lambda index=index: slider.set_value(index), "flat dense")

    def _move(self, index: int) -> None:
        """Move to a point of the path."""
        self._show_point(index)
        self._drawing.relayout(cursor(int(self._points["step"].iloc[index])))

    def _show_point(self, index: int) -> None:
        """Show what holds at a point of the path."""
        point, last = self._points.iloc[index], len(self._points) - 1
        milestone = f" · {self._milestone(index)}" if index in self._milestones else ""
        self._position.set_text(f"Step {index} of {last}{milestone}")
        probability = wording.probability(point["probability"])
        uncertainty = wording.rounded(point["uncertainty"])
        self._values.set_text(
            f"Probability of {self._outcome}: {probability} · uncertainty of the generative model: {uncertainty}"
        )
        for feature, (row, cells) in zip(self._schema, self._rows, strict=True):
            values = self._features[feature.name].array
            first, here = values[0], values[index]
            cells[-1].set_text(wording.amount(feature, here))
            elements.set_class(row, "cp-moved", first != here)

    def _milestone(self, index: int, *, short: bool = False) -> str:
        if index == 0:
            return "now" if short else "the row as asked"
        if index == self._milestones[-1]:
            return "plan" if short else "the plan"
        number = self._milestones.index(index)
        return f"{number}" if short else f"milestone {number}"


class Bookmarks:
    """Plans that are kept while the tab is open, each in a column."""

    def __init__(self) -> None:
        self._plans: list[Plan] = []
        elements.text("h3", "Bookmarked plans")
        self._outer = ui.element("div").classes("cp-stack")
        self._show()

    def add(self, plan: Plan) -> None:
        """Keep a plan; of many the oldest is dropped."""
        self._plans = [*self._plans, plan][-MOST_BOOKMARKS:]
        self._show()

    def _remove(self, plan: Plan) -> None:
        self._plans = [other for other in self._plans if other is not plan]
        self._show()

    def _show(self) -> None:
        self._outer.clear()
        with self._outer:
            if not self._plans:
                ui.label("Bookmark plans, of one person or of several, to see them side by side.").classes("cp-soft")
                return
            titles = [f"{number}. {plan.title}" for number, plan in enumerate(self._plans, start=1)]
            elements.table("Bookmarked plans side by side", ["", *titles], side_by_side(self._plans))
            with ui.element("div").classes("cp-row"):
                for number, plan in enumerate(self._plans, start=1):
                    elements.button(f"Remove {number}", lambda plan=plan: self._remove(plan), "flat dense")


class RowView:
    """The tab of one row.

    Args:
        model: The model, and the rows to choose from.
    """

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._background: VolumeGrid | None = None
        self._result: Explanation | None = None
        self._tables: dict[str, pd.DataFrame] = {}
        with elements.box("nav", "cp-links", aria_label="Parts of the page"):
            for identity in ("person", "features", "rules", "plans", "path", "map", "compare"):
                ui.link(identity.capitalize(), f"#{identity}")
        with ui.element("div").classes("cp-main"):
            with ui.element("div").classes("cp-column"):
                self._form = RowForm(model, lambda: self._fields.target.value, self._clear, self._mark_outdated)
            with ui.element("div").classes("cp-column"):
                self._build_results()
        self._form.pick_next_rejected()

    def open(self, row: pd.DataFrame) -> None:
        """Look at a row that need not be one of those to choose from: one row, under its label."""
        self._form.open(row)

    def _build_results(self) -> None:
        with elements.section("plans", "Plans"):
            with ui.element("div").classes("cp-fields"):
                self._fields = TargetFields(self._model.explainer, on_method=self._describe_method)
                elements.describe(self._fields.confidence, hint="the least probability; empty: as the model decides")
                self._plans_field = elements.describe(ui.number("Plans", value=3, step=1), hint="at most")
                self._max_changes = elements.describe(ui.number("Most changes", step=1), hint="empty: any number")
            self._description = elements.text("p", "", "cp-soft")
            self._describe_method()
            self._search = elements.TaskControls(
                "Find plans", self._find_plans, on_end=lambda: self._show_comparing("")
            )
            self._plans = PlanCards(self._show_path, self._bookmark, self._loosen)
            self._downloads = elements.Downloads("explanation", "the plans", self._search.error)
        lead = "Every step from the person as they are to the plan, as the model sees it."
        with elements.section("path", "Path", lead):
            self._path = PathView()
        lead = "Where people lie for the generative model, and which way each path takes through them."
        with elements.section("map", "Latent map", lead):
            self._map = elements.Drawing()
        with elements.section("compare", "Compare"):
            elements.text("h3", "Methods")
            with ui.element("div").classes("cp-row"):
                self._compare = elements.button(
                    "Compare methods", lambda: self._search.start(self._compare_methods), "outline"
                )
                self._comparing = elements.describe(ui.label().classes("cp-soft"), role="status")
            self._methods = ui.element("div")
            self._bookmarks = Bookmarks()

    def _clear(self) -> None:
        """Drop the plans of the row that was on the page before."""
        self._search.cancel()
        self._search.show_idle()
        self._search.error.set_text("")
        self._result, self._tables = None, {}
        for part in (self._plans, self._path, self._map, self._methods):
            part.clear()
        self._downloads.offer(None, {})

    def _mark_outdated(self) -> None:
        """Say that plans are shown for other values or constraints."""
        self._search.error.set_text("")
        if self._result is not None and not self._search.running:
            self._search.show_idle("The plans below are from before your last edit.")

    def _row_and_request(self) -> tuple[pd.DataFrame, Request]:
        row = self._form.checked_row()
        if row is None:
            raise InputError("Something about the values or limits cannot be; it is marked in red.")
        constraints = request_arguments(self._model.explainer.schema_, self._form.constraints)
        plans, max_changes = as_integer(self._plans_field.value), as_integer(self._max_changes.value)
        return row, self._fields.request(plans=plans, max_changes=max_changes, rules=self._form.rules, **constraints)

    def _describe_method(self) -> None:
        name = str(self._fields.method.value)
        self._description.set_text(f"{name}: {resolve_method(name).description}.")

    async def _find_plans(self) -> None:
        row, request = self._row_and_request()
        self._search.show_busy("Looking for a plan …")
        plans = self._show_plans(await self._model.explain(row, replace(request, plans=1)))
        # Meanwhile the browser has the plan: nothing is drawn before.
        self._background = await self._model.volume_grid(row) if plans[0].row.status.searched else None
        self._show_path(plans[0])
        if request.plans > 1 and plans[0].row.status.found:
            self._search.show_busy(f"Here is one; looking for {request.plans} that differ …")
            plans = self._show_plans(await self._model.explain(row, request))
            self._show_path(plans[0])
        found = sum(plan.row.status.found for plan in plans)
        self._search.show_idle(f"{found} plan{'' if found == 1 else 's'}." if found else "No plan.")

    def _show_plans(self, result: Explanation) -> list[Plan]:
        self._result, plans = result, plans_of(result)
        self._plans.show(plans)
        self._downloads.offer(result, self._tables)
        return plans

    def _show_path(self, plan: Plan) -> None:
        if not len(plan.milestones):
            return
        self._plans.mark(plan)
        self._path.show(plan)
        self._map.show(map_figure({plan.method: plan.explanation}, plan.label, background=self._background))

    async def _compare_methods(self) -> None:
        row, request = self._row_and_request()
        available = available_methods(self._model.explainer)
        results: dict[str, Explanation] = {}
        seconds: dict[str, float] = {}
        for name in dict.fromkeys([*(name for name in COMPARED if name in available), NEAREST]):
            self._show_comparing(f"{name} …")
            self._search.show_busy(f"Comparing: {name} …")
            started = time.monotonic()
            results[name] = await self._model.explain(row, replace(request, plans=1, method=name))
            seconds[name] = time.monotonic() - started
        table = await asyncio.to_thread(Comparison(results, seconds).table)
        self._tables = {"Methods on this person": table}
        self._downloads.offer(self._result, self._tables)
        rows = []
        for name, result in results.items():
            status, numbers = str(result.status["status"].iloc[0]).replace("_", " "), table.loc[name]
            rows.append([name, status, *(wording.rounded(numbers[column]) for column in _COMPARED)])
        self._methods.clear()
        with self._methods:
            elements.text("p", _LEGEND, "cp-soft")
            head = ["method", "result", *_COMPARED.values()]
            elements.table("What each method finds for this person", head, rows, "cp-numbers")
        background = await self._model.volume_grid(row)
        self._map.show(map_figure(results, row.index.tolist()[0], background=background))
        self._search.show_idle()

    def _show_comparing(self, doing: str) -> None:
        """Say what is being compared, or nothing when nothing is."""
        self._compare.set_enabled(not doing)
        self._comparing.set_text(doing)

    def _bookmark(self, plan: Plan) -> None:
        self._bookmarks.add(plan)
        ui.notify("Bookmarked: it is under Compare.")

    def _loosen(self, constraint: BindingConstraint) -> None:
        """Take back what stands in the way, and search again."""
        name = constraint.feature
        if constraint.kind == "max_changes":
            self._max_changes.set_value(None)  # as many as needed
        elif constraint.kind == "rule":
            self._form.drop_rule(name)
        else:
            self._form.constrain(name, replace(self._form.constraints[name], **_LOOSEN[constraint.kind][1]))
        self._search.start(self._find_plans)
