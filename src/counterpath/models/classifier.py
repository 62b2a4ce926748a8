"""The classifier under explanation: a representation h and a linear last layer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from counterpath.geometry.metric import VJP, pull, push
from counterpath.models.layers import mlp
from counterpath.models.training import Run, seeded, train
from counterpath.utils.devices import map_blocks
from counterpath.utils.errors import InputError

PredictProba = Callable[[Tensor], Tensor]
Thresholds = tuple[float, ...]
"""τ of every class, together 1: see `decide`."""
"""A model as a function: legal encoded rows `(n, D)` to the probability of every class `(n, K)`.

Of a regressor it is the number that it predicts, `(n, 1)`.
"""


@runtime_checkable
class Differentiable(Protocol):
    """A classifier that a search can follow downhill."""

    @property
    def representation(self) -> Callable[[Tensor], Tensor]:
        """h: X → R^H, what the classifier sees of a row before it decides."""
        ...

    def __call__(self, x: Tensor) -> Tensor:
        """The log odds of class 1 `(n,)`, or one logit a class `(n, K)`."""
        ...


class Beside(nn.Module):
    """Two functions of a row side by side: [network(x), linear(x)]."""

    def __init__(self, network: nn.Sequential, linear: nn.Linear) -> None:
        super().__init__()
        self.network, self.linear = network, linear

    def forward(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n h"]:
        """Both outputs."""
        return torch.cat([self.network(x), self.linear(x)], dim=-1)


@push.register(Beside)
def _(layer: Beside, value: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    first, first_tangents = push(layer.network, value, tangents)
    second, second_tangents = push(layer.linear, value, tangents)
    each = [pushed.expand(-1, len(value), -1) for pushed in (first_tangents, second_tangents)]
    return torch.cat([first, second], dim=-1), torch.cat(each, dim=-1)


@pull.register(Beside)
def _(layer: Beside, value: Tensor) -> tuple[Tensor, VJP]:
    (first, first_vjp), (second, second_vjp) = pull(layer.network, value), pull(layer.linear, value)
    width = first.shape[-1]
    return torch.cat(
        [first, second], dim=-1
    ), lambda cotangent: first_vjp(cotangent[..., :width]) + second_vjp(cotangent[..., width:])


def side_width(logits: int) -> int:
    """How many linear functions stand beside a network for so many logits: a multiple of 16, and those beyond are 0.

    Narrower products depend on where in a block a row stands, by a bit or two, and answers must not.
    """
    return -(-logits // 16) * 16


class Classifier(nn.Module):
    """c(x) = sigmoid(wᵀh(x) + b), with h: X → R^H an MLP of widths 2H, 2H, H, H; softmax for more than two classes.

    Args:
        features: Width of a row.
        width: H, the size of the MLP's representation.
        classes: How many classes.
        linear: Let h have linear functions of the row beside the MLP, at least one for every logit, so that a logistic
            regression is a special case.
    """

    def __init__(self, features: int, width: int = 24, classes: int = 2, *, linear: bool = False) -> None:
        super().__init__()
        hidden = mlp([features, 2 * width, 2 * width, width, width])
        logits = 1 if classes == 2 else classes
        network = nn.Sequential(*hidden, nn.BatchNorm1d(width), nn.Tanh())
        beside = side_width(logits) if linear else 0
        self.representation = Beside(network, nn.Linear(features, beside)) if linear else network
        self.head = nn.Linear(width + beside, logits)

    def forward(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n"] | Float[Tensor, "n K"]:
        """The log odds of class 1; with more than two classes one logit a class."""
        logits = self.head(self.representation(x))
        return logits[:, 0] if logits.shape[-1] == 1 else logits  # type: ignore[no-any-return]

    def probability(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
        """The probability of class 1, of two."""
        return torch.sigmoid(self(x))


@pull.register(Classifier)
def _(classifier: Classifier, value: Tensor) -> tuple[Tensor, VJP]:
    h, h_vjp = pull(classifier.representation, value)
    logits, head_vjp = pull(classifier.head, h)
    if logits.shape[-1] > 1:
        return logits, lambda cotangent: h_vjp(head_vjp(cotangent))
    return logits[:, 0], lambda cotangent: h_vjp(head_vjp(cotangent[:, None]))


def probabilities(logits: Tensor) -> Float[Tensor, "n K"]:
    """The probability of every class, from the log odds of class 1 `(n,)` or one logit a class `(n, K)`."""
    if logits.ndim == 1:
        return torch.stack([torch.sigmoid(-logits), torch.sigmoid(logits)], dim=-1)
    return torch.softmax(logits, dim=-1)


def log_probabilities(logits: Tensor) -> Float[Tensor, "n K"]:
    """The logarithm of `probabilities`, which stays finite where they vanish."""
    if logits.ndim == 1:
        logits = torch.stack([torch.zeros_like(logits), logits], dim=-1)
    return torch.log_softmax(logits, dim=-1)


_BLOCK_ROWS = {"cuda": 1 << 16}
"""Rows in a block of our own classifier where that is not what suits the device: it is so small that launching its
kernels takes longer than running them on fewer rows; a user's may be large."""


