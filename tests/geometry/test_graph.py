import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from counterpath.geometry.graph import EdgeCost, Graph, build_graph
from counterpath.models.training import seeded
from tests.sizes import examples


def by_distance(points: Tensor, longest: float = math.inf) -> EdgeCost:
    """Edges cost their length, and leave the data where they are longer than this."""

    def edge_cost(ends: Tensor) -> tuple[Tensor, Tensor]:
        apart = (points[ends[:, 0]] - points[ends[:, 1]]).norm(dim=-1)
        return apart, apart > longest

    return edge_cost


def random_graph(count: int, density: float, seed: int) -> Graph:
    pairs = torch.tensor(list(itertools.combinations(range(count), 2)), dtype=torch.long).view(-1, 2)
    with seeded(seed):
        ends = pairs[torch.rand(len(pairs)) < density]
        return Graph(count, ends, torch.rand(len(ends)).double() + 0.01, torch.rand(len(ends)) < 0.3)


def matrix(graph: Graph) -> Tensor:
    """What every edge costs, in both directions; infinite where there is none."""
    whole = torch.full((graph.count, graph.count), math.inf, dtype=torch.float64)
    for (first, second), weight in zip(graph.ends.tolist(), graph.weight.double(), strict=True):
        whole[first, second] = whole[second, first] = weight
    return whole.fill_diagonal_(0)


def all_pairs(graph: Graph, allowed: Tensor) -> Tensor:
    """Floyd and Warshall's distances over allowed points."""
    distance = matrix(graph)
    distance[~allowed], distance[:, ~allowed] = math.inf, math.inf
    for middle in range(graph.count):
        distance = torch.minimum(distance, distance[:, middle : middle + 1] + distance[middle : middle + 1])
    return distance


def bridges(graph: Graph) -> set[tuple[int, int]]:
    pairs = graph.ends[graph.bridge].tolist()
    return {(first, second) for first, second in pairs} | {(second, first) for first, second in pairs}


GRAPHS = st.tuples(st.integers(1, 14), st.floats(0, 1), st.integers(0, 10_000))


@given(GRAPHS, st.integers(0, 10_000), st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_shortest_paths_are_the_shortest(graph: tuple[int, float, int], seed: int, some: bool) -> None:
    network = random_graph(*graph)
    with seeded(seed):
        goal = torch.rand(network.count) < 0.3
        allowed = torch.rand(network.count) < 0.7 if some else torch.ones(network.count, dtype=torch.bool)
    shortest = network.shortest_paths(goal, allowed if some else None)
    distance = all_pairs(network, allowed)[:, goal & allowed]
    expected = distance.amin(1) if distance.shape[1] else torch.full((network.count,), math.inf).double()
    torch.testing.assert_close(shortest.cost, expected, rtol=1e-12, atol=0)
    assert torch.equal(shortest.cost == 0, goal & allowed)


@given(GRAPHS, st.integers(0, 10_000))
@settings(max_examples=examples(60), deadline=None)
def test_paths_follow_edges_downhill_to_a_goal_and_say_whether_they_cross_a_bridge(
    graph: tuple[int, float, int], seed: int
) -> None:
    network = random_graph(*graph)
    with seeded(seed):
        goal, allowed = torch.rand(network.count) < 0.3, torch.rand(network.count) < 0.8
    shortest, edges, over = network.shortest_paths(goal, allowed), matrix(network), bridges(network)
    paths = shortest.follow(torch.arange(network.count))
    for start, path in enumerate(paths.tolist()):
        steps = [(here, there) for here, there in itertools.pairwise(path) if here != there]
        for here, there in steps:
            assert allowed[here]
            assert allowed[there]
            assert float(shortest.cost[here]) == pytest.approx(
                float(edges[here, there] + shortest.cost[there]), rel=1e-12
            )
            assert shortest.cost[there] < shortest.cost[here]
        assert path[: len(steps) + 1] == [start, *(there for _, there in steps)], "it waits at its end only"
        assert bool(shortest.gap[start]) == any(step in over for step in steps)
        assert bool(goal[path[-1]] & allowed[path[-1]]) == math.isfinite(shortest.cost[start])
        assert math.isfinite(shortest.cost[start]) or path == [start] * len(path)
    some = torch.tensor([network.count - 1, 0])
    few = shortest.follow(some)
    assert torch.equal(few, paths[some][:, : few.shape[1]]), "whatever the other starts are"


def test_without_goals_nothing_leads_anywhere() -> None:
    graph = random_graph(6, 1.0, 0)
    nowhere = torch.zeros(6, dtype=torch.bool)
    for shortest in (graph.shortest_paths(nowhere), graph.shortest_paths(~nowhere, nowhere)):
        assert (shortest.cost == math.inf).all()
        assert shortest.following.tolist() == list(range(6))
        assert not shortest.gap.any()
        assert shortest.follow(torch.arange(6)).tolist() == [[point] for point in range(6)]


def test_shortest_paths_do_not_depend_on_those_before() -> None:
    graph = random_graph(30, 0.2, 1)
    with seeded(0):
        goals = [torch.rand(30) < 0.2 for _ in range(4)]
    first = [graph.shortest_paths(goal) for goal in goals]
    for goal, before in reversed(list(zip(goals, first, strict=True))):
        again = graph.shortest_paths(goal)
        assert torch.equal(again.cost, before.cost)
        assert torch.equal(again.following, before.following)
        assert torch.equal(again.gap, before.gap)


@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 10_000))
@settings(max_examples=examples(30), deadline=None)
def test_points_are_joined_to_their_nearest_by_one_edge_each(count: int, near: int, seed: int) -> None:
    with seeded(seed):
        points = torch.randn(count, 3, dtype=torch.float64)
        order = torch.randperm(count)
    graph = build_graph(points, by_distance(points), near=near, far=0, join=False)
    distance = torch.cdist(points, points).fill_diagonal_(math.inf)
    closest = distance.argsort(1)[:, : min(near, count - 1)]
    expected = {tuple(sorted((start, end))) for start in range(count) for end in closest[start].tolist()}
    edges = [tuple(pair) for pair in graph.ends.tolist()]
    assert set(edges) == expected
    assert len(edges) == len(expected)
    assert not graph.bridge.any()
    torch.testing.assert_close(graph.weight.double(), distance[graph.ends[:, 0], graph.ends[:, 1]], rtol=1e-6, atol=0)
    shuffled = build_graph(points[order], by_distance(points[order]), near=near, far=0, join=False)
    assert {tuple(sorted(pair)) for pair in order[shuffled.ends].tolist()} == expected


