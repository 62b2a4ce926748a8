"""What every method under comparison answers with, so that all are judged alike."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.progress import Advance


@dataclass(frozen=True)
class Found:
    """What a method found for n factuals.

    Attributes:
        rows: Encoded counterfactuals; where none was found, the factual.
        exists: Which rows have one.
        failures: How many rows have none, by the reason that the method gave.
    """

    rows: Float[Tensor, "n D"]
    exists: Bool[Tensor, "n"]
    failures: Mapping[str, int] = field(default_factory=Counter)


Finder: TypeAlias = Callable[[Tensor, Advance], Found]
"""Looks for one counterfactual for each of the encoded factuals, and says how many are done."""
