"""The exhaustive reference: of all sets of at most three features, on a grid of their values, the closest answer.

The grid is that of `counterpath.search.candidates.feature_values`: all observed values up to 50, else 50 quantiles. It
is complete: values of a set are tried in the order of what they cost, until one is admissible, or nothing cheaper is
left. It takes seconds a person, for some minutes, and is there to say what the price of a heuristic is.
"""

import time
from itertools import combinations

import torch
from torch import Tensor

from counterpath.search.candidates import Admissible

AT_ONCE = 1 << 14
"""Rows that the model is asked about at once."""
MOST = 1 << 22
"""Combinations of a set of features that are held at once: a set with more is cut by the values of its first."""


def exhaustive(
    admissible: Admissible,
    row: int,
    values: tuple[Tensor, ...],
    size: int = 3,
    below: float = float("inf"),
    seconds: float = float("inf"),
) -> tuple[Tensor, float] | None:
    """The closest admissible row that changes at most `size` features of one row, and what it costs; None without any.

    None, too, where it is not done within so many seconds of the processor: what it has then need not be the closest.

    Args:
        admissible: Which rows may be counterfactuals.
        row: Of which row.
        values: The grid: the values of each feature, as encoded columns.
        size: How many features may change.
        below: Look only for what costs less, such as than an answer that is known: that takes far less time.
        seconds: How long it may take.
    """
    until = time.process_time() + seconds
    feasible = admissible.feasible
    factual, weights, layout = feasible.anchor[row], feasible.weights.square(), feasible.encoder.layout
    grid: dict[int, tuple[Tensor, Tensor]] = {}
    for feature, (columns, points) in enumerate(zip(layout, values, strict=True)):
        inside = ((points >= feasible.lower[row, columns]) & (points <= feasible.upper[row, columns])).all(-1)
        other = (points != factual[columns]).any(-1)
        points = points[inside & other]
        x = factual.repeat(len(points), 1)
        x[:, columns] = points
        # A rule that one feature breaks by itself others may mend: it is asked of whole rows, by `admissible`.
        legal = feasible.legal(x, torch.full((len(points),), row, device=x.device), repair=False)
        points = points[(legal[:, columns] == points).all(-1)]  # a person's own value says what else is legal
        costs = (weights[columns] * (points - factual[columns]).abs()).sum(-1)
        if len(points):
            order = costs.argsort()
            grid[feature] = points[order], costs[order]
    best, found = below, None
    for count in range(1, size + 1):
        # The sets that can be cheapest come first, so that the others are cut short.
        sets = sorted(combinations(grid, count), key=lambda some: sum(float(grid[k][1][0]) for k in some))
        for chosen in sets:
            if time.process_time() > until:
                return None
            answer = _within(admissible, row, [(layout[k], *grid[k]) for k in chosen], best)
            if answer is not None:
                found, best = answer
    return None if found is None else (found, best)


def _within(
    admissible: Admissible, row: int, chosen: list[tuple[slice, Tensor, Tensor]], best: float
) -> tuple[Tensor, float] | None:
    """The closest admissible combination of values of one set of features, if it costs less than `best`."""
    factual, answer = admissible.feasible.anchor[row], None
    rest = sum(float(costs[0]) for _, _, costs in chosen[1:])
    sizes = [int((costs < best).sum()) for _, _, costs in chosen]
    others = 1
    for each in sizes[1:]:
        others *= each
    step = max(1, MOST // max(1, others))
    for first in range(0, sizes[0], step):
        cut = [range(first, min(first + step, sizes[0])), *(range(each) for each in sizes[1:])]
        if float(chosen[0][2][first]) + rest >= best:
            break
        total = torch.zeros([len(each) for each in cut])
        for axis, ((_, _, costs), each) in enumerate(zip(chosen, cut, strict=True)):
            shape = [1] * len(cut)
            shape[axis] = len(each)
            total = total + costs[each.start : each.stop].view(shape)
        flat = total.flatten()
        candidates = (flat < best).nonzero()[:, 0]
        candidates = candidates[flat[candidates].argsort()]
        for part in candidates.split(AT_ONCE):
            if len(part) == 0 or float(flat[part[0]]) >= best:
                break
            x, left = factual.repeat(len(part), 1), part
            for (columns, points, _), each in zip(reversed(chosen), reversed(cut), strict=True):
                x[:, columns] = points[each.start + left % len(each)]
                left = left // len(each)
            good = admissible(x, torch.full((len(part),), row, device=x.device))[0].nonzero()[:, 0]
            if len(good):
                answer = x[good[0]], float(flat[part[good[0]]])
                best = answer[1]
                break
    return answer
