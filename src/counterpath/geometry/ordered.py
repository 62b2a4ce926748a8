"""What a change of a value with few levels in an order costs: Fisher and Rao's distance between the levels' odds.

A decoder gives such a value as one number t in [0, 1], 0 for the first of K levels and 1 for the last. Read as the
probability of the second of two, it is a Bernoulli distribution, and ds² = dt²/t(1 − t). More levels are read as what
thresholds in an order cut out of one logistic variable (McCullagh's proportional odds): with a = logit t, and a
threshold in the middle between neighbours,

    P(level ≤ k) = F_k = sigmoid(θ_k − a),   θ_k = logit((k + ½)/(K − 1)),   k = 0 … K − 2,

level k has the probability p_k = F_k − F_{k−1}, and the Fisher information about a is

    I(a) = Σ_k (∂p_k/∂a)²/p_k = Σ_k p_k(1 − F_k − F_{k−1})²,   F_{−1} = 0, F_{K−1} = 1,

because ∂F/∂a = −F(1 − F). So ds = √I(a) da = √I(a)/t(1 − t) dt. With K = 2 the only threshold is 0, I(a) = t(1 − t),
and this is Bernoulli's. Where a decoder is sure of the first or the last level, a step costs like √t(1 − t), as with
categories: see `Linearization.factors`.

References:
    C. R. Rao, "Information and the accuracy attainable in the estimation of statistical parameters", 1945.
    McCullagh, "Regression models for ordinal data", Journal of the Royal Statistical Society B, 1980.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from counterpath.utils.errors import InputError


@dataclass(frozen=True)
class Ordered:
    """Columns whose values have levels in an order.

    Attributes:
        columns: Which they are.
        thresholds: θ of each, in order; infinity where others have more.
    """

    columns: Int[Tensor, "m"]
    thresholds: Float[Tensor, "m k"]

    @classmethod
    def of(cls, levels: Sequence[tuple[int, int]]) -> "Ordered":
        """Of pairs of a column and how many levels it has, at least two."""
        few = [column for column, count in levels if count < 2]
        if few:
            raise InputError(f"column {few[0]} has fewer than two levels: what has one cannot change")
        most = max((count for _, count in levels), default=2)
        thresholds = torch.full((len(levels), most - 1), torch.inf, dtype=torch.float64)
        for row, (_, count) in zip(thresholds, levels, strict=True):
            row[: count - 1] = torch.logit((torch.arange(count - 1, dtype=torch.float64) + 0.5) / (count - 1))
        return cls(torch.tensor([column for column, _ in levels], dtype=torch.long), thresholds)

    def speed(self, mean: Float[Tensor, "n D"]) -> Float[Tensor, "n m"]:
        """√I(a)/t(1 − t), by which a change of each of these columns is multiplied."""
        least = torch.finfo(mean.dtype).eps  # nearer to 1 there are no numbers
        t = mean[:, self.columns].double().clamp(least, 1 - least)
        below = torch.sigmoid(self.thresholds.double() - torch.logit(t)[..., None])
        nothing = torch.zeros_like(below[..., :1])
        below = torch.cat([nothing, below, nothing + 1], -1)
        probability, slope = below.diff(dim=-1), 1 - below[..., 1:] - below[..., :-1]
        information = (probability * slope.square()).sum(-1)
        return (information.sqrt() / (t * (1 - t))).to(mean.dtype)
