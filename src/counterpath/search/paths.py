"""Paths of many rows, their points one after another: built, truncated, selected and merged."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.search.traverse import StopReason, Trajectory

_OF_POINTS = ("x", "z", "sigma", "probability", "valid")
_OF_ROWS = ("reason", "fallback", "gap", "implausible")


@dataclass(frozen=True)
class Paths:
    """The paths of n rows, their points one after another; the first point is the factual itself.

    Attributes:
        row: Which row a point belongs to, in ascending order.
        x: Points as legal encoded rows.
        z: Their codes.
        sigma: The decoder's uncertainty there, averaged over the features.
        probability: Of the target, by the explained model.
        valid: Which points are valid: the target is predicted there with the asked confidence.
        reason: Why the search of each row stopped.
        fallback: Which paths the fallback found.
        gap: Whose path crosses a gap in the data.
        implausible: Whose counterfactual is farther from the data than it was to be, because there is none nearer.
    """

    row: Int[Tensor, "p"]
    x: Float[Tensor, "p D"]
    z: Float[Tensor, "p d"]
    sigma: Float[Tensor, "p"]
    probability: Float[Tensor, "p"]
    valid: Bool[Tensor, "p"]
    reason: Int[Tensor, "n"]
    fallback: Bool[Tensor, "n"]
    gap: Bool[Tensor, "n"]
    implausible: Bool[Tensor, "n"]

    @property
    def last(self) -> Int[Tensor, "n"]:
        """The index of the last point of each row."""
        return torch.bincount(self.row, minlength=len(self.reason)).cumsum(0) - 1

    @property
    def found(self) -> Bool[Tensor, "n"]:
        """Which rows end at a counterfactual."""
        return self.reason == StopReason.CONFIDENCE_REACHED

    def points(self, keep: Tensor, **changes: Tensor) -> "Paths":
        """Some of the points, by a mask or by indices."""
        return replace(self, **{name: getattr(self, name)[keep] for name in ("row", *_OF_POINTS)}, **changes)

    def described_as(self, other: "Paths") -> "Paths":
        """The same with what is said of other paths of the same rows: how they were found."""
        return replace(self, fallback=other.fallback, gap=other.gap, implausible=other.implausible)

    def select(self, rows: Int[Tensor, "m"]) -> "Paths":
        """The paths of these rows, numbered anew; a row may be there more than once."""
        counts = torch.bincount(self.row, minlength=len(self.reason))
        number = torch.arange(len(rows), device=rows.device).repeat_interleave(counts[rows])
        taken = counts[rows].cumsum(0) - counts[rows]
        starts = (counts.cumsum(0) - counts)[rows]
        points = torch.arange(len(number), device=rows.device) - taken[number] + starts[number]
        kept = self.points(points, **{name: getattr(self, name)[rows] for name in _OF_ROWS})
        return replace(kept, row=number)

    def filter(self, mask: Bool[Tensor, "n"]) -> "Paths":
        """The paths of some rows, numbered anew."""
        return self.select(mask.nonzero()[:, 0])

    def replace_where(self, mask: Bool[Tensor, "n"], other: "Paths") -> "Paths":
        """The paths of another search for the same rows where the mask says so, and these elsewhere."""
        rows = torch.arange(len(mask), device=mask.device)
        return merge([(rows[~mask], self.filter(~mask)), (rows[mask], other.filter(mask))])

    def truncate(self) -> "Paths":
        """The paths up to their first valid point; those that have none up to the point of highest probability."""
        count, index = len(self.reason), torch.arange(len(self.row), device=self.row.device)
        reached = torch.zeros_like(self.fallback)
        reached = reached.index_put((self.row[self.valid],), torch.tensor(True, device=index.device))
        best = torch.full((count,), -1.0, dtype=self.probability.dtype, device=index.device)
        best = best.scatter_reduce(0, self.row, self.probability, "amax")
        end = torch.where(reached[self.row], self.valid, self.probability == best[self.row])
        first = torch.full((count,), len(index), device=index.device)
        first = first.scatter_reduce(0, self.row[end], index[end], "amin")
        missed = torch.where(self.reason == StopReason.CONFIDENCE_REACHED, StopReason.ALL_STEPS_TAKEN, self.reason)
        reason = torch.where(reached, StopReason.CONFIDENCE_REACHED, missed)
        return self.points(index <= first[self.row], reason=reason)


def merge(parts: Sequence[tuple[Tensor, Paths]]) -> Paths:
    """One value of several, each with the indices of its rows."""
    rows = torch.cat([indices for indices, _ in parts])
    joined: dict[str, Any] = {
        name: torch.cat([getattr(paths, name) for _, paths in parts]) for name in (*_OF_POINTS, *_OF_ROWS)
    }
    row = torch.cat([indices[paths.row] for indices, paths in parts])
    order = row.argsort(stable=True)
    by_row = rows.argsort()
    for name, values in joined.items():
        joined[name] = values[by_row] if name in _OF_ROWS else values[order]
    return Paths(row=row[order], **joined)


def better_paths(before: Paths | None, after: Paths) -> Paths:
    """Of two searches for the same rows the later one where it found a counterfactual, or came closer to one."""
    if before is None:
        return after
    closer = after.found | (after.probability[after.last] > before.probability[before.last])
    return replace(before.replace_where(closer, after), reason=after.reason)


def trajectory_points(found: Trajectory) -> tuple[Tensor, Tensor, Tensor]:
    """The points that each row took, row after row: to which row each belongs, the decoded row and its code."""
    times = torch.arange(len(found.x), device=found.x.device)
    taken = times <= found.steps[:, None]
    row = torch.arange(len(found.steps), device=found.x.device)[:, None].expand_as(taken)[taken]
    return row, found.x.transpose(0, 1)[taken], found.z.transpose(0, 1)[taken]


def prepend(factual: Tensor, start: Tensor, row: Tensor, x: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The points of paths, with the factual row put before those of each row."""
    first = torch.arange(len(factual), device=factual.device)
    row = torch.cat([first, row])
    order = row.argsort(stable=True)
    return row[order], torch.cat([factual, x])[order], torch.cat([start, z])[order]


