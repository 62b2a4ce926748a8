from pathlib import Path

import pytest
import torch

from counterpath.experiments.bench.workload import Sizes, Workload, adult_workload, random_workload, read_models
from counterpath.experiments.study import vae_of
from counterpath.models.classifier import fit_classifier
from counterpath.models.training import Run
from counterpath.models.vae import VAETraining, fit_vae
from counterpath.search.method import SearchModels
from counterpath.utils.errors import InputError

CPU = torch.device("cpu")
SIZES = Sizes(rows=30, features=7, latent=3, hidden=(24, 16), centers=12, width=6)


def test_random_models_are_like_fitted_ones() -> None:
    workload = random_workload(SIZES, 0, CPU)
    assert workload.sizes == SIZES
    codes = workload.codes
    assert float(codes.std(0).min()) > 0.3
    assert float(codes.std(0).max()) < 3
    decoded = vae_of(workload.fitted).decode(codes)
    assert float(decoded.std(0).min()) > 0.01, "the decoder is not constant"
    std = vae_of(workload.fitted).uncertainty(codes)
    assert float(std.min()) > 0
    assert float(std.median()) < 1
    again = random_workload(SIZES, 0, CPU)
    assert torch.equal(again.factual, workload.factual)
    assert torch.equal(again.codes, codes)
    assert not torch.equal(random_workload(SIZES, 1, CPU).codes, codes)


def test_folding_changes_nothing_but_the_layers() -> None:
    workload = random_workload(SIZES, 0, CPU)
    fitted, folded, z = vae_of(workload.fitted), vae_of(workload.folded), workload.codes
    torch.testing.assert_close(folded.decode(z), fitted.decode(z), atol=1e-5, rtol=1e-4)
    assert len(folded.decoder) < len(fitted.decoder)


def test_as_many_rows_as_wanted() -> None:
    workload = random_workload(SIZES, 0, CPU)
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
    workload = random_workload(SIZES, 0, CPU)
    with pytest.raises(InputError, match="needs a VAE"):
        vae_of(SearchModels(workload.fitted.classifier))
