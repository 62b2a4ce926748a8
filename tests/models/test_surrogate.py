import pytest
import torch
from torch import Tensor

from counterpath.models import surrogate
from counterpath.models.surrogate import Lesson, agreement, answers, fit_surrogate, mistakes
from counterpath.models.training import Run


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surrogate, "STEPS", 400)


@pytest.fixture
def rows() -> Tensor:
    return torch.rand(400, 3, generator=torch.Generator().manual_seed(0))


def two(x: Tensor) -> Tensor:
    p = torch.sigmoid(6 * (x[:, 0] - x[:, 1]))
    return torch.stack([1 - p, p], 1)


def three(x: Tensor) -> Tensor:
    return (8 * x).softmax(-1)


@pytest.mark.parametrize("model", [two, three])
def test_a_surrogate_learns_probabilities(model: object, rows: Tensor) -> None:
    assert callable(model)
    lesson = Lesson(rows, model(rows).double())
    learned = fit_surrogate(lesson, run=Run())
    given = answers(learned, rows)
    assert given.shape == lesson.answer.shape
    torch.testing.assert_close(given.sum(-1), torch.ones(400))
    assert (given - model(rows)).abs().mean() < 0.08
    assert agreement(learned, lesson) > 0.9


def test_mistakes_are_the_rows_that_are_far_off_or_decided_otherwise(rows: Tensor) -> None:
    learned = fit_surrogate(Lesson(rows, two(rows)), run=Run())
    given = answers(learned, rows)
    turned = given.clone()
    turned[:5] = given[:5].flip(-1)
    found = mistakes(learned, Lesson(rows, turned))
    wrong = (given[:5].argmax(-1) != turned[:5].argmax(-1)) | ((given[:5] - turned[:5]).abs().amax(-1) > 0.1)
    assert len(found.x) == 4 * int(wrong.sum()) > 0
    assert {tuple(row) for row in found.x.tolist()} <= {tuple(row) for row in rows[:5].tolist()}
    assert len(mistakes(learned, Lesson(rows, given)).x) == 0


def test_agreement_is_a_share_and_of_nothing_it_is_whole(rows: Tensor) -> None:
    learned = fit_surrogate(Lesson(rows, two(rows)), run=Run())
    given = answers(learned, rows)
    half = torch.cat([given[:200], given[200:].flip(-1)])
    assert agreement(learned, Lesson(rows, half)) == 0.5
    assert agreement(learned, Lesson(rows[:0], given[:0])) == 1.0


def test_lessons_add_up(rows: Tensor) -> None:
    both = Lesson(rows[:3], two(rows[:3])) + Lesson(rows[3:5], two(rows[3:5]))
    assert torch.equal(both.x, rows[:5])
    assert torch.equal(both.answer, two(rows[:5]))
