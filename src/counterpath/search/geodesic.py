"""Geodesics: the shortest path over a roadmap to a node that reaches the target, refined.

A local search sees the slope at one point. A roadmap sees the whole space: its nodes are training rows as the
generative model decodes them, its edges cost what moving along them costs under the metric, and one run of Dijkstra's
algorithm from all nodes that the explained model accepts gives the cheapest path from everywhere. Then the end slides
towards the factual row as far as it stays valid and plausible, and the path is relaxed towards a geodesic.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.geometry.curve import resample
from counterpath.geometry.graph import Graph, Neighbours, ShortestPaths
from counterpath.geometry.metric import METRICS, Metric
from counterpath.models.latent import context_for
from counterpath.search.method import AnyModels, Method, Problem, SearchOptions, SearchSetup
from counterpath.search.objective import Target
from counterpath.search.paths import Paths, is_first, plausible_points, prepend
from counterpath.search.plans import sparsify
from counterpath.search.residual import ResidualDecoder
from counterpath.search.roadmap import CONDITIONAL_NODES, ConditionalRoadmap, CostField, Roadmap, connect, is_goal
from counterpath.search.traverse import StopReason
from counterpath.search.validity import IsPlausible, IsValid, Validator
from counterpath.utils.errors import NotFittedError, choose
from counterpath.utils.progress import ShouldStop, never_stop, track

_DIRECT_GOALS = 4  # goals that are tried straight: the nearest is not always the cheapest, and each costs a line
_SEGMENTS, _COARSE_SEGMENTS = 24, 8
"""Of a path as it is looked at, and as it is relaxed, which costs time for every point."""
_RELAX_STEPS = 4  # a few take the kinks out of a path over nodes; each costs a pass over all points
_SLIDE_ROUNDS, _SLIDE_DRAWS = 6, 4
"""Rounds of trying other ends, and random directions in each: every try asks the model."""
_SLIDE_PULLS = (0.5, 0.25, 0.125, 0.0625)  # how far towards the factual row ends are tried: half as far each time
_SLIDE_RADIUS = 0.25  # of the distance to the factual row: how far around the end the random directions reach at first

AMBIENT_METRICS: dict[str, str] = {"data": "pullback", "classifier": "guided"}
"""What `geodesic` measures steps by, as a key of `METRICS`: rows as they are, or as the classifier represents them."""


@dataclass(frozen=True)
class Routes:
    """The paths of n rows over the roadmap.

    Attributes:
        points: From the code of each row to that of a goal; a path that is there before others repeats its end.
        gap: Which paths cross a bridge.
        timed_out: For which rows there was no time.
    """

    points: Float[Tensor, "n t d"]
    gap: Bool[Tensor, "n"]
    timed_out: Bool[Tensor, "n"]


@dataclass(frozen=True)
class RoutePoints:
    """The points of n paths, one after another.

    Attributes:
        row: To which row each belongs.
        x: The points as legal rows.
        z: Their codes.
        gap: Which paths cross a bridge.
        timed_out: For which rows there was no time; their path is the row itself.
    """

    row: Int[Tensor, "p"]
    x: Float[Tensor, "p D"]
    z: Float[Tensor, "p d"]
    gap: Bool[Tensor, "n"]
    timed_out: Bool[Tensor, "n"]


@dataclass(frozen=True)
class Ends:
    """Where paths end: codes, the weight of the residual there, and the rows they stand for."""

    z: Float[Tensor, "n d"]
    weight: Float[Tensor, "n"]
    x: Float[Tensor, "n D"]


class Geodesic(Method):
    """The cheapest path over a roadmap of codes to a point that the model accepts, relaxed towards a geodesic."""

    name = "geodesic"
    description = "the cheapest realistic way through the whole data, then relaxed"
    settings = ("representation_layer", "ambient_metric", "uncertainty_cost")

    def metric(self, models: AnyModels, options: SearchOptions) -> Metric:
        """What steps are measured by, before uncertainty counts."""
        name = choose("ambient_metric", options.ambient_metric, AMBIENT_METRICS)
        return METRICS[name](models.classifier.representation)

    def cost_field(self, setup: SearchSetup, options: SearchOptions) -> CostField:
        """What moving through the latent space costs."""
        landmarks = setup.landmarks
        if landmarks is None:
            raise NotFittedError("geodesic needs landmarks, which Explainer.fit chooses, and there are none")
        metric, context = self.metric(setup.models, options), context_for(setup.latent, landmarks.x)
        return CostField.of(setup.latent, metric, landmarks.z, context, uncertainty_cost=options.uncertainty_cost)

    def fit(self, setup: SearchSetup, options: SearchOptions) -> Roadmap:
        """The roadmap. Where something always is fixed, only conditional roadmaps are used, and built when needed."""
        cost_field, landmarks = self.cost_field(setup, options), setup.landmarks
        assert landmarks is not None
        if len(setup.encoder.schema.immutable) and context_for(setup.latent, setup.rows[:1]) is not None:
            return Roadmap(cost_field, landmarks, None)
        return Roadmap.build(cost_field, landmarks, context_for(setup.latent, landmarks.x[:1]), setup.seed)

    def state_to_tensors(self, state: Roadmap) -> dict[str, Tensor]:
        """The edges, if there are any; landmarks are part of the model."""
        return {} if state.graph is None else state.graph.to_tensors()

    def state_from_tensors(self, setup: SearchSetup, options: SearchOptions, tensors: Mapping[str, Tensor]) -> Roadmap:
        """The roadmap with its edges."""
        landmarks = setup.landmarks
        graph = Graph.from_tensors(len(landmarks.z), tensors) if landmarks is not None and tensors else None
        cost_field = self.cost_field(setup, options)
        assert landmarks is not None
        return Roadmap(cost_field, landmarks, graph)

    def search(self, problem: Problem) -> Paths:
        """Paths over the roadmap, refined and sparse, up to their first valid point."""
        roadmap: Roadmap | None = problem.state
        if roadmap is None:
            raise NotFittedError("geodesic needs the roadmap that Explainer.fit builds, and there is none")
        options, feasible, plausibility = problem.options, problem.feasible, problem.setup.plausibility
        decoder = ResidualDecoder.of(
            problem.setup.latent, feasible, generative=True, keep_residual=options.keep_residual
        )
        found = refined_routes(
            roadmap,
            decoder,
            problem.target,
            problem.validator,
            refine=options.refine,
            should_stop=options.should_stop,
            progress=options.progress,
        )
        row, x, z = found.row, found.x, found.z
        reason = torch.where(found.timed_out, StopReason.OUT_OF_TIME, StopReason.ALL_STEPS_TAKEN)
        if options.keep_residual:
            x = torch.where(is_first(row)[:, None], feasible.factual[row], x)
        else:
            row, x, z = prepend(feasible.factual, decoder.start, row, x, z)
        paths = replace(problem.paths(row, x, reason, z).truncate(), gap=found.gap)
        if plausibility is None:
            return paths
        paths = sparsify(problem.validator, feasible, paths) if options.sparsify else paths
        if not options.refine or options.staged:  # staging leaves out what is not plausible
            return paths
        return paths.points(plausible_points(paths.row, plausibility.distance(paths.x), plausibility.typical))


def find_routes(
    roadmap: Roadmap,
    decoder: ResidualDecoder,
    target: Target,
    validator: Validator,
    *,
    should_stop: ShouldStop = never_stop,
    progress: bool | None = False,
) -> Routes:
    """The cheapest path of every row to a node that would reach the target for it.

    Rows with the same fixed columns share a conditional roadmap. What its nodes become is asked once for those that may
    become the same rows; in a large roadmap for each row, about the nodes next to it and about all if none of those is
    a goal. A path enters at one of the nodes next to the row, or goes straight to one of the goals next to it.

    Args:
        roadmap: The roadmap.
        decoder: Of the rows.
        target: What is to be predicted.
        validator: Asks the model.
        should_stop: When to give up.
        progress: Show a bar.
    """
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    feasible = decoder.feasible
    timed_out = torch.ones(len(feasible), dtype=torch.bool, device=decoder.start.device)
    with track("routes", len(feasible), shown=progress) as advance:
        for rows, conditional in _conditional_roadmaps(roadmap, decoder, should_stop):
            goals = _shortest_paths(roadmap, conditional, decoder, rows, target, validator, should_stop)
            for some, nodes, shortest, x in goals:
                factual, goal = feasible.factual[some], (shortest.cost == 0).nonzero()[:, 0]
                ends = goal[Neighbours(x[goal], feasible.weights).nearest(factual, _DIRECT_GOALS)[1]]
                found.append((some, *connect(roadmap.cost_field, nodes, shortest, decoder.start[some], ends)))
                timed_out[some] = False
                advance(len(some))
    longest = max((points.shape[1] for _, points, _ in found), default=1)
    whole = decoder.start[:, None].repeat(1, longest, 1)
    gaps = torch.zeros_like(timed_out)
    for rows, points, gap in found:
        last = points[:, -1:].expand(-1, longest - points.shape[1], -1)
        whole[rows], gaps[rows] = torch.cat([points, last], 1), gap
    return Routes(whole, gaps, timed_out)


def _conditional_roadmaps(
    roadmap: Roadmap, decoder: ResidualDecoder, should_stop: ShouldStop
) -> Iterator[tuple[Tensor, ConditionalRoadmap]]:
    """Rows with the same context, and their roadmap, as long as there is time."""
    every = torch.arange(len(decoder.feasible), device=decoder.start.device)
    if decoder.context is None:
        groups: list[tuple[Tensor, Tensor | None]] = [(every, None)]
    else:
        contexts, member = decoder.context.unique(dim=0, return_inverse=True)
        groups = [(every[member == number], contexts[number : number + 1]) for number in range(len(contexts))]
    for rows, context in groups:
        if should_stop():
            return
        yield rows, roadmap.conditional(context)


def _shortest_paths(
    roadmap: Roadmap,
    conditional: ConditionalRoadmap,
    decoder: ResidualDecoder,
    rows: Tensor,
    target: Target,
    validator: Validator,
    should_stop: ShouldStop,
) -> Iterator[tuple[Tensor, ConditionalRoadmap, ShortestPaths, Tensor]]:
    """For rows the roadmap that they use, the shortest paths to their goals, and the rows that its nodes stand for.

    It ends when time is up.
    """
    if conditional.unconditional and decoder.feasible.unconstrained:
        yield rows, conditional, roadmap.shortest_paths(conditional, target), roadmap.landmarks.x
        return
    large = len(conditional.z) > CONDITIONAL_NODES  # then the model is asked first about the nodes next to each row
    groups = rows.split(1) if large else [rows[group] for group in decoder.feasible.at(rows).groups()]
    for some in groups:
        if should_stop():
            return
        nodes = _node_rows(conditional, decoder, some, target, validator, near=large)
        if not bool(nodes.reached.any()) and conditional.context is not None and not conditional.unconditional:
            # No node that is like them reaches the target: look among all landmarks, and go to the goals there.
            everywhere = roadmap.without_edges(conditional.context)
            wide = _node_rows(everywhere, decoder, some, target, validator, near=False)
            further = roadmap.build_conditional(conditional.context, wide.goal)
            yield some, further, further.graph.shortest_paths(wide.goal[further.index]), wide.x[further.index]
        else:
            yield some, conditional, conditional.graph.shortest_paths(nodes.goal), nodes.x


@dataclass(frozen=True)
class _NodeRows:
    """What the nodes of a roadmap are for some rows: the feasible rows they stand for, and which are goals."""

    x: Float[Tensor, "m D"]
    reached: Bool[Tensor, "m"]
    goal: Bool[Tensor, "m"]


def _node_rows(
    roadmap: ConditionalRoadmap,
    decoder: ResidualDecoder,
    rows: Tensor,
    target: Target,
    validator: Validator,
    *,
    near: bool,
) -> _NodeRows:
    """Ask the model about the nodes; if `near`, about those next to a row, and about all if none of them is a goal."""
    mean = roadmap.decoded.mean
    x, everything = mean.clone(), torch.arange(len(mean), device=mean.device)
    reached, goal = torch.zeros_like(everything, dtype=torch.bool), torch.zeros_like(everything, dtype=torch.bool)
    close = everything
    if near:
        close = roadmap.row_neighbours.nearest(decoder.feasible.factual[rows[:1]], CONDITIONAL_NODES)[1][0]
    for index in (close, everything):
        x[index] = decoder.finish(mean[index], rows[:1].expand(len(index)), 0.0)
        probabilities = validator.predict_proba(x[index])
        possible = validator.is_possible(x[index], decoder.feasible.origin[rows[:1]].expand(len(index), -1))
        reached[index] = target.is_reached(probabilities) & possible
        wanted = is_goal(target, probabilities)
        goal[index] = wanted & possible if bool((wanted & possible).any()) else wanted
        if bool(reached.any()) or len(index) == len(everything):
            break
        goal[index] = False
    return _NodeRows(x, reached, goal)


def refined_routes(
    roadmap: Roadmap,
    decoder: ResidualDecoder,
    target: Target,
    validator: Validator,
    *,
    refine: bool = True,
    should_stop: ShouldStop = never_stop,
    progress: bool | None = False,
) -> RoutePoints:
    """Paths over the roadmap, up to the first valid point.

    The residual of a row decays along its path, because goals are asked about as they are decoded.

    Args:
        roadmap: The roadmap.
        decoder: Of the rows.
        target: What is to be predicted.
        validator: Asks the model; without plausibility ends stay where they are.
        refine: Let the ends slide towards the factual rows, and relax the paths towards geodesics.
        should_stop: When to give up.
        progress: Show a bar.
    """
    plausibility = validator.plausibility
    routes = find_routes(roadmap, decoder, target, validator, should_stop=should_stop, progress=progress)
    curves, count = resample(routes.points, _SEGMENTS), len(routes.timed_out)
    points_each = _SEGMENTS + 1
    row = torch.arange(count, device=curves.device).repeat_interleave(points_each)
    weight = torch.linspace(1, 0, points_each, device=curves.device).repeat(count)
    x = decoder.decode(curves.flatten(0, 1), row, weight[:, None])
    valid = validator.is_valid(x, decoder.feasible.origin[row]).view(count, -1)
    valid[:, 0] = False  # the row itself is not looked at: it is not valid, or nobody would search
    first = torch.where(valid.any(1), valid.int().argmax(1), _SEGMENTS)
    first = torch.where(routes.timed_out, 0, first)
    if refine and plausibility is not None and not should_stop():
        better = (valid.any(1) & ~routes.timed_out).nonzero()[:, 0]
        last = better * points_each + first[better]
        ends = Ends(curves.flatten(0, 1)[last], weight[last], x[last])
        is_plausible = plausibility.no_farther_than(ends.x, plausibility.typical)
        ends = slide(roadmap.cost_field, decoder.at(better), ends, validator.is_valid, is_plausible)
        cut = torch.arange(points_each, device=curves.device).minimum(first[better, None])
        truncated = curves[better].gather(1, cut[..., None].expand(-1, -1, curves.shape[-1]))
        coarse = resample(torch.cat([truncated, ends.z[:, None]], 1), _COARSE_SEGMENTS)
        context = None if decoder.context is None else decoder.context[better]
        curves[better] = resample(roadmap.cost_field.relax(coarse, context, steps=_RELAX_STEPS), _SEGMENTS)
        first = first.index_fill(0, better, _SEGMENTS)
        changed = torch.isin(row, better)
        weights = weight.view(count, -1)
        weights[better] = torch.lerp(ends.weight[:, None], torch.ones_like(ends.weight[:, None]), weights[better])
        weight = weights.flatten()
        x[changed] = decoder.decode(curves.flatten(0, 1)[changed], row[changed], weight[changed, None])
        x[better * points_each + _SEGMENTS] = ends.x  # to the bit what the model was asked about
    kept = (torch.arange(points_each, device=curves.device) <= first[:, None]).flatten()
    return RoutePoints(row[kept], x[kept], curves.flatten(0, 1)[kept], routes.gap, routes.timed_out)


def slide(
    cost_field: CostField,
    decoder: ResidualDecoder,
    ends: Ends,
    is_valid: IsValid,
    is_plausible: IsPlausible,
    seed: int = 0,
) -> Ends:
    """Ends that cost less, around the given ones, that are valid and no farther from the data.

    A few rounds of trying points towards the factual row and around the end; the next round begins at the best.

    Args:
        cost_field: For the uncertainty.
        decoder: Of the rows.
        ends: Valid rows.
        is_valid: Which rows are valid.
        is_plausible: Which rows are plausible enough.
        seed: Of the directions to try.
    """
    z, x, weight = ends.z, ends.x, ends.weight
    feasible, context, count = decoder.feasible, decoder.context, len(ends.z)
    draws = torch.randn(_SLIDE_ROUNDS, _SLIDE_DRAWS, z.shape[1], generator=torch.Generator().manual_seed(seed)).to(z)
    draws = draws / draws.norm(dim=-1, keepdim=True)
    tries = len(_SLIDE_PULLS) + _SLIDE_DRAWS
    row = torch.arange(count, device=z.device).repeat_interleave(tries)
    limit = cost_field.decode(z, context).spread.clamp_min(cost_field.data_limit)
    cost, radius = feasible.cost(x), _SLIDE_RADIUS * (z - decoder.start).norm(dim=-1)
    for around in draws:
        pulled = [torch.lerp(z, decoder.start, pull) for pull in _SLIDE_PULLS]
        tried = torch.stack([*pulled, *(z + radius[:, None] * step for step in around)], 1).flatten(0, 1)
        decoded = cost_field.decode(tried, None if context is None else context[row])
        candidates, spread = decoder.finish(decoded.mean, row, weight[row, None]), decoded.spread
        costs = feasible.cost(candidates, row)
        good = ((costs < cost[row]) & (spread <= limit[row])).nonzero()[:, 0]
        good = good[is_valid(candidates[good], feasible.origin[row[good]])]
        good = good[is_plausible(candidates[good], row[good])]
        costs = torch.full_like(costs, torch.inf).index_copy(0, good, costs[good]).view(count, tries)
        best = costs.argmin(1)
        better = costs.gather(1, best[:, None])[:, 0] < cost
        index = torch.arange(count, device=z.device) * tries + best
        z = torch.where(better[:, None], tried[index], z)
        x = torch.where(better[:, None], candidates[index], x)
        cost = feasible.cost(x)
        radius = torch.where(better, radius, radius / 2)
    return Ends(z, weight, x)
