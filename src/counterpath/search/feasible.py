"""The feasible set: what each row may become, within which bounds and with which columns fixed."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.data.constraints import Bounds
from counterpath.data.encoding import Encoder
from counterpath.search.step_constraints import StepConstraints, residual

_FAR = 1e9  # beyond every encoded value, yet finite in float32: rounding it gives the ends of the legal range
_NATS_PER_COST = 1.0
"""What changing a feature over its whole range must gain, in nats, for every unit of cost beyond 1: one nat is a
factor of e in the odds, so that a feature of cost 2 changes only where it pays in the classifier's own currency."""


@dataclass(frozen=True)
class FeasibleSet:
    """The rows that each of n factual rows may become.

    Attributes:
        encoder: Knows what a legal row is.
        factual: The rows themselves, encoded.
        lower: The least that each column may be.
        upper: The most.
        fixed: Columns that stay as they are; the generative model is conditioned on them.
        bounded: Columns with a bound that was asked for.
        feature_costs: What changing each column costs, from 1.
    """

    encoder: Encoder
    factual: Float[Tensor, "n D"]
    lower: Float[Tensor, "n D"]
    upper: Float[Tensor, "n D"]
    fixed: Bool[Tensor, "n D"]
    bounded: Bool[Tensor, "D"]
    feature_costs: Float[Tensor, "D"]

    @classmethod
    def of(
        cls,
        encoder: Encoder,
        factual: Float[Tensor, "n D"],
        bounds: Bounds | None = None,
        feature_costs: Float[Tensor, "D"] | None = None,
        *,
        immutable: bool = True,
    ) -> "FeasibleSet":
        """Legal rows with the immutable features fixed, if they are to be, within bounds if there are any.

        A factual value that no legal row has, because the training rows do not go so far, may stay.
        """
        low, high = _legal_range(encoder, factual)
        lower, upper = factual.minimum(low), factual.maximum(high)
        fixed = torch.zeros_like(factual[0], dtype=torch.bool)
        fixed[encoder.columns(*encoder.schema.immutable) if immutable else []] = True
        feasible = cls(
            encoder,
            factual,
            lower if bounds is None else lower.maximum(bounds.lower),
            upper if bounds is None else upper.minimum(bounds.upper),
            torch.zeros_like(factual, dtype=torch.bool),
            torch.zeros_like(fixed) if bounds is None else _bounded(bounds),
            torch.ones_like(factual[0]) if feature_costs is None else feature_costs.to(factual),
        )
        return feasible.fix(fixed.expand_as(factual) if bounds is None else bounds.locked | fixed)

    def __len__(self) -> int:
        return len(self.factual)

    def at(self, rows: Tensor) -> "FeasibleSet":
        """The feasible set of some rows, by indices or a mask."""
        return replace(self, **{name: getattr(self, name)[rows] for name in ("factual", "lower", "upper", "fixed")})

    def repeat(self, count: int) -> "FeasibleSet":
        """Every row `count` times, one after another."""
        return self.at(torch.arange(len(self), device=self.factual.device).repeat_interleave(count))

    def groups(self) -> list[Int[Tensor, "m"]]:
        """Indices of rows that may become the same rows, group by group."""
        member = torch.cat([self.lower, self.upper], 1).unique(dim=0, return_inverse=True)[1]
        return [(member == number).nonzero()[:, 0] for number in range(int(member.max()) + 1)] if len(self) else []

    def fix(self, columns: Bool[Tensor, "n D"]) -> "FeasibleSet":
        """The same with further columns fixed."""
        lower, upper = (torch.where(columns, self.factual, bound) for bound in (self.lower, self.upper))
        return replace(self, lower=lower, upper=upper, fixed=self.fixed | columns)

    @cached_property
    def unconstrained(self) -> bool:
        """Whether there is nothing to respect but what is legal."""
        return not (bool(self.fixed.any()) or bool(self.bounded.any()))

    def columns(self, features: Bool[Tensor, "n f"]) -> Bool[Tensor, "n D"]:
        """The columns of features."""
        wide = torch.zeros_like(self.fixed[:1]).expand(len(features), -1).clone()
        for columns, chosen in zip(self.encoder.layout, features.T, strict=True):
            wide[:, columns] = chosen[:, None]
        return wide

    def features(self, columns: Bool[Tensor, "n D"]) -> Bool[Tensor, "n f"]:
        """The features that have any of these columns."""
        return torch.stack([columns[:, part].any(-1) for part in self.encoder.layout], dim=1)

    def legal(self, x: Float[Tensor, "p D"], row: Int[Tensor, "p"] | None = None) -> Float[Tensor, "p D"]:
        """The nearest feasible rows; `row` says to which row each belongs, by default one each."""
        return legal(self.encoder, x, *((bound if row is None else bound[row]) for bound in (self.lower, self.upper)))

    def step_constraints(
        self, decoded: Float[Tensor, "n D"], *, keep_residual: bool, squashed: bool, generative: bool, conditional: bool
    ) -> StepConstraints:
        """What every step has to respect, given the reconstructions of the rows.

        Args:
            decoded: The reconstructions.
            keep_residual: Start at the rows, not at their reconstructions.
            squashed: The model decodes numbers between 0 and 1.
            generative: It decodes categories as probabilities.
            conditional: It can be conditioned on fixed columns; else the step has to hold them.
        """
        hard, blocks = self.feature_costs > 1, self.encoder.blocks if generative else ()
        bounded = self.bounded & ~self.encoder.categorical.to(self.bounded.device) if blocks else self.bounded
        columns = bounded | hard | (False if conditional else self.fixed.any(0))
        missing = torch.zeros_like(decoded)
        if keep_residual:
            missing = residual(self.factual, decoded, blocks, squashed=squashed)
        missing = torch.where(self.fixed, 0, missing)
        for first, end in blocks:  # what is not allowed has no probability
            closed = self.upper[:, first:end] <= 0
            missing[:, first:end] = missing[:, first:end].masked_fill(closed & ~self.fixed[:, first:end], -_FAR)
        return StepConstraints(
            self.factual,
            self.lower,
            self.upper,
            missing,
            blocks,
            squashed,
            columns.nonzero()[:, 0] if bool(columns.any()) else None,
            _NATS_PER_COST * (self.feature_costs - 1) * self._plain_weights.square() if bool(hard.any()) else None,
        )

    def cost(self, x: Float[Tensor, "p D"], row: Int[Tensor, "p"] | None = None) -> Float[Tensor, "p"]:
        """What becoming these rows costs: Σ ωⱼwⱼ²·|x'ⱼ − xⱼ|, with the feature costs ω; `row` as in `legal`."""
        return (self.weights.square() * (x - (self.factual if row is None else self.factual[row])).abs()).sum(-1)

    @property
    def weights(self) -> Float[Tensor, "D"]:
        """Of the columns in distances: what costs more to change is farther away."""
        return self._plain_weights * self.feature_costs.sqrt()

    @property
    def _plain_weights(self) -> Tensor:
        return self.encoder.weights.to(self.factual)


def legal(encoder: Encoder, x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The nearest legal rows within bounds, which are legal values or the factual ones."""
    if encoder.blocks:
        closed = encoder.rounding(x.device).categorical & (upper <= 0)
        x = torch.where(closed, -1, x)
    return encoder.round(x).clamp(lower, upper)


def _legal_range(encoder: Encoder, like: Tensor) -> tuple[Tensor, Tensor]:
    ends = encoder.round(torch.stack([torch.full_like(like[0], -_FAR), torch.full_like(like[0], _FAR)]))
    category = encoder.categorical.to(like.device)
    return torch.where(category, 0, ends[0]), torch.where(category, 1, ends[1])


def _bounded(bounds: Bounds) -> Tensor:
    asked = (bounds.lower > -torch.inf) | (bounds.upper < torch.inf)
    return (asked & ~bounds.locked).any(0)
