import copy
import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpath.fitting.fitted import FittedModels
from counterpath.geometry.graph import Neighbours
from counterpath.models.latent import context_for, split_context
from counterpath.models.training import seeded
from counterpath.search import roadmap as roadmap_module
from counterpath.search.method import SearchOptions
from counterpath.search.methods import METHODS
from counterpath.search.objective import Target
from counterpath.search.roadmap import (
    ConditionalRoadmap,
    Landmarks,
    Roadmap,
    connect,
    edge_costs,
    is_goal,
    representatives,
)
from tests.sizes import examples

TARGET = Target(1, confidence=0.6)


def _roadmap_of(models: FittedModels) -> Roadmap:
    """A roadmap that has not been used yet."""
    fitted = models.state(METHODS["geodesic"], SearchOptions())
    return Roadmap(fitted.cost_field, fitted.landmarks, fitted.graph)


@pytest.fixture
def roadmap(models: FittedModels) -> Roadmap:
    """A roadmap that has seen nobody yet."""
    return _roadmap_of(models)


def _context(models: FittedModels, row: int, *features: str) -> Tensor:
    """What the model is context about somebody who keeps some features."""
    mask = torch.zeros_like(models.rows[:1], dtype=torch.bool)
    mask[:, models.encoder.columns(*features)] = True
    context = context_for(models.latent, models.rows[row : row + 1], mask)
    assert context is not None
    return context


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


# Worlds


def test_who_keeps_nothing_is_in_the_whole_network(roadmap: Roadmap, models: FittedModels) -> None:
    context = context_for(models.latent, models.rows[:1])
    conditional = roadmap.conditional(context)
    assert conditional.unconditional
    assert conditional.graph is roadmap.graph
    assert torch.equal(conditional.z, roadmap.landmarks.z)
    assert conditional.index.tolist() == list(range(len(conditional.z)))
    assert roadmap.conditional(context) is conditional
    assert roadmap.conditional(context_for(models.latent, models.rows[5:6])) is conditional, (
        "nothing is context about either"
    )


@pytest.mark.parametrize("features", [("sex",), ("city", "debt"), ("score", "children", "member")])
def test_a_world_has_the_nodes_that_are_nearest_in_what_is_kept(
    roadmap: Roadmap, models: FittedModels, features: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roadmap_module, "CONDITIONAL_NODES", 50)
    conditional = roadmap.conditional(_context(models, 7, *features))
    columns = models.encoder.columns(*features)
    away = (roadmap.landmarks.x[:, columns] - models.rows[7, columns]).square().sum(-1)
    assert not conditional.unconditional
    assert len(conditional.index) == len(conditional.index.unique()) == 50
    torch.testing.assert_close(away[conditional.index].sort().values, away.sort().values[:50])
    assert torch.equal(conditional.z, roadmap.landmarks.z[conditional.index])
    assert torch.equal(conditional.decoded.mean[:, columns], models.rows[7, columns].expand(50, -1)), "exactly"
    assert conditional.graph.count == 50
    assert conditional.graph.shortest_paths(torch.arange(50) == 0).cost.isfinite().all()


def test_a_world_has_further_goals_if_they_are_asked_for(
    roadmap: Roadmap, models: FittedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roadmap_module, "CONDITIONAL_NODES", 30)
    monkeypatch.setattr(roadmap_module, "FURTHER_GOALS", 5)
    context, goal = _context(models, 7, "score", "debt"), TARGET.is_reached(roadmap.landmarks.probabilities)
    columns = models.encoder.columns("score", "debt")
    away = (roadmap.landmarks.x[:, columns] - models.rows[7, columns]).square().sum(-1)
    near, wide, whole = (
        roadmap.build_conditional(context),
        roadmap.build_conditional(context, goal),
        roadmap.without_edges(context),
    )
    more = wide.index[~torch.isin(wide.index, near.index)]
    assert torch.isin(near.index, wide.index).all()
    assert goal[more].all()
    closest = away[goal].sort().values[:5]
    assert (away[more] <= closest[-1]).all()
    assert int(goal[wide.index].sum()) >= 5
    assert wide.graph.shortest_paths(goal[wide.index]).cost.isfinite().all()
    assert torch.equal(wide.index, wide.index.sort().values)
    assert torch.equal(whole.decoded.mean[wide.index], wide.decoded.mean)
    assert whole.graph.shortest_paths(goal).cost.isfinite().tolist() == goal.tolist(), "it has no edges"


