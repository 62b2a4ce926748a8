"""Tables to tensors in [0, 1] and back.

An axis is how one feature lies in encoded columns: its numbers as points of a grid, and points as its numbers.

Points are multiples of 2⁻²³, all of which from −2 to 2 are numbers in float32; beyond, the grid is that of float32. It
is what makes a row the same before and after it was decoded: every number is encoded as one point, and a point is
decoded as a number that is encoded as that very point.

Every axis has a `width`, its count of columns; `points`, the encoded columns of numbers, in float64 and not yet on the
grid; and `numbers`, what is encoded as given points of the grid, or nearest to them. Numbers are float64, as
`tables.to_numbers` makes them; that of a category is its index. `Rounding` has the nearest legal ones.

An axis with an order also has `within`, which numbers lie in a range, and `between`, its first and last legal point. A
range without an end has an infinite one.
"""

import decimal
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from functools import cache, cached_property
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from counterpath.data.schema import ANY, KINDS, OBSERVED, OWN, TRANSFORMS, Feature, Schema, Transform
from counterpath.data.tables import (
    Described,
    cast_if_lossless,
    check_columns,
    described_dtype,
    from_numbers,
    in_own_type,
    refuse,
    restore,
    round_inward,
    storage_dtype,
    to_numbers,
)
from counterpath.data.times import DATE, day_text
from counterpath.utils.errors import InputError

IsSame = Callable[[Tensor, Tensor], Tensor]

_DIGITS = 16
"""17 digits say no more than the number itself does."""
_EXACT = 22
"""10²² is the largest power of ten that float64 has; dividing by one of those rounds once, hence correctly."""
_POWERS = torch.tensor([float(10**k) for k in range(_EXACT + 1)], dtype=torch.float64)  # a table: pow() may round
_EXTREME = 330
"""More decimal places, before or after the point, than any number in float64 has: these end at 10³⁰⁹ and 10⁻³²⁴."""
_DOWN, _UP = (torch.floor, decimal.ROUND_FLOOR), (torch.ceil, decimal.ROUND_CEILING)


def shortest_decimals(numbers: Float[Tensor, "n"], widths: Float[Tensor, "n"], same: IsSame) -> Float[Tensor, "n"]:
    """For every number the decimal with the fewest places that is as good; itself, where none of 16 digits is.

    What is as good as a number is an interval around it. If a multiple of 10⁻ᵏ lies in it, then so does one of 10⁻ᵏ⁻¹
    that is no farther from the number. So decimal places are removed one after the other, until nothing is left in it.

    Args:
        numbers: In float64.
        widths: How long the interval is, at most ten times too much; it says with how many decimal places to begin.
        same: (candidates, the rows of `numbers` that they stand for) ↦ which are as good.
    """
    found, rows = numbers.clone(), numbers.isfinite().nonzero()[:, 0]
    places = _enough_places(numbers[rows], widths[rows])
    while len(rows):
        here = numbers[rows]
        down, up = (_multiple(here, places, *rounding) for rounding in (_DOWN, _UP))
        good, also = same(down, rows), same(up, rows)
        chosen = torch.where(good & ((here - down <= up - here) | ~also), down, up)
        good = good | also
        found[rows[good]] = chosen[good] + 0.0  # turns -0 into 0
        good = good & (chosen != 0)  # nothing is shorter than 0
        rows, places = rows[good], places[good] - 1
    return found


def _enough_places(numbers: Float[Tensor, "n"], widths: Float[Tensor, "n"]) -> Int[Tensor, "n"]:
    """With how many decimal places some number lies in the interval, unless that takes too many digits."""
    needed, most = 1 - widths.log10().floor(), _DIGITS - 1 - numbers.abs().log10().floor()
    return torch.minimum(needed, most).nan_to_num().clamp(-_EXTREME, _EXTREME).long()


def _multiple(
    numbers: Float[Tensor, "n"], places: Int[Tensor, "n"], whole: Callable[[Tensor], Tensor], name: str
) -> Float[Tensor, "n"]:
    """The next multiple of 10⁻ᵏ below or above, for k places, as the float64 that is nearest to that decimal."""
    power = _POWERS[places.abs().clamp_max(_EXACT)]
    found = torch.where(places < 0, whole(numbers / power) * power, whole(numbers * power) / power)
    extreme = places.abs() > _EXACT
    if bool(extreme.any()):
        pairs = zip(numbers[extreme].tolist(), places[extreme].tolist(), strict=True)
        exact = [float(Decimal(x).scaleb(k).to_integral_value(name).scaleb(-k)) for x, k in pairs]
        found[extreme] = torch.tensor(exact, dtype=torch.float64)
    return found


GRID = 2.0**23
"""Points of the grid in a unit interval: float32 has 23 bits after the leading one, so up to ±2 it has all of them."""
EMPTY = (math.inf, -math.inf)
"""The first and the last point of a range that has none."""


def on_grid(points: Tensor, dtype: torch.dtype) -> Tensor:
    """The nearest points of the grid, in float32 or float64."""
    return ((points.to(torch.float64) * GRID).round() / GRID).to(dtype)


def _spacing(points: Tensor) -> Tensor:
    return points.abs().clamp_min(1.0) / GRID


@dataclass(frozen=True)
class Grid:
    """Which numbers are legal beside bounds: the multiples of a step, or those of a list; all if there is neither.

    Attributes:
        step: The step as a numerator and a power of ten: k·p / q is rounded once, so it is what people write.
        values: The legal numbers in order, if they are listed.
        from_own: Multiples are counted from a person's own number, and not from 0.
        min_change: How far from a person's own number another legal one is, at least.
    """

    step: tuple[float, float] | None = None
    values: tuple[float, ...] = ()
    from_own: bool = False
    min_change: float = 0.0

    @classmethod
    def of(cls, feature: Feature, values: tuple[float, ...]) -> "Grid":
        """That of a feature whose listed or observed values are these."""
        step = 1 if feature.step is None and feature.min_change and KINDS[feature.kind].whole else feature.step
        if step is None or values:
            return cls(None, values, False, float(feature.min_change))
        exact = Decimal(str(step))
        power = Decimal(10) ** max(0, -int(exact.as_tuple().exponent))
        ratio = float(exact * power), float(power)
        return cls(ratio, (), feature.step_from == OWN, float(feature.min_change))

    @property
    def plain(self) -> bool:
        """Whether all numbers are legal, or all whole ones, for everybody."""
        return self.step is None and not (self.values or self.min_change)

    @property
    def shared(self) -> bool:
        """Whether there is a grid that is the same for everybody."""
        return bool(self.values) or (self.step is not None and not self.from_own)

    def below(self, numbers: Tensor, origin: Tensor | float = 0.0) -> Tensor:
        """The nearest legal numbers that are no larger; of a list the smallest where all are larger."""
        return self._legal(numbers, origin, torch.floor, right=True)

    def above(self, numbers: Tensor, origin: Tensor | float = 0.0) -> Tensor:
        """The nearest legal numbers that are no smaller; of a list the largest where all are smaller."""
        return self._legal(numbers, origin, torch.ceil, right=False)

    def _legal(
        self, numbers: Tensor, origin: Tensor | float, whole: Callable[[Tensor], Tensor], *, right: bool
    ) -> Tensor:
        if self.values:
            values = _listed(self.values, numbers.device)
            index = torch.searchsorted(values, numbers.contiguous(), right=right) - int(right)
            return values[index.clamp(0, len(values) - 1)]
        if self.step is None:
            return numbers
        numerator, denominator = self.step
        start = origin if self.from_own else 0.0
        return start + whole((numbers - start) * (denominator / numerator)) * numerator / denominator


