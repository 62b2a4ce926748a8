import pytest
import torch

from counterpath.data.surface import Surface
from counterpath.geometry.metric import jacobian, jacobian_autodiff, pull
from counterpath.models.classifier import Classifier, balanced_accuracy, fit_classifier
from counterpath.models.layers import fold
from counterpath.search.method import SearchModels
from counterpath.utils.errors import InputError
from tests.conftest import random_classifier


def test_the_last_layer_is_linear_on_the_representation() -> None:
    classifier = random_classifier(width=8)
    x = torch.randn(5, 6, dtype=torch.float64)
    h = classifier.representation(x)
    assert h.shape == (5, 8)
    torch.testing.assert_close(classifier(x), h @ classifier.head.weight[0] + classifier.head.bias)
    torch.testing.assert_close(classifier.probability(x), torch.sigmoid(classifier(x)))


def test_it_learns(search_models: SearchModels, surface: Surface) -> None:
    assert balanced_accuracy(search_models.classifier, surface.x, surface.y) > 0.8


def test_balanced_accuracy_weighs_the_classes_alike(search_models: SearchModels) -> None:
    x = torch.randn(100, 3)
    predicted = search_models.classifier(x) > 0
    y = predicted.float()
    assert balanced_accuracy(search_models.classifier, x, y) == 1.0
    assert balanced_accuracy(search_models.classifier, x, 1 - y) == 0.0


def test_labels_must_be_two_classes(surface: Surface) -> None:
    with pytest.raises(InputError, match="more than one class in its labels; given only class 1"):
        fit_classifier(surface.x, torch.ones(600))
    with pytest.raises(InputError, match="labels must be 0 or 1"):
        fit_classifier(surface.x, 2 * surface.y)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_linear_part_beside_the_network_has_closed_form_derivatives(classes: int) -> None:
    torch.manual_seed(0)
    classifier = fold(Classifier(6, 8, classes, linear=True).double().eval())
    x = torch.randn(5, 6, dtype=torch.float64)
    h, h_jac = jacobian(classifier.representation, x)
    assert h.shape == (5, 8 + (1 if classes == 2 else 3))
    for mine, theirs in zip((h, h_jac), jacobian_autodiff(classifier.representation, x), strict=True):
        torch.testing.assert_close(mine, theirs)
    logits, vjp = pull(classifier, x)
    torch.testing.assert_close(logits, classifier(x))
    cotangent = torch.randn_like(logits)
    free = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(classifier(free), free, cotangent)
    torch.testing.assert_close(vjp(cotangent), expected)
