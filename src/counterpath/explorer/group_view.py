"""Many rows at once on a tab of its own: which rows, what is requested for them, and what was found."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pandas as pd
from nicegui import events, ui

from counterpath.data.schema import Number
from counterpath.data.tables import parse_table
from counterpath.explainer.request import Request
from counterpath.explanation import Explanation, wording
from counterpath.explanation.tables import MILESTONES
from counterpath.explorer import elements
from counterpath.explorer.forms import TargetFields
from counterpath.explorer.group_results import GroupResults, concatenate
from counterpath.explorer.loading import LoadedModel
from counterpath.explorer.results import Downloads
from counterpath.explorer.state import RowTable
from counterpath.utils.errors import InputError

MOST_ROWS = 1000
"""How many rows are explained at once, at most: half a minute by the default method on two cores."""
_DEFAULT_ROWS = 100
"""A few seconds, and enough for a first look."""
_BATCH = 32
"""How many rows are explained before progress is shown, and others' requests have their turn: about a second."""
LARGEST_FILE = 1 << 20
"""How many bytes an uploaded table may have: far more than a thousand rows need."""
_EVERYBODY = ""
"""The choice of no feature to filter by."""
_OWN_TABLE = "the table of this page"
_LEAD = (
    "Explain many people at once: for whom is there a counterfactual, what does it cost them, and which features does "
    "it take? Differences between groups may be the model's, the data's, or chance."
)


@dataclass(frozen=True)
class RowFilter:
    """Which rows of a table are explained.

    Attributes:
        rejected: Only those for which the model predicts another class than the target.
        feature: A feature by which rows are filtered, or None.
        categories: The categories of it that are taken; all if there are none.
        low: The least number of it that is taken, or None.
        high: The largest one, or None.
        limit: How many of the matching rows are drawn at random.
        seed: Of the draw: the same rows every time.
    """

    rejected: bool = True
    feature: str | None = None
    categories: tuple[Any, ...] = ()
    low: Number | None = None
    high: Number | None = None
    limit: int = _DEFAULT_ROWS
    seed: int = 0

    def matches(self, rows: RowTable, target_class: Any) -> list[int]:
        """The positions of all matching rows, in order; see `RowTable.rejected` for the target."""
        positions = rows.rejected(target_class) if self.rejected else list(range(len(rows)))
        if self.feature is None:
            return positions
        column = rows.frame[self.feature].tolist()
        return [index for index in positions if self._matches_value(column[index])]

    def sample(self, positions: list[int]) -> list[int]:
        """At most `limit` of the positions, drawn at random, in order."""
        if len(positions) <= self.limit:
            return positions
        return sorted(Random(self.seed).sample(positions, self.limit))

    def _matches_value(self, value: Any) -> bool:
        if self.categories and value not in self.categories:
            return False
        return not (self.low is not None and value < self.low) and not (self.high is not None and value > self.high)


