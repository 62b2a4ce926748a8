"""What each person may become: within which bounds, with which columns as they are."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.data.constraints import Bounds
from counterpath.data.encoding import Encoder
from counterpath.search.step_constraints import StepConstraints, residual

_FAR = 1e9
_PRICE = 1.0
"""What changing a feature over its whole range must gain, in nats, for every unit of feature_costs beyond the least."""


@dataclass(frozen=True)
class FeasibleSet:
    """The rows that each of n people may become.

    Attributes:
        encoder: Knows what a legal row is.
        factual: The people, encoded.
        lower: The least that each column may be.
        upper: The most.
        told: Columns that stay as they are, and that the generative model is told.
        bounded: Columns with a bound that was asked for.
        feature_costs: How hard each column is to change, from 1.
    """

    encoder: Encoder
    factual: Float[Tensor, "n D"]
    lower: Float[Tensor, "n D"]
    upper: Float[Tensor, "n D"]
    told: Bool[Tensor, "n D"]
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
        """Legal rows with the immutable features of the people if they stay so, within bounds if there are any.

        A value of a person that no legal row has, because the training rows do not go so far, may stay.
        """
        low, high = _legal_range(encoder, factual)
        lower, upper = factual.minimum(low), factual.maximum(high)
        held = torch.zeros_like(factual[0], dtype=torch.bool)
        held[encoder.columns(*encoder.schema.immutable) if immutable else []] = True
        scope = cls(
            encoder,
            factual,
            lower if bounds is None else lower.maximum(bounds.lower),
            upper if bounds is None else upper.minimum(bounds.upper),
            torch.zeros_like(factual, dtype=torch.bool),
            torch.zeros_like(held) if bounds is None else _bounded(bounds),
            torch.ones_like(factual[0]) if feature_costs is None else feature_costs.to(factual),
        )
        return scope.holding(held.expand_as(factual) if bounds is None else bounds.locked | held)

    def __len__(self) -> int:
        return len(self.factual)

    def at(self, rows: Tensor) -> "FeasibleSet":
        """The scope of some people; `rows` are places or a mask."""
        return replace(self, **{name: getattr(self, name)[rows] for name in ("factual", "lower", "upper", "told")})

    def alike(self) -> list[Int[Tensor, "m"]]:
        """People who may become the same rows, group by group, by their places."""
        member = torch.cat([self.lower, self.upper], 1).unique(dim=0, return_inverse=True)[1]
        return [(member == number).nonzero()[:, 0] for number in range(int(member.max()) + 1)] if len(self) else []

    def holding(self, columns: Bool[Tensor, "n D"]) -> "FeasibleSet":
        """The same with further columns that stay as they are."""
        lower, upper = (torch.where(columns, self.factual, bound) for bound in (self.lower, self.upper))
        return replace(self, lower=lower, upper=upper, told=self.told | columns)

    @cached_property
    def free(self) -> bool:
        """Whether there is nothing to respect but what is legal."""
        return not (bool(self.told.any()) or bool(self.bounded.any()))

    def columns(self, features: Bool[Tensor, "n f"]) -> Bool[Tensor, "n D"]:
        """The columns of features."""
        wide = torch.zeros_like(self.told[:1]).expand(len(features), -1).clone()
        for columns, chosen in zip(self.encoder.layout, features.T, strict=True):
            wide[:, columns] = chosen[:, None]
        return wide

    def features(self, columns: Bool[Tensor, "n D"]) -> Bool[Tensor, "n f"]:
        """The features that have any of these columns."""
        return torch.stack([columns[:, part].any(-1) for part in self.encoder.layout], dim=1)

    def legal(self, x: Float[Tensor, "p D"], row: Int[Tensor, "p"] | None = None) -> Float[Tensor, "p D"]:
        """The nearest rows that people may become; `row` says whose they are, by default one each."""
        return legal(self.encoder, x, *((bound if row is None else bound[row]) for bound in (self.lower, self.upper)))

    def terms(
        self, decoded: Float[Tensor, "n D"], *, carry: bool, squashed: bool, generative: bool, deaf: bool
    ) -> StepConstraints:
        """What walks have to respect, given how the people are decoded.

        Args:
            decoded: Their reconstructions.
            carry: Start at the people, not at their reconstructions.
            squashed: The model decodes numbers between 0 and 1.
            generative: It decodes categories as probabilities.
            deaf: The model cannot be told columns, so the step has to hold them.
        """
        hard, blocks = self.feature_costs > 1, self.encoder.blocks if generative else ()
        bounded = self.bounded & ~self.encoder.categorical.to(self.bounded.device) if blocks else self.bounded
        columns = bounded | hard | (self.told.any(0) if deaf else False)
        missing = residual(self.factual, decoded, blocks, squashed=squashed) if carry else torch.zeros_like(decoded)
        missing = torch.where(self.told, 0, missing)
        for first, end in blocks:  # what is not allowed has no probability
            closed = self.upper[:, first:end] <= 0
            missing[:, first:end] = missing[:, first:end].masked_fill(closed & ~self.told[:, first:end], -_FAR)
        return StepConstraints(
            self.factual,
            self.lower,
            self.upper,
            missing,
            blocks,
            squashed,
            columns.nonzero()[:, 0] if bool(columns.any()) else None,
            _PRICE * (self.feature_costs - 1) * self._plain_weights.square() if bool(hard.any()) else None,
        )

    def cost(self, x: Float[Tensor, "p D"], row: Int[Tensor, "p"] | None = None) -> Float[Tensor, "p"]:
        """What becoming these rows costs people: Σ ωⱼwⱼ²·|x'ⱼ − xⱼ|, with the feature_costs ω; `row` as in `legal`."""
        return (self.weights.square() * (x - (self.factual if row is None else self.factual[row])).abs()).sum(-1)

    @property
    def weights(self) -> Float[Tensor, "D"]:
        """Of the columns in distances: what is hard to change is farther away."""
        return self._plain_weights * self.feature_costs.sqrt()

    @property
    def _plain_weights(self) -> Tensor:
        return self.encoder.weights.to(self.factual)


def legal(encoder: Encoder, x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The nearest legal rows within bounds, which are legal values or the person's own."""
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