def test_edges_cost_what_the_terrain_says(
    roadmap: Roadmap, models: FittedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roadmap_module, "CONDITIONAL_NODES", 60)
    context = _context(models, 7, "city")
    conditional = roadmap.conditional(context)
    ends, cost_field = conditional.graph.ends, roadmap.cost_field
    cost, highest = cost_field.segment_cost(
        conditional.z[ends[:, 0]], conditional.z[ends[:, 1]], context.expand(len(ends), -1), 1
    )
    torch.testing.assert_close(conditional.graph.weight, cost.float(), rtol=1e-4, atol=1e-5)
    again, off = edge_costs(cost_field, conditional.z, conditional.decoded, context, 1, ends)
    torch.testing.assert_close(again, cost, rtol=1e-5, atol=1e-7)
    assert torch.equal(off, highest > cost_field.data_limit)


def test_conditional_are_kept_and_do_not_hang_on_those_before(
    roadmap: Roadmap, models: FittedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roadmap_module, "CONDITIONAL_NODES", 40)
    asked = [_context(models, row, "score") for row in range(4)]
    assert len({context.numpy().tobytes() for context in asked}) == 4
    roadmap = Roadmap(roadmap.cost_field, roadmap.landmarks, roadmap.graph)
    first = [roadmap.conditional(context) for context in asked[:3]]
    sizes = [conditional.bytes for conditional in first]
    assert min(sizes) > first[0].z.nbytes + first[0].graph.ends.nbytes
    monkeypatch.setattr(roadmap_module, "CACHE_BYTES", 1.2 * sum(sizes))
    assert all(
        roadmap.conditional(context.clone()) is conditional for context, conditional in zip(asked, first, strict=False)
    )
    roadmap.conditional(asked[0])
    roadmap.conditional(asked[3])
    assert roadmap.conditional(asked[0]) is first[0]
    forgotten = roadmap.conditional(asked[1])
    assert forgotten is not first[1], "the one that was not asked for the longest"
    other = Roadmap(roadmap.cost_field, roadmap.landmarks, roadmap.graph)
    for context, conditional in reversed(list(zip(asked, [first[0], forgotten, first[2]], strict=False))):
        again = other.conditional(context)
        assert torch.equal(again.index, conditional.index)
        assert torch.equal(again.graph.ends, conditional.graph.ends)
        assert torch.equal(again.graph.weight, conditional.graph.weight)
        assert torch.equal(again.graph.bridge, conditional.graph.bridge)


def test_ways_of_the_whole_network_are_made_once_for_each_outcome(roadmap: Roadmap, models: FittedModels) -> None:
    conditional = roadmap.conditional(context_for(models.latent, models.rows[:1]))
    outcomes = [Target(1, confidence=0.6), Target(2), Target(1, other=True)]
    fields = [roadmap.shortest_paths(conditional, target) for target in outcomes]
    for target, field in zip(outcomes, fields, strict=True):
        assert roadmap.shortest_paths(conditional, copy.copy(target)) is field
        assert torch.equal(field.cost == 0, target.is_reached(roadmap.landmarks.probabilities))
        assert field.cost.isfinite().all()


def test_a_network_is_laid_with_the_same_edges_again(roadmap: Roadmap, models: FittedModels) -> None:
    assert roadmap.graph is not None
    few = Landmarks(
        *(part[:100] for part in (roadmap.landmarks.x, roadmap.landmarks.z, roadmap.landmarks.probabilities))
    )
    context = context_for(models.latent, few.x[:1])
    one, other = (Roadmap.build(roadmap.cost_field, few, context, 0).graph for _ in range(2))
    assert one is not None
    assert other is not None
    assert torch.equal(one.ends, other.ends)
    assert torch.equal(one.weight, other.weight)


# Getting on