def test_longer_edges_are_there_only_where_they_do_not_leave_the_data() -> None:
    with seeded(0):
        points = torch.rand(600, 2, dtype=torch.float64)
    near, short, every = (
        build_graph(points, by_distance(points, longest), near=6, far=far)
        for far, longest in ((0, 0.0), (4, 0.2), (4, math.inf))
    )
    assert len(near.ends) < len(short.ends) < len(every.ends)
    assert every.weight.max() > 0.3
    assert short.weight.max() <= 0.2
    edges = [{tuple(pair) for pair in graph.ends.tolist()} for graph in (near, short, every)]
    assert edges[0] <= edges[1] <= edges[2], "edges to nearest points stay though they leave the data"
    other = build_graph(points, by_distance(points), near=6, far=4, seed=1)
    assert {tuple(pair) for pair in other.ends.tolist()} != edges[2]
    again = build_graph(points, by_distance(points), near=6, far=4, seed=0)
    assert torch.equal(again.ends, every.ends)
    assert torch.equal(again.weight, every.weight)


def two_clusters() -> Tensor:
    with seeded(0):
        return torch.cat([torch.rand(50, 2), torch.rand(30, 2) + torch.tensor([10.0, 0])]).double()


def test_two_clusters_are_joined_by_the_cheapest_of_the_closest_pairs() -> None:
    points = two_clusters()
    steep = 1 + 20 * points[:, 1]  # the closest pair is not the cheapest

    def edge_cost(ends: Tensor) -> tuple[Tensor, Tensor]:
        apart, off = by_distance(points, 5.0)(ends)
        return apart * steep[ends].mean(1), off

    graph = build_graph(points, edge_cost, near=6)
    over = graph.ends[graph.bridge]
    nearest = torch.cdist(points[50:], points[:50]).argmin(1)
    pairs = torch.stack([nearest, torch.arange(50, 80)], 1)
    cost = edge_cost(pairs)[0]
    assert over.tolist() == [pairs[cost.argmin()].tolist()]
    closest = (points[pairs[:, 0]] - points[pairs[:, 1]]).norm(dim=-1).argmin()
    assert int(cost.argmin()) != int(closest)
    assert float(graph.weight[graph.bridge]) == pytest.approx(float(cost.min()), rel=1e-6)
    for left in (True, False):
        goal = (torch.arange(80) < 50) == left
        goal &= torch.arange(80) % 7 == 0
        shortest = graph.shortest_paths(goal)
        assert shortest.cost.isfinite().all()
        assert torch.equal(shortest.gap, (torch.arange(80) >= 50) == left), "a gap is crossed from the other side only"