@dataclass(frozen=True)
class _Blockwise:
    """What `blockwise_proba` returns."""

    classifier: Differentiable
    numbers: bool = False

    @property
    def never_waits(self) -> bool:
        """Whether a call never waits for the device: so it is with our classifier, while a user's may do anything."""
        return isinstance(self.classifier, Classifier)

    @torch.no_grad()
    def __call__(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n K"]:
        size = _BLOCK_ROWS.get(x.device.type) if isinstance(self.classifier, Classifier) else None
        if self.numbers:
            return map_blocks(self.classifier, x, block_size=size)[:, None]
        return map_blocks(lambda rows: probabilities(self.classifier(rows)), x, block_size=size)


def decide(probabilities: Float[Tensor, "n K"], thresholds: Thresholds | None = None) -> Int[Tensor, "n"]:
    """The index of the class that is decided: argmax pₖ/τₖ, and without thresholds the most probable, first of equals.

    Of two classes that is the second one from its threshold on: p₁ ≥ τ₁.
    """
    if thresholds is None:
        return probabilities.argmax(-1)
    if len(thresholds) == 2:
        return (probabilities[:, 1] >= thresholds[1]).long()
    # No tensor of thresholds: it would be copied to the device, which what is captured in a CUDA graph must not be.
    return torch.stack([of / at for of, at in zip(probabilities.unbind(-1), thresholds, strict=True)], -1).argmax(-1)


def blockwise_proba(classifier: Differentiable, *, numbers: bool = False) -> PredictProba:
    """Encoded rows to the probability of every class, by a torch classifier, in blocks of one shape.

    Args:
        classifier: The classifier.
        numbers: It is a regressor: what it returns is what it predicts, `(n, 1)`.
    """
    return _Blockwise(classifier, numbers)


def fit_classifier(
    x: Float[Tensor, "n D"],
    y: Float[Tensor, "n"] | Float[Tensor, "n K"],
    *,
    width: int = 24,
    epochs: int = 20,
    batch_size: int = 1024,
    learning_rate: float = 1e-4,
    weight_decay: float = 0.05,
    class_weights: Sequence[float] | None = None,
    run: Run | None = None,
    name: str = "classifier",
) -> Classifier:
    """Train a classifier by weighted cross entropy with RMSprop.

    Args:
        x: Rows.
        y: Labels, 0 or 1; or for every row the probability of class 1, or of each of K > 2 classes, to be learned.
        width: H, the size of the representation.
        epochs: Passes over the data.
        batch_size: Rows in a batch.
        learning_rate: RMSprop's.
        weight_decay: ℓ2 regularisation.
        class_weights: How much an error on each class weighs; by default the same.
        run: Seed, checkpoint and progress.
        name: For messages and the checkpoint.
    """
    run = run or Run()
    classes = 2 if y.ndim == 1 else y.shape[-1]
    _check_labels(y)
    with seeded(run.seed):
        classifier = Classifier(x.shape[-1], width, classes).to(x)
    weights = torch.tensor([1.0] * classes if class_weights is None else list(class_weights)).to(x)

    def loss(batch: tuple[Tensor, ...], generator: torch.Generator) -> Tensor:
        rows, labels = batch
        if labels.ndim == 1:
            ratio = weights[1] / weights[0]
            return F.binary_cross_entropy_with_logits(classifier(rows), labels, pos_weight=ratio)
        return F.cross_entropy(classifier(rows), labels, weight=weights)

    rmsprop = partial(torch.optim.RMSprop, lr=learning_rate, weight_decay=weight_decay)
    data = (x, y.to(x.dtype))
    train(name, classifier, loss, data, epochs=epochs, batch_size=batch_size, optimizer=rmsprop, run=run)
    return classifier.requires_grad_(False)


def _check_labels(y: Tensor) -> None:
    outside = y[(y < 0) | (y > 1)]
    if len(outside):
        raise InputError(f"labels must be 0 or 1, or probabilities; given {outside.unique().tolist()[:5]}")
    present = y.unique().tolist() if y.ndim == 1 else y.argmax(-1).unique().tolist()
    if len(present) < 2:
        raise InputError(f"a classifier needs more than one class in its labels; given only class {present[0]:g}")


def balanced_accuracy(classifier: Classifier, x: Float[Tensor, "n D"], y: Float[Tensor, "n"]) -> float:
    """The mean over both classes of the share that is classified correctly."""
    from sklearn.metrics import balanced_accuracy_score

    with torch.no_grad():
        return float(balanced_accuracy_score((y > 0.5).cpu(), (classifier(x) > 0).cpu()))


@torch.no_grad()
def rescaled(regressor: Classifier, mean: float, spread: float) -> Classifier:
    """A regressor of standardised numbers as one of the numbers themselves: mean and spread become part of its head."""
    regressor.head.weight.mul_(spread)
    regressor.head.bias.mul_(spread).add_(mean)
    return regressor
