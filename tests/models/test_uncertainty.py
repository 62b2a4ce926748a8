"""Every estimate of uncertainty behind one interface, against finite differences and its own formulas."""

import pytest
import torch
from torch import Tensor, nn

from counterpath.data.surface import Surface
from counterpath.geometry.metric import (
    Linearization,
    gram,
    guided,
    guided_diagonal,
    jacobian,
    jacobian_autodiff,
    pullback,
)
from counterpath.models.calibration import calibrate
from counterpath.models.classifier import Classifier
from counterpath.models.layers import fold, mlp
from counterpath.models.training import Run, seeded
from counterpath.models.uncertainty import UNCERTAINTIES, Ensemble, Uncertainty, best_prior, stack, unstack
from counterpath.models.vae import VAE, VAETraining, fit_uncertainty, fit_vae
from counterpath.utils.errors import InputError, NotFittedError

KINDS = list(UNCERTAINTIES)
BLOCKS = [(2, 5)]
TRAINING = VAETraining(mean_epochs=40, std_epochs=2, batch_size=64, learning_rate=3e-3, anneal=True)


def _rows(count: int = 300) -> Tensor:
    """Two numbers and a category of three values that follows the first."""
    generator = torch.Generator().manual_seed(0)
    number = torch.rand(count, 2, generator=generator, dtype=torch.float64)
    return torch.cat([number, nn.functional.one_hot((3 * number[:, 0]).long(), 3).double()], -1)


def _fitted(kind: str, *, conditional: bool = False) -> VAE:
    rows = _rows()
    features = [slice(0, 1), slice(1, 2), slice(2, 5)] if conditional else None
    return fit_vae(
        rows,
        2,
        features=features,
        hidden=(16, 12),
        blocks=BLOCKS,
        uncertainty=kind,
        centers=20,
        training=TRAINING,
        run=Run(),
    )


@pytest.fixture(scope="module", params=[(kind, conditional) for kind in KINDS for conditional in (False, True)])
def vae(request: pytest.FixtureRequest) -> VAE:
    return _fitted(request.param[0], conditional=request.param[1])


def _points(vae: VAE) -> tuple[Tensor, Tensor | None]:
    rows = _rows()[:7]
    mask = torch.zeros(7, 5, dtype=torch.bool)
    mask[:4, 1] = True
    return vae.encode(rows) + 0.3, vae.context(rows, mask) if vae.conditional else None


def _differences(function, z: Tensor, step: float = 1e-6) -> Tensor:  # type: ignore[no-untyped-def]
    """The Jacobian `(n, o, d)` by central differences."""
    moves = step * torch.eye(z.shape[1], dtype=z.dtype)
    return torch.stack([(function(z + move) - function(z - move)) / (2 * step) for move in moves], -1)


def test_the_linearisation_agrees_with_finite_differences(vae: VAE) -> None:
    z, context = _points(vae)
    assert isinstance(vae.precision, Uncertainty)
    for model in (vae, fold(vae)):
        lin = model.linearize(z, context)
        torch.testing.assert_close(lin.mean, model.decode(z, context))
        torch.testing.assert_close(lin.std, model.uncertainty(z, context))
        torch.testing.assert_close(
            lin.mean_jac, _differences(lambda at, model=model: model.decode(at, context), z), rtol=1e-5, atol=1e-8
        )
        if lin.std_jac is not None:
            slopes = _differences(lambda at, model=model: model.uncertainty(at, context), z)
            torch.testing.assert_close(lin.std_jac, slopes, rtol=1e-5, atol=1e-7)
        assert len(lin.jacobians) > 1
        assert (pullback(lin) - pullback(Linearization(lin.mean, lin.mean_jac, category=lin.category))).abs().max() > 0


def test_copied_columns_neither_move_nor_spread(vae: VAE) -> None:
    if not vae.conditional or vae.uncertainty_kind == "rbf":
        return
    z, context = _points(vae)
    lin = vae.linearize(z, context)
    assert lin.std is not None
    assert (lin.std[:4, 1] == 0).all()
    assert (lin.std[4:, 1] > 0).all()
    assert all((jac[:4, 1] == 0).all() for jac in lin.jacobians)


