"""Exact nearest neighbours."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from counterpath.utils.errors import InputError

_PAIRS_AT_ONCE = 1 << 28  # a gibibyte of distances in float32, which any GPU has to spare
_GROUP = 64  # a topk over minima of groups sorts 64 times fewer numbers; larger groups leave more to sort within them
_WORTH_THREADS = 1024
"""For so many queries a k-d tree starts threads: starting them costs as much as a few hundred."""


@dataclass(frozen=True)
class Neighbours:
    """The rows in which neighbours are looked for.

    Exact on every device: a k-d tree on a CPU; on a GPU all distances, of which the winners' are computed again from
    the differences, because the expanded square loses digits where points nearly coincide.

    Attributes:
        reference: The rows.
        weights: w in the distance ‖w ⊙ (x − t)‖₂; None for 1 in every column.
    """

    reference: Float[Tensor, "m D"]
    weights: Float[Tensor, "D"] | None = None

    def __post_init__(self) -> None:
        if len(self.reference) == 0:
            raise InputError("there are no reference rows to look for a neighbour in")

    def nearest(self, query: Float[Tensor, "n D"], count: int = 1) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
        """Weighted distances to, and rows of, the `count` nearest reference points of every query, nearest first."""
        count = min(count, len(self.reference))
        query = self._weighted(query)
        if query.device.type == "cpu":
            workers = -1 if len(query) >= _WORTH_THREADS else 1
            distance, index = self._tree.query(query.double().numpy(), k=range(1, count + 1), workers=workers)
            return torch.from_numpy(distance).to(query.dtype), torch.from_numpy(index).long()
        rows = max(1, _PAIRS_AT_ONCE // len(self.reference))
        parts = [self._nearest_on_gpu(part, count) for part in query.split(rows)]
        return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])

    @cached_property
    def _points(self) -> Tensor:
        """The reference rows, weighted."""
        return self._weighted(self.reference)

    def _weighted(self, rows: Tensor) -> Tensor:
        return rows if self.weights is None else rows * self.weights.to(rows)

    @cached_property
    def _tree(self) -> Any:
        from scipy.spatial import cKDTree

        return cKDTree(self._points.double().cpu().numpy())

    @cached_property
    def _padded(self) -> tuple[Tensor, Tensor]:
        """The points, made up to whole groups, and half their squared norms: infinite for what is not there."""
        short = -len(self._points) % _GROUP
        half_norms = 0.5 * self._points.square().sum(-1)
        return pad(self._points, (0, 0, 0, short)), pad(half_norms, (0, short), value=torch.inf)

    def _nearest_on_gpu(self, query: Tensor, count: int) -> tuple[Tensor, Tensor]:
        # The nearest row is the one with the least ½‖t‖² − qᵀt. A few more are taken, and put in exact order.
        points, half_norms = self._padded
        scores = torch.addmm(half_norms, query, points.T, alpha=-1)
        index = _least(scores, min(count + 3, len(self._points)))
        distance = (query[:, None] - points[index]).norm(dim=-1)
        distance, order = distance.sort(dim=1)
        return distance[:, :count], index.gather(1, order)[:, :count]


def _least(scores: Float[Tensor, "n g"], count: int) -> Int[Tensor, "n k"]:
    """Where the least of every row are: in as many groups, those with the least minima, and only those are sorted."""
    groups = scores.view(len(scores), scores.shape[1] // _GROUP, _GROUP)
    if groups.shape[1] <= count:
        return scores.topk(count, largest=False).indices
    best = groups.amin(-1).topk(count, largest=False).indices
    few = groups.gather(1, best[..., None].expand(-1, -1, _GROUP)).flatten(1)
    within = few.topk(count, largest=False).indices
    return best.gather(1, within // _GROUP) * _GROUP + within % _GROUP
