"""Tables to tensors in [0, 1] and back."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from counterpath.data.axes import GRID, Axis, NumberAxis, OneHotAxes, OrdinalAxis, on_grid
from counterpath.data.schema import KINDS, TRANSFORMS, Feature, Schema, Transform
from counterpath.data.tables import (
    Described,
    cast_if_lossless,
    check_columns,
    described_dtype,
    from_numbers,
    refuse,
    restore,
    round_inward,
    storage_dtype,
    to_numbers,
)
from counterpath.utils.errors import InputError

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
    """

    parts: tuple[Callable[[Tensor], Tensor], ...]
    order: Int[Tensor, "D"]
    categorical: Bool[Tensor, "D"]

    @classmethod
    def of(cls, axes: Sequence[Axis], device: torch.device) -> "Rounding":
        """For rows on this device whose features lie on these axes."""
        starts = itertools.accumulate((axis.width for axis in axes), initial=0)
        alike: dict[tuple[Any, ...], list[tuple[int, Any]]] = {}
        for start, axis in zip(starts, axes, strict=False):
            alike.setdefault(_kind(axis), []).append((start, axis))
        parts = [kind[0].of(members, device).legal for kind, members in alike.items()]
        columns = [start + i for members in alike.values() for start, axis in members for i in range(axis.width)]
        one_hot = [isinstance(axis, OneHotAxes) for axis in axes for _ in range(axis.width)]
        order = torch.tensor(columns, dtype=torch.long).argsort()
        return cls(tuple(parts), order.to(device), torch.tensor(one_hot, dtype=torch.bool, device=device))

    def __call__(self, encoded: Float[Tensor, "n D"]) -> Float[Tensor, "n D"]:
        """The nearest legal rows, in the same dtype."""
        most = _AT_ONCE[encoded.device.type]
        if len(encoded) <= most:
            return self._legal(encoded)
        return torch.cat([self._legal(rows) for rows in encoded.split(most)])

    def _legal(self, encoded: Tensor) -> Tensor:
        columns = on_grid(encoded.T.contiguous(), torch.promote_types(encoded.dtype, torch.float32))
        points = torch.cat([legal(columns) for legal in self.parts])
        return on_grid(points.index_select(0, self.order), encoded.dtype).T.contiguous()


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


