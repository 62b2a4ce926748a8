"""One person on a tab of its own: the decision, the person and their features, the plans, and what there is to see."""

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import pandas as pd
from nicegui import ui

from counterpath.data.status import BindingConstraint
from counterpath.explainer.compare import COMPARED, Comparison
from counterpath.explainer.request import Request
from counterpath.explanation import Explanation, wording
from counterpath.explorer import elements
from counterpath.explorer.feature_rows import as_integer
from counterpath.explorer.figures_map import VolumeGrid, map_figure
from counterpath.explorer.forms import (
    COMPACT,
    INVALID,
    MOST_PLANS,
    DecisionView,
    RowForm,
    TargetFields,
    available_methods,
    count_error,
)
from counterpath.explorer.path_view import PathView
from counterpath.explorer.plan_cards import LOOSEN, Bookmarks, PlanCards
from counterpath.explorer.receipts import ReceiptDialog
from counterpath.explorer.state import (
    LoadedModel,
    Plan,
    constraints_of,
    keep_first,
    plans_of,
    request_arguments,
)
from counterpath.explorer.url_state import History, PageState, from_fragment, from_parts, to_fragment
from counterpath.explorer.what_if import WhatIf
from counterpath.search.methods import NEAREST, resolve_method
from counterpath.utils.errors import InputError

_SAME_EDIT = 1.5
"""Seconds within which edits of the same field are undone together: digits of a number, moves of a slider."""
_METHODS_OUTDATED = "Out of date: something has changed since the methods were compared."
_COMPARED = {
    "l0": "Changes",
    "l1": "Distance",
    "ld_sq": "To the data",
    "confidence": "Probability",
    "steps": "Steps",
    "seconds": "Seconds",
}
"""Columns of a comparison of methods, and what they are called on the page."""
_LEGEND = (
    "Changes: features that change. Distance: how far, all together, each as a share of its range. To the data: how "
    "far from the nearest training row, squared. Smaller is better in all three."
)
_LINKS = {
    "person": "Person",
    "features": "Features",
    "rules": "Rules",
    "plans": "Plans",
    "path": "Path",
    "what-if": "What if",
    "compare": "Compare",
    "map": "Map",
}
"""The parts of the page, by their identity."""
_JUMP = """(event) => {
    event.preventDefault();  // the fragment of the address holds what was entered
    const part = document.getElementById(event.currentTarget.hash.slice(1));
    part.scrollIntoView({block: 'start'});
    part.querySelector('[tabindex="-1"]')?.focus({preventScroll: true});
}"""
_TO_TOP = (
    "setTimeout(() => { scrollTo(0, 0); document.getElementById('plans-title')?.focus({preventScroll: true}); }, 200)"
)
"""Shows the decision and the plans, once the browser shows the tab."""
_WRITE = "history.replaceState(history.state, '', %s)"


