import itertools
import math

import pytest
import torch
from torch import Tensor

from counterpath.data.constraints import Constraints
from counterpath.fitting.fitted import FittedModels
from counterpath.geometry.neighbours import Neighbours
from counterpath.search import face as chains_module
from counterpath.search.face import FaceGraph
from counterpath.search.feasible import FeasibleSet
from counterpath.search.objective import Target

TARGET = Target(1, confidence=0.6)


@pytest.fixture(scope="module")
def chains(learned: FittedModels) -> FaceGraph:
    """FaceGraph with few neighbours, so that they have several links."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains_module, "NEIGHBOURS", 5)
        return FaceGraph.of(learned.rows, learned.probabilities, learned.encoder.weights.to(learned.rows))


@pytest.fixture(scope="module")
def scope(learned: FittedModels) -> FeasibleSet:
    return FeasibleSet.of(learned.encoder, learned.rows[~TARGET.met(learned.probabilities)][:60])


def _locked(learned: FittedModels, scope: FeasibleSet, *names: str) -> FeasibleSet:
    held = torch.zeros_like(scope.told)
    held[:, learned.encoder.columns(*names)] = True
    return scope.holding(held)


def _place(chains: FaceGraph, x: Tensor) -> list[int]:
    """Which training rows these are."""
    distance, index = Neighbours(chains.rows).nearest(x)
    assert (distance == 0).all(), "every point is somebody's record"
    return index[:, 0].tolist()


def _check(chains: FaceGraph, scope: FeasibleSet, row: Tensor, x: Tensor, exists: Tensor) -> None:
    edges = {tuple(pair) for pair in chains.graph.ends.tolist()}
    accepted = TARGET.met(chains.answers)
    assert torch.equal(row, row.sort().values)
    for person in range(len(scope)):
        points = x[row == person]
        assert torch.equal(points[0], scope.factual[person])
        assert (len(points) > 1) == bool(exists[person])
        chain = _place(chains, points[1:])
        assert all(tuple(sorted(pair)) in edges for pair in itertools.pairwise(chain))
        assert len(set(chain)) == len(chain)
        assert (points.diff(dim=0) != 0).any(-1).all(), "every step changes something"
        assert ((points >= scope.lower[person]) & (points <= scope.upper[person])).all()
        assert not chain or bool(accepted[chain[-1]])
        assert not any(bool(accepted[place]) for place in chain[:-1]), "it ends at the first that is accepted"


def test_chains_go_from_neighbour_to_neighbour_to_an_accepted_row(chains: FaceGraph, scope: FeasibleSet) -> None:
    row, x, exists, _ = chains.follow(scope, TARGET)
    assert exists.all()
    assert torch.bincount(row).max() > 3
    _check(chains, scope, row, x, exists)


def test_chains_are_the_shortest(chains: FaceGraph, scope: FeasibleSet) -> None:
    row, x, _, _ = chains.follow(scope, TARGET)
    ends = chains.graph.ends
    whole = torch.full((len(chains.rows),) * 2, math.inf, dtype=torch.float64)
    whole[ends[:, 0], ends[:, 1]] = whole[ends[:, 1], ends[:, 0]] = chains.graph.weight.double()
    cost = torch.where(TARGET.met(chains.answers), 0.0, math.inf).double()
    for _ in range(len(cost)):  # Bellman and Ford
        better = torch.minimum(cost, (whole + cost).amin(1))
        if torch.equal(better, cost):
            break
        cost = better
    rows = Neighbours(chains.rows, chains.weights)
    for person in range(0, len(scope), 7):
        steps = ((x[row == person].diff(dim=0)) * chains.weights).norm(dim=-1)
        apart, near = rows.nearest(scope.factual[person : person + 1], chains_module.NEIGHBOURS)
        assert float(steps.sum()) == pytest.approx(float((apart + cost[near]).min()), rel=1e-4)


@pytest.mark.parametrize("names", [("sex",), ("city",), ("children", "member")])
def test_chains_keep_what_is_locked_and_exist_only_where_somebody_was_accepted(
    learned: FittedModels, chains: FaceGraph, scope: FeasibleSet, names: tuple[str, ...]
) -> None:
    locked = _locked(learned, scope, *names)
    row, x, exists, _ = chains.follow(locked, TARGET)
    _check(chains, locked, row, x, exists)
    accepted = chains.rows[TARGET.met(chains.answers)]
    inside = ((accepted >= locked.lower[:, None]) & (accepted <= locked.upper[:, None])).all(-1).any(1)
    assert not exists[~inside].any()
    assert exists.any()
    for person in inside.nonzero()[:, 0].tolist():
        allowed = ((chains.rows >= locked.lower[person]) & (chains.rows <= locked.upper[person])).all(-1)
        cost = chains.graph.shortest_paths(TARGET.met(chains.answers), allowed).cost[allowed]
        near = Neighbours(chains.rows[allowed], chains.weights).nearest(
            locked.factual[person : person + 1], chains_module.NEIGHBOURS
        )[1]
        assert bool(exists[person]) == bool(cost[near].isfinite().any()), "it begins at one of the nearest rows"


def test_nobody_is_like_people_who_lock_everything_but_little(
    learned: FittedModels, chains: FaceGraph, scope: FeasibleSet
) -> None:
    locked = _locked(learned, scope, "score", "debt", "city")
    row, x, exists, _ = chains.follow(locked, TARGET)
    assert not exists.any()
    assert torch.equal(x, scope.factual)
    assert row.tolist() == list(range(len(scope)))


def test_without_an_accepted_row_there_are_no_chains(chains: FaceGraph, scope: FeasibleSet) -> None:
    row, x, exists, _ = chains.follow(scope, Target(1, confidence=0.9999999))
    assert not exists.any()
    assert torch.equal(x, scope.factual)
    assert len(row) == len(scope)


def test_ranges_hold_at_every_point(learned: FittedModels, chains: FaceGraph, scope: FeasibleSet) -> None:
    wishes = Constraints.of(learned.encoder.schema, directions={"children": "up"}, ranges={"score": (None, 12)})
    frame = learned.encoder.decode(scope.factual)
    inside = torch.tensor((frame["score"] <= 12).to_numpy())
    factual = scope.factual[inside]
    bounded = FeasibleSet.of(learned.encoder, factual, wishes.bounds(learned.encoder, frame[inside.numpy()], factual))
    row, x, exists, _ = chains.follow(bounded, TARGET)
    assert exists.any()
    _check(chains, bounded, row, x, exists)


def test_chains_do_not_depend_on_who_else_is_asked_about(
    learned: FittedModels, chains: FaceGraph, scope: FeasibleSet
) -> None:
    for whole in (scope, _locked(learned, scope, "sex")):
        row, x, exists, _ = chains.follow(whole, TARGET)
        order = torch.tensor([41, 3, 17, 0])
        again = chains.follow(whole.at(order), TARGET)
        assert torch.equal(again[2], exists[order])
        for place, person in enumerate(order.tolist()):
            assert torch.equal(again[1][again[0] == place], x[row == person])


def test_who_comes_too_late_stays(learned: FittedModels, chains: FaceGraph, scope: FeasibleSet) -> None:
    row, x, exists, late = chains.follow(scope, TARGET, over=lambda: True)
    assert late.all()
    assert not exists.any()
    assert torch.equal(x, scope.factual)
    assert row.tolist() == list(range(len(scope)))
    assert not chains.follow(_locked(learned, scope, "sex"), TARGET)[3].any()
