import pytest
import torch
from torch import Tensor, nn

from counterpath.geometry.metric import jacobian, jacobian_autodiff
from counterpath.models.classifier import probabilities
from counterpath.models.explained import TorchClassifier
from counterpath.utils.errors import CounterpathWarning, InputError


@pytest.fixture
def rows() -> Tensor:
    return torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def _body(outputs: int, *last: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs), *last).double()


@pytest.mark.parametrize("last", [nn.Identity(), nn.Sigmoid(), nn.Flatten(0)])
def test_one_output_is_the_second_class(rows: Tensor, last: nn.Module) -> None:
    module = _body(1, last)
    classifier = TorchClassifier(module, rows)
    out = module(rows).flatten()
    expected = out if isinstance(last, nn.Sigmoid) else out.sigmoid()
    torch.testing.assert_close(probabilities(classifier(rows))[:, 1], expected)
    assert classifier.classes == 2


@pytest.mark.parametrize("last", [nn.Identity(), nn.Softmax(-1), nn.LogSoftmax(-1)])
def test_many_outputs_are_a_class_each(rows: Tensor, last: nn.Module) -> None:
    classifier = TorchClassifier(_body(3, last), rows)
    torch.testing.assert_close(probabilities(classifier(rows)), _body(3)(rows).softmax(-1))
    assert classifier.classes == 3


def test_probabilities_of_0_and_1_have_finite_logits(rows: Tensor) -> None:
    for module in (_body(1, nn.Sigmoid()), _body(2, nn.Softmax(-1))):
        with torch.no_grad():
            module[2].weight *= 1e6
        assert TorchClassifier(module, rows)(rows).isfinite().all()


class Functional(nn.Module):
    """Dropout, a layer that is used twice, and functions between the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.drop, self.head = nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(torch.relu(self.body(torch.sin(self.body(x))))))


def test_the_representation_is_what_goes_into_the_last_linear_layer(rows: Tensor) -> None:
    module = Functional().double()
    classifier = TorchClassifier(module, rows)
    assert classifier.layer == "the input of the last linear layer, 'head'"
    torch.testing.assert_close(module.eval().head(classifier.representation(rows)), classifier(rows))
    value, jac = jacobian(classifier.representation, rows)
    torch.testing.assert_close(jac, jacobian_autodiff(lambda x: torch.relu(module.body(module.body(x).sin())), rows)[1])
    assert value.shape == (50, 4)
    plain = TorchClassifier(_body(1), rows)
    torch.testing.assert_close(plain.representation(rows), _body(1)[:2](rows))
    assert isinstance(plain.representation, nn.Sequential)


def test_a_named_layer_is_taken_by_its_output(rows: Tensor) -> None:
    module = Functional().double()
    classifier = TorchClassifier(module, rows, "body")
    inner = module.body(module.body(rows).sin())
    torch.testing.assert_close(classifier.representation(rows), inner)  # the last time that it is called
    assert (classifier.layer, classifier.layer_name) == ("the output of the layer 'body'", "body")
    for name in ("tail", ""):
        with pytest.raises(InputError, match="choose one of: body, drop, head"):
            TorchClassifier(module, rows, name)


def test_the_user_s_module_is_copied_frozen_and_in_evaluation_mode(rows: Tensor) -> None:
    module = Functional().double()
    classifier = TorchClassifier(module, rows.float())
    assert torch.equal(classifier(rows.float()), classifier(rows.float()))
    assert module.training
    assert module.head.weight.requires_grad
    assert module.head.weight.dtype == torch.float64
    assert not any(parameter.requires_grad for parameter in classifier.parameters())


def test_what_is_no_classifier_is_refused(rows: Tensor) -> None:
    with pytest.raises(InputError, match="cannot be run on encoded rows of 4 columns"):
        TorchClassifier(nn.Linear(5, 1), rows)
    with pytest.raises(InputError, match=r"to tuple; expected one logit a row"):
        TorchClassifier(nn.LSTM(4, 2), rows)
    with pytest.raises(InputError, match="not finite"):
        TorchClassifier(nn.Sequential(nn.Linear(4, 1), nn.Threshold(1e9, float("nan"))), rows)
    with pytest.raises(InputError, match="no linear layer"):
        TorchClassifier(nn.Tanh(), rows)


def test_one_output_between_0_and_1_warns(rows: Tensor) -> None:
    with pytest.warns(CounterpathWarning, match="taken to be log odds"):
        TorchClassifier(_body(1, nn.Hardsigmoid()), rows)
