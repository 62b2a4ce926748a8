"""The cheapest paths over a roadmap to whatever node reaches the target, for a model that is conditioned on nothing.

One run of Dijkstra's algorithm from all nodes that the classifier accepts gives the cheapest path from everywhere. Then
the end slides towards the factual row as far as it stays valid and plausible, and the path is relaxed towards a
geodesic. The paper's experiments measure the roadmap by it; see `geodesic` for the method that people use.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.geometry.curve import resample
from counterpath.geometry.graph import Neighbours
from counterpath.search.objective import Target
from counterpath.search.residual import ResidualDecoder
from counterpath.search.roadmap import CostField, Roadmap, connect
from counterpath.search.validity import IsPlausible, IsValid, Validator

_DIRECT_GOALS = 4  # goals that are tried straight: the nearest is not always the cheapest, and each costs a line
_SEGMENTS, _COARSE_SEGMENTS = 24, 8
"""Of a path as it is looked at, and as it is relaxed, which costs time for every point."""
_RELAX_STEPS = 4  # a few take the kinks out of a path over nodes; each costs a pass over all points
_SLIDE_ROUNDS, _SLIDE_DRAWS = 6, 4
"""Rounds of trying other ends, and random directions in each: every try asks the model."""
_SLIDE_PULLS = (0.5, 0.25, 0.125, 0.0625)  # how far towards the factual row ends are tried: half as far each time
_SLIDE_RADIUS = 0.25  # of the distance to the factual row: how far around the end the random directions reach at first


@dataclass(frozen=True)
class RoutePoints:
    """The points of n paths, one after another.

    Attributes:
        row: To which row each belongs.
        x: The points as legal rows.
        z: Their codes.
        gap: Which paths cross a bridge.
    """

    row: Int[Tensor, "p"]
    x: Float[Tensor, "p D"]
    z: Float[Tensor, "p d"]
    gap: Bool[Tensor, "n"]


@dataclass(frozen=True)
class Ends:
    """Where paths end: codes, the weight of the residual there, and the rows they stand for."""

    z: Float[Tensor, "n d"]
    weight: Float[Tensor, "n"]
    x: Float[Tensor, "n D"]


def refined_routes(
    roadmap: Roadmap,
    decoder: ResidualDecoder,
    target: Target,
    validator: Validator,
    *,
    refine: bool = True,
) -> RoutePoints:
    """Paths over the roadmap, up to the first valid point.

    The residual of a row decays along its path, because goals are asked about as they are decoded.

    Args:
        roadmap: The roadmap.
        decoder: Of the rows.
        target: What is to be predicted.
        validator: Asks the model; without plausibility ends stay where they are.
        refine: Let the ends slide towards the factual rows, and relax the paths towards geodesics.
    """
    plausibility = validator.plausibility
    shortest = roadmap.shortest_paths(target)
    goal = (shortest.cost == 0).nonzero()[:, 0]
    goals = Neighbours(roadmap.landmarks.x[goal], decoder.feasible.weights)
    near = goals.nearest(decoder.feasible.factual, _DIRECT_GOALS)[1]
    points, gap = connect(roadmap, shortest, decoder.start, goal[near])
    curves, count = resample(points, _SEGMENTS), len(points)
    points_each = _SEGMENTS + 1
    row = torch.arange(count, device=curves.device).repeat_interleave(points_each)
    weight = torch.linspace(1, 0, points_each, device=curves.device).repeat(count)
    x = decoder.decode(curves.flatten(0, 1), row, weight[:, None])
    valid = validator.is_valid(x, decoder.feasible.origin[row]).view(count, -1)
    valid[:, 0] = False  # the row itself is not looked at: it is not valid, or nobody would search
    first = torch.where(valid.any(1), valid.int().argmax(1), _SEGMENTS)
    if refine and plausibility is not None:
        better = valid.any(1).nonzero()[:, 0]
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
    return RoutePoints(row[kept], x[kept], curves.flatten(0, 1)[kept], gap)


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
