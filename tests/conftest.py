"""Small models that many tests share, in float64 where numerics are checked."""

import pytest
import torch
from torch import Tensor

from counterpath.data.surface import Surface, sample_surface
from counterpath.methods import Parts
from counterpath.models.classifier import Classifier, fit_classifier
from counterpath.models.training import Run, seeded
from counterpath.models.vae import VAE, VAETraining, fit_vae


def random_vae(features: int = 6, latent: int = 3, context: int = 0) -> VAE:
    """An untrained VAE in float64 whose BatchNorm statistics and RBF network hold non-trivial numbers."""
    with seeded(0):
        vae = VAE(features, latent, hidden=(16, 12), context=context, centers=10).double()
        for module in vae.modules():
            if isinstance(module, torch.nn.BatchNorm1d):
                module.running_mean = torch.randn(module.num_features).double()
                module.running_var = torch.rand(module.num_features).double() + 0.5
        codes = torch.randn(200, latent + context).double()
        vae.precision.place(codes, torch.rand(features).double())
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
def parts(surface: Surface) -> Parts:
    """Models fitted in seconds on the surface: good enough to walk in."""
    classifier = fit_classifier(
        surface.x, surface.y, width=16, epochs=30, batch_size=64, learning_rate=1e-3, weight_decay=0.02, run=Run(seed=0)
    )
    training = VAETraining(mean_epochs=60, std_epochs=10, batch_size=64)
    vae = fit_vae(surface.x, 2, hidden=(32, 32), output="linear", centers=60, training=training, run=Run(seed=0))
    return Parts(classifier, vae).folded()
