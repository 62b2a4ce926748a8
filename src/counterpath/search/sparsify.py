"""The last pass over a counterfactual: put back every change that it does not need."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.geometry.neighbours import Neighbours

Check = Callable[[Tensor], Tensor]
Score = Callable[[Tensor], Tensor]
Plausible = Callable[[Tensor, Tensor], Tensor]
"""Which rows are plausible enough, given them and the number of the row that each would take the place of."""


def needless(
    factual: Float[Tensor, "n D"],
    end: Float[Tensor, "n D"],
    layout: Sequence[slice],
    *,
    met: Check,
    probability: Score,
    plausible: Plausible,
    feature_costs: Sequence[float] | None = None,
) -> Bool[Tensor, "n f"]:
    """Which features of every counterfactual can be put back, all of them together.

    Greedy: what is hardest to change is tried first, and of equals the feature whose return alone costs the least
    probability. A change is put back if the row is still valid without it, and no less plausible than it may be.

    Args:
        factual: The people, encoded.
        end: Their counterfactuals.
        layout: The columns of each feature.
        met: For which rows the model gives the wanted outcome.
        probability: Of the wanted outcome.
        plausible: Which rows are plausible enough.
        feature_costs: Of each feature; by default the same.
    """
    alone = torch.stack([probability(_returned(end, factual, columns)) for columns in layout], dim=1)
    order = alone.argsort(dim=1, descending=True, stable=True)
    if feature_costs is not None:
        hardness = torch.tensor(feature_costs, device=end.device)[order]
        order = order.gather(1, hardness.argsort(dim=1, descending=True, stable=True))
    row, back = end.clone(), torch.zeros(len(end), len(layout), dtype=torch.bool, device=end.device)
    wide = torch.zeros(len(layout), end.shape[1], dtype=torch.bool, device=end.device)
    for number, columns in enumerate(layout):
        wide[number, columns] = True
    for place in range(len(layout)):
        feature = order[:, place]
        tried = torch.where(wide[feature], factual, row)
        good = (tried != row).any(-1).nonzero()[:, 0]
        if len(good) == 0:
            continue
        good = good[met(tried[good])]
        good = good[plausible(tried[good], good)]
        row[good] = tried[good]
        back[good, feature[good]] = True
    return back


def within_reach(neighbours: Neighbours, reach: float, end: Float[Tensor, "n D"]) -> Plausible:
    """Rows that are no farther from the training rows than the counterfactual was, or than real rows are."""
    allowed = neighbours.nearest(end)[0][:, 0].clamp_min(reach)
    return lambda tried, whose: neighbours.nearest(tried)[0][:, 0] <= allowed[whose]


def _returned(row: Tensor, factual: Tensor, columns: slice) -> Tensor:
    restored = row.clone()
    restored[:, columns] = factual[:, columns]
    return restored
