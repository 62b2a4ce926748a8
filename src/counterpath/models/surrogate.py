"""A differentiable stand-in for a model that can only be asked."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.models.classifier import Classifier, fit_classifier, probabilities
from counterpath.models.training import Run
from counterpath.utils.blocks import map_blocks

Answers = Callable[[Tensor], Tensor]
"""The model under explanation: legal encoded rows `(n, D)` to the probability of every class `(n, K)`."""

WIDTH = 48
STEPS = 2500
BATCH_SIZE = 512
_REPEATS = 4
_APART = 0.1


@dataclass(frozen=True)
class Agreement:
    """How often surrogate and model predict the same class.

    Attributes:
        held_out: On held-out rows.
        drawn: On rows that the generative model drew, and that the surrogate never saw.
        visited: On rows that searches visited, after the surrogate learned from those of the searches before.
    """

    held_out: float
    drawn: float
    visited: float


@dataclass(frozen=True)
class Lesson:
    """Rows, and what the model under explanation answers."""

    x: Float[Tensor, "n D"]
    answer: Float[Tensor, "n K"]

    def __add__(self, other: "Lesson") -> "Lesson":
        return Lesson(torch.cat([self.x, other.x]), torch.cat([self.answer, other.answer]))


def fit_surrogate(lesson: Lesson, *, run: Run, name: str = "surrogate") -> Classifier:
    """Learn a model's probabilities by cross entropy (Hinton, Vinyals and Dean, "Distilling the knowledge", 2015)."""
    target = lesson.answer[:, 1] if lesson.answer.shape[-1] == 2 else lesson.answer
    batch = min(BATCH_SIZE, max(1, len(lesson.x) // 4))
    epochs = max(4, STEPS // max(1, len(lesson.x) // batch))
    return fit_classifier(
        lesson.x,
        target.to(lesson.x.dtype),
        width=WIDTH,
        epochs=epochs,
        batch_size=batch,
        learning_rate=1e-3,
        weight_decay=1e-5,
        run=run,
        name=name,
    )


def mistakes(surrogate: Classifier, lesson: Lesson) -> Lesson:
    """The rows on which a surrogate is more than 0.1 off or predicts another class, several times over.

    They are few beside all that it learns from, and they are where searches go.
    """
    given = answers(surrogate, lesson.x)
    wrong = (given - lesson.answer).abs().amax(-1) > _APART
    wrong |= given.argmax(-1) != lesson.answer.argmax(-1)
    return Lesson(lesson.x[wrong].repeat(_REPEATS, 1), lesson.answer[wrong].repeat(_REPEATS, 1))


def agreement(surrogate: Classifier, lesson: Lesson) -> float:
    """The share of rows for which both predict the same class; 1 if there are none."""
    if len(lesson.x) == 0:
        return 1.0
    return float((answers(surrogate, lesson.x).argmax(-1) == lesson.answer.argmax(-1)).double().mean())


@torch.no_grad()
def answers(surrogate: Classifier, x: Float[Tensor, "n D"]) -> Float[Tensor, "n K"]:
    """The probability of every class."""
    return map_blocks(lambda rows: probabilities(surrogate(rows)), x)
