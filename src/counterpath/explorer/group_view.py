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

from counterpath.data.schema import Schema
from counterpath.data.status import BindingConstraint
from counterpath.data.tables import parse_table
from counterpath.explainer.request import Request
from counterpath.explanation import Explanation, StatusCode, wording
from counterpath.explanation.intervals import group_intervals
from counterpath.explanation.summary import group_keys, with_labels
from counterpath.explanation.tables import BY_ROW, MILESTONES
from counterpath.explorer import elements
from counterpath.explorer.cohort_form import CohortForm, LimitList
from counterpath.explorer.cohort_results import Side, compare, show
from counterpath.explorer.cohorts import Cohort
from counterpath.explorer.figures import FEW, SHARES, changes_figure, measures_figure, shares_figure
from counterpath.explorer.forms import RuleList, TargetFields, count_error
from counterpath.explorer.group_audit import GroupAudit
from counterpath.explorer.state import FeatureConstraint, LoadedModel, RowTable, request_arguments
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
_TRAINING = "the training data of this model: it has seen them"
_EVERYBODY_ELSE = "everybody else"
"""The cohort of all who are not in the first."""
_LEAD = (
    "Explain many people at once: for whom is there a counterfactual, what does it cost them, and which features does "
    "it take? Differences between groups may be the model's, the data's, or chance."
)
COLUMNS = {
    "n": "People",
    "explained": "Explained",
    "found": "Found",
    "gaps": "Across a gap",
    "l0": "Changes",
    "l1": "Distance",
    "ld_sq": "To the data",
    "steps": "Steps",
    "changes most": "Changes most",
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
    "In brackets: 95 % intervals. Found: share of the explained people for whom there is a counterfactual. Changes: "
    "features that change. Distance: how far, all together, each as a share of its range. To the data: how far from "
    "the nearest training row, squared. The last four are means over those for whom there is one; smaller is better."
)


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


