"""What may change in one request, and how easily: parsed against the schema, and as bounds of encoded rows."""

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.data.encoding import EMPTY, Encoder, OneHotAxes
from counterpath.data.schema import KINDS, Feature, Number, Schema
from counterpath.data.tables import refuse, to_numbers
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


def parse_by_feature(schema: Schema, option: str, value: Any, parse: Callable[[Feature, Any], T]) -> dict[str, T]:
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
    """Where a feature must stay: an interval (low, high), or the categories that are allowed."""
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
    if not feature.categories and any(end is not None and _finite_number(end) is None for end in listed):
        raise InputError(f"{misfit} a pair (low, high) of finite numbers, or None for an open end")
    parse = partial(_parse_category, feature) if feature.categories else _finite_number
    low, high = (None if end is None else parse(end) for end in listed)
    least, most = range_ends(feature, (low, high))
    if least > most:
        raise InputError(f"{of} has low={low!r} above high={high!r}; swap them?")
    if feature.kind == "integer" and math.isfinite(least + most) and math.ceil(least) > math.floor(most):
        raise InputError(f"{of}, {describe_range(feature, (low, high))}, has no whole number")
    return low, high


def is_interval(feature: Feature) -> bool:
    """Whether a range of the feature is an interval: its values have an order, and are more than two."""
    return feature.kind in ("continuous", "integer", "ordinal")


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
    low, high = allowed
    if low is None or high is None:
        return "anything" if low is high else f"at least {low!r}" if high is None else f"at most {high!r}"
    return f"from {low!r} to {high!r}"


