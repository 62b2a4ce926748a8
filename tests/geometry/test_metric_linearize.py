import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from counterpath.geometry.curve import length, metric_field
from counterpath.geometry.metric import (
    METRICS,
    Decoded,
    Linearization,
    jacobian,
    jacobian_autodiff,
    pull,
    pullback,
    secant,
)
from counterpath.models.classifier import Classifier
from counterpath.models.layers import RBFPrecision, TableOutput, mlp
from counterpath.models.training import seeded
from counterpath.models.vae import VAE
from counterpath.utils.errors import InputError
from tests.conftest import random_classifier, random_vae


class Unknown(nn.Module):
    """A layer without a rule."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x) * x.sum(-1, keepdim=True)


def _rbf() -> RBFPrecision:
    with seeded(0):
        layer = RBFPrecision(3, 4, 5).double()
        layer.fit_centers(torch.randn(50, 3).double(), torch.rand(4).double(), per_center=True)
    return layer


def _batch_norm() -> nn.BatchNorm1d:
    layer = nn.BatchNorm1d(3).double().eval()
    layer.running_mean, layer.running_var = torch.randn(3).double(), torch.rand(3).double() + 0.1
    return layer


def _network() -> nn.Sequential:
    with seeded(0):
        return mlp([3, 8, 6, 4], final=nn.Softmax(-1)).double().eval()


LAYERS: dict[str, Any] = {
    "identity": nn.Identity,
    "linear": lambda: nn.Linear(3, 4).double(),
    "linear without bias": lambda: nn.Linear(3, 4, bias=False).double(),
    "batch norm": _batch_norm,
    "batch norm without weights": lambda: nn.BatchNorm1d(3, affine=False).double().eval(),
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "softplus": lambda: nn.Softplus(beta=2.0),
    "softmax": lambda: nn.Softmax(-1),
    "table output": lambda: TableOutput(3, [(1, 3)], nn.Sigmoid()),
    "table output of blocks": lambda: TableOutput(3, [(0, 1), (1, 3)], nn.Identity()),
    "rbf": _rbf,
    "roadmap": _network,
    "no rule": Unknown,
    "no rule inside": lambda: nn.Sequential(nn.Linear(3, 3).double(), Unknown(), nn.Tanh()),
}


def central_differences(function: Any, x: Tensor, step: float = 1e-5) -> Tensor:
    columns = []
    for axis in range(x.shape[1]):
        shift = torch.zeros_like(x)
        shift[:, axis] = step
        columns.append((function(x + shift) - function(x - shift)) / (2 * step))
    return torch.stack(columns, -1)


@pytest.mark.parametrize("name", LAYERS)
def test_jacobians_agree_with_differences_and_with_each_other(name: str) -> None:
    with seeded(3):
        layer = LAYERS[name]().requires_grad_(False)
        x = torch.randn(7, 3, dtype=torch.float64)
    value, closed = jacobian(layer, x)
    other_value, autodiff = jacobian_autodiff(layer, x)
    torch.testing.assert_close(value, layer(x), rtol=0, atol=1e-12)
    torch.testing.assert_close(other_value, layer(x), rtol=0, atol=1e-12)
    torch.testing.assert_close(closed, central_differences(layer, x), rtol=0, atol=1e-6)
    torch.testing.assert_close(closed, autodiff, rtol=0, atol=1e-10)


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("blocks", [(), ((1, 4), (4, 6))])
def test_the_linearisation_of_a_vae(conditional: bool, blocks: tuple[tuple[int, int], ...]) -> None:
    vae = random_vae(conditional=conditional, blocks=blocks, always_conditioned=(0,) if conditional else ())
    with seeded(4):
        z = torch.randn(9, 3, dtype=torch.float64)
        x, mask = torch.rand(9, 6, dtype=torch.float64), torch.rand(9, 6) < 0.3
        context = vae.context(x, mask)
    lin = vae.linearize(z, context)
    assert lin.std is not None
    assert lin.std_jac is not None
    for value, jac, function in (
        (lin.mean, lin.mean_jac, lambda p: vae.decode(p, context)),
        (lin.std, lin.std_jac, lambda p: vae.uncertainty(p, context)),
    ):
        assert jac.shape == (9, 6, 3)
        torch.testing.assert_close(value, function(z), rtol=0, atol=1e-12)
        torch.testing.assert_close(jac, central_differences(function, z), rtol=1e-7, atol=1e-6)
        torch.testing.assert_close(jac, jacobian_autodiff(function, z)[1], rtol=1e-12, atol=1e-10)


def test_tangents_select_directions() -> None:
    layer = _network()
    x = torch.randn(5, 3, dtype=torch.float64)
    direction = torch.randn(1, 5, 3, dtype=torch.float64)
    expected = (jacobian(layer, x)[1] @ direction[0][..., None])[..., 0]
    torch.testing.assert_close(jacobian(layer, x, direction)[1][..., 0], expected, rtol=0, atol=1e-12)


def test_second_derivatives_flow_through_the_closed_form() -> None:
    layer = _network()
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda p: jacobian(layer, p)[1], x)


def test_a_batch_norm_in_training_mode_is_refused() -> None:
    with pytest.raises(InputError, match=r"\.eval\(\)"):
        jacobian(nn.BatchNorm1d(3), torch.randn(5, 3))


def test_a_softmax_over_rows_is_refused() -> None:
    with pytest.raises(InputError, match="dim=-1"):
        jacobian(nn.Softmax(0), torch.randn(5, 3))


def test_the_factor_of_categories_is_the_jacobian_of_twice_the_root() -> None:
    """Fisher and Rao: p ↦ 2√p maps the simplex to a sphere, where lengths are Euclidean."""
    vae = random_vae(blocks=((1, 4), (4, 6)))
    with seeded(4):
        z = torch.randn(9, 3, dtype=torch.float64)
    lin = vae.linearize(z)
    mean_factor, std_factor = lin.factors
    roots = central_differences(lambda p: 2 * vae.decode(p).sqrt(), z)
    torch.testing.assert_close(mean_factor[:, 1:], roots[:, 1:], rtol=0, atol=1e-6)
    assert torch.equal(mean_factor[:, 0], lin.mean_jac[:, 0])
    assert torch.equal(std_factor, lin.jacobians[1])
    assert lin.fisher_rao_factor is not None
    torch.testing.assert_close(lin.fisher_rao_factor[:, 1:], mean_factor[:, 1:])
    assert (lin.fisher_rao_factor[:, 0] == 0).all()


def test_without_categories_the_factors_are_the_jacobians() -> None:
    lin = random_vae().linearize(torch.randn(4, 3, dtype=torch.float64))
    assert lin.category is None
    assert lin.fisher_rao_factor is None
    assert all(torch.equal(*pair) for pair in zip(lin.factors, lin.jacobians, strict=True))


def test_a_probability_of_zero_has_a_finite_factor() -> None:
    layer = TableOutput(3, [(0, 3)], nn.Identity())
    for dtype in (torch.float32, torch.float64):
        x = torch.tensor([[0.0, -1e4, -800.0]], dtype=dtype)
        lin = Linearization(*jacobian(layer, x), category=torch.ones(3, dtype=torch.bool))
        assert (lin.mean[0] == torch.tensor([1.0, 0, 0], dtype=dtype)).all()
        assert lin.factors[0].isfinite().all()


# Secants

BLOCKS = ((1, 4), (4, 6))


def _ends(size: float = 1.0) -> tuple[Tensor, Tensor]:
    with seeded(4):
        start, step = torch.randn(2, 9, 3, dtype=torch.float64)
    return start, start + size * step


def _segments(vae: VAE, start: Tensor, end: Tensor, pieces: int) -> Linearization:
    """Straight lines in pieces, as secants."""
    share = torch.linspace(0, 1, pieces + 1, dtype=start.dtype)[:, None, None]
    z = torch.lerp(start, end, share)
    before, after = (
        Decoded(vae.decode(part), vae.uncertainty(part)) for part in (z[:-1].flatten(0, 1), z[1:].flatten(0, 1))
    )
    return secant(before, after, vae.category)


def test_a_secant_has_the_length_of_the_chord() -> None:
    vae, (start, end) = random_vae(), _ends()
    squared = pullback(_segments(vae, start, end, 1))
    chord = (vae.decode(end) - vae.decode(start)).square().sum(-1)
    chord += (vae.uncertainty(end) - vae.uncertainty(start)).square().sum(-1)
    assert squared.shape == (9, 1, 1)
    torch.testing.assert_close(squared[:, 0, 0], chord, rtol=1e-12, atol=0)


def test_a_secant_of_a_model_without_an_uncertainty_is_that_of_its_rows() -> None:
    before, after = Decoded(torch.zeros(2, 2).double()), Decoded(torch.tensor([[3.0, 4.0], [0.0, 0.0]]).double())
    found = secant(before, after)
    assert found.std is None
    assert pullback(found).flatten().tolist() == [25, 0]
    assert before.spread.tolist() == [0, 0]


@pytest.mark.parametrize("name", ["pullback", "guided", "guided-diagonal"])
@pytest.mark.parametrize("blocks", [(), BLOCKS])
def test_secants_add_up_to_the_length_of_the_curve(name: str, blocks: tuple[tuple[int, int], ...]) -> None:
    vae, metric, (start, end) = random_vae(blocks=blocks), METRICS[name](random_classifier().representation), _ends()
    fine = torch.lerp(start[:, None], end[:, None], torch.linspace(0, 1, 2001).double()[:, None])
    expected = length(fine, metric_field(vae.linearize, metric, damping=0.0))
    errors = []
    for pieces in (16, 32, 64):
        total = metric(_segments(vae, start, end, pieces))[:, 0, 0].sqrt().view(pieces, -1).sum(0)
        errors.append(float(((total - expected) / expected).abs().max()))
    assert errors[2] < 0.01
    assert errors[1] < 0.5 * errors[0]
    assert errors[2] < 0.3 * errors[1], "an error of second order"


def test_secants_measure_categories_by_twice_the_root_to_second_order() -> None:
    vae, errors = random_vae(blocks=BLOCKS), []
    for size in (0.04, 0.02, 0.01):
        start, end = _ends(size)
        rows = [vae.decode(z) for z in (start, end)]
        roots = [torch.cat([x[:, :1], 2 * x[:, 1:].sqrt()], 1) for x in rows]
        chord = (roots[1] - roots[0]).square().sum(-1)
        found = pullback(secant(Decoded(rows[0]), Decoded(rows[1]), vae.category))[:, 0, 0]
        errors.append((found - chord).abs() / chord)
    assert errors[0].max() < 0.1
    for coarse, fine in itertools.pairwise(errors):
        torch.testing.assert_close(coarse / fine, torch.full_like(fine, 4), rtol=0.2, atol=0)


def test_decoded_rows_can_be_selected() -> None:
    vae, (start, _) = random_vae(), _ends()
    decoded, some = Decoded(vae.decode(start), vae.uncertainty(start)), torch.tensor([3, 3, 0])
    assert decoded.std is not None
    selected = decoded[some]
    assert selected.std is not None
    assert torch.equal(selected.mean, decoded.mean[some])
    assert torch.equal(selected.std, decoded.std[some])
    assert torch.equal(selected.spread, decoded.std.mean(1)[some])
    assert Decoded(decoded.mean)[some].std is None


@pytest.mark.parametrize(
    "layer",
    [
        nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)),
        nn.Sequential(nn.Linear(4, 6, bias=False), nn.Softplus(), nn.Linear(6, 5), nn.Tanh()),
        random_classifier(4),
        Classifier(4, 8, classes=3).eval(),
    ],
    ids=["closed form", "a layer without a rule", "two classes", "three classes"],
)
def test_cotangents_come_back_as_by_autograd(layer: nn.Module) -> None:
    layer = layer.double()
    x = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    expected = layer(x)
    cotangent = torch.randn_like(expected)
    out, back = pull(layer, x.detach())
    torch.testing.assert_close(out, expected, rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(back(cotangent), torch.autograd.grad(expected, x, cotangent)[0], rtol=1e-12, atol=1e-14)
    assert not out.requires_grad or any(weight.requires_grad for weight in layer.parameters())
