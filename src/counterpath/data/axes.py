"""How one feature lies in encoded columns: its numbers as points of a grid, and points as its numbers.

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
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, cached_property
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.data.schema import KINDS, OWN, Feature, Transform

IsSame = Callable[[Tensor, Tensor], Tensor]

_CLOSE = 1e-6
"""By which share a change may fall short of `min_change`: numbers are told apart to about 1e-7 of their range."""
_UNGRIDDED = 5
"""How many candidates for a point are no numbers of its grid: three whole numbers and two bounds."""
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


def spacing(points: Tensor) -> Tensor:
    """How far apart points of the grid are."""
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
            return on_grid(self.points(self.stored(numbers)), points.dtype)[:, 0] == points[rows, 0]

        bound = (found == self.lower) | (found == self.upper) | named
        return torch.where(bound, found, self.stored(shortest_decimals(found, self._steps(points), same)))

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
        least = self.grid.min_change * (1 - _CLOSE)
        start = self.numbers(own[:, None]) if least or self.grid.from_own else own.double()
        exact = self.exact(points.clamp(lower, upper)).clamp(self.lower, self.upper)
        near = [self.grid.below(exact, start), self.grid.above(exact, start)]
        if least:
            near += [self.grid.below(start - least, start), self.grid.above(start + least, start)]
        found = own
        best = torch.where((own >= lower) & (own <= upper), (own - points).abs(), torch.inf)
        for numbers in near:
            stored = self.stored(numbers)
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
        stored = self.stored(numbers)
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
        least, most = self.stored(torch.tensor([low, high], dtype=torch.float64)).tolist()
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
        exact = self.exact(points[:, 0])
        found = self.stored(exact.round() if self.whole else exact)
        bounds = (torch.full_like(exact, bound) for bound in (self.lower, self.upper))
        candidates = [exact.floor(), exact.ceil(), exact.round(), *bounds]
        shared = self.grid.shared and not self.grid.plain
        if shared:  # training rows may be finer than the grid; their ends come back as they are, as bounds do
            ends = [torch.full_like(exact, end) for end in (self.low, self.high)]
            candidates += [*ends, self.grid.below(exact), self.grid.above(exact)]
        named = torch.zeros_like(exact, dtype=torch.bool)
        # A later candidate has precedence. Adding 0 turns -0 into 0.
        for number, candidate in enumerate(candidates):
            stored = self.stored(candidate) + 0.0
            same = (on_grid(self.points(stored), points.dtype) == points)[:, 0]
            found = torch.where(same, stored, found)
            named = named | same if number >= _UNGRIDDED else named
        return found, named

    def exact(self, points: Tensor) -> Tensor:
        """Numbers in original units, before they are rounded to the grid of the feature or stored."""
        return self.transform.inverse(points.to(torch.float64) * self.span, self.low)

    def stored(self, numbers: Tensor) -> Tensor:
        """Numbers as the column's own dtype has them."""
        return numbers.to(self.storage).to(torch.float64)

    def _steps(self, points: Float[Tensor, "n 1"]) -> Float[Tensor, "n"]:
        """About how far apart in x the neighbours of points are on the grid; right to a factor of two."""
        y = points[:, 0].to(torch.float64)
        here, beyond = (self.transform.inverse(where * self.span, self.low) for where in (y, y + spacing(y)))
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
