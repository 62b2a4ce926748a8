"""A differentiable stand-in for a black box."""

import copy
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from counterpath.models.classifier import Classifier, Thresholds, blockwise_proba, decide, log_probabilities
from counterpath.models.layers import update_batch_norm
from counterpath.models.training import Run, seeded, train

WIDTH = 48  # twice that of our own classifier: what it imitates may be far from smooth
STEPS = 800  # of the optimiser, whatever the number of rows: with a falling rate they do what 2,500 did without
STEPS_AGAIN = 200  # to learn from disagreements as well, which are few
BATCH_SIZE = 512  # at most, as for the VAE
_BATCHES = 16  # make an epoch of a small table: small batches keep it from learning drawn rows by heart
_LEARNING_RATE = 1e-2  # of Adam, at the beginning: with BatchNorm training stays steady, and unseen rows agree best
_WEIGHT_DECAY = 0.1  # decoupled; with less, probabilities of rows that it has not seen are farther off
_REPEATS = 4  # so that a few disagreements among thousands of rows weigh in the loss, without outweighing the rest
_CLOSE = 0.25
"""Of the spread of a regressor's predictions: a surrogate that is as near explains 94 % of their variance."""
_OFF = 0.1
"""A probability that is wrong by this much can hide a decision from a search, which stops at a confidence."""


@dataclass(frozen=True)
class Agreement:
    """How often surrogate and model decide for the same class, by the threshold of the model if it has one.

    Attributes:
        held_out: On held-out rows.
        drawn: On rows that the generative model drew, and that the surrogate never saw.
        visited: On rows that the last searches visited, by the surrogate that they followed, which was trained on those
            of the searches before. It learned from them then, so that the one that is used agrees no less.
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


def fit_surrogate(
    data: SurrogateData, *, run: Run, name: str = "surrogate", start: Classifier | None = None
) -> Classifier:
    """Learn a model's probabilities by cross entropy (Hinton, Vinyals and Dean, "Distilling the knowledge", 2015).

    Of a regressor, whose numbers are standardised and have one column, by the squared error.

    Args:
        data: What to learn from.
        run: Seed, checkpoint and progress.
        name: For messages and the checkpoint.
        start: A surrogate that has learned from most of the data already: a few steps more will do.
    """
    target = data.probabilities.to(data.x.dtype)
    if start is None:
        with seeded(run.seed):
            surrogate = Classifier(data.x.shape[-1], WIDTH, max(target.shape[-1], 2)).to(data.x)
    else:
        surrogate = copy.deepcopy(start).requires_grad_(True)
    batch = min(BATCH_SIZE, max(1, len(data.x) // _BATCHES))
    steps = STEPS if start is None else STEPS_AGAIN

    def loss(batch: tuple[Tensor, ...], generator: torch.Generator) -> Tensor:
        rows, wanted = batch
        if wanted.shape[-1] == 1:
            return F.mse_loss(surrogate(rows), wanted[:, 0])
        return -(wanted * log_probabilities(surrogate(rows))).sum(-1).mean()

    train(
        name,
        surrogate,
        loss,
        (data.x, target),
        epochs=max(4, steps // max(1, len(data.x) // batch)),
        batch_size=batch,
        optimizer=partial(torch.optim.AdamW, lr=_LEARNING_RATE, weight_decay=_WEIGHT_DECAY, fused=True),
        run=run,
        anneal=True,
    )
    update_batch_norm(surrogate, data.x)
    return surrogate.requires_grad_(False)


def disagreements(surrogate: Classifier, data: SurrogateData, thresholds: Thresholds | None = None) -> SurrogateData:
    """The rows on which a surrogate is more than 0.1 off or decides for another class, several times over.

    They are few beside all that it learns from, and they are where searches go.
    """
    numbers = data.probabilities.shape[-1] == 1
    predicted = blockwise_proba(surrogate, numbers=numbers)(data.x)
    wrong = (predicted - data.probabilities).abs().amax(-1) > _OFF
    wrong |= decide(predicted, thresholds) != decide(data.probabilities, thresholds)
    return SurrogateData(data.x[wrong].repeat(_REPEATS, 1), data.probabilities[wrong].repeat(_REPEATS, 1))


def agreement(surrogate: Classifier, data: SurrogateData, thresholds: Thresholds | None = None) -> float:
    """The share of rows for which both decide for the same class, or much the same number; 1 if there are none."""
    if len(data.x) == 0:
        return 1.0
    if data.probabilities.shape[-1] == 1:
        off = (blockwise_proba(surrogate, numbers=True)(data.x) - data.probabilities).abs()
        return float((off <= _CLOSE).double().mean())
    both = (decide(said, thresholds) for said in (blockwise_proba(surrogate)(data.x), data.probabilities))
    return float(torch.eq(*both).double().mean())