class GroupForm:
    """Which rows to explain, and what is requested for them.

    Args:
        model: The model, and the rows that are there from the start.

    Attributes:
        rows: The rows to choose from now: those, or those of a table that was uploaded.
    """

    def __init__(self, model: LoadedModel) -> None:
        self._explainer, self._own_rows = model.explainer, model.rows
        self.rows = model.rows
        self._error = elements.error_label()
        self._build_table()
        with ui.element("div").classes("cp-fields"):
            self._build_filter()
        self._filter_fields = ui.element("div").classes("cp-fields")
        self._categories: ui.select | None = None
        self._ends: tuple[ui.number, ui.number] | None = None
        with ui.element("div").classes("cp-fields"):
            self._fields = TargetFields(self._explainer, on_target=self._count)
            free = [feature.name for feature in self._explainer.schema_ if not feature.immutable]
            self._lock = ui.select(free, label="Must not change", value=[], multiple=True, clearable=True)
        self._matching = elements.text("p", "", "cp-soft")
        self._matching.props["role"] = "status"
        self._count()

    def request(self) -> Request:
        """What is requested for each row."""
        return self._fields.request(paths=MILESTONES, lock=tuple(self._lock.value))

    def chosen_rows(self) -> pd.DataFrame:
        """The rows that the controls choose.

        Raises:
            InputError: There is none, or a number is none that can be.
        """
        chosen = self._filter()
        positions = chosen.sample(chosen.matches(self.rows, self._fields.target.value))
        if not positions:
            raise InputError("nobody fits; take another filter, or people who are not rejected, too")
        return self.rows.frame.iloc[positions]

    def _filter(self) -> RowFilter:
        limit = self._limit.value
        if limit is None or limit != int(limit) or not 1 <= limit <= MOST_ROWS:
            raise InputError(f"at most {limit!r} people cannot be explained; give a whole number from 1 to {MOST_ROWS}")
        low, high = (None, None) if self._ends is None else (end.value for end in self._ends)
        categories: tuple[Any, ...] = ()
        if self._categories is not None:
            known = self._explainer.schema_[self._feature.value].categories
            categories = tuple(known[code] for code in self._categories.value)
        return RowFilter(bool(self._rejected.value), self._feature.value or None, categories, low, high, int(limit))

    def _count(self) -> None:
        """Say how many rows match, and how many of them are drawn."""
        with elements.show_errors(self._error):
            chosen = self._filter()
            count = len(chosen.matches(self.rows, self._fields.target.value))
            all_of_them = count <= chosen.limit
            taken = "all of them are explained" if all_of_them else f"{chosen.limit:,} of them are drawn at random"
            self._matching.set_text(f"{count:,} of {len(self.rows):,} people fit{f'; {taken}' if count else ''}.")

    def _build_table(self) -> None:
        with ui.element("div").classes("cp-row"):
            self._table = ui.label().classes("cp-soft")
            self._upload = ui.upload(auto_upload=True, max_file_size=LARGEST_FILE, on_upload=self._uploaded)
            self._upload.props["accept"] = ".csv"
            self._upload.on_rejected(self._refused).style("display: none")
            pick = elements.button("Upload a CSV", name="Upload a CSV of people")
            # In the browser itself, because a file may only be asked for by a click.
            pick.on("click", js_handler=f"event => getElement({self._upload.id}).$refs.qRef.pickFiles(event)")
            self._back = elements.button("Back to this page's table", self._restore, "flat dense")
        self._show_table(_OWN_TABLE)

    def _build_filter(self) -> None:
        features = {_EVERYBODY: "everybody", **{name: name for name in self._explainer.schema_.names}}
        self._feature = ui.select(features, label="Filter by", value=_EVERYBODY, on_change=self._build_filter_fields)
        self._limit = ui.number("How many, at most", value=_DEFAULT_ROWS, step=1, on_change=self._count)
        self._limit.min, self._limit.max = 1, MOST_ROWS
        self._rejected = ui.switch("Only people who are rejected", value=True, on_change=self._count)
        elements.set_name(self._rejected, "Only people for whom the model does not decide as wanted")

    def _build_filter_fields(self) -> None:
        """Offer the values of the feature by which rows are filtered."""
        self._filter_fields.clear()
        self._categories, self._ends = None, None
        name = self._feature.value
        if name:
            categories = self._explainer.schema_[name].categories
            with self._filter_fields:
                if categories:
                    options = {code: wording.value(category) for code, category in enumerate(categories)}
                    label = f"Values of {name}"
                    self._categories = ui.select(options, label=label, value=[], multiple=True, on_change=self._count)
                else:
                    low, high = (ui.number(f"{name} {end}", on_change=self._count) for end in ("from", "to"))
                    self._ends = low, high
        self._count()

    async def _uploaded(self, event: events.UploadEventArguments) -> None:
        name = event.file.name
        with elements.show_errors(self._error):
            try:
                if event.file.size() > LARGEST_FILE:
                    raise InputError(f"{name} has {event.file.size():,} bytes; expected at most {LARGEST_FILE:,}")
                content = await event.file.read()
                self.rows = await asyncio.to_thread(
                    lambda: RowTable.from_table(self._explainer, parse_table(content, ".csv", name))
                )
            finally:
                self._upload.reset()
            self._show_table(name)
            self._count()

    def _refused(self) -> None:
        self._error.set_text(f"The file was not taken; expected a CSV of at most {LARGEST_FILE // 1024:,} KiB.")

    def _restore(self) -> None:
        self.rows = self._own_rows
        self._show_table(_OWN_TABLE)
        self._count()

    def _show_table(self, name: str) -> None:
        self._table.set_text(f"{len(self.rows):,} people are in {name}.")
        self._back.set_visibility(self.rows is not self._own_rows)


class GroupView:
    """The tab of many rows.

    Args:
        model: The model, and the rows to choose from until another table is uploaded.
        on_open: Called with a row that is to be looked at alone: a table of one, under its own label.
    """

    def __init__(self, model: LoadedModel, on_open: Callable[[pd.DataFrame], None]) -> None:
        self._model, self._on_open = model, on_open
        with ui.element("div").classes("cp-column"):
            with elements.section("group", "Many people at once", _LEAD):
                self._form = GroupForm(model)
                self._task = elements.TaskControls("Explain these people", self._explain, stop_name="Stop explaining")
                self._downloads = Downloads("group", "the group", self._task.error)
            self._results = ui.element("div").classes("cp-column")
            self._results.props["aria-live"] = "polite"

    async def _explain(self) -> None:
        rows, request = self._form.chosen_rows(), self._form.request()
        parts: list[Explanation] = []
        for start in range(0, len(rows), _BATCH):
            self._show_progress(start, len(rows))
            parts.append(await self._model.explain(rows.iloc[start : start + _BATCH], request))
        self._show_progress(len(rows), len(rows))
        result = concatenate(parts)
        summary = await asyncio.to_thread(result.summary)
        self._results.clear()
        with self._results:
            results = GroupResults(result, summary, self._on_open)
            await results.regroup()
        self._downloads.offer(result, results.tables)
        self._task.show_idle(f"{len(rows)} people explained.")

    def _show_progress(self, done: int, total: int) -> None:
        self._task.show_busy(f"{done} of {total} people …", progress=done / total)
