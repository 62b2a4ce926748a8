"""Exact nearest neighbours."""

import torch
from jaxtyping import Float, Int
from sklearn.neighbors import KDTree
from torch import Tensor

from counterpath.errors import InputError

_PAIRS_AT_ONCE = 1 << 26


def nearest(
    query: Float[Tensor, "n D"], reference: Float[Tensor, "m D"]
) -> tuple[Float[Tensor, "n"], Int[Tensor, "n"]]:
    """Euclidean distance to, and row of, the nearest reference point of every query.

    Exact on every device: a k-d tree on a CPU; on a GPU all distances, of which the winner's is computed again from
    the differences, because the expanded square loses digits where points nearly coincide.
    """
    if len(reference) == 0:
        raise InputError("there are no reference rows to look for a neighbour in")
    if query.device.type == "cpu":
        distance, index = KDTree(reference.double().numpy()).query(query.double().numpy())
        return torch.from_numpy(distance[:, 0]).to(query.dtype), torch.from_numpy(index[:, 0]).long()
    rows = max(1, _PAIRS_AT_ONCE // len(reference))
    index = torch.cat([torch.cdist(part, reference).argmin(1) for part in query.split(rows)])
    return (query - reference[index]).norm(dim=-1), index
