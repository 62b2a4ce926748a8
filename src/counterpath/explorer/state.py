"""What the page shows, as plain data: the model, rows to choose from, what may become of each feature, and plans."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd

from counterpath.data.axes import NumberAxis, value_axis
from counterpath.data.constraints import Constraints, is_interval
from counterpath.data.rules.checks import often_broken
from counterpath.data.rules.language import parse_rules
from counterpath.data.rules.ruleset import RuleSet
from counterpath.data.schema import KINDS, Feature, Number, Schema
from counterpath.data.status import BindingConstraint
from counterpath.data.tables import to_numbers
from counterpath.data.times import DATE
from counterpath.explainer.explainer import Explainer
from counterpath.explainer.request import OTHER, Request
from counterpath.explanation import Explanation, StatusCode, wording
from counterpath.explanation.tables import BY_ROW
from counterpath.explorer.distribution import Distribution
from counterpath.explorer.figures_map import VolumeGrid, volume_grid
from counterpath.service.dispatcher import Dispatcher
from counterpath.utils.errors import InputError

BOTH = "both"
"""The direction of a feature that may go up and down."""
MOST_MATCHES = 6
"""Rows that a search lists: what fits between its field and the decision, without scrolling."""
_SUMMARY_VALUES = 5
"""Values of a row that are listed for it: two lines on a phone."""


@dataclass(frozen=True)
class FeatureConstraint:
    """What may become of one feature.

    Attributes:
        locked: It must not change.
        direction: "up", "down" or `BOTH`.
        low: The smallest value that is allowed, or None.
        high: The largest one, or None.
        allowed: The categories that are allowed, for a feature without an order; empty for all of them.
        stays: Whether it must be so from the start on, and not only in the end.
        cost: How hard it is to change, 1 by default; None is no number, which an error says.
    """

    locked: bool = False
    direction: str = BOTH
    low: Any = None
    high: Any = None
    allowed: tuple[Any, ...] = ()
    stays: bool = False
    cost: Number | None = 1

    @classmethod
    def default(cls, feature: Feature) -> "FeatureConstraint":
        """That of a feature of which nothing is asked: what people cannot change is locked."""
        return cls(locked=not feature.actionable and not feature.immutable)

    @property
    def has_range(self) -> bool:
        """Whether it says where the feature must end, or stay."""
        return bool(self.allowed) or self.low is not None or self.high is not None

    def summary(self, feature: Feature) -> str:
        """What differs from the default, in a few words."""
        words = ["locked"] if self.locked else []
        words += [f"only {self.direction}"] if self.direction != BOTH else []
        low, high = (None if end is None else wording.amount(feature, end) for end in (self.low, self.high))
        if low is not None and high is not None:
            words.append(f"{low} to {high}")
        elif low is not None or high is not None:
            words.append(f"at most {high}" if low is None else f"at least {low}")
        words += [f"{len(self.allowed)} of {len(feature.categories)} values"] if self.allowed else []
        words += ["from the start"] if self.stays and self.has_range else []
        words += [f"cost {self.cost:g}"] if self.cost not in (None, 1) else []
        return ", ".join(words)


def request_arguments(schema: Schema, constraints: Mapping[str, FeatureConstraint]) -> dict[str, Any]:
    """The constraints of all features as arguments of a request: only what differs from the default.

    What is not actionable is locked unless it is unlocked.
    """
    ranges: dict[bool, dict[str, Any]] = {False: {}, True: {}}
    for name, constraint in constraints.items():
        if constraint.allowed:
            ranges[constraint.stays][name] = constraint.allowed
        elif is_interval(schema[name]) and constraint.has_range:
            ranges[constraint.stays][name] = (constraint.low, constraint.high)
    return {
        "lock": tuple(name for name, one in constraints.items() if one.locked and schema[name].actionable),
        "unlock": tuple(name for name, one in constraints.items() if not one.locked and name in schema.not_actionable),
        "directions": {name: one.direction for name, one in constraints.items() if one.direction != BOTH},
        "ranges": ranges[False],
        "stay_within": ranges[True],
        "feature_costs": {name: one.cost for name, one in constraints.items() if one.cost != 1},
    }


def constraints_of(schema: Schema, request: Mapping[str, Any]) -> dict[str, FeatureConstraint]:
    """The constraints of all features that a request has, as `request_arguments` made it."""
    found = {}
    for feature in schema:
        name, default = feature.name, FeatureConstraint.default(feature)
        locked = name in (request.get("lock") or ()) or (default.locked and name not in (request.get("unlock") or ()))
        stays = name in (request.get("stay_within") or {})
        allowed = ((request.get("stay_within") if stays else request.get("ranges")) or {}).get(name)
        low, high, chosen = None, None, ()
        if allowed is not None and is_interval(feature):
            low, high = allowed
        elif allowed is not None:
            chosen = tuple(allowed)
        direction = (request.get("directions") or {}).get(name, BOTH)
        cost = (request.get("feature_costs") or {}).get(name, 1)
        found[name] = FeatureConstraint(locked, direction, low, high, chosen, stays, cost)
    return found


def value_error(explainer: Explainer, feature: Feature, value: Any, label: Any) -> str:
    """Why a value cannot be one of this feature, in plain words, or nothing."""
    column = pd.Series([value], index=[label], name=feature.name)
    try:
        explainer.encoder_.refuse_impossible(column, to_numbers(column, feature))
    except InputError:
        return f"Invalid value: {_refusal(explainer, feature, value)}."
    return ""


def _refusal(explainer: Explainer, feature: Feature, value: Any) -> str:
    if value is None or value == "":
        return "enter one; the training rows have no gaps here"
    if KINDS[feature.kind].times:
        example = "a date such as 2013-08-14" if feature.kind == DATE else "a duration such as 3 days"
        return f"{wording.value(value)} is not {example}"
    if KINDS[feature.kind].categories is not None:
        return f"{wording.value(value)} is not one of the list"
    if KINDS[feature.kind].whole and isinstance(value, float) and value != round(value):
        return f"{wording.value(value)} is not a whole number"
    axis = value_axis(explainer.encoder_.axes[explainer.schema_.index(feature.name)])
    if not isinstance(axis, NumberAxis):
        return f"{wording.value(value)} is not one of the list"
    low, high = (wording.grouped(wording.number(feature, end)) for end in (axis.lower, axis.upper))
    return f"{wording.grouped(wording.value(value))} is not from {low} to {high}"


def value_note(explainer: Explainer, feature: Feature, value: Any) -> str:
    """What is to be said of a value that can be, but is unlike those of the training rows; or nothing."""
    axis = value_axis(explainer.encoder_.axes[explainer.schema_.index(feature.name)])
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(axis, NumberAxis) or not is_number or value in feature.codes or axis.lower <= value <= axis.upper:
        return ""
    return "Outside of the training range: the model has seen nobody like that."


def constraint_error(
    explainer: Explainer, feature: Feature, constraint: FeatureConstraint, row: pd.DataFrame | None
) -> str:
    """Why a constraint cannot be, or is not kept by the row as it is, in plain words; or nothing.

    Args:
        explainer: Knows what is legal.
        feature: The feature.
        constraint: What may become of it.
        row: One row that can be encoded; None if it cannot.
    """
    if constraint == FeatureConstraint.default(feature):
        return ""
    if constraint.cost is None or not constraint.cost > 0:
        return "Invalid cost: enter a number above 0, such as 1."
    low, high = constraint.low, constraint.high
    if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
        return f"Invalid range: the minimum {wording.value(low)} is above the maximum {wording.value(high)}."
    try:
        arguments = request_arguments(explainer.schema_, {feature.name: replace(constraint, locked=False)})
        parsed = Constraints.of(explainer.schema_, **arguments)
        if row is None or not parsed.bounds(explainer.encoder_, row, explainer.encoder_.encode(row)).hopeless:
            return "" if row is None else _locked_outside(explainer, feature, constraint, row)
    except InputError:
        return "Invalid range: no value of this feature lies in it."
    now = wording.amount(feature, row[feature.name].tolist()[0])
    if constraint.stays:
        return f"{now} is outside of the range, which must hold from the start."
    if constraint.direction != BOTH:
        return f"{now} may only go {constraint.direction}, and the range is on the other side."
    return "Invalid range: no value that it may become lies in it."


def _locked_outside(explainer: Explainer, feature: Feature, constraint: FeatureConstraint, row: pd.DataFrame) -> str:
    """What is wrong with a range that a locked feature is outside of; or nothing."""
    if not constraint.locked or not feature.actionable or not constraint.has_range:
        return ""
    parsed = Constraints.of(explainer.schema_, **request_arguments(explainer.schema_, {feature.name: constraint}))
    hopeless = parsed.bounds(explainer.encoder_, row, explainer.encoder_.encode(row)).hopeless
    now = wording.amount(feature, row[feature.name].tolist()[0])
    return f"{now} is locked, and outside of the range." if hopeless else ""


def read_rule(explainer: Explainer, rules: Sequence[str], text: str) -> tuple[str, str]:
    """A rule as the language writes it, and what is to be said about it, or nothing.

    Args:
        explainer: Knows the features, the schema's own rules, and how many training rows break one.
        rules: The rules that there are already.
        text: The further one.

    Raises:
        InputError: It cannot be, by itself or beside the others; the message quotes it.
    """
    schema = explainer.schema_
    parsed = parse_rules(schema, [text])
    written = str(parsed[0])
    if written in (*rules, *schema.rules):
        raise InputError(f"the rule {written!r} is there already")
    Constraints.of(schema, rules=[*rules, written])
    shares = RuleSet.of(explainer.encoder_, parsed).broken_shares(explainer.models_.rows)
    return written, " ".join(often_broken(shares))


@dataclass(frozen=True)
class RowTable:
    """Rows in original units, with what the model predicts for each.

    Attributes:
        frame: The features of the rows, and their labels as its index.
        predicted: The class that the model predicts for each; None for a row with a category it does not know.
        texts: All values of each row as one text in lower case, to be searched.
        schema: What people call the features.
        training: Whether these are the rows that the model was trained on, which is said wherever one is shown.
    """

    frame: pd.DataFrame
    predicted: tuple[Any, ...]
    texts: tuple[str, ...]
    schema: Schema
    training: bool = False

    @classmethod
    def from_table(cls, explainer: Explainer, table: Any, *, training: bool = False) -> "RowTable":
        """The rows of a table that is like the training table, with or without its label.

        Args:
            explainer: The model.
            table: The table.
            training: Whether the model was trained on it.

        Raises:
            InputError: The table is empty, or its columns or values cannot be used.
        """
        frame, _ = explainer.prepare(table)
        frame = explainer.encoder_.align(frame)
        if not len(frame):
            raise InputError("there is nobody to pick: the table has no rows; give one with at least one row")
        known = explainer.encoder_.known(frame).to_numpy()
        predicted = iter(explainer.predict(frame[known]).tolist())
        schema = explainer.schema_
        own = [[f"{name}={wording.value(value)}" for value in frame[name].array] for name in schema.names]
        shown = [[f"{each.title}={wording.shown(each, value)}" for value in frame[each.name].array] for each in schema]
        labels = [f"row={wording.value(label)}" for label in frame.index.tolist()]
        texts = ("\n".join(values).lower() for values in zip(labels, *own, *shown, strict=True))
        return cls(frame, tuple(next(predicted) if one else None for one in known), tuple(texts), schema, training)

    def __len__(self) -> int:
        return len(self.frame)

    def label(self, index: int) -> str:
        """What the row at a position is called in its table."""
        return wording.value(self.frame.index[[index]].tolist()[0])

    def title(self, index: int) -> str:
        """What to call the row at a position: a training record is called so."""
        return f"{'Training record' if self.training else 'Person'} {self.label(index)}"

    def values(self, index: int) -> dict[str, Any]:
        """The features of one row."""
        return {str(name): self.frame[name].iloc[[index]].tolist()[0] for name in self.frame}

    def position(self, row: pd.DataFrame) -> int | None:
        """Where a person is in the table: the first row of the same label and values; None if there is none."""
        values = {str(name): row[name].tolist()[0] for name in row}
        for index in np.flatnonzero(self.frame.index == row.index[0]).tolist():
            own = self.values(index)
            if all(own[name] == given or (pd.isna(own[name]) and pd.isna(given)) for name, given in values.items()):
                return index
        return None

    def summary(self, index: int) -> str:
        """A few of the values of one row."""
        values = [f"{each.title} {wording.amount(each, self.frame[each.name].array[index])}" for each in self.schema]
        return " · ".join([*values[:_SUMMARY_VALUES], *(["…"] if len(values) > _SUMMARY_VALUES else [])])

    def search(self, query: str, limit: int = MOST_MATCHES) -> list[int]:
        """The first rows in which all words of a query occur; a word may be a value, or name=value."""
        words = query.lower().split()
        matches = (index for index, text in enumerate(self.texts) if all(word in text for word in words))
        return list(islice(matches, limit))

    def rejected(self, target_class: Any) -> list[int]:
        """The rows for which the model predicts another class than the target; any class will do if that is `OTHER`."""
        return [
            index
            for index, predicted in enumerate(self.predicted)
            if predicted is not None and (target_class == OTHER or predicted != target_class)
        ]

    def next_rejected(self, after: int, target_class: Any) -> int | None:
        """The first rejected row after a position, from the start again if there is none; None if no row is."""
        rejected = self.rejected(target_class)
        return next((index for index in rejected if index > after), rejected[0] if rejected else None)


def single_row(explainer: Explainer, values: Mapping[str, Any], label: Any = 0) -> pd.DataFrame:
    """One row as a table with the columns and, where they hold the values, the dtypes of the training table."""
    row = {name: [values[name]] for name in explainer.schema_.names}
    encoder = explainer.encoder_
    return encoder.align(encoder.in_own_types(pd.DataFrame(row, index=pd.Index([label]))))


@dataclass(frozen=True)
class LoadedModel:
    """What the page is about, and where it is explained.

    Attributes:
        name: The name of the model in addresses and at the dispatcher.
        explainer: The model.
        rows: The rows to choose from.
        dispatcher: Runs it without holding up the event loop.
    """

    name: str
    explainer: Explainer
    rows: RowTable
    dispatcher: Dispatcher

    @cached_property
    def distributions(self) -> dict[str, Distribution]:
        """By feature how the training rows spread over its values."""
        explainer = self.explainer
        rows = explainer.encoder_.decode(explainer.models_.rows)
        return {each.name: Distribution.of(explainer, each, rows[each.name]) for each in explainer.schema_}

    async def explain(self, rows: pd.DataFrame, request: Request) -> Explanation:
        """The explanation of rows, with their measures."""
        return await self.dispatcher.explain(self.name, rows, request)

    async def predict_rows(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The probability of each class, a column each, for each of some rows; or what a regressor predicts."""
        return await self.dispatcher.predict(self.name, rows)

    async def predict_proba(self, row: pd.DataFrame) -> dict[Any, float]:
        """The probability of each class for one row.

        Raises:
            InputError: It has a category that the model does not know.
        """
        found = (await self.dispatcher.predict(self.name, row)).iloc[0]
        if found.isna().any():
            raise InputError(self.explainer.encoder_.unknown(row)[1][0].strip("()"))
        return found.to_dict()

    def decision(self, probabilities: Mapping[Any, float]) -> Any:
        """The class that the model decides for, given the probability of each."""
        return self.explainer.decide(pd.DataFrame([probabilities])).iloc[0]

    async def volume_grid(self, row: pd.DataFrame) -> VolumeGrid | None:
        """The background of the latent map for one row."""
        # A function of its own for each call: the dispatcher runs calls of the same function as one.
        return await self.dispatcher.run(self.name, row, lambda explainer, row: volume_grid(explainer, row))


