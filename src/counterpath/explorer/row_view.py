"""One row on a tab of its own: the row, what may become of each feature, and the plans that were found."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pandas as pd
from nicegui import ui

from counterpath.data.status import BindingConstraint
from counterpath.explainer.compare import COMPARED, Comparison
from counterpath.explainer.request import Request
from counterpath.explanation import Explanation
from counterpath.explorer import elements
from counterpath.explorer.figures_map import VolumeGrid, map_figure
from counterpath.explorer.forms import RequestForm, RowForm, available_methods
from counterpath.explorer.loading import LoadedModel
from counterpath.explorer.results import Bookmarks, Downloads, MethodComparison, PathView, PlanCards
from counterpath.explorer.state import BOTH, Plan, plans_of, request_arguments
from counterpath.search.methods import NEAREST
from counterpath.utils.errors import InputError

_PARTS = ("person", "features", "plans", "path", "map", "compare")
_LOOSENED: dict[str, dict[str, Any]] = {
    "lock": {"locked": False},
    "up": {"direction": BOTH},
    "down": {"direction": BOTH},
    "range": {"low": None, "high": None, "allowed": ()},
}
"""What a feature's constraint is replaced with to loosen it, by the kind of a binding constraint."""


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
        elements.links("Parts of the page", _PARTS)
        with ui.element("div").classes("cp-main"):
            with ui.element("div").classes("cp-column"):
                self._form = RowForm(
                    model, lambda: self._request_form.fields.target.value, self._clear, self._mark_outdated
                )
            with ui.element("div").classes("cp-column"):
                self._build_results()
        self._form.picker.pick_first_rejected()

    def open(self, row: pd.DataFrame) -> None:
        """Look at a row that need not be one of those to choose from: one row, under its label."""
        self._form.open(row)

    def _build_results(self) -> None:
        with elements.section("plans", "Plans"):
            self._request_form = RequestForm(self._model.explainer)
            self._search = elements.TaskControls(
                "Find plans", self._find_plans, on_end=lambda: self._methods.show_idle()
            )
            self._plans = PlanCards(self._show_path, self._bookmark, self._loosen)
            self._downloads = Downloads("explanation", "the plans", self._search.error)
        lead = "Every step from the person as they are to the plan, as the model sees it."
        with elements.section("path", "Path", lead):
            self._path = PathView()
        lead = "Where people lie for the generative model, and which way each path takes through them."
        with elements.section("map", "Latent map", lead):
            self._map = elements.Drawing()
        with elements.section("compare", "Compare"):
            self._methods = MethodComparison(lambda: self._search.start(self._compare_methods))
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
        return row, self._request_form.request(**constraints)

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
            self._methods.show_busy(f"{name} …")
            self._search.show_busy(f"Comparing: {name} …")
            started = time.monotonic()
            results[name] = await self._model.explain(row, replace(request, plans=1, method=name))
            seconds[name] = time.monotonic() - started
        table = await asyncio.to_thread(Comparison(results, seconds).table)
        self._tables = {"Methods on this person": table}
        self._downloads.offer(self._result, self._tables)
        self._methods.show(table, results)
        background = await self._model.volume_grid(row)
        self._map.show(map_figure(results, row.index.tolist()[0], background=background))
        self._search.show_idle()

    def _bookmark(self, plan: Plan) -> None:
        self._bookmarks.add(plan)
        ui.notify("Bookmarked: it is under Compare.")

    def _loosen(self, constraint: BindingConstraint) -> None:
        """Take back what stands in the way, and search again."""
        name = constraint.feature
        if constraint.kind == "max_changes":
            self._request_form.allow_any_changes()
        else:
            self._form.constrain(name, replace(self._form.constraints[name], **_LOOSENED[constraint.kind]))
        self._search.start(self._find_plans)