def parse_count(option: str, value: Any) -> int:
    """A whole number from 1."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral) or value < 1:
        raise InputError(f"{option} is {value!r}; expected a whole number from 1")
    return int(value)


def parse_feature_costs(schema: Schema, value: Any) -> dict[str, Number]:
    """How hard features are to change."""
    costs = parse_by_feature(schema, "feature_costs", value, _parse_cost)
    every = {name: costs.get(name, 1) for name in schema.names}
    easiest, hardest = min(every, key=every.__getitem__), max(every, key=every.__getitem__)
    if every[hardest] / every[easiest] > _MOST_APART:
        raise InputError(
            f"feature {hardest!r} costs {every[hardest]:g} to change and {easiest!r} {every[easiest]:g}, more than a "
            f"million times less; to rule a change out, lock the feature: lock=[{hardest!r}]"
        )
    return costs


def _parse_cost(feature: Feature, value: Any) -> Number:
    cost = _finite_number(value)
    if cost is None or cost <= 0:
        raise InputError(
            f"feature_costs has {value!r} for feature {feature.name!r}; expected a positive number, 1 is usual"
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
    """A box around every factual: lower ≤ x ≤ upper.

    A bound is a legal point, or the factual's own where it must not be passed or lies beyond every legal one.

    Attributes:
        lower: What every encoded column must not fall below; −∞ where nothing binds.
        upper: What it must not exceed; ∞ where nothing binds. Of one-hot columns it is 0 for what is not allowed.
        locked: The columns of features that must not change: those of the request and the schema's immutable ones. The
            box is closed around the former only.
    """

    lower: Float[Tensor, "n D"]
    upper: Float[Tensor, "n D"]
    locked: Bool[Tensor, "n D"]

    def at(self, rows: Tensor) -> "Bounds":
        """The bounds of some rows: a mask, or their indices."""
        return Bounds(self.lower[rows], self.upper[rows], self.locked[rows])


@dataclass(frozen=True)
class Constraints:
    """What one request allows to change. `of` parses what a user gives.

    Attributes:
        lock: Features that must not change, whatever the schema says.
        directions: By feature "up" or "down": it must not fall below, or rise above, what it is now. A binary feature
            goes up from its first category to the second.
        ranges: By feature where it must stay, in original units: (low, high) for numbers and ordinal features, either
            of them None for an open end; for all others the categories that are allowed.
        max_changes: How many features may change; None for as many as it takes.
        feature_costs: By feature how hard it is to change, compared to 1 for those that are not named.

    Example:
        >>> schema = Schema((Feature("age", "integer"), Feature("job", "categorical", categories=("Sales", "Tech"))))
        >>> Constraints.of(schema, directions={"age": "up"}, ranges={"age": (None, 65)}, max_changes=1).to_json()
        {'feature_costs': {}, 'directions': {'age': 'up'}, 'lock': [], 'max_changes': 1, 'ranges': {'age': [None, 65]}}
    """

    lock: tuple[str, ...] = ()
    directions: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    max_changes: int | None = None
    feature_costs: Mapping[str, Number] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        schema: Schema,
        *,
        lock: Any = (),
        directions: Any = None,
        ranges: Any = None,
        max_changes: Any = None,
        feature_costs: Any = None,
    ) -> "Constraints":
        """Parse the constraints of a user, into an order that does not depend on theirs.

        Arguments are the attributes, in whatever lists, arrays and numbers a user has them; one name alone may be given
        for `lock`, one category for a range.

        Raises:
            InputError: Something cannot be; the message names the feature, what was given and what was expected.
        """
        return cls(
            parse_lock(schema, lock),
            parse_by_feature(schema, "directions", directions, parse_direction),
            parse_by_feature(schema, "ranges", ranges, parse_range),
            None if max_changes is None else parse_count("max_changes", max_changes),
            parse_feature_costs(schema, feature_costs),
        )

    @property
    def bounded(self) -> bool:
        """Whether any feature is bound by this request."""
        return bool(self.lock or self.directions or self.ranges)

    def bounds(self, encoder: Encoder, frame: pd.DataFrame, x: Float[Tensor, "n D"]) -> Bounds:
        """Between what the encoded rows must stay.

        Args:
            encoder: Knows what is legal.
            frame: The factuals in original units.
            x: The same, encoded.

        Raises:
            InputError: A factual is outside its own range, or a range holds no category of the training rows.
        """
        lower, upper = torch.full_like(x, -math.inf), torch.full_like(x, math.inf)
        for name, allowed in self.ranges.items():
            columns, feature = encoder.columns(name), encoder.schema[name]
            lower[:, columns], upper[:, columns] = _range_bounds(encoder, feature, allowed, frame, x[:, columns])
        for name, direction in self.directions.items():
            columns = encoder.columns(name)
            (lower if direction == UP else upper)[:, columns] = x[:, columns]
        for ends in (lower, upper):
            ends[:, encoder.columns(*self.lock)] = x[:, encoder.columns(*self.lock)]
        locked = torch.zeros_like(x, dtype=torch.bool)
        locked[:, encoder.columns(*encoder.schema.immutable, *self.lock)] = True
        return Bounds(lower, upper, locked)

    def weights(self, encoder: Encoder) -> Float[Tensor, "D"]:
        """How hard each encoded column is to change; 1 for the easiest feature."""
        costs = [float(self.feature_costs.get(name, 1.0)) for name in encoder.schema.names]
        weights = torch.ones(encoder.width)
        for cost, columns in zip(costs, encoder.layout, strict=True):
            weights[columns] = cost / min(costs)
        return weights

    def to_json(self) -> dict[str, Any]:
        """A value that `json.dumps` takes and `from_json` turns back into equal constraints."""
        return {
            "feature_costs": dict(self.feature_costs),
            "directions": dict(self.directions),
            "lock": list(self.lock),
            "max_changes": self.max_changes,
            "ranges": {name: list(allowed) for name, allowed in self.ranges.items()},
        }

    @classmethod
    def from_json(cls, value: Any) -> "Constraints":
        """Build constraints from the value of `to_json`, of which parts may be left out; only their form is checked."""
        empty = cls().to_json()
        if not isinstance(value, Mapping) or not value.keys() <= empty.keys():
            raise InputError(f"constraints in JSON are a mapping with {', '.join(empty)}; given was {value!r}")
        for name, part in value.items():
            lists = part.values() if name == "ranges" and isinstance(part, dict) else ()
            misfit = name != "max_changes" and not isinstance(part, type(empty[name]))
            if misfit or not all(isinstance(allowed, list) for allowed in lists):
                raise InputError(f"{name} is {part!r}; expected in JSON is something like {_IN_JSON[name]}")
        full = empty | dict(value)
        ranges = {name: tuple(allowed) for name, allowed in full["ranges"].items()}
        return cls(**full | {"lock": tuple(full["lock"]), "ranges": ranges})


_IN_JSON = {
    "feature_costs": '{"education": 3}',
    "directions": '{"age": "up"}',
    "lock": '["age", "job"]',
    "ranges": '{"hours": [20, null], "job": ["Sales", "Tech"]}',
}


def _range_bounds(
    encoder: Encoder, feature: Feature, allowed: tuple[Any, ...], frame: pd.DataFrame, x: Float[Tensor, "n w"]
) -> tuple[Float[Tensor, "n w"], Float[Tensor, "n w"]]:
    """The bounds of a feature that must stay in a range."""
    index = encoder.schema.index(feature.name)
    axis, seen = encoder.axes[index], encoder.seen[index]
    numbers = torch.tensor(to_numbers(frame[feature.name], feature))  # a copy: the column may be read-only
    if isinstance(axis, OneHotAxes):
        codes = [code for code in seen if feature.categories[code] in allowed]
        none, inside = not codes, torch.isin(numbers, torch.tensor(codes, dtype=torch.float64))
        upper = torch.zeros_like(x).index_fill(1, torch.tensor(codes, dtype=torch.long, device=x.device), 1.0)
        lower = torch.zeros_like(x)
    else:
        low, high = range_ends(feature, allowed)
        first, last = axis.between(low, high)
        none, inside = bool(feature.categories) and (first, last) == EMPTY, axis.within(numbers, low, high)
        # Beyond the legal points the factual is its own bound: it may stay, and no legal point is in the range.
        lower = x.clamp_max(first) if math.isfinite(low) else torch.full_like(x, low)
        upper = x.clamp_min(last) if math.isfinite(high) else torch.full_like(x, high)
    words = describe_range(feature, allowed)
    if none:
        known = ", ".join(repr(feature.categories[code]) for code in seen)
        raise InputError(f"feature {feature.name!r} must be {words}, which no training row is; these are: {known}")
    problem = f"is outside the range that was asked for, {words}; widen the range, or leave the row out"
    refuse(frame[feature.name], ~inside.numpy(), problem)
    return lower, upper