@cache
def _listed(values: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device=device)


@dataclass(frozen=True)
class NumberAxis:
    """A number: y = (t(x) − t(low)) / (t(high) − t(low)).

    Attributes:
        transform: t.
        low: What is encoded as 0.
        high: What is encoded as 1; where it equals `low`, the divisor is 1.
        lower: The smallest legal number.
        upper: The largest one.
        whole: Whether only whole numbers are legal.
        storage: The floating-point type that must be able to hold the numbers.
        grid: Which numbers are legal beside that.
    """

    transform: Transform
    low: float
    high: float
    lower: float
    upper: float
    whole: bool
    storage: torch.dtype = torch.float64
    grid: Grid = Grid()
    width: int = 1

    @cached_property
    def span(self) -> float:
        """t(high) − t(low), or 1."""
        high = torch.tensor(self.high, dtype=torch.float64)
        return float(self.transform.forward(high, self.low)) or 1.0

    def points(self, numbers: Float[Tensor, "n"]) -> Float[Tensor, "n 1"]:
        """y, in one column."""
        return (self.transform.forward(numbers, self.low) / self.span)[:, None]

    def numbers(self, points: Float[Tensor, "n 1"]) -> Float[Tensor, "n"]:
        """x; and where a number of the grid, a whole one or a bound is encoded as the same point, that one."""
        return self._named(points)[0]

    def decimals(self, points: Float[Tensor, "n 1"]) -> Float[Tensor, "n"]:
        """As `numbers`, and for a number without such a name the shortest decimal that is the same point.

        It is what people would write, and takes longer.
        """
        found, named = self._named(points)
        if self.whole:
            return found

        def same(numbers: Tensor, rows: Tensor) -> Tensor:
            return on_grid(self.points(self._stored(numbers)), points.dtype)[:, 0] == points[rows, 0]

        bound = (found == self.lower) | (found == self.upper) | named
        return torch.where(bound, found, self._stored(shortest_decimals(found, self._steps(points), same)))

    def legal(
        self,
        points: Float[Tensor, "n"],
        own: Float[Tensor, "n"],
        lower: Float[Tensor, "n"],
        upper: Float[Tensor, "n"],
    ) -> Float[Tensor, "n"]:
        """The nearest points that a person may have: their own one, or one of the grid that is far enough from it.

        Args:
            points: Any.
            own: Those that the person has.
            lower: The least that are feasible; a person's own one is returned only where it is, or nothing else is.
            upper: The most.
        """
        start, least = self.numbers(own[:, None]), self.grid.min_change * (1 - _CLOSE)
        exact = self._exact(points.clamp(lower, upper)).clamp(self.lower, self.upper)
        near = [self.grid.below(exact, start), self.grid.above(exact, start)]
        if least:
            near += [self.grid.below(start - least, start), self.grid.above(start + least, start)]
        found = own
        best = torch.where((own >= lower) & (own <= upper), (own - points).abs(), torch.inf)
        for numbers in near:
            stored = self._stored(numbers)
            there = on_grid(self.points(stored)[:, 0], points.dtype)
            possible = (there >= lower) & (there <= upper) & (stored >= self.lower) & (stored <= self.upper)
            if least:
                possible &= (stored - start).abs() >= least
            away = (there - points).abs()
            better = possible & (away < best)
            found, best = torch.where(better, there, found), torch.where(better, away, best)
        return found

    def within(self, numbers: Float[Tensor, "n"], low: float, high: float) -> Bool[Tensor, "n"]:
        """Which numbers lie in a range, as they are stored: in float32, 0.1 is neither more nor less than 0.1."""
        least, most = self._ends(low, high)
        stored = self._stored(numbers)
        return (stored >= least) & (stored <= most)

    def between(self, low: float, high: float) -> tuple[float, float]:
        """The first and the last legal point that is decoded as a number from `low` to `high`, or `EMPTY`."""
        least, most = self._ends(low, high)
        least, most = max(least, self.lower), min(most, self.upper)
        if self.whole:
            least, most = float(math.ceil(least)), float(math.floor(most))
        if self.grid.shared and least <= most:
            ends = torch.tensor([least, most], dtype=torch.float64)
            inside = float(self.grid.above(ends)[0]), float(self.grid.below(ends)[1])
            if not least <= inside[0] <= inside[1] <= most:
                return EMPTY
            least, most = inside
        if least > most:
            return EMPTY
        first, last = self._point_inside(least, math.inf), self._point_inside(most, -math.inf)
        return (first, last) if first <= last else EMPTY

    def _ends(self, low: float, high: float) -> tuple[float, float]:
        least, most = self._stored(torch.tensor([low, high], dtype=torch.float64)).tolist()
        return least, most

    def _point_inside(self, number: float, toward: float) -> float:
        """The point of a legal number; the next one towards ±∞ if that one is decoded as a number on the other side."""
        point = on_grid(self.points(torch.tensor([number], dtype=torch.float64)), torch.float32)
        decoded = float(self.decimals(point))
        if not (decoded < number if toward > 0 else decoded > number):
            return float(point)
        # The grid is that of multiples of 2⁻²³, and beyond ±2 that of float32.
        step, beyond = torch.full_like(point, math.copysign(1 / GRID, toward)), torch.full_like(point, toward)
        steps = torch.stack([point + step, torch.nextafter(point, beyond)])
        return float(steps.max() if toward > 0 else steps.min())

    def _named(self, points: Float[Tensor, "n 1"]) -> tuple[Float[Tensor, "n"], Bool[Tensor, "n"]]:
        """The numbers of points, and which of them are numbers of the grid."""
        exact = self._exact(points[:, 0])
        found = self._stored(exact.round() if self.whole else exact)
        bounds = (torch.full_like(exact, bound) for bound in (self.lower, self.upper))
        candidates = [exact.floor(), exact.ceil(), exact.round(), *bounds]
        shared = self.grid.shared and not self.grid.plain
        if shared:  # training rows may be finer than the grid; their ends come back as they are, as bounds do
            ends = [torch.full_like(exact, end) for end in (self.low, self.high)]
            candidates += [*ends, self.grid.below(exact), self.grid.above(exact)]
        named = torch.zeros_like(exact, dtype=torch.bool)
        # A later candidate has precedence. Adding 0 turns -0 into 0.
        for number, candidate in enumerate(candidates):
            stored = self._stored(candidate) + 0.0
            same = (on_grid(self.points(stored), points.dtype) == points)[:, 0]
            found = torch.where(same, stored, found)
            named = named | same if number >= _UNGRIDDED else named
        return found, named

    def _exact(self, points: Tensor) -> Tensor:
        return self.transform.inverse(points.to(torch.float64) * self.span, self.low)

    def _stored(self, numbers: Tensor) -> Tensor:
        return numbers.to(self.storage).to(torch.float64)

    def _steps(self, points: Float[Tensor, "n 1"]) -> Float[Tensor, "n"]:
        """About how far apart in x the neighbours of points are on the grid; right to a factor of two."""
        y = points[:, 0].to(torch.float64)
        here, beyond = (self.transform.inverse(where * self.span, self.low) for where in (y, y + _spacing(y)))
        return (beyond - here).abs()


