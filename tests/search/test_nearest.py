from dataclasses import replace

import pytest
import torch
from torch import Tensor

from counterpath.fitting.fitted import FittedModels
from counterpath.search import nearest
from counterpath.search.feasible import FeasibleSet
from counterpath.search.method import SearchOptions
from counterpath.search.methods import METHODS, search
from counterpath.search.nearest import nearest_accepted, nearest_within, straight_path
from counterpath.search.objective import Target
from counterpath.search.paths import Paths
from counterpath.search.traverse import StopReason


def test_the_nearest_accepted_row_is_accepted_and_nearest() -> None:
    train = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    accepted = torch.tensor([True, False, False, True])
    found, exists = nearest_accepted(torch.tensor([[1.1], [1.6], [9.0]]), train, accepted)
    assert found[:, 0].tolist() == [0.0, 3.0, 3.0]
    assert exists.all()


def test_with_columns_that_must_agree_some_have_no_row() -> None:
    train = torch.tensor([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0]])
    factual = torch.tensor([[1.9, 1.0], [0.0, 0.0], [0.0, 7.0]])
    found, exists = nearest_accepted(factual, train, torch.tensor([True, True, True]), same=[1])
    assert exists.tolist() == [True, True, False]
    assert found.tolist() == [[1.0, 1.0], [2.0, 0.0], [0.0, 7.0]]


def test_weights_decide_which_row_is_nearest() -> None:
    train = torch.tensor([[1.0, 0.0, 5.0], [0.0, 2.0, 5.0]])
    factual, accepted = torch.tensor([[0.0, 0.0, 5.0]]), torch.tensor([True, True])
    for same in (None, [2]):
        assert nearest_accepted(factual, train, accepted, same)[0].tolist() == [[1.0, 0.0, 5.0]]
        found = nearest_accepted(factual, train, accepted, same, weights=torch.tensor([1.0, 0.1, 1.0]))[0]
        assert found.tolist() == [[0.0, 2.0, 5.0]]


def test_a_straight_path_has_its_ends() -> None:
    start, end = torch.rand(2, 5, 3).unbind()
    path = straight_path(start, end, 10)
    assert path.shape == (11, 5, 3)
    torch.testing.assert_close(path[0], start)
    torch.testing.assert_close(path[-1], end)
    torch.testing.assert_close(path[5], (start + end) / 2)


def _one_by_one(factual: Tensor, candidates: Tensor, lower: Tensor, upper: Tensor, weights: Tensor) -> list[int]:
    """For each factual the place of the nearest candidate within bounds, of several the first; −1 for none."""
    found = []
    for row, low, high in zip(factual, lower, upper, strict=True):
        inside = ((candidates >= low) & (candidates <= high)).all(-1).nonzero()[:, 0]
        distance = ((candidates - row) * weights).square().sum(-1)[inside]
        found.append(int(inside[distance.argmin()]) if len(inside) else -1)
    return found


@pytest.mark.parametrize("at_once", [1, 1000, 1 << 24])
def test_the_nearest_row_within_bounds_is_the_first_of_the_nearest(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(nearest._DIFFERENCES, "cpu", at_once)
    random = torch.Generator().manual_seed(0)
    # On a coarse grid many candidates are equally far, exactly.
    candidates, factual = (torch.randint(5, (n, 4), generator=random) / 4 for n in (80, 60))
    weights = torch.tensor([1.0, 0.5, 1.0, 2.0])
    lower, upper = torch.full_like(factual, -torch.inf), torch.full_like(factual, torch.inf)
    lower[:, 0] = upper[:, 0] = factual[:, 0]
    upper[::3, 2] = factual[::3, 2]
    lower[7] = 9.0
    found, exists = nearest_within(factual, candidates, lower, upper, weights)
    plain = _one_by_one(factual, candidates, lower, upper, weights)
    assert exists.tolist() == [place >= 0 for place in plain]
    assert not exists[7]
    ends = [row if place < 0 else candidates[place] for row, place in zip(factual, plain, strict=True)]
    assert torch.equal(found, torch.stack(ends))


def test_without_factuals_or_candidates_nothing_is_found() -> None:
    rows, none = torch.rand(3, 2), torch.zeros(0, 2)
    found, exists = nearest_within(rows, none, rows, rows)
    assert torch.equal(found, rows)
    assert not exists.any()
    assert nearest_within(none, rows, none, none)[0].shape == (0, 2)


TARGET = Target(1, confidence=0.6)


@pytest.fixture(scope="module")
def rows(models: FittedModels) -> Tensor:
    """Rows that do not reach the target."""
    return models.rows[~TARGET.is_reached(models.probabilities)][:60]


def _nearest(models: FittedModels, rows: Tensor, target: Target) -> Paths:
    method = METHODS["nearest"]
    return search(method, models.problem(method, FeasibleSet.of(models.encoder, rows), target, SearchOptions()))


def test_the_line_to_the_nearest_accepted_row_is_legal(models: FittedModels, rows: Tensor) -> None:
    paths = _nearest(models, rows, TARGET)
    legal = (FeasibleSet.of(models.encoder, rows).legal(paths.x, paths.row) == paths.x).all(-1)
    assert (legal | torch.isin(torch.arange(len(legal)), paths.last)).all(), "the end is somebody, whatever they have"
    assert models.plausibility.is_copy(paths.x[paths.last]).all()
    assert torch.bincount(paths.row).tolist() == [11] * len(rows)
    ends = paths.x[paths.last]
    accepted = models.rows[TARGET.is_reached(models.probabilities)]
    weights = models.encoder.weights
    distance = torch.cdist(rows * weights, accepted * weights)
    torch.testing.assert_close(((ends - rows) * weights).norm(dim=-1), distance.amin(1), rtol=1e-4, atol=1e-4)
    assert TARGET.is_reached(models.explained.predict_proba(ends)).all()
    assert torch.equal(paths.x[paths.last - 10], rows)


def test_without_an_accepted_row_the_line_is_a_point(models: FittedModels, rows: Tensor) -> None:
    nobody = replace(models, probabilities=torch.zeros_like(models.probabilities))
    paths = _nearest(nobody, rows, TARGET)
    assert torch.equal(paths.x, rows)
    assert (paths.reason == StopReason.NO_WAY_DOWN).all()
