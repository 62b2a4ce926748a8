"""What one seed of the tabular experiment gives: encoded data, fitted models, and the factuals to be explained."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.data.datasets import Dataset
from counterpath.data.encoding import Encoder
from counterpath.geometry.neighbours import Neighbours
from counterpath.models.classifier import Classifier, fit_classifier, probabilities
from counterpath.models.training import Run
from counterpath.models.vae import VAE, VAETraining, fit_vae
from counterpath.search.measures import Case
from counterpath.search.problem import SearchModels
from counterpath.utils.blocks import map_blocks

THRESHOLDS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
"""The confidences at which methods are compared."""
AT_CONFIDENCE = ("ld", "ld_sq", "l1", "l2", "l2_sq")
"""What is measured of the first point that reaches a confidence; LD along the path up to there, besides."""


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


SETTINGS = {"adult": Settings(500, 1e-3, 1.5, 5e-3), "gmc": Settings(350, 1e-2, None, 5e-3)}


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


@dataclass(frozen=True)
class Study:
    """What one seed gives: encoded data, fitted models, and the factuals to be explained."""

    encoder: Encoder
    train: Tensor
    test: Tensor
    train_labels: Tensor
    test_labels: Tensor
    classifier: Classifier
    vae: VAE
    factual: Tensor
    neighbours: Neighbours

    def case(self, counterfactual: Tensor, confidence: float = 0.5, factual: Tensor | None = None) -> Case:
        """Counterfactuals, rounded to legal rows, beside their factuals."""
        legal = self.encoder.round(counterfactual)
        given = self.factual if factual is None else factual
        return Case(given, legal, self.classifier.probability, self.encoder, self.neighbours, confidence)

    def answers(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n 2"]:
        """The probability of either class."""
        return probabilities(map_blocks(self.classifier, x))


@dataclass(frozen=True)
class Rows:
    """Encoded data and their labels, 0 or 1."""

    train: Tensor
    test: Tensor
    train_labels: Tensor
    test_labels: Tensor


def build(data: Dataset, size: Preset, run: Run, device: torch.device) -> Study:
    """Encode the data and fit classifier and VAE as the paper's appendix says."""
    rows = encoded(data, device)
    return assemble(data, rows, fit_models(rows, SETTINGS[data.name], size, run), size.factuals)


def assemble(data: Dataset, rows: Rows, fitted: SearchModels[Classifier, VAE], factuals: int | None = None) -> Study:
    """What models that were fitted give: at most `factuals` rows to be explained, None for all."""
    encoder, folded = data.encoder(), fitted.folded()
    assert folded.vae is not None
    return Study(
        encoder,
        rows.train,
        rows.test,
        rows.train_labels,
        rows.test_labels,
        folded.classifier,
        folded.vae,
        rejected(rows, folded.classifier)[:factuals],
        Neighbours(rows.train, encoder.weights.to(rows.train.device)),
    )


def encoded(data: Dataset, device: torch.device) -> Rows:
    """The data as tensors."""
    encoder, names = data.encoder(), list(data.schema.names)
    train, test = (encoder.encode(frame[names]).to(device) for frame in (data.train, data.test))
    train_labels, test_labels = (
        torch.from_numpy(frame[data.target].to_numpy(np.float32)).to(device) for frame in (data.train, data.test)
    )
    return Rows(train, test, train_labels, test_labels)


def fit_models(rows: Rows, settings: Settings, size: Preset, run: Run) -> SearchModels[Classifier, VAE]:
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
    return SearchModels(classifier, fit_vae(rows.train, 5, centers=settings.centers, training=training, run=run))


def rejected(rows: Rows, classifier: Classifier) -> Float[Tensor, "n D"]:
    """The test rows that the classifier rightly rejects: those to be explained."""
    return rows.test[(rows.test_labels == 0) & (map_blocks(classifier, rows.test) <= 0)]
