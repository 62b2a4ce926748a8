"""A roadmap of a latent space: a graph on codes of training rows, and its versions under a row's fixed columns.

Its edges are measured by a cost field: what moving costs, and where the data end.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.geometry.curve import relax
from counterpath.geometry.graph import Graph, Neighbours, ShortestPaths, build_graph
from counterpath.geometry.metric import Decoded, Metric, damped, scaled_by_uncertainty, secant
from counterpath.models.latent import LatentModel, context_for, split_context
from counterpath.search.objective import Target
from counterpath.utils.devices import map_blocks

_CURVES_PER_BLOCK = 128  # with 9 points each about as many rows as a block of the search has
_ON_DATA = (
    0.99  # quantile: one training row in a hundred may count as off the data, so that outliers do not set the limit
)


@dataclass(frozen=True)
class CostField:
    """A latent space with the metric of the roadmap and of geodesics.

    Attributes:
        model: The space.
        metric: What moving costs.
        data_limit: The uncertainty beyond which a point is off the data.
    """

    model: LatentModel
    metric: Metric
    data_limit: float

    @classmethod
    def of(
        cls, model: LatentModel, metric: Metric, z: Tensor, context: Tensor | None, *, uncertainty_cost: bool = True
    ) -> "CostField":
        """The cost field around codes of training rows.

        Args:
            model: The space.
            metric: Its geometry.
            z: Codes of rows.
            context: What the model is conditioned on for them.
            uncertainty_cost: Let steps cost more where the model is uncertain; else their length alone counts.
        """
        spread = _decode(model, z, context).spread
        level = float(spread.mean())
        metric = scaled_by_uncertainty(metric, level) if uncertainty_cost and level != 0 else metric
        return cls(model, metric, float(spread.double().quantile(_ON_DATA)))

    def decode(self, z: Float[Tensor, "n d"], context: Tensor | None) -> Decoded:
        """What codes stand for."""
        return _decode(self.model, z, context)

    def segment_cost(
        self,
        start: Float[Tensor, "n d"],
        end: Float[Tensor, "n d"],
        context: Tensor | None,
        pieces: int,
        ends: tuple[Decoded, Decoded] | None = None,
    ) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
        """The lengths of straight lines, as sums over pieces, and the highest uncertainty along each.

        Args:
            start: Where they begin.
            end: Where they end.
            context: What the model is conditioned on along them.
            pieces: Into how many pieces a line is cut.
            ends: What start and end stand for, if it is known.
        """
        before, last = (self.decode(start, context), self.decode(end, context)) if ends is None else ends
        total = torch.zeros(len(start), dtype=torch.float64, device=start.device)
        highest = torch.maximum(before.spread, last.spread)
        for piece in range(1, pieces + 1):
            after = last if piece == pieces else self.decode(torch.lerp(start, end, piece / pieces), context)
            squared = self.metric(secant(before, after, self._categories))
            total += squared[:, 0, 0].clamp_min(0).sqrt()
            highest, before = torch.maximum(highest, after.spread), after
        return total, highest

    def relax(
        self, curves: Float[Tensor, "n t d"], context: Tensor | None, *, steps: int, damping: float = 5e-3
    ) -> Float[Tensor, "n t d"]:
        """Curves between the same ends with less energy, on the way to geodesics.

        Steps are scaled by the largest trace of the metric along the curve. The metric at one point is no scale for a
        whole curve: a direction that is cheap there may be steep elsewhere, and no step would lower the energy.
        Segments are measured by their ends alone, so a curve may be drawn over a hill between two of its points. So
        curves are measured once more in finer pieces, and one that became longer stays as it was.

        Args:
            curves: To begin with.
            context: What the model is conditioned on along each.
            steps: The most iterations.
            damping: Added to the scale.
        """
        if len(curves) == 0:
            return curves

        def shorten(points: Tensor, context: Tensor | None) -> Tensor:
            count, size = points.shape[1], points.shape[-1]
            point_context = None if context is None else context.repeat_interleave(count, 0)

            def squared_lengths(trial: Tensor) -> Tensor:
                z = trial.reshape(-1, size)
                decoded = Decoded(self.model.decode(z, point_context), self.model.uncertainty(z, point_context))
                index = torch.arange(len(z), device=z.device).view(-1, count)
                segment = secant(decoded[index[:, :-1].flatten()], decoded[index[:, 1:].flatten()], self._categories)
                return self.metric(segment)[:, 0, 0].view(len(trial), -1)

            along = self.metric(self.model.linearize(points.reshape(-1, size), point_context))
            steepest = along.diagonal(dim1=-2, dim2=-1).sum(-1).view(-1, count).amax(1)
            scale = torch.diag_embed(steepest[:, None].expand(-1, size))
            return relax(points, squared_lengths, damped(scale, damping), steps=steps)

        found = map_blocks(shorten, curves, context, block_size=_CURVES_PER_BLOCK)
        shorter = self.length(found, context) < self.length(curves, context)
        return torch.where(shorter[:, None, None], found, curves)

    def length(self, curves: Float[Tensor, "n t d"], context: Tensor | None) -> Float[Tensor, "n"]:
        """What whole curves cost, each segment in two pieces."""
        count, points = curves.shape[1], curves.flatten(0, 1)
        decoded = self.decode(points, None if context is None else context.repeat_interleave(count, 0))
        index = torch.arange(len(points), device=points.device).view(-1, count)
        first, last = index[:, :-1].flatten(), index[:, 1:].flatten()
        segment_context = None if context is None else context.repeat_interleave(count - 1, 0)
        ends = (decoded[first], decoded[last])
        return self.segment_cost(points[first], points[last], segment_context, 2, ends)[0].view(-1, count - 1).sum(1)

    @property
    def _categories(self) -> Tensor | None:
        """Which columns are probabilities of categories."""
        return getattr(self.model, "category", None)


def _decode(model: LatentModel, z: Tensor, context: Tensor | None) -> Decoded:
    def uncertainty(z: Tensor, context: Tensor | None) -> Tensor:
        std = model.uncertainty(z, context)
        return z[:, :0] if std is None else std

    with torch.no_grad():
        std = map_blocks(uncertainty, z, context)
        return Decoded(map_blocks(model.decode, z, context), std if std.shape[1] else None)


MAX_NODES = 20_000
"""How many nodes a roadmap has at most: building its edges takes time and memory in proportion."""
MOST_CONFIDENT = 200
"""Of each class so many rows of which the model is most confident are nodes anyway: a high confidence needs goals."""
PIECES = 3
"""Into how many pieces an edge is cut to find its cost: enough to see a hill between its ends."""
CONDITIONAL_NODES = 2000
"""How many nodes a conditional roadmap has, those with the most similar fixed columns: 0.1 to 0.2 s to build."""
FURTHER_GOALS = 500
"""And how many further goals it gets, if none of those nodes is one."""
CACHE_BYTES = 256 * 2**20
"""How many bytes of conditional roadmaps are kept: about 250 of them, as many as Adult has ages, sexes and races."""
_ENTRIES = 8  # nearest nodes at which a path may enter the roadmap: as many as each node has nearest neighbours
_ENTRY_PIECES, _DIRECT_PIECES = 2, 4  # an entry is short, a direct line to a goal is long


@dataclass(frozen=True)
class Landmarks:
    """Training rows as the generative model decodes them, with what the explained model says about them.

    Attributes:
        x: Legal encoded rows.
        z: Their codes.
        probabilities: Of every class, by the explained model.
    """

    x: Float[Tensor, "m D"]
    z: Float[Tensor, "m d"]
    probabilities: Float[Tensor, "m K"]

    @classmethod
    def of(
        cls,
        model: LatentModel,
        legal: Callable[[Tensor], Tensor],
        rows: Float[Tensor, "n D"],
        probabilities: Float[Tensor, "n K"],
        predict_proba: Callable[[Tensor], Tensor],
        seed: int,
    ) -> "Landmarks":
        """Landmarks at some of the training rows, in random order.

        Args:
            model: The generative model.
            legal: The nearest legal rows.
            rows: Training rows.
            probabilities: What the explained model says about them.
            predict_proba: What it says about any.
            seed: Of the choice.
        """
        chosen = rows[representatives(rows, probabilities, seed)]
        with torch.no_grad():
            z = map_blocks(model.encode, chosen)
            x = legal(map_blocks(model.decode, z, context_for(model, chosen)))
        return cls(x, z, predict_proba(x))


@dataclass(frozen=True)
class ConditionalRoadmap:
    """The roadmap for rows with the same fixed columns.

    Attributes:
        index: Which landmarks are its nodes.
        z: Their codes.
        decoded: What they stand for with these columns.
        graph: The edges between them.
        context: What the model is conditioned on, one row; None for a model that is not conditional.
        unconditional: Whether nothing is fixed.
    """

    index: Int[Tensor, "m"]
    z: Float[Tensor, "m d"]
    decoded: Decoded
    graph: Graph
    context: Float[Tensor, "1 c"] | None
    unconditional: bool

    @cached_property
    def bytes(self) -> int:
        """How much memory it takes, with a tree of its nodes."""
        graph, decoded = self.graph, self.decoded
        tensors = (self.index, self.z, decoded.mean, decoded.std, graph.ends, graph.weight, graph.bridge)
        return sum(tensor.nbytes for tensor in tensors if tensor is not None) + 16 * self.z.numel()

    @cached_property
    def code_neighbours(self) -> Neighbours:
        """The nodes, to look for neighbours in."""
        return Neighbours(self.z)

    @cached_property
    def row_neighbours(self) -> Neighbours:
        """The rows that they stand for, likewise."""
        return Neighbours(self.decoded.mean)


@dataclass(frozen=True)
class Roadmap:
    """A graph on landmarks, and its conditional versions.

    Attributes:
        cost_field: The space, and what moving costs there.
        landmarks: The nodes.
        graph: The edges with their costs if nothing is fixed; None where something always is.
    """

    cost_field: CostField
    landmarks: Landmarks
    graph: Graph | None
    _conditional: "OrderedDict[bytes, ConditionalRoadmap]" = field(
        default_factory=OrderedDict, repr=False, compare=False
    )
    _shortest_paths: dict[Target, ShortestPaths] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def build(
        cls, cost_field: CostField, landmarks: Landmarks, context: Float[Tensor, "1 c"] | None, seed: int
    ) -> "Roadmap":
        """A roadmap for rows of which nothing is fixed.

        Args:
            cost_field: The space.
            landmarks: The nodes.
            context: What the model is conditioned on where nothing is fixed.
            seed: Of the edges.
        """
        decoded = cost_field.decode(landmarks.z, None if context is None else context.expand(len(landmarks.z), -1))
        costs = partial(edge_costs, cost_field, landmarks.z, decoded, context, PIECES)
        return cls(cost_field, landmarks, build_graph(landmarks.z, costs, seed=seed))

    def conditional(self, context: Float[Tensor, "1 c"] | None) -> ConditionalRoadmap:
        """The roadmap under a context: its own nodes, costs and gaps, those of the rows that can be reached under it.

        Those that were asked for last are kept.
        """
        fixed = context is not None and bool(split_context(context)[1].any())
        key = context.cpu().numpy().tobytes() if context is not None and fixed else b""
        if key in self._conditional:
            self._conditional.move_to_end(key)
            return self._conditional[key]
        found = self.build_conditional(context) if context is not None and fixed else self._unconditional(context)
        self._conditional[key] = found
        while len(self._conditional) > 1 and sum(kept.bytes for kept in self._conditional.values()) > CACHE_BYTES:
            self._conditional.popitem(last=False)
        return found

    def shortest_paths(self, roadmap: ConditionalRoadmap, target: Target) -> ShortestPaths:
        """The shortest paths to landmarks that reach the target, if nothing is fixed; found once for each target."""
        if target not in self._shortest_paths:
            self._shortest_paths[target] = roadmap.graph.shortest_paths(is_goal(target, self.landmarks.probabilities))
        return self._shortest_paths[target]

    def _unconditional(self, context: Tensor | None) -> ConditionalRoadmap:
        assert self.graph is not None
        return self._on_all_nodes(context, self.graph, unconditional=True)

    def build_conditional(self, context: Tensor, goal: Bool[Tensor, "m"] | None = None) -> ConditionalRoadmap:
        """The roadmap under a context.

        Its nodes are the landmarks whose own columns are most like the fixed ones and, if they are needed, of some
        goals those that are most like them.
        """
        values, mask = split_context(context)
        order = ((self.landmarks.x - values) * mask).square().sum(-1).argsort(stable=True)
        index = order[:CONDITIONAL_NODES]
        if goal is not None:
            index = torch.cat([index, order[goal[order]][:FURTHER_GOALS]]).unique()
        index = index.sort().values
        z = self.landmarks.z[index]
        decoded = self.cost_field.decode(z, context.expand(len(z), -1))
        graph = build_graph(z, partial(edge_costs, self.cost_field, z, decoded, context, 1))
        return ConditionalRoadmap(index, z, decoded, graph, context, unconditional=False)

    def without_edges(self, context: Tensor) -> ConditionalRoadmap:
        """All nodes under a context, without edges: where are there goals at all?"""
        nothing = self.landmarks.z.new_zeros(0)
        graph = Graph(len(self.landmarks.z), nothing.long().view(0, 2), nothing, nothing.bool())
        return self._on_all_nodes(context, graph, unconditional=False)

    def _on_all_nodes(self, context: Tensor | None, graph: Graph, *, unconditional: bool) -> ConditionalRoadmap:
        z = self.landmarks.z
        decoded = self.cost_field.decode(z, None if context is None else context.expand(len(z), -1))
        return ConditionalRoadmap(torch.arange(len(z), device=z.device), z, decoded, graph, context, unconditional)


def connect(
    cost_field: CostField,
    roadmap: ConditionalRoadmap,
    shortest: ShortestPaths,
    start: Float[Tensor, "n d"],
    goals: Int[Tensor, "n g"],
) -> tuple[Float[Tensor, "n t d"], Bool[Tensor, "n"]]:
    """The cheapest paths from codes over the roadmap to goals, and which of them cross a gap.

    A path enters at one of the nearest nodes, or goes straight to a goal if that does not leave the data.

    Args:
        cost_field: What moving costs.
        roadmap: The roadmap.
        shortest: The shortest paths from its nodes.
        start: Where the paths begin.
        goals: For each some goals that are worth going to straight.
    """
    context = None if roadmap.context is None else roadmap.context.expand(len(start), -1)
    here = cost_field.decode(start, context)
    near = roadmap.code_neighbours.nearest(start, _ENTRIES)[1]
    costs, off_data = [], []
    for entry, pieces in ((near, _ENTRY_PIECES), (goals, _DIRECT_PIECES)):
        row = torch.arange(len(start), device=start.device).repeat_interleave(entry.shape[1])
        node, entry_context = entry.flatten(), None if context is None else context[row]
        cost, highest = cost_field.segment_cost(
            start[row], roadmap.z[node], entry_context, pieces, (here[row], roadmap.decoded[node])
        )
        costs.append(cost.view_as(entry) + shortest.cost[entry])
        limit = here.spread.clamp_min(cost_field.data_limit)[:, None]
        off_data.append(highest.view_as(entry) > limit)
    off_data[0] = torch.zeros_like(off_data[0])  # a row that is off the data enters somewhere all the same
    best = torch.where(torch.cat(off_data, 1), torch.inf, torch.cat(costs, 1)).argmin(1, keepdim=True)
    chosen = torch.cat([near, goals], 1).gather(1, best)[:, 0]
    return torch.cat([start[:, None], roadmap.z[shortest.follow(chosen)]], 1), shortest.gap[chosen]


def edge_costs(
    cost_field: CostField,
    z: Tensor,
    decoded: Decoded,
    context: Tensor | None,
    pieces: int,
    ends: Int[Tensor, "e 2"],
) -> tuple[Float[Tensor, "e"], Bool[Tensor, "e"]]:
    """What edges between nodes cost, and which of them leave the data."""
    first, second = ends.T
    edge_context = None if context is None else context.expand(len(ends), -1)
    known = (decoded[first], decoded[second])
    cost, highest = cost_field.segment_cost(z[first], z[second], edge_context, pieces, known)
    return cost, highest > cost_field.data_limit


_CANDIDATES = 100_000  # rows that are looked at for different ones: to compare all of more takes longer than the rest
_REPEATED = 10  # how often the rows of which a model is surest may be repeated in such a table


def representatives(rows: Float[Tensor, "n D"], probabilities: Float[Tensor, "n K"], seed: int) -> Int[Tensor, "m"]:
    """Indices of different rows, in random order: as many as a roadmap takes, and the most confident ones."""
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed)).to(rows.device)
    if len(order) > _CANDIDATES:
        best = probabilities.topk(_REPEATED * MOST_CONFIDENT, dim=0).indices.flatten().to(order)
        drawn = order[:_CANDIDATES]
        order = torch.cat([drawn, best[~torch.isin(best, drawn)].unique()])
    member = torch.unique(rows[order], dim=0, return_inverse=True)[1]
    first = torch.full_like(order, len(order)).scatter_reduce(0, member, torch.arange(len(order)).to(order), "amin")
    order = order[first[first < len(order)].sort().values]
    if len(order) <= MAX_NODES:
        return order
    confident = probabilities[order].argsort(dim=0, descending=True, stable=True)[:MOST_CONFIDENT].flatten()
    kept = torch.zeros_like(order, dtype=torch.bool)
    kept[:MAX_NODES], kept[confident] = True, True
    return order[kept]


def is_goal(target: Target, probabilities: Float[Tensor, "m K"]) -> Bool[Tensor, "m"]:
    """Which nodes reach the target; if none does, the ones where it is most probable."""
    reached = target.is_reached(probabilities)
    if bool(reached.any()):
        return reached
    probability = target.probability(probabilities)
    return probability == probability.max()
