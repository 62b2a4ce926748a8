"""Paths of many rows, their points one after another: built, cut, picked and put together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.search.traverse import StopReason, Trajectory

_OF_ROWS = ("reason", "led", "gap")


@dataclass(frozen=True)
class Paths:
    """The paths of n rows, their points one after another; the first point is the factual itself.

    Attributes:
        row: Which row a point belongs to, in ascending order.
        x: Points as legal encoded rows.
        z: Their codes.
        sigma: The decoder's uncertainty there, averaged over the features.
        probability: Of the wanted outcome, by the model under explanation.
        met: Where the model gives the wanted outcome with the asked confidence.
        reason: Why the search of each row stopped.
        led: Which rows were led to a landmark, because the search had got stuck.
        gap: Whose path crosses a gap in the data.
    """

    row: Int[Tensor, "p"]
    x: Float[Tensor, "p D"]
    z: Float[Tensor, "p d"]
    sigma: Float[Tensor, "p"]
    probability: Float[Tensor, "p"]
    met: Bool[Tensor, "p"]
    reason: Int[Tensor, "n"]
    led: Bool[Tensor, "n"]
    gap: Bool[Tensor, "n"]

    @property
    def last(self) -> Int[Tensor, "n"]:
        """Where the last point of each row is."""
        return torch.bincount(self.row, minlength=len(self.reason)).cumsum(0) - 1

    @property
    def found(self) -> Bool[Tensor, "n"]:
        """Which rows end at a counterfactual."""
        return self.reason == StopReason.CONFIDENCE_REACHED

    def points(self, keep: Tensor, **changes: Tensor) -> "Paths":
        """Some of the points, by a mask or by their places."""
        of_points = ("row", "x", "z", "sigma", "probability", "met")
        return replace(self, **{name: getattr(self, name)[keep] for name in of_points}, **changes)


def shares(steps: Float[Tensor, "n"]) -> tuple[Int[Tensor, "p"], Float[Tensor, "p"]]:
    """Lines of so many steps, rounded up: to which row a point belongs, and how much of the way lies behind it."""
    counts = steps.ceil().long().clamp_min(1)
    row = torch.arange(len(counts), device=steps.device).repeat_interleave(counts + 1)
    firsts = (counts + 1).cumsum(0) - (counts + 1)
    place = torch.arange(len(row), device=steps.device) - firsts[row]
    return row, place.to(steps.dtype) / counts[row]


def firsts(row: Int[Tensor, "p"]) -> Bool[Tensor, "p"]:
    """Which points are the first of their row."""
    first = torch.ones_like(row, dtype=torch.bool)
    first[1:] = row[1:] != row[:-1]
    return first


def progress(row: Int[Tensor, "p"]) -> Float[Tensor, "p"]:
    """How much of the way of its row lies behind each point, from 0 to 1 (1 for a path of one point), by steps."""
    counts = torch.bincount(row)
    place = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    behind = counts[row] - 1
    return torch.where(behind > 0, place / behind.clamp_min(1), 1.0)


def stations(row: Int[Tensor, "p"], distance: Float[Tensor, "p"], typical: float) -> Bool[Tensor, "p"]:
    """Which points of paths are as close to the data as the ends of their path, or as real rows typically are.

    Between two such points a decoder may leap over values that nobody has: a capital loss is 0 or about 1,900. A path
    over a network then leaps, too, because what lies between is no place to stop at.
    """
    first = firsts(row)
    last = torch.cat([first[1:], torch.ones_like(first[:1])])
    allowed = torch.maximum(distance[first], distance[last]).clamp_min(typical)
    return first | last | (distance <= allowed[row])


def flat(found: Trajectory) -> tuple[Tensor, Tensor, Tensor]:
    """The points that each row took, row after row: to whom they belong, and where they are."""
    times = torch.arange(len(found.x), device=found.x.device)
    taken = times <= found.steps[:, None]
    row = torch.arange(len(found.steps), device=found.x.device)[:, None].expand_as(taken)[taken]
    return row, found.x.transpose(0, 1)[taken], found.z.transpose(0, 1)[taken]


def behind(factual: Tensor, start: Tensor, row: Tensor, x: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same points, each row's behind its factual."""
    first = torch.arange(len(factual), device=factual.device)
    row = torch.cat([first, row])
    order = row.argsort(stable=True)
    return row[order], torch.cat([factual, x])[order], torch.cat([start, z])[order]


def ended(paths: Paths) -> Paths:
    """The paths up to the first point with the wanted outcome; those that have none up to their best point."""
    count, place = len(paths.reason), torch.arange(len(paths.row), device=paths.row.device)
    reached = torch.zeros_like(paths.led).index_put((paths.row[paths.met],), torch.tensor(True, device=place.device))
    best = torch.full((count,), -1.0, dtype=paths.probability.dtype, device=place.device)
    best = best.scatter_reduce(0, paths.row, paths.probability, "amax")
    end = torch.where(reached[paths.row], paths.met, paths.probability == best[paths.row])
    first = torch.full((count,), len(place), device=place.device).scatter_reduce(0, paths.row[end], place[end], "amin")
    told = torch.where(paths.reason == StopReason.CONFIDENCE_REACHED, StopReason.ALL_STEPS_TAKEN, paths.reason)
    reason = torch.where(reached, StopReason.CONFIDENCE_REACHED, told)
    return paths.points(place <= first[paths.row], reason=reason)


def picked(paths: Paths, rows: Int[Tensor, "m"]) -> Paths:
    """The paths of these rows, numbered anew; a row may be there more than once."""
    counts = torch.bincount(paths.row, minlength=len(paths.reason))
    number = torch.arange(len(rows), device=rows.device).repeat_interleave(counts[rows])
    taken = counts[rows].cumsum(0) - counts[rows]
    starts = (counts.cumsum(0) - counts)[rows]
    points = torch.arange(len(number), device=rows.device) - taken[number] + starts[number]
    kept = paths.points(points, reason=paths.reason[rows], led=paths.led[rows], gap=paths.gap[rows])
    return replace(kept, row=number)


def some(paths: Paths, mask: Bool[Tensor, "n"]) -> Paths:
    """The paths of some rows, numbered anew."""
    return picked(paths, mask.nonzero()[:, 0])


def better(before: Paths | None, after: Paths) -> Paths:
    """Of two searches for the same rows the later one where it got there, or further."""
    if before is None:
        return after
    taken = after.found | (after.probability[after.last] > before.probability[before.last])
    rows = torch.arange(len(taken), device=taken.device)
    best = merged([(rows[~taken], some(before, ~taken)), (rows[taken], some(after, taken))])
    return replace(best, reason=after.reason)


def merged(parts: Sequence[tuple[Tensor, Paths]]) -> Paths:
    """One value of several, each with the places of its rows."""
    places = torch.cat([place for place, _ in parts])
    joined: dict[str, Any] = {
        name: torch.cat([getattr(paths, name) for _, paths in parts])
        for name in ("x", "z", "sigma", "probability", "met", *_OF_ROWS)
    }
    row = torch.cat([place[paths.row] for place, paths in parts])
    order = row.argsort(stable=True)
    by_row = places.argsort()
    for name, values in joined.items():
        joined[name] = values[by_row] if name in _OF_ROWS else values[order]
    return Paths(row=row[order], **joined)
