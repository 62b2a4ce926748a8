"""What may change in one request, and how easily: checked against the schema, and as bounds of encoded rows."""

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.data.axes import NOTHING, OneHotAxes
from counterpath.data.encoding import Encoder
from counterpath.data.schema import KINDS, Feature, Number, Schema
from counterpath.data.tables import refuse, to_numbers
from counterpath.utils.errors import InputError, choose

T = TypeVar("T")

UP, DOWN = "up", "down"
_DIRECTIONS = dict.fromkeys((UP, DOWN))
_PAIRED = ("continuous", "integer", "ordinal")
_HUGE = sys.float_info.max
_FARTHEST = 1e6
"""How much harder one feature may be to change than another; beyond, single precision has too few digits."""


def names_of(schema: Schema, given: Any) -> tuple[str, ...]:
    """The names of features to lock, each once, in alphabetical order; one name alone will do."""
    listed = (given,) if isinstance(given, str) else _listed(given)
    if listed is None:
        raise InputError(f"lock is {given!r}; expected names of features, for instance lock=['{schema.names[0]}']")
    names = sorted({_named(schema, "lock", name).name for name in listed})
    if names and {*names, *schema.immutable} >= {*schema.names}:
        held = f", and these are immutable: {', '.join(schema.immutable)}" if schema.immutable else ""
        raise InputError(f"lock={names!r} leaves nothing that could change{held}; leave a feature out of lock")
    return tuple(names)


def by_feature(schema: Schema, option: str, given: Any, check: Callable[[Feature, Any], T]) -> dict[str, T]:
    """What is asked of each feature, checked, in the alphabetical order of their names."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(f"{option} is {given!r}; expected a mapping from the names of features, such as {{name: …}}")
    features = {name: _named(schema, option, name) for name in given}
    return {name: check(features[name], given[name]) for name in sorted(given)}


def direction(feature: Feature, given: Any) -> str:
    """Up or down."""
    if KINDS[feature.kind].one_hot:
        raise InputError(
            f"directions has feature {feature.name!r} (kind {feature.kind!r}), whose categories have no order; try "
            f"ranges={{{feature.name!r}: […]}} with those that are allowed, or declare it ordinal"
        )
    choose(f"direction of feature {feature.name!r}:", given if isinstance(given, str) else repr(given), _DIRECTIONS)
    return str(given)


def paired(feature: Feature) -> bool:
    """Whether a range of the feature is a pair of ends: its values have an order, and are more than two."""
    return feature.kind in _PAIRED


def span(feature: Feature, given: Any) -> tuple[Any, ...]:
    """Where a feature must stay: (low, high), or the categories that are allowed."""
    if not paired(feature):
        return _categories(feature, given)
    listed = None if isinstance(given, Set) else _listed(given)
    if listed is None or len(listed) != 2:
        raise _misfit(feature, given, "a pair (low, high), either of which may be None for an open end")
    if feature.categories:
        low, high = (None if end is None else _category(feature, end) for end in listed)
    else:
        low, high = (None if end is None else _number(feature, end, given) for end in listed)
    least, most = ends(feature, (low, high))
    if least > most:
        raise InputError(f"the range of feature {feature.name!r} has low={low!r} above high={high!r}; swap them?")
    if feature.kind == "integer" and math.isfinite(least + most) and math.ceil(least) > math.floor(most):
        raise InputError(f"the range of feature {feature.name!r}, {told(feature, (low, high))}, has no whole number")
    return low, high


def ends(feature: Feature, wanted: tuple[Any, ...]) -> tuple[float, float]:
    """The range of a feature whose values have an order as numbers, for categories as places; infinite if open."""
    places = {value: place for place, value in enumerate(feature.categories)}
    if not paired(feature):
        return float(min(places[value] for value in wanted)), float(max(places[value] for value in wanted))
    low, high = (end if end is None else float(places.get(end, -1) if places else end) for end in wanted)
    return -math.inf if low is None else low, math.inf if high is None else high


def told(feature: Feature, wanted: tuple[Any, ...]) -> str:
    """A range in words."""
    if not paired(feature):
        return " or ".join(map(repr, wanted))
    low, high = wanted
    if low is None or high is None:
        return "anything" if low is high else f"at least {low!r}" if high is None else f"at most {high!r}"
    return f"from {low!r} to {high!r}"


def count(option: str, given: Any) -> int:
    """A whole number from 1."""
    if isinstance(given, bool | np.bool_) or not isinstance(given, Integral) or given < 1:
        raise InputError(f"{option} is {given!r}; expected a whole number from 1")
    return int(given)


def feature_costs_by_name(schema: Schema, given: Any) -> dict[str, Number]:
    """How hard features are to change."""
    hard = by_feature(schema, "feature_costs", given, _feature_cost)
    every = {name: hard.get(name, 1) for name in schema.names}
    easiest, hardest = min(every, key=every.__getitem__), max(every, key=every.__getitem__)
    if every[hardest] / every[easiest] > _FARTHEST:
        raise InputError(
            f"feature {hardest!r} costs {every[hardest]:g} to change and {easiest!r} {every[easiest]:g}, more than a "
            f"million times less; to rule a change out, lock the feature: lock=[{hardest!r}]"
        )
    return hard


def _feature_cost(feature: Feature, given: Any) -> Number:
    value = _plain_number(given)
    if value is None or value <= 0:
        raise InputError(
            f"feature_costs has {given!r} for feature {feature.name!r}; expected a positive number, 1 is usual"
        )
    return value


def _named(schema: Schema, option: str, name: Any) -> Feature:
    if not isinstance(name, str):
        raise InputError(f"{option} has {name!r}; expected the name of a feature, one of: {', '.join(schema.names)}")
    return choose(f"feature in {option}:", name, {feature.name: feature for feature in schema})


def _listed(given: Any) -> tuple[Any, ...] | None:
    """The elements of a list, an array or the like; None for text and all that has none."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        return None
    return tuple(given)


