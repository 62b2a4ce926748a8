from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from counterpath.geometry.curve import geodesic, length, metric_field, segment_lengths
from counterpath.geometry.metric import (
    DAMPING,
    METRICS,
    Linearization,
    _eliminate,
    _factorise,
    cholesky,
    damped,
    guided,
    guided_diagonal,
    guided_draw,
    guided_monte_carlo,
    jacobian,
    jacobian_autodiff,
    pullback,
    scaled_by_uncertainty,
    solve,
    try_solve,
    volume,
)
from counterpath.models.classifier import Classifier
from counterpath.models.latent import IdentityModel
from counterpath.models.layers import TableOutput
from counterpath.models.training import seeded
from counterpath.models.vae import VAE
from counterpath.search.objective import Objective
from counterpath.search.step import STEP_RULES, slope
from counterpath.utils.errors import GeometryError
from tests.conftest import random_vae


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("scale", [1.0, 10.0, 1e3, 1e6])
@pytest.mark.parametrize("blocks", [(), ((1, 4), (4, 6))])
def test_metrics_are_symmetric_and_positive_definite_even_far_away(
    name: str, scale: float, blocks: tuple[tuple[int, int], ...], classifier: Classifier
) -> None:
    vae = random_vae(blocks=blocks)
    with seeded(0):
        z = scale * torch.randn(200, 3, dtype=torch.float64)
    metric = damped(METRICS[name](classifier.representation)(vae.linearize(z)))
    assert metric.isfinite().all()
    torch.testing.assert_close(metric, metric.mT, rtol=1e-13, atol=0)
    assert (torch.linalg.eigvalsh(metric) > 0).all()
    assert cholesky(metric)[1].all()


def test_the_default_damping_is_a_small_absolute_number() -> None:
    assert DAMPING <= 1e-6
    zero = torch.zeros(1, 2, 2, dtype=torch.float64)
    torch.testing.assert_close(damped(zero), DAMPING * torch.eye(2, dtype=torch.float64)[None], rtol=0, atol=0)


def test_the_pullback_metric_is_the_expected_gram_matrix(vae: VAE, codes: Tensor) -> None:
    """Equation 2: E[JᵀJ] for J = Jμ + diag(ε)Jσ."""
    lin = vae.linearize(codes)
    assert lin.std_jac is not None
    with seeded(0):
        noise = torch.randn(40_000, 1, 6, 1, dtype=torch.float64)
    total = torch.zeros(len(codes), 3, 3, dtype=torch.float64)
    for part in noise.split(2000):
        jac = lin.mean_jac + part * lin.std_jac
        total += (jac.mT @ jac).sum(0)
    expected = pullback(lin)
    error = (total / len(noise) - expected).norm(dim=(1, 2)) / expected.norm(dim=(1, 2))
    assert error.max() < 0.03


def test_the_printed_metric_is_the_sum_of_two_pullbacks(vae: VAE, classifier: Classifier, codes: Tensor) -> None:
    """Equation 6 written out with the full M_X."""
    lin = vae.linearize(codes)
    assert lin.std_jac is not None
    h_jac = jacobian_autodiff(classifier.representation, lin.mean)[1]
    ambient = h_jac.mT @ h_jac
    expected = lin.mean_jac.mT @ ambient @ lin.mean_jac + lin.std_jac.mT @ ambient @ lin.std_jac
    torch.testing.assert_close(guided(classifier.representation)(lin), expected, rtol=1e-10, atol=1e-12)
    diagonal = torch.diag_embed(torch.diagonal(ambient, dim1=1, dim2=2))
    expected = lin.mean_jac.mT @ ambient @ lin.mean_jac + lin.std_jac.mT @ diagonal @ lin.std_jac
    torch.testing.assert_close(guided_diagonal(classifier.representation)(lin), expected, rtol=1e-10, atol=1e-12)


def test_the_diagonal_form_is_the_frozen_expectation_and_the_printed_form_is_not(
    vae: VAE, classifier: Classifier, codes: Tensor, record_property: Callable[[str, object], None]
) -> None:
    h, lin = classifier.representation, vae.linearize(codes)
    with seeded(0):
        epsilons = torch.randn(1000, 6, dtype=torch.float64)
    draws = torch.stack([guided_draw(h, epsilon, frozen=True)(lin) for epsilon in epsilons])
    mean, spread = draws.mean(0), draws.std(0) / len(draws) ** 0.5
    torch.testing.assert_close(guided_monte_carlo(h, epsilons[:20], frozen=True)(lin), draws[:20].mean(0))
    assert ((guided_diagonal(h)(lin) - mean).abs() <= 5 * spread + 1e-12).all()
    size = mean.norm(dim=(1, 2))
    errors = {
        name: float(((METRICS[name](h)(lin) - mean).norm(dim=(1, 2)) / size).mean())
        for name in ("guided", "guided-diagonal")
    }
    record_property("error against the frozen Monte Carlo mean", str(errors))
    print(f"relative error against the frozen Monte Carlo mean: {errors}")
    assert errors["guided"] > 2 * errors["guided-diagonal"]


