"""When a search is done: where the row it has come to, made legal, has the wanted outcome."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Bool
from torch import Tensor

from counterpath.data.encoding import Encoder
from counterpath.scope import legal
from counterpath.search.step import Slope


@dataclass(frozen=True)
class AtLegalRow:
    """Stop rule: the nearest legal row within the person's bounds has the wanted outcome.

    Attributes:
        encoder: Knows what a legal row is.
        met: Which legal rows have the wanted outcome.
        never_waits: Whether `met` never waits for the device, so that the search may record it.
    """

    encoder: Encoder
    met: Callable[[Tensor], Tensor]
    never_waits: bool = False

    def __call__(self, here: Slope) -> Bool[Tensor, "n"]:
        """Which rows are done."""
        assert here.terms is not None
        return self.met(legal(self.encoder, here.x, here.terms.lower, here.terms.upper))
