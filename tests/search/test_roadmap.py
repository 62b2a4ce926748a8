import copy
import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpath.data.surface import Surface
from counterpath.fitting.fitted import FittedModels
from counterpath.geometry.graph import Neighbours
from counterpath.geometry.metric import pullback
from counterpath.models.latent import context_for
from counterpath.models.training import seeded
from counterpath.search import roadmap as roadmap_module
from counterpath.search.method import SearchModels, SearchOptions
from counterpath.search.methods import METHODS
from counterpath.search.objective import Target
from counterpath.search.roadmap import (
    PIECES,
    CostField,
    Landmarks,
    Roadmap,
    connect,
    edge_costs,
    is_goal,
    representatives,
)
from counterpath.utils.devices import map_blocks
from tests.sizes import examples

TARGET = Target(1, confidence=0.6)


@pytest.fixture
def roadmap(models: FittedModels) -> Roadmap:
    """A roadmap that has not been used yet."""
    fitted = models.state(METHODS["geodesic"], SearchOptions()).roadmap
    return Roadmap(fitted.cost_field, fitted.landmarks, fitted.graph)


@pytest.fixture(scope="module")
def plain(search_models: SearchModels, surface: Surface) -> Roadmap:
    """A roadmap of a model that is conditioned on nothing, in which some landmarks are goals."""
    vae = search_models.vae
    assert vae is not None
    with torch.no_grad():
        z = map_blocks(vae.encode, surface.x)
        x = map_blocks(vae.decode, z)
    yes = torch.nn.functional.one_hot((x[:, 0] > x[:, 0].quantile(0.7)).long(), 2).to(x)
    return Roadmap.build(CostField.of(vae, pullback, z, None), Landmarks(x, z, yes), 0)


# Landmarks


@given(st.integers(1, 60), st.integers(1, 30), st.integers(1, 6), st.integers(0, 1000))
@settings(max_examples=examples(40), deadline=None)
def test_representatives_are_different_rows_and_few(count: int, most: int, surest: int, seed: int) -> None:
    with seeded(seed):
        rows = torch.randint(0, 4, (count, 3)).double()
        rows[::2, 0] += torch.arange(len(rows[::2])).double()
        probabilities = torch.rand(count, 2, dtype=torch.float64)
        probabilities = probabilities[rows.unique(dim=0, return_inverse=True)[1]]  # equal rows have equal probabilities
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roadmap_module, "MAX_NODES", most)
        patch.setattr(roadmap_module, "MOST_CONFIDENT", surest)
        chosen = representatives(rows, probabilities, seed)
        assert torch.equal(chosen, representatives(rows, probabilities, seed))
    different = rows.unique(dim=0)
    assert len(rows[chosen].unique(dim=0)) == len(chosen)
    if len(different) <= most:
        assert torch.equal(rows[chosen].unique(dim=0), different)
        return
    assert most <= len(chosen) <= most + 2 * surest
    for label in range(2):
        levels = probabilities[:, label].unique()[-min(surest, len(different)) :]
        sure = rows[probabilities[:, label] >= levels[0]].unique(dim=0)
        assert len(torch.cat([sure, rows[chosen]]).unique(dim=0)) == len(chosen), "those that the model is surest of"


def test_representatives_are_in_random_order() -> None:
    rows, probabilities = torch.arange(50.0)[:, None], torch.rand(50, 2)
    one, other = (representatives(rows, probabilities, seed) for seed in (0, 1))
    assert one.tolist() != sorted(one.tolist())
    assert one.tolist() != other.tolist()
    assert sorted(one.tolist()) == sorted(other.tolist()) == list(range(50))


def test_landmarks_are_legal_rows_with_codes_and_answers(models: FittedModels) -> None:
    rows = models.rows[:80]
    found = Landmarks.of(models.latent, models.encoder.round, rows, models.probabilities[:80], models.predict_proba, 3)
    assert torch.equal(models.encoder.round(found.x), found.x)
    assert torch.equal(found.probabilities, models.explained.predict_proba(found.x))
    chosen = rows[representatives(rows, models.probabilities[:80], 3)]
    torch.testing.assert_close(found.z, models.latent.encode(chosen), rtol=1e-4, atol=1e-5)
    decoded = models.encoder.round(models.latent.decode(found.z, context_for(models.latent, chosen)).detach())
    torch.testing.assert_close(found.x, decoded, rtol=1e-4, atol=1e-4)


def test_goals_are_what_is_wanted_or_what_comes_closest() -> None:
    probabilities = torch.tensor([[0.2, 0.8], [0.7, 0.3], [0.4, 0.6], [0.2, 0.8]])
    assert is_goal(Target(1, confidence=0.6), probabilities).tolist() == [True, False, True, True]
    assert is_goal(Target(1, confidence=0.9), probabilities).tolist() == [True, False, False, True]
    assert is_goal(Target(1, other=True), probabilities).tolist() == [False, True, False, False]


