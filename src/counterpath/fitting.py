"""All that is learned from a table, in order: what can be refused is refused before anything is trained."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.data.encoding import Encoder
from counterpath.errors import InputError
from counterpath.learned import Learned
from counterpath.learning import (
    Sizes,
    class_weights,
    hold_out,
    learn_classifier,
    learn_flow,
    learn_space,
    learn_surrogate,
    torch_subject,
    with_roads,
)
from counterpath.models.generator import Autoencoder
from counterpath.models.layers import fold
from counterpath.models.training import Run
from counterpath.subject import Labelled, Labels, Subject, asked, classes_of, differentiable, is_torch, named


@dataclass(frozen=True)
class Lessons:
    """What is to be learned, and how.

    Attributes:
        model: The model under explanation; None to train a classifier.
        generator: A user's own generator, instead of our VAE.
        method: How explanations will be searched for; "flow" needs a flow.
        class_weight: Of the classifier.
        representation: The layer of a torch model that is its representation.
        sizes: Of the models.
        run: Seed, checkpoints and progress of their training.
        ambient: What `geodesic` measures steps by.
        priced: Whether it prices them by the uncertainty, too.
    """

    model: Any
    generator: Autoencoder | None
    method: str
    class_weight: str | Mapping[Any, float] | None
    representation: str | None
    sizes: Sizes
    run: Run
    ambient: str = "data"
    priced: bool = True


def learn(lessons: Lessons, encoder: Encoder, rows: Float[Tensor, "n D"], labelled: Labelled | None) -> Learned:
    """Learn from encoded training rows and, if there are any, their labels."""
    model, run = lessons.model, lessons.run
    classes = _classes(lessons, encoder, rows, labelled and labelled[0])  # before anything is trained
    held_out = hold_out(len(rows), run.seed, labelled and labelled[1]).to(rows.device)
    trained = rows[~held_out]
    space = learn_space(trained, encoder, lessons.sizes, run, lessons.generator)
    if labelled is not None and model is None:
        weights = class_weights(lessons.class_weight, classes, labelled[1])
        kept = labelled[1][~held_out.cpu().numpy()]
        classifier = learn_classifier(trained, kept, len(classes), weights, run)
        subject = Subject("own", "Counterpath's classifier", classes, differentiable(fold(classifier)), classifier)
    elif is_torch(model):
        subject = torch_subject(model, rows, lessons.representation, named(model), classes)
    else:
        subject = learn_surrogate(model, classes, space, encoder, rows, held_out, run)
    flow = learn_flow(trained, run) if lessons.method == "flow" else None
    learned = Learned(
        encoder,
        subject,
        space,
        flow,
        rows,
        held_out,
        subject.answers(rows),
        ambient=lessons.ambient,
        priced=lessons.priced,
    )
    return with_roads(learned, run.seed)


def labels_for(learned: Learned, labelled: Labelled | None) -> Tensor | None:
    """The labels of the training rows as the model's classes; None if there are none, or they are others."""
    if labelled is None or len(labelled[0]) != len(learned.subject.classes):
        return None
    return torch.from_numpy(labelled[1]).to(learned.rows.device)


def _classes(lessons: Lessons, encoder: Encoder, rows: Float[Tensor, "n D"], labels: Labels | None) -> Labels:
    """The classes of the model under explanation; it is tried on a row, or all rows, to see that it works."""
    model = lessons.model
    if model is None:
        if labels is None:
            raise InputError("without a model to explain, fit needs the labels: target='column'")
        return labels
    if is_torch(model):
        return torch_subject(model, rows, lessons.representation, named(model), labels).classes
    return classes_of(model, asked(model, encoder)(rows[:1]).shape[-1], labels)