def _kind(axis: Axis) -> tuple[Any, ...]:
    """What axes that are computed together have in common: by which part, and what is the same for all of it."""
    if isinstance(axis, OrdinalAxis):
        return _Ordinals, len(axis.seen)
    if isinstance(axis, OneHotAxes):
        return _Categories, len(axis.seen)
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

    @classmethod
    def fit(cls, frame: pd.DataFrame, schema: Schema) -> "Encoder":
        """Learn ranges, categories and dtypes from `frame`: give it the training rows, and none that are held out."""
        numbers = _numbers(frame, schema)
        if len(frame) == 0:
            raise InputError("an encoder needs rows to learn from, and the table has none")
        _refuse_unknown(frame, schema, numbers, [range(len(feature.categories)) for feature in schema])
        low, high = numbers.min(axis=0).tolist(), numbers.max(axis=0).tolist()
        for feature, lowest, highest in zip(schema, low, high, strict=True):
            column, (lower, upper) = f"column {feature.name!r}", _bounds(feature, lowest, highest)
            if not math.isfinite(highest - lowest):
                raise InputError(f"{column} goes from {lowest:g} to {highest:g}, too far to be scaled to [0, 1]")
            if lower > upper:
                raise InputError(
                    f"{column} has no legal value from {lower:g} to {upper:g}: a bound of the schema excludes the "
                    "training rows; give the feature both bounds, or neither"
                )
        seen = tuple(
            tuple(int(index) for index in np.unique(column)) if feature.categories else ()
            for feature, column in zip(schema, numbers.T, strict=True)
        )
        dtypes = {name: described_dtype(frame[name], schema[name]) for name in frame.columns}
        return cls(schema, dtypes, tuple(low), tuple(high), seen)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """How each feature lies in its encoded columns."""
        return tuple(self._axis(index, feature) for index, feature in enumerate(self.schema))

    @property
    def width(self) -> int:
        """The number of columns of an encoded row."""
        return sum(axis.width for axis in self.axes)

    @cached_property
    def layout(self) -> tuple[slice, ...]:
        """The encoded columns of each feature."""
        stops = list(itertools.accumulate(axis.width for axis in self.axes))
        return tuple(slice(start, stop) for start, stop in zip([0, *stops], stops, strict=False))

    @cached_property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """Start and stop of the one-hot columns of each categorical feature."""
        pairs = zip(self.schema, self.layout, strict=True)
        return tuple((columns.start, columns.stop) for feature, columns in pairs if KINDS[feature.kind].one_hot)

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
        """Which rows have only categories that were seen in training: those that `encode` takes."""
        unknown = _unknown(self.schema, _numbers(frame, self.schema), self.seen)
        return pd.Series(~unknown.any(axis=1), index=frame.index)

    def encode(self, frame: pd.DataFrame) -> Float[Tensor, "n d"]:
        """Turn a table, its columns in any order, into float32 rows in the order of the schema.

        Raises:
            InputError: A column is missing or too many; or a value is missing, infinite, not of the feature's kind, or
                a category that was never seen in training. The column and the first bad row are named.
        """
        numbers = _numbers(frame, self.schema)
        _refuse_unknown(frame, self.schema, numbers, self.seen)
        columns_of = zip(self.axes, torch.from_numpy(numbers).unbind(1), strict=True)
        encoded = on_grid(torch.cat([axis.points(column) for axis, column in columns_of], dim=1), torch.float32)
        # float32 overflows where float64 does not.
        for name, columns, low, high in zip(self.schema.names, self.layout, self.low, self.high, strict=True):
            problem = f"is too far from the training rows, which go from {low:g} to {high:g}, to be encoded"
            refuse(frame[name], ~encoded[:, columns].isfinite().all(1).numpy(), problem)
        return encoded

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

        A category or an integer differs if it is another one; a continuous value if it is more than 1e-5 of its range
        in the training rows away.
        """
        differ = []
        for index, (first, second) in enumerate(zip(self._decoded(before), self._decoded(after), strict=True)):
            whole, reach = KINDS[self.schema.features[index].kind].whole, self.high[index] - self.low[index]
            differ.append((first - second).abs() > (0.5 if whole else _UNCHANGED * reach))
        return torch.stack(differ, dim=1)

    def to_json(self) -> dict[str, Any]:
        """A value that `json.dumps` takes and `from_json` turns back into an equal encoder."""
        return {
            "schema": self.schema.to_json(),
            "dtypes": dict(self.dtypes),
            "low": list(self.low),
            "high": list(self.high),
            "seen": [list(indices) for indices in self.seen],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Encoder":
        """Build an encoder from the value of `to_json`."""
        missing = {"schema", "dtypes", "low", "high", "seen"} - value.keys()
        if missing:
            raise InputError(f"this is not an encoder in JSON: it lacks {', '.join(sorted(missing))}")
        schema = Schema.from_json(value["schema"])
        low, high = (tuple(float(number) for number in value[name]) for name in ("low", "high"))
        seen = tuple(tuple(int(index) for index in indices) for indices in value["seen"])
        return cls(schema, dict(value["dtypes"]), low, high, seen)

    def _axis(self, index: int, feature: Feature) -> Axis:
        kind = KINDS[feature.kind]
        if kind.one_hot:
            return OneHotAxes(len(feature.categories), self.seen[index])
        if kind.categories is not None:
            return OrdinalAxis(len(feature.categories), self.seen[index])
        storage = storage_dtype(self.dtypes[feature.name])
        low, high = self.low[index], self.high[index]
        lower, upper = round_inward(*_bounds(feature, low, high), storage)
        return NumberAxis(TRANSFORMS[feature.transform], low, high, lower, upper, kind.whole, storage)

    def _decoded(self, encoded: Tensor) -> list[Tensor]:
        """The numbers of each feature of encoded rows, legal or not."""
        return [axis.numbers(points) for axis, points in self._by_axis(encoded)]

    def _decimals(self, encoded: Tensor) -> list[Tensor]:
        """The same with as few digits as it takes; too slow for the search."""
        return [
            axis.decimals(points) if isinstance(axis, NumberAxis) else axis.numbers(points)
            for axis, points in self._by_axis(encoded)
        ]

    def _by_axis(self, encoded: Tensor) -> list[tuple[Axis, Tensor]]:
        rows = on_grid(encoded, torch.promote_types(encoded.dtype, torch.float32))
        return [(axis, rows[:, columns]) for axis, columns in zip(self.axes, self.layout, strict=True)]


def _bounds(feature: Feature, low: float, high: float) -> tuple[float, float]:
    """The smallest and the largest legal number of a feature whose training rows go from `low` to `high`."""
    if low == high:  # a constant never changes, whatever the schema allows
        return low, high
    return (
        low if feature.lower is None else float(feature.lower),
        high if feature.upper is None else float(feature.upper),
    )


def _numbers(frame: pd.DataFrame, schema: Schema) -> NDArray[np.float64]:
    check_columns(frame, schema)
    return np.column_stack([to_numbers(frame[feature.name], feature) for feature in schema])


def _unknown(schema: Schema, numbers: NDArray[np.float64], seen: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
    """Where a feature with categories has none of those that were seen."""
    unknown = np.zeros(numbers.shape, dtype=bool)
    for column, (feature, indices) in enumerate(zip(schema, seen, strict=True)):
        if feature.categories:
            unknown[:, column] = ~np.isin(numbers[:, column], list(indices))
    return unknown


def _refuse_unknown(
    frame: pd.DataFrame, schema: Schema, numbers: NDArray[np.float64], seen: Sequence[Sequence[int]]
) -> None:
    unknown = _unknown(schema, numbers, seen)
    for feature, bad, indices in zip(schema, unknown.T, seen, strict=True):
        known = ", ".join(repr(feature.categories[index]) for index in indices)
        refuse(frame[feature.name], bad, f"is not a known category; known are: {known}")
