"""What may change in one request, and how easily: checked against the schema, and as bounds of encoded rows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.data import wishes
from counterpath.data.axes import NOTHING, OneHotAxes
from counterpath.data.columns import refuse, to_numbers
from counterpath.data.encoding import Encoder
from counterpath.data.schema import Feature, Number, Schema
from counterpath.errors import InputError


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
        difficulty: By feature how hard it is to change, compared to 1 for those that are not named.

    Example:
        >>> schema = Schema((Feature("age", "integer"), Feature("job", "categorical", categories=("Sales", "Tech"))))
        >>> Constraints.of(schema, directions={"age": "up"}, ranges={"age": (None, 65)}, max_changes=1).to_json()
        {'difficulty': {}, 'directions': {'age': 'up'}, 'lock': [], 'max_changes': 1, 'ranges': {'age': [None, 65]}}
    """

    lock: tuple[str, ...] = ()
    directions: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    max_changes: int | None = None
    difficulty: Mapping[str, Number] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        schema: Schema,
        *,
        lock: Any = (),
        directions: Any = None,
        ranges: Any = None,
        max_changes: Any = None,
        difficulty: Any = None,
    ) -> "Constraints":
        """The constraints that a user asks for, in an order that does not depend on theirs.

        Arguments are the attributes, in whatever lists, arrays and numbers a user has them; one name alone may be given
        for `lock`, one category for a range.

        Raises:
            InputError: Something cannot be; the message names the feature, what was given and what was expected.
        """
        return cls(
            wishes.names_of(schema, lock),
            wishes.by_feature(schema, "directions", directions, wishes.direction),
            wishes.by_feature(schema, "ranges", ranges, wishes.span),
            None if max_changes is None else wishes.count("max_changes", max_changes),
            wishes.difficulties(schema, difficulty),
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
            (lower if direction == wishes.UP else upper)[:, columns] = x[:, columns]
        for ends in (lower, upper):
            ends[:, encoder.columns(*self.lock)] = x[:, encoder.columns(*self.lock)]
        locked = torch.zeros_like(x, dtype=torch.bool)
        locked[:, encoder.columns(*encoder.schema.immutable, *self.lock)] = True
        return Bounds(lower, upper, locked)

    def weights(self, encoder: Encoder) -> Float[Tensor, "D"]:
        """How hard each encoded column is to change; 1 for the easiest feature."""
        hard = {name: float(self.difficulty.get(name, 1.0)) for name in encoder.schema.names}
        least = min(hard.values())
        weights = torch.ones(encoder.width)
        for name, columns in zip(encoder.schema.names, encoder.layout, strict=True):
            weights[columns] = hard[name] / least
        return weights

    def to_json(self) -> dict[str, Any]:
        """A value that `json.dumps` takes and `from_json` turns back into equal constraints."""
        return {
            "difficulty": dict(self.difficulty),
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
    "difficulty": '{"education": 3}',
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
        low, high = wishes.ends(feature, wanted)
        first, last = axis.between(low, high)
        none, inside = bool(feature.categories) and (first, last) == NOTHING, axis.within(numbers, low, high)
        # Beyond the legal points the factual is its own bound: it may stay, and no legal point is in the range.
        lower = x.clamp_max(first) if math.isfinite(low) else torch.full_like(x, low)
        upper = x.clamp_min(last) if math.isfinite(high) else torch.full_like(x, high)
    asked = wishes.told(feature, wanted)
    if none:
        known = ", ".join(repr(feature.categories[place]) for place in seen)
        raise InputError(f"feature {feature.name!r} must be {asked}, which no training row is; these are: {known}")
    problem = f"is outside the range that was asked for, {asked}; widen the range, or leave the row out"
    refuse(frame[feature.name], ~inside.numpy(), problem)
    return lower, upper
