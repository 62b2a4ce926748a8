"""Measures of counterfactuals and of the paths to them, each a plain function.

A measure takes a `Case`, counterfactuals beside their factuals, and returns one number a row. Distances are between
encoded rows in [0, 1], after categories were rounded, with the weights w of `Encoder.weights`: another category counts
like the whole range of a number, however many columns it is encoded in, and a number with a transform, log1p, counts on
that scale. The field has two conventions for some of them; each has its own name here: `l2` and `ld` are plain
distances, `l2_sq` and `ld_sq` their squares, as CARLA and the paper print; `l1` is in encoded units, `l1_mad` in
original ones, scaled by their spread.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.data.axes import Axis, MixedAxes
from counterpath.data.encoding import Encoder
from counterpath.geometry.graph import Neighbours
from counterpath.search.combinations import Combinations
from counterpath.search.deviations import deviations

YNN_NEIGHBOURS = 5  # as in CARLA
_SPREAD_ROWS = 20_000  # of training rows, evenly spaced: a median of so many is right to a hundredth of its spread
EQUAL = 1e-6
"""Rows that are closer than this are equal: encoding is exact to 6e-8 of a range, and distances add up columns."""


@dataclass(frozen=True)
class Case:
    """Counterfactuals beside their factuals, as encoded, legal rows.

    Attributes:
        factual: The rows that were explained.
        counterfactual: The rows that were found.
        probability: Maps rows to the probability of the target, by the explained model.
        encoder: Knows the features.
        neighbours: The training rows, with the encoder's weights.
        confidence: What the probability must reach; the target must be predicted, too. None for no more than that.
        combinations: Which combinations of values training rows have; None where nobody looked.
        is_predicted: Maps rows to whether the target is predicted; by default where its probability is at least 0.5.
        spreads: Of each feature in original units, as of `spreads`; None where nobody looked.
        share_after: Maps rows to the share of other models that give the wanted outcome; None where there are none.
    """

    factual: Float[Tensor, "n D"]
    counterfactual: Float[Tensor, "n D"]
    probability: Callable[[Tensor], Tensor]
    encoder: Encoder
    neighbours: Neighbours
    confidence: float | None = 0.5
    is_predicted: Callable[[Tensor], Tensor] | None = None
    combinations: Combinations | None = None
    spreads: Float[Tensor, "f"] | None = None
    share_after: Callable[[Tensor], Tensor] | None = None

    def predicted(self, x: Float[Tensor, "m D"]) -> Bool[Tensor, "m"]:
        """For which rows the model predicts the target."""
        return self.probability(x) >= 0.5 if self.is_predicted is None else self.is_predicted(x)

    def is_valid(self, x: Float[Tensor, "m D"]) -> Bool[Tensor, "m"]:
        """For which rows it does so with the asked confidence."""
        decided = self.predicted(x)
        return decided if self.confidence is None else decided & (self.probability(x) >= self.confidence)

    @cached_property
    def changed(self) -> Bool[Tensor, "n f"]:
        """Which features differ, in original units."""
        return self.encoder.changed(self.factual, self.counterfactual)

    @cached_property
    def difference(self) -> Float[Tensor, "n D"]:
        """Counterfactual minus factual, encoded."""
        return self.counterfactual - self.factual

    @cached_property
    def weights(self) -> Float[Tensor, "D"]:
        """w, of the encoded columns."""
        return self.encoder.weights.to(self.factual)


def probability(case: Case) -> Float[Tensor, "n"]:
    """c(x'), the probability of the wanted outcome."""
    return case.probability(case.counterfactual)


def valid(case: Case) -> Float[Tensor, "n"]:
    """1 where c(x') ≥ the asked confidence and the wanted outcome is predicted; its mean is the flip ratio."""
    return case.is_valid(case.counterfactual).to(case.factual.dtype)


def l0(case: Case) -> Float[Tensor, "n"]:
    """How many features changed; a category counts once."""
    return case.changed.sum(-1).to(case.factual.dtype)


def l1(case: Case) -> Float[Tensor, "n"]:
    """Σ wⱼ²·|x'ⱼ − xⱼ|."""
    return (case.weights.square() * case.difference.abs()).sum(-1)


def l1_mad(case: Case) -> Float[Tensor, "n"]:
    """Σ |x'ₖ − xₖ|/MADₖ in original units (Wachter, Mittelstadt and Russell, 2017).

    Another category counts 1, and so does a number in the place of a code or a gap.
    """
    if case.spreads is None:
        return torch.full_like(case.factual[:, 0], torch.nan)
    total = torch.zeros_like(case.factual[:, 0], dtype=torch.float64)
    for feature, (columns, axis) in enumerate(zip(case.encoder.layout, case.encoder.axes, strict=True)):
        before, after = (_values(axis, rows[:, columns]) for rows in (case.factual, case.counterfactual))
        total += torch.where(case.changed[:, feature], (after - before).abs() / case.spreads[feature], 0).nan_to_num(
            1.0
        )
    return total.to(case.factual.dtype)


def _values(axis: Axis, x: Float[Tensor, "n w"]) -> Float[Tensor, "n"]:
    """The numbers of a feature in original units; NaN for a code or a gap."""
    if not isinstance(axis, MixedAxes):
        return axis.numbers(x)
    return torch.where(x[:, 1:].argmax(-1) == 0, axis.value.numbers(x[:, :1]), torch.nan)


def spreads(encoder: Encoder, rows: Float[Tensor, "m D"]) -> Float[Tensor, "f"]:
    """MAD, the median absolute deviation from the median, of each number in original units, over training rows.

    Where more than half of the values are equal it is 0; then the mean absolute deviation is taken. NaN for categories
    without an order, which have none.
    """
    rows, found = rows[:: max(1, len(rows) // _SPREAD_ROWS)], []
    for feature, columns, axis in zip(encoder.schema, encoder.layout, encoder.axes, strict=True):
        if feature.categories and feature.kind != "ordinal":
            found.append(rows.new_tensor(torch.nan, dtype=torch.float64))
            continue
        numbers = _values(axis, rows[:, columns])
        numbers = numbers[~numbers.isnan()]
        away = (numbers - numbers.quantile(0.5)).abs()
        spread = away.quantile(0.5)
        spread = torch.where(spread > 0, spread, away.mean())
        found.append(torch.where(spread > 0, spread, 1))  # of a constant, which never changes
    return torch.stack(found)


def l2(case: Case) -> Float[Tensor, "n"]:
    """‖w ⊙ (x' − x)‖₂."""
    return l2_sq(case).sqrt()


def l2_sq(case: Case) -> Float[Tensor, "n"]:
    """‖w ⊙ (x' − x)‖₂², what CARLA (Pawelczyk et al., 2021) and the paper call L2."""
    return (case.weights * case.difference).square().sum(-1)


def linf(case: Case) -> Float[Tensor, "n"]:
    """max |x'ⱼ − xⱼ|."""
    return case.difference.abs().amax(-1)


def ld(case: Case) -> Float[Tensor, "n"]:
    """min over training rows t of ‖w ⊙ (x' − t)‖₂: how far from any real row."""
    return distance_to_data(case.counterfactual, case.neighbours)


def ld_sq(case: Case) -> Float[Tensor, "n"]:
    """The square of `ld`, the only convention in which the paper's LD fits."""
    return ld(case).square()


def copy(case: Case) -> Float[Tensor, "n"]:
    """1 where the counterfactual is equal to a training row, a record of somebody; its mean is the share of copies."""
    return (ld(case) < EQUAL).to(case.factual.dtype)


def violation(case: Case) -> Float[Tensor, "n"]:
    """How many immutable features changed."""
    features = [case.encoder.schema.index(name) for name in case.encoder.schema.immutable]
    return case.changed[:, features].sum(-1).to(case.factual.dtype)


def unseen_pairs(case: Case) -> Float[Tensor, "n"]:
    """How many pairs of values the counterfactual has that no training row has, nor the factual row itself."""
    if case.combinations is None:
        return torch.full_like(case.factual[:, 0], torch.nan)
    return case.combinations.count(case.counterfactual, case.factual).to(case.factual.dtype)


def ynn(case: Case) -> Float[Tensor, "n"]:
    """Share of the five nearest training rows for which the model decides as for the counterfactual (CARLA)."""
    rows = case.neighbours.nearest(case.counterfactual, YNN_NEIGHBOURS)[1]
    decided = case.predicted(case.neighbours.reference)
    return (decided[rows] == case.predicted(case.counterfactual)[:, None]).to(case.factual.dtype).mean(-1)


def redundancy(case: Case) -> Float[Tensor, "n"]:
    """How many changed features could, each alone, be put back and the row stay valid as asked for (CARLA)."""
    count = torch.zeros_like(case.factual[:, 0])
    for feature, columns in enumerate(case.encoder.layout):
        restored = case.counterfactual.clone()
        restored[:, columns] = case.factual[:, columns]
        count += case.changed[:, feature] & case.is_valid(restored)
    return count


def valid_after(case: Case) -> Float[Tensor, "n"]:
    """Share of models that may follow, and that no search has asked, which give the wanted outcome."""
    if case.share_after is None:
        return torch.full_like(case.factual[:, 0], torch.nan)
    return case.share_after(case.counterfactual).to(case.factual.dtype)


def valid_noise(case: Case) -> Float[Tensor, "n"]:
    """Share of small deviations in the numbers that changed for which the row stays valid; see `deviations`."""
    tried = deviations(case.encoder, case.counterfactual, case.factual)
    if len(tried) == 0:
        return case.factual[:, 0]
    return case.is_valid(tried.flatten(0, 1)).view(tried.shape[:2]).to(case.factual.dtype).mean(1)


MEASURES: dict[str, Callable[[Case], Tensor]] = {
    "valid": valid,
    "confidence": probability,
    "ld": ld,
    "ld_sq": ld_sq,
    "copy": copy,
    "l0": l0,
    "l1": l1,
    "l1_mad": l1_mad,
    "l2": l2,
    "l2_sq": l2_sq,
    "linf": linf,
    "violation": violation,
    "unseen_pairs": unseen_pairs,
    "ynn": ynn,
    "redundancy": redundancy,
    "valid_after": valid_after,
    "valid_noise": valid_noise,
}


def distance_to_data(x: Float[Tensor, "n D"], neighbours: Neighbours) -> Float[Tensor, "n"]:
    """LD(x) = min over training rows t of ‖x − t‖₂ (Pegios et al., section 4.2)."""
    return neighbours.nearest(x)[0][:, 0]


def path_distance_to_data(path: Float[Tensor, "t n D"], neighbours: Neighbours) -> Float[Tensor, "t n"]:
    """LD of every point of every path."""
    return distance_to_data(path.flatten(0, 1), neighbours).view(path.shape[:2])


def path_length(path: Float[Tensor, "t n D"]) -> Float[Tensor, "n"]:
    """Σ ‖xₜ₊₁ − xₜ‖₂."""
    return (path[1:] - path[:-1]).square().sum(-1).sqrt().sum(0)


def turning(path: Float[Tensor, "t n D"]) -> Float[Tensor, "n"]:
    """Σ of the angles, in radians, between one step of the path and the next; steps of no length do not count."""
    step = path[1:] - path[:-1]
    size = step.norm(dim=-1)
    both = (size[1:] > 0) & (size[:-1] > 0)
    product = torch.where(both, size[1:] * size[:-1], 1)
    cosine = (step[1:] * step[:-1]).sum(-1) / product
    return torch.where(both, cosine.clamp(-1, 1).arccos(), 0).sum(0)


def instability(
    end: Float[Tensor, "n D"],
    moved_end: Float[Tensor, "n D"],
    start: Float[Tensor, "n D"],
    moved_start: Float[Tensor, "n D"],
) -> float:
    """How far ends move when starts move: mean ‖Δend‖₂ / mean ‖Δstart‖₂. Below 1 the search contracts."""
    return float((moved_end - end).norm(dim=-1).mean() / (moved_start - start).norm(dim=-1).mean())
