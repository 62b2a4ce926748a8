"""What was found for many rows: numbers, figures, tables by group, and the rows themselves."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from nicegui import ui

from counterpath.data.schema import Schema
from counterpath.explanation import Explanation, StatusCode, summary, wording
from counterpath.explanation.tables import BY_ROW
from counterpath.explorer import elements
from counterpath.explorer.figures_group import FEW, SHARES, changes_figure, measures_figure, shares_figure
from counterpath.explorer.state import describe_rows

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


def select_positions(result: Explanation, positions: Sequence[int]) -> Explanation:
    """The explanation of the rows at some positions, whether or not their labels are unique."""
    index = result.factuals.index
    return result.select([index[position] for position in positions] if index.is_unique else list(positions))


def groups_of(result: Explanation, by: str) -> pd.Series:
    """The group of each row by a column, as `Explanation.summary` makes them."""
    return summary.group_keys(result, by)[0]


def key_numbers(summary: pd.DataFrame) -> dict[str, str]:
    """What to know first, each number with its name.

    Args:
        summary: Of all rows, as one.
    """
    row = summary.iloc[0]
    return {
        "people": str(int(row["n"])),
        "had to be explained": str(int(row["explained"])),
        "counterfactual found": wording.percent(row["found"]),
        "only across a gap in the data": wording.percent(row["gaps"]),
        "features change, on average": wording.value(row["l0"], 3),
        "mean distance (L1)": wording.value(row["l1"], 3),
    }


def group_table(summary: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of a table of groups; where there are few people it says so."""
    names = [name for name in COLUMNS if name in summary]
    rows = []
    for label, numbers in zip(summary.index.tolist(), summary.to_dict("records"), strict=True):
        cells = [
            wording.percent(numbers[name]) if name in SHARES else wording.value(numbers[name], 3) for name in names
        ]
        rows.append([wording.value(label) + (" (few)" if numbers["n"] < FEW else ""), *cells])
    return ["group", *(COLUMNS[name] for name in names)], rows


def small_groups_warning(summary: pd.DataFrame) -> str:
    """Which groups are too small to say much, or nothing."""
    few = [wording.value(label) for label in summary.index[summary["n"] < FEW].tolist()]
    if not few:
        return ""
    return f"Fewer than {FEW} people are in: {wording.listed(few)}. What is said about them may be chance."


def count_reasons(result: Explanation) -> list[tuple[str, int]]:
    """Why there is no counterfactual, each reason with how many rows it concerns, the most frequent first."""
    return Counter(result.status.loc[~result.valid, "reason"].tolist()).most_common()


def count_binding(result: Explanation) -> list[tuple[str, int]]:
    """Which constraints stand in the way of rows without a counterfactual, and of how many."""
    lists = result.status.loc[~result.valid, "binding"].tolist()
    names = ((constraint["kind"].replace("_", " "), constraint["feature"]) for each in lists for constraint in each)
    return [(f"{kind}: {feature}", count) for (kind, feature), count in Counter(names).most_common()]


def row_table(result: Explanation, positions: Sequence[int]) -> list[tuple[str, str, str, str]]:
    """For each position the label, what became of the row, the probabilities and the changes, as text."""
    return [
        (
            row.label,
            str(row.status).replace("_", " "),
            f"{wording.probability(row.p_before)} → {wording.probability(row.p_after)}",
            "; ".join(change.entry for change in row.changes) or "–",
        )
        for row in describe_rows(result, positions)
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
            for name, number in key_numbers(summary).items():
                with ui.element("div"):
                    elements.text("dt", name)
                    elements.text("dd", number)
        with elements.section("group-changes", "Which features change, and for whom"):
            names = list(result.schema.names)
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
        summary, keys = await asyncio.to_thread(lambda: (self._result.summary(by=by), groups_of(self._result, by)))
        if by != self._by.value:
            return  # another one was chosen in the meantime
        self._keys, self._labels = keys, summary.index.tolist()
        self.tables.clear()
        self.tables[f"By {by}"] = summary.reset_index()
        groups = {index: wording.value(label) for index, label in enumerate(self._labels)}
        self._group.set_options({_ALL_GROUPS: _EVERYBODY} | groups, value=_ALL_GROUPS)
        self._show_changes()
        self._shares.show(shares_figure(self._result, keys.rename(by)))
        self._measures.show(measures_figure(summary))
        self._warning.set_text(small_groups_warning(summary))
        self._table.clear()
        with self._table:
            elements.table(f"Measures by {by}", *group_table(summary), "cp-numbers")

    def _show_changes(self) -> None:
        """Show the changes of one group, or of all rows."""
        result, group = self._result, self._group.value
        if group != _ALL_GROUPS:
            result = select_positions(result, np.flatnonzero(self._keys == self._labels[group]).tolist())
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
            self._range = ui.label().classes("cp-soft")
            self._range.props["role"] = "status"
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
                with row, elements.part("td", "cell"):
                    name = f"Open row {label} alone"
                    elements.button("Open", lambda factual=factual: self._on_open(factual), "flat dense", name)


def _count_table(title: str, head: str, rows: Sequence[tuple[str, int]]) -> None:
    elements.text("h3", title)
    elements.table(title, [head, "people"], [[words, str(count)] for words, count in rows[:_MOST_REASONS]])
    if len(rows) > _MOST_REASONS:
        elements.text("p", f"and {len(rows) - _MOST_REASONS} more", "cp-soft")
