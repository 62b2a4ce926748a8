"""What a person says about each feature: locked or not, which way and how far it may go, and how hard that is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

import pandas as pd

from counterpath.data.constraints import Constraints, is_interval
from counterpath.data.schema import Feature, Number, Schema
from counterpath.data.status import BindingConstraint
from counterpath.data.tables import to_numbers
from counterpath.explainer.explainer import Explainer
from counterpath.explainer.request import OTHER
from counterpath.explanation import Explanation, StatusCode, wording
from counterpath.explanation.tables import CHANGES
from counterpath.fitting.prepare import prepare_rows
from counterpath.utils.errors import InputError

BOTH = "both"
"""The direction of a feature that may go up and down."""


@dataclass(frozen=True)
class Limit:
    """What is said about one feature.

    Attributes:
        locked: It must not change.
        direction: "up", "down" or `BOTH`.
        low: The smallest value that is allowed, or None.
        high: The largest one, or None.
        allowed: The categories that are allowed, for a feature without an order; empty for all of them.
        feature_costs: How hard it is to change; None is no number, which an error says.
    """

    locked: bool = False
    direction: str = BOTH
    low: Any = None
    high: Any = None
    allowed: tuple[Any, ...] = ()
    feature_costs: Number | None = 1

    def told(self, feature: Feature) -> str:
        """What differs from the usual, in a few words."""
        words = ["locked"] if self.locked else []
        words += [f"only {self.direction}"] if self.direction != BOTH else []
        if self.low is not None or self.high is not None:
            words.append(f"{'' if self.low is None else self.low}–{'' if self.high is None else self.high}")
        words += [f"{len(self.allowed)} of {len(feature.categories)} values"] if self.allowed else []
        words += [f"cost {self.feature_costs:g}"] if self.feature_costs not in (None, 1) else []
        return ", ".join(words)


def whole(given: Any) -> Any:
    """A whole number as one, for a field gives all as floats; anything else as it is."""
    return int(given) if isinstance(given, float) and given.is_integer() else given


def arguments(schema: Schema, limits: Mapping[str, Limit]) -> dict[str, Any]:
    """The limits as arguments of `Asked`: only what differs from the usual."""
    ranges: dict[str, Any] = {}
    for name, limit in limits.items():
        if limit.allowed:
            ranges[name] = limit.allowed
        elif is_interval(schema[name]) and (limit.low is not None or limit.high is not None):
            ranges[name] = (limit.low, limit.high)
    return {
        "lock": tuple(name for name, limit in limits.items() if limit.locked),
        "directions": {name: limit.direction for name, limit in limits.items() if limit.direction != BOTH},
        "ranges": ranges,
        "feature_costs": {name: limit.feature_costs for name, limit in limits.items() if limit.feature_costs != 1},
    }


def value_problem(feature: Feature, value: Any, label: Any) -> str:
    """Why a value cannot be one of this feature, or nothing."""
    try:
        to_numbers(pd.Series([value], index=[label], name=feature.name), feature)
    except InputError as error:
        return str(error)
    return ""


def limit_problem(explainer: Explainer, feature: Feature, limit: Limit, person: pd.DataFrame | None) -> str:
    """Why a limit cannot be, or is not kept by the person as they are, or nothing.

    Args:
        explainer: Knows what is legal.
        feature: The feature.
        limit: What is said about it.
        person: One row that can be encoded; None if theirs cannot.
    """
    if limit == Limit():
        return ""
    said = arguments(explainer.schema_, {feature.name: limit})
    try:
        constraints = Constraints.of(explainer.schema_, **said)
        if person is not None:
            constraints.bounds(explainer.encoder_, person, explainer.encoder_.encode(person))
    except InputError as error:
        return str(error)
    return ""


MOST_MATCHES = 6
_SHOWN = 5


@dataclass(frozen=True)
class People:
    """Rows in original units, with what the model decides for each.

    Attributes:
        frame: The features of the rows, and their labels as its index.
        decided: The class that the model predicts for each; None for a row with a category it does not know.
        texts: All values of each row as one text in lower case, to be searched.
    """

    frame: pd.DataFrame
    decided: tuple[Any, ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, explainer: Explainer, table: Any) -> "People":
        """The rows of a table that is like the training table, with or without its label.

        Raises:
            InputError: The table is empty, or its columns or values cannot be used.
        """
        frame, _ = prepare_rows(table, explainer.schema_, explainer.target_, explainer.imputer_)
        frame = explainer.encoder_.align(frame)
        if not len(frame):
            raise InputError("there is nobody to pick: the table has no rows; give one with at least one row")
        known = explainer.encoder_.known(frame).to_numpy()
        decided = iter(explainer.predict(frame[known]).tolist())
        columns = {name: frame[name].map(wording.value).tolist() for name in frame}
        named = [[f"{name}={text}" for text in column] for name, column in columns.items()]
        labels = [f"row={wording.value(label)}" for label in frame.index.tolist()]
        texts = ("\n".join(values).lower() for values in zip(labels, *named, strict=True))
        return cls(frame, tuple(next(decided) if one else None for one in known), tuple(texts))

    def __len__(self) -> int:
        return len(self.frame)

    def label(self, place: int) -> str:
        """What the row is called in its table."""
        return wording.value(self.frame.index[[place]].tolist()[0])

    def values(self, place: int) -> dict[str, Any]:
        """The features of one row."""
        return {str(name): self.frame[name].iloc[[place]].tolist()[0] for name in self.frame}

    def summary(self, place: int) -> str:
        """A few of the values of one row."""
        told = [f"{name} {wording.value(value)}" for name, value in self.values(place).items()]
        return " · ".join([*told[:_SHOWN], *(["…"] if len(told) > _SHOWN else [])])

    def search(self, text: str, most: int = MOST_MATCHES) -> list[int]:
        """The first rows in which all words of the text occur; a word may be a value, or name=value."""
        words = text.lower().split()
        found: list[int] = []
        for place, held in enumerate(self.texts):
            if len(found) == most:
                break
            if all(word in held for word in words):
                found.append(place)
        return found

    def at_random(self, random: Random) -> int:
        """Anybody."""
        return random.randrange(len(self))

    def next_rejected(self, after: int, wanted: Any) -> int | None:
        """The next row for which the model does not decide as wanted, from the start again after the last one.

        Args:
            after: Where to start, or -1.
            wanted: A class, or `OTHER`: then everybody with a decision will do.
        """
        for place in self._onwards(after):
            decision = self.decided[place]
            if decision is not None and (wanted == OTHER or decision != wanted):
                return place
        return None

    def _onwards(self, after: int) -> Iterator[int]:
        yield from range(after + 1, len(self))
        yield from range(min(after + 1, len(self)))


def framed(explainer: Explainer, values: Mapping[str, Any], label: Any = 0) -> pd.DataFrame:
    """One person as a table with the columns and, where they hold the values, the dtypes of the training table."""
    row = {name: [values[name]] for name in explainer.schema_.names}
    return explainer.encoder_.align(pd.DataFrame(row, index=pd.Index([label])))


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
    def status(self) -> StatusCode:
        """What became of it."""
        return StatusCode(self.explanation.status["status"].iloc[0])

    @property
    def reason(self) -> str:
        """The same as a sentence."""
        return str(self.explanation.status["reason"].iloc[0])

    @property
    def binding(self) -> list[BindingConstraint]:
        """Which constraints stand in the way, the one that costs most first."""
        return [BindingConstraint.from_json(one) for one in self.explanation.status["binding"].iloc[0]]

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
        if self.status in (StatusCode.UNKNOWN_CATEGORY, StatusCode.NO_OTHER_PLAN):
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
    return [plan for plan in plans if plan.status is not StatusCode.NO_OTHER_PLAN] or plans[:1]


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
