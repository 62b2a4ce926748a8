"""What may change in one request, and how easily: parsed against the schema, and as bounds of encoded rows."""

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Set
from copy import copy
from dataclasses import dataclass, field, fields
from functools import partial
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.data.axes import EMPTY, GRID, MixedAxes, OneHotAxes
from counterpath.data.causes import Causes, parse_causes
from counterpath.data.encoding import Encoder
from counterpath.data.rules.checks import check_consistent
from counterpath.data.rules.kinds import Derived
from counterpath.data.rules.language import parse_rules
from counterpath.data.rules.ruleset import RuleSet
from counterpath.data.schema import KINDS, Feature, Number, Schema
from counterpath.data.tables import to_numbers
from counterpath.data.times import DATE, as_days, day_text
from counterpath.utils.errors import InputError, choose

T = TypeVar("T")

UP, DOWN = "up", "down"
_HUGE = sys.float_info.max
"""Python's integers go on where floats end; beyond this they cannot be encoded."""
_MOST_APART = 1e6
"""How much harder one feature may be to change than another; beyond, single precision has too few digits."""


def parse_lock(schema: Schema, value: Any) -> tuple[str, ...]:
    """The names of features to lock, each once, in alphabetical order; one name alone will do."""
    listed = (value,) if isinstance(value, str) else _listed(value)
    if listed is None:
        raise InputError(f"lock is {value!r}; expected names of features, for instance lock=['{schema.names[0]}']")
    names = sorted({_feature(schema, "lock", name).name for name in listed})
    if names and {*names, *schema.immutable} >= {*schema.names}:
        immutable = f", and these are immutable: {', '.join(schema.immutable)}" if schema.immutable else ""
        raise InputError(f"lock={names!r} leaves nothing that could change{immutable}; leave a feature out of lock")
    return tuple(names)


def parse_unlock(schema: Schema, value: Any) -> tuple[str, ...]:
    """The names of features to unlock that are not actionable, each once, in alphabetical order."""
    listed = (value,) if isinstance(value, str) else _listed(value)
    if listed is None:
        raise InputError(f"unlock is {value!r}; expected names of features, for instance unlock=['{schema.names[0]}']")
    names = sorted({_feature(schema, "unlock", name).name for name in listed})
    for name in names:
        if schema[name].immutable:
            raise InputError(f"unlock has {name!r}, which is immutable: fit again with a schema in which it is not")
    return tuple(names)


