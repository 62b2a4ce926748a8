"""What a search is after: the target, and the objective that it minimises on the way.

What a model says about n rows is a tensor `(n, K)`: the probability of every class, or for a regressor, with K = 1, the
number that it predicts.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.geometry.metric import pull
from counterpath.models.classifier import Differentiable, Thresholds, decide, probabilities
from counterpath.utils.errors import InputError

Range = tuple[float | None, float | None]
"""From where to where, either end None if it is open."""
_MARGIN_OF_WIDTH = 0.4
"""Of a range: by as much it is narrowed at most at each end, so that a fifth of it is left to aim at."""
_SURE = 1e-6  # probabilities are kept this far from 0 and 1, where log odds are infinite
_LEAST_CONFIDENCE, _MOST_CONFIDENCE = 1e-6, 1 - 1e-6
"""Ends of a range of probabilities before their logarithm: about the least step of float32 below 1."""


def parse_number_range(option: str, given: Any, *, probability: bool = False) -> tuple[float | None, float | None]:
    """A pair (low, high) of numbers in order, either None for an open end.

    Raises:
        InputError: It is none; the message says what was expected.
    """
    example = "(0.6, 0.8)" if probability else "(40, None) for at least 40"
    pair = list(given) if isinstance(given, list | tuple) else []
    good = [end is None or (isinstance(end, Real) and not isinstance(end, bool) and math.isfinite(end)) for end in pair]
    if len(pair) != 2 or not all(good) or pair == [None, None]:
        raise InputError(f"{option} is {given!r}; expected a pair (low, high) of numbers, for instance {example}")
    low, high = (None if end is None else float(end) for end in pair)
    if low is not None and high is not None and low > high:
        raise InputError(f"{option} is {given!r}, with low above high; swap them?")
    if probability and not all(end is None or 0 <= end <= 1 for end in (low, high)):
        raise InputError(f"{option} is {given!r}; probabilities lie between 0 and 1, for instance {example}")
    return low, high


@dataclass(frozen=True)
class Target:
    """A class, or any class but one, as the model decides, with at least some confidence, or with one in a range.

    Attributes:
        index: Which class, by its index.
        other: The target is any class but that one; its probability is 1 − p.
        confidence: What the probability of the target must reach; None for no more than the model's own decision. A
            pair: where it must lie, whatever the model decides.
        thresholds: From which probability on the model decides for each class; None for the most probable class.
    """

    index: int
    other: bool = False
    confidence: float | Range | None = 0.5
    thresholds: Thresholds | None = None

    def __post_init__(self) -> None:
        if self.confidence is None:
            return
        if isinstance(self.confidence, tuple):
            parse_number_range("confidence", self.confidence, probability=True)
        elif not isinstance(self.confidence, Real) or not 0 < self.confidence < 1:
            raise InputError(f"a confidence lies between 0 and 1; given {self.confidence!r}, try 0.5")

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where the probability must lie, if that is what is asked for."""
        if not isinstance(self.confidence, tuple):
            return None
        low, high = self.confidence
        return 0.0 if low is None else low, 1.0 if high is None else high

    def said(self, classifier: Differentiable, x: Float[Tensor, "n D"]) -> Float[Tensor, "n K"]:
        """What a classifier that a search follows says about rows, in the form of the explained model."""
        return probabilities(classifier(x))

    def score(self, probabilities: Float[Tensor, "n K"]) -> Float[Tensor, "n"]:
        """How close rows are to the target, from 0 to 1: its probability, or how near that is to where it must lie."""
        of_target = self.probability(probabilities)
        if self.interval is None:
            return of_target
        low, high = self.interval
        return 1 - (low - of_target).clamp_min(0) - (of_target - high).clamp_min(0)

    def advantage(self, probabilities: Float[Tensor, "n K"]) -> Float[Tensor, "n"]:
        """What nearly adds up when several features change: the log odds; of a range, how far these are inside.

        In double: a logarithm's last digit depends on where in memory a number lies, and the answer must not.
        """
        odds = torch.logit(self.probability(probabilities).double(), eps=_SURE)
        if self.interval is None:
            return odds
        low, high = map(_log_odds, self.interval)
        return torch.minimum(odds - low, high - odds)

    def enough(self, like: Tensor) -> Tensor:
        """The advantage from which on the target is reached, as such a tensor."""
        if self.interval is not None:
            return torch.zeros((), dtype=like.dtype, device=like.device)
        return torch.logit(torch.tensor(self.level, dtype=like.dtype, device=like.device), eps=_SURE)

    def lead(self, probabilities: Float[Tensor, "n K"]) -> Float[Tensor, "n"]:
        """How far the log odds are on the side of the target, as the model decides, or in a range; 0 on the edge."""
        if self.interval is not None or probabilities.shape[-1] <= 2:
            decided = self if self.interval is not None else replace(self, confidence=None)
            advantage = decided.advantage(probabilities)
            return advantage - decided.enough(advantage)
        odds = probabilities.double().clamp_min(_SURE).log()
        if self.thresholds is not None:
            odds = odds - torch.tensor(self.thresholds, dtype=odds.dtype, device=odds.device).log()
        others = torch.cat([odds[:, : self.index], odds[:, self.index + 1 :]], -1).amax(-1)
        return others - odds[:, self.index] if self.other else odds[:, self.index] - others

    def surer(self, margin: float, most: float) -> "Target":
        """The same with more confidence, up to `most`; or in the inside of a range."""
        if self.interval is None:
            return replace(self, confidence=max(min(self.level + margin, most), self.level))
        return replace(self, confidence=_narrowed(self.interval, margin))

    def probability(self, probabilities: Float[Tensor, "n K"]) -> Float[Tensor, "n"]:
        """The probability of the target, given those of all classes."""
        of_class = probabilities[:, self.index]
        return 1 - of_class if self.other else of_class

    def is_predicted(self, probabilities: Float[Tensor, "n K"]) -> Bool[Tensor, "n"]:
        """Where the target is what the model decides."""
        is_class = decide(probabilities, self.thresholds) == self.index
        return ~is_class if self.other else is_class

    def is_reached(self, probabilities: Float[Tensor, "n K"]) -> Bool[Tensor, "n"]:
        """Where it is predicted, and with the asked confidence; or where its probability lies in the range."""
        if self.interval is not None:
            of_target, (low, high) = self.probability(probabilities), self.interval
            return (of_target >= low) & (of_target <= high)
        decided = self.is_predicted(probabilities)
        assert not isinstance(self.confidence, tuple)
        return decided if self.confidence is None else decided & (self.probability(probabilities) >= self.confidence)

    @property
    def level(self) -> float:
        """What a search aims at: the asked confidence, or the probability from which one of two classes is decided."""
        if self.interval is not None:
            return self.interval[0]
        if self.confidence is not None:
            assert not isinstance(self.confidence, tuple)
            return self.confidence
        own = self.thresholds[self.index] if self.thresholds is not None and len(self.thresholds) == 2 else 0.5
        return 1 - own if self.other else own


