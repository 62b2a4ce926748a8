"""What a search is after: the target, and the objective that it minimises on the way."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.geometry.metric import pull
from counterpath.models.explained import Thresholds, decide
from counterpath.utils.errors import InputError


@dataclass(frozen=True)
class Target:
    """A class, or any class but one, as the model decides or with at least some confidence.

    Attributes:
        index: Which class, by its index.
        other: The target is any class but that one; its probability is 1 − p.
        confidence: What the probability of the target must reach; None for no more than the model's own decision.
        thresholds: From which probability on the model decides for each class; None for the most probable class.
    """

    index: int
    other: bool = False
    confidence: float | None = 0.5
    thresholds: Thresholds | None = None

    def __post_init__(self) -> None:
        if self.confidence is None:
            return
        if not isinstance(self.confidence, Real) or not 0 < self.confidence < 1:
            raise InputError(f"a confidence lies between 0 and 1; given {self.confidence!r}, try 0.5")

    def probability(self, probabilities: Float[Tensor, "n K"]) -> Float[Tensor, "n"]:
        """The probability of the target, given those of all classes."""
        of_class = probabilities[:, self.index]
        return 1 - of_class if self.other else of_class

    def is_predicted(self, probabilities: Float[Tensor, "n K"]) -> Bool[Tensor, "n"]:
        """Where the target is what the model decides."""
        is_class = decide(probabilities, self.thresholds) == self.index
        return ~is_class if self.other else is_class

    def is_reached(self, probabilities: Float[Tensor, "n K"]) -> Bool[Tensor, "n"]:
        """Where it is predicted, and with the asked confidence."""
        decided = self.is_predicted(probabilities)
        return decided if self.confidence is None else decided & (self.probability(probabilities) >= self.confidence)

    @property
    def level(self) -> float:
        """What a search aims at: the asked confidence, or the probability from which one of two classes is decided."""
        if self.confidence is not None:
            return self.confidence
        own = self.thresholds[self.index] if self.thresholds is not None and len(self.thresholds) == 2 else 0.5
        return 1 - own if self.other else own


Logits = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Evaluation:
    """The objective at n rows: loss, probability of the target, and the loss's gradient by the row."""

    loss: Float[Tensor, "n"]
    probability: Float[Tensor, "n"]
    gradient: Float[Tensor, "n D"]


@dataclass(frozen=True)
class Objective:
    """f(x) = −log p(x) + α‖x − x₀‖₂, with p the probability of the target and x₀ the factual row.

    Attributes:
        classifier: Maps rows to the log odds of class 1 `(n,)`, or to one logit a class `(n, K)`; blockwise_proba.
        target: The class that is aimed at, by its index.
        other: Any class but `target` is aimed at.
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
        """f(x), and the log odds of the target."""
        toward = log_odds(self.classifier(x), self.target, other=self.other)
        loss = F.softplus(-toward)
        if self.fidelity:
            loss = loss + self.fidelity * _norm(x - factual)
        return loss, toward

    def evaluate(self, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"]) -> Evaluation:
        """f(x), the probability of the target and ∂f/∂x, in closed form where the classifier has one."""
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
        other: The odds of not being in that class.
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