def parse_by_feature(option: str, parse: Callable[[Feature, Any], T], schema: Schema, value: Any) -> dict[str, T]:
    """The constraints of an option that has one for each of some features, in the alphabetical order of their names."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"{option} is {value!r}; expected a mapping from the names of features, such as {{name: …}}")
    features = {name: _feature(schema, option, name) for name in value}
    return {name: parse(features[name], value[name]) for name in sorted(value)}


def parse_direction(feature: Feature, value: Any) -> str:
    """Up or down."""
    if KINDS[feature.kind].one_hot:
        raise InputError(
            f"directions has feature {feature.name!r} (kind {feature.kind!r}), whose categories have no order; try "
            f"ranges={{{feature.name!r}: […]}} with those that are allowed, or declare it ordinal"
        )
    text = value if isinstance(value, str) else repr(value)
    return choose(f"direction of feature {feature.name!r}:", text, {UP: UP, DOWN: DOWN})


def parse_range(feature: Feature, value: Any) -> tuple[Any, ...]:
    """Where a feature must end, or stay: an interval (low, high), or the categories that are allowed."""
    listed, of = _listed(value), f"the range of feature {feature.name!r}"
    misfit = f"{of} (kind {feature.kind!r}) is {value!r}; expected"
    if not is_interval(feature):
        listed = (value,) if isinstance(value, str) else listed  # one category alone will do
        if not listed:
            raise InputError(f"{misfit} the allowed ones of: {', '.join(map(repr, feature.categories))}")
        allowed = {_parse_category(feature, each) for each in listed}
        return tuple(category for category in feature.categories if category in allowed)
    if listed is None or len(listed) != 2 or isinstance(value, Set):
        raise InputError(f"{misfit} a pair (low, high), either of which may be None for an open end")
    listed = tuple(map(as_days, listed)) if KINDS[feature.kind].times else listed
    if not feature.categories and any(end is not None and _finite_number(end) is None for end in listed):
        ends = "dates such as '2013-08-14'" if feature.kind == DATE else "finite numbers"
        raise InputError(f"{misfit} a pair (low, high) of {ends}, or None for an open end")
    parse = partial(_parse_category, feature) if feature.categories else _finite_number
    low, high = (None if end is None else parse(end) for end in listed)
    least, most = range_ends(feature, (low, high))
    if least > most:
        raise InputError(f"{of} has low={low!r} above high={high!r}; swap them?")
    if feature.kind == "integer" and math.isfinite(least + most) and math.ceil(least) > math.floor(most):
        raise InputError(f"{of}, {describe_range(feature, (low, high))}, has no whole number")
    return low, high


def parse_forbidden(schema: Schema) -> tuple[dict[str, tuple[Any, ...]], ...]:
    """What a schema forbids: for each combination by feature the categories, or the ends (low, high) of numbers."""

    def parse(feature: Feature, value: Any) -> tuple[Any, ...]:
        listed = _listed(value)
        if feature.categories:
            return tuple(_parse_category(feature, each) for each in ((value,) if listed is None else listed))
        return parse_range(feature, (value, value) if listed is None else value)

    try:
        return tuple({name: parse(schema[name], value) for name, value in each.items()} for each in schema.forbidden)
    except InputError as error:
        raise InputError(f"the schema's forbidden combinations cannot be used: {error}") from error


def is_interval(feature: Feature) -> bool:
    """Whether a range of the feature is an interval: its values have an order, and are more than two."""
    return KINDS[feature.kind].categories is None or feature.kind == "ordinal"


def range_ends(feature: Feature, allowed: tuple[Any, ...]) -> tuple[float, float]:
    """The range of a feature whose values have an order as numbers, for categories as indices; infinite if open."""
    index = {value: float(i) for i, value in enumerate(feature.categories)}
    if not is_interval(feature):
        return min(index[value] for value in allowed), max(index[value] for value in allowed)
    low, high = (end if end is None else index.get(end, -1.0) if index else float(end) for end in allowed)
    return -math.inf if low is None else low, math.inf if high is None else high


def describe_range(feature: Feature, allowed: tuple[Any, ...]) -> str:
    """A range in words."""
    if not is_interval(feature):
        return " or ".join(map(repr, allowed))
    low, high = (day_text(end) if feature.kind == DATE and end is not None else end for end in allowed)
    if low is None or high is None:
        return "anything" if low is high else f"at least {low!r}" if high is None else f"at most {high!r}"
    return f"from {low!r} to {high!r}"


def parse_count(option: str, value: Any) -> int:
    """A whole number from 1."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral) or value < 1:
        raise InputError(f"{option} is {value!r}; expected a whole number from 1")
    return int(value)


def parse_max_changes(schema: Schema, value: Any) -> int | None:
    """How many features may change; None for as many as it takes."""
    return None if value is None else parse_count("max_changes", value)


def parse_feature_costs(schema: Schema, value: Any) -> dict[str, Number]:
    """How hard features are to change."""
    costs = parse_by_feature("feature_costs", _parse_cost, schema, value)
    every = {name: costs.get(name, 1) for name in schema.names}
    easiest, hardest = min(every, key=every.__getitem__), max(every, key=every.__getitem__)
    if every[hardest] / every[easiest] > _MOST_APART:
        raise InputError(
            f"feature {hardest!r} costs {every[hardest]:g} to change and {easiest!r} {every[easiest]:g}, more than a "
            f"million times less; to rule a change out, lock the feature: lock=[{hardest!r}]"
        )
    return costs


