import copy
import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpath.fitting.fitted import FittedModels
from counterpath.geometry.neighbours import Neighbours
from counterpath.models.latent import context_for, split_context
from counterpath.models.training import seeded
from counterpath.search import roadmap as network_module
from counterpath.search.objective import Target
from counterpath.search.roadmap import ConditionalRoadmap, Landmarks, Roadmap, get_on, goals, price, representatives

TARGET = Target(1, confidence=0.6)


@pytest.fixture
def network(learned: FittedModels) -> Roadmap:
    """A network that has seen nobody yet."""
    assert learned.landmarks is not None
    return Roadmap(learned.terrain, learned.landmarks, learned.graph)


def _told(learned: FittedModels, row: int, *features: str) -> Tensor:
    """What the model is told about somebody who keeps some features."""
    mask = torch.zeros_like(learned.rows[:1], dtype=torch.bool)
    mask[:, learned.encoder.columns(*features)] = True
    told = context_for(learned.space, learned.rows[row : row + 1], mask)
    assert told is not None
    return told


# Landmarks


@given(st.integers(1, 60), st.integers(1, 30), st.integers(1, 6), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_representatives_are_different_rows_and_few(count: int, most: int, surest: int, seed: int) -> None:
    with seeded(seed):
        rows = torch.randint(0, 4, (count, 3)).double()
        rows[::2, 0] += torch.arange(len(rows[::2])).double()
        answers = torch.rand(count, 2, dtype=torch.float64)
        answers = answers[rows.unique(dim=0, return_inverse=True)[1]]  # equal rows have equal answers
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network_module, "MOST_NODES", most)
        patch.setattr(network_module, "SUREST", surest)
        chosen = representatives(rows, answers, seed)
        assert torch.equal(chosen, representatives(rows, answers, seed))
    different = rows.unique(dim=0)
    assert len(rows[chosen].unique(dim=0)) == len(chosen)
    if len(different) <= most:
        assert torch.equal(rows[chosen].unique(dim=0), different)
        return
    assert most <= len(chosen) <= most + 2 * surest
    for label in range(2):
        levels = answers[:, label].unique()[-min(surest, len(different)) :]
        sure = rows[answers[:, label] >= levels[0]].unique(dim=0)
        assert len(torch.cat([sure, rows[chosen]]).unique(dim=0)) == len(chosen), "those that the model is surest of"


def test_representatives_are_in_random_order() -> None:
    rows, answers = torch.arange(50.0)[:, None], torch.rand(50, 2)
    one, other = (representatives(rows, answers, seed) for seed in (0, 1))
    assert one.tolist() != sorted(one.tolist())
    assert one.tolist() != other.tolist()
    assert sorted(one.tolist()) == sorted(other.tolist()) == list(range(50))


def test_landmarks_are_legal_rows_with_codes_and_answers(learned: FittedModels) -> None:
    rows = learned.rows[:80]
    found = Landmarks.of(
        learned.space, learned.encoder.round, rows, learned.probabilities[:80], learned.predict_proba, 3
    )
    assert torch.equal(learned.encoder.round(found.x), found.x)
    assert torch.equal(found.answers, learned.explained.predict_proba(found.x))
    chosen = rows[representatives(rows, learned.probabilities[:80], 3)]
    torch.testing.assert_close(found.z, learned.space.encode(chosen), rtol=1e-4, atol=1e-5)
    decoded = learned.encoder.round(learned.space.decode(found.z, context_for(learned.space, chosen)).detach())
    torch.testing.assert_close(found.x, decoded, rtol=1e-4, atol=1e-4)


def test_goals_are_what_is_wanted_or_what_comes_closest() -> None:
    answers = torch.tensor([[0.2, 0.8], [0.7, 0.3], [0.4, 0.6], [0.2, 0.8]])
    assert goals(Target(1, confidence=0.6), answers).tolist() == [True, False, True, True]
    assert goals(Target(1, confidence=0.9), answers).tolist() == [True, False, False, True]
    assert goals(Target(1, other=True), answers).tolist() == [False, True, False, False]


# Worlds


def test_who_keeps_nothing_is_in_the_whole_network(network: Roadmap, learned: FittedModels) -> None:
    told = context_for(learned.space, learned.rows[:1])
    world = network.world(told)
    assert world.free
    assert world.graph is network.graph
    assert torch.equal(world.z, network.landmarks.z)
    assert world.places.tolist() == list(range(len(world.z)))
    assert network.world(told) is world
    assert network.world(context_for(learned.space, learned.rows[5:6])) is world, "nothing is told about either"


