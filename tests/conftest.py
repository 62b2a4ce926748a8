"""Small models that many tests share, in float64 where numerics are checked."""

import counterpath  # noqa: F401  # isort: skip: it says how torch waits, and comes before torch
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import filelock
import hypothesis
import jaxtyping
import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import counterpath as cp
from counterpath.cli import main
from counterpath.data.surface import Surface, sample_surface
from counterpath.explainer.explainer import Explainer
from counterpath.fitting.fitted import FittedModels
from counterpath.models import own
from counterpath.models.classifier import Classifier, fit_classifier
from counterpath.models.latent import concat_context
from counterpath.models.training import Run, seeded
from counterpath.models.vae import VAE, VAETraining, fit_vae
from counterpath.search.method import SearchModels
from tests.sizes import ALL_EXAMPLES, examples
from tests.tables import LABEL, mixed, small

T = TypeVar("T")

# How long an example takes is not tested: cores are shared.
hypothesis.settings.register_profile("counterpath", deadline=None, max_examples=examples(100))
hypothesis.settings.load_profile("counterpath")

WHOLE = {"service", "batch", "bench", "cli", "experiments", "explainer", "explorer"}
"""The folders of tests that run all of it, from a table to an answer; those of the search_models check the shapes."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Check shapes, but not in whole runs: these call checked functions so often that it is a third of their time."""
    jaxtyping.config.update("jaxtyping_disable", _is_whole(item))
    return (yield)


