"""On the way from people: which row a code stands for, with what the model is told and what is carried along."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.geometry.neighbours import Neighbours
from counterpath.models.latent import LatentModel, context_for
from counterpath.search.feasible import FeasibleSet
from counterpath.search.measures import EQUAL
from counterpath.search.paths import firsts, progress
from counterpath.search.step_constraints import StepConstraints
from counterpath.utils.blocks import map_blocks

_SHARES = (1.0, 0.5, 0.0)


@dataclass(frozen=True)
class Data:
    """The training rows, and how far from them real rows are.

    Attributes:
        neighbours: The rows.
        reach: The distance to the nearest of them that 95 % of held-out rows do not exceed.
        typical: The root mean square of that distance.
        every: All training rows, where `neighbours` is a sample of them.
    """

    neighbours: Neighbours
    reach: float
    typical: float
    every: Neighbours | None = None

    def distance(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
        """How far rows are from the nearest training row."""
        return self.neighbours.nearest(x)[0][:, 0]

    def copies(self, x: Float[Tensor, "n D"]) -> Bool[Tensor, "n"]:
        """Which rows are equal to a training row."""
        return (self.every or self.neighbours).nearest(x)[0][:, 0] < EQUAL


@dataclass(frozen=True)
class ResidualDecoder:
    """Where n people set out from in a latent space, and what they take along.

    Attributes:
        model: The space.
        scope: What each person may become.
        start: Their codes.
        told: What the model is told about them; None for a model that cannot be told anything.
        terms: What their walks have to respect.
    """

    model: LatentModel
    scope: FeasibleSet
    start: Float[Tensor, "n d"]
    told: Tensor | None
    terms: StepConstraints

    @classmethod
    def of(cls, model: LatentModel, scope: FeasibleSet, *, generative: bool, carry: bool) -> "ResidualDecoder":
        """Set out.

        Args:
            model: The space.
            scope: What each person may become.
            generative: Whether it is a generative model; others reproduce people, and there is nothing to carry.
            carry: Whether what it does not reproduce of people is carried along.
        """
        told = context_for(model, scope.factual, scope.told)
        with torch.no_grad():
            start = map_blocks(model.encode, scope.factual)
            decoded = map_blocks(model.decode, start, told)
        terms = scope.terms(
            decoded,
            carry=carry and generative,
            squashed=getattr(model, "output", "sigmoid") == "sigmoid",
            generative=generative,
            deaf=told is None,
        )
        return cls(model, scope, start, told, terms)

    def at(self, people: Int[Tensor, "m"]) -> "ResidualDecoder":
        """The journeys of some of them."""
        told = None if self.told is None else self.told[people]
        return ResidualDecoder(self.model, self.scope.at(people), self.start[people], told, self.terms.at(people))

    def rows(
        self, z: Float[Tensor, "p d"], whose: Int[Tensor, "p"], share: Tensor | float = 1.0
    ) -> Float[Tensor, "p D"]:
        """The rows that codes stand for, with a share of what is carried, within the scope of the people."""
        told = None if self.told is None else self.told[whose]
        with torch.no_grad():
            return self.become(map_blocks(self.model.decode, z, told), whose, share)

    def become(
        self, decoded: Float[Tensor, "p D"], whose: Int[Tensor, "p"], share: Tensor | float = 1.0
    ) -> Float[Tensor, "p D"]:
        """The same for codes that have been decoded."""
        terms = self.terms.at(whose)
        return self.scope.legal(terms.clipped(terms.carried(decoded, share)), whose)

    def faded(
        self,
        row: Int[Tensor, "p"],
        x: Float[Tensor, "p D"],
        z: Float[Tensor, "p d"],
        met: Callable[[Tensor], Tensor],
        data: Data,
    ) -> Float[Tensor, "p D"]:
        """The points of paths, along which what is carried fades as far as the end gains plausibility by it.

        It does not fade where the end is as close to the training rows as real rows are, nor where the end would no
        longer have the wanted outcome.

        Args:
            row: Whose points they are.
            x: The points, with all that is carried.
            z: Their codes.
            met: For which rows the model gives the wanted outcome.
            data: The training rows.
        """
        first = firsts(row)
        last = torch.cat([first[1:], torch.ones_like(first[:1])])
        people = row[last]
        kept, nearest = torch.ones_like(x[last][:, 0]), data.distance(x[last])
        far = (nearest > data.reach).nonzero()[:, 0]
        if len(far) == 0:
            return x
        nearest, there = nearest[far], met(x[last][far])
        for share in _SHARES:
            end = self.rows(z[last][far], people[far], share)
            distance = data.distance(end)
            gains = (distance < nearest) & (met(end) | ~there)
            nearest, kept[far] = torch.where(gains, distance, nearest), torch.where(gains, share, kept[far])
        fades = (kept < 1)[row] & ~first
        if not bool(fades.any()):
            return x
        whose = row[fades]
        share_there = 1 - (1 - kept[whose]) * progress(row)[fades]
        return x.index_put((fades,), self.rows(z[fades], whose, share_there[:, None]))