@pytest.mark.parametrize("features", [("sex",), ("city", "debt"), ("score", "children", "member")])
def test_a_world_has_the_nodes_that_are_nearest_in_what_is_kept(
    network: Roadmap, learned: FittedModels, features: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_module, "NODES", 50)
    world = network.world(_told(learned, 7, *features))
    columns = learned.encoder.columns(*features)
    away = (network.landmarks.x[:, columns] - learned.rows[7, columns]).square().sum(-1)
    assert not world.free
    assert len(world.places) == len(world.places.unique()) == 50
    torch.testing.assert_close(away[world.places].sort().values, away.sort().values[:50])
    assert torch.equal(world.z, network.landmarks.z[world.places])
    assert torch.equal(world.decoded.mean[:, columns], learned.rows[7, columns].expand(50, -1)), "exactly"
    assert world.graph.count == 50
    assert world.graph.shortest_paths(torch.arange(50) == 0).cost.isfinite().all()


def test_a_world_has_further_goals_if_they_are_asked_for(
    network: Roadmap, learned: FittedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_module, "NODES", 30)
    monkeypatch.setattr(network_module, "FURTHER", 5)
    told, goal = _told(learned, 7, "score", "debt"), TARGET.met(network.landmarks.answers)
    columns = learned.encoder.columns("score", "debt")
    away = (network.landmarks.x[:, columns] - learned.rows[7, columns]).square().sum(-1)
    near, wide, whole = network.part(told), network.part(told, goal), network.everywhere(told)
    more = wide.places[~torch.isin(wide.places, near.places)]
    assert torch.isin(near.places, wide.places).all()
    assert goal[more].all()
    closest = away[goal].sort().values[:5]
    assert (away[more] <= closest[-1]).all()
    assert int(goal[wide.places].sum()) >= 5
    assert wide.graph.shortest_paths(goal[wide.places]).cost.isfinite().all()
    assert torch.equal(wide.places, wide.places.sort().values)
    assert torch.equal(whole.decoded.mean[wide.places], wide.decoded.mean)
    assert whole.graph.shortest_paths(goal).cost.isfinite().tolist() == goal.tolist(), "it has no edges"


def test_edges_cost_what_the_terrain_says(
    network: Roadmap, learned: FittedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_module, "NODES", 60)
    told = _told(learned, 7, "city")
    world = network.world(told)
    ends, terrain = world.graph.ends, network.terrain
    cost, highest = terrain.price(world.z[ends[:, 0]], world.z[ends[:, 1]], told.expand(len(ends), -1), 1)
    torch.testing.assert_close(world.graph.weight, cost.float(), rtol=1e-4, atol=1e-5)
    again, off = price(terrain, world.z, world.decoded, told, 1, ends)
    torch.testing.assert_close(again, cost, rtol=1e-5, atol=1e-7)
    assert torch.equal(off, highest > terrain.edge)


def test_worlds_are_kept_and_do_not_hang_on_those_before(
    network: Roadmap, learned: FittedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_module, "NODES", 40)
    asked = [_told(learned, row, "score") for row in range(4)]
    assert len({told.numpy().tobytes() for told in asked}) == 4
    network = Roadmap(network.terrain, network.landmarks, network.graph)
    first = [network.world(told) for told in asked[:3]]
    sizes = [world.bytes for world in first]
    assert min(sizes) > first[0].z.nbytes + first[0].graph.ends.nbytes
    monkeypatch.setattr(network_module, "KEPT", 1.2 * sum(sizes))
    assert all(network.world(told.clone()) is world for told, world in zip(asked, first, strict=False))
    network.world(asked[0])
    network.world(asked[3])
    assert network.world(asked[0]) is first[0]
    forgotten = network.world(asked[1])
    assert forgotten is not first[1], "the one that was not asked for the longest"
    other = Roadmap(network.terrain, network.landmarks, network.graph)
    for told, world in reversed(list(zip(asked, [first[0], forgotten, first[2]], strict=False))):
        again = other.world(told)
        assert torch.equal(again.places, world.places)
        assert torch.equal(again.graph.ends, world.graph.ends)
        assert torch.equal(again.graph.weight, world.graph.weight)
        assert torch.equal(again.graph.bridge, world.graph.bridge)


def test_ways_of_the_whole_network_are_made_once_for_each_outcome(network: Roadmap, learned: FittedModels) -> None:
    world = network.world(context_for(learned.space, learned.rows[:1]))
    outcomes = [Target(1, confidence=0.6), Target(2), Target(1, other=True)]
    fields = [network.ways(world, wanted) for wanted in outcomes]
    for wanted, field in zip(outcomes, fields, strict=True):
        assert network.ways(world, copy.copy(wanted)) is field
        assert torch.equal(field.cost == 0, wanted.met(network.landmarks.answers))
        assert field.cost.isfinite().all()


