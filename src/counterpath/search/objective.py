"""What a search minimises."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from counterpath.errors import InputError
from counterpath.geometry.linearize import pull

Logits = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Evaluation:
    """The objective at n rows: loss, probability of the wanted outcome, and the loss's gradient by the row."""

    loss: Float[Tensor, "n"]
    probability: Float[Tensor, "n"]
    gradient: Float[Tensor, "n D"]


@dataclass(frozen=True)
class Objective:
    """f(x) = −log p(x) + α‖x − x₀‖₂, with p the probability of the wanted outcome and x₀ the factual row.

    Attributes:
        classifier: Maps rows to the log odds of class 1 `(n,)`, or to one logit a class `(n, K)`; differentiable.
        target: The class that is wanted.
        other: Any class but `target` is wanted.
        fidelity: α, how much staying close to the factual weighs.

    References:
        Wachter, Mittelstadt and Russell, 2017 (α = 0); Joshi et al., REVISE, 2019 (the fidelity term).
    """

    classifier: Logits
    target: int = 1
    other: bool = False
    fidelity: float = 0.0

    def __post_init__(self) -> None:
        if self.target < 0:
            raise InputError(f"the target class {self.target!r} does not exist; classes are numbered from 0")
        if not self.fidelity >= 0:
            raise InputError(f"the weight of the fidelity term must be at least 0; given {self.fidelity!r}")

    def loss(self, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"]) -> tuple[Tensor, Tensor]:
        """f(x), and the log odds of the wanted outcome."""
        toward = log_odds(self.classifier(x), self.target, other=self.other)
        loss = F.softplus(-toward)
        if self.fidelity:
            loss = loss + self.fidelity * _norm(x - factual)
        return loss, toward

    def evaluate(self, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"]) -> Evaluation:
        """f(x), the probability of the wanted outcome and ∂f/∂x, in closed form where the classifier has one."""
        logits, back = pull(self.classifier, x.detach())
        toward = log_odds(logits, self.target, other=self.other)
        loss, probability = F.softplus(-toward), torch.sigmoid(toward)
        missing = probability - 1  # the derivative of −log p by the log odds
        slope = _log_odds_slope(logits, self.target, other=self.other)
        gradient = back(slope * (missing if logits.ndim == 1 else missing[:, None]))
        if self.fidelity:
            away = x.detach() - factual
            distance = away.norm(dim=-1)
            loss = loss + self.fidelity * distance
            gradient = gradient + self.fidelity * away / torch.where(distance == 0, 1, distance)[:, None]
        return Evaluation(loss, probability, gradient)


def log_odds(logits: Tensor, target: int, *, other: bool = False) -> Float[Tensor, "n"]:
    """log p/(1 − p), with p the probability of class `target`, or of any other class.

    Args:
        logits: The log odds of class 1 `(n,)`, or one logit a class `(n, K)`.
        target: A class.
        other: Turn the question round: the odds of not being in that class.
    """
    classes = 2 if logits.ndim == 1 else logits.shape[-1]
    if target >= classes:
        names = ", ".join(str(number) for number in range(classes))
        raise InputError(f"the target class {target} does not exist; choose one of: {names}")
    if logits.ndim == 1:
        odds = logits if target == 1 else -logits
    else:
        rest = torch.cat([logits[:, :target], logits[:, target + 1 :]], dim=-1)
        odds = logits[:, target] - rest.logsumexp(-1)
    return -odds if other else odds


def _log_odds_slope(logits: Tensor, target: int, *, other: bool) -> Tensor:
    """The derivative of `log_odds` by the logits."""
    sign = -1.0 if other else 1.0
    if logits.ndim == 1:
        return torch.full_like(logits, sign if target == 1 else -sign)
    own = torch.zeros_like(logits)
    own[:, target] = 1
    return sign * (own - logits.masked_fill(own > 0, -torch.inf).softmax(-1))


def _norm(difference: Tensor) -> Tensor:
    """‖·‖₂ with gradient 0 at 0, where the plain norm's is NaN."""
    squared = difference.square().sum(-1)
    zero = squared == 0
    return torch.where(zero, 0, torch.where(zero, 1, squared).sqrt())