def parse_request_rules(schema: Schema, value: Any) -> tuple[str, ...]:
    """The rules of a request, as text, which must not contradict those of the schema either."""
    rules = parse_rules(schema, value)
    if rules:
        check_consistent(schema, (*parse_rules(schema, schema.rules), *rules))
    return tuple(map(str, rules))


def parse_request_causes(schema: Schema, value: Any) -> tuple[str, ...]:
    """The causes of a request, as texts."""
    causes = parse_causes(schema, value)
    return () if causes is None else causes.texts


def _parse_cost(feature: Feature, value: Any) -> Number:
    cost = _finite_number(value)
    if cost is None or cost <= 0:
        raise InputError(
            f"feature_costs has {value!r} for feature {feature.name!r}; expected a positive number, such as 1"
        )
    return cost


def _parse_category(feature: Feature, value: Any) -> Any:
    """A category as the schema has it; text that reads like one, as a command line gives it, will do."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, str | bool | int | float) and plain in feature.categories:
        return feature.categories[feature.categories.index(plain)]
    names = {str(category): category for category in feature.categories}
    return choose(f"category in the range of feature {feature.name!r}:", str(plain), names)


def _feature(schema: Schema, option: str, name: Any) -> Feature:
    if not isinstance(name, str):
        raise InputError(f"{option} has {name!r}; expected the name of a feature, one of: {', '.join(schema.names)}")
    return choose(f"feature in {option}:", name, {feature.name: feature for feature in schema})


def _listed(value: Any) -> tuple[Any, ...] | None:
    """The elements of a list, an array or the like; None for text and all that has none."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        return None
    return tuple(value)


