"""Many people at once, for an auditor: who gets a counterfactual, at what cost, and through which features."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pandas as pd
from nicegui import background_tasks, ui

from counterpath.app.desk import Desk
from counterpath.app.ui import parts
from counterpath.app.ui.exporting import Tables
from counterpath.app.ui.group_asking import GroupAsking
from counterpath.app.ui.group_findings import Findings
from counterpath.app.ui.group_tables import together
from counterpath.app.ui.people import People
from counterpath.app.ui.taking_home import TakingHome
from counterpath.errors import InputError
from counterpath.explanation import Explanation

Open: TypeAlias = Callable[[pd.DataFrame], None]
"""Is given one row, with the columns of the training table, under its own label."""

_AT_ONCE = 32
"""How many people are explained before progress is told, and others' questions have their turn."""
_LEAD = (
    "Explain many people at once: for whom is there a counterfactual, what does it cost them, and which features does "
    "it take? Differences between groups may be the model's, the data's, or chance."
)
_STYLE = """
.cp-keys { display: grid; grid-template-columns: repeat(auto-fit, minmax(132px, 1fr)); gap: 12px; margin: 0; }
.cp-keys > div { border: 1px solid var(--line); border-radius: 8px; padding: 8px 12px; display: flex;
  flex-direction: column-reverse; justify-content: flex-end; }
.cp-keys dd { margin: 0; font-size: 24px; line-height: 1.3; font-weight: 650; font-variant-numeric: tabular-nums; }
.cp-keys dt { color: var(--soft); font-size: 13px; line-height: 1.35; }
.cp-which { min-width: 200px; }
#group-measures .cp-table th, #group-measures .cp-table td { white-space: nowrap; max-width: none; }
.cp-people td:nth-of-type(2) { white-space: nowrap; }
.cp-people td:nth-of-type(3) { max-width: none; width: 60%; }
@media (max-width: 600px) {
  .cp-people, .cp-people tbody { display: block; }
  .cp-people thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .cp-people tr { display: grid; grid-template-columns: 1fr auto auto; gap: 0 12px; padding: 8px 0;
    border-bottom: 1px solid var(--line); }
  .cp-people th, .cp-people td { border: none; padding: 0; max-width: none; min-width: 0; overflow-wrap: anywhere; }
  .cp-people td:nth-of-type(3) { grid-column: 1 / 3; grid-row: 2; width: auto; }
  .cp-people td:nth-of-type(4) { grid-column: 3; grid-row: 2; }
}
"""


def group_view(desk: Desk, model: str, people: People, on_open: Open | None = None) -> "GroupView":
    """Build the group view into the current container.

    Args:
        desk: Where the model is asked.
        model: The name of the model.
        people: Whom to choose from, until another table is uploaded.
        on_open: Called with a person who is to be looked at alone; without it nobody can be.
    """
    return GroupView(desk, model, people, on_open)


class GroupView:
    """The group view of one tab."""

    def __init__(self, desk: Desk, model: str, people: People, on_open: Open | None) -> None:
        self._desk, self._model, self._on_open = desk, model, on_open
        self._result: Explanation | None = None
        self._findings: Findings | None = None
        self._work: asyncio.Task[Any] | None = None
        ui.add_css(_STYLE)
        with ui.element("div").classes("cp-column") as self._root:
            with parts.section("group", "Many people at once", _LEAD):
                self._asking = GroupAsking(desk.models[model], people)
                self._problem = parts.problem()
                self._build_buttons()
            self._outer = ui.element("div").classes("cp-column")
            self._outer.props["aria-live"] = "polite"
        self._rest()
        ui.context.client.on_delete(self._cancel)

    def _build_buttons(self) -> None:
        with ui.element("div").classes("cp-row"):
            self._start = ui.button("Explain these people", on_click=self._begin).props("unelevated no-caps")
            self._stop = ui.button("Stop", on_click=self._stopped, color="negative").props("outline no-caps")
            parts.named(self._stop, "Stop explaining")
            with ui.element("div").classes("cp-busy") as busy:
                busy.props["role"] = "status"
                self._spinner = ui.spinner(size="20px")
                self._doing = ui.label()
        self._bar = ui.linear_progress(show_value=False, size="8px").props("rounded instant-feedback")
        parts.named(self._bar, "Share of the people who are explained")
        self._home = TakingHome("group", "the group", self._to_take, self._problem)

    def _begin(self) -> None:
        self._cancel()
        self._work = background_tasks.create(self._guarded(self._explain()), name="group")

    async def _explain(self) -> None:
        asking = self._asking
        people, places, asked = asking.people, asking.places, asking.asked
        if not places:
            raise InputError("nobody fits; take another filter, or people who are not rejected, too")
        rows = people.frame.iloc[places]
        results: list[Explanation] = []
        for first in range(0, len(rows), _AT_ONCE):
            self._busy(first, len(rows))
            results.append(await self._desk.explain(self._model, rows.iloc[first : first + _AT_ONCE], asked))
        self._busy(len(rows), len(rows))
        result = together(results)
        summary = await asyncio.to_thread(result.summary)
        await self._show(result, summary)
        self._rest(f"{len(rows)} people explained.")

    async def _show(self, result: Explanation, summary: pd.DataFrame) -> None:
        self._result = result
        self._outer.clear()
        with self._outer:
            self._findings = Findings(result, summary, None if self._on_open is None else self._opened)
            await self._findings.regroup()
        self._home.show(there=True)

    def _opened(self, place: int) -> None:
        if self._on_open is not None and self._result is not None:
            self._on_open(self._result.factuals.iloc[[place]])

    def _to_take(self) -> tuple[Explanation, Tables] | None:
        return None if self._result is None or self._findings is None else (self._result, self._findings.tables)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        with self._root, parts.told(self._problem, self._rest):
            await work

    def _busy(self, done: int, total: int) -> None:
        self._doing.set_text(f"{done} of {total} people …")
        self._bar.set_value(done / total)
        for element in (self._spinner, self._bar):
            element.set_visibility(True)
        self._stop.enable()
        self._start.disable()

    def _rest(self, done: str = "") -> None:
        self._doing.set_text(done)
        for element in (self._spinner, self._bar):
            element.set_visibility(False)
        self._stop.disable()
        self._start.enable()

    def _stopped(self) -> None:
        self._cancel()
        self._rest("Stopped.")

    def _cancel(self) -> None:
        if self._work is not None:
            self._work.cancel()
