"""What was found for many people, on a page: numbers, figures, tables by group, and who they are."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from nicegui import ui

from counterpath.data.schema import Schema
from counterpath.explanation import Explanation, StatusCode, summary, wording
from counterpath.explanation.tables import BY_ROW, numeric_features
from counterpath.explanation.wording import describe_rows
from counterpath.explorer import parts
from counterpath.explorer.figures_group import FEW, changes_figure, measures_figure, shares_figure
from counterpath.explorer.plotting import Drawing

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
_SHARES = ("found", "gaps")
_COUNTS = ("n", "explained")


def together(results: Sequence[Explanation]) -> Explanation:
    """The explanations of some people after others', of the same model and request, as one."""
    first = results[0]
    if len(results) == 1:
        return first
    starts = np.cumsum([0, *(len(result) for result in results)]).tolist()
    tables = {name: pd.concat([getattr(result, name) for result in results]) for name in BY_ROW}
    paths = [
        result.paths.assign(row=result.paths["row"] + start) for result, start in zip(results, starts, strict=False)
    ]
    return replace(
        first,
        **tables,
        paths=pd.concat(paths, ignore_index=True),
        compute_measures=lambda: pd.concat([result.measures() for result in results]),
    )


def some(result: Explanation, places: Sequence[int]) -> Explanation:
    """The explanation of the rows at some places, whether or not their labels are unique."""
    index = result.factuals.index
    return result.select([index[place] for place in places] if index.is_unique else list(places))


def groups_of(result: Explanation, by: str) -> pd.Series:
    """The group of each row by a column, as `Explanation.summary` makes them."""
    return summary.group_keys(result, by)[0]


def key_numbers(summary: pd.DataFrame) -> dict[str, str]:
    """What to know first, each number with its name.

    Args:
        summary: Of all people, one row.
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


def by_group(summary: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of a table of groups; where there are few people it says so."""
    there = [name for name in COLUMNS if name in summary]
    rows = []
    for label, numbers in zip(summary.index.tolist(), summary.to_dict("records"), strict=True):
        cells = [_cell(name, numbers[name]) for name in there]
        few = " (few)" if numbers["n"] < FEW else ""
        rows.append([wording.value(label) + few, *cells])
    return ["group", *(COLUMNS[name] for name in there)], rows


def _cell(name: str, number: object) -> str:
    if name in _SHARES:
        return wording.percent(float(str(number)))
    return str(number) if name in _COUNTS else wording.value(number, 3)


def warning(summary: pd.DataFrame) -> str:
    """Which groups are too small to say much, or nothing."""
    few = [wording.value(label) for label in summary.index[summary["n"] < FEW].tolist()]
    if not few:
        return ""
    return f"Fewer than {FEW} people are in: {wording.listed(few)}. What is said about them may be chance."


def missing(result: Explanation) -> list[tuple[str, int]]:
    """Why there is no counterfactual, each reason with how many people it concerns, the most frequent first."""
    without = result.status[~result.valid]
    return Counter(without["reason"].tolist()).most_common()


def obstacles(result: Explanation) -> list[tuple[str, int]]:
    """Which constraints stand in the way of people without a counterfactual, and of how many."""
    lists = result.status.loc[~result.valid, "binding"].tolist()
    counted = Counter(pair for each in lists for pair in dict.fromkeys((one["kind"], one["feature"]) for one in each))
    return [(f"{kind.replace('_', ' ')}: {name}", number) for (kind, name), number in counted.most_common()]


def people_rows(result: Explanation, places: Sequence[int]) -> list[tuple[str, str, str, str]]:
    """For each place the label, what became of it, the probabilities and the changes, as text."""
    frames = {name: getattr(result, name).iloc[list(places)] for name in BY_ROW}
    numbers = numeric_features(result.schema, result.factuals)
    rows = describe_rows(frames, result.schema.names, numbers, result.request)
    return [
        (
            row.label,
            str(row.status).replace("_", " "),
            f"{wording.probability(row.p_before)} → {wording.probability(row.p_after)}",
            "; ".join(change.entry for change in row.changes) or "–",
        )
        for row in rows
    ]


def places_by_status(result: Explanation) -> dict[str, list[int]]:
    """The places of people by what became of them, as it is told, in the order of `StatusCode`."""
    told = result.status["status"].tolist()
    each = {str(kind).replace("_", " "): [p for p, one in enumerate(told) if one == kind] for kind in StatusCode}
    return {words: places for words, places in each.items() if places}


_PAGE = 15
_MOST_REASONS = 8
_ALL = -1
_EVERYBODY = "everybody"
_LEGEND = (
    "found: share of the explained people for whom there is a counterfactual. changes: features that change. L1: how "
    "far, all together, each as a share of its range. ld²: how far from the nearest training row, squared. All "
    "three are means over those for whom there is one, and smaller is better."
)


def first_column(schema: Schema) -> str:
    """By which column people are grouped at first: one that cannot change, with categories, if there is one."""
    ranked = sorted(schema, key=lambda feature: (not feature.immutable, not feature.categories))
    return ranked[0].name


