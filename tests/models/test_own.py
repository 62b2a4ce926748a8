from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from torch import Tensor

from counterpath.models import own
from counterpath.models.classifier import blockwise_proba
from counterpath.models.own import fit_own
from counterpath.models.training import Run
from counterpath.utils.errors import InputError

QUIET = Run(progress=False)
PATIENCE = own._PATIENCE  # as it is, before tests/conftest.py makes it shorter


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "_PATIENCE", PATIENCE)


def _linear(rows: int, seed: int = 0, columns: int = 30) -> tuple[Tensor, Tensor]:
    """Labels that hang weakly on a few of many columns: a table that a network learns by heart."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(rows, columns, generator=generator)
    chance = torch.sigmoid(3 * (x[:, 0] + x[:, 1] - x[:, 2] - 0.5))
    return x, (torch.rand(rows, generator=generator) < chance).long()


def _loss(proba: Tensor, y: Tensor) -> float:
    return float(log_loss(y, proba.double() / proba.double().sum(1, keepdim=True)))


def test_a_small_table_is_predicted_as_well_as_by_logistic_regression() -> None:
    (x, y), (new, truth) = _linear(400), _linear(2000, seed=1)
    proba = blockwise_proba(fit_own(x, y, 2, run=QUIET))(new)
    logistic = LogisticRegression(max_iter=1000).fit(x, y).predict_proba(new)
    assert _loss(proba, truth) < log_loss(truth, logistic) + 0.005
    assert float((proba[:, 1] - truth).mean().abs()) < 0.06  # probabilities hold for rows that it has not seen


def test_what_is_not_linear_is_learned_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "_CROSS_VALIDATED", 1000)  # as a large table: one part held out
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(3000, 4, generator=generator)
    y = ((x[:, 0] - 0.5) * (x[:, 1] - 0.5) > 0).long()
    classifier = fit_own(x, y, 2, run=QUIET)
    assert float(((classifier(x) > 0) == y.bool()).double().mean()) > 0.9


def test_classes_that_are_rare_and_columns_that_are_constant_do_no_harm() -> None:
    x, y = _linear(60, columns=5)
    x[:, 3] = 0.5
    y[0] = 2  # the only row of its class
    proba = blockwise_proba(fit_own(x, y, 4, run=QUIET))(x)  # of class 3 there is none
    assert proba.shape == (60, 4)
    assert proba.isfinite().all()
    assert float(proba[:, 3].max()) < 0.1


def test_weights_of_classes_move_the_boundary() -> None:
    x, y = _linear(300)
    rare = blockwise_proba(fit_own(x, y, 2, class_weights=(1.0, 5.0), run=QUIET))(x)
    assert float(rare[:, 1].mean()) > float(y.double().mean()) + 0.15


def test_ten_rows_are_enough_and_one_class_is_not() -> None:
    x, y = _linear(10)
    y[:5], y[5:] = 0, 1
    assert blockwise_proba(fit_own(x, y, 2, run=QUIET))(x).isfinite().all()
    with pytest.raises(InputError, match="more than one class"):
        fit_own(x, torch.zeros_like(y), 2, run=QUIET)


@pytest.mark.parametrize("crossed", [True, False])
def test_a_fit_that_was_cut_off_goes_on_to_the_same_weights(
    crossed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "_CROSS_VALIDATED", 1000 if crossed else 10)
    monkeypatch.setattr(own, "_EPOCHS", 6)
    x, y = _linear(200, columns=4)
    run = Run(checkpoint=tmp_path, seconds_between=0.0, progress=False)
    whole = fit_own(x, y, 2, run=QUIET)
    for _ in range(2):  # the second time from its own checkpoint
        again = fit_own(x, y, 2, run=run)
        for key, value in whole.state_dict().items():
            np.testing.assert_array_equal(value, again.state_dict()[key])
