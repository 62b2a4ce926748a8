"""From codes to feasible rows: decoded under a row's context, with the residual of its own reconstruction.

A generative model does not reproduce a row exactly. What is missing, the residual, is added to every row that is
decoded on the way, so that a path starts at the factual row; its weight may decay along the path.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from counterpath.models.latent import LatentModel, context_for
from counterpath.search.feasible import FeasibleSet, StepConstraints
from counterpath.search.paths import is_first, path_fraction
from counterpath.search.validity import IsValid, Plausibility
from counterpath.utils.devices import map_blocks

_END_WEIGHTS = (1.0, 0.5, 0.0)  # weights of the residual that are tried at the end of a path: all, half and none of it


@dataclass(frozen=True)
class ResidualDecoder:
    """Decodes codes of n rows to what each of them may become.

    Attributes:
        model: The latent space.
        feasible: What each row may become.
        start: The codes of the rows.
        context: What the model is conditioned on for each; None for a model that is not conditional.
        step_constraints: What the steps of each have to respect.
    """

    model: LatentModel
    feasible: FeasibleSet
    start: Float[Tensor, "n d"]
    context: Tensor | None
    step_constraints: StepConstraints

    @classmethod
    def of(
        cls, model: LatentModel, feasible: FeasibleSet, *, generative: bool, keep_residual: bool
    ) -> "ResidualDecoder":
        """Encode rows.

        Args:
            model: The latent space.
            feasible: What each row may become.
            generative: Whether it is a generative model; others reproduce rows, and leave no residual.
            keep_residual: Whether to add what it does not reproduce.
        """
        context = context_for(model, feasible.factual, feasible.fixed)
        with torch.no_grad():
            start = map_blocks(model.encode, feasible.factual)
            decoded = map_blocks(model.decode, start, context)
        step_constraints = feasible.step_constraints(
            decoded,
            keep_residual=keep_residual and generative,
            squashed=getattr(model, "output", "sigmoid") == "sigmoid",
            generative=generative,
            conditional=context is not None,
        )
        return cls(model, feasible, start, context, step_constraints)

    def at(self, rows: Int[Tensor, "m"]) -> "ResidualDecoder":
        """The decoder of some of the rows."""
        context = None if self.context is None else self.context[rows]
        return ResidualDecoder(
            self.model, self.feasible.at(rows), self.start[rows], context, self.step_constraints.at(rows)
        )

    def decode(
        self, z: Float[Tensor, "p d"], row: Int[Tensor, "p"], weight: Tensor | float = 1.0
    ) -> Float[Tensor, "p D"]:
        """The feasible rows that codes stand for.

        Args:
            z: Codes.
            row: To which row each belongs.
            weight: Of the residual.
        """
        context = None if self.context is None else self.context[row]
        with torch.no_grad():
            return self.finish(map_blocks(self.model.decode, z, context), row, weight)

    def finish(
        self, decoded: Float[Tensor, "p D"], row: Int[Tensor, "p"], weight: Tensor | float = 1.0
    ) -> Float[Tensor, "p D"]:
        """The same for codes that have been decoded: add the residual, and take the nearest feasible rows."""
        constraints = self.step_constraints.at(row)
        return self.feasible.legal(constraints.clip(constraints.add_residual(decoded, weight)), row)

    def decay_residual(
        self,
        row: Int[Tensor, "p"],
        x: Float[Tensor, "p D"],
        z: Float[Tensor, "p d"],
        is_valid: IsValid,
        plausibility: Plausibility,
    ) -> Float[Tensor, "p D"]:
        """The points of paths, along which the residual decays as far as the end becomes more plausible by it.

        It does not decay where the end is as close to the training rows as real rows are, nor where the end would not
        be valid any more.

        Args:
            row: To which row each point belongs.
            x: The points, with the whole residual.
            z: Their codes.
            is_valid: Which rows are valid.
            plausibility: How far from the training rows rows are.
        """
        first = is_first(row)
        last = torch.cat([first[1:], torch.ones_like(first[:1])])
        rows = row[last]
        kept, nearest = torch.ones_like(x[last][:, 0]), plausibility.distance(x[last])
        far = (nearest > plausibility.limit).nonzero()[:, 0]
        if len(far) == 0:
            return x
        origin = self.feasible.origin[rows[far]]
        nearest, was_valid = nearest[far], is_valid(x[last][far], origin)
        for weight in _END_WEIGHTS:
            end = self.decode(z[last][far], rows[far], weight)
            distance = plausibility.distance(end)
            gains = (distance < nearest) & (is_valid(end, origin) | ~was_valid)
            nearest, kept[far] = torch.where(gains, distance, nearest), torch.where(gains, weight, kept[far])
        decays = (kept < 1)[row] & ~first
        if not bool(decays.any()):
            return x
        decaying = row[decays]
        weights = 1 - (1 - kept[decaying]) * path_fraction(row)[decays]
        return x.index_put((decays,), self.decode(z[decays], decaying, weights[:, None]))