@dataclass(frozen=True, eq=False)
class RowTargets(Target):
    """A target of which every row asks for a confidence of its own; what is said of rows is in their order.

    Attributes:
        confidences: What the probability must reach for each row; NaN for no more than the model's own decision.
    """

    confidence: None = None
    confidences: Float[Tensor, "n"] | None = None
    __eq__, __hash__ = object.__eq__, object.__hash__  # what rows ask for cannot be compared at a glance

    def is_reached(self, probabilities: Float[Tensor, "n K"]) -> Bool[Tensor, "n"]:
        """Where it is predicted, and with the confidence that each row asks for."""
        assert self.confidences is not None
        asked, of_target = self.confidences, self.probability(probabilities)
        return self.is_predicted(probabilities) & (asked.isnan() | (of_target >= asked.to(of_target.dtype)))

    def enough(self, like: Tensor) -> Tensor:
        """As of a target that asks for the same confidence of all rows, to the bit: so each is computed alone."""
        assert self.confidences is not None
        known: dict[float | None, Tensor] = {}
        each = [None if math.isnan(level) else level for level in self.confidences.tolist()]
        for level in each:
            if level not in known:
                known[level] = Target(self.index, self.other, level, self.thresholds).enough(like)
        return torch.stack([known[level] for level in each]) if each else like[:0]


