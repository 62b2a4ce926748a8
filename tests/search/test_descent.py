import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from counterpath.fitting.fitted import FittedModels
from counterpath.search import descent, methods
from counterpath.search.feasible import FeasibleSet
from counterpath.search.method import Problem, SearchOptions
from counterpath.search.methods import METHODS, search
from counterpath.search.objective import Target
from counterpath.search.paths import Paths
from counterpath.search.traverse import StopReason, Trajectory, traverse

TARGET = Target(1, confidence=0.6)
FIELDS = ("row", "x", "z", "sigma", "probability", "reason", "fallback")


@pytest.fixture(scope="module")
def rows(models: FittedModels) -> Tensor:
    """Rows that do not reach the target."""
    return models.rows[~TARGET.is_reached(models.probabilities)][:60]


def _problem(
    models: FittedModels, rows: Tensor, target: Target = TARGET, method: str = "rsgd", **options: Any
) -> Problem:
    given = SearchOptions(**{"max_steps": 40, "fallback": False, **options})
    return models.problem(METHODS[method], FeasibleSet.of(models.encoder, rows), target, given)


def _search(models: FittedModels, rows: Tensor, target: Target = TARGET, method: str = "rsgd", **options: Any) -> Paths:
    return search(METHODS[method], _problem(models, rows, target, method, **options))


def _with(problem: Problem, **changes: Any) -> Problem:
    return replace(problem, setup=replace(problem.setup, **changes))


def _points(paths: Paths, row: int) -> Tensor:
    return paths.x[paths.row == row]


def test_paths_begin_at_the_row_and_end_where_the_model_says_yes(models: FittedModels, rows: Tensor) -> None:
    paths = _search(models, rows)
    assert torch.equal(paths.row, paths.row.sort().values)
    first = torch.cat([torch.tensor([0]), paths.last[:-1] + 1])
    assert torch.equal(paths.x[first], rows)
    assert torch.equal(FeasibleSet.of(models.encoder, rows).legal(paths.x, paths.row), paths.x)
    answers = models.explained.predict_proba(paths.x)
    torch.testing.assert_close(paths.probability, TARGET.probability(answers))
    reached = paths.reason == StopReason.CONFIDENCE_REACHED
    assert 5 < reached.sum() < len(rows)
    met = TARGET.is_reached(answers) & models.combinations.allowed(paths.x, rows[paths.row])
    assert torch.equal(met[paths.last], reached)
    assert not met[~torch.isin(torch.arange(len(met)), paths.last)].any(), "it stops at the first such point"


def test_a_row_that_does_not_get_there_ends_at_its_best_point(models: FittedModels, rows: Tensor) -> None:
    paths = _search(models, rows, replace(TARGET, confidence=0.999))
    assert (paths.reason == StopReason.ALL_STEPS_TAKEN).sum() > 10
    lengths = torch.bincount(paths.row)
    assert len(lengths.unique()) > 3, "cut at different points"
    for row in range(len(rows)):
        probability = paths.probability[paths.row == row]
        assert probability[-1] == probability.max()
        assert (probability[:-1] < probability[-1]).all(), "the first of the best"


def test_rows_that_get_stuck_fall_back_to_a_landmark_and_are_marked(models: FittedModels, rows: Tensor) -> None:
    alone, line = (_search(models, rows, fallback=fallback) for fallback in (False, True))
    assert not alone.fallback.any()
    assert line.found.all()
    assert torch.equal(line.fallback, ~alone.found)
    for row in range(len(rows)):
        if alone.found[row]:
            assert torch.equal(_points(alone, row), _points(line, row)), "what was found stays as it is"


def test_the_path_to_a_landmark_is_a_straight_line_in_steps_of_the_search(models: FittedModels, rows: Tensor) -> None:
    paths = _search(models, rows, max_steps=0, fallback=True, step_size=0.1)
    row = int(torch.bincount(paths.row).argmax())
    steps = paths.z[paths.row == row].diff(dim=0).double()
    assert len(steps) > 3
    assert (steps.norm(dim=-1) <= 0.1 + 1e-6).all()
    torch.testing.assert_close(steps, steps[:1].expand_as(steps), rtol=1e-3, atol=1e-5)
    again = _search(models, rows[row : row + 1], max_steps=0, fallback=True, step_size=0.1)
    assert torch.equal(again.x, _points(paths, row)), "whatever other rows there are"


def test_where_no_landmark_reaches_the_target_the_next_best_counts_if_it_comes_closer(
    models: FittedModels, rows: Tensor
) -> None:
    hopeless = replace(TARGET, confidence=0.9999999)
    alone, line = (_search(models, rows, hopeless, fallback=fallback) for fallback in (False, True))
    assert not line.found.any()
    assert (line.probability[line.last] >= alone.probability[alone.last]).all()
    assert torch.equal(line.fallback, line.probability[line.last] > alone.probability[alone.last])


def test_methods_outside_the_latent_space_have_no_fallback(models: FittedModels, rows: Tensor) -> None:
    assert not _search(models, rows, method="wachter", max_steps=1, fallback=True).fallback.any()


@pytest.mark.whole
def test_a_surrogate_is_followed_further_than_the_model_and_the_first_valid_point_counts(
    models: FittedModels, rows: Tensor
) -> None:
    exact = _problem(models, rows, keep_residual=False)
    surrogate = _with(exact, exact=False)
    one, other = (search(METHODS["rsgd"], problem) for problem in (exact, surrogate))
    for name in FIELDS:
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    wrong = _with(surrogate, predict_proba=lambda x: models.explained.predict_proba(x).flip(-1))
    paths = search(METHODS["rsgd"], wrong)
    valid = TARGET.is_reached(wrong.setup.predict_proba(paths.x))
    assert torch.equal(valid[paths.last], paths.found), "the model has the last word"


def test_what_was_reached_is_kept_when_a_later_search_finds_no_time(
    models: FittedModels, rows: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, searches = _with(_problem(models, rows, replace(TARGET, confidence=0.9)), exact=False), itertools.count()
    whole = search(METHODS["rsgd"], problem)

    def until_time_is_up(*args: Any, **options: Any) -> Trajectory:
        stop = options["should_stop"] if next(searches) == 0 else lambda: True
        return traverse(*args, **{**options, "should_stop": stop})

    monkeypatch.setattr(descent, "traverse", until_time_is_up)
    cut = search(METHODS["rsgd"], problem)
    assert next(searches) == 2, "the second search found no time"
    open_ = cut.reason == StopReason.OUT_OF_TIME
    assert open_.any()
    assert (
        cut.probability[cut.last][open_] > cut.probability[cut.row.diff(prepend=torch.tensor([-1])) > 0][open_]
    ).any()
    assert torch.equal(cut.found & whole.found, cut.found)


@pytest.mark.whole
@pytest.mark.parametrize("method", ["rsgd", "wachter"])
def test_many_rows_are_searched_in_parts_with_the_same_result(
    models: FittedModels, rows: Tensor, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _search(models, rows, method=method)
    monkeypatch.setitem(methods.ROWS_AT_ONCE, "cpu", 17)
    parts = _search(models, rows, method=method)
    for name in FIELDS:
        assert torch.equal(getattr(whole, name), getattr(parts, name)), name


def test_when_time_is_up_rows_stay_where_they_are(models: FittedModels, rows: Tensor) -> None:
    paths = _search(models, rows, should_stop=lambda: True)
    assert (paths.reason == StopReason.OUT_OF_TIME).all()
    assert torch.equal(paths.x, rows)
    assert paths.probability.isfinite().all()
