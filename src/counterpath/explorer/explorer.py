"""What one tab of the browser holds: a person, what they say about each feature, and the plans that were found."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pandas as pd
from nicegui import background_tasks, ui

from counterpath.data.constraints import parse_count
from counterpath.explainer.compare import COMPARED, Comparison
from counterpath.explainer.request import Request
from counterpath.explanation import Explanation
from counterpath.explorer import parts, state
from counterpath.explorer.figures import Relief, map_figure
from counterpath.explorer.figures_map import relief_for
from counterpath.explorer.form import Form
from counterpath.explorer.opening import Opened
from counterpath.explorer.plotting import Drawing
from counterpath.explorer.request_form import Wanting, available
from counterpath.explorer.results import Answers, Bookmarks, Methods, TakingHome, Walking
from counterpath.explorer.state import BOTH, Plan, plans_of
from counterpath.search.methods import NEAREST
from counterpath.service.dispatcher import Dispatcher
from counterpath.utils.errors import InputError

_PARTS = {
    "person": "Person",
    "features": "Features",
    "plans": "Plans",
    "path": "Path",
    "map": "Map",
    "compare": "Compare",
}


class Explorer:
    """The page of one tab.

    Args:
        opened: The model, and whom to pick from.
        dispatcher: Where it is asked.
    """

    def __init__(self, opened: Opened, dispatcher: Dispatcher) -> None:
        self._model, self._explainer, self._dispatcher = opened.name, opened.explainer, dispatcher
        self._relief: Relief | None = None
        self._result: Explanation | None = None
        self._tables: dict[str, pd.DataFrame] = {}
        self._search: asyncio.Task[Any] | None = None
        parts.links("Parts of the page", _PARTS)
        with ui.element("div").classes("cp-main") as self._root:
            with ui.element("div").classes("cp-column"):
                self._form = Form(
                    opened, dispatcher, lambda: self._wanting.want.target_class, self._forget, self._outdated
                )
            with ui.element("div").classes("cp-column"):
                self._build_results()
        ui.context.client.on_delete(self._leave)
        self._form.picking.pick(self._form.picking.first_rejected())

    def open(self, row: pd.DataFrame) -> None:
        """Look at a person who need not be one of those to pick from: one row, under its label."""
        self._form.open(row)

    def _build_results(self) -> None:
        with parts.section("plans", "Plans"):
            self._wanting = Wanting(self._explainer, self._find, self._stop)
            self._answers = Answers(self._explainer.schema_, self._show_path, self._bookmark, self._loosen)
            self._home = TakingHome("explanation", "the plans", self._to_take, self._wanting.problem)
        with parts.section("path", "Path", "Every step from the person as they are to the plan, as the model sees it."):
            self._walking = Walking()
        lead = "Where people lie for the generative model, and which way each path takes through them."
        with parts.section("map", "Latent map", lead):
            self._map = Drawing()
        with parts.section("compare", "Compare"):
            self._methods = Methods(self._compare)
            self._bookmarks = Bookmarks()

    def _to_take(self) -> tuple[Explanation, dict[str, pd.DataFrame]] | None:
        return None if self._result is None else (self._result, self._tables)

    def _forget(self) -> None:
        """Drop the plans of whoever was on the page before."""
        self._cancel()
        self._result, self._tables = None, {}
        self._wanting.rest()
        self._wanting.problem.set_text("")
        self._answers.clear("Ask for plans to see what would have to change.")
        self._walking.clear()
        self._map.clear()
        self._methods.clear()
        self._home.show(there=False)

    def _outdated(self) -> None:
        """Say that plans are shown for other values or limits."""
        self._wanting.problem.set_text("")
        if self._result is not None and (self._search is None or self._search.done()):
            self._wanting.rest("The plans below are from before your last edit.")

    def _find(self) -> None:
        self._begin(self._find_plans())

    async def _find_plans(self) -> None:
        row = self._sound_row()
        asked = self._asked()
        self._wanting.busy("Looking for a plan …")
        first = await self._dispatcher.explain(self._model, row, replace(asked, plans=1))
        plans = plans_of(first)
        self._answers.show(plans)
        # Meanwhile the browser has the plan: nothing is drawn before.
        self._relief = await self._relief_of(row) if plans[0].status.searched else None
        self._show(first, plans)
        if asked.plans > 1 and plans[0].status.found:
            self._wanting.busy(f"Here is one; looking for {asked.plans} that differ …")
            result = await self._dispatcher.explain(self._model, row, asked)
            plans = plans_of(result)
            self._answers.show(plans)
            self._show(result, plans)
        self._wanting.rest(_counted(plans))

    def _sound_row(self) -> pd.DataFrame:
        row = self._form.sound_row()
        if row is None:
            raise InputError("Something about the values or limits cannot be; it is marked in red.")
        return row

    def _asked(self) -> Request:
        want = self._wanting.want
        parse_count("plans", want.plans)
        said = state.arguments(self._explainer.schema_, self._form.limits)
        return Request(**vars(want), **said)

    async def _relief_of(self, row: pd.DataFrame) -> Relief | None:
        # A function of its own for each question: two are never answered by one call.
        return await self._dispatcher.run(self._model, row, lambda explainer, person: relief_for(explainer, person))

    def _show(self, result: Explanation, plans: list[Plan]) -> None:
        self._result = result
        self._home.show(there=True)
        self._show_path(plans[0])

    def _show_path(self, plan: Plan) -> None:
        if not len(plan.stops):
            return
        self._answers.choose(plan)
        self._walking.show(plan)
        self._map.show(map_figure({plan.method: plan.explanation}, plan.label, relief=self._relief))

    def _compare(self) -> None:
        self._begin(self._compare_methods())

    async def _compare_methods(self) -> None:
        row = self._sound_row()
        asked, there = replace(self._asked(), plans=1), available(self._explainer)
        results: dict[str, Explanation] = {}
        seconds: dict[str, float] = {}
        for name in dict.fromkeys([*(name for name in COMPARED if name in there), NEAREST]):
            self._methods.busy(f"{name} …")
            self._wanting.busy(f"Comparing: {name} …")
            started = time.monotonic()
            results[name] = await self._dispatcher.explain(self._model, row, replace(asked, method=name))
            seconds[name] = time.monotonic() - started
        table = await asyncio.to_thread(Comparison(results, seconds).table)
        self._tables = {"Methods on this person": table}
        self._methods.show(table, results)
        self._map.show(map_figure(results, row.index.tolist()[0], relief=await self._relief_of(row)))
        self._wanting.rest()

    def _bookmark(self, plan: Plan) -> None:
        self._bookmarks.add(plan)
        ui.notify("Bookmarked: it is under Compare.")

    def _loosen(self, kind: str, name: str) -> None:
        """Take back what stands in the way, and ask again."""
        if kind == "max_changes":
            self._wanting.allow_changes(None)
        else:
            loose: dict[str, dict[str, Any]] = {
                "lock": {"locked": False},
                "range": {"low": None, "high": None, "allowed": ()},
            }
            self._form.loosen(name, replace(self._form.limits[name], **loose.get(kind, {"direction": BOTH})))
        with self._root:  # the button that was pressed is gone with what it belonged to
            self._find()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a search in place of the one that runs."""
        self._cancel()
        self._search = background_tasks.create(self._guarded(work), name="search")

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        with self._root, parts.told(self._wanting.problem, self._wanting.rest):
            try:
                await work
            finally:
                self._methods.rest()

    def _stop(self) -> None:
        self._cancel()
        self._wanting.rest("Stopped.")

    def _leave(self) -> None:
        self._cancel()
        self._form.leave()

    def _cancel(self) -> None:
        if self._search is not None:
            self._search.cancel()


def _counted(plans: list[Plan]) -> str:
    found = sum(plan.status.found for plan in plans)
    return f"{found} plan{'' if found == 1 else 's'}." if found else "No plan."
