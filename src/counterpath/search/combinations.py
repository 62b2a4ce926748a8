"""Combinations of values that nobody has: pairs that no training row shows, and what the schema forbids.

A counterfactual may be close to the data in every distance and still be nobody: a husband who is female. A pair of
categories, or of a category and a tenth of a number, that never occurs in the training rows is not advised to anybody
who does not have it already.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from counterpath.data.axes import Axis, MixedAxes, OrdinalAxis
from counterpath.data.constraints import parse_forbidden, range_ends
from counterpath.data.encoding import Encoder

_TENTHS = 10
"""Into how many parts of equal size a number is cut. Finer, and a pair is missing by chance in tables of some thousand
rows; coarser, and 20-year-old widowers are like 30-year-old ones."""


class _Numbers(NamedTuple):
    """Features that are plain numbers: which they are, their columns and edges; and all other features."""

    features: Int[Tensor, "p"]
    columns: Int[Tensor, "p"]
    edges: Float[Tensor, "p e"]
    others: tuple[int, ...]


_AT_ONCE = 50_000  # rows whose parts are held at once, in twice the memory of the rows


@dataclass(frozen=True)
class Combinations:
    """Which combinations of values are seen and allowed.

    Attributes:
        encoder: Knows where features lie.
        edges: For each feature with numbers the upper ends of its parts but the last, encoded; None for categories.
            A code or a gap is a part of its own.
        first: The index of the first part or category of each feature among those of all.
        seen: Whether two of them occur together in a training row; always for two parts of numbers.
        forbidden: What the schema forbids: for each combination by feature its columns, and the points of each
            category, or the lower and the upper point of an interval.
        active: Whether unseen pairs count; what is forbidden always does.
    """

    encoder: Encoder
    edges: tuple[Float[Tensor, "_"] | None, ...]
    first: Int[Tensor, "f"]
    seen: Bool[Tensor, "b b"]
    forbidden: tuple[tuple[tuple[slice, Tensor, Tensor], ...], ...] = ()
    active: bool = True

    @classmethod
    def fit(cls, encoder: Encoder, rows: Float[Tensor, "n D"]) -> "Combinations":
        """Those of training rows."""
        edges = tuple(
            None if feature.categories else _parts(rows[:, columns.start])
            for feature, columns in zip(encoder.schema, encoder.layout, strict=True)
        )
        counts = [_count(axis, edge) for axis, edge in zip(encoder.axes, edges, strict=True)]
        first = torch.tensor([0, *counts], device=rows.device).cumsum(0)
        total = int(first[-1])
        found = cls(encoder, edges, first[:-1], torch.ones(total, total, dtype=torch.bool, device=rows.device))
        seen = torch.zeros_like(found.seen)
        for some in rows.split(_AT_ONCE):
            parts = found.parts(some)
            for one, other in combinations(range(len(counts)), 2):
                seen.view(-1)[parts[:, one] * total + parts[:, other]] = True
        for one, other in combinations(range(len(counts)), 2):
            if edges[one] is not None and edges[other] is not None:
                ends = [slice(int(first[k]), int(first[k + 1])) for k in (one, other)]
                seen[ends[0], ends[1]] = True
        forbidden = tuple(_forbidden(encoder, each, rows.device) for each in parse_forbidden(encoder.schema))
        itself = torch.eye(total, dtype=torch.bool, device=rows.device)
        return replace(found, seen=seen | seen.T | itself, forbidden=forbidden)

    def parts(self, x: Float[Tensor, "n D"]) -> Int[Tensor, "n f"]:
        """The part or category that rows have of each feature."""
        found = torch.empty(len(x), len(self.edges), dtype=torch.long, device=x.device)
        numbers = self._numbers
        if len(numbers.features):
            found[:, numbers.features] = torch.searchsorted(numbers.edges.to(x), x[:, numbers.columns].T.contiguous()).T
        for feature in numbers.others:
            columns = self.encoder.layout[feature]
            found[:, feature] = _part(self.encoder.axes[feature], self.edges[feature], x[:, columns])
        return found + self.first

    @cached_property
    def _numbers(self) -> "_Numbers":
        """The features whose parts are found all at once."""
        layout, axes, device = self.encoder.layout, self.encoder.axes, self.seen.device
        plain = [
            feature
            for feature, edge in enumerate(self.edges)
            if edge is not None and not isinstance(axes[feature], MixedAxes)
        ]
        edges = [edge for feature in plain if (edge := self.edges[feature]) is not None]
        most = max((len(edge) for edge in edges), default=0)
        padded = [pad(edge, (0, most - len(edge)), value=torch.inf) for edge in edges]
        return _Numbers(
            torch.tensor(plain, dtype=torch.long, device=device),
            torch.tensor([layout[feature].start for feature in plain], dtype=torch.long, device=device),
            torch.stack(padded) if padded else torch.zeros(0, 0, device=device),
            tuple(feature for feature in range(len(self.edges)) if feature not in plain),
        )

    def unseen(self, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"]) -> Bool[Tensor, "n f f"]:
        """Which pairs of features of each row no training row shows, beside those that the factual row has already."""
        parts, before = self.parts(x), self.parts(factual)
        missing = ~self.seen[parts[:, :, None], parts[:, None, :]]
        moved = parts != before
        return missing & (moved[:, :, None] | moved[:, None, :]) & self._upper

    @property
    def _upper(self) -> Tensor:
        count = len(self.edges)
        return torch.ones(count, count, dtype=torch.bool, device=self.seen.device).triu(1)

    def allowed(self, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"]) -> Bool[Tensor, "n"]:
        """Which rows have no combination that is forbidden or, if these count, unseen, unless they had it already."""
        good = torch.ones(len(x), dtype=torch.bool, device=x.device)
        if self.active:
            good = ~self.unseen(x, factual).flatten(1).any(1)
        return good & self._not_forbidden(x, factual)

    def allowed_among_many(
        self, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"], before: Int[Tensor, "n f"] | None = None
    ) -> Bool[Tensor, "n"]:
        """The same, sooner for many rows; but it waits for the device, and cannot be captured in a CUDA graph.

        Only the pairs of features that are in another part than before are looked at: mostly two or three.

        Args:
            x: The rows.
            factual: Their factual rows.
            before: The parts of these, where they are known.
        """
        good = torch.ones(len(x), dtype=torch.bool, device=x.device)
        if self.active:
            parts = self.parts(x)
            row, feature = (parts != (self.parts(factual) if before is None else before)).nonzero(as_tuple=True)
            unseen = ~self.seen.view(-1)[parts[row, feature][:, None] * len(self.seen) + parts[row]].all(1)
            good[row[unseen]] = False
        return good & self._not_forbidden(x, factual)

    def _not_forbidden(self, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"]) -> Bool[Tensor, "n"]:
        good = torch.ones(len(x), dtype=torch.bool, device=x.device)
        for combination in self.forbidden:
            good &= ~_holds(combination, x) | _holds(combination, factual)
        return good

    def count(self, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"]) -> Int[Tensor, "n"]:
        """How many pairs of each row no training row shows, beside those that the factual row has already."""
        return self.unseen(x, factual).flatten(1).sum(1)

    def names(self, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"]) -> list[list[tuple[str, str]]]:
        """The features of these pairs, for each row."""
        named, found = self.encoder.schema.names, self.unseen(x, factual).cpu()
        return [[(named[one], named[other]) for one, other in pairs.nonzero().tolist()] for pairs in found]

    def loosened(self) -> "Combinations":
        """The same without the rule on unseen pairs."""
        return replace(self, active=False)


def _count(axis: Axis, edge: Tensor | None) -> int:
    """How many parts, or categories, a feature has."""
    if isinstance(axis, MixedAxes):
        return _count(axis.value, edge) + axis.states.width - 1
    if edge is not None:
        return len(edge) + 1
    return axis.count if isinstance(axis, OrdinalAxis) else axis.width


def _part(axis: Axis, edge: Tensor | None, x: Float[Tensor, "n w"]) -> Int[Tensor, "n"]:
    """Which of them encoded rows have."""
    if isinstance(axis, MixedAxes):
        state = x[:, 1:].argmax(-1)
        return torch.where(state == 0, _part(axis.value, edge, x[:, :1]), _count(axis.value, edge) + state - 1)
    if edge is not None:
        return torch.bucketize(x[:, 0].contiguous(), edge.to(x))
    if isinstance(axis, OrdinalAxis):
        return (x[:, 0] * (axis.count - 1)).round().long()
    return x.argmax(-1)


def _parts(column: Tensor) -> Tensor:
    """The upper ends of ten parts of equal size but the last; fewer where many values are equal."""
    ends = torch.linspace(0, 1, _TENTHS + 1, dtype=torch.float64, device=column.device)[1:-1]
    ranks = (ends * (len(column) - 1)).round().long()
    edges: Tensor = column.sort().values[ranks].unique()
    return edges[edges < column.max()]


def _forbidden(
    encoder: Encoder, combination: Mapping[str, tuple[Any, ...]], device: torch.device
) -> tuple[tuple[slice, Tensor, Tensor], ...]:
    """For each feature of a combination its columns, and which points belong to it, each from a lower to an upper."""
    found = []
    for name, values in combination.items():
        feature, index = encoder.schema[name], encoder.schema.index(name)
        columns, axis = encoder.layout[index], encoder.axes[index]
        if feature.categories:
            numbers = [float(feature.categories.index(value)) for value in values]
            points = axis.points(torch.tensor(numbers, dtype=torch.float64))
            low = high = points
        else:
            ends = torch.tensor(range_ends(feature, values), dtype=torch.float64)
            points = axis.points(ends.nan_to_num())  # an open end has no point
            points[:, 0] = torch.where(ends.isinf(), ends, points[:, 0])
            low, high = points[:, None]
        found.append((columns, low.float().to(device), high.float().to(device)))
    return tuple(found)


def _holds(combination: tuple[tuple[slice, Tensor, Tensor], ...], x: Tensor) -> Tensor:
    good = torch.ones(len(x), dtype=torch.bool, device=x.device)
    for columns, low, high in combination:
        here = x[:, None, columns]
        good &= ((here >= low - _EDGE) & (here <= high + _EDGE)).all(-1).any(-1)
    return good


_EDGE = 1e-6
"""Of a range: the ends of a forbidden interval are in it, and float32 is right to half of this."""