def test_a_moving_metric_differs_from_a_frozen_one(vae: VAE, classifier: Classifier, codes: Tensor) -> None:
    h, lin = classifier.representation, vae.linearize(codes)
    with seeded(0):
        epsilon = torch.randn(6, dtype=torch.float64)
    assert lin.std is not None
    assert lin.std_jac is not None
    h_jac = jacobian(h, lin.mean + epsilon * lin.std)[1]
    jac = h_jac @ (lin.mean_jac + epsilon[:, None] * lin.std_jac)
    torch.testing.assert_close(guided_draw(h, epsilon)(lin), jac.mT @ jac, rtol=1e-9, atol=1e-12)
    assert not torch.allclose(guided_draw(h, epsilon)(lin), guided_draw(h, epsilon, frozen=True)(lin))


def test_without_uncertainty_the_guided_metric_is_the_classifier_s_own(classifier: Classifier) -> None:
    x = torch.randn(5, 6, dtype=torch.float64)
    h_jac = jacobian(classifier.representation, x)[1]
    lin = IdentityModel().linearize(x)
    torch.testing.assert_close(guided(classifier.representation)(lin), h_jac.mT @ h_jac)
    with pytest.raises(GeometryError, match="use `guided`"):
        guided_draw(classifier.representation, torch.randn(6, dtype=torch.float64))(lin)


