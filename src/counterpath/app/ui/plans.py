"""One plan of one person: an explanation of a single row, and what is shown of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from counterpath.explanation import Explanation, Status, wording
from counterpath.explanation.columns import CHANGES


@dataclass(frozen=True)
class Plan:
    """A plan, or the news that there is none.

    Attributes:
        number: Which of the person's plans it is, from 1.
        explanation: Of one row.
    """

    number: int
    explanation: Explanation

    @property
    def label(self) -> Any:
        """What the person's row is called."""
        return self.explanation.factuals.index.tolist()[0]

    @property
    def status(self) -> Status:
        """What became of it."""
        return Status(self.explanation.status["status"].iloc[0])

    @property
    def reason(self) -> str:
        """The same as a sentence."""
        return str(self.explanation.status["reason"].iloc[0])

    @property
    def binding(self) -> str:
        """Which constraints stand in the way."""
        return str(self.explanation.status["binding"].iloc[0])

    @property
    def method(self) -> str:
        """How it was found."""
        return str(self.explanation.request["method"])

    @property
    def wanted(self) -> str:
        """The outcome that was asked for, in words."""
        return wording.outcome(wording.value(self.explanation.request["target_class"]))

    @property
    def sentence(self) -> str:
        """What would have to change, in plain language."""
        return str(self.explanation.sentences.iloc[0])

    @property
    def odds(self) -> tuple[str, str]:
        """The probability of the wanted outcome now and then."""
        before, after = (self.explanation.outcome[f"probability_{when}"].iloc[0] for when in ("before", "after"))
        return wording.probability(before), wording.probability(after)

    @cached_property
    def changes(self) -> tuple[wording.Change, ...]:
        """What changes, in original units."""
        told = self.explanation.changes
        values = zip(told["feature"], told["from"], told["to"], strict=True)
        return tuple(wording.change(name, old, new, ordered=False) for name, old, new in values)

    @cached_property
    def stops(self) -> pd.DataFrame:
        """The milestones of the path, its ends included; empty where it has no path."""
        if self.status in (Status.UNKNOWN_CATEGORY, Status.NO_OTHER_PLAN):
            return pd.DataFrame()
        return self.explanation.milestones(self.label)

    @property
    def steps(self) -> list[str]:
        """The steps from milestone to milestone, if there are several."""
        if len(self.stops) <= 2:
            return []
        told = self.stops.iloc[1:]
        return [wording.Step(*step).line for step in zip(told[CHANGES], told["probability"], strict=True)]

    @property
    def title(self) -> str:
        """The plan in a few words, to tell bookmarks apart."""
        return f"Row {wording.value(self.label)}, {self.method}, plan {self.number}"


def plans_of(result: Explanation) -> list[Plan]:
    """What there is to tell about the one person of an explanation: their plans, or why there is none."""
    plans = [Plan(number, result.plan(number)) for number in range(1, result.plans + 1)]
    return [plan for plan in plans if plan.status is not Status.NO_OTHER_PLAN] or plans[:1]


def side_by_side(plans: Sequence[Plan]) -> list[list[str]]:
    """A table with a row for each thing to compare and a column for each plan; what does not change is a dash."""
    rows = [
        ["wanted", *(plan.wanted for plan in plans)],
        ["probability", *(" → ".join(plan.odds) for plan in plans)],
        ["features changed", *(str(len(plan.changes)) for plan in plans)],
        ["steps", *(str(max(len(plan.stops) - 1, 0)) for plan in plans)],
    ]
    changes = [{change.feature: f"{change.old} → {change.new}" for change in plan.changes} for plan in plans]
    features = dict.fromkeys(name for each in changes for name in each)
    return rows + [[name, *(each.get(name, "–") for each in changes)] for name in features]