@dataclass(frozen=True)
class Plan:
    """A plan, or the news that there is none.

    Attributes:
        number: Which of the row's plans it is, from 1.
        explanation: Of one row.
        row: The same in words.
    """

    number: int
    explanation: Explanation
    row: wording.Row

    @property
    def label(self) -> Any:
        """What the row is called."""
        return self.explanation.factuals.index.tolist()[0]

    @property
    def method(self) -> str:
        """How it was found."""
        return str(self.explanation.request["method"])

    @property
    def outcome(self) -> str:
        """The outcome that was requested, in words."""
        return wording.outcome(self.row.target)

    @property
    def odds(self) -> tuple[str, str]:
        """How probable the outcome is now and with the plan; of a regressor, what it predicts."""
        if self.row.wanted:
            return self.row.before, self.row.after
        return wording.percent(self.row.p_before), wording.percent(self.row.p_after)

    @property
    def binding(self) -> list[BindingConstraint]:
        """Which constraints stand in the way, the one that costs most first."""
        return [BindingConstraint.from_json(one) for one in self.explanation.status["binding"].iloc[0]]

    @cached_property
    def milestones(self) -> pd.DataFrame:
        """The milestones of the path, its ends included; empty where it has no path."""
        if self.row.status in (StatusCode.UNKNOWN_CATEGORY, StatusCode.NO_OTHER_PLAN):
            return pd.DataFrame()
        return self.explanation.milestones(self.label)

    @property
    def title(self) -> str:
        """The plan in a few words, to tell bookmarks apart."""
        return f"Person {self.row.label}, plan {self.number} ({self.method})"