def _number(feature: Feature, end: Any, given: Any) -> Number:
    value = _plain_number(end)
    if value is None:
        raise _misfit(feature, given, "a pair (low, high) of finite numbers, or None for an open end")
    return value


def _plain_number(given: Any) -> Number | None:
    """A finite number as Python's own; None if it is none."""
    if isinstance(given, bool | np.bool_) or not isinstance(given, Real):
        return None
    value: Number = int(given) if isinstance(given, Integral) else float(given)
    return value if -_HUGE <= value <= _HUGE else None


def _categories(feature: Feature, given: Any) -> tuple[Any, ...]:
    """The allowed categories, in the schema's order; one alone will do."""
    listed = (given,) if isinstance(given, str) else _listed(given)
    if not listed:
        raise _misfit(feature, given, f"the allowed ones of: {', '.join(map(repr, feature.categories))}")
    allowed = {_category(feature, value) for value in listed}
    return tuple(value for value in feature.categories if value in allowed)


def _category(feature: Feature, value: Any) -> Any:
    """A category as the schema has it; text that reads like one, as a command line gives it, will do."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, str | bool | int | float) and plain in feature.categories:
        return feature.categories[feature.categories.index(plain)]
    names = {str(category): category for category in feature.categories}
    return choose(f"category in the range of feature {feature.name!r}:", str(plain), names)


def _misfit(feature: Feature, given: Any, expected: str) -> InputError:
    return InputError(
        f"the range of feature {feature.name!r} (kind {feature.kind!r}) is {given!r}; expected {expected}"
    )


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
        """The bounds of a few rows: a mask, or their places."""
        return Bounds(self.lower[rows], self.upper[rows], self.locked[rows])


@dataclass(frozen=True)
class Constraints:
    """What one request allows to change. `of` makes them from what a user gives, and checks that.

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
        """The constraints that a user asks for, in an order that does not depend on theirs.

        Arguments are the attributes, in whatever lists, arrays and numbers a user has them; one name alone may be given
        for `lock`, one category for a range.

        Raises:
            InputError: Something cannot be; the message names the feature, what was given and what was expected.
        """
        return cls(
            names_of(schema, lock),
            by_feature(schema, "directions", directions, direction),
            by_feature(schema, "ranges", ranges, span),
            None if max_changes is None else count("max_changes", max_changes),
            feature_costs_by_name(schema, feature_costs),
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
        for name, wanted in self.ranges.items():
            columns = encoder.columns(name)
            lower[:, columns], upper[:, columns] = _box(encoder, encoder.schema[name], wanted, frame, x[:, columns])
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
        hard = {name: float(self.feature_costs.get(name, 1.0)) for name in encoder.schema.names}
        least = min(hard.values())
        weights = torch.ones(encoder.width)
        for name, columns in zip(encoder.schema.names, encoder.layout, strict=True):
            weights[columns] = hard[name] / least
        return weights

    def to_json(self) -> dict[str, Any]:
        """A value that `json.dumps` takes and `from_json` turns back into equal constraints."""
        return {
            "feature_costs": dict(self.feature_costs),
            "directions": dict(self.directions),
            "lock": list(self.lock),
            "max_changes": self.max_changes,
            "ranges": {name: list(wanted) for name, wanted in self.ranges.items()},
        }

    @classmethod
    def from_json(cls, value: Any) -> "Constraints":
        """Build constraints from the value of `to_json`, of which parts may be left out; only their form is checked."""
        empty = cls().to_json()
        if not isinstance(value, Mapping) or not value.keys() <= empty.keys():
            raise InputError(f"constraints in JSON are a mapping with {', '.join(empty)}; given was {value!r}")
        for name, given in value.items():
            if name != "max_changes" and not isinstance(given, type(empty[name])):
                raise InputError(f"{name} is {given!r}; expected in JSON is something like {_IN_JSON[name]}")
        told = empty | dict(value)
        if not all(isinstance(wanted, list) for wanted in told["ranges"].values()):
            raise InputError(f"ranges is {told['ranges']!r}; expected in JSON is something like {_IN_JSON['ranges']}")
        ranges = {name: tuple(wanted) for name, wanted in told["ranges"].items()}
        return cls(**told | {"lock": tuple(told["lock"]), "ranges": ranges})


_IN_JSON = {
    "feature_costs": '{"education": 3}',
    "directions": '{"age": "up"}',
    "lock": '["age", "job"]',
    "ranges": '{"hours": [20, null], "job": ["Sales", "Tech"]}',
}


def _box(
    encoder: Encoder, feature: Feature, wanted: tuple[Any, ...], frame: pd.DataFrame, x: Float[Tensor, "n w"]
) -> tuple[Float[Tensor, "n w"], Float[Tensor, "n w"]]:
    """The bounds of a feature that must stay in a range."""
    place = encoder.schema.index(feature.name)
    axis, seen = encoder.axes[place], encoder.seen[place]
    numbers = torch.tensor(to_numbers(frame[feature.name], feature))  # a copy: the column may be read-only
    if isinstance(axis, OneHotAxes):
        allowed = [place for place in seen if feature.categories[place] in wanted]
        none, inside = not allowed, torch.isin(numbers, torch.tensor(allowed, dtype=torch.float64))
        upper = torch.zeros_like(x).index_fill(1, torch.tensor(allowed, dtype=torch.long, device=x.device), 1.0)
        lower = torch.zeros_like(x)
    else:
        low, high = ends(feature, wanted)
        first, last = axis.between(low, high)
        none, inside = bool(feature.categories) and (first, last) == NOTHING, axis.within(numbers, low, high)
        # Beyond the legal points the factual is its own bound: it may stay, and no legal point is in the range.
        lower = x.clamp_max(first) if math.isfinite(low) else torch.full_like(x, low)
        upper = x.clamp_min(last) if math.isfinite(high) else torch.full_like(x, high)
    asked = told(feature, wanted)
    if none:
        known = ", ".join(repr(feature.categories[place]) for place in seen)
        raise InputError(f"feature {feature.name!r} must be {asked}, which no training row is; these are: {known}")
    problem = f"is outside the range that was asked for, {asked}; widen the range, or leave the row out"
    refuse(frame[feature.name], ~inside.numpy(), problem)
    return lower, upper
