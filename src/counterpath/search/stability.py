"""Answers that last: rows that other models accept as well, and that stay valid if a person does not quite follow them.

Both are asked of rows that the explained model accepts already: how many models of a family give the wanted outcome,
see `models.family`; and for which share of small deviations in the numbers that changed the model itself does.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from counterpath.data.encoding import Encoder
from counterpath.models.family import Members
from counterpath.search.deviations import deviations
from counterpath.search.objective import Target

PredictProba = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Stability:
    """What an answer must survive.

    To ask all models of a family about every row that a search tries takes too long. So a panel, the first few of them,
    is asked first: with mean m and standard deviation s of its models' log odds, and if these are normal, a row is
    refused by a share of at most ρ of all models where m ≥ z·s, z the quantile of 1 − ρ. From k models z·s is known to
    within s·√((1 + z²/2)/k), one standard error. Who is clearly below is refused; about all others every model is
    asked, so that what is promised depends on all of them: the strictest first, because a row that too many refuse is
    not shown to the others. And nothing is asked twice within a search, which comes by the same rows again and again.

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
    _orders: dict[Target, Members] = field(default_factory=dict, repr=False, compare=False)
    _said: dict[bytes, bool] = field(default_factory=dict, repr=False, compare=False)

    @property
    def one_change(self) -> bool:
        """Whether the family is too small for anything but answers that change a single feature."""
        return self.members is not None and self.chosen and len(self.allowed) > 2 and self.allowed[2] < 0

    def for_a_search(self) -> "Stability":
        """The same, which remembers what it is asked: as long as it lives."""
        return replace(self, _said={})

    def relaxed(self, refusals: int) -> "Stability":
        """The same with so many models that may refuse in any case."""
        return replace(self, allowed=tuple(max(each, refusals) for each in self.allowed), _known={})

    def on_the_way(self) -> "Stability":
        """The same for rows that a search comes by: with any number of changes they may last, if no model refuses.

        A training row differs from a person in nearly everything, which is too many changes for most families; but most
        of them will be put back.
        """
        return replace(self, allowed=tuple(max(each, 0) for each in self.allowed))

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
        changes = torch.zeros_like(x[:, 0], dtype=torch.long) if changes is None else changes
        allowed = torch.tensor(self.allowed, device=x.device)[changes]
        names = [repr(target).encode() + row.tobytes() for row in _bytes(x, allowed)]
        known = [self._said.get(name) for name in names]
        new = {name: row for row, (name, each) in enumerate(zip(names, known, strict=True)) if each is None}
        if new:
            some = torch.tensor(list(new.values()), device=x.device)
            asked = self._ask(x[some], target, changes[some], allowed[some])
            if len(self._said) > _MOST_SAID:
                self._said.clear()
            found = dict(zip(new, asked.tolist(), strict=True))
            self._said.update(found)
            known = [found[name] if each is None else each for name, each in zip(names, known, strict=True)]
        return torch.tensor(known, dtype=torch.bool, device=x.device)

    def _ask(
        self, x: Float[Tensor, "n D"], target: Target, changes: Int[Tensor, "n"], allowed: Int[Tensor, "n"]
    ) -> Bool[Tensor, "n"]:
        """The same, of rows of which nothing is known."""
        assert self.members is not None
        good, members = self._likely(x, target, changes), self._orders.get(target, self.members)
        refused = torch.where(good, 0, len(members) + 1)
        left = good.nonzero()[:, 0]
        for first in range(0, len(members), members.together):
            if len(left) == 0:
                break
            said = members.predict_proba(x[left], slice(first, first + members.together))
            refused[left] += (~reached_by(said, target)).sum(0)
            left = left[refused[left] <= allowed[left]]
        return refused <= allowed

    def among(self, rows: Float[Tensor, "m D"], reached: Bool[Tensor, "m"], target: Target) -> Bool[Tensor, "m"]:
        """Which of some training rows, that reach a target or not, last as they are; asked once for each target.

        Where features are chosen one by one, these are where a search begins, and the panel is enough. Deviations are
        not looked at: what has to change differs from person to person.
        """
        if self.members is None:
            return reached
        known = self._known.get((target, self.chosen))
        if known is None or known[0] is not rows:
            index = reached.nonzero()[:, 0]
            self._order(rows[index], target)
            if self.chosen and self._has_panel:
                lasts = self._likely(rows[index], target, torch.zeros_like(index))
            else:
                lasts = self.accepted(rows[index], target)
            known = self._known[target, self.chosen] = rows, reached.index_copy(0, index, lasts)
        found: Tensor = known[1]
        return found

    def _order(self, rows: Float[Tensor, "m D"], target: Target) -> None:
        """Put the models in order: those that refuse most of the accepted training rows that hardly last come first."""
        if target in self._orders or not self._has_panel or len(rows) == 0:
            return
        assert self.members is not None
        some = rows[:: max(1, len(rows) // _MOST_LOOKED_AT)]
        hardly = some[self.advantage(some, target).abs().argsort(stable=True)[:_HARDLY]]
        together, count = self.members.together, len(self.members)
        refused = [
            (~reached_by(self.members.predict_proba(hardly, slice(first, first + together)), target)).sum(1)
            for first in range(0, count, together)
        ]
        order = torch.cat(refused).argsort(descending=True, stable=True)
        self._orders[target] = self.members.take(order)

    def advantage(self, x: Float[Tensor, "n D"], target: Target) -> Float[Tensor, "n"]:
        """How far rows are inside of what enough members accept, in log odds: m − z·s of the panel.

        A search goes by it: z is that of a few changes, as an answer has them.
        """
        mean, spread = self._panel(x, target)
        return mean - self._quantile(_FEW_CHANGES) * spread

    @property
    def _has_panel(self) -> bool:
        return self.members is not None and len(self.members) > _MOST_OF * _PANEL

    def _panel(self, x: Float[Tensor, "n D"], target: Target) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
        """Mean and standard deviation of the log odds by which the models of the panel decide for the target."""
        assert self.members is not None
        said = self.members.predict_proba(x, slice(0, _PANEL))
        lead = target.lead(said.flatten(0, 1)).view(said.shape[:2])
        mean = lead.mean(0)
        return mean, (lead - mean).square().mean(0).sqrt()

    def _likely(self, x: Float[Tensor, "n D"], target: Target, changes: Int[Tensor, "n"]) -> Bool[Tensor, "n"]:
        """Which rows may last, as far as the panel can tell."""
        assert self.members is not None
        possible = torch.tensor(self.allowed, device=x.device)[changes] >= 0
        if not self._has_panel:
            return possible
        z = torch.tensor([self._quantile(number) for number in range(len(self.allowed))], device=x.device)
        wanted = z - _DOUBT * ((1 + z * z / 2) / _PANEL).sqrt()
        mean, spread = self._panel(x, target)
        return possible & (mean >= wanted[changes] * spread)

    def _quantile(self, changes: int) -> float:
        """z, with so many features changed; half of a model more may refuse, since models are counted."""
        assert self.members is not None
        share = (max(self.allowed[min(changes, len(self.allowed) - 1)], 0) + 0.5) / len(self.members)
        quantile = torch.special.ndtri(torch.tensor(1 - min(share, _MOST_REFUSED), dtype=torch.float64))
        return float(quantile)


_PANEL = 32
"""Models of the panel: they order what a search on HELOC asks about nearly as all do (area under the curve 0.985)."""
_DOUBT = 1.5
"""By how many standard errors a row may be below what it takes before it is refused by the panel's word alone: with
2.5 answers are the same, and more models are asked."""
_MOST_OF = 2  # panels that a family must be larger than: otherwise all are asked at once
_HARDLY = 64
"""Training rows by which the strictest models are found: those nearest to where enough models accept."""
_MOST_LOOKED_AT = 1000  # training rows among which these are: of a panel's word about each
_MOST_SAID = 100_000  # rows that are remembered: a few megabytes
_FEW_CHANGES = 3  # of an answer, as most have them
_MOST_REFUSED = 0.99  # of the models, where nearly all may refuse: the quantile of 1 is infinite


def _bytes(x: Float[Tensor, "n D"], allowed: Int[Tensor, "n"]) -> NDArray[Any]:
    """What tells rows, and how many models may refuse them, from others."""
    parts = [np.ascontiguousarray(each.cpu().numpy()).view(np.uint8) for each in (x, allowed[:, None])]
    return np.concatenate(parts, 1)


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
