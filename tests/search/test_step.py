import pytest
import torch
from torch import Tensor

from counterpath.geometry.metric import Linearization, damped, euclidean, pullback
from counterpath.models.classifier import Classifier
from counterpath.models.vae import VAE
from counterpath.search.objective import Objective
from counterpath.search.step import STEP_RULES, euclidean_length, riemannian_length, slope


def _also_euclidean(lin: Linearization) -> Tensor:
    """M = I through the Jacobian, the long way round."""
    return euclidean(lin)


def test_the_short_way_for_a_euclidean_metric_is_the_long_way(vae: VAE, classifier: Classifier, codes: Tensor) -> None:
    factual = torch.rand(len(codes), 6, dtype=torch.float64)
    objective = Objective(classifier, fidelity=0.1)
    short, long = (slope(vae, metric, objective, codes, factual, None, 0.0) for metric in (euclidean, _also_euclidean))
    for name in ("x", "loss", "probability", "sigma", "gradient", "direction"):
        torch.testing.assert_close(getattr(short, name), getattr(long, name), rtol=1e-9, atol=1e-12)


def test_the_direction_solves_the_metric(vae: VAE, classifier: Classifier, codes: Tensor) -> None:
    factual = torch.rand(len(codes), 6, dtype=torch.float64)
    here = slope(vae, pullback, Objective(classifier), codes, factual, None, 1e-6)
    metric = damped(pullback(vae.linearize(codes)), 1e-6)
    torch.testing.assert_close((metric @ here.direction[..., None])[..., 0], here.gradient, rtol=1e-6, atol=1e-10)
    length = (here.direction[:, None] @ metric @ here.direction[..., None])[:, 0, 0].sqrt()
    torch.testing.assert_close(
        riemannian_length(here.direction, here.gradient), here.direction / length[:, None], rtol=1e-6, atol=1e-10
    )


def test_the_paper_s_step_has_unit_length() -> None:
    step = euclidean_length(torch.randn(9, 3), torch.randn(9, 3))
    torch.testing.assert_close(step.norm(dim=-1), torch.ones(9))


@pytest.mark.parametrize("rule", STEP_RULES)
def test_where_there_is_no_direction_there_is_no_step(rule: str) -> None:
    assert (STEP_RULES[rule](torch.zeros(2, 3), torch.zeros(2, 3)) == 0).all()
