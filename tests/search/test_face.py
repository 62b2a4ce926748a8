import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from counterpath.data.constraints import Constraints
from counterpath.fitting.fitted import FittedModels
from counterpath.geometry.graph import Neighbours
from counterpath.search import face as chains_module
from counterpath.search.face import FaceGraph
from counterpath.search.feasible import FeasibleSet
from counterpath.search.objective import Target

TARGET = Target(1, confidence=0.6)


@pytest.fixture(scope="module")
def graph(models: FittedModels) -> FaceGraph:
    """A graph with few neighbours, so that chains have several links."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains_module, "NEIGHBOURS", 5)
        return FaceGraph.build(models.rows, models.probabilities, models.encoder.weights.to(models.rows))


@pytest.fixture(scope="module")
def feasible(models: FittedModels) -> FeasibleSet:
    return FeasibleSet.of(models.encoder, models.rows[~TARGET.is_reached(models.probabilities)][:60])


def _locked(models: FittedModels, feasible: FeasibleSet, *names: str) -> FeasibleSet:
    held = torch.zeros_like(feasible.fixed)
    held[:, models.encoder.columns(*names)] = True
    return feasible.fix(held)


def _place(graph: FaceGraph, x: Tensor) -> list[int]:
    """Which training rows these are."""
    distance, index = Neighbours(graph.rows).nearest(x)
    assert (distance == 0).all(), "every point is somebody's record"
    return index[:, 0].tolist()


def _check(graph: FaceGraph, feasible: FeasibleSet, row: Tensor, x: Tensor, exists: Tensor) -> None:
    edges = {tuple(pair) for pair in graph.graph.ends.tolist()}
    accepted = TARGET.is_reached(graph.probabilities)
    assert torch.equal(row, row.sort().values)
    for person in range(len(feasible)):
        points = x[row == person]
        assert torch.equal(points[0], feasible.factual[person])
        assert (len(points) > 1) == bool(exists[person])
        chain = _place(graph, points[1:])
        assert all(tuple(sorted(pair)) in edges for pair in itertools.pairwise(chain))
        assert len(set(chain)) == len(chain)
        assert (points.diff(dim=0) != 0).any(-1).all(), "every step changes something"
        assert ((points >= feasible.lower[person]) & (points <= feasible.upper[person])).all()
        assert not chain or bool(accepted[chain[-1]])
        assert not any(bool(accepted[place]) for place in chain[:-1]), "it ends at the first that is accepted"


def test_chains_go_from_neighbour_to_neighbour_to_an_accepted_row(graph: FaceGraph, feasible: FeasibleSet) -> None:
    row, x, exists, _ = graph.shortest_chains(feasible, TARGET)
    assert exists.all()
    assert torch.bincount(row).max() > 3
    _check(graph, feasible, row, x, exists)


def test_chains_are_the_shortest(graph: FaceGraph, feasible: FeasibleSet) -> None:
    row, x, _, _ = graph.shortest_chains(feasible, TARGET)
    ends = graph.graph.ends
    whole = torch.full((len(graph.rows),) * 2, math.inf, dtype=torch.float64)
    whole[ends[:, 0], ends[:, 1]] = whole[ends[:, 1], ends[:, 0]] = graph.graph.weight.double()
    cost = torch.where(TARGET.is_reached(graph.probabilities), 0.0, math.inf).double()
    for _ in range(len(cost)):  # Bellman and Ford
        better = torch.minimum(cost, (whole + cost).amin(1))
        if torch.equal(better, cost):
            break
        cost = better
    rows = Neighbours(graph.rows, graph.weights)
    for person in range(0, len(feasible), 7):
        steps = ((x[row == person].diff(dim=0)) * graph.weights).norm(dim=-1)
        apart, near = rows.nearest(feasible.factual[person : person + 1], chains_module.NEIGHBOURS)
        assert float(steps.sum()) == pytest.approx(float((apart + cost[near]).min()), rel=1e-4)


@pytest.mark.parametrize("names", [("sex",), ("city",), ("children", "member")])
def test_chains_keep_what_is_locked_and_exist_only_where_somebody_was_accepted(
    models: FittedModels, graph: FaceGraph, feasible: FeasibleSet, names: tuple[str, ...]
) -> None:
    locked = _locked(models, feasible, *names)
    row, x, exists, _ = graph.shortest_chains(locked, TARGET)
    _check(graph, locked, row, x, exists)
    accepted = graph.rows[TARGET.is_reached(graph.probabilities)]
    inside = ((accepted >= locked.lower[:, None]) & (accepted <= locked.upper[:, None])).all(-1).any(1)
    assert not exists[~inside].any()
    assert exists.any()
    for person in inside.nonzero()[:, 0].tolist():
        allowed = ((graph.rows >= locked.lower[person]) & (graph.rows <= locked.upper[person])).all(-1)
        cost = graph.graph.shortest_paths(TARGET.is_reached(graph.probabilities), allowed).cost[allowed]
        near = Neighbours(graph.rows[allowed], graph.weights).nearest(
            locked.factual[person : person + 1], chains_module.NEIGHBOURS
        )[1]
        assert bool(exists[person]) == bool(cost[near].isfinite().any()), "it begins at one of the nearest rows"


def test_nobody_is_like_people_who_lock_everything_but_little(
    models: FittedModels, graph: FaceGraph, feasible: FeasibleSet
) -> None:
    locked = _locked(models, feasible, "score", "debt", "city")
    row, x, exists, _ = graph.shortest_chains(locked, TARGET)
    assert not exists.any()
    assert torch.equal(x, feasible.factual)
    assert row.tolist() == list(range(len(feasible)))


def test_without_an_accepted_row_there_are_no_chains(graph: FaceGraph, feasible: FeasibleSet) -> None:
    nobody = replace(graph, probabilities=torch.zeros_like(graph.probabilities))
    row, x, exists, _ = nobody.shortest_chains(feasible, TARGET)
    assert not exists.any()
    assert torch.equal(x, feasible.factual)
    assert len(row) == len(feasible)


def test_ranges_hold_at_every_point(models: FittedModels, graph: FaceGraph, feasible: FeasibleSet) -> None:
    wishes = Constraints.of(models.encoder.schema, directions={"children": "up"}, ranges={"score": (None, 12)})
    frame = models.encoder.decode(feasible.factual)
    inside = torch.tensor((frame["score"] <= 12).to_numpy())
    factual = feasible.factual[inside]
    bounded = FeasibleSet.of(models.encoder, factual, wishes.bounds(models.encoder, frame[inside.numpy()], factual))
    row, x, exists, _ = graph.shortest_chains(bounded, TARGET)
    assert exists.any()
    _check(graph, bounded, row, x, exists)


def test_chains_do_not_depend_on_who_else_is_asked_about(
    models: FittedModels, graph: FaceGraph, feasible: FeasibleSet
) -> None:
    for whole in (feasible, _locked(models, feasible, "sex")):
        row, x, exists, _ = graph.shortest_chains(whole, TARGET)
        order = torch.tensor([41, 3, 17, 0])
        again = graph.shortest_chains(whole.at(order), TARGET)
        assert torch.equal(again[2], exists[order])
        for place, person in enumerate(order.tolist()):
            assert torch.equal(again[1][again[0] == place], x[row == person])


def test_who_comes_too_late_stays(models: FittedModels, graph: FaceGraph, feasible: FeasibleSet) -> None:
    row, x, exists, late = graph.shortest_chains(feasible, TARGET, should_stop=lambda: True)
    assert late.all()
    assert not exists.any()
    assert torch.equal(x, feasible.factual)
    assert row.tolist() == list(range(len(feasible)))
    assert not graph.shortest_chains(_locked(models, feasible, "sex"), TARGET)[3].any()
