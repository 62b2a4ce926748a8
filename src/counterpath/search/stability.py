"""Answers that last: rows that other models accept as well, and that stay valid if a person does not quite follow them.

Both are asked of rows that the explained model accepts already: how many models of a family give the wanted outcome,
see `models.family`; and for which share of small deviations in the numbers that changed the model itself does.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.data.encoding import Encoder
from counterpath.models.family import Members
from counterpath.search.deviations import deviations
from counterpath.search.objective import Target

PredictProba = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Stability:
    """What an answer must survive.

    Attributes:
        encoder: Knows the features.
        members: The models of a family; None where nothing is asked of them.
        allowed: How many of them may refuse a row, by how many features change; −1 where none may.
        noise: For which share of deviations an answer must stay valid; None where nothing is asked of them.
        chosen: Whether rows are chosen feature by feature, so that each one counts; see `models.family`.
    """

    encoder: Encoder
    members: Members | None = None
    allowed: tuple[int, ...] = ()
    noise: float | None = None
    chosen: bool = True
    _known: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def relaxed(self, refusals: int) -> "Stability":
        """The same with so many models that may refuse in any case."""
        more = tuple(max(each, refusals) for each in self.allowed)
        return replace(self, allowed=more, _known={"order": self._known.setdefault("order", {})})

    def holds(
        self, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"], target: Target, predict_proba: PredictProba
    ) -> Bool[Tensor, "n"]:
        """Which rows, that the explained model accepts, last."""
        good = torch.ones(len(x), dtype=torch.bool, device=x.device)
        if self.noise is not None:
            good = noise_share(self.encoder, x, factual, target, predict_proba) >= self.noise
        if self.members is None:
            return good
        rows = good.nonzero()[:, 0]
        return good.index_copy(0, rows, self.accepted(x[rows], target, self.changes(x[rows], factual[rows])))

    def changes(self, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"]) -> Int[Tensor, "n"]:
        """How many features of rows were chosen: those that changed, or one at most."""
        differ = x != factual
        count = torch.stack([differ[:, columns].any(1) for columns in self.encoder.layout], 1).sum(1)
        return count if self.chosen else count.clamp_max(1)

    def accepted(
        self, x: Float[Tensor, "n D"], target: Target, changes: Int[Tensor, "n"] | None = None
    ) -> Bool[Tensor, "n"]:
        """Which rows enough members accept. Who is refused by too many is not shown to the others.

        Args:
            x: Rows.
            target: The wanted outcome.
            changes: How many features of each were chosen; by default none.
        """
        assert self.members is not None
        together = self.members.together
        allowed = torch.tensor(self.allowed, device=x.device)
        allowed = allowed[:1].expand(len(x)) if changes is None else allowed[changes]
        refused = torch.zeros(len(x), dtype=torch.long, device=x.device)
        left = (allowed >= 0).nonzero()[:, 0]
        for first in range(0, len(self.members), together):
            if len(left) == 0:
                break
            said = self.members.predict_proba(x[left], slice(first, first + together))
            refused[left] += (~reached_by(said, target)).sum(0)
            left = left[refused[left] <= allowed[left]]
        return refused <= allowed

    def among(self, rows: Float[Tensor, "m D"], reached: Bool[Tensor, "m"], target: Target) -> Bool[Tensor, "m"]:
        """Which of some training rows, that reach a target or not, last as they are; asked once for each target.

        Deviations are not looked at: what has to change differs from person to person.
        """
        if self.members is None:
            return reached
        known = self._known.get(target)
        if known is None or known[0] is not rows:
            index = reached.nonzero()[:, 0]
            known = rows, reached.index_copy(0, index, self.accepted(rows[index], target))
            self._known[target] = known
        lasts: Tensor = known[1]
        return lasts

    def rounds(
        self, rows: Float[Tensor, "m D"], probabilities: Float[Tensor, "m K"], target: Target
    ) -> Iterator["Stability"]:
        """What to search under, one after the other: the strictest few models, and all.

        What is refused by too many of a few is refused by too many of all. So a search may ask a few, and all are asked
        about its answers; who fails is searched for again under more. The strictest are those that refuse most of the
        training rows that the explained model just accepts.
        """
        few = 0 if self.members is None else _FEW + int(_TIMES * max(self.allowed[0], 0))
        if self.members is None or few >= _MOST_OF * len(self.members):
            yield self
            return
        orders = self._known.setdefault("order", {})
        if target not in orders:
            reached = target.is_reached(probabilities).nonzero()[:, 0]
            advantage = target.advantage(probabilities[reached])
            near = rows[reached[advantage.argsort(stable=True)[:_BORDERLINE]]]
            refusals = [
                (~reached_by(self.members.predict_proba(near, slice(first, first + self.members.together)), target))
                for first in range(0, len(self.members), self.members.together)
            ]
            orders[target] = torch.cat(refusals).sum(1).argsort(descending=True, stable=True)
        key = few, target, self.chosen
        if key not in self._known:
            self._known[key] = replace(self, members=self.members.take(orders[target][:few]), _known={})
        yield self._known[key]
        yield self


_FEW, _TIMES = 24, 2
"""How many of the strictest models are asked first: so many, and beside them twice as many as may refuse."""
_MOST_OF = 0.7
"""Beyond this share of all models all are asked at once: two searches would take longer."""
_BORDERLINE = 500
"""Training rows by which models are ordered: so many tell the strict from the lenient."""


def reached_by(said: Float[Tensor, "m n K"], target: Target) -> Bool[Tensor, "m n"]:
    """Which models give which rows the wanted outcome: what is decided, and with a range what is asked of that.

    A confidence is asked of the model that is explained, and not of those that may follow it.
    """
    decided = target if target.interval is not None else replace(target, confidence=None)
    flat = said.flatten(0, 1)
    return decided.is_reached(flat).view(said.shape[:2])


def share_of(members: Members, x: Float[Tensor, "n D"], target: Target) -> Float[Tensor, "n"]:
    """Which share of models gives rows the wanted outcome."""
    total = torch.zeros(len(x), device=x.device)
    for first in range(0, len(members), members.together):
        some = slice(first, first + members.together)
        total += reached_by(members.predict_proba(x, some), target).sum(0)
    return total / max(1, len(members))


def noise_share(
    encoder: Encoder,
    x: Float[Tensor, "n D"],
    factual: Float[Tensor, "n D"],
    target: Target,
    predict_proba: PredictProba,
) -> Float[Tensor, "n"]:
    """For which share of the deviations from rows the target is reached."""
    if len(x) == 0:
        return x.new_zeros(0)
    tried = deviations(encoder, x, factual)
    return target.is_reached(predict_proba(tried.flatten(0, 1))).view(tried.shape[:2]).to(x.dtype).mean(1)


def typical_level(
    advantage: Float[Tensor, "m"], lasts: Bool[Tensor, "m"], least: Float[Tensor, ""]
) -> Float[Tensor, ""]:
    """From which advantage on accepted training rows mostly last: the level by which fewest are on the wrong side.

    It guides a search, which is then told by the models themselves.

    Args:
        advantage: Of the explained model, of training rows that it accepts.
        lasts: Which of them last.
        least: The least that there is: the level without anything to survive.
    """
    if len(advantage) == 0 or not bool(lasts.any()):
        return least
    order = advantage.argsort(stable=True)
    kept = lasts[order].to(torch.long)
    # At rank i, those before are said not to last, and those from there on to last.
    wrong_before = torch.cat([kept.new_zeros(1), kept.cumsum(0)])[:-1]
    wrong_after = (1 - kept).flip(0).cumsum(0).flip(0)
    best = int((wrong_before + wrong_after).argmin())
    return advantage[order][best].to(least).maximum(least)
