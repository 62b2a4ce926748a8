"""The published methods, each a recipe over the shared parts: a space to walk in, and its geometry.

| name | space | metric |
|---|---|---|
| `wachter` | X | Euclidean |
| `ambient` | X | M_X, the pull-back by the classifier's representation |
| `sgd` | latent space of the VAE | Euclidean |
| `rsgd` | latent space of the VAE | M = JμᵀJμ + JσᵀJσ |
| `rsgd-c` | latent space of the VAE | M̂, guided by the classifier |
| `flow` | latent space of a normalizing flow | Euclidean |
"""

from collections.abc import Callable
from dataclasses import dataclass

from counterpath.errors import NotFittedError
from counterpath.geometry.metric import Metric, euclidean, guided, pullback
from counterpath.models.classifier import Classifier
from counterpath.models.flow import FlowModel
from counterpath.models.latent import IdentityModel, LatentModel
from counterpath.models.layers import fold
from counterpath.models.vae import VAE


@dataclass(frozen=True)
class Parts:
    """The fitted models that methods are made of, as they are searched: frozen, with BatchNorm folded."""

    classifier: Classifier
    vae: VAE | None = None
    flow: FlowModel | None = None

    def folded(self) -> "Parts":
        """The same models as copies that are fastest to evaluate."""
        return Parts(fold(self.classifier), self.vae and fold(self.vae), self.flow and fold(self.flow))


@dataclass(frozen=True)
class Method:
    """A space to walk in, and its geometry."""

    model: LatentModel
    metric: Metric


def wachter(parts: Parts) -> Method:
    """Gradient descent on the row itself (Wachter et al., 2017; the paper's equation 1)."""
    return Method(IdentityModel(), euclidean)


def ambient(parts: Parts) -> Method:
    """Riemannian descent on the row itself, under the classifier's metric M_X (the paper's equation 4)."""
    return Method(IdentityModel(), guided(parts.classifier.representation))


def sgd(parts: Parts) -> Method:
    """Gradient descent in the latent space of the VAE (Joshi et al., REVISE, 2019)."""
    return Method(_fitted("VAE", parts.vae), euclidean)


def rsgd(parts: Parts) -> Method:
    """Riemannian descent under the pull-back metric of the decoder (the paper's equations 2 and 3)."""
    return Method(_fitted("VAE", parts.vae), pullback)


def rsgd_c(parts: Parts) -> Method:
    """Riemannian descent under the classifier-guided metric (the paper's equations 3 and 6)."""
    return Method(_fitted("VAE", parts.vae), guided(parts.classifier.representation))


def flow(parts: Parts) -> Method:
    """Gradient descent in the latent space of a normalizing flow (Dombrowski et al., 2021)."""
    return Method(_fitted("flow", parts.flow), euclidean)


METHODS: dict[str, Callable[[Parts], Method]] = {
    "wachter": wachter,
    "ambient": ambient,
    "sgd": sgd,
    "rsgd": rsgd,
    "rsgd-c": rsgd_c,
    "flow": flow,
}


def _fitted(name: str, model: LatentModel | None) -> LatentModel:
    if model is None:
        raise NotFittedError(f"this method walks in the latent space of a {name}, and none was fitted: fit one first")
    return model
