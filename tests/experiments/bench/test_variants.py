import pytest
import torch
from torch import Tensor

from counterpath.experiments.bench.variants import (
    STEP_SIZE,
    TIMED_METHODS,
    RadialBasis,
    eager_step,
    floors,
    our_search,
    our_step,
    paper_search,
    paper_step,
    stochman_models,
)
from counterpath.experiments.bench.workload import Sizes, Workload, random_workload
from counterpath.experiments.study import vae_of
from counterpath.geometry.metric import jacobian_autodiff
from counterpath.search.method import SearchModels
from counterpath.search.traverse import at_confidence
from counterpath.utils.errors import InputError
from tests.conftest import random_classifier, random_vae

SIZES = Sizes(rows=50, features=7, latent=3, hidden=(24, 16), centers=12, width=6)


@pytest.fixture(scope="module")
def workload() -> Workload:
    """Random models in float32, as they are timed."""
    return random_workload(SIZES, 0, torch.device("cpu"), damping=5e-3)


@pytest.fixture(scope="module")
def exact(workload: Workload) -> Workload:
    """Models in float64 with BatchNorm statistics that matter."""
    rows = torch.rand(40, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return Workload(SearchModels(random_classifier(), random_vae()), rows, 1e-4)


@pytest.fixture(scope="module")
def stochman() -> None:
    pytest.importorskip(
        "stochman", reason="the paper's implementation needs stochman: pip install 'counterpath[bench]'"
    )


@pytest.mark.parametrize("method", TIMED_METHODS)
def test_eager_takes_our_step(method: str, workload: Workload, exact: Workload) -> None:
    assert _apart(eager_step, exact, method) < 1e-8
    assert _apart(eager_step, workload, method) < 1e-4


@pytest.mark.parametrize("method", TIMED_METHODS)
@pytest.mark.usefixtures("stochman")
def test_the_papers_implementation_takes_our_step(method: str, workload: Workload, exact: Workload) -> None:
    assert _apart(paper_step, exact, method) < 1e-8
    assert _apart(paper_step, workload, method) < 1e-4


@pytest.mark.usefixtures("stochman")
def test_stochman_has_our_models(exact: Workload) -> None:
    models, z, vae = stochman_models(exact), exact.codes, vae_of(exact.fitted)
    torch.testing.assert_close(models.mean(z), vae.decode(z))
    torch.testing.assert_close(models.std(z), vae.uncertainty(z))
    for ours, theirs in ((vae.decoder, models.mean), (vae.precision, models.std)):
        torch.testing.assert_close(theirs(z, jacobian=True)[1], jacobian_autodiff(ours, z)[1])
    x = exact.factual
    torch.testing.assert_close(models.head(models.representation(x))[:, 0], exact.fitted.classifier(x))
    assert any(isinstance(part, torch.nn.BatchNorm1d) for part in models.mean), "BatchNorm is not folded there"


def test_the_jacobian_of_radial_bases(codes: Tensor) -> None:
    basis = RadialBasis(codes[:4] + 0.5, torch.tensor([0.5, 1.0, 1.5, 2.0], dtype=torch.float64))
    axes = torch.eye(3, dtype=torch.float64).expand(len(codes), 3, 3)
    away = codes[:, None] - basis.centers
    bumps = torch.exp(-basis.bandwidth * away.square().sum(-1))
    torch.testing.assert_close(basis(codes), bumps)
    expected = -2 * (basis.bandwidth * bumps)[..., None] * away
    torch.testing.assert_close(basis._jacobian_wrt_input_mult_left_vec(codes, bumps, axes), expected)


@pytest.mark.usefixtures("stochman")
def test_a_search_by_the_papers_implementation_is_its_steps_block_by_block(workload: Workload) -> None:
    step, z = paper_step(workload, "rsgd"), workload.codes
    for _ in range(3):
        z = step(z, workload.factual)
    found = paper_search(workload, "rsgd", steps=3, block_size=16)
    assert found.shape == z.shape
    torch.testing.assert_close(found, z, atol=1e-4, rtol=0)


def test_our_search_takes_our_steps(exact: Workload) -> None:
    found = our_search(exact, "rsgd", steps=1, stop=at_confidence(0.999))
    torch.testing.assert_close(found.z[1], our_step(exact, "rsgd")(exact.codes, exact.factual))
    assert int(found.steps.min()) == 1


@pytest.mark.usefixtures("stochman")
def test_models_that_the_paper_does_not_have_are_refused(exact: Workload) -> None:
    conditioned = Workload(SearchModels(random_classifier(), random_vae(conditional=True)), exact.factual, 1e-4)
    with pytest.raises(InputError, match="not conditional"):
        paper_step(conditioned, "rsgd")
    with pytest.raises(InputError, match="unknown method to time 'flow'"):
        paper_step(exact, "flow")


def test_both_floors_pass_the_decoder_as_often_as_a_step_must(workload: Workload) -> None:
    seen: list[int] = []
    decoder = vae_of(workload.folded).decoder
    hook = decoder.register_forward_hook(lambda module, given, out: seen.append(len(given[0])))
    for task in floors(workload).values():
        task()
    hook.remove()
    assert seen == [4 * 50, *[50] * 4]
    assert not any(isinstance(layer, torch.nn.BatchNorm1d) for layer in decoder)


def _apart(build, workload: Workload, method: str) -> float:  # type: ignore[no-untyped-def]
    """The largest distance between where a variant steps to and where we do; a step is a tenth long."""
    z, factual = workload.codes, workload.factual
    ours, other = our_step(workload, method)(z, factual), build(workload, method)(z, factual)
    torch.testing.assert_close((ours - z).norm(dim=-1), torch.full_like(z[:, 0], STEP_SIZE))
    return float((ours - other).norm(dim=-1).max())
