import math

import pytest
import torch

from counterpath.models.classifier import Classifier
from counterpath.search.objective import Objective, log_odds
from counterpath.utils.errors import InputError


def test_the_loss_is_cross_entropy_plus_fidelity(classifier: Classifier) -> None:
    x, factual = torch.rand(2, 8, 6, dtype=torch.float64).unbind()
    probability = classifier.probability(x)
    for target, expected in ((1, probability), (0, 1 - probability)):
        here = Objective(classifier, target, fidelity=0.1).evaluate(x, factual)
        torch.testing.assert_close(here.loss, -expected.log() + 0.1 * (x - factual).norm(dim=-1))
        torch.testing.assert_close(here.probability, expected)


def test_the_gradient_is_right_and_finite_where_the_fidelity_term_has_a_kink(classifier: Classifier) -> None:
    factual = torch.rand(4, 6, dtype=torch.float64)
    objective = Objective(classifier, fidelity=0.1)
    at_kink, plain = objective.evaluate(factual, factual), Objective(classifier).evaluate(factual, factual)
    torch.testing.assert_close(at_kink.gradient, plain.gradient, rtol=0, atol=0)
    torch.testing.assert_close(at_kink.loss, plain.loss, rtol=0, atol=0)
    x = torch.rand(4, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda p: objective.loss(p, factual)[0], x)


@pytest.mark.parametrize("fidelity", [0.0, 0.1])
@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize(("classes", "target"), [(2, 0), (2, 1), (3, 0), (3, 2)])
def test_the_closed_form_of_the_gradient_is_autograd_s(classes: int, target: int, other: bool, fidelity: float) -> None:
    classifier = Classifier(6, 8, classes=classes).double().eval().requires_grad_(False)
    x, factual = torch.rand(2, 8, 6, dtype=torch.float64).unbind()
    for model in (classifier, lambda rows: classifier(rows)):
        objective = Objective(model, target, other, fidelity)
        here, at = objective.evaluate(x, factual), x.clone().requires_grad_()
        loss, toward = objective.loss(at, factual)
        torch.testing.assert_close(here.gradient, torch.autograd.grad(loss.sum(), at)[0], rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(here.loss, loss.detach())
        torch.testing.assert_close(here.probability, toward.detach().sigmoid())


@pytest.mark.parametrize("target", [0, 1, 2])
def test_of_many_classes_one_is_wanted_or_any_other(target: int) -> None:
    logits = torch.randn(8, 3, dtype=torch.float64)
    probability = logits.softmax(-1)[:, target]
    x = torch.zeros(8, 2, dtype=torch.float64)
    for other, expected in ((False, probability), (True, 1 - probability)):
        here = Objective(lambda rows: logits + rows.sum() * 0, target, other=other)
        loss, odds = here.loss(x, x)
        torch.testing.assert_close(loss, -expected.log())
        torch.testing.assert_close(odds.sigmoid(), expected)


def test_two_logits_mean_the_same_as_their_difference() -> None:
    logits = torch.randn(8, 2, dtype=torch.float64)
    for target in (0, 1):
        torch.testing.assert_close(log_odds(logits, target), log_odds(logits[:, 1] - logits[:, 0], target))


def test_a_hopeless_start_has_a_finite_loss() -> None:
    here = Objective(lambda x: -1e4 * x[:, 0]).evaluate(torch.ones(2, 3), torch.zeros(2, 3))
    assert here.loss.tolist() == [1e4, 1e4]
    assert here.gradient.isfinite().all()


def test_bad_targets_and_weights_are_refused(classifier: Classifier) -> None:
    x = torch.rand(4, 6, dtype=torch.float64)
    with pytest.raises(InputError, match="target class 2 does not exist; choose one of: 0, 1"):
        Objective(classifier, target=2).loss(x, x)
    with pytest.raises(InputError, match="target class -1 does not exist"):
        Objective(classifier, target=-1)
    for bad in (-0.1, math.nan):
        with pytest.raises(InputError, match="at least 0"):
            Objective(classifier, fidelity=bad)