@pytest.mark.parametrize("size", [1, 2, 5, 8, 13])
def test_solve_and_volume_agree_with_linear_algebra(size: int) -> None:
    with seeded(size):
        factor = torch.randn(50, size + 3, size, dtype=torch.float64)
        vector = torch.randn(50, size, dtype=torch.float64)
    metric = factor.mT @ factor
    expected = torch.linalg.solve(metric, vector)
    torch.testing.assert_close(solve(metric, vector), expected, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(volume(metric), torch.linalg.det(metric).sqrt(), rtol=1e-10, atol=0)
    torch.testing.assert_close(cholesky(metric)[0], torch.linalg.cholesky(metric), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("size", [2, 10])
@pytest.mark.parametrize("bad", ["indefinite", "nan", "inf", "zero"])
def test_solve_never_returns_nan(size: int, bad: str) -> None:
    metric = torch.eye(size, dtype=torch.float64).repeat(3, 1, 1)
    metric[1] = {
        "indefinite": -metric[1],
        "nan": metric[1] * torch.nan,
        "inf": metric[1] * torch.inf,
        "zero": metric[1] * 0,
    }[bad]
    vector = torch.ones(3, size, dtype=torch.float64)
    solution, valid = try_solve(metric, vector)
    assert valid.tolist() == [True, False, True]
    assert solution.isfinite().all()
    for function in (lambda: solve(metric, vector), lambda: volume(metric)):
        with pytest.raises(GeometryError, match=r"1 of 3 rows \(first: row 1\)"):
            function()


@given(st.integers(1, 8), st.integers(0, 1000), st.floats(-8, 8))
def test_solving_inverts_multiplication(size: int, seed: int, exponent: float) -> None:
    with seeded(seed):
        factor = torch.randn(4, size + 2, size, dtype=torch.float64) * 10**exponent
        vector = torch.randn(4, size, dtype=torch.float64)
    metric = damped(factor.mT @ factor)
    product = (metric @ solve(metric, vector)[..., None])[..., 0]
    assert (product - vector).abs().max() < 1e-5


@pytest.mark.parametrize("size", [1, 2, 5, 9, 32])
def test_elimination_solves_what_lapack_solves(size: int) -> None:
    factor, vector = torch.randn(20, 40, size, dtype=torch.float64), torch.randn(20, size, dtype=torch.float64)
    metric = damped(factor.mT @ factor, 1e-3)
    by_lapack, good = _factorise(metric, vector, 1e-3)
    by_hand, valid = _eliminate(metric, vector, 1e-3)
    assert bool((good & valid).all())
    torch.testing.assert_close(by_hand, by_lapack, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(by_lapack, torch.linalg.solve(metric, vector), rtol=1e-10, atol=1e-12)


def test_a_row_that_lapack_gives_up_is_solved_and_leaves_the_others_alone() -> None:
    steep = torch.tensor([[1e9, 1e9], [1.0, 0.5]], dtype=torch.float64)
    hard = damped((steep[:1].mT @ steep[:1])[None], 1e-6)
    easy = damped((steep[1:].mT @ steep[1:])[None].expand(3, -1, -1), 1e-6)
    vector = torch.tensor([[1.0, -1.0]]).expand(4, -1)
    alone, fine = try_solve(easy, vector[:3], floor=1e-6)
    found, valid = try_solve(torch.cat([easy, hard]), vector, floor=1e-6)
    assert bool(fine.all())
    assert bool(valid.all())
    assert torch.equal(found[:3], alone)
    # Along (1, −1) the steep factor is flat: what is left of the metric there is the damping.
    assert 0.9e6 <= found[3].abs().max() <= 2.1e6
    assert float(found[3] @ vector[3].double()) > 0


def test_the_gradient_by_linearisation_is_autograd_s(vae: VAE, classifier: Classifier, codes: Tensor) -> None:
    objective = Objective(classifier, fidelity=0.1)
    with seeded(0):
        factual = torch.rand(len(codes), 6, dtype=torch.float64)
    here = slope(vae, pullback, objective, codes, factual, None, DAMPING)
    z = codes.clone().requires_grad_()
    expected = torch.autograd.grad(objective.loss(vae.decode(z), factual)[0].sum(), z)[0]
    torch.testing.assert_close(here.gradient, expected, rtol=1e-10, atol=1e-14)


class Bent(nn.Module):
    """A non-linear change of latent coordinates, w ↦ z, that is invertible."""

    def forward(self, w: Tensor) -> Tensor:
        return w + 0.4 * torch.tanh(w.roll(1, -1)) + 0.1 * w**3


class Reparametrised(IdentityModel):
    """The same model in other latent coordinates."""

    def __init__(self, vae: VAE) -> None:
        super().__init__()
        self.vae, self.bent = vae, Bent()

    def linearize(self, w: Tensor, context: Tensor | None = None) -> Linearization:
        decoder = nn.Sequential(self.bent, *self.vae.decoder)
        precision = nn.Sequential(self.bent, self.vae.precision)
        return Linearization(*jacobian(decoder, w), *jacobian(precision, w))


@pytest.mark.parametrize("name", ["pullback", "guided", "guided-diagonal"])
@pytest.mark.parametrize("rule", STEP_RULES)
def test_the_riemannian_direction_does_not_depend_on_latent_coordinates(
    name: str, rule: str, vae: VAE, classifier: Classifier, codes: Tensor
) -> None:
    metric, objective = METRICS[name](classifier.representation), Objective(classifier)
    other = Reparametrised(vae)
    factual = torch.zeros(len(codes), 6, dtype=torch.float64)
    moved = []
    for model, z in ((vae, other.bent(codes)), (other, codes)):
        here = slope(model, metric, objective, z, factual, None, 0.0)
        step = STEP_RULES[rule](here.direction, here.gradient)
        moved.append((model.linearize(z).mean_jac @ step[..., None])[..., 0])
    cosine = nn.functional.cosine_similarity(moved[0], moved[1], dim=-1)
    assert (1 - cosine).abs().max() < 1e-8
    speed = moved[1].norm(dim=-1) / moved[0].norm(dim=-1)
    if rule == "riemannian":
        assert (speed - 1).abs().max() < 1e-8
    else:
        assert (speed - 1).abs().max() > 1e-3  # the paper's step has the direction, not the speed


# Categories


@pytest.mark.parametrize("sure", [0.0, 5.0, 10.0, 15.0])
def test_where_a_softmax_saturates_only_fisher_and_rao_keep_the_step_in_bounds(sure: float) -> None:
    """Two categories with logits (sure + z, 0), p = sigmoid(sure + z), and the gradient ∂p/∂z = p(1 − p).

    Euclidean: M = 2(p(1 − p))², so that M⁻¹g = 1/2p(1 − p) explodes: a decoder that is sure of a category makes that
    category, which nothing changes, decide the direction. Fisher–Rao: M = p(1 − p), and M⁻¹g = 1 everywhere.
    """
    decoder = TableOutput(2, [(0, 2)], nn.Identity())
    z = torch.tensor([[sure]], dtype=torch.float64)
    value, jac = jacobian(lambda p: decoder(torch.cat([p, torch.zeros_like(p)], -1)), z)
    p = torch.sigmoid(z[0, 0])
    gradient = jac[:, 0]
    torch.testing.assert_close(gradient[0, 0], p * (1 - p))
    fisher_rao = pullback(Linearization(value, jac, category=torch.tensor([True, True])))
    euclidean = pullback(Linearization(value, jac))
    torch.testing.assert_close(fisher_rao[0, 0, 0], p * (1 - p))
    torch.testing.assert_close(solve(fisher_rao, gradient)[0, 0].item(), 1.0, rtol=1e-9, atol=0)
    torch.testing.assert_close(solve(euclidean, gradient)[0, 0], 1 / (2 * p * (1 - p)))
    if sure >= 10:
        assert solve(euclidean, gradient).abs().item() > 1e4


@pytest.mark.parametrize("build", [guided, guided_diagonal, lambda h: guided_draw(h, torch.zeros(6).double())])
def test_guided_metrics_add_the_categories(
    build: Callable[[nn.Module], Callable[[Linearization], Tensor]], classifier: Classifier, codes: Tensor
) -> None:
    lin = random_vae(blocks=((1, 4), (4, 6))).linearize(codes)
    without = Linearization(lin.mean, lin.mean_jac, lin.std, lin.std_jac)
    metric = build(classifier.representation)
    factor = lin.mean_jac[:, 1:] / lin.mean[:, 1:, None].sqrt()
    torch.testing.assert_close(metric(lin) - metric(without), factor.mT @ factor, rtol=1e-9, atol=1e-9)


# Metrics scaled by the uncertainty


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("level", [0.01, 1.0, 100.0])
def test_a_scaled_metric_grows_with_the_height_of_the_uncertainty(
    name: str, level: float, vae: VAE, classifier: Classifier, codes: Tensor
) -> None:
    lin, metric = vae.linearize(codes), METRICS[name](classifier.representation)
    factor = (1 + vae.uncertainty(codes).mean(1) / level) ** 2
    torch.testing.assert_close(
        scaled_by_uncertainty(metric, level)(lin), factor[:, None, None] * metric(lin), rtol=1e-12, atol=0
    )


def test_without_uncertainty_nothing_is_scaled(codes: Tensor) -> None:
    lin = IdentityModel().linearize(codes)
    assert torch.equal(scaled_by_uncertainty(pullback, 0.1)(lin), pullback(lin))


class Plateau(IdentityModel):
    """The plane with the same uncertainty everywhere."""

    def linearize(self, z: Tensor, context: Tensor | None = None) -> Linearization:
        plain = super().linearize(z)
        return Linearization(plain.mean, plain.mean_jac, torch.full_like(z, 0.6), torch.zeros_like(plain.mean_jac))


def test_a_plateau_of_uncertainty_costs_though_it_has_no_slope(codes: Tensor) -> None:
    start, end = codes[:5], codes[5:10]
    fields = [
        metric_field(Plateau().linearize, metric, 0.0) for metric in (pullback, scaled_by_uncertainty(pullback, 0.2))
    ]
    plain, expensive = (geodesic(start, end, field, segments=8).length for field in fields)
    torch.testing.assert_close(plain, (end - start).norm(dim=-1))
    torch.testing.assert_close(expensive, (1 + 0.6 / 0.2) * plain)


def test_a_scaled_length_is_the_integral_of_length_times_scale(vae: VAE, codes: Tensor) -> None:
    level = float(vae.uncertainty(codes).mean())
    plain, expensive = (
        metric_field(vae.linearize, metric, 0.0) for metric in (pullback, scaled_by_uncertainty(pullback, level))
    )
    straight = torch.lerp(codes[:5, None], codes[5:10, None], torch.linspace(0, 1, 13).double()[:, None])
    found = geodesic(codes[:5], codes[5:10], expensive, segments=12, steps=5)
    for points in (straight, found.points):
        middle = 0.5 * (points[:, 1:] + points[:, :-1])
        scale = 1 + vae.uncertainty(middle.flatten(0, 1)).mean(1).view(5, -1) / level
        expected = (segment_lengths(points, plain) * scale).sum(1)
        torch.testing.assert_close(length(points, expensive), expected, rtol=1e-10, atol=0)
    assert (found.length < length(straight, expensive)).all()


def test_no_rows_have_factors_of_no_rows() -> None:
    nothing = Linearization(
        mean=torch.zeros(0, 4), mean_jac=torch.zeros(0, 4, 2), category=torch.tensor([True, False, False, True])
    )
    assert [factor.shape for factor in nothing.factors] == [(0, 4, 2)]