def _finite_number(value: Any) -> Number | None:
    """A finite number as Python's own; None if it is none."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        return None
    number: Number = int(value) if isinstance(value, Integral) else float(value)
    return number if -_HUGE <= number <= _HUGE else None


@dataclass(frozen=True)
class Bounds:
    """A box for every factual, in which its counterfactual lies: lower ≤ x ≤ upper.

    A bound is a legal point, or the factual's own where it must not be passed or lies beyond every legal one. A factual
    that is not in its box, because it is outside a range, has to enter it.

    Attributes:
        lower: What every encoded column must not fall below; −∞ where nothing binds.
        upper: What it must not exceed; ∞ where nothing binds. Of one-hot columns it is 0 for what is not allowed.
        locked: The columns of features that must not change: those of the request and the schema's immutable ones. The
            box is closed around the former only.
        hopeless: Why a row cannot be in its box: it is outside of where it must stay, or cannot enter. By its index.
    """

    lower: Float[Tensor, "n D"]
    upper: Float[Tensor, "n D"]
    locked: Bool[Tensor, "n D"]
    hopeless: dict[int, str] = field(default_factory=dict)

    def at(self, rows: Tensor) -> "Bounds":
        """The bounds of some rows, a mask or their indices, none of which is hopeless."""
        return Bounds(self.lower[rows], self.upper[rows], self.locked[rows])

    def hold(self, x: Float[Tensor, "n D"]) -> Bool[Tensor, "n"]:
        """Which of the rows are in their box."""
        return ((x >= self.lower) & (x <= self.upper)).all(-1)


@dataclass(frozen=True)
class Kind:
    """A kind of constraint, declared once for all that parse, record, describe or offer it.

    Attributes:
        meaning: What it says, in a few words.
        example: What it is like in JSON.
        parse: Checks what a user gave against the schema, and puts it into an order that does not depend on theirs.
        bounds: The lower and upper bounds that it puts on a feature: a function of the encoder, the feature, what was
            parsed for it, the factuals in original units, and its columns of them encoded. None if it bounds nothing.
        from_start: Whether a row that is beyond these bounds at the start cannot be explained; else it enters them.
    """

    meaning: str
    example: Any
    parse: Callable[[Schema, Any], Any]
    bounds: Callable[[Encoder, Feature, Any, pd.DataFrame, Tensor], tuple[Tensor, Tensor]] | None = None
    from_start: bool = False


def _kind(default: Any, *declared: Any) -> Any:
    return field(default_factory=partial(copy, default), metadata={"kind": Kind(*declared)})


def _lock_bounds(
    encoder: Encoder, feature: Feature, value: tuple[()], frame: pd.DataFrame, x: Float[Tensor, "n w"]
) -> tuple[Float[Tensor, "n w"], Float[Tensor, "n w"]]:
    return x, x


def _direction_bounds(
    encoder: Encoder, feature: Feature, direction: str, frame: pd.DataFrame, x: Float[Tensor, "n w"]
) -> tuple[Float[Tensor, "n w"], Float[Tensor, "n w"]]:
    far = torch.full_like(x, math.inf)
    return (x, far) if direction == UP else (-far, x)


def _range_bounds(
    encoder: Encoder, feature: Feature, allowed: tuple[Any, ...], frame: pd.DataFrame, x: Float[Tensor, "n w"]
) -> tuple[Float[Tensor, "n w"], Float[Tensor, "n w"]]:
    """The bounds of a feature that must end in a range, or stay there; a row outside of it is beyond them."""
    index = encoder.schema.index(feature.name)
    axis, seen = encoder.axes[index], encoder.seen[index]
    known = [code for code in seen if code < len(feature.categories)]  # a gap is beyond them
    if isinstance(axis, OneHotAxes):
        codes = [code for code in known if feature.categories[code] in allowed]
        none, lower = not codes, torch.zeros_like(x)
        upper = lower.index_fill(1, torch.tensor(codes, dtype=torch.long, device=x.device), 1.0)
    else:
        low, high = range_ends(feature, allowed)
        first, last = axis.between(low, high)
        none = bool(feature.categories) and (first, last) == EMPTY
        numbers = torch.tensor(to_numbers(frame[feature.name], feature))  # a copy: the column may be read-only
        state, x = x[:, 1:], x[:, :1]
        if isinstance(axis, MixedAxes):  # a code or a gap is in no range; what is encoded in its place may be
            numbers = torch.where(axis.state(numbers) == 0, numbers, axis.fill)
        inside, below = (each[:, None].to(x.device) for each in (axis.within(numbers, low, high), numbers < low))
        # Beyond the legal points the factual is its own bound: it may stay, and no legal point is in the range.
        ends = (x.clamp_max(first) if math.isfinite(low) else low, x.clamp_min(last) if math.isfinite(high) else high)
        lower, upper = (torch.where(inside, own, end) for own, end in zip(ends, (first, last), strict=True))
        # Encoded as the end of the range, yet a digit beyond it: the next point is inside.
        close = ~inside & (x >= first) & (x <= last)
        lower = torch.where(close & below, x + 1 / GRID, lower)
        upper = torch.where(close & ~below, x - 1 / GRID, upper)
        is_value = torch.zeros_like(state)
        is_value[:, :1] = 1
        lower, upper = torch.cat([lower, is_value], 1), torch.cat([upper, is_value], 1)
    if none:
        values = ", ".join(repr(feature.categories[code]) for code in known)
        words = describe_range(feature, allowed)
        raise InputError(f"feature {feature.name!r} must be {words}, which no training row is; these are: {values}")
    return lower, upper


@dataclass(frozen=True)
class Constraints:
    """What one request allows to change. `of` parses what a user gives.

    Attributes:
        lock: Features that must not change, whatever the schema says.
        unlock: Features that may change though they are not actionable; what is not is locked otherwise.
        directions: By feature "up" or "down": it must not fall below, or rise above, what it is now. A binary feature
            goes up from its first category to the second.
        ranges: By feature where it must end, in original units: (low, high) for numbers and ordinal features, either
            of them None for an open end; for all others the categories that are allowed. A row that is outside enters
            the range on its path and does not leave it again.
        stay_within: The same for every row of the path: who is outside at the start cannot be explained.
        max_changes: How many features may change; None for as many as it takes.
        feature_costs: By feature how hard it is to change, compared to 1 for those that are not named.
        rules: What every row of every path keeps to, beside the rules of the schema; see `counterpath.data.rules`.
        causes: Which features follow from which, instead of the causes of the schema; see `counterpath.data.causes`.

    Example:
        >>> schema = Schema((Feature("age", "integer"), Feature("job", "categorical", categories=("Sales", "Tech"))))
        >>> Constraints.of(schema, directions={"age": "up"}, ranges={"age": (None, 65)}).to_json()["ranges"]
        {'age': [None, 65]}
    """

    feature_costs: Mapping[str, Number] = _kind(
        {}, "how hard a feature is to change; others have 1", {"education": 3}, parse_feature_costs
    )
    directions: Mapping[str, str] = _kind(
        {},
        "the only way in which a feature may change",
        {"age": "up"},
        partial(parse_by_feature, "directions", parse_direction),
        _direction_bounds,
    )
    lock: tuple[str, ...] = _kind(
        (), "features that must not change, beside immutable ones", ["age", "job"], parse_lock, _lock_bounds
    )
    unlock: tuple[str, ...] = _kind(
        (), "features that may change though the schema says that people cannot change them", ["job"], parse_unlock
    )
    max_changes: int | None = _kind(None, "how many features may change", 2, parse_max_changes)
    ranges: Mapping[str, tuple[Any, ...]] = _kind(
        {},
        "where a feature must end",
        {"hours": [20, None], "job": ["Sales", "Tech"]},
        partial(parse_by_feature, "ranges", parse_range),
        _range_bounds,
    )
    stay_within: Mapping[str, tuple[Any, ...]] = _kind(
        {},
        "where a feature must stay, from the start to the end",
        {"hours": [20, 60]},
        partial(parse_by_feature, "stay_within", parse_range),
        _range_bounds,
        True,
    )
    rules: tuple[str, ...] = _kind(
        (),
        "relations between features that hold in every row of every path",
        ["rent + savings <= income", 'education == "Doctorate" => age >= 27'],
        parse_request_rules,
    )
    causes: tuple[str, ...] = _kind(
        (),
        "which features follow from which, so that a change of one brings a change of the other",
        ["education -> income", "savings = 0.1 * income"],
        parse_request_causes,
    )

    @classmethod
    def of(cls, schema: Schema, **given: Any) -> "Constraints":
        """Parse the constraints of a user, into an order that does not depend on theirs.

        Arguments are the attributes, in whatever lists, arrays and numbers a user has them; one name alone may be given
        for `lock`, one category for a range.

        Raises:
            InputError: Something cannot be; the message names the feature, what was given and what was expected.
        """
        for name in given:
            choose("kind of constraint", name, CONSTRAINTS)
        given = vars(cls()) | given
        parsed = cls(**{name: kind.parse(schema, given[name]) for name, kind in CONSTRAINTS.items()})
        for rule in parse_rules(schema, (*schema.rules, *parsed.rules)):
            graph = parsed.graph(schema)
            if isinstance(rule, Derived) and graph is not None and rule.feature in graph.parents:
                raise InputError(
                    f"feature {rule.feature!r} is an effect in causes, and derived by the rule {str(rule)!r}; leave one"
                )
            if isinstance(rule, Derived) and rule.feature in parsed.lock:
                raise InputError(
                    f"lock has {rule.feature!r}, which follows from others by the rule {str(rule)!r}; lock these"
                )
        locked = tuple(name for name in parsed.not_actionable(schema) if name not in parsed.always_follow(schema))
        if {*schema.immutable, *parsed.lock, *locked} >= {*schema.names}:
            raise InputError(
                f"nothing is left that could change: all else is locked or immutable, and people cannot change "
                f"{', '.join(locked) or 'them'}; try unlock={list(locked)!r}"
            )
        return parsed

    def not_actionable(self, schema: Schema) -> tuple[str, ...]:
        """The features that are locked because people cannot change them, and the request does not unlock them."""
        return tuple(name for name in schema.not_actionable if name not in self.unlock)

    def ruleset(self, encoder: Encoder) -> RuleSet | None:
        """The rules of the schema and of this request; None if there are none."""
        texts = (*encoder.schema.rules, *self.rules)
        return RuleSet.of(encoder, parse_rules(encoder.schema, texts)) if texts else None

    def graph(self, schema: Schema) -> Causes | None:
        """The causes of this request, or else of the schema; None if there are none."""
        return parse_causes(schema, self.causes or schema.causes)

    def always_follow(self, schema: Schema) -> frozenset[str]:
        """The effects that people cannot change themselves, and that nothing keeps as they are."""
        graph = self.graph(schema)
        locked = {*schema.immutable, *self.lock}
        effects = () if graph is None else graph.parents
        return frozenset(name for name in effects if name in self.not_actionable(schema) and name not in locked)

    @property
    def bounded(self) -> bool:
        """Whether any feature is bound by this request."""
        return any(kind.bounds is not None and bool(getattr(self, name)) for name, kind in CONSTRAINTS.items())

    def bounds(self, encoder: Encoder, frame: pd.DataFrame, x: Float[Tensor, "n D"]) -> Bounds:
        """Between what the encoded rows must stay.

        Args:
            encoder: Knows what is legal.
            frame: The factuals in original units.
            x: The same, encoded.

        Raises:
            InputError: A range holds no category of the training rows.
        """
        lower, upper = torch.full_like(x, -math.inf), torch.full_like(x, math.inf)
        hopeless: dict[int, str] = {}
        for name, kind in CONSTRAINTS.items():
            given = getattr(self, name)
            if kind.bounds is None:
                continue
            for feature in given:
                columns, value = encoder.columns(feature), given[feature] if isinstance(given, Mapping) else ()
                low, high = kind.bounds(encoder, encoder.schema[feature], value, frame, x[:, columns])
                lower[:, columns] = lower[:, columns].maximum(low)
                upper[:, columns] = upper[:, columns].minimum(high)
                if kind.from_start:
                    beyond = ((x[:, columns] < low) | (x[:, columns] > high)).any(-1)
                    why = f"outside of where it must stay, {describe_range(encoder.schema[feature], value)}"
                    _note(hopeless, beyond, frame[feature], why)
        locked = torch.zeros_like(x, dtype=torch.bool)
        rules = self.ruleset(encoder)
        derived = set() if rules is None else {rule.feature for rule in rules.derived}
        derived |= self.always_follow(encoder.schema)
        names = (*encoder.schema.immutable, *self.lock, *self.not_actionable(encoder.schema))
        locked[:, encoder.columns(*(name for name in names if name not in derived))] = True
        if self.ranges:
            self._note_closed(hopeless, encoder, frame, x, Bounds(lower, upper, locked))
        return Bounds(lower, upper, locked, hopeless)

    def _note_closed(
        self, hopeless: dict[int, str], encoder: Encoder, frame: pd.DataFrame, x: Tensor, bounds: Bounds
    ) -> None:
        """Note the rows that cannot enter a range."""
        entered = x.clamp(bounds.lower, bounds.upper)
        for column, axis in encoder.personal:  # from their own value, the steps that people may take can miss a range
            ends = bounds.lower[:, column], bounds.upper[:, column]
            entered[:, column] = axis.legal(entered[:, column], x[:, column], *ends)
        beyond = (x < bounds.lower) | (x > bounds.upper)
        closed = (entered < bounds.lower) | (entered > bounds.upper) | (bounds.locked & beyond)
        count = torch.zeros_like(x[:, 0], dtype=torch.long)
        for feature, allowed in self.ranges.items():
            columns, words = encoder.columns(feature), describe_range(encoder.schema[feature], allowed)
            why = f"and must become {words}, but {self._closed_by(encoder.schema[feature])}"
            _note(hopeless, closed[:, columns].any(-1), frame[feature], why)
            count += beyond[:, columns].any(-1)
        few = f"more of {', '.join(self.ranges)} have to change than max_changes={self.max_changes} allows."
        limit = len(self.ranges) if self.max_changes is None else self.max_changes
        for row in (count > limit).nonzero()[:, 0].tolist():
            hopeless.setdefault(row, few)

    def _closed_by(self, feature: Feature) -> str:
        """What keeps a feature from entering its range, in words."""
        if feature.immutable or feature.name in self.lock:
            return "is immutable" if feature.immutable else "is locked"
        if not feature.actionable and feature.name not in self.unlock:
            return "people cannot change it (unlock it to allow that)"
        if feature.name in self.directions:
            return f"may only go {self.directions[feature.name]}"
        return "nothing that it may become lies there"

    def weights(self, encoder: Encoder) -> Float[Tensor, "D"]:
        """How hard each encoded column is to change; 1 for the easiest feature."""
        costs = [float(self.feature_costs.get(name, 1.0)) for name in encoder.schema.names]
        weights = torch.ones(encoder.width)
        for cost, columns in zip(costs, encoder.layout, strict=True):
            weights[columns] = cost / min(costs)
        return weights

    def to_json(self) -> dict[str, Any]:
        """A value that `json.dumps` takes and `from_json` turns back into equal constraints."""
        value: dict[str, Any] = json.loads(json.dumps(vars(self)))  # lists for tuples
        return value

    @classmethod
    def from_json(cls, value: Any) -> "Constraints":
        """Build constraints from the value of `to_json`, of which parts may be left out; only their form is checked."""
        if not isinstance(value, Mapping) or not value.keys() <= CONSTRAINTS.keys():
            raise InputError(f"constraints in JSON are a mapping with {', '.join(CONSTRAINTS)}; given was {value!r}")
        for name, part in value.items():
            example = CONSTRAINTS[name].example
            if not _is_like(example, part):
                raise InputError(f"{name} is {part!r}; expected in JSON is something like {json.dumps(example)}")
        return cls(**{name: _frozen(part) for name, part in value.items()})


CONSTRAINTS: dict[str, Kind] = {each.name: each.metadata["kind"] for each in fields(Constraints)}
"""The kinds of constraints by name: the fields of `Constraints`."""


def _note(hopeless: dict[int, str], rows: Bool[Tensor, "n"], column: pd.Series, why: str) -> None:
    """Note why rows cannot be explained, with the value of a column; of several reasons the first stays."""
    for row in rows.nonzero()[:, 0].tolist():
        value = column.iloc[row]
        plain = value.item() if isinstance(value, np.generic) else value
        hopeless.setdefault(row, f"{column.name} is {'missing' if pd.isna(plain) else repr(plain)}, {why}.")


def _is_like(example: Any, value: Any) -> bool:
    """Whether there are lists and mappings where the example has them; the rest is for the parser, with the schema."""
    if isinstance(example, dict):
        inside = next(iter(example.values()))
        return isinstance(value, dict) and all(_is_like(inside, each) for each in value.values())
    return isinstance(value, list) or not isinstance(example, list)


def _frozen(value: Any) -> Any:
    """Tuples for the lists of JSON."""
    if isinstance(value, dict):
        return {name: _frozen(each) for name, each in value.items()}
    return tuple(value) if isinstance(value, list) else value