def _ways(
    models: FittedModels, conditional: ConditionalRoadmap, roadmap: Roadmap, start: Tensor, ends: Tensor
) -> tuple[Tensor, Tensor]:
    return connect(roadmap.cost_field, conditional, roadmap.shortest_paths(conditional, TARGET), start, ends)


def test_people_connect_where_the_whole_way_is_cheapest(roadmap: Roadmap, models: FittedModels) -> None:
    conditional = roadmap.conditional(context_for(models.latent, models.rows[:1]))
    field, cost_field = roadmap.shortest_paths(conditional, TARGET), roadmap.cost_field
    with seeded(0):
        start = conditional.z[torch.randperm(len(conditional.z))[:12]] + 0.1 * torch.randn(12, conditional.z.shape[1])
    goal = (field.cost == 0).nonzero()[:, 0]
    ends = goal[torch.arange(36).view(12, 3) % len(goal)]
    points, gap = connect(cost_field, conditional, field, start, ends)
    assert torch.equal(points[:, 0], start)
    context = conditional.context
    assert context is not None
    near = Neighbours(conditional.z).nearest(start, 8)[1]
    for person in range(12):
        options: list[tuple[float, int]] = []
        limit = max(cost_field.data_limit, float(cost_field.decode(start[person : person + 1], context).spread))
        for node, pieces in [*((int(n), 2) for n in near[person]), *((int(n), 4) for n in ends[person])]:
            cost, highest = cost_field.segment_cost(
                start[person : person + 1], conditional.z[node : node + 1], context, pieces
            )
            if pieces == 2 or float(highest) <= limit:
                options.append((float(cost) + float(field.cost[node]), node))
        best = min(options)[1]
        way = field.follow(torch.tensor([best]))[0]
        assert torch.equal(points[person, 1 : len(way) + 1], conditional.z[way])
        assert (points[person, len(way) :] == conditional.z[way[-1]]).all(), "then it waits"
        assert field.cost[way[-1]] == 0
        assert bool(gap[person]) == bool(field.gap[best])


def test_ways_do_not_depend_on_who_else_is_on_the_way(roadmap: Roadmap, models: FittedModels) -> None:
    conditional = roadmap.conditional(context_for(models.latent, models.rows[:1]))
    field = roadmap.shortest_paths(conditional, TARGET)
    goal = (field.cost == 0).nonzero()[:, 0]
    start, ends = models.latent.encode(models.rows[:40]).detach(), goal[:4].expand(40, -1)
    points, gap = connect(roadmap.cost_field, conditional, field, start, ends)
    some = torch.tensor([31, 2, 17])
    alone, over = connect(roadmap.cost_field, conditional, field, start[some], ends[some])
    assert torch.equal(alone, points[some][:, : alone.shape[1]])
    assert torch.equal(over, gap[some])


def test_a_straight_way_is_taken_only_where_it_stays_on_the_data(roadmap: Roadmap, models: FittedModels) -> None:
    conditional = roadmap.conditional(context_for(models.latent, models.rows[:1]))
    field = roadmap.shortest_paths(conditional, TARGET)
    goal = (field.cost == 0).nonzero()[:, 0]
    far = field.cost[torch.arange(40)] > 0
    start = conditional.z[:40][far]
    ends = goal[Neighbours(conditional.z[goal]).nearest(start, 4)[1]]
    cheap = replace(roadmap.cost_field, data_limit=1e9)
    strict = replace(roadmap.cost_field, data_limit=-1.0)
    lengths = []
    for cost_field in (cheap, strict):
        points, _ = connect(cost_field, conditional, field, start, ends)
        lengths.append([len(list(itertools.groupby(map(tuple, way.tolist())))) for way in points])
    assert sum(lengths[0]) < sum(lengths[1])


def test_a_told_column_is_heard_in_every_world(roadmap: Roadmap, models: FittedModels) -> None:
    context = _context(models, 3, "sex")
    values, mask = split_context(context)
    assert mask.sum() == 1
    assert torch.equal(values[mask], models.rows[3, models.encoder.columns("sex")])
    assert roadmap.conditional(context).context is not None
