"""How one feature lies in encoded columns: its numbers as points of a grid, and points as its numbers.

Points are multiples of 2⁻²³, all of which from −2 to 2 are numbers in float32; beyond, the grid is that of float32. It
is what makes a row the same before and after it was decoded: every number is encoded as one point, and a point is
decoded as a number that is encoded as that very point.

Every axis has a `width`, its count of columns; `points`, the encoded columns of numbers, in float64 and not yet on the
grid; and `numbers`, what is encoded as given points of the grid, or nearest to them. Numbers are float64, as
`tables.to_numbers` makes them; that of a category is its index. `encoding.Rounding` has the nearest legal ones.

An axis with an order also has `within`, which numbers lie in a range, and `between`, its first and last legal point. A
range without an end has an infinite one.
"""

import decimal
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.data.schema import Transform

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
    """

    transform: Transform
    low: float
    high: float
    lower: float
    upper: float
    whole: bool
    storage: torch.dtype = torch.float64
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
        """x; and where a whole number or a bound is encoded as the same point, that one."""
        exact = self.transform.inverse(points[:, 0].to(torch.float64) * self.span, self.low)
        found = self._stored(exact.round() if self.whole else exact)
        bounds = (torch.full_like(exact, bound) for bound in (self.lower, self.upper))
        # A later candidate has precedence. Adding 0 turns -0 into 0.
        for candidate in (exact.floor(), exact.ceil(), exact.round(), *bounds):
            stored = self._stored(candidate) + 0.0
            same = on_grid(self.points(stored), points.dtype) == points
            found = torch.where(same[:, 0], stored, found)
        return found

    def decimals(self, points: Float[Tensor, "n 1"]) -> Float[Tensor, "n"]:
        """As `numbers`, and where that is neither whole nor a bound, the shortest decimal that is the same point.

        It is what people would write, and takes longer.
        """
        found = self.numbers(points)
        if self.whole:
            return found

        def same(numbers: Tensor, rows: Tensor) -> Tensor:
            return on_grid(self.points(self._stored(numbers)), points.dtype)[:, 0] == points[rows, 0]

        bound = (found == self.lower) | (found == self.upper)
        return torch.where(bound, found, self._stored(shortest_decimals(found, self._steps(points), same)))

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
    """

    width: int
    seen: tuple[int, ...]

    def points(self, numbers: Float[Tensor, "n"]) -> Float[Tensor, "n w"]:
        """The unit vector of each index."""
        return (numbers[:, None] == torch.arange(self.width, dtype=torch.float64, device=numbers.device)).double()

    def numbers(self, points: Float[Tensor, "n w"]) -> Float[Tensor, "n"]:
        """The index of the largest entry, of those that were seen."""
        seen = torch.tensor(self.seen, device=points.device)
        return seen[points[:, seen].argmax(1)].to(torch.float64)


Axis: TypeAlias = NumberAxis | OrdinalAxis | OneHotAxes