def test_the_parts_of_a_graph_stay_apart_if_they_are_not_to_be_joined() -> None:
    points = two_clusters()
    shortest = build_graph(points, by_distance(points), near=6, far=0, join=False).shortest_paths(torch.arange(80) < 50)
    assert torch.equal(shortest.cost.isfinite(), torch.arange(80) < 50)


@given(st.integers(2, 9), st.integers(1, 12), st.integers(0, 1000))
@settings(max_examples=examples(25), deadline=None)
def test_any_number_of_islands_is_joined_by_as_few_bridges_as_it_takes(islands: int, size: int, seed: int) -> None:
    with seeded(seed):
        centers = 100 * torch.randn(islands, 3, dtype=torch.float64)
        points = (centers[:, None] + 0.01 * torch.rand(islands, size, 3, dtype=torch.float64)).flatten(0, 1)
    graph = build_graph(points, by_distance(points, 0.5), near=min(2, size - 1) if size > 1 else 1, far=2)
    whole = matrix(graph)
    assert connected_components(whole.isfinite().numpy())[0] == 1
    plain = Graph(graph.count, *(part[~graph.bridge] for part in (graph.ends, graph.weight, graph.bridge)))
    parts, _ = connected_components(matrix(plain).isfinite().numpy())
    assert int(graph.bridge.sum()) == parts - 1
    assert len(graph.ends.unique(dim=0)) == len(graph.ends)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("equal", [False, True])
def test_few_points_and_equal_ones_have_paths_too(count: int, equal: bool) -> None:
    points = torch.zeros(count, 2).double() if equal else torch.arange(2.0 * count).view(count, 2).double()
    graph = build_graph(points, by_distance(points))
    assert len(graph.ends) == count * (count - 1) // 2
    shortest = graph.shortest_paths(torch.arange(count) == 0)
    expected = (points - points[0]).norm(dim=-1)
    torch.testing.assert_close(shortest.cost, expected, rtol=1e-6, atol=1e-8)
    assert (shortest.follow(torch.arange(count))[:, -1] == 0).all()


def test_many_equal_points_are_joined_with_the_others() -> None:
    with seeded(0):
        points = torch.cat([torch.zeros(40, 2), torch.rand(40, 2) + 1]).double()
    shortest = build_graph(points, by_distance(points), near=4).shortest_paths(torch.arange(80) == 79)
    assert shortest.cost.isfinite().all()
    assert (shortest.cost[:40] >= (points[79]).norm() - 1e-6).all()
    paths = shortest.follow(torch.arange(80))
    assert (paths[:, -1] == 79).all(), "no path runs in circles, though steps between equal points cost nothing"


def test_with_sparser_samples_paths_need_not_run_along_an_island_to_its_bridge() -> None:
    """Two interleaved islands: a discrete feature splits points that are neighbours in everything else."""
    with seeded(0):
        along = torch.rand(1000, dtype=torch.float64)
    points = torch.stack([along, 0.1 * (torch.arange(1000) % 2).double()], 1)
    alone, sampled = (build_graph(points, by_distance(points), near=8, far=far) for far in (0, 4))
    assert int(alone.bridge.sum()) == 1
    assert not sampled.bridge.any()
    detours = []
    for graph in (alone, sampled):
        ratio = []
        for goal in range(1, 200, 20):
            there = (points - points[goal]).norm(dim=-1)
            other = points[:, 1] != points[goal, 1]
            ratio.append((graph.shortest_paths(torch.arange(1000) == goal).cost / there)[other])
        detours.append(torch.cat(ratio))
    assert (detours[1] > 1 - 1e-6).all()
    assert detours[0].mean() > 2 * detours[1].mean()
    assert detours[1].mean() < 1.25


def test_a_graph_moves_to_another_device_as_it_is() -> None:
    graph = random_graph(5, 1.0, 0)
    moved = graph.to(torch.device("cpu"))
    assert torch.equal(moved.ends, graph.ends)
    assert torch.equal(moved.weight, graph.weight)
    assert torch.equal(moved.bridge, graph.bridge)
