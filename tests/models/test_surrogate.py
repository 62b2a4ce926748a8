import pytest
import torch
from torch import Tensor

from counterpath.models import surrogate
from counterpath.models.classifier import blockwise_proba
from counterpath.models.surrogate import SurrogateData, agreement, disagreements, fit_surrogate
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
    data = SurrogateData(rows, model(rows).double())
    models = fit_surrogate(data, run=Run())
    predicted = blockwise_proba(models)(rows)
    assert predicted.shape == data.probabilities.shape
    torch.testing.assert_close(predicted.sum(-1), torch.ones(400))
    assert (predicted - model(rows)).abs().mean() < 0.08
    assert agreement(models, data) > 0.9


def test_disagreements_are_rows_that_are_far_off_or_predicted_otherwise(rows: Tensor) -> None:
    models = fit_surrogate(SurrogateData(rows, two(rows)), run=Run())
    predicted = blockwise_proba(models)(rows)
    turned = predicted.clone()
    turned[:5] = predicted[:5].flip(-1)
    found = disagreements(models, SurrogateData(rows, turned))
    wrong = (predicted[:5].argmax(-1) != turned[:5].argmax(-1)) | ((predicted[:5] - turned[:5]).abs().amax(-1) > 0.1)
    assert len(found.x) == 4 * int(wrong.sum()) > 0
    assert {tuple(row) for row in found.x.tolist()} <= {tuple(row) for row in rows[:5].tolist()}
    assert len(disagreements(models, SurrogateData(rows, predicted)).x) == 0


def test_agreement_is_a_share_and_of_nothing_it_is_whole(rows: Tensor) -> None:
    models = fit_surrogate(SurrogateData(rows, two(rows)), run=Run())
    predicted = blockwise_proba(models)(rows)
    half = torch.cat([predicted[:200], predicted[200:].flip(-1)])
    assert agreement(models, SurrogateData(rows, half)) == 0.5
    assert agreement(models, SurrogateData(rows[:0], predicted[:0])) == 1.0


def test_both_decide_by_the_threshold_of_the_model(rows: Tensor) -> None:
    models = fit_surrogate(SurrogateData(rows, two(rows)), run=Run())
    predicted = blockwise_proba(models)(rows)
    yes = predicted[:, 1]
    below = torch.where(yes < 0.25, yes, 0.15 + 0.1 * yes)  # nobody from 0.25 on, and some from 0.2 on
    data = SurrogateData(rows, torch.stack([1 - below, below], 1))
    assert agreement(models, data, (0.8, 0.2)) == float(((yes >= 0.2) == (below >= 0.2)).double().mean())
    assert agreement(models, data) == float((yes <= 0.5).double().mean())
    near = SurrogateData(rows, torch.stack([1 - yes + 0.05, yes - 0.05], 1))  # nowhere off by as much as counts
    crossed = (yes >= 0.2) & (yes - 0.05 < 0.2)
    assert len(disagreements(models, near, (0.8, 0.2)).x) == 4 * int(crossed.sum()) > 0


def test_data_add_up(rows: Tensor) -> None:
    both = SurrogateData(rows[:3], two(rows[:3])) + SurrogateData(rows[3:5], two(rows[3:5]))
    assert torch.equal(both.x, rows[:5])
    assert torch.equal(both.probabilities, two(rows[:5]))
