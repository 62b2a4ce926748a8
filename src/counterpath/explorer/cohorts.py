"""Cohorts: people of a table who meet several conditions, under a name that the browser remembers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from counterpath.data.schema import Feature, Number, Schema
from counterpath.explanation import wording
from counterpath.explorer.state import RowTable

MOST_COHORTS = 30
"""Cohorts that are remembered: a list that is still read."""
LONGEST_NAME = 60
"""Characters of a name: as many as fit a heading of a table."""


@dataclass(frozen=True)
class Condition:
    """What one feature of a person is.

    Attributes:
        feature: The feature.
        low: The least number of it, or None.
        high: The largest one, or None.
        categories: The categories of it; all if there are none.
    """

    feature: str
    low: Number | None = None
    high: Number | None = None
    categories: tuple[Any, ...] = ()

    def holds(self, column: pd.Series) -> list[bool]:
        """For which values of the feature it holds; for a gap only where nothing is asked."""
        return [self._holds(value) for value in column.tolist()]

    def _holds(self, value: Any) -> bool:
        if self.categories:
            return value in self.categories
        if self.low is None and self.high is None:
            return True
        if pd.isna(value):
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def text(self, feature: Feature) -> str:
        """The condition in words, or nothing if it asks for nothing."""
        if self.categories:
            return f"{feature.title}: {' or '.join(wording.shown(feature, each) for each in self.categories)}"
        low, high = (None if end is None else wording.amount(feature, end) for end in (self.low, self.high))
        if low is None and high is None:
            return ""
        ends = (
            f"{low} to {high}" if None not in (low, high) else f"at most {high}" if low is None else f"at least {low}"
        )
        return f"{feature.title}: {ends}"


@dataclass(frozen=True)
class Cohort:
    """People who meet all of some conditions.

    Attributes:
        name: What it is called.
        conditions: The conditions, at most one a feature.
        rejected: Whether only those count for whom the model does not decide as wanted.
    """

    name: str
    conditions: tuple[Condition, ...] = ()
    rejected: bool = True

    def positions(self, rows: RowTable, target_class: Any) -> list[int]:
        """The positions of its people in a table, in order."""
        kept = rows.rejected(target_class) if self.rejected else range(len(rows))
        masks = [each.holds(rows.frame[each.feature]) for each in self.conditions]
        return [index for index in kept if all(mask[index] for mask in masks)]

    def text(self, schema: Schema) -> str:
        """Who is in it, in words."""
        parts = [each.text(schema[each.feature]) for each in self.conditions]
        who = "people whom the model rejects" if self.rejected else "all people"
        told = "; ".join(part for part in parts if part)
        return f"{who}; {told}" if told else who

    def to_json(self) -> dict[str, Any]:
        """As a value of JSON."""
        conditions = [
            {"feature": each.feature, "low": each.low, "high": each.high, "categories": list(each.categories)}
            for each in self.conditions
        ]
        return {"name": self.name, "rejected": self.rejected, "conditions": conditions}


def cohorts_from_json(value: Any, schema: Schema) -> list[Cohort]:
    """The cohorts that a browser remembered; what is not of this model, or damaged, is left out."""
    found = (_cohort(each, schema) for each in (value if isinstance(value, list) else [])[:MOST_COHORTS])
    return [each for each in found if each is not None]


def _cohort(value: Any, schema: Schema) -> Cohort | None:
    if not isinstance(value, Mapping) or not isinstance(value.get("conditions"), list):
        return None
    name, rejected = value.get("name"), value.get("rejected")
    conditions = [_condition(each, schema) for each in value["conditions"]]
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not isinstance(rejected, bool):
        return None
    known = tuple(each for each in conditions if each is not None)
    return Cohort(name, known, rejected) if len(known) == len(conditions) else None


def _condition(value: Any, schema: Schema) -> Condition | None:
    if not isinstance(value, Mapping) or value.get("feature") not in schema.names:
        return None
    feature = schema[str(value["feature"])]
    ends, chosen = (value.get("low"), value.get("high")), value.get("categories")
    numbers = all(end is None or (isinstance(end, int | float) and not isinstance(end, bool)) for end in ends)
    if not numbers or not isinstance(chosen, list) or not all(each in feature.categories for each in chosen):
        return None
    return Condition(feature.name, *ends, tuple(chosen))


def is_feasible(conditions: Sequence[Condition]) -> bool:
    """Whether no condition has its ends the wrong way round."""
    return all(each.low is None or each.high is None or each.low <= each.high for each in conditions)