def _is_whole(item: pytest.Item) -> bool:
    return item.get_closest_marker("whole") is not None or item.path.parent.name in WHOLE


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole runs come first: if one of their files came last, the other processes would wait for it."""
    whole = {item.path for item in items if _is_whole(item)}
    items.sort(key=lambda item: item.path not in whole)


class Once:
    """`once(name, make, write, read)` makes something in the first process that needs it; the others read it."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def __call__(
        self, name: str, make: Callable[[], T], write: Callable[[T, Path], object], read: Callable[[Path], T]
    ) -> T:
        if self.folder is None:
            return make()
        path = self.folder / name
        with filelock.FileLock(path.with_suffix(".lock")):
            if path.exists():
                return read(path)
            made = make()
            write(made, path)
            return made


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Shares what takes long to make between the processes that run these tests."""
    return Once(tmp_path_factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else None)


PATIENCE = 2
"""Epochs without gain after which our own classifier stops: on some hundred rows it is hardly worse for it."""


@pytest.fixture(scope="session", autouse=True)
def impatient() -> Iterator[None]:
    """Let our own classifier stop early in `make test`: most of a fit is to see that nothing more is gained."""
    with pytest.MonkeyPatch.context() as patch:
        if not ALL_EXAMPLES:
            patch.setattr(own, "_PATIENCE", PATIENCE)
        yield


def write_pickle(value: object, path: Path) -> None:
    path.write_bytes(pickle.dumps(value))


def read_pickle(path: Path) -> Any:
    return pickle.loads(path.read_bytes())


def random_vae(
    features: int = 6,
    latent: int = 3,
    conditional: bool = False,
    blocks: tuple[tuple[int, int], ...] = (),
    always_conditioned: tuple[int, ...] = (),
    levels: tuple[tuple[int, int], ...] = (),
    output: str = "sigmoid",
) -> VAE:
    """An untrained VAE in float64 whose BatchNorm statistics and RBF network hold non-trivial numbers."""
    with seeded(0):
        vae = VAE(
            features,
            latent,
            hidden=(16, 12),
            conditional=conditional,
            always_conditioned=always_conditioned,
            blocks=blocks,
            levels=levels,
            output=output,
            centers=10,
        ).double()
        for module in vae.modules():
            if isinstance(module, torch.nn.BatchNorm1d):
                module.running_mean = torch.randn(module.num_features).double()
                module.running_var = torch.rand(module.num_features).double() + 0.5
        codes, rows = torch.randn(200, latent).double(), torch.rand(200, features).double()
        vae.precision.fit_centers(concat_context(codes, vae.context(rows)), torch.rand(features).double(), rows=rows)
        vae.precision.log_weight.data += 0.5 * torch.randn_like(vae.precision.log_weight)
    return vae.eval().requires_grad_(False)


def random_classifier(features: int = 6, width: int = 8) -> Classifier:
    with seeded(1):
        classifier = Classifier(features, width).double()
    return classifier.eval().requires_grad_(False)


@pytest.fixture
def vae() -> VAE:
    return random_vae()


@pytest.fixture
def classifier() -> Classifier:
    return random_classifier()


@pytest.fixture
def codes() -> Tensor:
    return torch.randn(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="session")
def surface() -> Surface:
    return sample_surface(600, seed=0)


@pytest.fixture(scope="session")
def search_models(surface: Surface, once: Once) -> SearchModels:
    """Models fitted in seconds on the surface: good enough to walk in."""
    return once("search_models", lambda: _fit_search_models(surface), write_pickle, read_pickle)


def _fit_search_models(surface: Surface) -> SearchModels:
    classifier = fit_classifier(
        surface.x, surface.y, width=16, epochs=30, batch_size=64, learning_rate=1e-3, weight_decay=0.02, run=Run(seed=0)
    )
    training = VAETraining(mean_epochs=60, std_epochs=10, batch_size=64)
    vae = fit_vae(surface.x, 2, hidden=(32, 32), output="linear", centers=60, training=training, run=Run(seed=0))
    return SearchModels(classifier, vae).folded()


@pytest.fixture(scope="session")
def people() -> pd.DataFrame:
    """A table with every kind of column and three classes."""
    return mixed()


@pytest.fixture(scope="session")
def explainer(people: pd.DataFrame, once: Once) -> cp.Explainer:
    """An explainer of its own classifier of these people. Tests do not change it; `copy.copy` it to."""
    return once("explainer", lambda: small().fit(people, LABEL), cp.Explainer.save, cp.load)


@pytest.fixture(scope="session")
def models(explainer: cp.Explainer) -> FittedModels:
    """What it has models."""
    models: FittedModels = explainer.models_
    return models


SMALL_FIT = ("--target", "loan", "--immutable", "sex", "--hidden", "32,16", "--epochs", "30", "--device", "cpu")
"""Arguments of a fit to `loans` that takes seconds."""


@pytest.fixture(scope="session")
def loans() -> pd.DataFrame:
    """A small table of every kind of column, with a label that most of them tell."""
    random, count = np.random.default_rng(0), 400
    frame = pd.DataFrame(
        {
            "age": random.integers(18, 80, count),
            "income": np.exp(random.normal(8, 1, count)).round(2),
            "job": random.choice(["boss", "clerk", "none"], count),
            "owner": random.random(count) < 0.4,
            "sex": random.choice(["f", "m"], count),
        }
    )
    score = (
        (frame["age"] - 45) / 20 + np.log(frame["income"]) - 8 + 1.5 * (frame["job"] == "boss") + 0.5 * frame["owner"]
    )
    return frame.assign(loan=np.where(score + random.normal(0, 0.3, count) > 0.6, "yes", "no"))


@pytest.fixture(scope="session")
def loans_file(loans: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("loans") / "loans.csv"
    loans.to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def model_folder(loans_file: Path, once: Once) -> Path:
    """A model directory that the command line wrote."""
    folder = loans_file.with_name("model")

    def fit() -> Path:
        assert main(["fit", str(loans_file), *SMALL_FIT, "--out", str(folder)]) == 0
        return folder

    return once("loans_model", fit, shutil.copytree, lambda path: Path(shutil.copytree(path, folder)))


@pytest.fixture(scope="session")
def fitted(model_folder: Path) -> Explainer:
    return Explainer.load(model_folder, device="cpu")


@pytest.fixture(scope="session")
def houses() -> pd.DataFrame:
    """Houses and their prices."""
    random, count = np.random.default_rng(0), 500
    rooms, age, coast = random.integers(1, 9, count), random.integers(0, 60, count), random.random(count).round(3)
    price = 20 + 12 * rooms - 0.3 * age + 30 * coast + random.normal(0, 4, count)
    return pd.DataFrame({"rooms": rooms, "age": age, "coast": coast, "price": price})


@pytest.fixture(scope="session")
def priced(houses: pd.DataFrame, once: Once) -> cp.Explainer:
    """A regressor of our own of these prices."""
    schema = cp.Schema(cp.Schema.infer(houses, target="price").features, target_unit="k€")
    return once("priced", lambda: small().fit(houses, "price", schema=schema), cp.Explainer.save, cp.load)
