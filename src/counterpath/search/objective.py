"""What a search minimises."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from counterpath.errors import InputError

Logits = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Evaluation:
    """The objective at n rows: loss, probability of the target class, and the loss's gradient by the row."""

    loss: Float[Tensor, "n"]
    probability: Float[Tensor, "n"]
    gradient: Float[Tensor, "n D"]


@dataclass(frozen=True)
class Objective:
    """f(x) = BCE(c(x), y) + α‖x − x₀‖₂, with x₀ the factual row.

    Attributes:
        classifier: Maps rows to the log odds of class 1, and is differentiable.
        target: y, the wanted class: 0 or 1.
        fidelity: α, how much staying close to the factual weighs.

    References:
        Wachter, Mittelstadt and Russell, 2017 (α = 0); Joshi et al., REVISE, 2019 (the fidelity term).
    """

    classifier: Logits
    target: int = 1
    fidelity: float = 0.0

    def __post_init__(self) -> None:
        if self.target not in (0, 1):
            raise InputError(f"the target class {self.target!r} does not exist; choose one of: 0, 1")
        if not self.fidelity >= 0:
            raise InputError(f"the weight of the fidelity term must be at least 0; given {self.fidelity!r}")

    def loss(self, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"]) -> tuple[Tensor, Tensor]:
        """f(x), and the log odds of the target class."""
        logits = self.classifier(x)
        toward = logits if self.target == 1 else -logits
        loss = F.softplus(-toward)
        if self.fidelity:
            loss = loss + self.fidelity * _norm(x - factual)
        return loss, toward

    def evaluate(self, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"]) -> Evaluation:
        """f(x), the target's probability and ∂f/∂x."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            loss, toward = self.loss(x, factual)
            gradient = torch.autograd.grad(loss.sum(), x)[0]
        return Evaluation(loss.detach(), torch.sigmoid(toward.detach()), gradient)


def _norm(difference: Tensor) -> Tensor:
    """‖·‖₂ with gradient 0 at 0, where the plain norm's is NaN."""
    squared = difference.square().sum(-1)
    zero = squared == 0
    return torch.where(zero, 0, torch.where(zero, 1, squared).sqrt())
