"""The classifier under explanation: a representation h and a linear last layer."""

from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from counterpath.errors import InputError
from counterpath.models.layers import mlp
from counterpath.models.training import Run, seeded, train


class Classifier(nn.Module):
    """c(x) = sigmoid(wᵀh(x) + b), with h: X → R^H an MLP of widths 2H, 2H, H, H.

    Args:
        features: Width of a row.
        width: H, the size of the representation.
    """

    def __init__(self, features: int, width: int = 24) -> None:
        super().__init__()
        hidden = mlp([features, 2 * width, 2 * width, width, width])
        self.representation = nn.Sequential(*hidden, nn.BatchNorm1d(width), nn.Tanh())
        self.head = nn.Linear(width, 1)

    def forward(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
        """The log odds of class 1."""
        return self.head(self.representation(x))[:, 0]  # type: ignore[no-any-return]

    def probability(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
        """The probability of class 1."""
        return torch.sigmoid(self(x))


def fit_classifier(
    x: Float[Tensor, "n D"],
    y: Float[Tensor, "n"],
    *,
    width: int = 24,
    epochs: int = 20,
    batch_size: int = 1024,
    learning_rate: float = 1e-4,
    weight_decay: float = 0.05,
    positive_weight: float = 1.0,
    run: Run | None = None,
) -> Classifier:
    """Train a classifier by weighted cross entropy with RMSprop.

    Args:
        x: Rows.
        y: Labels, 0 or 1.
        width: H, the size of the representation.
        epochs: Passes over the data.
        batch_size: Rows in a batch.
        learning_rate: RMSprop's.
        weight_decay: ℓ2 regularisation.
        positive_weight: How much more an error on class 1 weighs than one on class 0.
        run: Seed, checkpoint and progress.
    """
    run = run or Run()
    values = set(y.unique().tolist())
    if not values <= {0.0, 1.0}:
        raise InputError(f"labels must be 0 or 1; given {sorted(values)[:5]}")
    if len(values) < 2:
        raise InputError(f"a classifier needs both classes in its labels; given only class {int(values.pop())}")
    with seeded(run.seed):
        classifier = Classifier(x.shape[-1], width).to(x)
    weight = torch.tensor(positive_weight, dtype=x.dtype, device=x.device)

    def loss(batch: tuple[Tensor, ...], generator: torch.Generator) -> Tensor:
        rows, labels = batch
        return F.binary_cross_entropy_with_logits(classifier(rows), labels, pos_weight=weight)

    rmsprop = partial(torch.optim.RMSprop, lr=learning_rate, weight_decay=weight_decay)
    train(
        "classifier",
        classifier,
        loss,
        (x, y.to(x.dtype)),
        epochs=epochs,
        batch_size=batch_size,
        optimizer=rmsprop,
        run=run,
    )
    return classifier.requires_grad_(False)


def balanced_accuracy(classifier: Classifier, x: Float[Tensor, "n D"], y: Float[Tensor, "n"]) -> float:
    """The mean over both classes of the share that is classified correctly."""
    with torch.no_grad():
        correct = (classifier(x) > 0) == (y > 0.5)
    shares = [correct[(y > 0.5) == positive].double().mean() for positive in (False, True)]
    return float(sum(shares) / 2)
