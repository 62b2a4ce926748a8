"""Many rows at once on a tab of its own: which rows, what is requested for them, and what was found."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pandas as pd
from nicegui import events, ui

from counterpath.data.schema import Number, Schema
from counterpath.data.status import BindingConstraint
from counterpath.data.tables import parse_table
from counterpath.explanation import Explanation, StatusCode, wording
from counterpath.explanation.summary import group_keys, with_labels
from counterpath.explanation.tables import BY_ROW, MILESTONES
from counterpath.explorer import elements
from counterpath.explorer.figures import FEW, SHARES, changes_figure, measures_figure, shares_figure
from counterpath.explorer.forms import RuleList, TargetFields
from counterpath.explorer.state import LoadedModel, RowTable
from counterpath.utils.errors import InputError

MOST_ROWS = 1000
"""How many rows are explained at once, at most: half a minute by the default method on two cores."""
_DEFAULT_ROWS = 100
"""A few seconds, and enough for a first look."""
_BATCH = 32
"""How many rows are explained before progress is shown, and others' requests have their turn: about a second."""
LARGEST_FILE = 1 << 20
"""How many bytes an uploaded table may have: far more than a thousand rows need."""
_OWN_TABLE = "the table of this page"
_LEAD = (
    "Explain many people at once: for whom is there a counterfactual, what does it cost them, and which features does "
    "it take? Differences between groups may be the model's, the data's, or chance."
)
COLUMNS = {
    "n": "people",
    "explained": "explained",
    "found": "found",
    "gaps": "across a gap",
    "l0": "changes",
    "l1": "L1",
    "ld_sq": "ld²",
    "steps": "steps",
    "changes most": "changes most",
}
"""Columns of `Explanation.summary`, and what they are called on the page."""
_PAGE = 15
"""Rows that are listed at once: as many as fit a screen."""
_MOST_REASONS = 8
"""Reasons that are listed; what is rarer is counted."""
_ALL_GROUPS = -1
"""The choice of no group, beside the positions of groups, which count from 0."""
_EVERYBODY = "everybody"
_LEGEND = (
    "found: share of the explained people for whom there is a counterfactual. changes: features that change. L1: how "
    "far, all together, each as a share of its range. ld²: how far from the nearest training row, squared. All "
    "three are means over those for whom there is one, and smaller is better."
)


def matching_rows(
    rows: RowTable,
    target_class: Any,
    *,
    rejected: bool = True,
    feature: str = "",
    categories: Sequence[Any] = (),
    low: Number | None = None,
    high: Number | None = None,
) -> list[int]:
    """The positions of the rows of a table that may be explained, in order.

    Args:
        rows: The table.
        target_class: The target: see `RowTable.rejected`.
        rejected: Only those for which the model predicts another class than the target.
        feature: A feature by which rows are filtered, or nothing.
        categories: The categories of it that are taken; all if there are none.
        low: The least number of it that is taken, or None.
        high: The largest one, or None.
    """
    positions = rows.rejected(target_class) if rejected else list(range(len(rows)))
    if not feature:
        return positions
    column = rows.frame[feature].tolist()
    return [
        index
        for index in positions
        if not (categories and column[index] not in categories)
        and not (low is not None and column[index] < low)
        and not (high is not None and column[index] > high)
    ]


def sample(positions: list[int], limit: int, seed: int = 0) -> list[int]:
    """At most so many of the positions, drawn at random, in order; the same ones every time."""
    return positions if len(positions) <= limit else sorted(Random(seed).sample(positions, limit))


def concatenate(results: Sequence[Explanation]) -> Explanation:
    """The explanations of some rows after others', of the same model and request, as one."""
    first = results[0]
    if len(results) == 1:
        return first
    starts = np.cumsum([0, *(len(result) for result in results[:-1])]).tolist()
    paths = [
        result.paths.assign(row=result.paths["row"] + start) for result, start in zip(results, starts, strict=True)
    ]
    return replace(
        first,
        **{name: pd.concat([getattr(result, name) for result in results]) for name in BY_ROW},
        paths=pd.concat(paths, ignore_index=True),
        compute_measures=lambda: pd.concat([result.measures() for result in results]),
    )


