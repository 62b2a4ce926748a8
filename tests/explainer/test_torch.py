"""Torch modules and generators of the user's own. Validity is what the module says about the returned table."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import counterpath as cp
from counterpath import StatusCode
from counterpath.data import Encoder
from counterpath.utils.errors import CounterpathWarning, InputError
from tests.tables import LABEL, features, mixed, small

from .asking import NUMERIC, assert_valid, fit

pytestmark = pytest.mark.filterwarnings("ignore:The :counterpath.utils.errors.CounterpathWarning")


class Functional(nn.Module):
    """No Sequential: the layers are called by code, and something happens between them."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(3, 6), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.body(x)) ** 2)


def _sequential(*last: nn.Module, outputs: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, outputs), *last)


def _trained(module: nn.Module, numbers: pd.DataFrame) -> nn.Module:
    """Ten lines of somebody's training loop."""
    frame = numbers[NUMERIC]
    x = Encoder.fit(frame, cp.Schema.infer(frame)).encode(frame)
    y = torch.tensor((numbers["granted"] == "yes").to_numpy())
    optimizer = torch.optim.Adam(module.parameters(), lr=0.03)
    for _ in range(80):
        out = module(x)
        if out.shape[-1] == 1:
            out = (
                torch.cat([1 - out, out], 1).clamp_min(1e-6).log()
                if isinstance(module[-1], nn.Sigmoid)
                else (torch.cat([torch.zeros_like(out), out], 1))
            )
        elif isinstance(module[-1], nn.Softmax):
            out = out.clamp_min(1e-6).log()
        optimizer.zero_grad()
        nn.functional.cross_entropy(out, y.long()).backward()
        optimizer.step()
    return module


def _probability(explainer: cp.Explainer, module: nn.Module, kind: str) -> Callable[[pd.DataFrame], np.ndarray]:
    """The probability of the second class, by the user's module, of the table as returned."""

    @torch.no_grad()
    def ask(frame: pd.DataFrame) -> np.ndarray:
        out = module(explainer.models_.encoder.encode(frame))
        if kind == "logit":
            return out[:, 0].sigmoid().double().numpy()
        if kind == "logits":
            return out.softmax(-1)[:, 1].double().numpy()
        return out[:, -1].double().numpy()

    return ask


TORCH: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "one logit": (_sequential, "logit"),
    "two logits": (lambda: _sequential(outputs=2), "logits"),
    "sigmoid": (lambda: _sequential(nn.Sigmoid()), "probability"),
    "softmax": (lambda: _sequential(nn.Softmax(-1), outputs=2), "probability"),
    "log softmax": (lambda: _sequential(nn.LogSoftmax(-1), outputs=2), "logits"),
}


@pytest.mark.parametrize("name", TORCH)
def test_a_torch_module_on_encoded_rows(numbers: pd.DataFrame, name: str) -> None:
    torch.manual_seed(0)
    make, kind = TORCH[name]
    module = _trained(make(), numbers)
    explainer = fit(numbers, "granted", module)
    ask = _probability(explainer, module, kind)
    rejected = numbers[ask(numbers[NUMERIC]) < 0.5].head(30)
    for method in ("rsgd", "rsgd-c"):
        assert_valid(explainer.explain(rejected, "yes", confidence=0.6, method=method), ask, 0.6)
    assert explainer.representation_ == "the input of the last linear layer, '2'"
    assert explainer.explain(rejected, method="rsgd-c").request["representation_layer"] == explainer.representation_
    assert module.training, "the user's own module is left as it is"
    assert all(parameter.requires_grad for parameter in module.parameters())


def test_a_module_whose_code_calls_its_layers(numbers: pd.DataFrame) -> None:
    torch.manual_seed(0)
    module = Functional()
    explainer = fit(numbers, "granted", module)
    ask = _probability(explainer, module, "logit")
    before = ask(numbers[NUMERIC])
    rows = numbers[before < np.median(before)].head(30)
    found = explainer.explain(rows, "yes", confidence=float(np.quantile(before, 0.6)), method="rsgd-c")
    given = ask(found.counterfactuals)
    np.testing.assert_allclose(found.outcome["probability_after"], given, atol=1e-6)
    assert explainer.representation_ == "the input of the last linear layer, 'head'"


def test_the_representation_can_be_named(numbers: pd.DataFrame) -> None:
    module = _sequential()
    named = fit(numbers, "granted", module, representation_layer="0")
    assert named.representation_ == "the output of the layer '0'"
    row = named.models_.rows[:5]
    torch.testing.assert_close(named.models_.explained.classifier.representation(row), module[0](row))
    with pytest.raises(InputError, match="has no layer 'head'; choose one of: 0, 1, 2"):
        fit(numbers, "granted", module, representation_layer="head")


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Linear(4, 1), "cannot be run on encoded rows of 3 columns"),
        (nn.Sequential(nn.Linear(3, 4), nn.Unflatten(1, (2, 2))), r"to \(600, 2, 2\); expected one logit"),
        (nn.Linear(3, 3), "has 3 classes, but the target column has 2: 'no', 'yes'"),
        (nn.Sequential(nn.Identity()), "no linear layer"),
    ],
)
def test_a_module_that_does_not_fit_is_refused(numbers: pd.DataFrame, module: nn.Module, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(numbers, "granted", module)


def test_outputs_that_look_like_probabilities_are_asked_about(numbers: pd.DataFrame) -> None:
    class Squashed(Functional):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sigmoid(super().forward(x))

    with pytest.warns(CounterpathWarning, match=r"end in torch.nn.Sigmoid"):
        fit(numbers, "granted", Squashed())


# An own generator


class Projection(nn.Module):
    def __init__(self, width: int, latent: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.axes = nn.Parameter(torch.linalg.qr(torch.randn(width, width))[0][:, :latent])

    def encode(self, x: Tensor) -> Tensor:
        return x @ self.axes

    def decode(self, z: Tensor) -> Tensor:
        return z @ self.axes.T


class NoModule:
    """The right methods, but not torch."""

    encode = decode = staticmethod(lambda rows: rows)


class Constant(Projection):
    """A decoder that always says the same."""

    def decode(self, z: Tensor) -> Tensor:
        return 0 * super().decode(z) + 0.5


def test_an_own_generator_is_the_space_to_search_in(people: pd.DataFrame) -> None:
    generator = Projection(18, 18)
    explainer = small(max_steps=60).fit(people, LABEL, generator=generator)
    assert (explainer.diagnostics().reconstruction["kept"] > 0.99).all()
    found = explainer.explain(mixed(40, seed=2), "low", method="sgd")
    assert found.valid.mean() > 0.8
    assert generator.axes.requires_grad


def test_a_bad_generator_is_told(people: pd.DataFrame) -> None:
    with pytest.warns(CounterpathWarning, match=r"keeps less than half of: .*See explainer.diagnostics\(\)"):
        explainer = small().fit(people, LABEL, generator=Constant(18, 3))
    assert explainer.diagnostics().verdict == "bad"
    assert "are bad here" in str(explainer.diagnostics())
    found = explainer.explain(features(people).head(5), "low")
    assert set(found.status["status"]) <= set(StatusCode)


@pytest.mark.parametrize(
    ("generator", "message"),
    [
        (NoModule(), "a torch module with methods encode.*given NoModule"),
        (Projection(17, 3), "cannot be run on encoded rows of 18 columns"),
    ],
)
def test_a_generator_that_does_not_fit_is_refused(people: pd.DataFrame, generator: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        small().fit(people, LABEL, generator=generator)
