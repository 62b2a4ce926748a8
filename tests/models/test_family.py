"""Families of models: the bound, our own ensemble, and models of the user's."""

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import betabinom
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from counterpath.data import Encoder, Schema
from counterpath.models.classifier import Classifier
from counterpath.models.ensemble import Ensemble, _left_out, _tanh, fit_ensemble
from counterpath.models.explained import ExplainedModel, black_box_proba
from counterpath.models.family import (
    CERTAINTY,
    HORIZON,
    Family,
    GivenMembers,
    OwnMembers,
    certainty_of,
    models_asked,
    models_needed,
    refusals_allowed,
)
from counterpath.models.own import fit_own
from counterpath.utils.errors import InputError

RANDOM = torch.Generator().manual_seed(0)
X = torch.rand(500, 4, generator=RANDOM)
Y = (X[:, 0] + X[:, 1] + 0.2 * torch.randn(500, generator=RANDOM) > 1).long()
TABLE = pd.DataFrame(X.double().numpy(), columns=list("abcd"))
LABELS = pd.Series(np.where(Y.numpy() == 1, "yes", "no"))


def test_bound_is_the_beta_binomial_tail_in_numbers() -> None:
    # 4 refuse and 2 features were chosen: X ~ BetaBinomial(50, 123, 6)
    wanted = sum(betabinom.pmf(count, HORIZON, 123, 6) for count in range(45, 51))
    assert certainty_of(4, 128, 0.9, changes=2) == pytest.approx(wanted)


@pytest.mark.parametrize("share", [0.5, 0.8, 0.9, 0.95])
def test_one_model_fewer_is_not_enough_and_one_refusal_more_is_too_many(share: float) -> None:
    needed = models_needed(share, 2)
    assert needed is not None
    assert certainty_of(0, needed, share, 2) >= CERTAINTY > certainty_of(0, needed - 1, share, 2)
    allowed = refusals_allowed(300, share, 5)
    assert allowed[0] == allowed[1] > allowed[2] > allowed[5]
    assert certainty_of(allowed[3], 300, share, 3) >= CERTAINTY > certainty_of(allowed[3] + 1, 300, share, 3)


def test_no_more_models_are_asked_than_a_share_needs() -> None:
    assert models_asked(640, 0.5) < models_asked(640, 0.8) < models_asked(640, 0.95) == 640
    assert models_asked(30, 0.9) == 30


def test_a_family_that_is_too_small_says_how_many_it_takes() -> None:
    with pytest.raises(InputError, match=r"family of 20 models .* at least 31 models are needed, and \d+ for answers"):
        refusals_allowed(20, 0.9, 5)


@pytest.fixture(scope="module")
def ensemble() -> Ensemble:
    return fit_ensemble(X, Y, 2, 12, seed=3, progress=False)


def test_members_predict_as_well_as_our_classifier_and_differ(ensemble: Ensemble) -> None:
    said = ensemble.predict_proba(X)
    right = (said.argmax(-1) == Y).double().mean(1)
    own = float(((fit_own(X, Y, 2)(X) > 0).long() == Y).double().mean())
    assert right.min() > own - 0.05
    assert said[..., 1].std(0).mean() > 0.005


def test_members_are_the_same_from_the_same_seed_and_in_any_part(ensemble: Ensemble) -> None:
    again = fit_ensemble(X, Y, 2, 12, seed=3, progress=False)
    assert torch.equal(again.predict_proba(X[:70]), ensemble.predict_proba(X[:70]))
    assert torch.equal(ensemble.predict_proba(X[7:9]), ensemble.predict_proba(X)[:, 7:9])
    one = OwnMembers(ensemble).take(torch.tensor([5])).predict_proba(X)[0]
    assert torch.allclose(one, ensemble.predict_proba(X)[5], atol=1e-6)


def test_tanh_by_sigmoid_differs_by_rounding_alone(ensemble: Ensemble) -> None:
    x = torch.cat([torch.linspace(-30, 30, 2001), torch.tensor([0.0, 1e-4, -1e-4, 88.0, -88.0])])
    assert torch.allclose(_tanh(x), x.tanh(), atol=3e-7, rtol=0)
    h = X.expand(len(ensemble), *X.shape)
    for weight, bias in zip(ensemble.weights, ensemble.biases, strict=True):
        h = (h @ weight + bias).tanh()
    assert torch.allclose(ensemble.logits(X), h @ ensemble.head + X @ ensemble.linear + ensemble.bias, atol=1e-4)


@pytest.mark.parametrize("rows", [300, 5000])
def test_each_member_is_stopped_by_rows_of_its_own_that_its_bootstrap_left_out(rows: int) -> None:
    drawn = torch.randint(rows, (6, rows), generator=torch.Generator().manual_seed(1))
    judged, out = _left_out(drawn, rows, torch.Generator().manual_seed(2))
    again = _left_out(drawn, rows, torch.Generator().manual_seed(2))
    other, _ = _left_out(drawn, rows, torch.Generator().manual_seed(3))
    assert torch.equal(judged, again[0])
    assert torch.equal(out, again[1])
    assert not torch.equal(judged, other)
    for member in range(6):
        mine = set(judged[member, out[member]].tolist())
        assert not mine & set(drawn[member].tolist())
        assert len(mine) > 90  # enough to be judged by
    if rows == 5000:  # of few rows any two have some in common
        sets = [set(each.tolist()) for each in judged]
        assert max(len(one & other) for one, other in itertools.combinations(sets, 2)) < 30


