from pathlib import Path

import pytest
import torch
from torch import Tensor

from counterpath.experiments.bench.variants import (
    STEP_SIZE,
    TIMED_METHODS,
    RadialBasis,
    Sizes,
    Workload,
    adult_workload,
    eager_step,
    floors,
    our_search,
    our_step,
    paper_search,
    paper_step,
    random_workload,
    read_models,
    stochman_models,
)
from counterpath.experiments.tabular import vae_of
from counterpath.geometry.metric import jacobian_autodiff
from counterpath.models.classifier import fit_classifier
from counterpath.models.training import Run
from counterpath.models.vae import VAETraining, fit_vae
from counterpath.search.method import SearchModels
from counterpath.search.traverse import at_confidence
from counterpath.utils.errors import InputError
from tests.conftest import random_classifier, random_vae

CPU = torch.device("cpu")
SMALLER = Sizes(rows=30, features=7, latent=3, hidden=(24, 16), centers=12, width=6)
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


def test_random_models_are_like_fitted_ones() -> None:
    workload = random_workload(SMALLER, 0, CPU)
    assert workload.sizes == SMALLER
    codes = workload.codes
    assert float(codes.std(0).min()) > 0.3
    assert float(codes.std(0).max()) < 3
    decoded = vae_of(workload.fitted).decode(codes)
    assert float(decoded.std(0).min()) > 0.01, "the decoder is not constant"
    std = vae_of(workload.fitted).uncertainty(codes)
    assert float(std.min()) > 0
    assert float(std.median()) < 1
    again = random_workload(SMALLER, 0, CPU)
    assert torch.equal(again.factual, workload.factual)
    assert torch.equal(again.codes, codes)
    assert not torch.equal(random_workload(SMALLER, 1, CPU).codes, codes)


def test_folding_changes_nothing_but_the_layers() -> None:
    workload = random_workload(SMALLER, 0, CPU)
    fitted, folded, z = vae_of(workload.fitted), vae_of(workload.folded), workload.codes
    torch.testing.assert_close(folded.decode(z), fitted.decode(z), atol=1e-5, rtol=1e-4)
    assert len(folded.decoder) < len(fitted.decoder)


def test_as_many_rows_as_wanted() -> None:
    workload = random_workload(SMALLER, 0, CPU)
    assert workload.with_rows(5).sizes.rows == 5
    repeated = workload.with_rows(70)
    assert torch.equal(repeated.factual[60:], workload.factual[:10])
    assert len(repeated.codes) == 70


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Workload]:
    """A folder with the checkpoints of a short training, and what was trained."""
    folder = tmp_path_factory.mktemp("checkpoints")
    x = torch.rand(120, 7, generator=torch.Generator().manual_seed(0))
    run = Run(checkpoint=folder)
    classifier = fit_classifier(x, (x[:, 0] > 0.5).float(), width=6, epochs=1, batch_size=32, run=run)
    training = VAETraining(mean_epochs=1, std_epochs=1, batch_size=32)
    vae = fit_vae(x, 3, hidden=(24, 16), centers=12, training=training, run=run)
    return folder, Workload(SearchModels(classifier, vae), x, 1e-3)


def test_models_come_back_from_their_checkpoints(checkpoints: tuple[Path, Workload]) -> None:
    folder, trained = checkpoints
    read = Workload(read_models(folder, CPU), trained.factual, trained.damping)
    assert read.sizes == trained.sizes
    assert torch.equal(read.codes, trained.codes)
    z, x = trained.codes, trained.factual
    assert torch.equal(vae_of(read.fitted).uncertainty(z), vae_of(trained.fitted).uncertainty(z))
    assert torch.equal(read.fitted.classifier(x), trained.fitted.classifier(x))


def test_folders_without_models_of_adult_are_refused(checkpoints: tuple[Path, Workload], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"classifier\.safetensors cannot be read"):
        read_models(tmp_path, CPU)
    with pytest.raises(InputError, match="rows of 7 columns, and Adult's have 13"):
        adult_workload(checkpoints[0], 0, CPU)


def test_a_step_needs_a_vae() -> None:
    workload = random_workload(SMALLER, 0, CPU)
    with pytest.raises(InputError, match="needs a VAE"):
        vae_of(SearchModels(workload.fitted.classifier))


def _apart(build, workload: Workload, method: str) -> float:  # type: ignore[no-untyped-def]
    """The largest distance between where a variant steps to and where we do; a step is a tenth long."""
    z, factual = workload.codes, workload.factual
    ours, other = our_step(workload, method)(z, factual), build(workload, method)(z, factual)
    torch.testing.assert_close((ours - z).norm(dim=-1), torch.full_like(z[:, 0], STEP_SIZE))
    return float((ours - other).norm(dim=-1).max())
