"""The baseline to beat: the nearest training row that the model accepts."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.geometry.graph import Neighbours
from counterpath.search.method import Method, Problem
from counterpath.search.paths import Paths, is_first
from counterpath.search.traverse import StopReason

_DIFFERENCES = {"cpu": 1 << 24, "cuda": 1 << 28}
"""How many differences between factuals and candidates are in memory at once: 64 MB on a CPU, 1 GB on a GPU."""
_STEPS = 10  # of the line to the training row: as many as people would look at


def nearest_accepted(
    factual: Float[Tensor, "n D"],
    train: Float[Tensor, "m D"],
    accepted: Bool[Tensor, "m"],
    same: list[int] | None = None,
    weights: Float[Tensor, "D"] | None = None,
) -> tuple[Float[Tensor, "n D"], Bool[Tensor, "n"]]:
    """The accepted training row closest to each factual: on the data by construction.

    Args:
        factual: Rows to explain.
        train: Training rows.
        accepted: Which of them reach the target.
        same: Columns in which the row must equal the factual.
        weights: Of the columns in the distance, as in `Neighbours`.

    Returns:
        The rows, and for which factuals there is one; the others get their factual back.
    """
    candidates = train[accepted]
    if not same:
        rows = Neighbours(candidates, weights).nearest(factual)[1][:, 0]
        return candidates[rows], torch.ones_like(factual[:, 0] > 0)
    found, exists = factual.clone(), torch.zeros(len(factual), dtype=torch.bool, device=factual.device)
    groups, member = torch.unique(torch.cat([factual, candidates])[:, same], dim=0, return_inverse=True)
    for group in range(len(groups)):
        rows = (member[: len(factual)] == group).nonzero()[:, 0]
        options = candidates[member[len(factual) :] == group]
        if len(rows) and len(options):
            found[rows] = options[Neighbours(options, weights).nearest(factual[rows])[1][:, 0]]
            exists[rows] = True
    return found, exists


def nearest_within(
    factual: Float[Tensor, "n D"],
    candidates: Float[Tensor, "m D"],
    lower: Float[Tensor, "n D"],
    upper: Float[Tensor, "n D"],
    weights: Float[Tensor, "D"] | None = None,
    *,
    unconstrained: bool = False,
) -> tuple[Float[Tensor, "n D"], Bool[Tensor, "n"]]:
    """The candidate closest to each factual of those within its bounds; and for which factuals there is one.

    Args:
        factual: Rows to explain.
        candidates: Rows to choose from.
        lower: The least that each column may be.
        upper: The most.
        weights: Of the columns in the distance, as in `Neighbours`.
        unconstrained: All candidates are within all bounds.
    """
    if unconstrained:
        rows = Neighbours(candidates, weights).nearest(factual)[1][:, 0]
        return candidates[rows], torch.ones_like(factual[:, 0] > 0)
    if len(candidates) == 0:
        return factual.clone(), torch.zeros_like(factual[:, 0] > 0)
    scaled, here = (rows if weights is None else rows * weights for rows in (candidates, factual))
    least, most = candidates.amin(0), candidates.amax(0)
    closed = ((lower > least) | (upper < most)).any(0).nonzero()[:, 0].tolist()
    count, found = len(candidates), []
    at_once = max(1, _DIFFERENCES[factual.device.type] // candidates.numel())
    for rows in torch.arange(len(factual), device=factual.device).split(at_once):
        inside = torch.ones(len(rows), count, dtype=torch.bool, device=factual.device)
        for column in closed:
            values = candidates[:, column]
            inside &= (values >= lower[rows, column, None]) & (values <= upper[rows, column, None])
        row, which = inside.nonzero(as_tuple=True)
        distance = (scaled[which] - here[rows[row]]).square().sum(-1)
        shortest = distance.new_full((len(rows),), torch.inf).scatter_reduce(0, row, distance, "amin")
        # Of several that are equally close the first.
        which = torch.where(distance == shortest[row], which, count)
        found.append(torch.full_like(rows, count).scatter_reduce(0, row, which, "amin"))
    nearest = torch.cat(found)
    exists = nearest < count
    return torch.where(exists[:, None], candidates[nearest.clamp_max(count - 1)], factual), exists


def straight_path(start: Float[Tensor, "n D"], end: Float[Tensor, "n D"], steps: int) -> Float[Tensor, "t n D"]:
    """Points on the straight line between rows, ends included."""
    times = torch.linspace(0, 1, steps + 1, dtype=start.dtype, device=start.device)[:, None, None]
    return start * (1 - times) + end * times


def straight_lines(
    problem: Problem, end: Float[Tensor, "n D"], exists: Bool[Tensor, "n"], reason: Int[Tensor, "n"]
) -> Paths:
    """The straight lines from rows to their ends, their points made legal; a row without an end stays where it is.

    Args:
        problem: The rows.
        end: Where each ends.
        exists: Which rows have an end.
        reason: Why the search of each stopped.
    """
    factual, feasible = problem.feasible.factual, problem.feasible
    points = straight_path(factual, end, _STEPS).transpose(0, 1).flatten(0, 1)
    row = torch.arange(len(factual), device=factual.device).repeat_interleave(_STEPS + 1)
    x = feasible.legal(points, row).view(len(factual), _STEPS + 1, -1).clone()
    x[:, 0], x[:, -1] = factual, end
    paths = problem.paths(row, x.flatten(0, 1), reason)
    return paths.points(exists[paths.row] | is_first(paths.row))


def _nearest_lawful(problem: Problem, candidates: Tensor, end: Tensor, exists: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest candidates that break no rule, where those that were found do; and which rows have one."""
    feasible, rules = problem.feasible, problem.feasible.rules
    assert rules is not None
    wrong = (exists & ~rules.hold(end, feasible.origin)).nonzero()[:, 0].tolist()
    end, exists = end.clone(), exists.clone()
    for row in wrong:
        inside = ((candidates >= feasible.lower[row]) & (candidates <= feasible.upper[row])).all(-1)
        inside &= rules.hold(candidates, feasible.origin[row].expand_as(candidates))
        exists[row] = bool(inside.any())
        if exists[row]:
            away = ((candidates - feasible.factual[row]) * feasible.weights).square().sum(-1)
            end[row] = candidates[away.masked_fill(~inside, torch.inf).argmin()]
    return end, exists


class Nearest(Method):
    """The straight line to the nearest feasible training row that the model accepts, its points made legal."""

    name = "nearest"
    description = "straight to the nearest training row that is accepted"
    returns_training_rows = True
    chooses_features = False

    def search(self, problem: Problem) -> Paths:
        """The lines; a row without such a training row stays where it is."""
        setup, feasible = problem.setup, problem.feasible
        factual, candidates = feasible.factual, setup.rows[problem.accepted(setup.rows, setup.probabilities)]
        row = torch.arange(len(factual), device=factual.device)
        if len(candidates) == 0:
            return problem.paths(row, factual, torch.full_like(row, StopReason.NO_WAY_DOWN))
        end, exists = nearest_within(
            factual,
            candidates,
            feasible.lower,
            feasible.upper,
            feasible.weights,
            unconstrained=feasible.unconstrained,
        )
        if feasible.rules is not None:
            end, exists = _nearest_lawful(problem, candidates, end, exists)
        if problem.options.stability is not None:  # the candidates last as they are, but not all if they are missed
            exists = exists & problem.validator.lasts(end, feasible.origin)
        reason = torch.where(exists, StopReason.CONFIDENCE_REACHED, StopReason.NO_WAY_DOWN)
        return straight_lines(problem, end, exists, reason)
