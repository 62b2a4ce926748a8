"""What one seed of the tabular experiment gives: encoded data, fitted models, and the factuals to be explained."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.data.datasets import Dataset
from counterpath.data.encoding import Encoder
from counterpath.geometry.graph import Neighbours
from counterpath.models.classifier import Classifier, fit_classifier, probabilities
from counterpath.models.training import Run
from counterpath.models.vae import VAE, VAETraining, fit_vae
from counterpath.search.measures import Case
from counterpath.search.method import SearchModels
from counterpath.search.methods import geometry_of
from counterpath.search.objective import Objective
from counterpath.search.traverse import Trajectory, traverse
from counterpath.utils.devices import map_blocks
from counterpath.utils.errors import InputError

Models = SearchModels[Classifier, VAE]

OPTIMIZERS = ("sgd", "rsgd", "rsgd-c")
"""The paper's three methods, which differ in the metric of the VAE's latent space alone."""
STEPS = (50, 100, 150)
"""After how many gradient steps the paper's tables measure."""
FIDELITY = 0.1
"""α, the weight of the fidelity term in the half of the runs that has it; the paper's."""
THRESHOLDS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
"""The confidences at which methods are compared: from the decision boundary on, close enough to draw a curve."""
AT_CONFIDENCE = ("ld", "ld_sq", "l1", "l2", "l2_sq")
"""What is measured of the first point that reaches a confidence; LD along the path up to there, besides."""
_LATENT_DIM = 5
"""As in the paper's appendix, on both data sets."""


@dataclass(frozen=True)
class Settings:
    """What differs between the data sets; as in the paper's appendix, where Adult has 200 centres, and no damping.

    Attributes:
        centers: RBF centres.
        std_learning_rate: Adam's, for the RBF network.
        positive_weight: How much an error on class 1 weighs; None weighs the classes alike.
        damping: Added to the metric's diagonal. One latent direction in five is hardly used by the decoder, and without
            damping most of a step of fixed length goes there. This is small beside the metric's other eigenvalues, 0.03
            and more; `dampings` in the results shows what it buys.
    """

    centers: int
    std_learning_rate: float
    positive_weight: float | None
    damping: float


EXPERIMENTS = {"adult": "adult-carla", "gmc": "gmc"}
"""By experiment the data set that it is about: the tables of CARLA, as the paper has them."""
SETTINGS = {"adult-carla": Settings(500, 1e-3, 1.5, 5e-3), "gmc": Settings(350, 1e-2, None, 5e-3)}
"""By data set. Where they depart from the appendix, they were chosen in trial runs: see docs/results/README.md."""


@dataclass(frozen=True)
class Preset:
    """How large the experiment is.

    Attributes:
        mean_epochs: For encoder and mean of the VAE.
        std_epochs: For its uncertainty.
        curve_epochs: For the uncertainty at each bandwidth of the trade-off curve.
        factuals: At most so many rows are explained; None for all.
        curve_factuals: The same, for the trade-off curve.
    """

    mean_epochs: int
    std_epochs: int
    curve_epochs: int
    factuals: int | None
    curve_factuals: int


PRESETS = {"quick": Preset(12, 4, 1, 1000, 300), "paper": Preset(100, 300, 6, None, 2000)}
"""`quick` takes minutes on two cores; `paper` trains as long as the paper's appendix says, and explains every row."""


@dataclass(frozen=True)
class EncodedData:
    """The rows of a data set as tensors, with their labels, 0 or 1."""

    train: Float[Tensor, "m D"]
    test: Float[Tensor, "n D"]
    train_labels: Float[Tensor, "m"]
    test_labels: Float[Tensor, "n"]

    @classmethod
    def of(cls, data: Dataset, device: torch.device) -> "EncodedData":
        """Encode a data set."""
        encoder, names = data.encoder(), list(data.schema.names)
        train, test = (encoder.encode(frame[names]).to(device) for frame in (data.train, data.test))
        train_labels, test_labels = (
            torch.from_numpy(frame[data.target].to_numpy(np.float32)).to(device) for frame in (data.train, data.test)
        )
        return cls(train, test, train_labels, test_labels)

    def correctly_rejected(self, classifier: Classifier) -> Float[Tensor, "k D"]:
        """The test rows of class 0 that the classifier rejects: those to be explained."""
        return self.test[(self.test_labels == 0) & (map_blocks(classifier, self.test) <= 0)]


