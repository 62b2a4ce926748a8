"""Sparser counterfactuals: put back every change that is redundant."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.search.feasible import FeasibleSet
from counterpath.search.paths import Paths
from counterpath.search.plausibility import IsPlausible
from counterpath.search.validity import Validator

RowFunction = Callable[[Tensor], Tensor]
"""From rows to one value each."""


def sparsify(validator: Validator, feasible: FeasibleSet, paths: Paths) -> Paths:
    """The paths, with features whose change is redundant left as they are at every point.

    Without training rows nothing is known about plausibility, and nothing is put back.
    """
    plausibility, found = validator.plausibility, paths.found.nonzero()[:, 0]
    if plausibility is None or len(found) == 0:
        return paths
    factual, end = feasible.factual[found], paths.x[paths.last[found]]
    features = redundant_changes(
        factual,
        end,
        feasible.encoder.layout,
        is_valid=validator.is_valid,
        probability=validator.probability,
        is_plausible=plausibility.no_farther_than(end, plausibility.limit),
        feature_costs=[float(feasible.feature_costs[columns][0]) for columns in feasible.encoder.layout],
    )
    unchanged = feasible.features(end != factual).logical_not()  # what came back by itself need not move on the way
    back = torch.zeros_like(feasible.fixed)
    back[found] = feasible.columns(features | unchanged)
    return validator.with_columns_fixed(feasible, paths, back)


def redundant_changes(
    factual: Float[Tensor, "n D"],
    end: Float[Tensor, "n D"],
    layout: Sequence[slice],
    *,
    is_valid: RowFunction,
    probability: RowFunction,
    is_plausible: IsPlausible,
    feature_costs: Sequence[float] | None = None,
) -> Bool[Tensor, "n f"]:
    """Which changed features of every counterfactual are redundant, all of them together.

    Greedy: what costs most to change is tried first, and of equals the feature whose return alone costs the least
    probability. A change is put back if the row is still valid without it, and no less plausible than it may be.

    Args:
        factual: The rows, encoded.
        end: Their counterfactuals.
        layout: The columns of each feature.
        is_valid: Which rows are valid.
        probability: Of the target.
        is_plausible: Which rows are plausible enough.
        feature_costs: Of each feature; by default the same.
    """
    alone = torch.stack([probability(_restored(end, factual, columns)) for columns in layout], dim=1)
    order = alone.argsort(dim=1, descending=True, stable=True)
    if feature_costs is not None:
        costs = torch.tensor(feature_costs, device=end.device)[order]
        order = order.gather(1, costs.argsort(dim=1, descending=True, stable=True))
    row, back = end.clone(), torch.zeros(len(end), len(layout), dtype=torch.bool, device=end.device)
    wide = torch.zeros(len(layout), end.shape[1], dtype=torch.bool, device=end.device)
    for number, columns in enumerate(layout):
        wide[number, columns] = True
    for rank in range(len(layout)):
        feature = order[:, rank]
        tried = torch.where(wide[feature], factual, row)
        good = (tried != row).any(-1).nonzero()[:, 0]
        if len(good) == 0:
            continue
        good = good[is_valid(tried[good])]
        good = good[is_plausible(tried[good], good)]
        row[good] = tried[good]
        back[good, feature[good]] = True
    return back


def _restored(row: Tensor, factual: Tensor, columns: slice) -> Tensor:
    restored = row.clone()
    restored[:, columns] = factual[:, columns]
    return restored
