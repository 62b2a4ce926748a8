"""Encoded rows to the nearest legal ones."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.data.axes import GRID, Axis, MixedAxes, NumberAxis, OneHotAxes, OrdinalAxis, on_grid
from counterpath.data.schema import Transform

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
        exact = axis.exact(points).clamp(axis.lower, axis.upper)
        below, above = (
            axis.points(axis.stored(near))[:, 0] for near in (axis.grid.below(exact), axis.grid.above(exact))
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