def line_points(steps: Float[Tensor, "n"]) -> tuple[Int[Tensor, "p"], Float[Tensor, "p"]]:
    """Lines of so many steps, rounded up: to which row each point belongs, and which fraction of its line it is at."""
    counts = steps.ceil().long().clamp_min(1)
    row = torch.arange(len(counts), device=steps.device).repeat_interleave(counts + 1)
    starts = (counts + 1).cumsum(0) - (counts + 1)
    index = torch.arange(len(row), device=steps.device) - starts[row]
    return row, index.to(steps.dtype) / counts[row]


def is_first(row: Int[Tensor, "p"]) -> Bool[Tensor, "p"]:
    """Which points are the first of their row."""
    first = torch.ones_like(row, dtype=torch.bool)
    first[1:] = row[1:] != row[:-1]
    return first


def path_fraction(row: Int[Tensor, "p"]) -> Float[Tensor, "p"]:
    """At which fraction of its path each point is, by steps: from 0 to 1, and 1 for a path of one point."""
    counts = torch.bincount(row)
    index = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    steps = counts[row] - 1
    return torch.where(steps > 0, index / steps.clamp_min(1), 1.0)


def plausible_points(row: Int[Tensor, "p"], distance: Float[Tensor, "p"], typical: float) -> Bool[Tensor, "p"]:
    """Which points of paths are as close to the data as the ends of their path, or as real rows typically are.

    Between two such points a decoder may jump over values that nobody has: a capital loss is 0 or about 1,900. A path
    over a roadmap then jumps, too, because what lies between is not plausible.
    """
    first = is_first(row)
    last = torch.cat([first[1:], torch.ones_like(first[:1])])
    allowed = torch.maximum(distance[first], distance[last]).clamp_min(typical)
    return first | last | (distance <= allowed[row])