# The graph


def test_a_part_of_the_landmarks_are_the_first_of_them(roadmap: Roadmap) -> None:
    few = roadmap.landmarks.first(10)
    for name in ("x", "z", "probabilities"):
        assert torch.equal(getattr(few, name), getattr(roadmap.landmarks, name)[:10])
    assert len(roadmap.landmarks.first(10**9).z) == len(roadmap.landmarks.z)


def test_edges_cost_what_the_cost_field_says(roadmap: Roadmap, models: FittedModels) -> None:
    ends, z = roadmap.graph.ends, roadmap.landmarks.z
    context = context_for(models.latent, roadmap.landmarks.x)
    assert context is not None
    cost, highest = roadmap.cost_field.segment_cost(z[ends[:, 0]], z[ends[:, 1]], context[ends[:, 0]], PIECES)
    torch.testing.assert_close(roadmap.graph.weight, cost.float(), rtol=1e-4, atol=1e-5)
    again, off = edge_costs(roadmap.cost_field, z, roadmap.decoded, context, PIECES, ends)
    torch.testing.assert_close(again, cost, rtol=1e-5, atol=1e-7)
    assert torch.equal(off, highest > roadmap.cost_field.data_limit)
    assert roadmap.graph.shortest_paths(torch.arange(len(z)) == 0).cost.isfinite().all(), "one roadmap for everybody"


def test_shortest_paths_are_made_once_for_each_target(roadmap: Roadmap) -> None:
    targets = [Target(1, confidence=0.6), Target(2), Target(1, other=True)]
    fields = [roadmap.shortest_paths(target) for target in targets]
    for target, field in zip(targets, fields, strict=True):
        assert roadmap.shortest_paths(copy.copy(target)) is field
        assert torch.equal(field.cost == 0, target.is_reached(roadmap.landmarks.probabilities))
        assert field.cost.isfinite().all()


def test_a_roadmap_is_built_with_the_same_edges_again(roadmap: Roadmap) -> None:
    few = roadmap.landmarks.first(100)
    one, other = (Roadmap.build(roadmap.cost_field, few, 0).graph for _ in range(2))
    assert torch.equal(one.ends, other.ends)
    assert torch.equal(one.weight, other.weight)


# Routes between given points


def test_a_route_is_the_shortest_path_between_the_nodes_next_to_its_ends(roadmap: Roadmap) -> None:
    z, count = roadmap.landmarks.z, len(roadmap.landmarks.z)
    with seeded(0):
        start, end = (z[torch.randperm(count)[:20]] + 0.05 * torch.randn(20, z.shape[1]) for _ in range(2))
    routes = roadmap.route(start, end)
    assert torch.equal(routes[:, 0], start)
    assert torch.equal(routes[:, -1], end)
    nodes = Neighbours(z)
    weights = {
        tuple(sorted(pair)): float(weight)
        for pair, weight in zip(roadmap.graph.ends.tolist(), roadmap.graph.weight, strict=True)
    }
    several = 0
    for number in range(20):
        distance, visited = nodes.nearest(routes[number, 1:-1])
        assert (distance == 0).all(), "all between are nodes"
        chain = [node for node, _ in itertools.groupby(visited[:, 0].tolist())]
        assert chain[0] == int(nodes.nearest(start[number : number + 1])[1])
        assert chain[-1] == int(nodes.nearest(end[number : number + 1])[1])
        cost = sum(weights[tuple(sorted(pair))] for pair in itertools.pairwise(chain))
        best = roadmap.graph.shortest_paths(torch.arange(count) == chain[-1]).cost[chain[0]]
        assert cost == pytest.approx(float(best), rel=1e-5, abs=1e-6)
        several += len(chain) > 2
    assert several > 3


def test_routes_do_not_depend_on_one_another(roadmap: Roadmap, monkeypatch: pytest.MonkeyPatch) -> None:
    z = roadmap.landmarks.z
    start, end = z[:30], z[30:60].flip(0)
    together = roadmap.route(start, end)
    monkeypatch.setattr(roadmap_module, "_SINKS_AT_ONCE", 4)
    assert torch.equal(roadmap.route(start, end), together)
    some = torch.tensor([21, 3, 8])
    alone = roadmap.route(start[some], end[some])
    for place, number in enumerate(some.tolist()):
        one, other = (
            [point for point, _ in itertools.groupby(map(tuple, way.tolist()))]
            for way in (alone[place], together[number])
        )
        assert one == other


