"""What is told about many people: numbers, and tables of text, made from an explanation."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from counterpath.app.ui.figures_measures import FEW
from counterpath.app.ui.limits import binding
from counterpath.explanation import Explanation, Status, groups, wording
from counterpath.explanation.columns import BY_ROW
from counterpath.explanation.telling import amounts, tell

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
    changed = result.changed[list(result.schema.names)]
    rows = groups.cases(result.status, result.measures(), changed, result.paths, result.plans)
    return groups.group_keys(rows, result.factuals, by)[0]


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
    texts = result.status.loc[~result.valid, "binding"].tolist()
    counted = Counter(pair for text in texts for pair in dict.fromkeys(binding(result.schema, text)))
    return [(f"{kind.replace('_', ' ')}: {name}", number) for (kind, name), number in counted.most_common()]


def people_rows(result: Explanation, places: Sequence[int]) -> list[tuple[str, str, str, str]]:
    """For each place the label, what became of it, the probabilities and the changes, as text."""
    frames = {name: getattr(result, name).iloc[list(places)] for name in BY_ROW}
    numbers = amounts(result.schema, result.factuals)
    rows = tell(frames, result.schema.names, numbers, result.request)
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
    """The places of people by what became of them, as it is told, in the order of `Status`."""
    told = result.status["status"].tolist()
    each = {str(kind).replace("_", " "): [p for p, one in enumerate(told) if one == kind] for kind in Status}
    return {words: places for words, places in each.items() if places}