class Findings:
    """All that is shown about one answer for many people.

    Args:
        result: The answer.
        summary: Its summary over all, so that nothing long is computed here.
        on_open: Called with the place of a person in the answer who is to be looked at alone.
    """

    def __init__(self, result: Explanation, summary: pd.DataFrame, on_open: Callable[[int], None] | None) -> None:
        self._result, self._on_open = result, on_open
        self.tables: dict[str, pd.DataFrame] = {}
        self._build_numbers(summary)
        with parts.section("group-changes", "Which features change, and for whom"):
            columns = {name: name for name in result.schema.names}
            with ui.element("div").classes("cp-fields"):
                self._by = ui.select(
                    columns, label="Group by", value=first_column(result.schema), on_change=self.regroup
                )
                self._only = ui.select({_ALL: _EVERYBODY}, label="Changes of", value=_ALL, on_change=self._narrow)
            self._changes = Drawing()
            parts.text("h3", "By group, in percent")
            self._shares = Drawing()
        with parts.section("group-measures", "Measures by group"):
            self._warning = parts.problem()
            self._measures = Drawing()
            parts.text("p", _LEGEND, "cp-soft")
            self._table = ui.element("div")
        self._build_missing()
        self._build_people()

    async def regroup(self) -> None:
        """Show all that is by group by the column that is chosen now."""
        by = str(self._by.value)
        summary, keys = await asyncio.to_thread(_grouped, self._result, by)
        if by != self._by.value:
            return  # another one was chosen in the meantime
        self._keys, self._labels = keys, summary.index.tolist()
        self.tables = {f"By {by}": summary.reset_index()}
        names = {_ALL: _EVERYBODY} | {place: wording.value(label) for place, label in enumerate(self._labels)}
        self._only.set_options(names, value=_ALL)
        self._narrow()
        self._shares.show(shares_figure(self._result, keys.rename(by)))
        self._measures.show(measures_figure(summary))
        self._warning.set_text(warning(summary))
        self._table.clear()
        with self._table:
            parts.table(f"Measures by {by}", *by_group(summary), "cp-numbers")

    def _narrow(self) -> None:
        """Show the changes of one group, or of everybody."""
        place = self._only.value
        if place == _ALL:
            self._changes.show(changes_figure(self._result))
        else:
            chosen = (self._keys == self._labels[place]).to_numpy().nonzero()[0].tolist()
            self._changes.show(changes_figure(some(self._result, chosen)))

    def _build_numbers(self, summary: pd.DataFrame) -> None:
        with parts.section("group-numbers", "In short"), ui.element("dl").classes("cp-keys"):
            for name, number in key_numbers(summary).items():
                with ui.element("div"):
                    parts.text("dt", name)
                    parts.text("dd", number)

    def _build_missing(self) -> None:
        with parts.section("group-missing", "For whom nothing was found, and why"):
            reasons = missing(self._result)
            if not reasons:
                parts.text("p", "Everybody has a counterfactual, or needs none.", "cp-soft")
                return
            _counted("Reasons", "reason", reasons)
            binding = obstacles(self._result)
            if binding:
                _counted("What stands in the way", "constraint", binding)

    def _build_people(self) -> None:
        places = places_by_status(self._result)
        self._places = {_EVERYBODY: list(range(len(self._result)))} | places
        with parts.section("group-people", "The people"):
            options = {words: f"{words} ({len(found)})" for words, found in self._places.items()}
            with ui.element("div").classes("cp-row"):
                self._which = ui.select(options, label="List", value=_EVERYBODY, on_change=lambda: self._turn(0))
                self._which.classes("cp-which")
                self._back = ui.button("Previous", on_click=lambda: self._turn(self._first - _PAGE))
                self._on = ui.button("Next", on_click=lambda: self._turn(self._first + _PAGE))
                for button, name in ((self._back, "Previous people"), (self._on, "Next people")):
                    button.props("outline dense no-caps")
                    parts.named(button, name)
                self._where = ui.label().classes("cp-soft")
                self._where.props["role"] = "status"
            self._people = ui.element("div")
        self._turn(0)

    def _turn(self, first: int) -> None:
        """List the people from this one on."""
        chosen = self._places[str(self._which.value)]
        self._first = min(max(0, first), max(0, len(chosen) - 1))
        shown = chosen[self._first : self._first + _PAGE]
        self._where.set_text(f"{self._first + 1 if shown else 0} to {self._first + len(shown)} of {len(chosen)}")
        self._back.set_enabled(self._first > 0)
        self._on.set_enabled(self._first + _PAGE < len(chosen))
        self._people.clear()
        with self._people:
            _people_table(people_rows(self._result, shown), shown, self._on_open)


def _grouped(result: Explanation, by: str) -> tuple[pd.DataFrame, pd.Series]:
    return result.summary(by=by), groups_of(result, by)


def _counted(title: str, head: str, rows: Sequence[tuple[str, int]]) -> None:
    parts.text("h3", title)
    shown = [[words, str(number)] for words, number in rows[:_MOST_REASONS]]
    parts.table(title, [head, "people"], shown)
    if len(rows) > _MOST_REASONS:
        parts.text("p", f"and {len(rows) - _MOST_REASONS} more", "cp-soft")


def _people_table(
    rows: Sequence[tuple[str, str, str, str]], places: Sequence[int], on_open: Callable[[int], None] | None
) -> None:
    """A table whose rows become cards where the page is narrow; the roles keep it a table for screen readers then."""
    with _part("table", "table").classes("cp-table cp-people") as table:
        parts.named(table, "The people")
        with _part("thead", "rowgroup"), _part("tr", "row"):
            for words in ("row", "result", "probability", "changes", *(("open",) if on_open else ())):
                parts.text("th", words).props["role"] = "columnheader"
        with _part("tbody", "rowgroup"):
            for row, place in zip(rows, places, strict=True):
                with _part("tr", "row"):
                    parts.text("th", row[0]).props["role"] = "rowheader"
                    for words in row[1:]:
                        parts.text("td", words).props["role"] = "cell"
                    if on_open is not None:
                        with _part("td", "cell"):
                            button = ui.button("Open", on_click=lambda place=place: on_open(place))
                            button.props("flat dense no-caps")
                            parts.named(button, f"Open row {row[0]} alone")


def _part(tag: str, role: str) -> ui.element:
    element = ui.element(tag)
    element.props["role"] = role
    return element
