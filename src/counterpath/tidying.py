"""The last pass over a counterfactual: put back every change that it does not need."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.geometry.neighbours import Neighbours

Check = Callable[[Tensor], Tensor]
Score = Callable[[Tensor], Tensor]


def needless(
    factual: Float[Tensor, "n D"],
    end: Float[Tensor, "n D"],
    layout: Sequence[slice],
    *,
    met: Check,
    probability: Score,
    plausible: Callable[[Tensor, Tensor], Tensor],
    difficulty: Sequence[float] | None = None,
) -> Bool[Tensor, "n f"]:
    """Which features of every counterfactual can be put back, all of them together.

    Greedy: what is hardest to change is tried first, and of equals the feature whose return alone costs the least
    probability. A change is put back if the row
    is still valid without it, and no less plausible than it may be.

    Args:
        factual: The people, encoded.
        end: Their counterfactuals.
        layout: The columns of each feature.
        met: For which rows the model gives the wanted outcome.
        probability: Of the wanted outcome.
        plausible: Which rows are plausible enough, given them and the counterfactuals they came from.
        difficulty: Of each feature; by default the same.
    """
    alone = torch.stack([probability(_returned(end, factual, columns)) for columns in layout], dim=1)
    order = alone.argsort(dim=1, descending=True, stable=True)
    if difficulty is not None:
        hardness = torch.tensor(difficulty, device=end.device)[order]
        order = order.gather(1, hardness.argsort(dim=1, descending=True, stable=True))
    row, back = end.clone(), torch.zeros(len(end), len(layout), dtype=torch.bool, device=end.device)
    wide = torch.zeros(len(layout), end.shape[1], dtype=torch.bool, device=end.device)
    for number, columns in enumerate(layout):
        wide[number, columns] = True
    for place in range(len(layout)):
        feature = order[:, place]
        tried = torch.where(wide[feature], factual, row)
        moved = (tried != row).any(-1)
        good = moved & met(tried) & plausible(tried, end)
        row = torch.where(good[:, None], tried, row)
        back[torch.arange(len(end), device=end.device), feature] = good
    return back


def within_reach(neighbours: Neighbours, reach: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Rows that are no farther from the training rows than their counterfactual was, or than real rows are."""

    def plausible(tried: Tensor, end: Tensor) -> Tensor:
        allowed = neighbours.nearest(end)[0][:, 0].clamp_min(reach)
        return neighbours.nearest(tried)[0][:, 0] <= allowed

    return plausible


def _returned(row: Tensor, factual: Tensor, columns: slice) -> Tensor:
    restored = row.clone()
    restored[:, columns] = factual[:, columns]
    return restored
