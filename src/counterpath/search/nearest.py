"""The baseline to beat: the nearest training row that the classifier accepts."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.geometry.neighbours import Neighbours


def nearest_accepted(
    factual: Float[Tensor, "n D"],
    train: Float[Tensor, "m D"],
    accepted: Bool[Tensor, "m"],
    same: list[int] | None = None,
    weights: Float[Tensor, "D"] | None = None,
) -> tuple[Float[Tensor, "n D"], Bool[Tensor, "n"]]:
    """The accepted training row closest to each factual: on the data by construction, and somebody's own record.

    Args:
        factual: Rows to explain.
        train: Training rows.
        accepted: Which of them have the wanted decision.
        same: Columns in which the row must equal the factual.
        weights: Of the columns in the distance, as in `Neighbours`.

    Returns:
        The rows, and for which factuals there is one; the others get their factual back.
    """
    candidates = train[accepted]
    if not same:
        rows = Neighbours(candidates, weights).nearest(factual)[1][:, 0]
        return candidates[rows], torch.ones_like(factual[:, 0] > 0)
    found, exists = factual.clone(), torch.zeros(len(factual), dtype=torch.bool, device=factual.device)
    groups, member = torch.unique(torch.cat([factual, candidates])[:, same], dim=0, return_inverse=True)
    for group in range(len(groups)):
        rows = (member[: len(factual)] == group).nonzero()[:, 0]
        options = candidates[member[len(factual) :] == group]
        if len(rows) and len(options):
            found[rows] = options[Neighbours(options, weights).nearest(factual[rows])[1][:, 0]]
            exists[rows] = True
    return found, exists


def nearest_within(
    factual: Float[Tensor, "n D"],
    candidates: Float[Tensor, "m D"],
    lower: Float[Tensor, "n D"],
    upper: Float[Tensor, "n D"],
    weights: Float[Tensor, "D"] | None = None,
    *,
    free: bool = False,
) -> tuple[Float[Tensor, "n D"], Bool[Tensor, "n"]]:
    """The candidate closest to each factual of those within its bounds; and for which factuals there is one.

    Args:
        factual: Rows to explain.
        candidates: Rows to choose from.
        lower: The least that each column may be.
        upper: The most.
        weights: Of the columns in the distance, as in `Neighbours`.
        free: All candidates are within all bounds.
    """
    if free:
        rows = Neighbours(candidates, weights).nearest(factual)[1][:, 0]
        return candidates[rows], torch.ones_like(factual[:, 0] > 0)
    found, exists = factual.clone(), torch.zeros(len(factual), dtype=torch.bool, device=factual.device)
    scaled = candidates if weights is None else candidates * weights
    for place in range(len(factual)):
        inside = ((candidates >= lower[place]) & (candidates <= upper[place])).all(-1).nonzero()[:, 0]
        if len(inside):
            here = factual[place] if weights is None else factual[place] * weights
            found[place] = candidates[inside[(scaled[inside] - here).square().sum(-1).argmin()]]
            exists[place] = True
    return found, exists


def straight_path(start: Float[Tensor, "n D"], end: Float[Tensor, "n D"], steps: int) -> Float[Tensor, "t n D"]:
    """Points on the straight line between rows, ends included."""
    times = torch.linspace(0, 1, steps + 1, dtype=start.dtype, device=start.device)[:, None, None]
    return start * (1 - times) + end * times