def test_a_network_is_laid_with_the_same_edges_again(network: Roadmap, learned: FittedModels) -> None:
    assert network.graph is not None
    few = Landmarks(*(part[:100] for part in (network.landmarks.x, network.landmarks.z, network.landmarks.answers)))
    told = context_for(learned.space, few.x[:1])
    one, other = (Roadmap.laid(network.terrain, few, told, 0).graph for _ in range(2))
    assert one is not None
    assert other is not None
    assert torch.equal(one.ends, other.ends)
    assert torch.equal(one.weight, other.weight)


# Getting on


def _ways(
    learned: FittedModels, world: ConditionalRoadmap, network: Roadmap, start: Tensor, ends: Tensor
) -> tuple[Tensor, Tensor]:
    return get_on(network.terrain, world, network.ways(world, TARGET), start, ends)


def test_people_get_on_where_the_whole_way_is_cheapest(network: Roadmap, learned: FittedModels) -> None:
    world = network.world(context_for(learned.space, learned.rows[:1]))
    field, terrain = network.ways(world, TARGET), network.terrain
    with seeded(0):
        start = world.z[torch.randperm(len(world.z))[:12]] + 0.1 * torch.randn(12, world.z.shape[1])
    goal = (field.cost == 0).nonzero()[:, 0]
    ends = goal[torch.arange(36).view(12, 3) % len(goal)]
    points, gap = get_on(terrain, world, field, start, ends)
    assert torch.equal(points[:, 0], start)
    told = world.told
    assert told is not None
    near = Neighbours(world.z).nearest(start, 8)[1]
    for person in range(12):
        options: list[tuple[float, int]] = []
        limit = max(terrain.edge, float(terrain.decoded(start[person : person + 1], told).spread))
        for node, pieces in [*((int(n), 2) for n in near[person]), *((int(n), 4) for n in ends[person])]:
            cost, highest = terrain.price(start[person : person + 1], world.z[node : node + 1], told, pieces)
            if pieces == 2 or float(highest) <= limit:
                options.append((float(cost) + float(field.cost[node]), node))
        best = min(options)[1]
        way = field.follow(torch.tensor([best]))[0]
        assert torch.equal(points[person, 1 : len(way) + 1], world.z[way])
        assert (points[person, len(way) :] == world.z[way[-1]]).all(), "then it waits"
        assert field.cost[way[-1]] == 0
        assert bool(gap[person]) == bool(field.gap[best])


def test_ways_do_not_depend_on_who_else_is_on_the_way(network: Roadmap, learned: FittedModels) -> None:
    world = network.world(context_for(learned.space, learned.rows[:1]))
    field = network.ways(world, TARGET)
    goal = (field.cost == 0).nonzero()[:, 0]
    start, ends = learned.space.encode(learned.rows[:40]).detach(), goal[:4].expand(40, -1)
    points, gap = get_on(network.terrain, world, field, start, ends)
    some = torch.tensor([31, 2, 17])
    alone, over = get_on(network.terrain, world, field, start[some], ends[some])
    assert torch.equal(alone, points[some][:, : alone.shape[1]])
    assert torch.equal(over, gap[some])


def test_a_straight_way_is_taken_only_where_it_stays_on_the_data(network: Roadmap, learned: FittedModels) -> None:
    world = network.world(context_for(learned.space, learned.rows[:1]))
    field = network.ways(world, TARGET)
    goal = (field.cost == 0).nonzero()[:, 0]
    far = field.cost[torch.arange(40)] > 0
    start = world.z[:40][far]
    ends = goal[Neighbours(world.z[goal]).nearest(start, 4)[1]]
    cheap = replace(network.terrain, edge=1e9)
    strict = replace(network.terrain, edge=-1.0)
    lengths = []
    for terrain in (cheap, strict):
        points, _ = get_on(terrain, world, field, start, ends)
        lengths.append([len(list(itertools.groupby(map(tuple, way.tolist())))) for way in points])
    assert sum(lengths[0]) < sum(lengths[1])


def test_a_told_column_is_heard_in_every_world(network: Roadmap, learned: FittedModels) -> None:
    told = _told(learned, 3, "sex")
    values, mask = split_context(told)
    assert mask.sum() == 1
    assert torch.equal(values[mask], learned.rows[3, learned.encoder.columns("sex")])
    assert network.world(told).told is not None