def test_a_line_leaves_the_data_where_it_is_less_certain_than_at_its_ends_and_on_the_data(
    roadmap: Roadmap, models: FittedModels
) -> None:
    z, field = roadmap.landmarks.z, roadmap.cost_field
    start, end, context = z[:40], z[40:80], context_for(models.latent, roadmap.landmarks.x[:40])
    before, after = (field.decode(point, context).spread for point in (start, end))
    between = torch.stack([field.decode(torch.lerp(start, end, part / 4), context).spread for part in range(1, 4)])
    limit = torch.maximum(before, after).clamp_min(field.data_limit)
    assert torch.equal(roadmap.leaves_data(start, end, context), between.amax(0) > limit)
    strict = Roadmap(replace(field, data_limit=-1.0), roadmap.landmarks, roadmap.graph)
    higher = between.amax(0) > torch.maximum(before, after)
    assert torch.equal(strict.leaves_data(start, end, context), higher)
    assert higher.any()


def test_between_two_parts_of_the_data_there_is_a_gap(roadmap: Roadmap) -> None:
    z = roadmap.landmarks.z
    assert not roadmap.crosses_gap(z[:10], z[:10]).any()
    apart = Roadmap(
        roadmap.cost_field, roadmap.landmarks, replace(roadmap.graph, bridge=torch.ones_like(roadmap.graph.bridge))
    )
    assert len(apart.part.unique()) == len(z), "bridges alone connect nothing"
    assert torch.equal(apart.crosses_gap(z[:10], z[:10]), torch.zeros(10, dtype=torch.bool))
    assert apart.crosses_gap(z[:10], z[10:20]).all()
    near = 1e-6 * torch.randn(10, z.shape[1], generator=torch.Generator().manual_seed(0))
    assert not apart.crosses_gap(z[:10] + near, z[:10]).any(), "the part is that of the node next to it"


# Getting on


def test_people_connect_where_the_whole_way_is_cheapest(plain: Roadmap) -> None:
    field, cost_field, z = plain.shortest_paths(TARGET), plain.cost_field, plain.landmarks.z
    with seeded(0):
        start = z[torch.randperm(len(z))[:12]] + 0.1 * torch.randn(12, z.shape[1])
    goal = (field.cost == 0).nonzero()[:, 0]
    ends = goal[torch.arange(36).view(12, 3) % len(goal)]
    points, gap = connect(plain, field, start, ends)
    assert torch.equal(points[:, 0], start)
    near = Neighbours(z).nearest(start, 8)[1]
    for person in range(12):
        options: list[tuple[float, int]] = []
        limit = max(cost_field.data_limit, float(cost_field.decode(start[person : person + 1], None).spread))
        for node, pieces in [*((int(n), 2) for n in near[person]), *((int(n), 4) for n in ends[person])]:
            cost, highest = cost_field.segment_cost(start[person : person + 1], z[node : node + 1], None, pieces)
            if pieces == 2 or float(highest) <= limit:
                options.append((float(cost) + float(field.cost[node]), node))
        best = min(options)[1]
        way = field.follow(torch.tensor([best]))[0]
        assert torch.equal(points[person, 1 : len(way) + 1], z[way])
        assert (points[person, len(way) :] == z[way[-1]]).all(), "then it waits"
        assert field.cost[way[-1]] == 0
        assert bool(gap[person]) == bool(field.gap[best])


def test_ways_do_not_depend_on_who_else_is_on_the_way(plain: Roadmap) -> None:
    field, z = plain.shortest_paths(TARGET), plain.landmarks.z
    goal = (field.cost == 0).nonzero()[:, 0]
    start, ends = z[:40] + 0.01, goal[:4].expand(40, -1)
    points, gap = connect(plain, field, start, ends)
    some = torch.tensor([31, 2, 17])
    alone, over = connect(plain, field, start[some], ends[some])
    assert torch.equal(alone, points[some][:, : alone.shape[1]])
    assert torch.equal(over, gap[some])


def test_a_straight_way_is_taken_only_where_it_stays_on_the_data(plain: Roadmap) -> None:
    field, z = plain.shortest_paths(TARGET), plain.landmarks.z
    goal = (field.cost == 0).nonzero()[:, 0]
    far = field.cost[torch.arange(40)] > 0
    start = z[:40][far]
    ends = goal[Neighbours(z[goal]).nearest(start, 4)[1]]
    cheap = replace(plain.cost_field, data_limit=1e9)
    strict = replace(plain.cost_field, data_limit=-1.0)
    lengths = []
    for cost_field in (cheap, strict):
        points, _ = connect(Roadmap(cost_field, plain.landmarks, plain.graph), field, start, ends)
        lengths.append([len(list(itertools.groupby(map(tuple, way.tolist())))) for way in points])
    assert sum(lengths[0]) < sum(lengths[1])
