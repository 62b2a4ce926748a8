"""Tables to tensors in [0, 1] and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from counterpath.data.columns import check_columns, dtype_name, from_numbers, refuse, to_numbers
from counterpath.data.schema import KINDS, TRANSFORMS, Schema
from counterpath.errors import InputError

_RESOLUTION = torch.finfo(torch.float32).eps
_UNCHANGED = 1e-5
_ROUNDING = 1e-14  # of the arithmetic in float64


@dataclass(frozen=True)
class Encoder:
    """DataFrame ⇄ tensor: y = (t(x) − t(low)) / (t(high) − t(low)), with the transform t of each feature.

    A category is first its place in the schema's list, so that a binary feature is 0 or 1. Arithmetic is in float64,
    encoded rows are float32.

    - A value outside the range of the training rows is encoded outside [0, 1] and not clipped, so that `decode` is the
      inverse of `encode` for every row. `round` clips.
    - `decode` gives back whole numbers and bounds exactly, and other numbers to the resolution of float32, 1.2e-7 of
      the (transformed) range. Whole numbers are told apart in ranges up to eight million, under log1p half a million.
    - A column that is constant in the training rows is never changed by `round`.

    Attributes:
        schema: The features, one column of the tensor each, in this order.
        dtypes: The dtype of every column, in the order of the table that was fitted; `decode` restores both.
        low: The smallest value of each feature in the fitted rows, in original units; for categories their place.
        high: The largest one.

    Example:
        >>> from counterpath.data import Feature, Schema
        >>> frame = pd.DataFrame({"age": [20, 60], "sex": ["Male", "Female"]})
        >>> schema = Schema((Feature("age", "continuous"), Feature("sex", "binary", categories=("Female", "Male"))))
        >>> Encoder.fit(frame, schema).encode(frame).tolist()
        [[0.0, 1.0], [1.0, 0.0]]
    """

    schema: Schema
    dtypes: Mapping[str, str]
    low: tuple[float, ...]
    high: tuple[float, ...]

    @classmethod
    def fit(cls, frame: pd.DataFrame, schema: Schema) -> "Encoder":
        """Learn ranges and dtypes from `frame`: give it the training rows, and none that are held out."""
        numbers = _numbers(frame, schema)
        if len(frame) == 0:
            raise InputError("an encoder needs rows to learn from, and the table has none")
        last = [len(feature.categories) - 1.0 for feature in schema]
        _refuse_unknown(frame, schema, numbers, [0.0] * len(schema), last)
        low, high = numbers.min(axis=0).tolist(), numbers.max(axis=0).tolist()
        for name, lowest, highest in zip(schema.names, low, high, strict=True):
            if not np.isfinite(highest - lowest):
                raise InputError(f"column {name!r} goes from {lowest:g} to {highest:g}, too far to be scaled to [0, 1]")
        dtypes = {name: dtype_name(frame[name], schema[name]) for name in frame.columns}
        encoder = cls(schema, dtypes, tuple(low), tuple(high))
        for name, lower, upper in zip(schema.names, *encoder._legal, strict=True):
            if lower > upper:
                raise InputError(
                    f"column {name!r} has no legal value from {lower:g} to {upper:g}: a bound of the schema excludes "
                    "the training rows; give the feature both bounds, or neither"
                )
        return encoder

    @property
    def width(self) -> int:
        """The number of columns of an encoded row."""
        return len(self.schema)

    def known(self, frame: pd.DataFrame) -> "pd.Series[bool]":
        """Which rows have only categories that were seen in training: those that `encode` takes."""
        unknown = _unknown(self.schema, _numbers(frame, self.schema), self.low, self.high)
        return pd.Series(~unknown.any(axis=1), index=frame.index)

    def encode(self, frame: pd.DataFrame) -> Float[Tensor, "n d"]:
        """Turn a table, its columns in any order, into float32 rows in the order of the schema.

        Raises:
            InputError: A column is missing or too many; or a value is missing, infinite, not of the feature's kind, or
                a category that was never seen in training. The column and the first bad row are named.
        """
        numbers = _numbers(frame, self.schema)
        _refuse_unknown(frame, self.schema, numbers, self.low, self.high)
        encoded = self._scaled(torch.from_numpy(numbers)).to(torch.float32)
        # float32 overflows where float64 does not.
        for name, column, low, high in zip(self.schema.names, encoded.T, self.low, self.high, strict=True):
            problem = f"is too far from the training rows, which go from {low:g} to {high:g}, to be encoded"
            refuse(frame[name], ~column.isfinite().numpy(), problem)
        return encoded

    def decode(self, encoded: Float[Tensor, "n d"], index: pd.Index | None = None) -> pd.DataFrame:
        """Turn encoded rows into a table in original units, with the columns and dtypes of the fitted one.

        Categories and integers come back as the nearest one. A continuous feature whose column had an integer dtype has
        it again where all values are whole, and float64 where they are not.

        Args:
            encoded: Rows in the order of the schema, finite.
            index: The index of the table; by default 0, 1, 2, …
        """
        rows = encoded.detach().to("cpu", torch.float64)
        if rows.shape[1] != self.width or not rows.isfinite().all():
            raise InputError(
                f"encoded rows must be finite, with {self.width} columns; given were {rows.shape[1]} columns, "
                f"{int((~rows.isfinite()).sum())} values not finite"
            )
        numbers = self._unscaled(rows)
        numbers = torch.where(self._whole, numbers.round(), numbers)
        # What an encoded row cannot tell from a whole number, or from a bound, is one. Adding 0 makes -0 a 0.
        for candidate in (numbers.round() + 0.0, *self._legal):
            same = self._scaled(candidate.expand_as(rows)).isclose(rows, rtol=_RESOLUTION, atol=_ROUNDING)
            numbers = torch.where(same, candidate, numbers)
        index = pd.RangeIndex(len(rows)) if index is None else index
        columns = {
            feature.name: from_numbers(column.numpy(), feature, self.dtypes[feature.name], index)
            for feature, column in zip(self.schema, numbers.T, strict=True)
        }
        return pd.DataFrame({name: columns[name] for name in self.dtypes}, index=index)

    def round(self, encoded: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """The nearest legal rows, still encoded: categories and integers whole, everything within its bounds.

        A bound is the schema's, and where it has none, the range of the training rows. Continuous features are not
        rounded. This is what is measured and returned; it keeps dtype and device.
        """
        lower, upper = (bound.to(encoded.device) for bound in self._legal)
        rows = encoded.to(torch.float64)
        whole = self._scaled((self._unscaled(rows).round() + 0.0).clamp(lower, upper))
        within = rows.clamp(self._scaled(lower[None]), self._scaled(upper[None]))
        return torch.where(self._whole.to(encoded.device), whole, within).to(encoded.dtype)

    def changed(self, before: Float[Tensor, "n d"], after: Float[Tensor, "n d"]) -> Bool[Tensor, "n f"]:
        """Which features differ between legal rows, in original units.

        A category or an integer differs if it is another one; a continuous value if it is more than 1e-5 of its range
        in the training rows away.
        """
        first, second = (self._unscaled(rows.to(torch.float64)) for rows in (before, after))
        reach = torch.tensor([high - low for low, high in zip(self.low, self.high, strict=True)], dtype=torch.float64)
        tolerance = torch.where(self._whole, 0.5, _UNCHANGED * reach).to(first.device)
        return (first - second).abs() > tolerance

    def to_json(self) -> dict[str, Any]:
        """A value that `json.dumps` takes and `from_json` turns back into an equal encoder."""
        return {
            "schema": self.schema.to_json(),
            "dtypes": dict(self.dtypes),
            "low": list(self.low),
            "high": list(self.high),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Encoder":
        """Build an encoder from the value of `to_json`."""
        missing = {"schema", "dtypes", "low", "high"} - value.keys()
        if missing:
            raise InputError(f"this is not an encoder in JSON: it lacks {', '.join(sorted(missing))}")
        schema = Schema.from_json(value["schema"])
        low, high = (tuple(float(number) for number in value[name]) for name in ("low", "high"))
        return cls(schema, dict(value["dtypes"]), low, high)

    @cached_property
    def _whole(self) -> Tensor:
        return torch.tensor([KINDS[feature.kind].whole for feature in self.schema])

    @cached_property
    def _legal(self) -> tuple[Tensor, Tensor]:
        """The smallest and largest legal number of each feature."""
        bounds = [
            (low, high)
            if low == high  # a constant never changes, whatever the schema allows
            else (
                low if feature.lower is None else feature.lower,
                high if feature.upper is None else feature.upper,
            )
            for feature, low, high in zip(self.schema, self.low, self.high, strict=True)
        ]
        lower, upper = torch.tensor(bounds, dtype=torch.float64).unbind(dim=1)
        return lower, upper

    @cached_property
    def _scale(self) -> tuple[Tensor, Tensor]:
        """What is encoded as 0, and how far from it is what is encoded as 1, both transformed."""
        zeros, spans = [], []
        for feature, low, high in zip(self.schema, self.low, self.high, strict=True):
            ends = (low, high) if KINDS[feature.kind].categories is None else (0.0, len(feature.categories) - 1.0)
            zero, one = TRANSFORMS[feature.transform].forward(torch.tensor(ends, dtype=torch.float64))
            zeros.append(zero)
            spans.append(one - zero if one > zero else torch.ones_like(one))
        return torch.stack(zeros), torch.stack(spans)

    def _scaled(self, numbers: Tensor) -> Tensor:
        zero, span = (part.to(numbers.device) for part in self._scale)
        transforms = (TRANSFORMS[feature.transform] for feature in self.schema)
        columns = [transform.forward(column) for transform, column in zip(transforms, numbers.T, strict=True)]
        return (torch.stack(columns, dim=1) - zero) / span

    def _unscaled(self, rows: Tensor) -> Tensor:
        zero, span = (part.to(rows.device) for part in self._scale)
        transforms = (TRANSFORMS[feature.transform] for feature in self.schema)
        columns = (rows * span + zero).T
        return torch.stack([t.inverse(column) for t, column in zip(transforms, columns, strict=True)], dim=1)


def _numbers(frame: pd.DataFrame, schema: Schema) -> NDArray[np.float64]:
    check_columns(frame, schema)
    return np.column_stack([to_numbers(frame[feature.name], feature) for feature in schema])


def _unknown(
    schema: Schema, numbers: NDArray[np.float64], low: Sequence[float], high: Sequence[float]
) -> NDArray[np.bool_]:
    """Where a category's place is not between those of the first and the last one that are known."""
    category = np.array([KINDS[feature.kind].categories is not None for feature in schema])
    return category & ((numbers < np.array(low)) | (numbers > np.array(high)))


def _refuse_unknown(
    frame: pd.DataFrame, schema: Schema, numbers: NDArray[np.float64], low: Sequence[float], high: Sequence[float]
) -> None:
    unknown = _unknown(schema, numbers, low, high)
    for feature, bad, first, last in zip(schema, unknown.T, low, high, strict=True):
        known = ", ".join(repr(value) for value in feature.categories[int(first) : int(last) + 1])
        refuse(frame[feature.name], bad, f"is not a known category; known are: {known}")
