import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from counterpath.fitting.fitted import FittedModels
from counterpath.search import problem
from counterpath.search.feasible import FeasibleSet
from counterpath.search.method import METHODS
from counterpath.search.objective import Target
from counterpath.search.paths import Paths
from counterpath.search.problem import SearchOptions
from counterpath.search.traverse import StopReason, Trajectory, traverse

TARGET = Target(1, confidence=0.6)
FIELDS = ("row", "x", "z", "sigma", "probability", "reason", "led")


@pytest.fixture(scope="module")
def rows(learned: FittedModels) -> Tensor:
    """Rows that the model denies what is wanted."""
    return learned.rows[~TARGET.met(learned.probabilities)][:60]


def _pursue(
    learned: FittedModels, rows: Tensor, wanted: Target = TARGET, method: str = "rsgd", **options: object
) -> Paths:
    walk = SearchOptions(**{"max_steps": 40, "fallback": False, **options})  # type: ignore[arg-type]
    return learned.quest(walk).pursue(METHODS[method](learned.parts), FeasibleSet.of(learned.encoder, rows), wanted)


def _points(paths: Paths, row: int) -> Tensor:
    return paths.x[paths.row == row]


def test_paths_begin_at_the_row_and_end_where_the_model_says_yes(learned: FittedModels, rows: Tensor) -> None:
    paths = _pursue(learned, rows)
    assert torch.equal(paths.row, paths.row.sort().values)
    first = torch.cat([torch.tensor([0]), paths.last[:-1] + 1])
    assert torch.equal(paths.x[first], rows)
    assert torch.equal(learned.encoder.round(paths.x), paths.x)
    answers = learned.explained.predict_proba(paths.x)
    torch.testing.assert_close(paths.probability, TARGET.probability(answers))
    reached = paths.reason == StopReason.CONFIDENCE_REACHED
    assert 5 < reached.sum() < len(rows)
    met = TARGET.met(answers)
    assert torch.equal(met[paths.last], reached)
    assert not met[~torch.isin(torch.arange(len(met)), paths.last)].any(), "it stops at the first such point"


def test_a_row_that_does_not_get_there_ends_at_its_best_point(learned: FittedModels, rows: Tensor) -> None:
    paths = _pursue(learned, rows, replace(TARGET, confidence=0.999))
    assert (paths.reason == StopReason.ALL_STEPS_TAKEN).sum() > 10
    lengths = torch.bincount(paths.row)
    assert len(lengths.unique()) > 3, "cut at different points"
    for row in range(len(rows)):
        probability = paths.probability[paths.row == row]
        assert probability[-1] == probability.max()
        assert (probability[:-1] < probability[-1]).all(), "the first of the best"


def test_rows_that_get_stuck_are_led_to_a_landmark_and_marked(learned: FittedModels, rows: Tensor) -> None:
    alone, led = (_pursue(learned, rows, fallback=home) for home in (False, True))
    assert not alone.led.any()
    assert led.found.all()
    assert torch.equal(led.led, ~alone.found)
    for row in range(len(rows)):
        if alone.found[row]:
            assert torch.equal(_points(alone, row), _points(led, row)), "what was found stays as it is"


def test_the_way_to_a_landmark_is_a_straight_line_in_steps_of_the_search(learned: FittedModels, rows: Tensor) -> None:
    paths = _pursue(learned, rows, max_steps=0, fallback=True, step_size=0.1)
    row = int(torch.bincount(paths.row).argmax())
    steps = paths.z[paths.row == row].diff(dim=0).double()
    assert len(steps) > 3
    assert (steps.norm(dim=-1) <= 0.1 + 1e-6).all()
    torch.testing.assert_close(steps, steps[:1].expand_as(steps), rtol=1e-3, atol=1e-5)
    again = _pursue(learned, rows[row : row + 1], max_steps=0, fallback=True, step_size=0.1)
    assert torch.equal(again.x, _points(paths, row)), "whoever else is asked about"


def test_where_nobody_has_what_is_wanted_the_way_to_the_next_best_counts_if_it_leads_further(
    learned: FittedModels, rows: Tensor
) -> None:
    hopeless = replace(TARGET, confidence=0.9999999)
    alone, led = (_pursue(learned, rows, hopeless, fallback=home) for home in (False, True))
    assert not led.found.any()
    assert (led.probability[led.last] >= alone.probability[alone.last]).all()
    assert torch.equal(led.led, led.probability[led.last] > alone.probability[alone.last])


def test_methods_outside_the_latent_space_are_not_led(learned: FittedModels, rows: Tensor) -> None:
    assert not _pursue(learned, rows, method="wachter", max_steps=1, fallback=True).led.any()


