"""Levels in an order: Fisher and Rao's factor against closed forms and numerical derivatives."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from counterpath.geometry.metric import Decoded, Linearization, guided, jacobian, pullback, secant, solve
from counterpath.geometry.ordered import Ordered
from counterpath.utils.errors import InputError
from tests.geometry.test_metric_linearize import central_differences, random_vae


def _speed(t: Tensor, levels: int) -> Tensor:
    return Ordered.of([(0, levels)]).speed(t[:, None])[:, 0]


@given(st.floats(0.001, 0.999))
def test_two_levels_are_bernoullis(t: float) -> None:
    found = _speed(torch.tensor([t], dtype=torch.float64), 2)
    torch.testing.assert_close(found.item(), (t * (1 - t)) ** -0.5, rtol=1e-12, atol=0)


def test_from_one_end_to_the_other_two_levels_are_pi_apart() -> None:
    """∫dt/√t(1 − t) = 2 asin √t, which is π at 1: as far as from one category to another."""
    a = torch.linspace(-30, 30, 200_001, dtype=torch.float64)
    t = torch.sigmoid(a)
    length = torch.trapezoid(_speed(t, 2) * t * (1 - t), a)
    assert length.item() == pytest.approx(math.pi, abs=1e-5)


@pytest.mark.parametrize("levels", [2, 3, 5, 16])
def test_the_information_is_that_of_the_levels_probabilities(levels: int) -> None:
    """Σ (∂p_k/∂t)²/p_k, by differences of the probabilities that thresholds cut out of a logistic variable."""
    t = torch.linspace(0.03, 0.97, 41, dtype=torch.float64)
    at = torch.logit((torch.arange(levels - 1, dtype=torch.float64) + 0.5) / (levels - 1))

    def probabilities(t: Tensor) -> Tensor:
        below = torch.sigmoid(at - torch.logit(t))
        return torch.cat([below[:, :1], below.diff(dim=-1), 1 - below[:, -1:]], -1)

    p, slope = probabilities(t[:, None]), central_differences(probabilities, t[:, None])[..., 0]
    torch.testing.assert_close(p.sum(-1), torch.ones_like(t))
    torch.testing.assert_close(_speed(t, levels) ** 2, (slope.square() / p).sum(-1), rtol=1e-6, atol=0)


def test_more_levels_say_no_more_than_the_variable_itself() -> None:
    """The information about a grows with the levels, towards the ⅓ of a logistic variable."""
    a = torch.linspace(-3, 3, 25, dtype=torch.float64)
    t = torch.sigmoid(a)
    about = [(_speed(t, levels) * t * (1 - t)) ** 2 for levels in (2, 3, 9, 1001)]
    assert all(bool((few < more).all()) for few, more in itertools.pairwise(about))
    torch.testing.assert_close(about[-1], torch.full_like(t, 1 / 3), rtol=1e-3, atol=0)


def test_levels_of_different_counts_are_independent() -> None:
    t = torch.linspace(0.05, 0.95, 12, dtype=torch.float64).view(3, 4)
    both = Ordered.of([(2, 5), (0, 2)]).speed(t)
    torch.testing.assert_close(both, torch.stack([_speed(t[:, 2], 5), _speed(t[:, 0], 2)], -1))


def test_a_constant_has_no_levels() -> None:
    with pytest.raises(InputError, match="column 3"):
        Ordered.of([(0, 2), (3, 1)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_where_the_decoder_is_sure_the_factor_is_finite(dtype: torch.dtype) -> None:
    z = torch.tensor([[-200.0], [-20], [0], [20], [200]], dtype=dtype)
    lin = Linearization(*jacobian(nn.Sigmoid(), z), ordered=Ordered.of([(0, 3)]))
    assert lin.factors[0].isfinite().all()
    assert (lin.factors[0][[0, -1]] < 1e-30).all(), "nothing moves there"


@pytest.mark.parametrize("sure", [0.0, 5.0, 10.0, 15.0])
def test_where_a_value_saturates_the_step_stays_in_bounds(sure: float) -> None:
    """t = sigmoid(sure + z), gradient t(1 − t). Euclidean: M⁻¹g = 1/t(1 − t). Bernoulli: M = t(1 − t), M⁻¹g = 1."""
    z = torch.tensor([[sure]], dtype=torch.float64)
    value, jac = jacobian(nn.Sigmoid(), z)
    gradient = jac[:, 0]
    measured = pullback(Linearization(value, jac, ordered=Ordered.of([(0, 2)])))
    torch.testing.assert_close(solve(measured, gradient)[0, 0].item(), 1.0, rtol=1e-7, atol=0)
    torch.testing.assert_close(solve(pullback(Linearization(value, jac)), gradient), 1 / gradient)


# In a model

LEVELS, BLOCKS = ((4, 2), (5, 4)), ((1, 4),)


def _points() -> Tensor:
    return torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


def test_a_model_measures_its_levels_beside_categories_and_numbers() -> None:
    vae, plain = random_vae(blocks=BLOCKS, levels=LEVELS), random_vae(blocks=BLOCKS)
    z = _points()
    lin, other = vae.linearize(z), plain.linearize(z)
    assert torch.equal(lin.mean, other.mean)
    assert torch.equal(lin.factors[0][:, :4], other.factors[0][:, :4]), "a number and a category"
    assert torch.equal(lin.factors[1], other.factors[1])
    angle = central_differences(lambda z: 2 * vae.decode(z)[:, 4:5].sqrt().asin(), z)
    torch.testing.assert_close(lin.factors[0][:, 4:5], angle, rtol=1e-6, atol=1e-9)
    speed = Ordered.of([(0, 4)]).speed(lin.mean[:, 5:6])
    torch.testing.assert_close(lin.factors[0][:, 5], lin.mean_jac[:, 5] * speed)
    assert lin.fisher_rao_factor is not None
    assert (lin.fisher_rao_factor[:, 0] == 0).all()
    assert torch.equal(lin.fisher_rao_factor[:, 1:], lin.factors[0][:, 1:])


def test_a_guided_metric_adds_them() -> None:
    vae, plain = random_vae(levels=LEVELS), random_vae()
    z, h = _points(), nn.Linear(6, 4).double()
    lin = vae.linearize(z)
    factor = lin.factors[0][:, 4:]
    torch.testing.assert_close(guided(h)(lin) - guided(h)(plain.linearize(z)), factor.mT @ factor)


def test_segments_sum_to_the_angle() -> None:
    """Cut into many pieces, a straight line in t is as long as 2 asin √t says."""
    t = torch.linspace(0.02, 0.9, 4001, dtype=torch.float64)[:, None]
    rows = Decoded(t)
    each = pullback(secant(Decoded(rows.mean[:-1]), Decoded(rows.mean[1:]), ordered=Ordered.of([(0, 2)])))
    expected = 2 * (math.asin(math.sqrt(0.9)) - math.asin(math.sqrt(0.02)))
    assert each[:, 0, 0].sqrt().sum().item() == pytest.approx(expected, rel=1e-6)


def test_what_is_not_between_0_and_1_has_no_levels() -> None:
    with pytest.raises(InputError, match="sigmoid"):
        random_vae(levels=LEVELS, output="linear")