@dataclass(frozen=True)
class Study:
    """What one seed gives: encoded data, fitted models, and the factuals to be explained."""

    encoder: Encoder
    data: EncodedData
    models: Models
    factual: Tensor
    neighbours: Neighbours

    @property
    def classifier(self) -> Classifier:
        """The model under explanation."""
        return self.models.classifier

    @property
    def vae(self) -> VAE:
        """The generative model."""
        return vae_of(self.models)

    def case(self, counterfactual: Tensor, confidence: float = 0.5, factual: Tensor | None = None) -> Case:
        """Counterfactuals, rounded to legal rows, beside their factuals."""
        legal = self.encoder.round(counterfactual)
        factual = self.factual if factual is None else factual
        return Case(factual, legal, self.classifier.probability, self.encoder, self.neighbours, confidence)

    def predict_proba(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n 2"]:
        """The probability of either class."""
        return probabilities(map_blocks(self.classifier, x))


def build(data: Dataset, size: Preset, run: Run, device: torch.device) -> Study:
    """Encode the data and fit classifier and VAE as the paper's appendix says."""
    rows = EncodedData.of(data, device)
    return assemble(data, rows, fit_models(rows, SETTINGS[data.name], size, run), size.factuals)


def assemble(data: Dataset, rows: EncodedData, fitted: Models, factuals: int | None = None) -> Study:
    """The study of models that were fitted before, with at most `factuals` rows to be explained, None for all."""
    encoder, models = data.encoder(), fitted.folded()
    neighbours = Neighbours(rows.train, encoder.weights.to(rows.train.device))
    return Study(encoder, rows, models, rows.correctly_rejected(models.classifier)[:factuals], neighbours)


def vae_of(models: Models) -> VAE:
    """The VAE of models that have one."""
    if models.vae is None:
        raise InputError("a latent step needs a VAE, and there is none: give models with one")
    return models.vae


def fit_models(rows: EncodedData, settings: Settings, size: Preset, run: Run) -> Models:
    """Classifier and VAE as training leaves them, with their BatchNorm layers."""
    balance = float((rows.train_labels == 0).sum() / (rows.train_labels == 1).sum())
    classifier = fit_classifier(
        rows.train,
        rows.train_labels,
        class_weights=(1.0, balance if settings.positive_weight is None else settings.positive_weight),
        run=run,
    )
    training = VAETraining(
        mean_epochs=size.mean_epochs, std_epochs=size.std_epochs, std_learning_rate=settings.std_learning_rate
    )
    vae = fit_vae(rows.train, _LATENT_DIM, centers=settings.centers, training=training, run=run)
    return SearchModels(classifier, vae)


def local_search(
    models: Models,
    method: str,
    factual: Float[Tensor, "n D"],
    *,
    fidelity: float = 0.0,
    **options: Any,
) -> Trajectory:
    """Search by gradient steps, as all experiments and benchmarks do.

    Args:
        models: The fitted models.
        method: A method that takes gradient steps.
        factual: The rows to start from.
        fidelity: α, the weight of the fidelity term; without it the term is left out.
        options: As of `traverse`.
    """
    model, metric = geometry_of(method, models)
    return traverse(model, metric, Objective(models.classifier, fidelity=fidelity), factual, **options)


def over_seeds(values: Sequence[Any], reduce: Callable[[Sequence[Any]], Any]) -> Any:
    """Reduce every number in nested dictionaries and lists of one shape, one for each seed."""
    if isinstance(values[0], dict):
        return {key: over_seeds([value[key] for value in values], reduce) for key in values[0]}
    if isinstance(values[0], list):
        return [over_seeds(items, reduce) for items in zip(*values, strict=True)]
    return reduce(values)


def mean_or_none(values: Tensor) -> float | None:
    """The mean, or None where there is nothing to average."""
    return float(values.double().mean()) if len(values) else None
