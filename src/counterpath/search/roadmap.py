"""A roadmap of a latent space: a graph on codes of training rows, shared by everybody.

Its edges are measured by a cost field: what moving costs, and where the data end.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.geometry.curve import relax
from counterpath.geometry.graph import Graph, Neighbours, ShortestPaths, build_graph
from counterpath.geometry.metric import Decoded, Metric, damped, scaled_by_uncertainty, secant
from counterpath.geometry.ordered import Ordered
from counterpath.models.latent import LatentModel, context_for
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
            squared = self.metric(secant(before, after, *self._discrete))
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
                segment = secant(decoded[index[:, :-1].flatten()], decoded[index[:, 1:].flatten()], *self._discrete)
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
    def _discrete(self) -> tuple[Tensor | None, Ordered | None]:
        """Which columns are probabilities of categories, and which have levels in an order."""
        return getattr(self.model, "category", None), getattr(self.model, "ordered", None)


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
ROUTE_NODES = 2000
"""How many nodes a roadmap has that paths between given ends are looked for on: a shortest path takes a millisecond."""
_SINKS_AT_ONCE = 256  # ends whose shortest paths are held at once: 6 MB for a roadmap of 2,000 nodes
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

    def first(self, count: int) -> "Landmarks":
        """At most so many of them: they are in random order."""
        return Landmarks(self.x[:count], self.z[:count], self.probabilities[:count])


@dataclass(frozen=True)
class Roadmap:
    """A graph on landmarks, the same for everybody.

    Attributes:
        cost_field: The space, and what moving costs there.
        landmarks: The nodes.
        graph: The edges with their costs.
    """

    cost_field: CostField
    landmarks: Landmarks
    graph: Graph
    _shortest_paths: dict[Target, ShortestPaths] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def build(cls, cost_field: CostField, landmarks: Landmarks, seed: int) -> "Roadmap":
        """The roadmap on landmarks, each as the generative model decodes it with its own immutable columns.

        Args:
            cost_field: The space.
            landmarks: The nodes.
            seed: Of the edges.
        """
        context = context_for(cost_field.model, landmarks.x)
        decoded = cost_field.decode(landmarks.z, context)
        costs = partial(edge_costs, cost_field, landmarks.z, decoded, context, PIECES)
        return cls(cost_field, landmarks, build_graph(landmarks.z, costs, seed=seed))

    @cached_property
    def decoded(self) -> Decoded:
        """What the nodes stand for."""
        return self.cost_field.decode(self.landmarks.z, context_for(self.cost_field.model, self.landmarks.x))

    @cached_property
    def code_neighbours(self) -> Neighbours:
        """The nodes, to look for neighbours in."""
        return Neighbours(self.landmarks.z)

    @cached_property
    def part(self) -> Int[Tensor, "m"]:
        """The part of the data that each node belongs to: between two parts there is nobody."""
        return self.graph.parts()

    def shortest_paths(self, target: Target) -> ShortestPaths:
        """The shortest paths to landmarks that reach the target; found once for each target."""
        if target not in self._shortest_paths:
            self._shortest_paths[target] = self.graph.shortest_paths(is_goal(target, self.landmarks.probabilities))
        return self._shortest_paths[target]

    def leaves_data(
        self, start: Float[Tensor, "n d"], end: Float[Tensor, "n d"], context: Tensor | None
    ) -> Bool[Tensor, "n"]:
        """Which straight lines come to where the model is more uncertain than at their ends, and than on the data."""
        ends = (self.cost_field.decode(start, context), self.cost_field.decode(end, context))
        highest = self.cost_field.segment_cost(start, end, context, _DIRECT_PIECES, ends)[1]
        limit = torch.maximum(ends[0].spread, ends[1].spread).clamp_min(self.cost_field.data_limit)
        return highest > limit

    def crosses_gap(self, start: Float[Tensor, "n d"], end: Float[Tensor, "n d"]) -> Bool[Tensor, "n"]:
        """Between which points no way leads over the data."""
        first, last = (self.part[self.code_neighbours.nearest(z)[1][:, 0]] for z in (start, end))
        return first != last

    def route(self, start: Float[Tensor, "n d"], end: Float[Tensor, "n d"]) -> Float[Tensor, "n t d"]:
        """The shortest paths over the roadmap between given points; short ones repeat their end.

        A path enters and leaves at the nodes next to its ends. Those with the same last node are found together.
        """
        first, last = (self.code_neighbours.nearest(z)[1][:, 0] for z in (start, end))
        sinks, which = last.unique(return_inverse=True)
        following = torch.cat([self.graph.towards(some) for some in sinks.split(_SINKS_AT_ONCE)])
        nodes = [first]
        while bool((nodes[-1] != last).any()):
            nodes.append(following[which, nodes[-1]])
        over = self.landmarks.z[torch.stack(nodes, 1)]
        return torch.cat([start[:, None], over, end[:, None]], 1)


def connect(
    roadmap: Roadmap,
    shortest: ShortestPaths,
    start: Float[Tensor, "n d"],
    goals: Int[Tensor, "n g"],
) -> tuple[Float[Tensor, "n t d"], Bool[Tensor, "n"]]:
    """The cheapest paths from codes over the roadmap to goals, and which of them cross a gap.

    A path enters at one of the nearest nodes, or goes straight to a goal if that does not leave the data.

    Args:
        roadmap: The roadmap.
        shortest: The shortest paths from its nodes.
        start: Where the paths begin.
        goals: For each some goals that are worth going to straight.
    """
    cost_field, nodes = roadmap.cost_field, roadmap.landmarks.z
    here = cost_field.decode(start, None)
    near = roadmap.code_neighbours.nearest(start, _ENTRIES)[1]
    costs, off_data = [], []
    for entry, pieces in ((near, _ENTRY_PIECES), (goals, _DIRECT_PIECES)):
        row = torch.arange(len(start), device=start.device).repeat_interleave(entry.shape[1])
        node = entry.flatten()
        known = (here[row], roadmap.decoded[node])
        cost, highest = cost_field.segment_cost(start[row], nodes[node], None, pieces, known)
        costs.append(cost.view_as(entry) + shortest.cost[entry])
        limit = here.spread.clamp_min(cost_field.data_limit)[:, None]
        off_data.append(highest.view_as(entry) > limit)
    off_data[0] = torch.zeros_like(off_data[0])  # a row that is off the data enters somewhere all the same
    best = torch.where(torch.cat(off_data, 1), torch.inf, torch.cat(costs, 1)).argmin(1, keepdim=True)
    chosen = torch.cat([near, goals], 1).gather(1, best)[:, 0]
    return torch.cat([start[:, None], nodes[shortest.follow(chosen)]], 1), shortest.gap[chosen]


def edge_costs(
    cost_field: CostField,
    z: Tensor,
    decoded: Decoded,
    context: Tensor | None,
    pieces: int,
    ends: Int[Tensor, "e 2"],
) -> tuple[Float[Tensor, "e"], Bool[Tensor, "e"]]:
    """What edges between nodes cost, and which of them leave the data."""
    costs, highest = [], []
    for first, second in (part.T for part in ends.split(_EDGES_AT_ONCE)):
        edge_context = None if context is None else context[first]
        known = (decoded[first], decoded[second])
        cost, spread = cost_field.segment_cost(z[first], z[second], edge_context, pieces, known)
        costs.append(cost)
        highest.append(spread)
    return torch.cat(costs), torch.cat(highest) > cost_field.data_limit


_EDGES_AT_ONCE = 1 << 14  # whole blocks on every device; with 100 columns some copies in float64 of 13 MB each


_CANDIDATES = 100_000  # rows that are looked at for different ones: to compare all of more takes longer than the rest
_REPEATED = 10  # how often the rows of which a model is surest may be repeated in such a table


def representatives(rows: Float[Tensor, "n D"], probabilities: Float[Tensor, "n K"], seed: int) -> Int[Tensor, "m"]:
    """Indices of different rows, in random order: as many as a roadmap takes, and the most confident ones.

    Of a regressor, these are the ones with the largest and the smallest numbers.
    """
    if probabilities.shape[1] == 1:
        probabilities = torch.cat([probabilities, -probabilities], 1)
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
    probability = target.score(probabilities)
    return probability == probability.max()
