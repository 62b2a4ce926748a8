"""How far distances in a latent space depend on the training that the space came from."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.geometry.metric import pullback
from counterpath.models.latent import LatentModel
from counterpath.utils.devices import map_blocks

_NODES = 600
"""Rows that the graph is made of: each is joined to its nearest, and its building stays a matter of seconds."""
_NEIGHBOURS = 8  # as many as in a roadmap; where codes lie in clusters, it takes more to connect them
_PIECES = 4  # into which an edge is cut: enough to see a hill between its ends
_PAIRS = 50  # whose distances are compared: their median coefficient of variation is then known to a few per cent


@torch.no_grad()
def geodesic_distances(
    model: LatentModel, rows: Float[Tensor, "n D"], *, seed: int, neighbours: int = _NEIGHBOURS
) -> Float[Tensor, "p"]:
    """The lengths of shortest paths between pairs of rows, over a graph on their codes, under the pull-back metric.

    An edge is as long as √(żᵀM(z)ż) says in the middle of each of its pieces, so that every factor of the metric
    counts. The rows that make the graph, and the pairs, depend on the seed alone.

    References:
        Syrota, Moreno-Muñoz and Hauberg, "Decoder ensembling for learned latent geometries", 2024: the question.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import dijkstra
    from sklearn.neighbors import NearestNeighbors

    draw = np.random.default_rng(seed)
    chosen = draw.permutation(len(rows))[:_NODES]
    codes = map_blocks(model.encode, rows[torch.from_numpy(chosen)])
    near = NearestNeighbors(n_neighbors=min(neighbours, len(codes) - 1)).fit(codes.cpu().numpy())
    found = torch.from_numpy(near.kneighbors(return_distance=False))
    start, end = torch.arange(len(codes)).repeat_interleave(found.shape[1]), found.flatten()
    move = (codes[end] - codes[start]) / _PIECES
    length = torch.zeros(len(move), dtype=torch.float64)
    for piece in range(_PIECES):
        middle = codes[start] + (piece + 0.5) * move
        metric = map_blocks(lambda z: pullback(model.linearize(z)).flatten(1), middle).view(-1, *[codes.shape[1]] * 2)
        step = move.double()
        length += torch.einsum("ni,nij,nj->n", step, metric, step).clamp_min(0).sqrt().cpu()
    graph = coo_matrix((length.numpy(), (start.numpy(), end.numpy())), shape=(len(codes),) * 2).tocsr()
    pairs = draw.permutation(len(codes))[: 2 * _PAIRS].reshape(2, -1)
    between = dijkstra(graph, directed=False, indices=pairs[0])
    return torch.from_numpy(between[np.arange(pairs.shape[1]), pairs[1]])


def coefficient_of_variation(lengths: Float[Tensor, "r p"]) -> dict[str, float]:
    """Standard deviation over retrainings relative to the mean, of pairs that are connected in all: their quartiles."""
    lengths = lengths[:, lengths.isfinite().all(0)]
    variation = lengths.std(0, correction=1) / lengths.mean(0)
    low, median, high = variation.quantile(torch.tensor([0.25, 0.5, 0.75]).to(variation)).tolist()
    return {"median": median, "low": low, "high": high, "pairs": lengths.shape[1], "retrainings": lengths.shape[0]}
