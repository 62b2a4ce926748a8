"""Two cohorts side by side: every measure with its interval, their difference, and how sure that is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from counterpath.explanation import Explanation, wording
from counterpath.explanation.audit import BETTER_HIGH, FEWEST, LEVEL, MEASURES, Audit, audit, burdens
from counterpath.explanation.intervals import mean_intervals, share_interval
from counterpath.explorer import elements

_PERMUTATIONS = 999
"""Of labels, while somebody waits: p is a multiple of 1/1000, enough for a handful of measures."""


@dataclass(frozen=True)
class Side:
    """A cohort with what was found for its people.

    Attributes:
        name: What it is called.
        text: Who is in it, in words.
        result: Their explanation.
    """

    name: str
    text: str
    result: Explanation


def compare(first: Side, second: Side) -> tuple[Audit, list[list[str]]]:
    """The audit of two cohorts, and the lines of a table: each measure of both, their difference, and what p is."""
    tables = [burdens(side.result) for side in (first, second)]
    names = [first.name] * len(tables[0]) + [second.name] * len(tables[1])
    both = pd.concat(tables, ignore_index=True)
    factuals = pd.concat([side.result.factuals for side in (first, second)], ignore_index=True)
    made = audit(factuals, both, [pd.Series(names, name="cohort")], first.result.schema, permutations=_PERMUTATIONS)
    searched = [table[table["found"].notna()] for table in tables]
    differences = {str(line["measure"]): line for line in made.differences.to_dict("records")}
    flipped = any(str(line["group"]) != first.name for line in differences.values())
    rows = []
    for name in (name for name in MEASURES if all(name in table for table in tables)):
        line = differences.get(name)
        rows.append(
            [
                MEASURES[name].label,
                *(_cell(name, table[name].dropna()) for table in searched),
                *_gap(name, line, flipped),
            ]
        )
    return made, rows


def _cell(name: str, values: pd.Series) -> str:
    """A mean with its interval, and over how many people it is."""
    if not len(values):
        return "–"
    form, count = MEASURES[name].form, len(values)
    if name == "found":
        low, high = share_interval(int(values.sum()), count)
    else:
        low, high = mean_intervals(values.to_frame()).iloc[0]
    ends = f" ({form(low)} to {form(high)})" if low == low else ""
    return f"{form(float(values.mean()))}{ends}, {wording.counted(count, 'person', 'people')}"


def _gap(name: str, line: Mapping[Any, Any] | None, flipped: bool) -> list[str]:
    """The difference, first minus second, with its interval; and p after Holm's correction."""
    if line is None or line["difference"] != line["difference"]:
        return ["–", "–"]
    sign = -1 if flipped else 1
    ends = sorted(sign * float(line[end]) for end in ("low", "high"))
    form, difference = MEASURES[name].form, sign * float(line["difference"])
    low, high = (_signed(end, form) for end in ends)
    p = "under 0.001" if line["p_holm"] < 0.001 else f"{line['p_holm']:.3f}"
    return [f"{_signed(difference, form)} ({low} to {high})", p]


def _signed(value: float, form: object) -> str:
    sign = "+" if value > 0 else "−" if value < 0 else ""
    shown = f"{abs(100 * value):.1f} points" if form is wording.percent else wording.rounded(abs(value))
    return f"{sign}{shown}"


def show(first: Side, second: Side, made: Audit, rows: list[list[str]], both: int) -> None:
    """Show two cohorts side by side.

    Args:
        first: The cohort that is looked at.
        second: The other one.
        made: Their audit.
        rows: The lines of the table.
        both: How many people meet the conditions of both.
    """
    with elements.section("group-compare", "Two cohorts side by side"):
        for side in (first, second):
            elements.text("p", f"{side.name}: {side.text}.", "cp-soft")
        if both:
            counted = wording.counted(both, "person", "people")
            elements.text("p", f"{counted} would be in both, and count in {first.name} only.", "cp-soft")
        head = ["Measure", first.name, second.name, "Difference", "p (Holm)"]
        elements.table("Two cohorts side by side", head, rows)
        if not len(made.differences):
            few = f"Nothing was tested: both need {FEWEST} people for whom something was searched."
            elements.text("p", few, "cp-note", role="status")
            return
        better = [MEASURES[name].label for name in MEASURES if name in BETTER_HIGH]
        elements.text(
            "p",
            f"Means with 95 % intervals. More is better of: {wording.listed(better)}; of all else less is. A "
            f"difference counts as shown where p is below {LEVEL}. It is no proof of discrimination, and none of "
            "fairness.",
            "cp-soft",
        )