def group_table(summary: pd.DataFrame, intervals: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of a table of groups; where there are few people it says so.

    Args:
        summary: As `with_labels` has it.
        intervals: Of its groups, in the same order, as `group_intervals` makes them.
    """
    names = [name for name in COLUMNS if name in summary]
    rows = []
    for at, (label, numbers) in enumerate(zip(summary.index.tolist(), summary.to_dict("records"), strict=True)):
        cells = [_measure(str(name), numbers[name], intervals.iloc[at]) for name in names]
        rows.append([label + (" (few)" if numbers["n"] < FEW else ""), *cells])
    return ["Group", *(COLUMNS[name] for name in names)], rows


def _measure(name: str, number: Any, ends: pd.Series) -> str:
    """A measure with its 95 % interval, where it has one."""
    form = wording.percent if name in SHARES else wording.rounded
    if (name, "low") not in ends.index or ends[name, "low"] != ends[name, "low"]:
        return wording.grouped(form(number))
    return f"{form(number)} ({form(float(ends[name, 'low']))}–{form(float(ends[name, 'high']))})"


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
            _odds(row),
            ("; ".join(change.entry for change in row.changes) if row.status.found else "") or "–",
        )
        for row in result._describe(positions)
    ]


def _odds(row: wording.Row) -> str:
    """How probable the outcome is now and, if there is a plan, with it."""
    if row.wanted:
        return row.probabilities if row.status.found else row.before
    now = wording.percent(row.p_before)
    return f"{now} → {wording.percent(row.p_after)}" if row.status.found else now


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

    def __init__(
        self, result: Explanation, summary: pd.DataFrame, on_open: Callable[[pd.DataFrame, Explanation], None]
    ) -> None:
        self._result, self._on_open = result, on_open
        self.tables: dict[str, pd.DataFrame] = {}
        with elements.section("group-numbers", "In short"), ui.element("dl").classes("cp-keys"):
            row = summary.iloc[0]
            numbers = {
                "people": f"{int(row['n']):,}",
                "had to be explained": f"{int(row['explained']):,}",
                "counterfactual found": wording.percent(row["found"]),
                "only across a gap in the data": wording.percent(row["gaps"]),
                "features change, on average": wording.rounded(row["l0"]),
                "mean distance": wording.rounded(row["l1"]),
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
        summary, keys, intervals = await asyncio.to_thread(self._summarize, by)
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
            elements.table(f"Measures by {title}", *group_table(summary, intervals), "cp-numbers")

    def _summarize(self, by: str) -> tuple[pd.DataFrame, pd.Series, pd.DataFrame]:
        """The summary by a column, the group of every row, and the intervals of all measures in the same order."""
        summary, keys = self._result.summary(by=by), group_keys(self._result, by)[0]
        return summary, keys, group_intervals(self._result, keys).reindex(summary.index)

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
        _count_table("Reasons", "Reason", reasons)
        binding = count_binding(self._result)
        if binding:
            _count_table("What stands in the way", "Constraint", binding)

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
            made = elements.table(
                "The people", ["Person", "Result", "Probability", "Changes", "Open"], rows, "cp-people"
            )
            for (row, _), (label, *_), position in zip(made, rows, shown, strict=True):
                alone = self._result._take([position])
                with row, elements.box("td", role="cell"):
                    name = f"Open person {label} alone"
                    elements.button(
                        "Open", lambda alone=alone: self._on_open(alone.factuals, alone), "flat dense", name
                    )


def _count_table(title: str, head: str, rows: Sequence[tuple[str, int]]) -> None:
    elements.text("h3", title)
    elements.table(title, [head, "People"], [[words, f"{count:,}"] for words, count in rows[:_MOST_REASONS]])
    if len(rows) > _MOST_REASONS:
        elements.text("p", f"and {len(rows) - _MOST_REASONS} more", "cp-soft")


class GroupView:
    """The tab of many rows.

    Args:
        model: The model, and the rows to choose from until another table is uploaded.
        on_open: Called with a row that is to be looked at alone: a table of one, under its own label.
    """

    def __init__(self, model: LoadedModel, on_open: Callable[[pd.DataFrame, Explanation], None]) -> None:
        self._model, self._on_open, self._ready = model, on_open, False
        with ui.element("div").classes("cp-column"):
            with elements.section("group", "Many people at once", _LEAD):
                self._error = elements.error_label()
                self._build_table()
                elements.text("h3", "Who")
                self._cohorts = CohortForm(model, self._count, self._offer_cohorts)
                with ui.element("div").classes("cp-fields"):
                    self._limit = ui.number(
                        "How many, at most",
                        value=_DEFAULT_ROWS,
                        step=1,
                        validation=lambda value: count_error(value, MOST_ROWS) or None,
                        on_change=self._count,
                    )
                    self._other = ui.select({"": "nobody"}, label="Compare with", value="")
                elements.text("h3", "What is asked for them")
                with ui.element("div").classes("cp-fields"):
                    self._fields = TargetFields(model.explainer, self._count)
                    schema = model.explainer.schema_
                    locked = {name: schema[name].title for name in schema.not_actionable}
                    free = {each.name: each.title for each in schema if each.actionable and not each.immutable}
                    self._lock = ui.select(free, label="Must not change", value=[], multiple=True, clearable=True)
                    self._unlock = ui.select(locked, label="May change, too", value=[], multiple=True, clearable=True)
                    elements.describe(self._unlock, hint="what people cannot usually change")
                    self._unlock.set_visibility(bool(locked))
                self._limits = LimitList(model)
                self._rules = RuleList(model.explainer)
                self._matching = elements.text("p", "", "cp-soft", role="status")
                self._ready = True
                self._show_table(model.rows, _TRAINING if model.rows.training else _OWN_TABLE)
                self._offer_cohorts()
                self._task = elements.TaskControls("Explain these people", self._explain, stop_name="Stop explaining")
                self._downloads = elements.Downloads("group", "the group", self._task.error)
            self._results = elements.box("div", "cp-column", aria_live="polite")

    async def _explain(self) -> None:
        cohort, positions, limit = self._matches()
        if not positions:
            raise InputError("nobody fits; take fewer conditions, or people who are not rejected, too")
        request = self._request()
        other, others, both = self._other_cohort(positions)
        groups = [sample(each, limit) for each in (positions, others) if each]
        total = sum(len(group) for group in groups)
        parts: list[Explanation] = []
        for group in groups:
            done = sum(len(part) for part in parts)
            parts.append(await self._explain_rows(group, request, done, total))
        self._show_progress(total, total)
        result = parts[0]
        summary = await asyncio.to_thread(result.summary)
        sides, compared = self._sides(cohort, other, parts), None
        if sides is not None:
            compared = await asyncio.to_thread(compare, *sides)
        self._results.clear()
        with self._results:
            if sides is not None and compared is not None:
                show(*sides, *compared, both)
            results = GroupResults(result, summary, self._on_open)
            GroupAudit(self._model, result, default_grouping(result.schema))
            await results.regroup()
        self._downloads.offer(result, results.tables)
        self._task.show_idle(f"{total:,} people explained.")

    def _sides(self, cohort: Cohort, other: Cohort | None, parts: Sequence[Explanation]) -> tuple[Side, Side] | None:
        """Both cohorts with what was found, if there are two."""
        if other is None:
            return None
        schema = self._model.explainer.schema_
        first, second = (
            Side(each.name, each.text(schema), part) for each, part in zip((cohort, other), parts, strict=True)
        )
        return first, second

    async def _explain_rows(self, positions: list[int], request: Request, done: int, total: int) -> Explanation:
        """The explanation of some rows, batch by batch; so many of all rows were done before."""
        rows, parts = self._rows.frame.iloc[positions], []
        for start in range(0, len(rows), _BATCH):
            self._show_progress(done + start, total)
            parts.append(await self._model.explain(rows.iloc[start : start + _BATCH], request))
        return concatenate(parts)

    def _request(self) -> Request:
        """What is asked for everybody.

        Raises:
            InputError: A field or a limit cannot be.
        """
        schema, limits = self._model.explainer.schema_, self._limits.constraints
        lock, unlock = tuple(self._lock.value or ()), tuple(self._unlock.value or ())
        asked = {each.name: FeatureConstraint.default(each) for each in schema} | limits
        for name in asked:
            locked = name in lock or (not schema[name].actionable and not schema[name].immutable and name not in unlock)
            asked[name] = replace(asked[name], locked=locked)
        arguments = request_arguments(schema, asked)
        return self._fields.request(paths=MILESTONES, rules=self._rules.rules, **arguments)

    def _other_cohort(self, positions: list[int]) -> tuple[Cohort | None, list[int], int]:
        """The cohort to compare with, those of its people who are not in the first, and how many are in both."""
        other = next((each for each in self._cohorts.saved if each.name == self._other.value), None)
        if self._other.value == _EVERYBODY_ELSE:
            other = replace(Cohort(_EVERYBODY_ELSE), rejected=bool(self._cohorts.rejected.value))
        if other is None:
            return None, [], 0
        theirs, ours = other.positions(self._rows, self._fields.target.value), set(positions)
        left = [index for index in theirs if index not in ours]
        if not left:
            raise InputError(
                f"nobody in the table is in {other.name} and not in the first cohort; choose another one to compare"
            )
        both = 0 if other.name == _EVERYBODY_ELSE else len(theirs) - len(left)
        return other, left, both

    def _offer_cohorts(self) -> None:
        """Offer the saved cohorts to compare with."""
        names = [each.name for each in self._cohorts.saved]
        options = {"": "nobody", _EVERYBODY_ELSE: _EVERYBODY_ELSE} | dict.fromkeys(names)
        options |= {name: name for name in names}
        kept = self._other.value if self._other.value in options else ""
        self._other.set_options(options, value=kept)

    def _show_progress(self, done: int, total: int) -> None:
        self._task.show_busy(f"{done} of {total} people …", progress=done / total)

    def _matches(self) -> tuple[Cohort, list[int], int]:
        """The cohort, the positions of its people, and how many of them are taken at most."""
        wrong = count_error(self._limit.value, MOST_ROWS)
        if wrong:
            raise InputError(f"How many, at most: {wrong[:1].lower()}{wrong[1:]}")
        cohort = self._cohorts.cohort
        return cohort, cohort.positions(self._rows, self._fields.target.value), int(self._limit.value)

    def _count(self) -> None:
        """Say how many rows match, and how many of them are drawn."""
        if not self._ready:
            return
        with elements.show_errors(self._error):
            _, positions, limit = self._matches()
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
            back, own = "Back to this page's table", _TRAINING if self._model.rows.training else _OWN_TABLE
            self._back = elements.button(back, lambda: self._show_table(self._model.rows, own), "flat dense")

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
