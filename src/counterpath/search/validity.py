"""The model under explanation along paths: what it says about every point, and which points may be returned."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.data.encoding import Encoder
from counterpath.models.latent import LatentModel, context_for
from counterpath.search.feasible import FeasibleSet, legal
from counterpath.search.objective import Target
from counterpath.search.paths import Paths, ended
from counterpath.search.residual import Data
from counterpath.search.step import Slope
from counterpath.utils.blocks import map_blocks


@dataclass(frozen=True)
class Validator:
    """Asks the model, and measures paths by what it says.

    Attributes:
        answers: The model under explanation; legal encoded rows to the probability of every class.
        space: The generative model, for codes and uncertainty of any row.
        data: The training rows.
        copies: Whether rows that are equal to a training row may be returned.
    """

    answers: Callable[[Tensor], Tensor]
    space: LatentModel
    data: Data | None
    copies: bool = True

    @property
    def all_may(self) -> bool:
        """Whether every row with the wanted outcome may be returned, and the training rows need not be looked at."""
        return self.copies or self.data is None

    def met(self, x: Float[Tensor, "n D"], wanted: Target) -> Bool[Tensor, "n"]:
        """Which rows have the wanted outcome, and may be returned."""
        return self._may(x, wanted.met(self.answers(x)))

    def codes(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n d"]:
        """The codes of rows."""
        with torch.no_grad():
            return map_blocks(self.space.encode, x)

    def paths(
        self,
        row: Int[Tensor, "p"],
        x: Float[Tensor, "p D"],
        scope: FeasibleSet,
        wanted: Target,
        reason: Int[Tensor, "n"],
        z: Float[Tensor, "p d"] | None = None,
    ) -> Paths:
        """Paths with what the model says along them.

        Args:
            row: Whose points they are.
            x: The points.
            scope: What each person may become.
            wanted: The outcome.
            reason: Why the search of each person stopped.
            z: The codes of the points; by default they are encoded.
        """
        codes = self.codes(x) if z is None else z
        with torch.no_grad():
            told = context_for(self.space, x, scope.told[row])
            sigma = map_blocks(lambda *where: _spread(self.space, *where), codes, told)
        answers = self.answers(x)
        met, nothing = self._may(x, wanted.met(answers)), torch.zeros_like(reason, dtype=torch.bool)
        return Paths(row, x, codes, sigma, wanted.probability(answers).to(x.dtype), met, reason, nothing, nothing)

    def holding(self, scope: FeasibleSet, paths: Paths, columns: Bool[Tensor, "n D"], wanted: Target) -> Paths:
        """The paths with some columns of each person as they were."""
        x = torch.where(columns[paths.row], scope.factual[paths.row], paths.x)
        same = (x == paths.x).all(-1, keepdim=True)
        codes = torch.where(same, paths.z, self.codes(x))
        held = ended(self.paths(paths.row, x, scope, wanted, paths.reason, codes))
        return replace(held, led=paths.led, gap=paths.gap)

    def _may(self, x: Tensor, met: Tensor) -> Tensor:
        if self.all_may:
            return met
        assert self.data is not None
        return met & ~self.data.copies(x)


def _spread(space: LatentModel, z: Tensor, told: Tensor | None) -> Tensor:
    std = space.uncertainty(z, told)
    return torch.zeros_like(z[:, 0]) if std is None else std.mean(-1)


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
