"""Which decision is wanted, and how surely."""

from dataclasses import dataclass
from numbers import Real

from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.errors import InputError


@dataclass(frozen=True)
class Wanted:
    """A class, or any class but one, with at least some confidence.

    Attributes:
        target: The place of a class.
        other: Any class but that one is wanted.
        confidence: What the probability of the wanted outcome must reach. "Any other class" has the probability 1 − p.
    """

    target: int
    other: bool = False
    confidence: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.confidence, Real) or not 0 < self.confidence < 1:
            raise InputError(f"a confidence lies between 0 and 1; given {self.confidence!r}, try 0.5")

    def probability(self, answers: Float[Tensor, "n K"]) -> Float[Tensor, "n"]:
        """The probability of the wanted outcome."""
        of_target = answers[:, self.target]
        return 1 - of_target if self.other else of_target

    def decided(self, answers: Float[Tensor, "n K"]) -> Bool[Tensor, "n"]:
        """Whether the wanted outcome is what the model predicts: the most probable class, the first of equals."""
        is_target = answers.argmax(-1) == self.target
        return ~is_target if self.other else is_target

    def met(self, answers: Float[Tensor, "n K"]) -> Bool[Tensor, "n"]:
        """Whether it is predicted, and with the asked confidence."""
        return self.decided(answers) & (self.probability(answers) >= self.confidence)
