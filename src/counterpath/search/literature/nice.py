"""NICE: features of the nearest accepted training row, taken over one after another.

Begin at the row; as long as it is not accepted, take over the feature of the nearest unlike neighbour that pays most:

    "sparsity"      the gain in probability,
    "proximity"     the gain in probability per unit of distance.

It ends at the neighbour at the latest, so that every row with an accepted neighbour has an answer, and all of its
values are those of the row or of the neighbour. The distance is that of the feasible set, a sum over features of
differences in ranges, with 1 for another category (HEOM). The neighbour is a training row that the model accepts.

References:
    Brughmans, Leyman and Martens, "NICE: an algorithm for nearest instance counterfactual explanations", Data Mining
    and Knowledge Discovery 2023.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.search.literature.ends import Best
from counterpath.search.method import Method, Problem
from counterpath.search.paths import Paths
from counterpath.utils.errors import choose

REWARDS = ("sparsity", "proximity")
_AT_ONCE = 1 << 24  # differences between rows and candidates that are held at once: 64 MB
_FEW = 20  # of the nearest accepted rows, with what may not change pasted into them, that the model is asked about
_LEAST = 1e-9  # of a distance that is divided by


class Nice(Method):
    """NICE.

    Args:
        reward: What the next feature is chosen by: a value of `REWARDS`.
    """

    name = "nice"
    description = "feature by feature towards the nearest accepted training row (NICE)"

    def __init__(self, reward: str = "sparsity") -> None:
        choose("reward", reward, dict.fromkeys(REWARDS))
        self.reward = reward

    def search(self, problem: Problem) -> Paths:
        """Features of the nearest accepted row, until the row is accepted."""
        setup, feasible, best = problem.setup, problem.feasible, Best.of(problem)
        accepted = setup.rows[problem.accepted(setup.rows, setup.probabilities)]
        neighbour, exists = unlike_neighbours(problem, accepted)
        rows = (exists & ~best.valid).nonzero()[:, 0]
        x = feasible.factual.clone()
        layout = feasible.encoder.layout
        for _ in layout:
            if len(rows) == 0 or best.should_stop:
                break
            x[rows] = self._step(problem, x[rows], neighbour[rows], rows)
            best.offer(x[rows], feasible.cost(x[rows], rows), rows)
            rows = rows[~best.valid[rows] & (x[rows] != neighbour[rows]).any(-1)]
        return best.paths()

    def _step(self, problem: Problem, x: Tensor, neighbour: Tensor, rows: Tensor) -> Tensor:
        """The rows with that feature of the neighbour which pays most."""
        feasible, layout = problem.feasible, problem.feasible.encoder.layout
        tried = x.repeat(len(layout), 1, 1)
        for number, columns in enumerate(layout):
            tried[number, :, columns] = neighbour[:, columns]
            tried[number] = feasible.settle(tried[number], rows)
        feature, row = (tried != x).any(-1).nonzero(as_tuple=True)
        asked = tried[feature, row]  # all at once: a model that takes tables takes as long for one row as for many
        gain = problem.validator.probability(torch.cat([x, asked])).to(x.dtype)
        gain = gain[len(x) :] - gain[row]
        if self.reward == "proximity":
            farther = feasible.cost(asked, rows[row]) - feasible.cost(x, rows)[row]
            gain = gain / farther.clamp_min(_LEAST)
        gains = x.new_full(tried.shape[:2], -torch.inf).index_put((feature, row), gain)
        return tried[gains.argmax(0), torch.arange(len(x), device=x.device)]


def unlike_neighbours(
    problem: Problem, accepted: Float[Tensor, "m D"]
) -> tuple[Float[Tensor, "n D"], Bool[Tensor, "n"]]:
    """The nearest accepted row of each row, by what it costs to become it; and which rows have one.

    What a row may not change stays as it is. So of the few nearest ones that are within its bounds the first is taken
    that is valid with that, or else the very nearest.
    """
    feasible, every = problem.feasible, torch.arange(len(problem), device=accepted.device)
    end, exists = feasible.factual.clone(), torch.zeros_like(every, dtype=torch.bool)
    if len(accepted) == 0:
        return end, exists
    for rows in every.split(max(1, _AT_ONCE // accepted.numel())):
        row = rows.repeat_interleave(len(accepted))
        tried = accepted.repeat(len(rows), 1)
        tried = torch.where(feasible.fixed[row], feasible.factual[row], tried)
        inside = feasible.contains(tried, row)
        if feasible.rules is not None:
            inside &= feasible.rules.hold(tried, feasible.origin[row])
        cost = feasible.cost(tried, row).masked_fill(~inside, torch.inf).view(len(rows), -1)
        least, index = cost.topk(min(_FEW, len(accepted)), dim=1, largest=False)
        number = torch.arange(len(rows), device=rows.device)
        near = tried.view(len(rows), len(accepted), -1)[number[:, None], index]
        every_row = rows.repeat_interleave(index.shape[1])
        legal = feasible.legal(near.flatten(0, 1), every_row)  # a training row may have finer values than are legal
        valid = problem.validator.is_valid(legal, feasible.origin[every_row]).view_as(index) & (least < torch.inf)
        first = valid.int().argmax(1)  # 0, the nearest, where none is
        exists[rows] = least[:, 0] < torch.inf
        end[rows] = torch.where(exists[rows, None], legal.view_as(near)[number, first], end[rows])
    return end, exists