def test_the_metric_of_an_ensemble_is_the_expected_pull_back_metric() -> None:
    vae = _fitted("ensemble")
    z, _ = _points(vae)
    each = [jacobian_autodiff(member, z) for member in vae.precision.members(vae.decoder)]
    lin = vae.linearize(z)
    plain = Linearization(lin.mean, lin.mean_jac, lin.std, deviations=lin.deviations)
    torch.testing.assert_close(pullback(plain), torch.stack([gram(jac) for _, jac in each]).mean(0))
    torch.testing.assert_close(lin.mean, torch.stack([value for value, _ in each]).mean(0))
    torch.testing.assert_close(lin.std, torch.stack([value for value, _ in each]).std(0, correction=0))
    with seeded(0):
        h = Classifier(5, 4).double().eval().representation
    h_jac = jacobian(h, lin.mean)[1]
    expected = torch.stack([gram(h_jac @ jac) for _, jac in each]).mean(0)
    for metric in (guided, guided_diagonal):
        torch.testing.assert_close(metric(h)(plain), expected)


def test_stacked_networks_are_the_networks_side_by_side() -> None:
    with seeded(0):
        networks = [mlp([3, 8, 5], final=nn.Sigmoid()).double() for _ in range(4)]
        x = torch.randn(4, 32, 3, dtype=torch.float64)
    together = stack(networks)
    torch.testing.assert_close(together(x), torch.stack([net(part) for net, part in zip(networks, x, strict=True)]))
    with torch.no_grad():
        for parameter in together.parameters():
            parameter.mul_(1.5)
    unstack(together, networks)
    for net in (together, *networks):
        net.eval()
    torch.testing.assert_close(together(x), torch.stack([net(part) for net, part in zip(networks, x, strict=True)]))


def test_the_spread_of_a_laplace_approximation_is_that_of_drawn_weights() -> None:
    """With outputs that are linear, σ² is the variance over draws from the posterior N(w, (gA + τI)⁻¹)."""
    x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    vae = fit_vae(x, 2, hidden=(12,), output="linear", uncertainty="laplace", centers=5, training=TRAINING, run=Run())
    part, z = vae.precision, torch.randn(6, 2, dtype=torch.float64)
    seen = torch.cat([vae.decoder[:-2](z), torch.ones(6, 1, dtype=torch.float64)], -1)
    for output in range(3):
        posterior = part.directions @ torch.diag(part.gain[output] * part.curvature + part.prior) @ part.directions.mT
        variance = (seen @ torch.linalg.inv(posterior) * seen).sum(-1)
        torch.testing.assert_close(vae.uncertainty(z)[:, output].square(), variance)


def test_the_prior_is_that_of_the_greatest_marginal_likelihood() -> None:
    """Without rows the likelihood of weights under N(0, 1/τ) is greatest where 1/τ is their mean square."""
    prior = best_prior(torch.zeros(50, dtype=torch.float64), torch.ones(2, dtype=torch.float64), torch.tensor(25.0))
    # ½·100·log τ − ½·25·τ − ½·100·log τ falls in τ: without rows nothing is learned, and the smallest is taken
    assert float(prior) == pytest.approx(1e-4)
    many = best_prior(torch.full((50,), 1e9).double(), torch.ones(2).double(), torch.tensor(25.0).double())
    assert float(many) == pytest.approx(100 / 25, rel=0.13)


@pytest.mark.parametrize("kind", KINDS)
def test_every_estimate_tells_data_from_emptiness(kind: str, surface: Surface) -> None:
    training = VAETraining(mean_epochs=60, std_epochs=10, batch_size=64)
    vae = fit_vae(
        surface.x, 2, hidden=(32, 32), output="linear", uncertainty=kind, centers=30, training=training, run=Run()
    )
    found = calibrate(vae, surface.x[:400], surface.x[400:])
    assert found.auc > 0.9
    assert found.sigma_off > 1.5 * found.sigma_on
    assert 0 < found.sigma_share < 1


@pytest.mark.parametrize("kind", KINDS)
def test_fitting_leaves_encoder_and_first_decoder_alone(kind: str) -> None:
    vae = _fitted(kind)
    before = {key: value.clone() for key, value in vae.state_dict().items()}
    fit_uncertainty(vae, _rows() * 0.9, training=TRAINING, run=Run(seed=1))
    changed = {key for key, value in vae.state_dict().items() if not torch.equal(value, before[key])}
    assert changed
    assert all(key.startswith("precision.") for key in changed)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="uncertainty"):
        VAE(3, 2, uncertainty="guess")
    with pytest.raises(InputError, match="at least two members"):
        Ensemble(mlp([2, 4, 3]), 1)
    with pytest.raises(NotFittedError, match="has not been fitted"):
        VAE(3, 2, uncertainty="laplace").eval().uncertainty(torch.zeros(2, 2))