def test_a_surrogate_is_followed_further_than_the_model_and_the_first_accepted_point_counts(
    learned: FittedModels, rows: Tensor
) -> None:
    exact = learned.quest(SearchOptions(max_steps=40, fallback=False, keep_residual=False))
    asked = replace(exact, exact=False)
    method = METHODS["rsgd"](learned.parts)
    one, other = (quest.pursue(method, FeasibleSet.of(learned.encoder, rows), TARGET) for quest in (exact, asked))
    for name in FIELDS:
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    wrong = replace(asked, answers=lambda x: learned.explained.predict_proba(x).flip(-1))
    paths = wrong.pursue(method, FeasibleSet.of(learned.encoder, rows), TARGET)
    assert torch.equal(TARGET.met(wrong.answers(paths.x))[paths.last], paths.found), "the model has the last word"


def test_what_was_reached_is_kept_when_a_later_search_finds_no_time(
    learned: FittedModels, rows: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    hard = replace(TARGET, confidence=0.9)
    quest = replace(learned.quest(SearchOptions(max_steps=40, fallback=False)), exact=False)
    method, searches = METHODS["rsgd"](learned.parts), itertools.count()
    whole = quest.pursue(method, FeasibleSet.of(learned.encoder, rows), hard)

    def until_time_is_up(*args: Any, **options: Any) -> Trajectory:
        return traverse(*args, **{**options, "over": options["over"] if next(searches) == 0 else lambda: True})

    monkeypatch.setattr(problem, "traverse", until_time_is_up)
    cut = quest.pursue(method, FeasibleSet.of(learned.encoder, rows), hard)
    assert next(searches) == 2, "the second search found no time"
    open_ = cut.reason == StopReason.OUT_OF_TIME
    assert open_.any()
    assert (
        cut.probability[cut.last][open_] > cut.probability[cut.row.diff(prepend=torch.tensor([-1])) > 0][open_]
    ).any()
    assert torch.equal(cut.found & whole.found, cut.found)


@pytest.mark.parametrize("method", ["rsgd", "wachter"])
def test_many_rows_are_searched_in_parts_with_the_same_result(
    learned: FittedModels, rows: Tensor, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _pursue(learned, rows, method=method)
    monkeypatch.setattr(problem, "AT_ONCE", 17)
    parts = _pursue(learned, rows, method=method)
    for name in FIELDS:
        assert torch.equal(getattr(whole, name), getattr(parts, name)), name


def test_the_line_to_the_nearest_accepted_row_is_legal(learned: FittedModels, rows: Tensor) -> None:
    paths = learned.quest(SearchOptions()).line(
        FeasibleSet.of(learned.encoder, rows), learned.rows, learned.probabilities, TARGET
    )
    assert torch.equal(learned.encoder.round(paths.x), paths.x)
    assert torch.bincount(paths.row).tolist() == [11] * len(rows)
    ends = paths.x[paths.last]
    accepted = learned.rows[TARGET.met(learned.probabilities)]
    weights = learned.encoder.weights
    distance = torch.cdist(rows * weights, accepted * weights)
    torch.testing.assert_close(((ends - rows) * weights).norm(dim=-1), distance.amin(1), rtol=1e-4, atol=1e-4)
    assert TARGET.met(learned.explained.predict_proba(ends)).all()
    assert torch.equal(paths.x[paths.last - 10], rows)


def test_without_an_accepted_row_the_line_is_a_point(learned: FittedModels, rows: Tensor) -> None:
    nobody = replace(TARGET, confidence=0.9999999)
    paths = learned.quest(SearchOptions()).line(
        FeasibleSet.of(learned.encoder, rows), learned.rows, learned.probabilities, nobody
    )
    assert torch.equal(paths.x, rows)
    assert (paths.reason == StopReason.NO_WAY_DOWN).all()


def test_who_has_what_is_wanted_stays(learned: FittedModels, rows: Tensor) -> None:
    paths = learned.quest(SearchOptions()).stay(FeasibleSet.of(learned.encoder, rows), TARGET)
    assert torch.equal(paths.x, rows)
    assert torch.equal(paths.last, torch.arange(len(rows)))


def test_when_time_is_up_rows_stay_where_they_are(learned: FittedModels, rows: Tensor) -> None:
    paths = _pursue(learned, rows, over=lambda: True)
    assert (paths.reason == StopReason.OUT_OF_TIME).all()
    assert torch.equal(paths.x, rows)
    assert paths.probability.isfinite().all()
