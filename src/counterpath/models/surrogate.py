"""A differentiable stand-in for a black box."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.models.classifier import Classifier, blockwise_proba, fit_classifier
from counterpath.models.training import Run

WIDTH = 48  # twice that of our own classifier: what it imitates may be far from smooth
STEPS = 2500  # of the optimiser, whatever the number of rows: more agree better, and each fit takes longer
BATCH_SIZE = 512  # as for the VAE; a quarter of the rows where there are few, so that an epoch has several steps
_REPEATS = 4  # so that a few disagreements among thousands of rows weigh in the loss, without outweighing the rest
_OFF = 0.1
"""A probability that is wrong by this much can hide a decision from a search, which stops at a confidence."""


@dataclass(frozen=True)
class Agreement:
    """How often surrogate and model predict the same class.

    Attributes:
        held_out: On held-out rows.
        drawn: On rows that the generative model drew, and that the surrogate never saw.
        visited: On rows that searches visited, after the surrogate was trained on those of the searches before.
    """

    held_out: float
    drawn: float
    visited: float


@dataclass(frozen=True)
class SurrogateData:
    """Rows, and the probabilities that the model under explanation gives them."""

    x: Float[Tensor, "n D"]
    probabilities: Float[Tensor, "n K"]

    def __add__(self, other: "SurrogateData") -> "SurrogateData":
        return SurrogateData(torch.cat([self.x, other.x]), torch.cat([self.probabilities, other.probabilities]))


def fit_surrogate(data: SurrogateData, *, run: Run, name: str = "surrogate") -> Classifier:
    """Learn a model's probabilities by cross entropy (Hinton, Vinyals and Dean, "Distilling the knowledge", 2015)."""
    target = data.probabilities[:, 1] if data.probabilities.shape[-1] == 2 else data.probabilities
    batch = min(BATCH_SIZE, max(1, len(data.x) // 4))
    epochs = max(4, STEPS // max(1, len(data.x) // batch))
    return fit_classifier(
        data.x,
        target.to(data.x.dtype),
        width=WIDTH,
        epochs=epochs,
        batch_size=batch,
        learning_rate=1e-3,
        weight_decay=1e-5,
        run=run,
        name=name,
    )


def disagreements(surrogate: Classifier, data: SurrogateData) -> SurrogateData:
    """The rows on which a surrogate is more than 0.1 off or predicts another class, several times over.

    They are few beside all that it learns from, and they are where searches go.
    """
    predicted = blockwise_proba(surrogate)(data.x)
    wrong = (predicted - data.probabilities).abs().amax(-1) > _OFF
    wrong |= predicted.argmax(-1) != data.probabilities.argmax(-1)
    return SurrogateData(data.x[wrong].repeat(_REPEATS, 1), data.probabilities[wrong].repeat(_REPEATS, 1))


def agreement(surrogate: Classifier, data: SurrogateData) -> float:
    """The share of rows for which both predict the same class; 1 if there are none."""
    if len(data.x) == 0:
        return 1.0
    return float((blockwise_proba(surrogate)(data.x).argmax(-1) == data.probabilities.argmax(-1)).double().mean())
