"""How plausible rows are: how far from the training rows, compared with how far real rows are from each other."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.geometry.neighbours import Neighbours
from counterpath.search.measures import EQUAL

IsPlausible = Callable[[Tensor, Tensor], Tensor]
"""Which rows are plausible enough, given them and the index of the counterfactual that each would replace."""


@dataclass(frozen=True)
class Plausibility:
    """The training rows, and how far from them held-out rows are.

    Attributes:
        neighbours: The training rows, or a sample of them.
        limit: The distance to the nearest of them that 95 % of held-out rows do not exceed.
        typical: The root mean square of that distance.
        all_rows: All training rows, where `neighbours` is a sample of them.
    """

    neighbours: Neighbours
    limit: float
    typical: float
    all_rows: Neighbours | None = None

    def distance(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
        """How far rows are from the nearest training row."""
        return self.neighbours.nearest(x)[0][:, 0]

    def is_copy(self, x: Float[Tensor, "n D"]) -> Bool[Tensor, "n"]:
        """Which rows are equal to a training row."""
        return (self.all_rows or self.neighbours).nearest(x)[0][:, 0] < EQUAL

    def no_farther_than(self, counterfactual: Float[Tensor, "n D"], distance: float) -> IsPlausible:
        """Rows that are no farther from the training rows than the counterfactuals are, or than some distance."""
        allowed = self.distance(counterfactual).clamp_min(distance)
        return lambda tried, index: self.distance(tried) <= allowed[index]