def test_an_ensemble_comes_back_from_its_tensors(ensemble: Ensemble) -> None:
    back = Ensemble.from_tensors(ensemble.to_tensors(), numbers=False)
    assert torch.equal(back.predict_proba(X), ensemble.predict_proba(X))


@pytest.mark.parametrize("classes", [3, None])
def test_members_of_three_classes_and_of_numbers(classes: int | None) -> None:
    y = (X[:, 0] * 3).long() if classes else 40 + 25 * X[:, 0] + X[:, 2]
    members = fit_ensemble(X, y, classes or 2, 6, seed=0, progress=False)
    said = members.predict_proba(X)
    if classes:
        assert said.shape == (6, 500, 3)
        assert torch.allclose(said.sum(-1), torch.ones(6, 500), atol=1e-5)
        assert (said.argmax(-1) == y).double().mean() > 0.85
    else:
        assert (said[..., 0] - y).abs().mean() < 2


def _explained(classes: tuple[Any, ...] = ("no", "yes")) -> tuple[ExplainedModel, Encoder]:
    encoder = Encoder.fit(TABLE, Schema.infer(TABLE))
    model = LogisticRegression().fit(TABLE, LABELS)
    return ExplainedModel("black-box", "it", classes, black_box_proba(model, encoder), Classifier(4)), encoder


def _retrained(retrain: Any, **options: Any) -> Family:
    explained, encoder = _explained()
    rows = encoder.encode(TABLE)
    return Family.of_retraining(
        retrain, explained, encoder, rows, LABELS, **{"size": 3, "held_out": 2, "seed": 0} | options
    )


def test_an_estimator_is_cloned_and_a_function_called_with_bootstraps() -> None:
    seen: list[tuple[int, int]] = []

    def retrain(table: pd.DataFrame, labels: pd.Series, seed: int) -> Any:
        seen.append((len(table), seed))
        assert len(table.drop_duplicates()) < 0.7 * len(table)
        return LogisticRegression().fit(table, labels)

    for given in (LogisticRegression(), retrain):
        family = _retrained(given)
        assert (len(family.members), len(family.held_out), family.own) == (3, 2, False)
        said = family.members.predict_proba(_explained()[1].encode(TABLE))
        assert said.shape == (3, 500, 2)
        assert not torch.equal(said[0], said[1])
    assert [count for count, _ in seen] == [500] * 5
    assert len({seed for _, seed in seen}) == 5


def test_a_retraining_that_fails_or_returns_other_classes_is_named() -> None:
    def broken(table: pd.DataFrame, labels: pd.Series) -> Any:
        raise ZeroDivisionError("no rows")

    with pytest.raises(InputError, match=r"retraining 1 of 5 failed \(ZeroDivisionError: no rows\)"):
        _retrained(broken)
    with pytest.raises(InputError, match="has the classes 'no', 'perhaps', and it has 'no', 'yes'"):
        _retrained(lambda table, labels: LogisticRegression().fit(table, labels.replace("yes", "perhaps")))
    with pytest.raises(InputError, match="retraining 1 of 5 cannot be asked: None cannot be asked for probabilities"):
        _retrained(lambda table, labels: None)
    with pytest.raises(InputError, match="expected a function from a table and its labels"):
        _retrained("monthly")


def test_of_alternatives_every_fourth_is_held_out_and_classes_keep_their_order() -> None:
    explained, encoder = _explained(("yes", "no"))
    models = [LogisticRegression(C=c).fit(TABLE, LABELS) for c in (0.1, 1, 10, 100, 1000)]
    family = Family.of_models(models, explained, encoder, encoder.encode(TABLE))
    assert (len(family.members), len(family.held_out)) == (4, 1)
    said = family.members.predict_proba(encoder.encode(TABLE))
    assert np.allclose(said[1].numpy(), models[1].predict_proba(TABLE)[:, ::-1], atol=1e-5)
    with pytest.raises(InputError, match="alternative 2 of 2 cannot be asked: NotFittedError"):
        Family.of_models([models[0], LogisticRegression()], explained, encoder, encoder.encode(TABLE))
    with pytest.raises(InputError, match="expected a list of fitted models"):
        Family.of_models([], explained, encoder, encoder.encode(TABLE))


def test_given_members_are_asked_in_the_order_in_which_they_are_taken() -> None:
    def constant(p: float) -> Any:
        return lambda x: torch.full((len(x), 2), p)

    members = GivenMembers(tuple(constant(p) for p in (0.1, 0.2, 0.3)))
    assert members.take(torch.tensor([2, 0])).predict_proba(X[:1])[:, 0, 0].tolist() == pytest.approx([0.3, 0.1])
    empty: Tensor = members.predict_proba(X[:1], slice(3, 4))
    assert len(empty) == 0
