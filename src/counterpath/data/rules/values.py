"""The values of encoded rows in original units, as rules and structural equations need them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.data.axes import MixedAxes, NumberAxis, OneHotAxes, OrdinalAxis, on_grid, spacing, value_axis
from counterpath.data.encoding import Encoder
from counterpath.data.schema import TRANSFORMS, Transform

HALF = 0.5
"""Legal one-hot columns are 0 or 1; and half a whole number is as far as rounding goes."""
SURELY = 1.5
"""Times the step of the grid: a number as displayed is at most one step from its point."""
TIE = 1e-9
"""Relative: what floats make of a number that should be whole."""
_SAME = 1e-6  # of a range: a derived number is right up to this, ten times what encoding can tell

T = TypeVar("T")


def _once(compute: Callable[["EncodedValues", str], T]) -> Callable[["EncodedValues", str], T]:
    """Keep what is computed for each feature."""

    def kept(self: "EncodedValues", feature: str) -> T:
        key = (compute.__name__, feature)
        if key not in self._kept:
            self._kept[key] = compute(self, feature)
        return self._kept[key]  # type: ignore[return-value]

    return kept


class EncodedValues:
    """The values of encoded rows in original units, as `rules.Values` has them; each is decoded when it is needed."""

    def __init__(self, encoder: Encoder, x: Float[Tensor, "n D"], origin: Float[Tensor, "n D"] | None = None) -> None:
        self.encoder, self.x, self.origin = encoder, x, origin
        self._kept: dict[tuple[str, str], object] = {}

    def _columns(self, feature: str) -> tuple[int, slice]:
        index = self.encoder.position[feature]
        return index, self.encoder.layout[index]

    @_once
    def number(self, feature: str) -> Float[Tensor, "n"]:
        """Of legal rows; where it is a code or a gap, any number."""
        index, columns = self._columns(feature)
        axis, points = value_axis(self.encoder.axes[index]), self.x[:, columns]
        if isinstance(axis, OneHotAxes):
            return points.argmax(1).double()
        if isinstance(axis, OrdinalAxis):
            return (points[:, 0].double() * (axis.count - 1)).round()
        if axis.grid.shared and not axis.grid.plain:
            return axis.numbers(on_grid(points[:, :1], points.dtype))
        exact = axis.exact(points[:, 0])
        return exact.round() if axis.whole else exact

    @_once
    def known(self, feature: str) -> Bool[Tensor, "n"]:
        """Where it is neither a code nor a gap."""
        index, columns = self._columns(feature)
        axis = self.encoder.axes[index]
        if isinstance(axis, MixedAxes):
            return self.x[:, columns.start + 1] > HALF
        if isinstance(axis, OneHotAxes) and axis.gap:
            return self.x[:, columns.stop - 1] < HALF
        return torch.ones(len(self.x), dtype=torch.bool, device=self.x.device)

    @_once
    def slack(self, feature: str) -> Float[Tensor, "n"]:
        """A step of the grid, for numbers that need not be whole or on a grid of their own."""
        index, columns = self._columns(feature)
        axis, points = value_axis(self.encoder.axes[index]), self.x[:, columns]
        if not isinstance(axis, NumberAxis) or axis.whole or (axis.grid.shared and not axis.grid.plain):
            return torch.zeros(len(self.x), dtype=torch.float64, device=self.x.device)
        stored = 0.0 if axis.storage == torch.float64 else torch.finfo(axis.storage).eps
        return SURELY * axis._steps(points[:, :1]) + stored * self.number(feature).abs()

    @_once
    def rounding(self, feature: str) -> Float[Tensor, "n"]:
        """Half a whole number, half a step, or what encoding can tell."""
        index, _ = self._columns(feature)
        axis = value_axis(self.encoder.axes[index])
        if not isinstance(axis, NumberAxis):
            return torch.full_like(self.slack(feature), HALF * (1 + TIE))
        apart = 1.0 if axis.whole else 0.0
        if axis.grid.step is not None:
            apart = axis.grid.step[0] / axis.grid.step[1]
        if len(axis.grid.values) > 1:
            apart = max(b - a for a, b in zip(axis.grid.values, axis.grid.values[1:], strict=False))
        reach = self.encoder.high[index] - self.encoder.low[index]
        return self.slack(feature) + apart * HALF * (1 + TIE) + _SAME * reach

    @_once
    def changed(self, feature: str) -> Bool[Tensor, "n"]:
        """Where any of its columns is another; everywhere if it is not known what the rows were."""
        _, columns = self._columns(feature)
        if self.origin is None:
            return torch.ones(len(self.x), dtype=torch.bool, device=self.x.device)
        return (self.x[:, columns] != self.origin[:, columns]).any(-1)


@dataclass(frozen=True)
class FeatureReader:
    """Several features of encoded rows at once, as `EncodedValues` has each of them.

    Attributes:
        encoder: Knows how features are encoded.
        names: The features: those that have an order, by transform; then categories; then numbers on other grids.
        columns: Where those that have an order are encoded.
        span: By what each of these was divided.
        low: What each is counted from.
        transforms: How many of them have which transform.
        whole: Which of them are whole; None if all are.
        stored: By which share of themselves they may be off as they are stored; 0 of whole ones.
        numbered: By column and categorical feature the number of the category that the column stands for.
        states: The columns that say whether features are values.
        is_value: Which of these are 1 for a value; the others are for a gap.
        stated: By such a column and feature 1 where it is its own.
        every: All columns of the features.
        owner: By such a column and feature 1 where it is its own.
    """

    encoder: Encoder
    names: tuple[str, ...]
    columns: Int[Tensor, "m"]
    span: Float[Tensor, "m"]
    low: Float[Tensor, "m"]
    transforms: tuple[tuple[Transform, int], ...]
    whole: Bool[Tensor, "m"] | None
    stored: Float[Tensor, "m"]
    numbered: Float[Tensor, "D h"]
    states: Int[Tensor, "s"]
    is_value: Bool[Tensor, "s"]
    stated: Float[Tensor, "s f"]
    every: Int[Tensor, "c"]
    owner: Float[Tensor, "c f"]

    @classmethod
    def of(cls, encoder: Encoder, names: Iterable[str], device: torch.device) -> "FeatureReader":
        """Of some features."""
        ordered: dict[Transform, dict[str, tuple[float, float, float, bool]]] = {}
        categories: list[str] = []
        gridded: list[str] = []
        for name in names:
            value = value_axis(encoder.axes[encoder.position[name]])
            if isinstance(value, OneHotAxes):
                categories.append(name)
            elif isinstance(value, OrdinalAxis):
                ordered.setdefault(TRANSFORMS["identity"], {})[name] = (value.count - 1.0, 0.0, 0.0, True)
            elif value.whole or not value.grid.shared or value.grid.plain:
                eps = 0.0 if value.storage == torch.float64 else torch.finfo(value.storage).eps
                ordered.setdefault(value.transform, {})[name] = (value.span, float(value.low), eps, value.whole)
            else:
                gridded.append(name)
        numbers = {name: scale for some in ordered.values() for name, scale in some.items()}
        listed = (*numbers, *categories, *gridded)
        parts = [encoder.layout[encoder.position[name]] for name in listed]
        scales = torch.tensor(list(numbers.values()), dtype=torch.float64, device=device).view(-1, 4).T
        numbered = torch.zeros(encoder.width, len(categories), device=device)
        for number, part in enumerate(parts[len(numbers) : len(numbers) + len(categories)]):
            numbered[part, number] = torch.arange(float(part.stop - part.start), device=device)
        states = []
        for index, (name, part) in enumerate(zip(listed, parts, strict=True)):
            axis = encoder.axes[encoder.position[name]]
            if isinstance(axis, MixedAxes):
                states.append((index, part.start + 1, True))
            elif isinstance(axis, OneHotAxes) and axis.gap:
                states.append((index, part.stop - 1, False))
        every = [(column, index) for index, part in enumerate(parts) for column in range(part.start, part.stop)]
        owned = torch.tensor(every, dtype=torch.long, device=device).view(-1, 2)
        return cls(
            encoder,
            listed,
            torch.tensor([part.start for part in parts[: len(numbers)]], dtype=torch.long, device=device),
            scales[0],
            scales[1],
            tuple((transform, len(some)) for transform, some in ordered.items()),
            None if bool(scales[3].all()) else scales[3] > 0,
            scales[2],
            numbered,
            torch.tensor([column for _, column, _ in states], dtype=torch.long, device=device),
            torch.tensor([is_value for _, _, is_value in states], dtype=torch.bool, device=device),
            torch.eye(len(listed), device=device)[[index for index, _, _ in states]],
            owned[:, 0],
            torch.eye(len(listed), device=device)[owned[:, 1]],
        )

    def numbers(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n f"]:
        """The numbers of all features."""
        found = [self.numbers_at(x[:, self.columns])]
        if self.numbered.shape[1]:  # legal rows have one 1, so that the sum has one term
            found.append((x @ self.numbered.to(x.dtype)).double())
        gridded = self.names[len(self.columns) + self.numbered.shape[1] :]
        if gridded:
            values = EncodedValues(self.encoder, x)
            found += [values.number(name)[:, None] for name in gridded]
        return found[0] if len(found) == 1 else torch.cat(found, 1)

    def numbers_at(self, y: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
        """The numbers of points of those that have an order."""
        exact = self._exact(y.double())
        return exact.round() if self.whole is None else torch.where(self.whole, exact.round(), exact)

    def points(self, numbers: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
        """The points of numbers of those that have an order: the inverse of `numbers_at`."""
        found, first = [], 0
        for transform, count in self.transforms:
            part = slice(first, first + count)
            found.append(transform.forward(numbers[:, part], self.low[part]))
            first += count
        return (found[0] if len(found) == 1 else torch.cat(found, 1)) / self.span

    def _exact(self, y: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
        """The numbers of points, not yet whole."""
        scaled, found, first = y * self.span, [], 0
        for transform, count in self.transforms:
            part = slice(first, first + count)
            found.append(transform.inverse(scaled[:, part], self.low[part]))
            first += count
        return scaled if not found else found[0] if len(found) == 1 else torch.cat(found, 1)

    def slack(self, x: Float[Tensor, "n D"], numbers: Float[Tensor, "n f"]) -> Float[Tensor, "n f"] | None:
        """By how much numbers may differ from what is displayed, as `EncodedValues` has it; None if none may."""
        if self.whole is None:
            return None
        y, here = x[:, self.columns].double(), numbers[:, : len(self.columns)]
        off = SURELY * (self._exact(y + spacing(y)) - self._exact(y)).abs() + self.stored * here.abs()
        found = torch.zeros_like(numbers)
        found[:, : len(self.columns)] = off.masked_fill(self.whole, 0)
        return found

    def unknown(self, x: Float[Tensor, "n D"]) -> Bool[Tensor, "n f"] | None:
        """Where features are codes or gaps; None if none can be."""
        if not len(self.states):
            return None
        return ((x[:, self.states] > HALF) != self.is_value).to(self.stated.dtype) @ self.stated > 0

    def changed(self, x: Float[Tensor, "n D"], origin: Float[Tensor, "n D"]) -> Bool[Tensor, "n f"]:
        """Where any column of a feature is another."""
        return (x[:, self.every] != origin[:, self.every]).float() @ self.owner > 0


class Readings:
    """What rules need to know of n rows, and of what they were; each is read when it is needed, and once.

    Attributes:
        reader: Of all features that the rules are about.
        x: Legal rows.
        origin: What each of them was before anything changed.
        numbers: Of the rows.
        before: Of what they were; none if nobody asks.
    """

    def __init__(
        self, reader: FeatureReader, x: Float[Tensor, "n D"], origin: Float[Tensor, "n D"], *, before: bool
    ) -> None:
        self.reader, self.x, self.origin = reader, x, origin
        both = reader.numbers(torch.cat([x, origin]) if before else x)  # together they take half the time
        self.numbers, self.before = both[: len(x)], both[len(x) :]

    @cached_property
    def slack(self) -> Float[Tensor, "n f"] | None:
        """By how much numbers may differ from what is displayed; None if none does."""
        return self.reader.slack(self.x, self.numbers)

    @cached_property
    def changed(self) -> Bool[Tensor, "n f"]:
        """Where features are not as they were."""
        return self.reader.changed(self.x, self.origin)

    @cached_property
    def unknown(self) -> Bool[Tensor, "n f"] | None:
        """Where features are codes or gaps; None if none can be."""
        return self.reader.unknown(self.x)

    @cached_property
    def ever_unknown(self) -> Bool[Tensor, "n f"] | None:
        """Where they are or were."""
        before = self.reader.unknown(self.origin)
        return None if self.unknown is None or before is None else self.unknown | before
