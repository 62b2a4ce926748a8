"""Roads through a latent space: a graph on codes of training rows, as people see it who keep some columns."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.geometry.curve import relax
from counterpath.geometry.graph import Graph, ShortestPaths, build_graph
from counterpath.geometry.linearize import Decoded, secant
from counterpath.geometry.metric import Metric, damped, scaled_by_uncertainty
from counterpath.geometry.neighbours import Neighbours
from counterpath.models.latent import LatentModel, context_for, split_context
from counterpath.search.objective import Target
from counterpath.utils.blocks import map_blocks

_CURVES = 128
_ON_DATA = 0.99


@dataclass(frozen=True)
class CostField:
    """A latent space with the metric of the graph and of geodesics.

    Attributes:
        model: The space.
        metric: What moving costs.
        edge: The uncertainty beyond which a place is off the data.
    """

    model: LatentModel
    metric: Metric
    edge: float

    @classmethod
    def of(
        cls, model: LatentModel, metric: Metric, z: Tensor, told: Tensor | None, *, plain: bool = False
    ) -> "CostField":
        """The terrain around codes of training rows.

        Args:
            model: The space.
            metric: Its geometry.
            z: Codes of rows.
            told: What the model is told about them.
            plain: Price steps by their length alone, not by the uncertainty where they are made.
        """
        spread = _decoded(model, z, told).spread
        level = float(spread.mean())
        metric = metric if plain or level == 0 else scaled_by_uncertainty(metric, level)
        return cls(model, metric, float(spread.double().quantile(_ON_DATA)))

    def decoded(self, z: Float[Tensor, "n d"], told: Tensor | None) -> Decoded:
        """What codes stand for."""
        return _decoded(self.model, z, told)

    def price(
        self,
        start: Float[Tensor, "n d"],
        end: Float[Tensor, "n d"],
        told: Tensor | None,
        pieces: int,
        ends: tuple[Decoded, Decoded] | None = None,
    ) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
        """The lengths of straight lines, as sums over pieces, and the highest uncertainty on the way.

        Args:
            start: Where they begin.
            end: Where they end.
            told: What the model is told on the way.
            pieces: Into how many pieces a line is cut.
            ends: What start and end stand for, if it is known.
        """
        before, last = (self.decoded(start, told), self.decoded(end, told)) if ends is None else ends
        total = torch.zeros(len(start), dtype=torch.float64, device=start.device)
        highest = torch.maximum(before.spread, last.spread)
        for piece in range(1, pieces + 1):
            after = last if piece == pieces else self.decoded(torch.lerp(start, end, piece / pieces), told)
            squared = self.metric(secant(before, after, self.category))
            total += squared[:, 0, 0].clamp_min(0).sqrt()
            highest, before = torch.maximum(highest, after.spread), after
        return total, highest

    def relaxed(
        self, curves: Float[Tensor, "n t d"], told: Tensor | None, *, steps: int, damping: float = 5e-3
    ) -> Float[Tensor, "n t d"]:
        """Curves between the same ends with less energy, on the way to geodesics.

        Steps are scaled by the largest trace of the metric along the curve. The metric of one place is no scale for a
        whole curve: a direction that is cheap there may be steep elsewhere, and no step would lower the energy.
        Segments are measured by their ends alone, so a curve may be drawn over a hill between two of its points. So
        curves are measured once more in finer pieces, and one that became longer stays as it was.

        Args:
            curves: To begin with.
            told: What the model is told along each.
            steps: The most iterations.
            damping: Added to the scale.
        """
        if len(curves) == 0:
            return curves

        def shorter(points: Tensor, told: Tensor | None) -> Tensor:
            count, size = points.shape[1], points.shape[-1]
            context = None if told is None else told.repeat_interleave(count, 0)

            def squares(trial: Tensor) -> Tensor:
                z = trial.reshape(-1, size)
                all_points = Decoded(self.model.decode(z, context), self.model.uncertainty(z, context))
                place = torch.arange(len(z), device=z.device).view(-1, count)
                segment = secant(all_points[place[:, :-1].flatten()], all_points[place[:, 1:].flatten()], self.category)
                return self.metric(segment)[:, 0, 0].view(len(trial), -1)

            along = self.metric(self.model.linearize(points.reshape(-1, size), context))
            steepest = along.diagonal(dim1=-2, dim2=-1).sum(-1).view(-1, count).amax(1)
            scale = torch.diag_embed(steepest[:, None].expand(-1, size))
            return relax(points, squares, damped(scale, damping), steps=steps)

        found = map_blocks(shorter, curves, told, block_size=_CURVES)
        kept = self.length(found, told) < self.length(curves, told)
        return torch.where(kept[:, None, None], found, curves)

    def length(self, curves: Float[Tensor, "n t d"], told: Tensor | None) -> Float[Tensor, "n"]:
        """What whole curves cost, each segment in two pieces."""
        count, points = curves.shape[1], curves.flatten(0, 1)
        whole = self.decoded(points, None if told is None else told.repeat_interleave(count, 0))
        place = torch.arange(len(points), device=points.device).view(-1, count)
        first, last = place[:, :-1].flatten(), place[:, 1:].flatten()
        context = None if told is None else told.repeat_interleave(count - 1, 0)
        ends = (whole[first], whole[last])
        return self.price(points[first], points[last], context, 2, ends)[0].view(-1, count - 1).sum(1)

    @property
    def category(self) -> Tensor | None:
        """Which columns are probabilities of categories."""
        return getattr(self.model, "category", None)


def _decoded(model: LatentModel, z: Tensor, told: Tensor | None) -> Decoded:
    def spread(z: Tensor, told: Tensor | None) -> Tensor:
        std = model.uncertainty(z, told)
        return z[:, :0] if std is None else std

    with torch.no_grad():
        std = map_blocks(spread, z, told)
        return Decoded(map_blocks(model.decode, z, told), std if std.shape[1] else None)


MOST_NODES = 20_000
"""How many nodes a network has at most."""
SUREST = 200
"""Of each class so many rows of which the model is surest are nodes in any case."""
PIECES = 3
"""Into how many pieces an edge is cut to price it."""
NODES = 2000
"""How many nodes the network has for people who keep some columns: those whose own are most like theirs."""
FURTHER = 500
"""And how many further goals, if none of those is one."""
KEPT = 256 * 2**20
"""How many bytes of worlds are kept: of 2,000 nodes about 250, as many as Adult has ages, sexes and races together."""
_NEAR = 8
_PIECES_NEAR, _PIECES_FAR = 2, 4


@dataclass(frozen=True)
class Landmarks:
    """Places that the model has been asked about: the training rows as the generative model decodes them.

    Attributes:
        x: Legal encoded rows.
        z: Their codes.
        answers: What the model under explanation says about them.
    """

    x: Float[Tensor, "m D"]
    z: Float[Tensor, "m d"]
    answers: Float[Tensor, "m K"]

    @classmethod
    def of(
        cls,
        model: LatentModel,
        legal: Callable[[Tensor], Tensor],
        rows: Float[Tensor, "n D"],
        answers: Float[Tensor, "n K"],
        ask: Callable[[Tensor], Tensor],
        seed: int,
    ) -> "Landmarks":
        """Landmarks at some of the training rows, in random order.

        Args:
            model: The generative model.
            legal: The nearest legal rows.
            rows: Training rows.
            answers: What the model under explanation says about them.
            ask: What it says about any.
            seed: Of the choice.
        """
        chosen = rows[representatives(rows, answers, seed)]
        with torch.no_grad():
            z = map_blocks(model.encode, chosen)
            x = legal(map_blocks(model.decode, z, context_for(model, chosen)))
        return cls(x, z, ask(x))


@dataclass(frozen=True)
class ConditionalRoadmap:
    """The network as people see it who keep the same columns.

    Attributes:
        places: Which landmarks are its nodes.
        z: Their codes.
        decoded: What they stand for with these columns.
        graph: The edges between them.
        told: What the model is told, one row; None for a model that cannot be told anything.
        free: Whether nothing is kept.
    """

    places: Int[Tensor, "m"]
    z: Float[Tensor, "m d"]
    decoded: Decoded
    graph: Graph
    told: Float[Tensor, "1 c"] | None
    free: bool

    @cached_property
    def bytes(self) -> int:
        """How much memory it takes, with a tree of its nodes."""
        graph, decoded = self.graph, self.decoded
        tensors = (self.places, self.z, decoded.mean, decoded.std, graph.ends, graph.weight, graph.bridge)
        return sum(tensor.nbytes for tensor in tensors if tensor is not None) + 16 * self.z.numel()

    @cached_property
    def near(self) -> Neighbours:
        """The nodes, to look for neighbours in."""
        return Neighbours(self.z)

    @cached_property
    def rows(self) -> Neighbours:
        """The rows that they stand for, likewise."""
        return Neighbours(self.decoded.mean)


@dataclass(frozen=True)
class Roadmap:
    """Roads through a latent space.

    Attributes:
        terrain: The space, and what moving costs there.
        landmarks: The nodes.
        graph: The edges as priced for people who keep nothing; None where the model is always told something.
    """

    terrain: CostField
    landmarks: Landmarks
    graph: Graph | None
    _worlds: "OrderedDict[bytes, ConditionalRoadmap]" = field(default_factory=OrderedDict, repr=False, compare=False)
    _fields: dict[Target, ShortestPaths] = field(default_factory=dict, repr=False, compare=False)

    def world(self, told: Float[Tensor, "1 c"] | None) -> ConditionalRoadmap:
        """The network for people about whom the model is told this.

        Other people's network has other nodes, other prices and other gaps: all of it is that of the rows that they
        could become. Worlds that were asked for last are kept.
        """
        kept = told is not None and bool(split_context(told)[1].any())
        key = told.cpu().numpy().tobytes() if told is not None and kept else b""
        if key in self._worlds:
            self._worlds.move_to_end(key)
            return self._worlds[key]
        self._worlds[key] = self.part(told) if told is not None and kept else self._whole(told)
        while len(self._worlds) > 1 and sum(world.bytes for world in self._worlds.values()) > KEPT:
            self._worlds.popitem(last=False)
        return self._worlds[key]

    def ways(self, world: ConditionalRoadmap, wanted: Target) -> ShortestPaths:
        """The ways to the landmarks with a wanted outcome, for people who keep nothing; made once for each outcome."""
        if wanted not in self._fields:
            self._fields[wanted] = world.graph.shortest_paths(goals(wanted, self.landmarks.answers))
        return self._fields[wanted]

    @classmethod
    def laid(cls, terrain: CostField, landmarks: Landmarks, told: Float[Tensor, "1 c"] | None, seed: int) -> "Roadmap":
        """A network on landmarks for people who keep nothing.

        Args:
            terrain: The space.
            landmarks: The nodes.
            told: What the model is told where it is told nothing.
            seed: Of the edges.
        """
        decoded = terrain.decoded(landmarks.z, None if told is None else told.expand(len(landmarks.z), -1))
        pricing = partial(price, terrain, landmarks.z, decoded, told, PIECES)
        return cls(terrain, landmarks, build_graph(landmarks.z, pricing, seed=seed))

    def _whole(self, told: Tensor | None) -> ConditionalRoadmap:
        assert self.graph is not None
        z = self.landmarks.z
        decoded = self.terrain.decoded(z, None if told is None else told.expand(len(z), -1))
        return ConditionalRoadmap(torch.arange(len(z), device=z.device), z, decoded, self.graph, told, free=True)

    def part(self, told: Tensor, goal: Bool[Tensor, "m"] | None = None) -> ConditionalRoadmap:
        """The network for people about whom the model is told this.

        Its nodes are the landmarks whose own columns are most like what is told and, if they are needed, of some goals
        those that are most like it.
        """
        values, mask = split_context(told)
        order = ((self.landmarks.x - values) * mask).square().sum(-1).argsort(stable=True)
        places = order[:NODES]
        if goal is not None:
            places = torch.cat([places, order[goal[order]][:FURTHER]]).unique()
        places = places.sort().values
        z = self.landmarks.z[places]
        decoded = self.terrain.decoded(z, told.expand(len(z), -1))
        graph = build_graph(z, partial(price, self.terrain, z, decoded, told, 1))
        return ConditionalRoadmap(places, z, decoded, graph, told, free=False)

    def everywhere(self, told: Tensor) -> ConditionalRoadmap:
        """All nodes for people about whom the model is told this, without edges: where are there goals at all?"""
        z = self.landmarks.z
        nothing = z.new_zeros(0)
        graph = Graph(len(z), nothing.long().view(0, 2), nothing, nothing.bool())
        decoded = self.terrain.decoded(z, told.expand(len(z), -1))
        return ConditionalRoadmap(torch.arange(len(z), device=z.device), z, decoded, graph, told, free=False)


def get_on(
    terrain: CostField,
    world: ConditionalRoadmap,
    field: ShortestPaths,
    start: Float[Tensor, "n d"],
    ends: Int[Tensor, "n g"],
) -> tuple[Float[Tensor, "n t d"], Bool[Tensor, "n"]]:
    """The cheapest ways from codes over the network to goals, and which of them cross a gap.

    A way gets on at one of the nearest nodes, or goes straight to a goal if that does not leave the data.

    Args:
        terrain: What moving costs.
        world: The network.
        field: The ways from its nodes.
        start: Where people are.
        ends: For each some goals that are worth going to straight.
    """
    told = None if world.told is None else world.told.expand(len(start), -1)
    here = terrain.decoded(start, told)
    near = world.near.nearest(start, _NEAR)[1]
    costs, off = [], []
    for entry, pieces in ((near, _PIECES_NEAR), (ends, _PIECES_FAR)):
        who = torch.arange(len(start), device=start.device).repeat_interleave(entry.shape[1])
        node, context = entry.flatten(), None if told is None else told[who]
        ways = terrain.price(start[who], world.z[node], context, pieces, (here[who], world.decoded[node]))
        costs.append(ways[0].view_as(entry) + field.cost[entry])
        limit = here.spread.clamp_min(terrain.edge)[:, None]
        off.append(ways[1].view_as(entry) > limit)
    off[0] = torch.zeros_like(off[0])  # whoever is off the data gets on somewhere all the same
    best = torch.where(torch.cat(off, 1), torch.inf, torch.cat(costs, 1)).argmin(1, keepdim=True)
    chosen = torch.cat([near, ends], 1).gather(1, best)[:, 0]
    return torch.cat([start[:, None], world.z[field.follow(chosen)]], 1), field.gap[chosen]


def price(
    terrain: CostField, z: Tensor, decoded: Decoded, told: Tensor | None, pieces: int, ends: Int[Tensor, "e 2"]
) -> tuple[Float[Tensor, "e"], Bool[Tensor, "e"]]:
    """What edges between nodes cost, and which of them leave the data."""
    first, second = ends.T
    context = None if told is None else told.expand(len(ends), -1)
    cost, highest = terrain.price(z[first], z[second], context, pieces, (decoded[first], decoded[second]))
    return cost, highest > terrain.edge


def representatives(rows: Float[Tensor, "n D"], answers: Float[Tensor, "n K"], seed: int) -> Int[Tensor, "m"]:
    """Places of different rows, in random order: as many as a network takes, those that the model is surest of too."""
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed)).to(rows.device)
    member = torch.unique(rows[order], dim=0, return_inverse=True)[1]
    first = torch.full_like(order, len(order)).scatter_reduce(0, member, torch.arange(len(order)).to(order), "amin")
    order = order[first[first < len(order)].sort().values]
    if len(order) <= MOST_NODES:
        return order
    surest = answers[order].argsort(dim=0, descending=True, stable=True)[:SUREST].flatten()
    kept = torch.zeros_like(order, dtype=torch.bool)
    kept[:MOST_NODES], kept[surest] = True, True
    return order[kept]


def goals(wanted: Target, answers: Float[Tensor, "m K"]) -> Bool[Tensor, "m"]:
    """The places with a wanted outcome; if there are none, the most probable ones."""
    met = wanted.met(answers)
    if bool(met.any()):
        return met
    probability = wanted.probability(answers)
    return probability == probability.max()