def by_row(target: Target, confidences: Float[Tensor, "n"] | None) -> Target:
    """The target of rows that ask for these confidences; the same target if they ask for none of their own."""
    if confidences is None:
        return target
    return RowTargets(target.index, target.other, None, target.thresholds, confidences)


def by_confidence(target: Target, confidences: Float[Tensor, "n"] | None) -> list[tuple[Target, Int[Tensor, "m"]]]:
    """The targets that rows have, each with the indices of its rows; None where all rows have the one given."""
    if confidences is None:
        raise ValueError("these rows have one target")
    found: dict[float | None, list[int]] = {}
    for row, level in enumerate(confidences.tolist()):
        found.setdefault(None if math.isnan(level) else level, []).append(row)
    return [
        (replace(target, confidence=level), torch.tensor(rows, device=confidences.device))
        for level, rows in found.items()
    ]


def _narrowed(interval: tuple[float, float], margin: float) -> tuple[float, float]:
    low, high = interval
    inward = min(margin, _MARGIN_OF_WIDTH * (high - low))
    return low + (inward if low > -math.inf else 0), high - (inward if high < math.inf else 0)


@dataclass(frozen=True)
class NumberTarget(Target):
    """A range of the number that a regressor predicts.

    Its probability stands for how near the number is to the range: exp(−d/s), with d the distance to it, and so 1
    within.

    Attributes:
        low: The least; −∞ for an open end.
        high: The most.
        spread: s, how far apart predictions are: their standard deviation on the training rows.
    """

    index: int = 0
    confidence: float | Range | None = None
    low: float = -math.inf
    high: float = math.inf
    spread: float = 1.0

    def said(self, classifier: Differentiable, x: Float[Tensor, "n D"]) -> Float[Tensor, "n K"]:
        """The number."""
        return classifier(x)[:, None]

    def distance(self, numbers: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        """How far numbers are from the range; 0 within."""
        return (self.low - numbers).clamp_min(0) + (numbers - self.high).clamp_min(0)

    def probability(self, probabilities: Float[Tensor, "n K"]) -> Float[Tensor, "n"]:
        """exp(−d/s)."""
        return (-self.distance(probabilities[:, 0]) / self.spread).exp()

    def score(self, probabilities: Float[Tensor, "n K"]) -> Float[Tensor, "n"]:
        """The same."""
        return self.probability(probabilities)

    def is_predicted(self, probabilities: Float[Tensor, "n K"]) -> Bool[Tensor, "n"]:
        """Which numbers lie in the range."""
        return (probabilities[:, 0] >= self.low) & (probabilities[:, 0] <= self.high)

    def is_reached(self, probabilities: Float[Tensor, "n K"]) -> Bool[Tensor, "n"]:
        """The same."""
        return self.is_predicted(probabilities)

    def advantage(self, probabilities: Float[Tensor, "n K"]) -> Float[Tensor, "n"]:
        """How far inside of the range numbers are, in spreads; negative outside."""
        numbers = probabilities[:, 0].double()
        return torch.minimum(numbers - self.low, self.high - numbers) / self.spread

    def enough(self, like: Tensor) -> Tensor:
        """From its end on."""
        return torch.zeros((), dtype=like.dtype, device=like.device)

    def surer(self, margin: float, most: float) -> "NumberTarget":
        """The inside of the range, by so many spreads at each end."""
        low, high = _narrowed((self.low, self.high), margin * self.spread)
        return replace(self, low=low, high=high)

    @property
    def level(self) -> float:
        """Within the range it is 1."""
        return 1.0


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
        interval: Where the log odds of the target must lie; then f(x) is how far they are from there, + α‖x − x₀‖₂.
        spread: For a regressor, whose classifier maps rows to numbers and not to log odds: how far apart these are. The
            interval is one of numbers then, and f counts spreads.

    References:
        Wachter, Mittelstadt and Russell, 2017 (α = 0); Joshi et al., REVISE, 2019 (the fidelity term).
    """

    classifier: Logits
    target: int = 1
    other: bool = False
    fidelity: float = 0.0
    interval: tuple[float, float] | None = None
    spread: float | None = None

    @classmethod
    def of(cls, classifier: Logits, target: Target, fidelity: float = 0.0) -> "Objective":
        """The objective of a search for a target."""
        if isinstance(target, NumberTarget):
            inside = target.surer(_INSIDE, 1.0)
            return cls(classifier, fidelity=fidelity, interval=(inside.low, inside.high), spread=target.spread)
        if target.interval is None:
            return cls(classifier, target.index, target.other, fidelity)
        low, high = _narrowed(target.interval, _INSIDE)
        return cls(classifier, target.index, target.other, fidelity, (_log_odds(low), _log_odds(high)))

    def __post_init__(self) -> None:
        if self.target < 0:
            raise InputError(f"the target class {self.target!r} does not exist; classes are numbered from 0")
        if not self.fidelity >= 0:
            raise InputError(f"the weight of the fidelity term must be at least 0; given {self.fidelity!r}")

    def loss(self, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"]) -> tuple[Tensor, Tensor]:
        """f(x), and the log odds of the target."""
        toward = self._toward(self.classifier(x))
        loss = F.softplus(-toward) if self.interval is None else self._beyond(toward).abs()
        if self.fidelity:
            loss = loss + self.fidelity * _norm(x - factual)
        return loss, toward

    def evaluate(self, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"]) -> Evaluation:
        """f(x), the probability of the target and ∂f/∂x, in closed form where the classifier has one."""
        logits, back = pull(self.classifier, x.detach())
        toward = self._toward(logits)
        if self.interval is None:
            loss, probability = F.softplus(-toward), torch.sigmoid(toward)
            missing = probability - 1  # the derivative of −log p by the log odds
        else:
            beyond = self._beyond(toward)
            loss, missing = beyond.abs(), beyond.sign()
            probability = torch.sigmoid(toward) if self.spread is None else (-loss).exp()
        if self.spread is None:
            slope = _log_odds_slope(logits, self.target, other=self.other)
        else:
            slope = torch.full_like(logits, 1 / self.spread)
        gradient = back(slope * (missing if logits.ndim == 1 else missing[:, None]))
        if self.fidelity:
            away = x.detach() - factual
            distance = away.norm(dim=-1)
            loss = loss + self.fidelity * distance
            gradient = gradient + self.fidelity * away / torch.where(distance == 0, 1, distance)[:, None]
        return Evaluation(loss, probability, gradient)

    def _toward(self, logits: Tensor) -> Tensor:
        """The log odds of the target, or the number in spreads."""
        return log_odds(logits, self.target, other=self.other) if self.spread is None else logits / self.spread

    def _beyond(self, toward: Tensor) -> Tensor:
        """How far it is above the interval, or below it, which is negative."""
        assert self.interval is not None
        low, high = (end / (self.spread or 1.0) for end in self.interval)
        return (toward - high).clamp_min(0) - (low - toward).clamp_min(0)


_INSIDE = 0.05
"""How far inside of a range a search aims, in probability or in spreads: what rounding to legal rows may take back."""


def _log_odds(probability: float) -> float:
    inside = min(max(probability, _LEAST_CONFIDENCE), _MOST_CONFIDENCE)
    if probability <= 0 or probability >= 1:
        return -math.inf if probability <= 0 else math.inf
    return math.log(inside / (1 - inside))


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