class RowView:
    """The tab of one person.

    Args:
        model: The model, and the rows to choose from.
        title: What the model is called, for people.
    """

    def __init__(self, model: LoadedModel, title: str) -> None:
        self._model, self._client = model, ui.context.client
        self._background: VolumeGrid | None = None
        self._result: Explanation | None = None
        self._plans: list[Plan] = []
        self._asked: PageState | None = None
        self._compared: PageState | None = None
        self._tables: dict[str, pd.DataFrame] = {}
        self._history, self._last_edit, self._silent = History(), ("", 0.0), True
        self._defaults: dict[str, Any] = {}
        self._address_read = False
        with elements.box("section", "cp-bar-top", aria_label="Decision and search"):
            self._decision = DecisionView(model)
            with ui.element("div").classes("cp-search"):
                self._search = elements.TaskControls(
                    "Find plans", self._find_plans, on_end=lambda: self._show_comparing("")
                )
        with elements.box("nav", "cp-links", aria_label="Parts of the page"):
            for identity, name in _LINKS.items():
                ui.link(name, f"#{identity}").on("click", js_handler=_JUMP)
        with ui.element("div").classes("cp-main"):
            with ui.element("div").classes("cp-column"):
                self._form = RowForm(
                    model,
                    self._decision,
                    lambda: self._fields.target.value,
                    self._other_row,
                    self._edited,
                    self._start,
                    self._build_tools,
                )
            with ui.element("div").classes("cp-column cp-side"):
                self._build_plans()
        with ui.element("div").classes("cp-main cp-below"):
            self._build_below()
        self._receipt = ReceiptDialog(title)
        self._defaults = dict(self.state.asked)
        self._silent = False
        self._form.pick_next_rejected()
        # The address is only known once the browser is there.
        ui.timer(0, self._restore, once=True)

    def open(self, row: pd.DataFrame, result: Explanation) -> None:
        """Look at a person of a group, with the plan that was found there.

        Args:
            row: One row, under its label.
            result: Its explanation, with the request by which it was found.
        """
        self._silent = True
        asked = result.request
        confidence = asked.get("confidence")
        low, high = asked.get("target_range") or (None, None)
        self._fields.show(
            {
                "target": asked["target_class"],
                "method": asked["method"],
                "percent": None if confidence is None or isinstance(confidence, list | tuple) else 100 * confidence,
                "least": low,
                "most": high,
                **{name: None if asked.get(name) is None else 100 * asked[name] for name in ("robust", "noise")},
            }
        )
        self._plans_field.set_value(1)
        self._max_changes.set_value(asked.get("max_changes"))
        limits = constraints_of(self._model.explainer.schema_, asked)
        values = {str(name): row[name].tolist()[0] for name in row}
        where = self._model.rows.position(row)
        shown = PageState(where, values, limits, tuple(asked.get("rules") or ()), {})
        self._form.show_state(shown, row.index.tolist()[0])
        self._silent = False
        self._clear()
        self._record("open")
        self._asked = self.state
        plans = self._show_plans(result)
        self._show_path(plans[0])
        found = plans[0].row.status.found
        self._search.show_idle("The plan that was found in the group." if found else "No plan was found in the group.")
        self._refresh()
        self._client.run_javascript(_TO_TOP)

    @property
    def state(self) -> PageState:
        """All that was entered."""
        asked = self._fields.values | {
            "plans": as_integer(self._plans_field.value),
            "max_changes": as_integer(self._max_changes.value),
        }
        form = self._form
        return PageState(form.index, form.values, form.constraints, form.rules, asked)

    def _build_tools(self) -> None:
        self._undo = elements.button("Undo", lambda: self._go(self._undo, self._history.undo), "flat dense")
        self._redo = elements.button("Redo", lambda: self._go(self._redo, self._history.redo), "flat dense")
        elements.button("Reset", self._reset, "flat dense", "Reset values, limits and rules")
        elements.button("Copy link", self._copy_link, "flat dense")

    def _build_plans(self) -> None:
        with elements.section("plans", "Plans"):
            with ui.element("div").classes("cp-fields cp-asked"):
                self._fields = TargetFields(self._model.explainer, lambda: self._edited("asked"))
                self._plans_field = ui.number(
                    "Number of plans",
                    value=3,
                    step=1,
                    validation=lambda value: count_error(value, MOST_PLANS) or None,
                    on_change=lambda: self._edited("plans"),
                )
                features = len(self._model.explainer.schema_)
                self._max_changes = ui.number(
                    "Maximum changes",
                    step=1,
                    validation=lambda value: count_error(value, features, may_be_empty=True) or None,
                    on_change=lambda: self._edited("changes"),
                )
                self._max_changes.props('stack-label placeholder="any number"')
                for field in (self._plans_field, self._max_changes):
                    field.props(COMPACT)
            asked = self._fields
            numbers = asked.confidence, asked.least, asked.most, asked.robust, asked.noise
            for field in (*numbers, self._plans_field, self._max_changes):
                field.on("keydown.enter", lambda: self._start())
            self._description = elements.text("p", "", "cp-soft")
            self._describe_method()
            self._cards = PlanCards(self._show_path, self._bookmark, self._loosen)
            with ui.element("div").classes("cp-row") as self._take:
                elements.button("Receipt", self._show_receipt, name="Receipt for the person")
                self._downloads = elements.Downloads("explanation", "the plans", self._search.error)

    def _build_below(self) -> None:
        with ui.element("div").classes("cp-column"):
            lead = "Every step from the person as they are to the plan, as the model sees it."
            with elements.section("path", "Path", lead):
                self._path = PathView()
            lead = "Where people lie for the generative model, and which way each path takes through them."
            with elements.section("map", "Latent map", lead):
                self._map = elements.Drawing()
        with ui.element("div").classes("cp-column"):
            self._what_if = WhatIf(self._model, lambda: self._fields.target.value)
            with elements.section("compare", "Compare"):
                self._bookmarks = Bookmarks()
                elements.text("h3", "Methods")
                with ui.element("div").classes("cp-row"):
                    self._compare = elements.button(
                        "Compare methods", lambda: self._search.start(self._compare_methods), "outline"
                    )
                    self._comparing = elements.describe(ui.label().classes("cp-soft"), role="status")
                self._methods_outdated = elements.text("p", "", "cp-outdated", role="status")
                self._methods_outdated.set_visibility(False)
                self._methods = ui.element("div")

    def _start(self) -> None:
        self._search.start(self._find_plans)

    def _other_row(self) -> None:
        """Drop the plans of the person who was on the page before."""
        self._clear()
        self._record("person")

    def _clear(self) -> None:
        self._search.cancel()
        self._search.show_idle()
        self._search.error.set_text("")
        self._result, self._plans, self._asked, self._compared, self._tables = None, [], None, None, {}
        self._mark_methods()
        for part in (self._cards, self._path, self._map, self._methods):
            part.clear()
        self._bookmarks.compare([])
        self._offer()

    def _edited(self, what: str) -> None:
        """Something was edited on which plans depend."""
        if self._silent:
            return
        self._describe_method()
        self._record(what)
        self._search.error.set_text("")

    def _record(self, what: str) -> None:
        """Note what stands on the page now: for undo, in the address, and whether the plans are still of it."""
        if self._silent:
            return
        before, at = self._last_edit
        same = what == before and time.monotonic() - at < _SAME_EDIT
        self._last_edit = (what, time.monotonic())
        self._history.record(self.state, same_edit=same)
        self._refresh()

    def _refresh(self) -> None:
        state = self.state
        elements.set_active(self._undo, self._history.can_undo)
        elements.set_active(self._redo, self._history.can_redo)
        self._cards.mark_outdated(self._is_outdated)
        self._path.mark_outdated(self._is_outdated)
        self._mark_methods()
        self._offer()
        row = self._form.checked_row()
        self._what_if.show(row)
        defaults = self._form.defaults(state.row)
        parts = state.to_json(replace(defaults, asked=dict(self._defaults)))
        if self._plans and not self._is_outdated:
            parts["plans"] = True
        if self._address_read:
            self._client.run_javascript(_WRITE % json.dumps(to_fragment(parts)))

    @property
    def _is_outdated(self) -> bool:
        return self._asked is not None and bool(self._plans) and self.state != self._asked

    async def _restore(self) -> None:
        """Show what the address says."""
        fragment = str(await elements.ask_browser("location.hash") or "")
        self._address_read = True
        if not fragment.strip("#"):
            return  # what somebody did meanwhile, and what is said of it, stays
        with elements.show_errors(self._search.error):
            parts = from_fragment(fragment)
            if not parts:
                return
            row = parts.get("row")
            defaults = replace(self._form.defaults(row), asked=dict(self._defaults))
            if row is not None and defaults.row is None:
                raise InputError(
                    f"This link is about person {row} of another table; the page shows the first one here."
                )
            missing = {*self._model.explainer.schema_.names} - {*defaults.values, *parts.get("values", {})}
            if missing:
                raise InputError(
                    "This link does not have all values of a person; the page shows the first one instead."
                )
            shown = from_parts(parts, defaults, self._model.explainer.schema_)
            self._apply(shown)
            self._history = History()
            self._record("link")
            if parts.get("plans"):
                self._start()

    def _apply(self, shown: PageState) -> None:
        """Put a state on the page; plans stay, and are marked if they are of another one."""
        self._silent = True
        other = self._asked is not None and (shown.row, shown.row is None) != (self._asked.row, self._asked.row is None)
        self._fields.show(shown.asked)
        for field, name in ((self._plans_field, "plans"), (self._max_changes, "max_changes")):
            value = shown.asked.get(name)
            field.set_value(value if isinstance(value, int | float) else None)
        self._form.show_state(shown)
        self._describe_method()
        self._silent = False
        if other:
            self._clear()

    def _go(self, button: ui.button, step: Any) -> None:
        """Go a state back or forth."""
        if elements.is_active(button):
            self._apply(step())
            self._last_edit = ("", 0.0)
            self._refresh()

    def _reset(self) -> None:
        """Take back all edits of the person, all limits and rules."""
        defaults = self._form.defaults(self._form.index)
        values = defaults.values or self._form.values
        self._apply(replace(defaults, values=values, asked=dict(self._defaults)))
        self._record("reset")

    def _copy_link(self) -> None:
        ui.run_javascript("navigator.clipboard?.writeText(location.href.split('?')[0] + location.hash)")
        ui.notify("Copied: a link to this page as it stands. It holds the values of the person, and no token.")

    def _row_and_request(self) -> tuple[pd.DataFrame, Request]:
        row = self._form.checked_row()
        features = len(self._model.explainer.schema_)
        plans, max_changes = as_integer(self._plans_field.value), as_integer(self._max_changes.value)
        wrong = count_error(plans, MOST_PLANS) or count_error(max_changes, features, may_be_empty=True)
        if row is None or wrong:
            raise InputError(INVALID)
        schema, limits = self._model.explainer.schema_, self._form.constraints
        if all(each.immutable or limits[each.name].locked for each in schema):
            raise InputError("Nothing is left that could change: unlock a feature.")
        constraints = request_arguments(schema, limits)
        return row, self._fields.request(plans=plans, max_changes=max_changes, rules=self._form.rules, **constraints)

    def _describe_method(self) -> None:
        name = str(self._fields.method.value)
        self._description.set_text(f"{name}: {resolve_method(name).description}.")

    async def _find_plans(self) -> None:
        row, request = self._row_and_request()
        asked = self.state
        self._search.show_busy("Looking for a plan …")
        first = await self._model.explain(row, replace(request, plans=1))
        self._asked = asked
        plans = self._show_plans(first)
        elements.focus("plans-title", narrow_only=True)
        # Meanwhile the browser has the plan: nothing is drawn before.
        found = plans[0].row.status.found
        self._background = await self._model.volume_grid(row) if found else None
        self._show_path(plans[0])
        if request.plans > 1 and found:
            self._search.show_busy(f"Here is one; looking for {request.plans} that differ …")
            plans = self._show_plans(keep_first(first, await self._model.explain(row, request)))
            self._cards.mark(plans[0])
        count = sum(plan.row.status.found for plan in plans)
        self._search.show_idle(f"{wording.counted(count, 'plan')}." if count else "No plan.")
        self._refresh()

    def _show_plans(self, result: Explanation) -> list[Plan]:
        self._result, self._plans = result, plans_of(result)
        self._cards.show(self._plans)
        self._bookmarks.compare(self._plans)
        self._offer()
        return self._plans

    def _offer(self) -> None:
        """Offer files of the plans that are on the page, if there are any and they are of what stands there."""
        there = any(plan.row.status.found for plan in self._plans) and not self._is_outdated
        self._take.set_visibility(there)
        self._downloads.offer(self._result if there else None, self._tables)

    def _show_path(self, plan: Plan) -> None:
        if not plan.row.status.found or not len(plan.milestones):
            self._path.clear()
            self._map.clear()
            return
        self._cards.mark(plan)
        self._path.show(plan)
        self._path.mark_outdated(self._is_outdated)
        self._map.show(map_figure({plan.method: plan.explanation}, plan.label, background=self._background))

    def _show_receipt(self) -> None:
        if self._result is not None:
            self._receipt.show(self._result, wording.value(self._form.label))

    def _mark_methods(self) -> None:
        """Say whether what the methods found is of what stands on the page now."""
        on = self._compared is not None and self._compared != self.state
        self._methods_outdated.set_text(_METHODS_OUTDATED if on else "")
        self._methods_outdated.set_visibility(on)
        elements.set_class(self._methods, "cp-old", on)

    async def _compare_methods(self) -> None:
        row, request = self._row_and_request()
        asked = self.state
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
        self._offer()
        rows = []
        for name, result in results.items():
            status, numbers = str(result.status["status"].iloc[0]).replace("_", " "), table.loc[name]
            rows.append([name, status, *(wording.rounded(numbers[column]) for column in _COMPARED)])
        self._methods.clear()
        self._compared = asked
        self._mark_methods()
        with self._methods:
            elements.text("p", _LEGEND, "cp-soft")
            head = ["Method", "Result", *_COMPARED.values()]
            elements.table("What each method finds for this person", head, rows, "cp-numbers")
        found = {name: result for name, result in results.items() if result.valid.iloc[0]}
        background = await self._model.volume_grid(row)
        self._map.show(map_figure(found or results, row.index.tolist()[0], background=background))
        self._search.show_idle()

    def _show_comparing(self, doing: str) -> None:
        """Say what is being compared, or nothing when nothing is."""
        elements.set_active(self._compare, not doing)
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
            self._form.constrain(name, replace(self._form.constraints[name], **LOOSEN[constraint.kind][1]))
        elements.focus("plans-title")  # the button goes away
        self._start()