def keep_first(first: Explanation, several: Explanation) -> Explanation:
    """The explanation of several plans, with the plan first that was found first and is on the page already.

    Plans come by cost, so that a cheaper one that is found later would take its place. Here it comes after it; if the
    first plan is none of the others, the last of them makes room for it.

    Args:
        first: Of one plan of one row.
        several: Of several plans of the same row.
    """
    if not first.valid.iloc[0] or several.plans == 1:
        return several
    names = list(first.schema.names)
    shown = first.counterfactuals[names].iloc[0].tolist()
    same = [not any(map(wording.differ, row, shown)) for row in several.counterfactuals[names].itertuples(index=False)]
    others = [index for index, is_same in enumerate(same) if not is_same][: several.plans - 1]
    lists = [first, several._take(others)]
    starts = [0, len(first)]
    paths = [each.paths.assign(row=each.paths["row"] + start) for each, start in zip(lists, starts, strict=True)]
    index = several.factuals.index[: 1 + len(others)]
    return replace(
        several,
        **{
            name: pd.concat([getattr(each, name).reset_index(drop=True) for each in lists]).set_axis(index)
            for name in BY_ROW
        },
        paths=pd.concat(paths, ignore_index=True),
        compute_measures=lambda: pd.concat([each.measures() for each in lists]),
    )


def plans_of(result: Explanation) -> list[Plan]:
    """The plans of the one row of an explanation; if there is none, one that says why."""
    each = [result.plan(number) for number in range(1, result.plans + 1)]
    plans = [Plan(number, plan, *plan._describe([0])) for number, plan in enumerate(each, start=1)]
    return [plan for plan in plans if plan.row.status is not StatusCode.NO_OTHER_PLAN] or plans[:1]


def side_by_side(plans: Sequence[Plan]) -> list[list[str]]:
    """A table with a row for each thing to compare and a column for each plan; what does not change is a dash."""
    rows = [
        ["Wanted decision", *(plan.outcome for plan in plans)],
        ["Now", *(plan.odds[0] for plan in plans)],
        ["With the plan", *(plan.odds[1] for plan in plans)],
        ["Features changed", *(str(len(plan.row.changes)) for plan in plans)],
        ["Steps", *(str(max(len(plan.milestones) - 1, 0)) for plan in plans)],
    ]
    changes = [{change.feature: f"{change.old} → {change.then}" for change in plan.row.changes} for plan in plans]
    features = {change.feature: change.name for plan in plans for change in plan.row.changes}
    return rows + [[title, *(each.get(name, "–") for each in changes)] for name, title in features.items()]
