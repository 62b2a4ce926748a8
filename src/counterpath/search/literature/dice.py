"""DiCE: several counterfactuals of a row at once, close to it and different from each other.

For k rows c₁ … c_k it minimises, by Adam from near the row x,

    1/k Σ yloss(c_i) + λ₁/k Σ dist(c_i, x) − λ₂ det(K) + λ₃ Σ (Σ_category c − 1)²,     K_ij = 1/(1 + dist(c_i, c_j)),

with the hinge loss yloss = max(0, 1 − z), z the log odds of the target, and dist the mean over columns of
differences, those of numbers in units of their median absolute deviation. As in its library λ₁ = 0.5, λ₂ = 1, λ₃ =
0.1 and the rate is 0.05; numbers stay within their bounds, columns of a category between 0 and 1. Afterwards
redundant changes are put back.

The method returns the closest of the valid ones; `diverse_rows` all of them.

References:
    Mothilal, Sharma and Tan, "Explaining machine learning classifiers through diverse counterfactual explanations",
    FAT* 2020.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.search.literature.ends import Best
from counterpath.search.method import Method, Problem
from counterpath.search.objective import Objective
from counterpath.search.paths import Paths
from counterpath.search.plans import sparsify
from counterpath.utils.devices import map_blocks

COUNT = 4  # counterfactuals at once, as in the paper's examples
PROXIMITY_WEIGHT, DIVERSITY_WEIGHT, CATEGORY_WEIGHT, LEARNING_RATE = 0.5, 1.0, 0.1, 0.05
"""λ₁, λ₂, λ₃ and the rate: the defaults of the library."""
_NEAR = 0.05  # of a range: how far from the row the counterfactuals start, so that they can part
_LEAST_SPREAD = 0.05
"""The least median absolute deviation, in ranges. Where more than half of the rows are equal it is 0; the library then
takes 1 over a weight of 1, which would price such a number like a category; a twentieth keeps it dear and finite."""
_JITTER = 1e-4  # added to the diagonal of K, so that equal counterfactuals have a determinant and a gradient


def column_weights(problem: Problem) -> Float[Tensor, "D"]:
    """1/MAD for the columns of numbers, 1 for those of categories."""
    rows, encoder = problem.setup.rows, problem.setup.encoder
    spread = (rows - rows.median(0).values).abs().median(0).values
    weights = 1 / spread.clamp_min(_LEAST_SPREAD)
    for feature, columns in zip(encoder.schema, encoder.layout, strict=True):
        if feature.categories:
            weights[columns] = 1
    return weights


def distance(one: Tensor, other: Tensor, weights: Float[Tensor, "D"]) -> Tensor:
    """Σ wⱼ|aⱼ − bⱼ| of rows, or of tensors of rows that can be broadcast."""
    return ((one - other).abs() * weights).sum(-1)


def diversity(rows: Float[Tensor, "n k D"], weights: Float[Tensor, "D"]) -> Float[Tensor, "n"]:
    """det(K), K_ij = 1/(1 + dist(c_i, c_j)): the volume that the counterfactuals of each row span."""
    apart = distance(rows[:, :, None], rows[:, None], weights)
    eye = torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device)
    volume: Tensor = torch.linalg.det(1 / (1 + apart) + _JITTER * eye)
    return volume


class Dice(Method):
    """DiCE, by gradients.

    Args:
        count: k, how many counterfactuals of a row are looked for at once.
        proximity_weight: λ₁.
        diversity_weight: λ₂.
        learning_rate: Of Adam.
    """

    name = "dice"
    description = "several at once, close to the row and different from each other (DiCE)"

    def __init__(
        self,
        count: int = COUNT,
        proximity_weight: float = PROXIMITY_WEIGHT,
        diversity_weight: float = DIVERSITY_WEIGHT,
        learning_rate: float = LEARNING_RATE,
    ) -> None:
        self.count, self.learning_rate = count, learning_rate
        self.proximity_weight, self.diversity_weight = proximity_weight, diversity_weight

    def search(self, problem: Problem) -> Paths:
        """The closest valid one of the counterfactuals of each row."""
        best = Best.of(problem)
        row = torch.arange(len(problem), device=best.x.device)
        for x in self.diverse_rows(problem, best).unbind(1):
            best.offer(x, problem.feasible.cost(x, row), row)
        paths = best.paths()
        return sparsify(problem.validator, problem.feasible, paths) if problem.options.sparsify else paths

    def diverse_rows(self, problem: Problem, best: Best | None = None) -> Float[Tensor, "n k D"]:
        """All counterfactuals of each row, valid or not, as feasible rows.

        Args:
            problem: The rows.
            best: Says when it is time to give up.
        """
        best = best or Best.of(problem)
        feasible, count = problem.feasible, self.count
        generator = torch.Generator().manual_seed(problem.setup.seed)
        noise = _NEAR * torch.randn(count, feasible.factual.shape[1], generator=generator, dtype=torch.float64)
        lower, upper = (each[:, None].clamp(0, 1) for each in (feasible.lower, feasible.upper))
        lower, upper = lower.minimum(feasible.factual[:, None]), upper.maximum(feasible.factual[:, None])
        fixed = feasible.fixed[:, None]
        start = torch.where(fixed, feasible.factual[:, None], feasible.factual[:, None] + noise.to(lower))
        c = start.clamp(lower, upper).requires_grad_()
        optimizer = torch.optim.Adam([c], lr=self.learning_rate)
        weights = column_weights(problem)

        def slope(c: Tensor, factual: Tensor) -> Tensor:
            with torch.enable_grad():
                point = c.detach().requires_grad_()
                return torch.autograd.grad(self.loss(problem, point, factual, weights).sum(), point)[0]

        for _ in range(problem.options.max_steps):
            if best.should_stop:
                break
            c.grad = map_blocks(slope, c.detach(), feasible.factual).masked_fill(fixed, 0)
            optimizer.step()
            c.data.clamp_(lower, upper)
        row = torch.arange(len(problem), device=c.device).repeat_interleave(count)
        return feasible.legal(c.detach().flatten(0, 1), row).view_as(c)

    def loss(
        self, problem: Problem, c: Float[Tensor, "n k D"], factual: Float[Tensor, "n D"], weights: Float[Tensor, "D"]
    ) -> Float[Tensor, "n"]:
        """What is minimised, for each row."""
        objective = Objective.of(problem.setup.models.classifier, problem.target)
        flat, same = c.flatten(0, 1), factual.repeat_interleave(c.shape[1], 0)
        missing, toward = objective.loss(flat, same)
        wrong = (1 - toward).clamp_min(0) if objective.interval is None else missing
        near = distance(c, factual[:, None], weights).mean(1) / c.shape[2]
        total = wrong.view(c.shape[:2]).mean(1) + self.proximity_weight * near
        if self.count > 1:
            total = total - self.diversity_weight * diversity(c, weights)
        blocks = [c[..., first:end].sum(-1) - 1 for first, end in problem.setup.encoder.blocks]
        return total + CATEGORY_WEIGHT * sum((each.square().sum(-1) for each in blocks), start=torch.zeros_like(total))