def group_table(summary: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of a table of groups, as `with_labels` has them; where there are few people it says so."""
    names = [name for name in COLUMNS if name in summary]
    rows = []
    for label, numbers in zip(summary.index.tolist(), summary.to_dict("records"), strict=True):
        cells = [wording.percent(numbers[name]) if name in SHARES else wording.rounded(numbers[name]) for name in names]
        rows.append([label + (" (few)" if numbers["n"] < FEW else ""), *cells])
    return ["group", *(COLUMNS[name] for name in names)], rows


def small_groups_warning(summary: pd.DataFrame) -> str:
    """Which groups are too small to say much, or nothing."""
    few = summary.index[summary["n"] < FEW].tolist()
    if not few:
        return ""
    return f"Fewer than {FEW} people are in: {wording.listed(few)}. What is said about them may be chance."


def count_reasons(result: Explanation) -> list[tuple[str, int]]:
    """Why there is no counterfactual, each reason with how many rows it concerns, the most frequent first."""
    return Counter(result.status.loc[~result.valid, "reason"].tolist()).most_common()


def count_binding(result: Explanation) -> list[tuple[str, int]]:
    """Which constraints stand in the way of rows without a counterfactual, and of how many."""
    lists = result.status.loc[~result.valid, "binding"].tolist()
    constraints = (BindingConstraint.from_json(constraint) for each in lists for constraint in each)
    return Counter(wording.constraint(each, result.schema) for each in constraints).most_common()


def row_table(result: Explanation, positions: Sequence[int]) -> list[tuple[str, str, str, str]]:
    """For each position the label, what became of the row, the probabilities and the changes, as text."""
    return [
        (
            row.label,
            str(row.status).replace("_", " "),
            row.probabilities,
            "; ".join(change.entry for change in row.changes) or "–",
        )
        for row in result._describe(positions)
    ]


def positions_by_status(result: Explanation) -> dict[str, list[int]]:
    """The positions of rows by what became of them, in words, in the order of `StatusCode`."""
    statuses = result.status["status"].to_numpy()
    positions = {str(code).replace("_", " "): np.flatnonzero(statuses == code).tolist() for code in StatusCode}
    return {words: found for words, found in positions.items() if found}


def default_grouping(schema: Schema) -> str:
    """By which column rows are grouped at first: one that cannot change, with categories, if there is one."""
    return min(schema, key=lambda feature: (not feature.immutable, not feature.categories)).name


class GroupResults:
    """All that is shown about the explanation of many rows.

    Args:
        result: The explanation.
        summary: Its summary over all, so that nothing long is computed here.
        on_open: Called with a row that is to be looked at alone.

    Attributes:
        tables: The tables by group that are shown now, by their headings.
    """

    def __init__(self, result: Explanation, summary: pd.DataFrame, on_open: Callable[[pd.DataFrame], None]) -> None:
        self._result, self._on_open = result, on_open
        self.tables: dict[str, pd.DataFrame] = {}
        with elements.section("group-numbers", "In short"), ui.element("dl").classes("cp-keys"):
            row = summary.iloc[0]
            numbers = {
                "people": str(int(row["n"])),
                "had to be explained": str(int(row["explained"])),
                "counterfactual found": wording.percent(row["found"]),
                "only across a gap in the data": wording.percent(row["gaps"]),
                "features change, on average": wording.rounded(row["l0"]),
                "mean distance (L1)": wording.rounded(row["l1"]),
            }
            for name, number in numbers.items():
                with ui.element("div"):
                    elements.text("dt", name)
                    elements.text("dd", number)
        with elements.section("group-changes", "Which features change, and for whom"):
            names = wording.titles(result.schema)
            by, everybody = default_grouping(result.schema), {_ALL_GROUPS: _EVERYBODY}
            with ui.element("div").classes("cp-fields"):
                self._by = ui.select(names, label="Group by", value=by, on_change=self.regroup)
                self._group = ui.select(everybody, label="Changes of", value=_ALL_GROUPS, on_change=self._show_changes)
            self._changes = elements.Drawing()
            elements.text("h3", "By group, in percent")
            self._shares = elements.Drawing()
        with elements.section("group-measures", "Measures by group"):
            self._warning = elements.error_label()
            self._measures = elements.Drawing()
            elements.text("p", _LEGEND, "cp-soft")
            self._table = ui.element("div")
        with elements.section("group-missing", "For whom nothing was found, and why"):
            self._build_reasons()
        with elements.section("group-people", "The people"):
            self._build_list()

    async def regroup(self) -> None:
        """Show all that is by group by the column that is chosen now."""
        by = str(self._by.value)
        summary, keys = await asyncio.to_thread(lambda: (self._result.summary(by=by), group_keys(self._result, by)[0]))
        if by != self._by.value:
            return  # another one was chosen in the meantime
        self._keys, self._labels = keys, summary.index.tolist()
        summary = with_labels(summary, self._result.schema)
        title = summary.index.name
        self.tables.clear()
        self.tables[f"By {title}"] = summary.reset_index(allow_duplicates=True)
        groups = dict(enumerate(summary.index))
        self._group.set_options({_ALL_GROUPS: _EVERYBODY} | groups, value=_ALL_GROUPS)
        self._show_changes()
        self._shares.show(shares_figure(self._result, keys.rename(by)))
        self._measures.show(measures_figure(summary))
        self._warning.set_text(small_groups_warning(summary))
        self._table.clear()
        with self._table:
            elements.table(f"Measures by {title}", *group_table(summary), "cp-numbers")

    def _show_changes(self) -> None:
        """Show the changes of one group, or of all rows."""
        result, group = self._result, self._group.value
        if group != _ALL_GROUPS:
            result = result._take(np.flatnonzero(self._keys == self._labels[group]).tolist())
        self._changes.show(changes_figure(result))

    def _build_reasons(self) -> None:
        reasons = count_reasons(self._result)
        if not reasons:
            elements.text("p", "Everybody has a counterfactual, or needs none.", "cp-soft")
            return
        _count_table("Reasons", "reason", reasons)
        binding = count_binding(self._result)
        if binding:
            _count_table("What stands in the way", "constraint", binding)

    def _build_list(self) -> None:
        self._positions = {_EVERYBODY: list(range(len(self._result))), **positions_by_status(self._result)}
        options = {words: f"{words} ({len(found)})" for words, found in self._positions.items()}
        with ui.element("div").classes("cp-row"):
            self._status = ui.select(options, label="List", value=_EVERYBODY, on_change=lambda: self._list(0))
            self._status.classes("cp-which")
            self._previous = elements.button(
                "Previous", lambda: self._list(self._first - _PAGE), name="Previous people"
            )
            self._next = elements.button("Next", lambda: self._list(self._first + _PAGE), name="Next people")
            self._range = elements.describe(ui.label().classes("cp-soft"), role="status")
        self._rows = ui.element("div")
        self._list(0)

    def _list(self, first: int) -> None:
        """List rows from this one on."""
        chosen = self._positions[str(self._status.value)]
        self._first = min(max(0, first), max(0, len(chosen) - 1))
        shown = chosen[self._first : self._first + _PAGE]
        self._range.set_text(f"{self._first + 1 if shown else 0} to {self._first + len(shown)} of {len(chosen)}")
        self._previous.set_enabled(self._first > 0)
        self._next.set_enabled(self._first + _PAGE < len(chosen))
        self._rows.clear()
        with self._rows:
            rows = row_table(self._result, shown)
            made = elements.table("The people", ["row", "result", "probability", "changes", "open"], rows, "cp-people")
            for (row, _), (label, *_), position in zip(made, rows, shown, strict=True):
                factual = self._result.factuals.iloc[[position]]
                with row, elements.box("td", role="cell"):
                    name = f"Open row {label} alone"
                    elements.button("Open", lambda factual=factual: self._on_open(factual), "flat dense", name)


def _count_table(title: str, head: str, rows: Sequence[tuple[str, int]]) -> None:
    elements.text("h3", title)
    elements.table(title, [head, "people"], [[words, str(count)] for words, count in rows[:_MOST_REASONS]])
    if len(rows) > _MOST_REASONS:
        elements.text("p", f"and {len(rows) - _MOST_REASONS} more", "cp-soft")


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
                self._error = elements.error_label()
                self._build_table()
                with ui.element("div").classes("cp-fields"):
                    self._build_filter()
                self._filter_fields = ui.element("div").classes("cp-fields")
                self._categories: ui.select | None = None
                self._ends: tuple[ui.number, ui.number] | None = None
                with ui.element("div").classes("cp-fields"):
                    self._fields = TargetFields(model.explainer, on_target=self._count)
                    schema = model.explainer.schema_
                    locked = {name: schema[name].title for name in schema.not_actionable}
                    free = {each.name: each.title for each in schema if each.actionable and not each.immutable}
                    self._lock = ui.select(free, label="Must not change", value=[], multiple=True, clearable=True)
                    self._unlock = ui.select(locked, label="May change, too", value=[], multiple=True, clearable=True)
                    elements.describe(self._unlock, hint="what people cannot usually change")
                    self._unlock.set_visibility(bool(locked))
                self._rules = RuleList(model.explainer)
                self._matching = elements.text("p", "", "cp-soft", role="status")
                self._show_table(model.rows, _OWN_TABLE)
                self._task = elements.TaskControls("Explain these people", self._explain, stop_name="Stop explaining")
                self._downloads = elements.Downloads("group", "the group", self._task.error)
            self._results = elements.box("div", "cp-column", aria_live="polite")

    async def _explain(self) -> None:
        positions, limit = self._matches()
        if not positions:
            raise InputError("nobody fits; take another filter, or people who are not rejected, too")
        rows = self._rows.frame.iloc[sample(positions, limit)]
        request = self._fields.request(
            paths=MILESTONES,
            lock=tuple(self._lock.value),
            unlock=tuple(self._unlock.value),
            rules=self._rules.rules,
        )
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

    def _matches(self) -> tuple[list[int], int]:
        """The positions of all rows that match, and how many of them are taken at most."""
        limit, feature = self._limit.value, str(self._feature.value)
        if limit is None or limit != int(limit) or not 1 <= limit <= MOST_ROWS:
            raise InputError(f"at most {limit!r} people cannot be explained; give a whole number from 1 to {MOST_ROWS}")
        low, high = (None, None) if self._ends is None else (end.value for end in self._ends)
        categories: tuple[Any, ...] = ()
        if self._categories is not None:
            known = self._model.explainer.schema_[feature].categories
            categories = tuple(known[code] for code in self._categories.value)
        target, rejected = self._fields.target.value, bool(self._rejected.value)
        found = matching_rows(
            self._rows, target, rejected=rejected, feature=feature, categories=categories, low=low, high=high
        )
        return found, int(limit)

    def _count(self) -> None:
        """Say how many rows match, and how many of them are drawn."""
        with elements.show_errors(self._error):
            positions, limit = self._matches()
            count = len(positions)
            taken = "all of them are explained" if count <= limit else f"{limit:,} of them are drawn at random"
            self._matching.set_text(f"{count:,} of {len(self._rows):,} people fit{f'; {taken}' if count else ''}.")

    def _build_table(self) -> None:
        with ui.element("div").classes("cp-row"):
            self._table = ui.label().classes("cp-soft")
            self._upload = ui.upload(auto_upload=True, max_file_size=LARGEST_FILE, on_upload=self._uploaded)
            refused = f"The file was not taken; expected a CSV of at most {LARGEST_FILE // 1024:,} KiB."
            self._upload.on_rejected(lambda: self._error.set_text(refused)).style("display: none")
            elements.describe(self._upload, accept=".csv")
            pick = elements.button("Upload a CSV", name="Upload a CSV of people")
            # In the browser itself, because a file may only be asked for by a click.
            pick.on("click", js_handler=f"event => getElement({self._upload.id}).$refs.qRef.pickFiles(event)")
            back = "Back to this page's table"
            self._back = elements.button(back, lambda: self._show_table(self._model.rows, _OWN_TABLE), "flat dense")

    def _build_filter(self) -> None:
        features = {"": _EVERYBODY, **wording.titles(self._model.explainer.schema_)}
        self._feature = ui.select(features, label="Filter by", value="", on_change=self._build_filter_fields)
        self._limit = ui.number("How many, at most", value=_DEFAULT_ROWS, step=1, on_change=self._count)
        self._limit.min, self._limit.max = 1, MOST_ROWS
        self._rejected = ui.switch("Only people who are rejected", value=True, on_change=self._count)
        elements.describe(self._rejected, aria_label="Only people for whom the model does not decide as wanted")

    def _build_filter_fields(self) -> None:
        """Offer the values of the feature by which rows are filtered."""
        self._filter_fields.clear()
        self._categories, self._ends = None, None
        name = self._feature.value
        if name:
            feature = self._model.explainer.schema_[name]
            categories = feature.categories
            with self._filter_fields:
                if categories:
                    options = {code: wording.shown(feature, category) for code, category in enumerate(categories)}
                    label = f"Values of {feature.title}"
                    self._categories = ui.select(options, label=label, value=[], multiple=True, on_change=self._count)
                else:
                    low, high = (ui.number(f"{feature.title} {end}", on_change=self._count) for end in ("from", "to"))
                    self._ends = low, high
        self._count()

    async def _uploaded(self, event: events.UploadEventArguments) -> None:
        name = event.file.name
        with elements.show_errors(self._error):
            try:
                if event.file.size() > LARGEST_FILE:
                    raise InputError(f"{name} has {event.file.size():,} bytes; expected at most {LARGEST_FILE:,}")
                content = await event.file.read()
                rows = await asyncio.to_thread(
                    lambda: RowTable.from_table(self._model.explainer, parse_table(content, ".csv", name))
                )
            finally:
                self._upload.reset()
            self._show_table(rows, name)

    def _show_table(self, rows: RowTable, name: str) -> None:
        self._rows = rows
        self._table.set_text(f"{len(rows):,} people are in {name}.")
        self._back.set_visibility(rows is not self._model.rows)
        self._count()
