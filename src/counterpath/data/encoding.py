"""Tables to tensors in [0, 1] and back.

`axes` says how one feature lies in encoded columns, `rounding` which points are legal.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from counterpath.data.axes import Axis, Grid, MixedAxes, NumberAxis, OneHotAxes, OrdinalAxis, on_grid, value_axis
from counterpath.data.rounding import Rounding
from counterpath.data.schema import ANY, KINDS, OBSERVED, TRANSFORMS, Feature, Schema
from counterpath.data.tables import (
    Described,
    Writer,
    cast_if_lossless,
    check_columns,
    column_writer,
    described_dtype,
    in_own_type,
    refuse,
    restore,
    round_inward,
    storage_dtype,
    to_numbers,
)
from counterpath.data.times import DATE, day_text
from counterpath.utils.errors import InputError

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
    def levels(self) -> tuple[tuple[int, int], ...]:
        """Column and number of categories of each feature that has them in an order, or has two."""
        pairs = ((value_axis(axis), columns) for axis, columns in zip(self.axes, self.layout, strict=True))
        return tuple((columns.start, axis.count) for axis, columns in pairs if isinstance(axis, OrdinalAxis))

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
        """Which rows have only categories, codes and gaps that training rows have, and some value.

        These are the rows that `encode` takes.
        """
        numbers = _numbers(frame, self.schema)
        unknown = _nothing(numbers)
        for feature, column, seen, axis in zip(self.schema, numbers.T, self.seen, self.axes, strict=True):
            unknown |= _unknown(feature, column, seen) | _unknown_state(axis, column)
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
        for feature, column, seen, axis in zip(self.schema, numbers.T, self.seen, self.axes, strict=True):
            _refuse_unknown(frame[feature.name], feature, column, seen)
            refuse(
                frame[feature.name], _unknown_state(axis, column), "is a code or a gap that no training row has there"
            )
        refuse(frame[self.schema.names[0]], _nothing(numbers), "is a gap, and so is every other value of the row")
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
        numbers = self._decimals(encoded.detach().cpu())
        columns = {
            name: write(column.numpy()) for (name, write), column in zip(self._writers.items(), numbers, strict=True)
        }
        frame = pd.DataFrame({name: columns[name] for name in self.dtypes}, index=pd.RangeIndex(len(encoded)))
        return frame if index is None else frame.set_axis(index)

    @cached_property
    def _writers(self) -> dict[str, Writer]:
        """By feature what makes a column of its numbers."""
        return {feature.name: column_writer(feature, self.dtypes[feature.name]) for feature in self.schema}

    def numbers(self, encoded: Float[Tensor, "n d"]) -> dict[str, NDArray[np.float64]]:
        """What `decode` makes a table of: by the name of the feature its numbers, or which category each is."""
        each = zip(self.schema.names, self._decimals(encoded.detach().cpu()), strict=True)
        return {name: column.numpy() for name, column in each}

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


def _unknown_state(axis: Axis, numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where a number is a code or a gap that was never seen."""
    if not isinstance(axis, MixedAxes):
        return np.zeros(len(numbers), dtype=bool)
    return ~np.isin(axis.state(torch.from_numpy(numbers)).numpy(), list(axis.seen))


def _refuse_unknown(column: pd.Series, feature: Feature, numbers: NDArray[np.float64], seen: Sequence[int]) -> None:
    known = ", ".join(repr(feature.categories[index]) for index in seen if index < len(feature.categories))
    refuse(column, _unknown(feature, numbers, seen), f"is not a known category; known are: {known}")