@dataclass(frozen=True)
class OrdinalAxis:
    """A category with an order: its index among `count` categories, divided by that of the last one.

    Attributes:
        count: How many categories there are.
        seen: The indices of those that are known, in order. Only these are legal.
    """

    count: int
    seen: tuple[int, ...]
    width: int = 1

    def points(self, numbers: Float[Tensor, "n"]) -> Float[Tensor, "n 1"]:
        """Index / (count − 1), in one column."""
        return (numbers / (self.count - 1))[:, None]

    def numbers(self, points: Float[Tensor, "n 1"]) -> Float[Tensor, "n"]:
        """The nearest index that was seen."""
        seen = torch.tensor(self.seen, dtype=torch.float64, device=points.device)
        return seen[(points.to(torch.float64) * (self.count - 1) - seen).abs().argmin(1)]

    def within(self, numbers: Float[Tensor, "n"], low: float, high: float) -> Bool[Tensor, "n"]:
        """Which indices lie in a range."""
        return (numbers >= low) & (numbers <= high)

    def between(self, low: float, high: float) -> tuple[float, float]:
        """The first and the last point of an index in a range that was seen, or `EMPTY`."""
        inside = [float(index) for index in self.seen if low <= index <= high]
        if not inside:
            return EMPTY
        ends = on_grid(self.points(torch.tensor([inside[0], inside[-1]], dtype=torch.float64)), torch.float32)
        return float(ends[0]), float(ends[1])


@dataclass(frozen=True)
class OneHotAxes:
    """A category without an order: a column each, 1 in that of the category and 0 in the others.

    Attributes:
        width: How many categories there are.
        seen: The indices of those that are known, in order. Only these are legal.
        gap: Whether the last one is a gap, whose number is NaN.
    """

    width: int
    seen: tuple[int, ...]
    gap: bool = False

    def points(self, numbers: Float[Tensor, "n"]) -> Float[Tensor, "n w"]:
        """The unit vector of each index."""
        index = numbers.nan_to_num(self.width - 1) if self.gap else numbers
        return (index[:, None] == torch.arange(self.width, dtype=torch.float64, device=numbers.device)).double()

    def numbers(self, points: Float[Tensor, "n w"]) -> Float[Tensor, "n"]:
        """The index of the largest entry, of those that were seen."""
        seen = torch.tensor(self.seen, device=points.device)
        index = seen[points[:, seen].argmax(1)].to(torch.float64)
        return torch.where(index == self.width - 1, torch.nan, index) if self.gap else index


