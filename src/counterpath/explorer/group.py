"""The controls of the group view: whom to explain, and what is asked for them."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

import pandas as pd
from nicegui import background_tasks, events, ui

from counterpath.data.schema import Number
from counterpath.data.tables import parse_table
from counterpath.explainer.explainer import Explainer
from counterpath.explainer.request import OTHER, Request
from counterpath.explanation import Explanation, wording
from counterpath.explanation.milestones import MILESTONES
from counterpath.explorer import parts
from counterpath.explorer.group_findings import Findings, together
from counterpath.explorer.request_form import available, favourable
from counterpath.explorer.results import Tables, TakingHome
from counterpath.explorer.state import People
from counterpath.service.dispatcher import Dispatcher
from counterpath.utils.errors import CounterpathError, InputError

MOST = 1000
"""How many people are explained at once, at most."""
AT_FIRST = 100


@dataclass(frozen=True)
class Choice:
    """Which rows are taken.

    Attributes:
        rejected: Only those for whom the model does not decide as wanted.
        feature: A feature by which rows are filtered, or None.
        values: The categories of it that are taken; all if there are none.
        low: The least number of it that is taken, or None.
        high: The largest one, or None.
        most: How many of those that fit are drawn at random.
        seed: Of the draw: the same people every time.
    """

    rejected: bool = True
    feature: str | None = None
    values: tuple[Any, ...] = ()
    low: Number | None = None
    high: Number | None = None
    most: int = AT_FIRST
    seed: int = 0


def fitting(people: People, choice: Choice, wanted: Any) -> list[int]:
    """The places of all rows that a choice leaves, in order.

    Args:
        people: The rows.
        choice: Which are taken.
        wanted: The wanted class, or `OTHER`: then all with a decision are rejected.
    """
    places = range(len(people))
    if choice.rejected:
        places_left = [place for place in places if _is_rejected(people.decided[place], wanted)]
    else:
        places_left = list(places)
    if choice.feature is None:
        return places_left
    column = people.frame[choice.feature].tolist()
    return [place for place in places_left if _fits(column[place], choice)]


def drawn(places: list[int], choice: Choice) -> list[int]:
    """As many of the places as are asked for, at random, in order."""
    if len(places) <= choice.most:
        return places
    return sorted(Random(choice.seed).sample(places, choice.most))


def _is_rejected(decision: Any, wanted: Any) -> bool:
    return decision is not None and (wanted == OTHER or decision != wanted)


def _fits(value: Any, choice: Choice) -> bool:
    if choice.values and value not in choice.values:
        return False
    return not (choice.low is not None and value < choice.low) and not (choice.high is not None and value > choice.high)


LARGEST = 1 << 20
"""How many bytes a table may have that is sent."""
_EVERYBODY = ""


class GroupAsking:
    """Whom to explain, and how.

    Args:
        explainer: The model.
        people: The rows that are there from the start.
    """

    def __init__(self, explainer: Explainer, people: People) -> None:
        self._explainer, self._given = explainer, people
        self.people = people
        self._build_table()
        with ui.element("div").classes("cp-fields"):
            self._build_rows()
        self._values_box = ui.element("div").classes("cp-fields")
        self._values: ui.select | None = None
        self._ends: tuple[ui.number, ui.number] | None = None
        with ui.element("div").classes("cp-fields"):
            self._build_question()
        self._count = parts.text("p", "", "cp-soft")
        self._count.props["role"] = "status"
        self.count()

    @property
    def asked(self) -> Request:
        """What is asked for each person."""
        return Request(
            target_class=self._target.value,
            confidence=self._confidence.value,
            method=str(self._method.value),
            paths=MILESTONES,
            lock=tuple(self._lock.value),
        )

    @property
    def choice(self) -> Choice:
        """Whom the controls choose.

        Raises:
            InputError: A number is none that can be.
        """
        most = self._most.value
        if most is None or most != int(most) or not 1 <= most <= MOST:
            raise InputError(f"at most {most!r} people cannot be explained; give a whole number from 1 to {MOST}")
        low, high = (None, None) if self._ends is None else (end.value for end in self._ends)
        places = () if self._values is None else self._values.value
        feature = self._feature.value or None
        categories: Sequence[Any] = () if feature is None else self._explainer.schema_[feature].categories
        values = tuple(categories[place] for place in places)
        return Choice(bool(self._rejected.value), feature, values, low, high, int(most))

    @property
    def places(self) -> list[int]:
        """The places of those who are chosen, in `people`."""
        choice = self.choice
        return drawn(fitting(self.people, choice, self._target.value), choice)

    def count(self) -> None:
        """Say how many people fit, and how many are drawn."""
        try:
            choice = self.choice
            fit = len(fitting(self.people, choice, self._target.value))
        except InputError as error:
            self.problem.set_text(str(error))
            return
        self.problem.set_text("")
        taken = "all of them are explained" if fit <= choice.most else f"{choice.most:,} of them are drawn at random"
        self._count.set_text(f"{fit:,} of {len(self.people):,} people fit{f'; {taken}' if fit else ''}.")

    def _build_table(self) -> None:
        self.problem = parts.problem()
        with ui.element("div").classes("cp-row"):
            self._table = ui.label(self._told("the table of this page")).classes("cp-soft")
            self._upload = ui.upload(auto_upload=True, max_file_size=LARGEST, on_upload=self._uploaded)
            self._upload.props["accept"] = ".csv"
            self._upload.on_rejected(self._refused).style("display: none")
            pick = ui.button("Upload a CSV").props("outline dense no-caps")
            # In the browser itself, because a file may only be asked for by a click.
            pick.on("click", js_handler=f"event => getElement({self._upload.id}).$refs.qRef.pickFiles(event)")
            parts.named(pick, "Upload a CSV of people")
            self._back = ui.button("Back to this page's table", on_click=self._restore).props("flat dense no-caps")
            self._back.set_visibility(False)

    def _build_rows(self) -> None:
        features = {_EVERYBODY: "everybody", **{name: name for name in self._explainer.schema_.names}}
        self._feature = ui.select(features, label="Filter by", value=_EVERYBODY, on_change=self._filter)
        self._most = ui.number("How many, at most", value=AT_FIRST, min=1, max=MOST, step=1, on_change=self.count)
        self._rejected = ui.switch("Only people who are rejected", value=True, on_change=self.count)
        parts.named(self._rejected, "Only people for whom the model does not decide as wanted")

    def _build_question(self) -> None:
        classes = {label: wording.value(label) for label in self._explainer.classes_}
        classes |= {} if OTHER in classes else {OTHER: "any other class"}
        methods = {name: name for name in available(self._explainer)}
        self._target = ui.select(
            classes, label="Wanted decision", value=favourable(self._explainer), on_change=self.count
        )
        self._confidence = ui.number("Confidence", value=0.5, step=0.05)
        self._method = ui.select(methods, label="Method", value=self._explainer.method)
        free = [feature.name for feature in self._explainer.schema_ if not feature.immutable]
        self._lock = ui.select(free, label="Must not change", value=[], multiple=True, clearable=True)

    def _filter(self) -> None:
        """Offer the values of the feature by which people are filtered."""
        self._values_box.clear()
        self._values, self._ends = None, None
        name = self._feature.value
        if name:
            feature = self._explainer.schema_[name]
            with self._values_box:
                if feature.categories:
                    options = {place: wording.value(value) for place, value in enumerate(feature.categories)}
                    label = f"Values of {name}"
                    self._values = ui.select(options, label=label, value=[], multiple=True, on_change=self.count)
                else:
                    low, high = (ui.number(f"{name} {end}", on_change=self.count) for end in ("from", "to"))
                    self._ends = low, high
        self.count()

    async def _uploaded(self, event: events.UploadEventArguments) -> None:
        name = event.file.name
        try:
            if event.file.size() > LARGEST:
                raise InputError(f"{name} has {event.file.size():,} bytes; expected at most {LARGEST:,}")
            self.people = await asyncio.to_thread(_read, self._explainer, name, await event.file.read())
        except CounterpathError as error:
            self.problem.set_text(str(error))
            return
        finally:
            self._upload.reset()
        self._table.set_text(self._told(name))
        self._back.set_visibility(True)
        self.count()

    def _refused(self) -> None:
        self.problem.set_text(f"The file was not taken; expected a CSV of at most {LARGEST // 1024:,} KiB.")

    def _restore(self) -> None:
        self.people = self._given
        self._table.set_text(self._told("the table of this page"))
        self._back.set_visibility(False)
        self.count()

    def _told(self, name: str) -> str:
        return f"{len(self.people):,} people are in {name}."


def _read(explainer: Explainer, name: str, content: bytes) -> People:
    """The people in a file that was sent."""
    return People.of(explainer, parse_table(content, ".csv", name))


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


def group_view(dispatcher: Dispatcher, model: str, people: People, on_open: Open | None = None) -> "GroupView":
    """Build the group view into the current container.

    Args:
        dispatcher: Where the model is asked.
        model: The name of the model.
        people: Whom to choose from, until another table is uploaded.
        on_open: Called with a person who is to be looked at alone; without it nobody can be.
    """
    return GroupView(dispatcher, model, people, on_open)


class GroupView:
    """The group view of one tab."""

    def __init__(self, dispatcher: Dispatcher, model: str, people: People, on_open: Open | None) -> None:
        self._dispatcher, self._model, self._on_open = dispatcher, model, on_open
        self._result: Explanation | None = None
        self._findings: Findings | None = None
        self._work: asyncio.Task[Any] | None = None
        ui.add_css(_STYLE)
        with ui.element("div").classes("cp-column") as self._root:
            with parts.section("group", "Many people at once", _LEAD):
                self._asking = GroupAsking(dispatcher.models[model], people)
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
            results.append(await self._dispatcher.explain(self._model, rows.iloc[first : first + _AT_ONCE], asked))
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
