"""The published methods, each a recipe over the shared parts: a space to walk in, and its geometry.

| name | space | metric |
|---|---|---|
| `wachter` | X | Euclidean |
| `ambient` | X | M_X, the pull-back by the classifier's representation |
| `sgd` | latent space of the VAE | Euclidean |
| `rsgd` | latent space of the VAE | M = JμᵀJμ + JσᵀJσ |
| `rsgd-c` | latent space of the VAE | M̂, guided by the classifier |
| `flow` | latent space of a normalizing flow | Euclidean |
| `geodesic` | latent space of the VAE, over a graph of codes | M or M̂, priced by the uncertainty |
| `face` | X, over a graph of training rows | Euclidean |
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from counterpath.geometry.metric import Metric, euclidean, guided, pullback
from counterpath.models.classifier import Classifier, Differentiable
from counterpath.models.flow import FlowModel
from counterpath.models.latent import IdentityModel, LatentModel
from counterpath.models.layers import fold
from counterpath.models.vae import VAE
from counterpath.utils.errors import NotFittedError

M = TypeVar("M")
C = TypeVar("C", bound=Differentiable)
V = TypeVar("V", bound=LatentModel)


@dataclass(frozen=True)
class SearchModels(Generic[C, V]):
    """The fitted models that methods are made of, as they are searched: frozen, with BatchNorm folded.

    Attributes:
        classifier: Ours, a surrogate, or a user's.
        vae: Our VAE, or a user's generator.
        flow: A normalizing flow.
    """

    classifier: C
    vae: V | None = None
    flow: FlowModel | None = None

    def folded(self) -> "SearchModels[C, V]":
        """The same with our own models as copies that are fastest to evaluate; a user's models stay as they are."""
        return SearchModels(_folded(self.classifier), _folded(self.vae), _folded(self.flow))


AnyModels = SearchModels[Any, Any]


@dataclass(frozen=True)
class Method:
    """A space to walk in, and its geometry.

    Attributes:
        model: The space.
        metric: Its geometry.
        globally: Whether ways are looked for over a graph, in the whole space at once, and not step by step downhill.
    """

    model: LatentModel
    metric: Metric
    globally: bool = False


def wachter(parts: AnyModels) -> Method:
    """Gradient descent on the row itself (Wachter et al., 2017; the paper's equation 1)."""
    return Method(IdentityModel(), euclidean)


def ambient(parts: AnyModels) -> Method:
    """Riemannian descent on the row itself, under the classifier's metric M_X (the paper's equation 4)."""
    return Method(IdentityModel(), guided(parts.classifier.representation))


def sgd(parts: AnyModels) -> Method:
    """Gradient descent in the latent space of the VAE (Joshi et al., REVISE, 2019)."""
    return Method(_fitted("VAE", parts.vae), euclidean)


def rsgd(parts: AnyModels) -> Method:
    """Riemannian descent under the pull-back metric of the decoder (the paper's equations 2 and 3)."""
    return Method(_fitted("VAE", parts.vae), pullback)


def rsgd_c(parts: AnyModels) -> Method:
    """Riemannian descent under the classifier-guided metric (the paper's equations 3 and 6)."""
    return Method(_fitted("VAE", parts.vae), guided(parts.classifier.representation))


def flow(parts: AnyModels) -> Method:
    """Gradient descent in the latent space of a normalizing flow (Dombrowski et al., 2021)."""
    return Method(_fitted("flow", parts.flow), euclidean)


def geodesic(parts: AnyModels) -> Method:
    """The cheapest way over a graph of codes to a place that the model accepts, relaxed towards a geodesic."""
    return Method(_fitted("VAE", parts.vae), pullback, globally=True)


def face(parts: AnyModels) -> Method:
    """The shortest chain of training rows to one that the model accepts (Poyiadzi et al., FACE, 2020)."""
    return Method(IdentityModel(), pullback, globally=True)


METHODS: dict[str, Callable[[AnyModels], Method]] = {
    "wachter": wachter,
    "ambient": ambient,
    "sgd": sgd,
    "rsgd": rsgd,
    "rsgd-c": rsgd_c,
    "flow": flow,
    "geodesic": geodesic,
    "face": face,
}

AMBIENTS: dict[str, Callable[[AnyModels], Metric]] = {
    "data": lambda parts: pullback,
    "classifier": lambda parts: guided(parts.classifier.representation),
}
"""What `geodesic` measures steps by: rows as they are, or as the classifier represents them."""


def _fitted(name: str, model: LatentModel | None) -> LatentModel:
    if model is None:
        raise NotFittedError(
            f"this method walks in the latent space of a {name}, and none was fitted: fit one first, for instance with "
            f'Explainer(method="{name.lower()}").fit(…)'
        )
    return model


def _folded(model: M) -> M:
    return fold(model) if isinstance(model, Classifier | VAE | FlowModel) else model