@dataclass(frozen=True)
class MixedAxes:
    """A value with an order that may also be one of some codes, or a gap: the value, and one-hot which of these it is.

    The first of the one-hot columns says that it is a value. Where it is none, its column has what `fill` is encoded
    as, so that rows with the same code are the same point; where it is one, no code lies near.

    Attributes:
        value: How the value lies in its column.
        codes: The numbers that are codes.
        gap: Whether it may be missing, which is the last of the one-hot columns and has the number NaN.
        seen: The indices of the one-hot columns that are known, in order. Only these are legal.
        fill: A legal value, about the middle one.
    """

    value: NumberAxis | OrdinalAxis
    codes: tuple[float, ...]
    gap: bool
    seen: tuple[int, ...]
    fill: float

    @property
    def width(self) -> int:
        """One column for the value, and one each for it, the codes and the gap."""
        return 1 + self.states.width

    @property
    def states(self) -> OneHotAxes:
        """The one-hot columns: whether it is a value, which code, or a gap."""
        return OneHotAxes(1 + len(self.codes) + int(self.gap), self.seen)

    @cached_property
    def fill_point(self) -> float:
        """What a value that is not there is encoded as."""
        return float(on_grid(self.value.points(torch.tensor([self.fill], dtype=torch.float64)), torch.float32))

    def state(self, numbers: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        """Which one-hot column numbers have."""
        found = torch.where(numbers.isnan(), float(len(self.codes) + 1), 0.0)
        for index, code in enumerate(self.codes):
            found[numbers == code] = index + 1
        return found

    def points(self, numbers: Float[Tensor, "n"]) -> Float[Tensor, "n w"]:
        """The point of the value, and the unit vector of what it is."""
        state = self.state(numbers)
        return torch.cat([self.value.points(numbers.where(state == 0, self.fill)), self.states.points(state)], 1)

    def numbers(self, points: Float[Tensor, "n w"]) -> Float[Tensor, "n"]:
        """The value, the code, or NaN."""
        return self._named(points, self.value.numbers(points[:, :1]))

    def decimals(self, points: Float[Tensor, "n w"]) -> Float[Tensor, "n"]:
        """As `numbers`, with the shortest decimals."""
        value = self.value
        plain = value.decimals(points[:, :1]) if isinstance(value, NumberAxis) else value.numbers(points[:, :1])
        return self._named(points, plain)

    def _named(self, points: Tensor, values: Tensor) -> Tensor:
        named = torch.tensor([0.0, *self.codes, math.nan], dtype=torch.float64, device=points.device)
        state = self.states.numbers(points[:, 1:]).long()
        return torch.where(state == 0, values, named[state])

    def within(self, numbers: Float[Tensor, "n"], low: float, high: float) -> Bool[Tensor, "n"]:
        """Which numbers are values in a range; codes and gaps are in none."""
        return self.value.within(numbers, low, high) & (self.state(numbers) == 0)

    def between(self, low: float, high: float) -> tuple[float, float]:
        """The first and the last legal point of a value in a range, or `EMPTY`."""
        return self.value.between(low, high)


Axis: TypeAlias = NumberAxis | OrdinalAxis | OneHotAxes | MixedAxes


def value_axis(axis: Axis) -> NumberAxis | OrdinalAxis | OneHotAxes:
    """The axis of the value of a feature that may also be a code or a gap; of any other feature its own."""
    return axis.value if isinstance(axis, MixedAxes) else axis


_CLOSE = 1e-6
"""By which share a change may fall short of `min_change`: numbers are told apart to about 1e-7 of their range."""
_UNGRIDDED = 5
"""How many candidates for a point are no numbers of its grid: three whole numbers and two bounds."""
_AT_ONCE = {"cpu": 1 << 12, "cuda": 1 << 20}
"""How many rows are rounded at once: on a CPU so many that intermediate results stay in its cache, on a GPU so many
that they fit its memory."""


@dataclass(frozen=True)
class Rounding:
    """Encoded rows to the nearest legal ones.

    Attributes:
        parts: By columns that are alike, what gives the legal points nearest to theirs, in float64 and not yet on the
            grid. Encoded columns `(D, n)` are rows there: thus what differs by column is one number a row.
        order: For each encoded column its index among those of all parts.
        categorical: Which encoded columns are one-hot columns.
        mixed: The columns of values that may be codes or gaps instead; the next one says whether they are values.
        fill: What these columns have where they are none.
    """

    parts: tuple[Callable[[Tensor], Tensor], ...]
    order: Int[Tensor, "D"]
    categorical: Bool[Tensor, "D"]
    mixed: Int[Tensor, "m"]
    fill: Float[Tensor, "m"]

    @classmethod
    def of(cls, axes: Sequence[Axis], device: torch.device) -> "Rounding":
        """For rows on this device whose features lie on these axes."""
        starts = list(itertools.accumulate((axis.width for axis in axes), initial=0))
        mixed = [(start, axis) for start, axis in zip(starts, axes, strict=False) if isinstance(axis, MixedAxes)]
        simple: list[NumberAxis | OrdinalAxis | OneHotAxes] = []
        for axis in axes:
            simple += [axis.value, axis.states] if isinstance(axis, MixedAxes) else [axis]
        alike: dict[tuple[Any, ...], list[tuple[int, Any]]] = {}
        for start, axis in zip(itertools.accumulate((axis.width for axis in simple), initial=0), simple, strict=False):
            alike.setdefault(_kind(axis), []).append((start, axis))
        parts = [kind[0].of(members, device).legal for kind, members in alike.items()]
        columns = [start + i for members in alike.values() for start, axis in members for i in range(axis.width)]
        one_hot = [isinstance(axis, OneHotAxes) for axis in simple for _ in range(axis.width)]
        order = torch.tensor(columns, dtype=torch.long).argsort()
        return cls(
            tuple(parts),
            order.to(device),
            torch.tensor(one_hot, dtype=torch.bool, device=device),
            torch.tensor([start for start, _ in mixed], dtype=torch.long, device=device),
            torch.tensor([axis.fill_point for _, axis in mixed], dtype=torch.float64, device=device),
        )

    def __call__(self, encoded: Float[Tensor, "n D"]) -> Float[Tensor, "n D"]:
        """The nearest legal rows, in the same dtype."""
        most = _AT_ONCE[encoded.device.type]
        if len(encoded) <= most:
            return self._legal(encoded)
        return torch.cat([self._legal(rows) for rows in encoded.split(most)])

    def _legal(self, encoded: Tensor) -> Tensor:
        columns = on_grid(encoded.T.contiguous(), torch.promote_types(encoded.dtype, torch.float32))
        points = torch.cat([legal(columns) for legal in self.parts])
        return self.settle(on_grid(points.index_select(0, self.order), encoded.dtype).T.contiguous())

    def settle(self, encoded: Float[Tensor, "n D"]) -> Float[Tensor, "n D"]:
        """Legal rows in which a value that is a code or a gap instead has the point of all such values."""
        if not len(self.mixed):
            return encoded
        there = encoded[:, self.mixed + 1] > _HALF
        encoded[:, self.mixed] = torch.where(there, encoded[:, self.mixed], self.fill.to(encoded.dtype))
        return encoded


@dataclass(frozen=True)
class _Points:
    """Numbers of which every point of the grid that is not beyond a legal end is legal.

    Attributes:
        columns: Where they lie.
        first: The point of the smallest legal number.
        last: That of the largest.
    """

    columns: Int[Tensor, "c"]
    first: Float[Tensor, "c 1"]
    last: Float[Tensor, "c 1"]

    @classmethod
    def of(cls, members: Sequence[tuple[int, NumberAxis]], device: torch.device) -> "_Points":
        """Of these axes, each with the column in which it lies."""
        ends = [axis.points(torch.tensor([axis.lower, axis.upper], dtype=torch.float64)) for _, axis in members]
        first, last = on_grid(torch.stack(ends), torch.float64).to(device).unbind(1)
        return cls(_columns(members, device), first, last)

    def legal(self, columns: Tensor) -> Tensor:
        """The points, within bounds; adding 0 turns -0 into 0."""
        return columns.index_select(0, self.columns).to(torch.float64).clamp(self.first, self.last) + 0.0


@dataclass(frozen=True)
class _Numbers:
    """Numbers with the same transform, stored in the same type, and their legal ends; see `NumberAxis`."""

    transform: Transform
    storage: torch.dtype
    columns: Int[Tensor, "c"]
    low: Float[Tensor, "c 1"]
    span: Float[Tensor, "c 1"]
    lower: Float[Tensor, "c 1"]
    upper: Float[Tensor, "c 1"]
    whole: Bool[Tensor, "c 1"]

    @classmethod
    def of(cls, members: Sequence[tuple[int, NumberAxis]], device: torch.device) -> "_Numbers":
        """Of these axes, each with the column in which it lies."""
        scales = [(axis.low, axis.span, axis.lower, axis.upper) for _, axis in members]
        low, span, lower, upper = torch.tensor(scales, dtype=torch.float64, device=device)[..., None].unbind(1)
        whole = torch.tensor([[axis.whole] for _, axis in members], device=device)
        like = members[0][1]
        return cls(like.transform, like.storage, _columns(members, device), low, span, lower, upper, whole)

    @cached_property
    def _ends(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest legal number, and their points on the grid."""
        numbers = self._stored(torch.stack([self.lower, self.upper])) + 0.0
        return numbers, on_grid(self._points(numbers), torch.float64)

    def legal(self, columns: Tensor) -> Tensor:
        """The points of `NumberAxis.numbers`, within bounds."""
        points = columns.index_select(0, self.columns)
        exact = self.transform.inverse(points.to(torch.float64) * self.span, self.low)
        nearest = exact.round()
        found = self._stored(torch.where(self.whole, nearest, exact))
        near = self._stored(torch.stack([exact.floor(), exact.ceil(), nearest])) + 0.0
        ends, their_points = self._ends
        same = on_grid(self._points(near), points.dtype) == points
        same_end = their_points.to(points.dtype) == points
        # A later candidate has precedence, as in `NumberAxis`.
        for candidate, is_it in zip((*near, *ends), (*same, *same_end), strict=True):
            found = torch.where(is_it, candidate, found)
        return self._points(found.clamp(self.lower, self.upper))

    def _points(self, numbers: Tensor) -> Tensor:
        return self.transform.forward(numbers, self.low) / self.span

    def _stored(self, numbers: Tensor) -> Tensor:
        return numbers.to(self.storage).to(torch.float64)


@dataclass(frozen=True)
class _Ordinals:
    """Categories with an order, of which equally many were seen; see `OrdinalAxis`.

    Attributes:
        columns: Where they lie.
        last: The index of the last category.
        seen: The indices of those that were seen.
        points: What these are encoded as, one feature after the other.
        first: Where those of each feature begin.
    """

    columns: Int[Tensor, "c"]
    last: Float[Tensor, "c 1 1"]
    seen: Float[Tensor, "c k 1"]
    points: Float[Tensor, "m"]
    first: Int[Tensor, "c 1"]

    @classmethod
    def of(cls, members: Sequence[tuple[int, OrdinalAxis]], device: torch.device) -> "_Ordinals":
        """Of these axes, each with the column in which it lies."""
        seen = torch.tensor([axis.seen for _, axis in members], dtype=torch.float64, device=device)
        last = torch.tensor([axis.count - 1 for _, axis in members], dtype=torch.float64, device=device)[:, None]
        points = (seen / last).flatten()
        return cls(_columns(members, device), last[..., None], seen[..., None], points, _firsts(seen))

    def legal(self, columns: Tensor) -> Tensor:
        """The points of the nearest indices that were seen."""
        exact = columns.index_select(0, self.columns).to(torch.float64)[:, None] * self.last
        return self.points[(exact - self.seen).abs().min(1).indices + self.first]


@dataclass(frozen=True)
class _Categories:
    """Categories without an order, of which equally many were seen; see `OneHotAxes`.

    Attributes:
        seen: The columns of those that were seen, one feature after the other.
        count: How many that are of each feature.
        first: Where those of each feature begin.
        columns: Where all categories lie.
        owner: The index of the feature whose category each of these is.
    """

    seen: Int[Tensor, "m"]
    count: int
    first: Int[Tensor, "c 1"]
    columns: Int[Tensor, "w 1"]
    owner: Int[Tensor, "w"]

    @classmethod
    def of(cls, members: Sequence[tuple[int, OneHotAxes]], device: torch.device) -> "_Categories":
        """Of these axes, each with its first column."""
        seen = torch.tensor([[start + index for index in axis.seen] for start, axis in members], device=device)
        owner = [index for index, (_, axis) in enumerate(members) for _ in range(axis.width)]
        columns = _columns(members, device)[:, None]
        return cls(seen.flatten(), seen.shape[1], _firsts(seen), columns, torch.tensor(owner, device=device))

    def legal(self, columns: Tensor) -> Tensor:
        """1 in the column of the largest entry of those that were seen, 0 in all others."""
        entries = columns.index_select(0, self.seen).view(len(self.first), self.count, columns.shape[1])
        largest = self.seen[entries.max(1).indices + self.first]
        return (largest.index_select(0, self.owner) == self.columns).to(torch.float64)


@dataclass(frozen=True)
class _Gridded:
    """Numbers with the same grid for everybody, one axis after the other; see `NumberAxis`."""

    axes: tuple[NumberAxis, ...]
    columns: Int[Tensor, "c"]

    @classmethod
    def of(cls, members: Sequence[tuple[int, NumberAxis]], device: torch.device) -> "_Gridded":
        """Of these axes, each with the column in which it lies."""
        return cls(tuple(axis for _, axis in members), _columns(members, device))

    def legal(self, columns: Tensor) -> Tensor:
        """The nearest points of the grid, within bounds."""
        pairs = zip(self.axes, columns.index_select(0, self.columns), strict=True)
        return torch.stack([self._nearest(axis, points) for axis, points in pairs])

    def _nearest(self, axis: NumberAxis, points: Tensor) -> Tensor:
        exact = axis._exact(points).clamp(axis.lower, axis.upper)
        below, above = (
            axis.points(axis._stored(near))[:, 0] for near in (axis.grid.below(exact), axis.grid.above(exact))
        )
        return torch.where((points - below).abs() <= (above - points).abs(), below, above)


_HALF = 0.5
"""Legal one-hot columns are 0 or 1."""


def _kind(axis: NumberAxis | OrdinalAxis | OneHotAxes) -> tuple[Any, ...]:
    """What axes that are computed together have in common: by which part, and what is the same for all of it."""
    if isinstance(axis, OrdinalAxis):
        return _Ordinals, len(axis.seen)
    if isinstance(axis, OneHotAxes):
        return _Categories, len(axis.seen)
    if axis.grid.shared and not axis.grid.plain:
        return (_Gridded,)
    return (_Points,) if _is_exact(axis) else (_Numbers, axis.transform, axis.storage)


def _is_exact(axis: NumberAxis) -> bool:
    """Whether every point within bounds is still the same after it was decoded and encoded again.

    Of fractions in float64 it is if rounding is far finer than the grid: if another 2⁻³⁰ of a number, a million of its
    last digits, moves its point by less than a fourth of the way to the next. A transform magnifies most at an end.
    An end that is hardly less than what is encoded as 0 is encoded as -0, and that is no point by itself.
    """
    if axis.whole or axis.storage != torch.float64:
        return False
    ends = torch.tensor([axis.low, axis.high, axis.lower, axis.upper], dtype=torch.float64)
    reach = (ends.abs() + abs(axis.low)) * 2.0**-30
    below, above, there = (axis.points(numbers) for numbers in (ends - reach, ends + reach, ends))
    near, negative_zero = there.abs() <= 2.0**20, (on_grid(there, torch.float64) == 0) & there.signbit()
    return bool(((above - below < 0.25 / GRID) & near & ~negative_zero).all())


def _columns(members: Sequence[tuple[int, Axis]], device: torch.device) -> Tensor:
    return torch.tensor([start + i for start, axis in members for i in range(axis.width)], device=device)


def _firsts(seen: Tensor) -> Tensor:
    """Where each feature begins among the values of all, which are equally many."""
    return torch.arange(len(seen), device=seen.device)[:, None] * seen.shape[1]


_UNCHANGED = 1e-5
"""A share of the range: a hundred points of the grid, far above what rounding does, far below what anybody notices."""
_ONE_HOT_WEIGHT = math.sqrt(0.5)
"""Another category changes two columns by 1: with √½ that is a distance of 1."""


@dataclass(frozen=True)
class Encoder:
    """DataFrame ⇄ tensor. Every feature has one encoded column or, if its categories have no order, one a category.

    A feature that may be missing, or a code instead of a number, has further columns: see `MixedAxes`. The number of a
    gap is NaN; for a categorical feature a gap is one more category.

    - A number is y = (t(x) − t(low)) / (t(high) − t(low)), with the transform t of the feature.
    - An ordinal feature is the index of its category / (n − 1); so a binary or boolean one is 0 or 1.
    - A categorical feature is one-hot: a column for each of the schema's categories.

    Arithmetic is in float64; encoded rows are float32 on the grid of multiples of 2⁻²³.

    - What `round` returns is the same, bit for bit, after it was decoded and encoded again: a prediction on the
      encoded row is the prediction on the row as returned.
    - A value outside the range of the training rows is encoded outside [0, 1] and not clipped, so that `decode` is the
      inverse of `encode` for every row. `round` clips.
    - `decode` gives back whole numbers and bounds exactly, and of other numbers the shortest decimal that is encoded as
      the same point: whatever has few enough digits comes back bit for bit, and anything else to half a step of the
      grid, 6e-8 of the (transformed) range. Whole numbers are distinguished in ranges up to eight million, under log1p
      half a million.
    - A column that is constant in the training rows is never changed by `round`.

    Attributes:
        schema: The features, in the order of their encoded columns.
        dtypes: The dtype of every column, in the order of the table that was fitted; `decode` restores both.
        low: The smallest value of each feature in the fitted rows, in original units; for categories their index.
        high: The largest one.
        seen: For each feature with categories the indices of those that the fitted rows have, in order; these are the
            known ones. For other features nothing.
        values: For each feature whose legal numbers are listed or observed those that are within bounds, in order.
        states: For each feature with codes, or gaps beside an order, the indices of `MixedAxes.seen`; else nothing.
        fill: For those a legal value, the one nearest to the median; for others the smallest one.

    Example:
        >>> from counterpath.data import Feature, Schema
        >>> frame = pd.DataFrame({"age": [20, 60], "sex": ["Male", "Female"]})
        >>> schema = Schema((Feature("age", "continuous"), Feature("sex", "binary", categories=("Female", "Male"))))
        >>> Encoder.fit(frame, schema).encode(frame).tolist()
        [[0.0, 1.0], [1.0, 0.0]]
    """

    schema: Schema
    dtypes: Mapping[str, Described]
    low: tuple[float, ...]
    high: tuple[float, ...]
    seen: tuple[tuple[int, ...], ...]
    values: tuple[tuple[float, ...], ...]
    states: tuple[tuple[int, ...], ...]
    fill: tuple[float, ...]

    @classmethod
    def fit(cls, frame: pd.DataFrame, schema: Schema) -> "Encoder":
        """Learn ranges, categories and dtypes from `frame`: give it the training rows, and none that are held out."""
        check_columns(frame, schema)
        if len(frame) == 0:
            raise InputError("an encoder needs rows to learn from, and the table has none")
        # A column at a time: as numbers, a table takes twice the memory that it takes encoded.
        learned = [_learn(frame[feature.name], feature) for feature in schema]
        there = [name for name in frame.columns if name not in schema.ignored]
        dtypes = {name: described_dtype(frame[name], schema[name]) for name in there}
        low, high, seen, values, states, fill = zip(*learned, strict=True)
        return cls(schema, dtypes, low, high, seen, values, states, fill)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """How each feature lies in its encoded columns."""
        return tuple(self._axis(index, feature) for index, feature in enumerate(self.schema))

    @property
    def width(self) -> int:
        """The number of columns of an encoded row."""
        return sum(axis.width for axis in self.axes)

    @cached_property
    def position(self) -> dict[str, int]:
        """By name which feature it is, from 0: for what asks thousands of times."""
        return {name: index for index, name in enumerate(self.schema.names)}

    @cached_property
    def layout(self) -> tuple[slice, ...]:
        """The encoded columns of each feature."""
        stops = list(itertools.accumulate(axis.width for axis in self.axes))
        return tuple(slice(start, stop) for start, stop in zip([0, *stops], stops, strict=False))

    @cached_property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """Start and stop of the one-hot columns of each feature that has some."""
        pairs = zip(self.axes, self.layout, strict=True)
        return tuple(
            (columns.start + int(isinstance(axis, MixedAxes)), columns.stop)
            for axis, columns in pairs
            if isinstance(axis, OneHotAxes | MixedAxes)
        )

    @cached_property
    def categorical(self) -> Bool[Tensor, "d"]:
        """Which encoded columns are one-hot columns."""
        mask = torch.zeros(self.width, dtype=torch.bool)
        for start, stop in self.blocks:
            mask[start:stop] = True
        return mask

    @cached_property
    def weights(self) -> Float[Tensor, "d"]:
        """w in the distance Σ (wⱼ·Δⱼ)²: 1, and √½ for one-hot columns, of which another category changes two.

        Thus another category is as far away as the other end of a number's range; with w², the same holds for Σ |Δⱼ|.
        """
        return torch.where(self.categorical, _ONE_HOT_WEIGHT, 1.0)

    def columns(self, *names: str) -> list[int]:
        """The encoded columns of these features, in the order of the names."""
        slices = (self.layout[self.schema.index(name)] for name in names)
        return [column for part in slices for column in range(part.start, part.stop)]

    def known(self, frame: pd.DataFrame) -> "pd.Series[bool]":
        """Which rows have only categories that were seen in training, and some value: those that `encode` takes."""
        numbers = _numbers(frame, self.schema)
        unknown = _nothing(numbers)
        for feature, column, seen in zip(self.schema, numbers.T, self.seen, strict=True):
            unknown |= _unknown(feature, column, seen)
        return pd.Series(~unknown, index=frame.index)

    def unknown(self, frame: pd.DataFrame) -> tuple[NDArray[np.bool_], list[str]]:
        """Which rows can be encoded, and for the others which value was never seen."""
        known = self.known(frame).to_numpy()
        reasons = [""] * len(frame)
        for row in np.flatnonzero(~known).tolist():
            try:
                self.encode(frame.iloc[[row]])
            except InputError as error:
                reasons[row] = f"({error})"
        return known, reasons

    def encode(self, frame: pd.DataFrame) -> Float[Tensor, "n d"]:
        """Turn a table, its columns in any order, into float32 rows in the order of the schema.

        Raises:
            InputError: A column is missing or too many; or a value is missing, infinite, not of the feature's kind, or
                a category that was never seen in training. The column and the first bad row are named.
        """
        numbers = _numbers(frame, self.schema)
        for feature, column, seen in zip(self.schema, numbers.T, self.seen, strict=True):
            _refuse_unknown(frame[feature.name], feature, column, seen)
        refuse(frame[self.schema.names[0]], _nothing(numbers), "and everything else is missing")
        for name, column in zip(self.schema.names, numbers.T, strict=True):
            self.refuse_impossible(frame[name], column)
        columns_of = zip(self.axes, torch.from_numpy(numbers).unbind(1), strict=True)
        encoded = on_grid(torch.cat([axis.points(column) for axis, column in columns_of], dim=1), torch.float32)
        # float32 overflows where float64 does not.
        for name, columns, low, high in zip(self.schema.names, self.layout, self.low, self.high, strict=True):
            problem = f"is too far from the training rows, which go from {low:g} to {high:g}, to be encoded"
            refuse(frame[name], ~encoded[:, columns].isfinite().all(1).numpy(), problem)
        return encoded

    def refuse_impossible(self, column: pd.Series, numbers: NDArray[np.float64]) -> None:
        """Raise an error for a number beyond the schema's bound where no training row is.

        Args:
            column: Of a feature, under its name.
            numbers: What its values are encoded from.
        """
        index = self.schema.names.index(str(column.name))
        feature = self.schema.features[index]
        numbers = np.where(np.isin(numbers, list(feature.codes)), np.nan, numbers)
        least = -math.inf if feature.lower is None else min(feature.lower, self.low[index])
        most = math.inf if feature.upper is None else max(feature.upper, self.high[index])
        low, high = (
            day_text(end) if feature.kind == DATE and math.isfinite(end) else f"{end:g}" for end in (least, most)
        )
        words = f"at most {high}" if math.isinf(least) else f"from {low} to {high}"
        words = f"at least {low}" if math.isinf(most) else words
        what = feature.kind if KINDS[feature.kind].times else "number"
        refuse(column, (numbers < least) | (numbers > most), f"cannot be; expected is a {what} {words}")

    def in_own_types(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The table as it is, but for times: they have the types of the fitted one, where they are text in JSON."""
        check_columns(frame, self.schema)
        times = [feature for feature in self.schema if KINDS[feature.kind].times]
        own = {each.name: in_own_type(frame[each.name], each, self.dtypes[each.name]) for each in times}
        return frame.assign(**own) if own else frame

    def align(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows exactly as they are, in the order of columns and the dtypes of `decode` where these hold them."""
        return pd.DataFrame({name: cast_if_lossless(frame[name], restore(of)) for name, of in self.dtypes.items()})

    def decode(self, encoded: Float[Tensor, "n d"], index: pd.Index | None = None) -> pd.DataFrame:
        """Turn encoded rows into a table in original units, with the columns and dtypes of the fitted one.

        Categories and integers come back as the nearest one; of one-hot columns, which need not be 0 and 1, the largest
        decides. Continuous numbers have no more digits than it takes. A continuous feature whose column had an integer
        dtype has it again where all values are whole, and float64 where they are not.

        Args:
            encoded: Rows in the order of the schema, finite.
            index: The index of the table; by default 0, 1, 2, …
        """
        if encoded.shape[1] != self.width or not encoded.isfinite().all():
            raise InputError(
                f"encoded rows must be finite, with {self.width} columns; given were {encoded.shape[1]} columns, "
                f"{int((~encoded.isfinite()).sum())} values not finite"
            )
        index = pd.RangeIndex(len(encoded)) if index is None else index
        columns = {
            feature.name: from_numbers(column.numpy(), feature, self.dtypes[feature.name], index)
            for feature, column in zip(self.schema, self._decimals(encoded.detach().cpu()), strict=True)
        }
        return pd.DataFrame({name: columns[name] for name in self.dtypes}, index=index)

    def round(self, encoded: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """The nearest legal rows, still encoded: categories and integers whole, everything within its bounds.

        A bound is the schema's, and where it has none, the range of the training rows; a legal category is one that was
        seen. Continuous features move to the nearest point of the grid. This is what is measured and returned; it
        keeps dtype and device.
        """
        return self.rounding(encoded.device)(encoded)

    @cached_property
    def personal(self) -> tuple[tuple[int, NumberAxis], ...]:
        """The numbers of which a person's own value says what is legal, each with its encoded column."""
        pairs = zip(self.layout, self.axes, strict=True)
        numbers = ((columns.start, value_axis(axis)) for columns, axis in pairs)
        return tuple((column, axis) for column, axis in numbers if isinstance(axis, NumberAxis) and not axis.grid.plain)

    @cached_property
    def gaps(self) -> dict[int, int]:
        """By feature that may be missing the encoded column that is 1 where it is."""
        pairs = zip(self.schema, self.layout, strict=True)
        return {index: columns.stop - 1 for index, (feature, columns) in enumerate(pairs) if feature.missing}

    def rounding(self, device: torch.device) -> Rounding:
        """What `round` does to rows on this device."""
        if device not in self._roundings:
            self._roundings[device] = Rounding.of(self.axes, device)
        return self._roundings[device]

    @cached_property
    def _roundings(self) -> dict[torch.device, Rounding]:
        return {}

    def changed(self, before: Float[Tensor, "n d"], after: Float[Tensor, "n d"]) -> Bool[Tensor, "n f"]:
        """Which features differ between legal rows, in original units.

        A category, an integer or a number with a grid differs if it is another one; any other continuous value if it is
        more than 1e-5 of its range in the training rows away. A gap differs from every value.
        """
        differ = []
        for index, (first, second) in enumerate(zip(self._decoded(before), self._decoded(after), strict=True)):
            axis = value_axis(self.axes[index])
            gridded = isinstance(axis, NumberAxis) and axis.grid.shared
            whole, reach = KINDS[self.schema.features[index].kind].whole, self.high[index] - self.low[index]
            tolerance = 0.0 if gridded else 0.5 if whole else _UNCHANGED * reach
            differ.append(((first - second).abs() > tolerance) | (first.isnan() != second.isnan()))
        return torch.stack(differ, dim=1)

    def to_json(self) -> dict[str, Any]:
        """A value that `json.dumps` takes and `from_json` turns back into an equal encoder."""
        return {
            "schema": self.schema.to_json(),
            "dtypes": dict(self.dtypes),
            "low": list(self.low),
            "high": list(self.high),
            "seen": [list(indices) for indices in self.seen],
            "values": [list(numbers) for numbers in self.values],
            "states": [list(indices) for indices in self.states],
            "fill": list(self.fill),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Encoder":
        """Build an encoder from the value of `to_json`."""
        missing = {each.name for each in fields(cls)} - value.keys()
        if missing:
            raise InputError(f"this is not an encoder in JSON: it lacks {', '.join(sorted(missing))}")
        schema = Schema.from_json(value["schema"])
        low, high, fill = (tuple(float(number) for number in value[name]) for name in ("low", "high", "fill"))
        seen, states = (tuple(tuple(map(int, indices)) for indices in value[name]) for name in ("seen", "states"))
        values = tuple(tuple(float(number) for number in numbers) for numbers in value["values"])
        return cls(schema, dict(value["dtypes"]), low, high, seen, values, states, fill)

    def _axis(self, index: int, feature: Feature) -> Axis:
        if KINDS[feature.kind].one_hot:
            return OneHotAxes(_count(feature), self.seen[index], feature.missing)
        value = self._value_axis(index, feature)
        if not self.states[index]:
            return value
        codes, fill = tuple(map(float, feature.codes)), self.fill[index]
        if isinstance(value, NumberAxis):
            near = on_grid(value.points(torch.tensor([fill], dtype=torch.float64)), torch.float32)
            point = Rounding.of([value], near.device)(near)
            fill = float(value.decimals(point))
        return MixedAxes(value, codes, feature.missing, self.states[index], fill)

    def _value_axis(self, index: int, feature: Feature) -> NumberAxis | OrdinalAxis:
        kind = KINDS[feature.kind]
        if kind.categories is not None:
            return OrdinalAxis(
                len(feature.categories), tuple(i for i in self.seen[index] if i < _count(feature, gap=0))
            )
        storage = storage_dtype(self.dtypes[feature.name])
        low, high = self.low[index], self.high[index]
        grid = Grid.of(feature, self.values[index])
        bounds = _bounds(feature, low, high)
        if grid.shared and low < high:
            ends = torch.tensor(bounds, dtype=torch.float64)
            bounds = float(grid.above(ends)[0]), float(grid.below(ends)[1])
        lower, upper = round_inward(*bounds, storage)
        return NumberAxis(TRANSFORMS[feature.transform], low, high, lower, upper, kind.whole, storage, grid)

    def _decoded(self, encoded: Tensor) -> list[Tensor]:
        """The numbers of each feature of encoded rows, legal or not."""
        return [axis.numbers(points) for axis, points in self._by_axis(encoded)]

    def _decimals(self, encoded: Tensor) -> list[Tensor]:
        """The same with as few digits as it takes; too slow for the search."""
        return [
            axis.decimals(points) if isinstance(axis, NumberAxis | MixedAxes) else axis.numbers(points)
            for axis, points in self._by_axis(encoded)
        ]

    def _by_axis(self, encoded: Tensor) -> list[tuple[Axis, Tensor]]:
        rows = on_grid(encoded, torch.promote_types(encoded.dtype, torch.float32))
        return [(axis, rows[:, columns]) for axis, columns in zip(self.axes, self.layout, strict=True)]


def _count(feature: Feature, gap: int = 1) -> int:
    """How many categories a feature has; a gap is one more."""
    return len(feature.categories) + (gap if feature.missing else 0)


def _learn(
    column: pd.Series, feature: Feature
) -> tuple[float, float, tuple[int, ...], tuple[float, ...], tuple[int, ...], float]:
    """What `Encoder` has of a feature from `low` to `fill`."""
    numbers = to_numbers(column, feature)
    _refuse_unknown(column, feature, numbers, range(_count(feature)))
    measured = _measured(feature, numbers)
    low, high = float(measured.min()), float(measured.max())
    _check_range(feature, low, high)
    present = np.unique(np.nan_to_num(numbers, nan=len(feature.categories))) if feature.categories else ()
    fill = float(np.quantile(measured, 0.5, method="lower"))
    return low, high, tuple(map(int, present)), _legal_values(feature, measured), _states(feature, numbers), fill


def _check_range(feature: Feature, low: float, high: float) -> None:
    """Raise an error if numbers that go from `low` to `high` contradict the schema, or cannot be scaled."""
    column, (lower, upper) = f"column {feature.name!r}", _bounds(feature, low, high)
    if not math.isfinite(high - low):
        raise InputError(f"{column} goes from {low:g} to {high:g}, too far to be scaled to [0, 1]")
    if lower > upper:
        raise InputError(
            f"{column} has no legal value from {lower:g} to {upper:g}: a bound of the schema excludes the "
            "training rows; give the feature both bounds, or neither"
        )
    for code in feature.codes:
        if low < code < high:
            raise InputError(
                f"{column} has the code {code:g}, and values on both sides of it, from {low:g} to "
                f"{high:g}: a code is no measurement; correct the codes, or bound the feature"
            )


def _measured(feature: Feature, column: NDArray[np.float64]) -> NDArray[np.float64]:
    """The numbers of a column that are neither codes nor gaps."""
    measured = column[~np.isnan(column) & ~np.isin(column, list(feature.codes))]
    if not len(measured):
        raise InputError(
            f"column {feature.name!r} has nothing but codes and gaps; leave it out, or declare its codes as the "
            "categories of a categorical feature"
        )
    return measured


def _states(feature: Feature, column: NDArray[np.float64]) -> tuple[int, ...]:
    """Which of value, codes and gap a column has, in the order of `MixedAxes`; nothing for other features."""
    if KINDS[feature.kind].one_hot or not (feature.codes or feature.missing):
        return ()
    codes = [index for index, code in enumerate(feature.codes, start=1) if (column == code).any()]
    return (0, *codes, *([1 + len(feature.codes)] if np.isnan(column).any() else []))


def _bounds(feature: Feature, low: float, high: float) -> tuple[float, float]:
    """The smallest and the largest legal number of a feature whose training rows go from `low` to `high`."""
    if low == high:  # a constant never changes, whatever the schema allows
        return low, high
    return (
        low if feature.lower is None else float(feature.lower),
        high if feature.upper is None else float(feature.upper),
    )


def _legal_values(feature: Feature, column: NDArray[np.float64]) -> tuple[float, ...]:
    """The legal numbers of a feature that lists them or takes those of its column; none for other features."""
    if feature.values == ANY:
        return ()
    values = np.unique(column) if feature.values == OBSERVED else np.array(feature.values, dtype=np.float64)
    lower, upper = _bounds(feature, float(column.min()), float(column.max()))
    legal = values[(values >= lower) & (values <= upper)]
    if not len(legal):
        listed = f"from {values.min():g} to {values.max():g}"
        raise InputError(
            f"column {feature.name!r} has no legal value: it may only have {feature.values} values, which go {listed}, "
            f"and must be from {lower:g} to {upper:g}; widen the bounds, or list other values"
        )
    return tuple(legal.tolist())


def _numbers(frame: pd.DataFrame, schema: Schema) -> NDArray[np.float64]:
    check_columns(frame, schema)
    return np.column_stack([to_numbers(frame[feature.name], feature) for feature in schema])


def _nothing(numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which rows are nothing but gaps."""
    return np.asarray(np.isnan(numbers).all(axis=1))


def _unknown(feature: Feature, numbers: NDArray[np.float64], seen: Sequence[int]) -> NDArray[np.bool_]:
    """Where a column with categories has none of those that were seen."""
    if not feature.categories:
        return np.zeros(len(numbers), dtype=bool)
    return ~np.isin(np.nan_to_num(numbers, nan=len(feature.categories)), list(seen))


def _refuse_unknown(column: pd.Series, feature: Feature, numbers: NDArray[np.float64], seen: Sequence[int]) -> None:
    known = ", ".join(repr(feature.categories[index]) for index in seen if index < len(feature.categories))
    refuse(column, _unknown(feature, numbers, seen), f"is not a known category; known are: {known}")
