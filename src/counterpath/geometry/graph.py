"""A graph on points of a space, its shortest paths to a set of goals, and bridges where it is not connected.

The neighbours of a point are the nearest points of all, and the nearest of ever sparser samples of them. With the first
kind alone a path has to follow chains of close neighbours, and makes long detours wherever discrete features break the
data into islands; with both, a shortest path is close to the shortest curve, for few edges more.

`Neighbours` finds nearest points exactly.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from counterpath.utils.errors import InputError

_PAIRS_AT_ONCE = 1 << 28  # a gibibyte of distances in float32, which any GPU has to spare
_GROUP = 64  # a topk over minima of groups sorts 64 times fewer numbers; larger groups leave more to sort within them
_WORTH_THREADS = 1024
"""For so many queries a k-d tree starts threads: starting them costs as much as a few hundred."""


_WORTH_TREE = 40
"""Columns up to which a k-d tree is quicker than the distances to all rows; with more it looks at nearly all rows."""
_PRODUCTS_AT_ONCE = 1 << 24  # 64 megabytes of products in float32
_PRODUCT_ERROR = 1e-5  # of the squared norms: a hundred times what float32 rounds off in a sum of as many products


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

    def within(
        self, query: Float[Tensor, "n D"], reach: Float[Tensor, "n"]
    ) -> tuple[Bool[Tensor, "n"], Int[Tensor, "n"]]:
        """Which queries have a reference row within reach, and which one: sooner known than the nearest of all."""
        if query.device.type != "cpu" or len(query) == 0:
            distance, index = self.nearest(query)
            return distance[:, 0] <= reach, index[:, 0]
        if self.reference.shape[1] > _WORTH_TREE and query.dtype == torch.float32:
            return self._within_by_products(query, reach)
        return self._within_by_tree(query, reach)

    def _within_by_products(self, query: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
        """The same from ½‖t‖² − qᵀt of all rows, and by the tree where that is too close to tell."""
        points, half_norms = self._padded
        good, index = torch.zeros(len(query), dtype=torch.bool), torch.zeros(len(query), dtype=torch.long)
        rows = max(1, _PRODUCTS_AT_ONCE // len(points))
        for some in torch.arange(len(query)).split(rows):
            point = self._weighted(query[some])
            least, index[some] = torch.addmm(half_norms, point, points.T, alpha=-1).min(1)
            square = 2 * least.double() + point.double().square().sum(1)
            allowed = reach[some].double().square()
            unsure = (square - allowed).abs() <= _PRODUCT_ERROR * (1 + point.double().square().sum(1))
            good[some] = square <= allowed
            if bool(unsure.any()):
                close = some[unsure]
                good[close], index[close] = self._within_by_tree(query[close], reach[close])
        return good, index

    def _within_by_tree(self, query: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
        points, bound = self._weighted(query).double().numpy(), float(reach.max())
        workers = -1 if len(points) >= _WORTH_THREADS else 1
        found, where = self._tree.query(points, k=1, workers=workers, distance_upper_bound=np.nextafter(bound, np.inf))
        index = torch.from_numpy(np.where(np.isfinite(found), where, 0)).long()
        return torch.from_numpy(found).to(query.dtype) <= reach, index

    @cached_property
    def _points(self) -> Tensor:
        """The reference rows, weighted."""
        return self._weighted(self.reference)

    def _weighted(self, rows: Tensor) -> Tensor:
        return rows if self.weights is None else rows * self.weights.to(rows)

    @cached_property
    def _tree(self) -> Any:
        from scipy.spatial import cKDTree

        # Not `_points`, which would be kept beside the tree's own copy.
        return cKDTree(self._weighted(self.reference).double().cpu().numpy())

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


EdgeCost = Callable[[Tensor], tuple[Tensor, Tensor]]
"""The cost of edges `(e, 2)`, and which of them leave the data."""

SPARSER = (5, 25, 125)
"""One of so many points is in each sparser sample: few edges more, that span all distances. With the nearest points
alone, paths on Adult are up to five times too long."""
_SMALLEST = 1e-9  # what an edge costs at least: to a sparse matrix 0 is no edge
_ENDS, _BRIDGES = 256, 32  # points of a part from which bridges may start, and how many are compared: bounds the work


@dataclass(frozen=True)
class ShortestPaths:
    """The shortest path from every point to its nearest goal.

    Attributes:
        cost: Of the whole path; infinite where there is none.
        following: The next point on it; a goal and a point without a path are their own.
        gap: Whether it crosses a bridge.
    """

    cost: Float[Tensor, "m"]
    following: Int[Tensor, "m"]
    gap: Bool[Tensor, "m"]

    def follow(self, start: Int[Tensor, "n"]) -> Int[Tensor, "n t"]:
        """The points on the paths from some of them; short paths repeat their goal up to the length of the longest."""
        points = [start]
        while True:
            following = self.following[points[-1]]
            if bool((following == points[-1]).all()):
                return torch.stack(points, 1)
            points.append(following)


@dataclass(frozen=True)
class Graph:
    """An undirected graph on m points.

    Attributes:
        count: m.
        ends: The two points of each edge.
        weight: Its cost.
        bridge: Which edges were added to connect the parts of the graph.
    """

    count: int
    ends: Int[Tensor, "e 2"]
    weight: Float[Tensor, "e"]
    bridge: Bool[Tensor, "e"]

    def shortest_paths(self, goal: Bool[Tensor, "m"], allowed: Bool[Tensor, "m"] | None = None) -> ShortestPaths:
        """The shortest paths to the goals, all by one run of Dijkstra's algorithm from all of them.

        Args:
            goal: Where to go.
            allowed: Which points a path may visit; by default all.
        """
        from scipy.sparse.csgraph import dijkstra

        device, ends, weight, bridge = goal.device, self.ends, self.weight, self.bridge
        if allowed is not None:
            kept = allowed[ends].all(1)
            ends, weight, bridge, goal = ends[kept], weight[kept], bridge[kept], goal & allowed
        goals = goal.nonzero()[:, 0].cpu().numpy()
        here = torch.arange(self.count, device=device)
        if len(goals) == 0:
            return ShortestPaths(torch.full_like(here, math.inf, dtype=torch.float64), here, torch.zeros_like(goal))
        matrix = _matrix(self.count, ends, weight)
        cost, before, _ = dijkstra(matrix, indices=goals, min_only=True, return_predecessors=True)
        following = torch.from_numpy(np.where(before < 0, np.arange(self.count), before)).long().to(device)
        gap = torch.zeros_like(goal)
        if bool(bridge.any()):
            steps = torch.stack([here, following], 1).sort(1).values
            gap = _any_along_path(torch.isin(_key(steps, self.count), _key(ends[bridge], self.count)), following)
        return ShortestPaths(torch.from_numpy(cost).to(device), following, gap)

    def towards(self, sinks: Int[Tensor, "s"]) -> Int[Tensor, "s m"]:
        """For each of some points the next point on the shortest path to it from every point; its own for itself."""
        from scipy.sparse.csgraph import dijkstra

        matrix = _matrix(self.count, self.ends, self.weight)
        before = dijkstra(matrix, indices=sinks.cpu().numpy(), return_predecessors=True)[1]
        following = np.where(before < 0, np.arange(self.count), before)
        return torch.from_numpy(following).long().to(sinks.device)

    def parts(self) -> Int[Tensor, "m"]:
        """The part of the graph that each point belongs to: between two of them there are bridges at most."""
        from scipy.sparse.csgraph import connected_components

        kept = ~self.bridge
        labels = connected_components(_matrix(self.count, self.ends[kept], self.weight[kept]), directed=False)[1]
        return torch.from_numpy(labels).long().to(self.ends.device)

    def to_tensors(self) -> dict[str, Tensor]:
        """The edges as tensors, for a file."""
        return {"ends": self.ends.int(), "weight": self.weight, "bridge": self.bridge}

    @classmethod
    def from_tensors(cls, count: int, tensors: Mapping[str, Tensor]) -> "Graph":
        """The graph that `to_tensors` made tensors of."""
        return cls(count, tensors["ends"].long(), tensors["weight"], tensors["bridge"].bool())

    def to(self, device: torch.device) -> "Graph":
        """The same on another device."""
        return Graph(self.count, self.ends.to(device), self.weight.to(device), self.bridge.to(device))


def build_graph(
    points: Float[Tensor, "m d"], edge_cost: EdgeCost, *, near: int = 8, far: int = 4, seed: int = 0, join: bool = True
) -> Graph:
    """A graph on points.

    Args:
        points: Different points.
        edge_cost: The cost of edges.
        near: To how many of its nearest points each is joined.
        far: To how many nearest points of each sparser sample, if the edge does not leave the data.
        seed: Of the samples.
        join: Whether the parts of a graph that is not connected are joined by bridges: from each part the cheapest of
            the edges between the closest pairs.
    """
    count = len(points)
    close = _nearest_pairs(points, None, near)
    long = [_nearest_pairs(points, sample, far) for sample in _samples(points, seed)] if far else []
    ends = _unique_pairs(torch.cat([close, *long]), count)
    weight, off = edge_cost(ends)
    is_close = torch.isin(_key(ends, count), _key(_unique_pairs(close, count), count))
    kept = is_close | ~off
    graph = Graph(count, ends[kept], weight[kept].float(), torch.zeros_like(off[kept]))
    return _with_bridges(graph, points, edge_cost) if join else graph


def _samples(points: Tensor, seed: int) -> list[Tensor]:
    """Ever sparser samples of the points."""
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed)).to(points.device)
    sizes = [len(points) // one_of for one_of in SPARSER]
    return [order[:size].sort().values for size in sizes if size > 1]


def _nearest_pairs(points: Tensor, among: Tensor | None, count: int) -> Tensor:
    """Pairs of each point with its nearest others among some."""
    others = points if among is None else points[among]
    index = Neighbours(others).nearest(points, count + 1)[1]
    index = index if among is None else among[index]
    start = torch.arange(len(points), device=points.device)[:, None].expand_as(index)
    return torch.stack([start.flatten(), index.flatten()], 1)


def _key(pairs: Tensor, count: int) -> Tensor:
    return pairs[:, 0] * count + pairs[:, 1]


def _unique_pairs(pairs: Tensor, count: int) -> Int[Tensor, "e 2"]:
    """Each pair once, the smaller number first; no point is paired with itself."""
    pairs = pairs[pairs[:, 0] != pairs[:, 1]].sort(1).values
    key = _key(pairs, count).unique()
    return torch.stack([key // count, key % count], 1)


def _matrix(count: int, ends: Tensor, weight: Tensor) -> Any:
    from scipy.sparse import coo_matrix

    first, second = ends.cpu().numpy().T
    values = weight.double().clamp_min(_SMALLEST).cpu().numpy()
    both = (np.concatenate([first, second]), np.concatenate([second, first]))
    return coo_matrix((np.concatenate([values, values]), both), shape=(count, count)).tocsr()


def _any_along_path(steps: Bool[Tensor, "m"], following: Int[Tensor, "m"]) -> Bool[Tensor, "m"]:
    """Whether any step of the path from each point is marked, by looking twice as far ahead each time."""
    for _ in range(len(steps).bit_length()):
        steps, following = steps | steps[following], following[following]
    return steps


def _with_bridges(graph: Graph, points: Tensor, edge_cost: EdgeCost) -> Graph:
    """The graph with bridges until it is connected."""
    from scipy.sparse.csgraph import connected_components

    while True:
        parts, labels = connected_components(_matrix(graph.count, graph.ends, graph.weight), directed=False)
        if parts == 1:
            return graph
        label = torch.from_numpy(labels).long().to(points.device)
        largest = int(torch.bincount(label).argmax())
        bridges = [_cheapest_bridge(points, label == part, edge_cost) for part in range(parts) if part != largest]
        ends = _unique_pairs(torch.cat(bridges), graph.count)
        weight, off = edge_cost(ends)
        graph = Graph(
            graph.count,
            torch.cat([graph.ends, ends]),
            torch.cat([graph.weight, weight.float()]),
            torch.cat([graph.bridge, torch.ones_like(off)]),
        )


def _cheapest_bridge(points: Tensor, part: Bool[Tensor, "m"], edge_cost: EdgeCost) -> Int[Tensor, "1 2"]:
    """The cheapest of the edges between the closest pairs of a part and the rest."""
    inside, outside = part.nonzero()[:, 0], (~part).nonzero()[:, 0]
    inside = inside[:: max(1, math.ceil(len(inside) / _ENDS))]
    distance, index = Neighbours(points[outside]).nearest(points[inside])
    order = distance[:, 0].argsort(stable=True)[:_BRIDGES]
    pairs = torch.stack([inside[order], outside[index[order, 0]]], 1)
    return pairs[edge_cost(pairs)[0].argmin()][None]
