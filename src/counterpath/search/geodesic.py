"""From people to goals over a network: whose world it is, where they get on, and the way; then the way made better."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.geometry.curve import resample
from counterpath.geometry.graph import Field
from counterpath.geometry.neighbours import Neighbours
from counterpath.search.objective import Target
from counterpath.search.residual import Data, ResidualDecoder
from counterpath.search.roadmap import NODES, ConditionalRoadmap, Roadmap, get_on, goals
from counterpath.search.sparsify import Plausible, within_reach
from counterpath.utils.deadline import ShouldStop, never_stop
from counterpath.utils.progress import track

Answers = Callable[[Tensor], Tensor]
Check = Callable[[Tensor], Tensor]

_GOALS = 4
_LOOKS, _SEGMENTS = 24, 8
_RELAXING = 4
_ROUNDS, _AROUND = 6, 4
_PULLS = (0.5, 0.25, 0.125, 0.0625)


@dataclass(frozen=True)
class Routes:
    """The ways of n people through the network.

    Attributes:
        points: From the code of each to that of a goal; who is there before others waits.
        gap: Whose way crosses a bridge.
        late: For whom there was no time.
    """

    points: Float[Tensor, "n t d"]
    gap: Bool[Tensor, "n"]
    late: Bool[Tensor, "n"]


@dataclass(frozen=True)
class Travelled:
    """Paths of n people, their points one after another.

    Attributes:
        row: Whose point it is.
        x: Points as legal rows.
        z: Their codes.
        gap: Whose path crosses a bridge.
        late: For whom there was no time; their path is themselves.
    """

    row: Int[Tensor, "p"]
    x: Float[Tensor, "p D"]
    z: Float[Tensor, "p d"]
    gap: Bool[Tensor, "n"]
    late: Bool[Tensor, "n"]


@dataclass(frozen=True)
class Ends:
    """Where ways end: codes, the share of what is carried there, and the rows they stand for."""

    z: Float[Tensor, "n d"]
    share: Float[Tensor, "n"]
    x: Float[Tensor, "n D"]


def find_routes(
    network: Roadmap,
    journey: ResidualDecoder,
    wanted: Target,
    ask: Answers,
    *,
    over: ShouldStop = never_stop,
    progress: bool | None = False,
) -> Routes:
    """The cheapest way of every person to a node that would give them the wanted outcome.

    People who keep the same columns share a world. What its nodes become is asked once for those who may become the
    same rows; in a large world for each person, about the nodes next to them and about all if none of those is a goal.
    People get on at one of the nodes next to them, or go straight to one of the goals next to them.

    Args:
        network: The roads.
        journey: Where people set out from.
        wanted: The outcome.
        ask: What the model says about rows.
        over: When to give up.
        progress: Show a bar.
    """
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    late = torch.ones(len(journey.scope), dtype=torch.bool, device=journey.start.device)
    with track("routes", len(journey.scope), shown=progress) as advance:
        for people, world in _worlds(network, journey, over):
            for some, nodes, field, rows in _fields(network, world, journey, people, wanted, ask, over):
                factual, goal = journey.scope.factual[some], (field.cost == 0).nonzero()[:, 0]
                ends = goal[Neighbours(rows[goal], journey.scope.weights).nearest(factual, _GOALS)[1]]
                found.append((some, *get_on(network.terrain, nodes, field, journey.start[some], ends)))
                late[some] = False
                advance(len(some))
    longest = max((points.shape[1] for _, points, _ in found), default=1)
    whole = journey.start[:, None].repeat(1, longest, 1)
    gaps = torch.zeros_like(late)
    for people, points, gap in found:
        last = points[:, -1:].expand(-1, longest - points.shape[1], -1)
        whole[people], gaps[people] = torch.cat([points, last], 1), gap
    return Routes(whole, gaps, late)


def _worlds(
    network: Roadmap, journey: ResidualDecoder, over: ShouldStop
) -> Iterator[tuple[Tensor, ConditionalRoadmap]]:
    """People about whom the model is told the same, and their world, as long as there is time."""
    everybody = torch.arange(len(journey.scope), device=journey.start.device)
    if journey.told is None:
        groups: list[tuple[Tensor, Tensor | None]] = [(everybody, None)]
    else:
        told, member = journey.told.unique(dim=0, return_inverse=True)
        groups = [(everybody[member == number], told[number : number + 1]) for number in range(len(told))]
    for people, same in groups:
        if over():
            return
        yield people, network.world(same)


def _fields(
    network: Roadmap,
    world: ConditionalRoadmap,
    journey: ResidualDecoder,
    people: Tensor,
    wanted: Target,
    ask: Answers,
    over: ShouldStop,
) -> Iterator[tuple[Tensor, ConditionalRoadmap, Field, Tensor]]:
    """For people of a world the network they travel on, the ways to their goals, and the rows its nodes stand for.

    It ends when time is up.
    """
    if world.free and journey.scope.free:
        yield people, world, network.ways(world, wanted), network.landmarks.x
        return
    large = len(world.z) > NODES  # then the model is asked first about the nodes next to each person
    alike = people.split(1) if large else [people[group] for group in journey.scope.at(people).alike()]
    for some in alike:
        if over():
            return
        seen = _seen(world, journey, some, wanted, ask, near=large)
        if not bool(seen.met.any()) and world.told is not None and not world.free:
            # Nobody who is like them has what they want: look among all landmarks, and go to the goals there.
            wide = _seen(network.everywhere(world.told), journey, some, wanted, ask, near=False)
            further = network.part(world.told, wide.goal)
            goal = wide.goal[further.places]
            yield some, further, further.graph.field(goal), wide.rows[further.places]
        else:
            yield some, world, world.graph.field(seen.goal), seen.rows


@dataclass(frozen=True)
class _Seen:
    """What people see of a world: the rows that its nodes stand for, which of them are met, and the goals."""

    rows: Float[Tensor, "m D"]
    met: Bool[Tensor, "m"]
    goal: Bool[Tensor, "m"]


def _seen(
    world: ConditionalRoadmap, journey: ResidualDecoder, people: Tensor, wanted: Target, ask: Answers, *, near: bool
) -> _Seen:
    """Ask the model about the nodes of a world; if `near`, about those next to a person, and all if none is a goal."""
    mean = world.decoded.mean
    rows, everywhere = mean.clone(), torch.arange(len(mean), device=mean.device)
    met, goal = torch.zeros_like(everywhere, dtype=torch.bool), torch.zeros_like(everywhere, dtype=torch.bool)
    close = world.rows.nearest(journey.scope.factual[people[:1]], NODES)[1][0] if near else everywhere
    for places in (close, everywhere):
        rows[places] = journey.become(mean[places], people[:1].expand(len(places)), 0.0)
        answers = ask(rows[places])
        met[places], goal[places] = wanted.met(answers), goals(wanted, answers)
        if bool(met.any()) or len(places) == len(everywhere):
            break
        goal[places] = False
    return _Seen(rows, met, goal)


def travel(
    network: Roadmap,
    journey: ResidualDecoder,
    wanted: Target,
    ask: Answers,
    met: Check,
    data: Data | None,
    *,
    refine: bool = True,
    over: ShouldStop = never_stop,
    progress: bool | None = False,
) -> Travelled:
    """Paths over the network, up to the first point with the wanted outcome.

    What is carried of a person fades along the way, because goals are asked about as they are decoded.

    Args:
        network: The roads.
        journey: Where people set out from.
        wanted: The outcome.
        ask: What the model says about rows.
        met: Which rows have it and may be returned.
        data: The training rows, to tell what is plausible; without them ends stay where they are.
        refine: Let the ends slide towards the people, and relax the ways towards geodesics.
        over: When to give up.
        progress: Show a bar.
    """
    routes = find_routes(network, journey, wanted, ask, over=over, progress=progress)
    curves, count = resample(routes.points, _LOOKS), len(routes.late)
    row = torch.arange(count, device=curves.device).repeat_interleave(_LOOKS + 1)
    share = torch.linspace(1, 0, _LOOKS + 1, device=curves.device).repeat(count)
    x = journey.rows(curves.flatten(0, 1), row, share[:, None])
    there = met(x).view(count, -1)
    there[:, 0] = False  # the person's own place is not looked at: they do not have the wanted outcome
    first = torch.where(there.any(1), there.int().argmax(1), _LOOKS)
    first = torch.where(routes.late, 0, first)
    if refine and data is not None and not over():
        better = (there.any(1) & ~routes.late).nonzero()[:, 0]
        last = better * (_LOOKS + 1) + first[better]
        ends = Ends(curves.flatten(0, 1)[last], share[last], x[last])
        plausible = within_reach(data.neighbours, data.typical, ends.x)
        ends = slide(network, journey.at(better), ends, met, plausible)
        cut = torch.arange(_LOOKS + 1, device=curves.device).minimum(first[better, None])
        ways = curves[better].gather(1, cut[..., None].expand(-1, -1, curves.shape[-1]))
        ways = resample(torch.cat([ways, ends.z[:, None]], 1), _SEGMENTS)
        told = None if journey.told is None else journey.told[better]
        ways = resample(network.terrain.relaxed(ways, told, steps=_RELAXING), _LOOKS)
        curves[better], first = ways, first.index_fill(0, better, _LOOKS)
        some = torch.isin(row, better)
        faded = share.view(count, -1)
        faded[better] = torch.lerp(ends.share[:, None], torch.ones_like(ends.share[:, None]), faded[better])
        share = faded.flatten()
        x[some] = journey.rows(curves.flatten(0, 1)[some], row[some], share[some, None])
        x[better * (_LOOKS + 1) + _LOOKS] = ends.x  # to the bit what the model was asked about
    kept = torch.arange(_LOOKS + 1, device=curves.device) <= first[:, None]
    kept = kept.flatten()
    return Travelled(row[kept], x[kept], curves.flatten(0, 1)[kept], routes.gap, routes.late)


def slide(
    network: Roadmap,
    journey: ResidualDecoder,
    ends: Ends,
    met: Check,
    plausible: Plausible,
    seed: int = 0,
) -> Ends:
    """Ends that cost people less, around the given ones, with the wanted outcome and no farther from the data.

    A few rounds of trying places towards the person and around the end; the best is where the next round begins.

    Args:
        network: The roads, for the uncertainty.
        journey: Of the people.
        ends: Rows with the wanted outcome.
        met: Which rows have it.
        plausible: Which rows are plausible enough.
        seed: Of the directions to try.
    """
    z, x, share = ends.z, ends.x, ends.share
    scope, told, count = journey.scope, journey.told, len(ends.z)
    draws = torch.randn(_ROUNDS, _AROUND, z.shape[1], generator=torch.Generator().manual_seed(seed)).to(z)
    draws = draws / draws.norm(dim=-1, keepdim=True)
    tries = len(_PULLS) + _AROUND
    who = torch.arange(count, device=z.device).repeat_interleave(tries)
    limit = network.terrain.decoded(z, told).spread.clamp_min(network.terrain.edge)
    cost, radius = scope.cost(x), 0.25 * (z - journey.start).norm(dim=-1)
    for around in draws:
        pulled = [torch.lerp(z, journey.start, pull) for pull in _PULLS]
        tried = torch.stack([*pulled, *(z + radius[:, None] * step for step in around)], 1).flatten(0, 1)
        decoded = network.terrain.decoded(tried, None if told is None else told[who])
        rows, spread = journey.become(decoded.mean, who, share[who, None]), decoded.spread
        costs = scope.cost(rows, who)
        good = ((costs < cost[who]) & (spread <= limit[who])).nonzero()[:, 0]
        good = good[met(rows[good])]
        good = good[plausible(rows[good], who[good])]
        costs = torch.full_like(costs, torch.inf).index_copy(0, good, costs[good]).view(count, tries)
        best = costs.argmin(1)
        better = costs.gather(1, best[:, None])[:, 0] < cost
        place = torch.arange(count, device=z.device) * tries + best
        z = torch.where(better[:, None], tried[place], z)
        x = torch.where(better[:, None], rows[place], x)
        cost = scope.cost(x)
        radius = torch.where(better, radius, radius / 2)
    return Ends(z, share, x)
