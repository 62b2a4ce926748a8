"""Fit all that explanations need to a table: a latent space, a classifier to follow, and what methods fit.

The table is made ready first: labels apart, columns checked, gaps kept or filled in.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.data.constraints import parse_forbidden
from counterpath.data.encoding import Encoder
from counterpath.data.impute import Imputer
from counterpath.data.schema import Schema
from counterpath.data.tables import check_columns, to_pandas, without_ignored
from counterpath.fitting.fitted import FittedModels
from counterpath.models.classifier import Classifier, PredictProba, blockwise_proba, fit_classifier
from counterpath.models.explained import (
    ExplainedModel,
    Labelled,
    Labels,
    TorchClassifier,
    black_box_proba,
    check_ignored,
    class_labels,
    is_torch,
    predict_proba,
    qualified_name,
    table_proba,
)
from counterpath.models.flow import FlowModel, fit_flow
from counterpath.models.generator import Autoencoder, Generator, draw
from counterpath.models.layers import fold, update_batch_norm
from counterpath.models.surrogate import Agreement, SurrogateData, agreement, disagreements, fit_surrogate
from counterpath.models.training import Run
from counterpath.models.vae import OUTPUTS, VAE, VAETraining, fit_uncertainty, fit_vae
from counterpath.search.feasible import FeasibleSet
from counterpath.search.method import Method, Problem, SearchModels, SearchOptions, SearchSetup
from counterpath.search.methods import METHODS, search
from counterpath.search.objective import Target
from counterpath.search.roadmap import Landmarks
from counterpath.utils.errors import InputError, choose

FEWEST_ROWS = 10  # fewer rows than that tell no model anything
MISSING = ("auto", "keep", "impute", "error")
"""How missing values can be treated: kept as values of their own, filled in, or refused; or kept where the model takes
them, and refused where it does not."""
_ASKED_GAPS = 64  # rows with gaps on which a model is tried: one of each column where that many have some
TargetColumn = str | Sequence[Any] | pd.Series | np.ndarray | None
"""The column of the label, the labels, or neither."""


@dataclass(frozen=True)
class TrainingTable:
    """A training table that is ready to be fitted to.

    Attributes:
        features: The rows without labels; with gaps where the schema has them.
        labels: The labels, if there are any.
        target: The name of their column.
        encoder: Of the features.
        imputer: What fills in gaps, if they are filled in.
    """

    features: pd.DataFrame
    labels: pd.Series | None
    target: str | None
    encoder: Encoder
    imputer: Imputer | None


def prepare_training(
    table: Any, target: TargetColumn, schema: Schema | None, encoder: Encoder | None, *, missing: str, model: Any = None
) -> TrainingTable:
    """A table to fit to: what is not given of schema and encoder follows from it.

    Args:
        table: A table of pandas, polars or Arrow.
        target: The column of the label, the labels, or neither.
        schema: What the columns are.
        encoder: A fitted encoder, whose schema it is then.
        missing: One of `MISSING`.
        model: The model to explain, which may refuse gaps; None for ours, which does not.
    """
    choose("way to treat missing values", missing, dict.fromkeys(MISSING))
    features, labels, name = _without_labels(to_pandas(table), target)
    if len(features) < FEWEST_ROWS:
        raise InputError(f"a fit needs at least {FEWEST_ROWS} rows; given {len(features)}")
    if encoder is not None:
        schema = encoder.schema
    schema = Schema.infer(features) if schema is None else schema
    features = without_ignored(features, schema)
    check_columns(features, schema)
    check_ignored(model, schema)
    parse_forbidden(schema)  # what cannot be used is said before hours of training, and not after
    imputer = Imputer.fit(features, schema) if missing == "impute" else None
    features = features if imputer is None else imputer.fill(features)[0]
    if encoder is None:
        if missing in ("auto", "keep"):
            schema = _with_gaps(schema, features, model, missing)
        encoder = Encoder.fit(features, schema)
    return TrainingTable(features, labels, name, encoder, imputer)


def _with_gaps(schema: Schema, features: pd.DataFrame, model: Any, missing: str) -> Schema:
    """The schema in which what is missing in some row may be, if the model takes such rows.

    Raises:
        InputError: It does not.
    """
    gaps = features[list(schema.names)].isna()
    names = [name for name in schema.names if gaps[name].any()]
    if not names:
        return schema
    if model is not None:
        first = [int(gaps[name].to_numpy().argmax()) for name in names][:_ASKED_GAPS]
        try:
            if is_torch(model):
                raise TypeError("a torch module sees encoded rows; give the encoder, too, whose schema has gaps")
            predict_proba(model, features.iloc[first])
        except Exception as error:
            raise InputError(
                f"column {names[0]!r}, row {features.index[first[0]]}: the value is missing, and "
                f"{qualified_name(model)} does not take rows with gaps, so missing={missing!r} cannot keep them "
                f"({str(error).splitlines()[0]}); fill them in with missing='impute', or give a pipeline that does"
            ) from error
    for name in names:
        schema = schema.replace(name, missing=True)
    return schema


def _without_labels(frame: pd.DataFrame, target: TargetColumn) -> tuple[pd.DataFrame, pd.Series | None, str | None]:
    """Features, labels, and the name of the labels' column."""
    if target is None:
        return frame, None, None
    if isinstance(target, str):
        if target not in frame.columns:
            raise InputError(f"the table has no target column {target!r}; it has: {', '.join(map(str, frame.columns))}")
        return frame.drop(columns=target), frame[target], target
    labels = pd.Series(target) if not isinstance(target, pd.Series) else target
    if len(labels) != len(frame):
        raise InputError(f"there are {len(labels)} labels for {len(frame)} rows; expected one for each")
    return frame, labels, None if labels.name is None else str(labels.name)


_HELD_OUT = 0.1  # share of rows kept from training, to judge the models by: the usual tenth
_MOST_HELD_OUT = 4000  # a share of so many is known to within 1.6 %
_FEWEST_TO_HOLD_OUT = 200  # of fewer rows a tenth would say nothing, and training needs them all
_RARE_CLASS = 20  # rows; of a class that is rarer none is held out
_MOST_DRAWN = 20_000  # rows drawn for a surrogate: it bounds what the explained model is asked
_FEWEST_DRAWN = 1000  # a surrogate of a small table learns from so many drawn rows all the same
_SEARCHED_ROWS = 400  # rows from which searches visit what a surrogate learns again from
_SEARCH_STEPS = 60  # of those searches: with steps of 0.1 six units of a space whose codes have unit scale
_SURROGATE_ROUNDS = 2  # rounds in which a surrogate learns from its own disagreements; each costs a fit
_SURROGATE_CONFIDENCE = 0.7  # up to which those searches go: beyond the boundary, where answers end
_GENERATOR_STEPS, _CLASSIFIER_STEPS, _FLOW_STEPS = 4000, 1500, 2000
"""Optimiser steps, whatever the size of the table: they set how long a fit takes."""
_FLOW_NOISE = 0.01  # of a range, so that a flow, which is a density, can be fitted to discrete features
_EPOCHS = 20, 400  # the fewest and most: a large table is seen often enough, a tiny one not for ever
_BATCH = 16, 512  # smallest and largest batch: BatchNorm needs some rows, and eight batches make an epoch


@dataclass(frozen=True)
class Sizes:
    """How large the models are and how long they are trained; "auto" follows the table.

    Attributes:
        latent_dim: Width of a code: 5, as in the paper, up to 15 features; a third of the features beyond, at most 16.
        hidden: Widths of the encoder's hidden layers.
        n_centers: RBF centres of the uncertainty: one for every twenty rows, from 10 to 200.
        epochs: For encoder and mean: about 4,000 optimiser steps, from 20 to 400 epochs.
        numeric_output: How the decoder ends for numbers, "sigmoid" or "linear".
    """

    latent_dim: int | str = "auto"
    hidden: tuple[int, ...] = (512, 256)
    n_centers: int | str = "auto"
    epochs: int | str = "auto"
    numeric_output: str = "sigmoid"

    def __post_init__(self) -> None:
        for name in ("latent_dim", "n_centers", "epochs"):
            value = getattr(self, name)
            if value != "auto" and (isinstance(value, bool | str) or value < 1):
                raise InputError(f"{name} is {value!r}; expected a whole number from 1, or 'auto'")
        if not self.hidden or min(self.hidden) < 1:
            raise InputError(f"hidden is {self.hidden!r}; expected widths of layers, for instance (512, 256)")
        choose("way to decode numbers", self.numeric_output, OUTPUTS)


def hold_out(count: int, seed: int, labels: np.ndarray | None = None) -> Tensor:
    """Which of `count` rows are kept from training: a tenth, at most 4,000; none of fewer than 200 rows.

    Rows of a class with fewer than 20 rows are not: training needs them.
    """
    held_out = torch.zeros(count, dtype=torch.bool)
    if count >= _FEWEST_TO_HOLD_OUT:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        held_out[order[: min(_MOST_HELD_OUT, int(_HELD_OUT * count))]] = True
    if labels is not None:
        held_out &= torch.from_numpy(np.bincount(labels)[labels] >= _RARE_CLASS)
    return held_out


def fit_generator(
    rows: Tensor, encoder: Encoder, sizes: Sizes, run: Run, own: Autoencoder | None = None
) -> VAE | Generator:
    """Fit a VAE to the rows, which can be conditioned on any features, or our uncertainty to a user's own generator."""
    batch, epochs = schedule(len(rows), _GENERATOR_STEPS)
    epochs = epochs if isinstance(sizes.epochs, str) else sizes.epochs
    training = VAETraining(
        mean_epochs=epochs,
        std_epochs=max(2, math.ceil(epochs / 8)),
        batch_size=batch,
        std_learning_rate=0.01,
    )
    different = len(torch.unique(rows, dim=0))
    if different < 2:
        raise InputError("all training rows are equal: there is nothing that could change")
    centers = sizes.n_centers if isinstance(sizes.n_centers, int) else min(200, max(10, len(rows) // 20))
    if len(encoder.schema.immutable) == len(encoder.schema):
        raise InputError("all features are immutable: there is nothing that could change")
    if own is not None:
        model = Generator(own, rows, centers=centers, category=_categories(encoder, rows))
        fit_uncertainty(model, rows, training=training, run=run)
        return model
    return fit_vae(
        rows,
        _latent(sizes.latent_dim, len(encoder.schema)),
        features=encoder.layout,
        always_conditioned=encoder.columns(*encoder.schema.immutable),
        hidden=sizes.hidden,
        output=sizes.numeric_output,
        blocks=encoder.blocks,
        centers=min(centers, different),
        training=training,
        run=run,
    )


def fit_own_classifier(
    rows: Tensor, labels: np.ndarray, classes: int, weights: tuple[float, ...] | None, run: Run
) -> Classifier:
    """Train the classifier under explanation ourselves, longer and with less decay than the paper does."""
    batch, epochs = schedule(len(rows), _CLASSIFIER_STEPS)
    y = torch.from_numpy(labels).to(rows.device)
    target = y.to(rows.dtype) if classes == 2 else torch.nn.functional.one_hot(y, classes).to(rows.dtype)
    classifier = fit_classifier(
        rows,
        target,
        epochs=epochs,
        batch_size=batch,
        learning_rate=3e-4,
        weight_decay=1e-4,
        class_weights=weights,
        run=run,
    )
    update_batch_norm(classifier, rows)
    return classifier


def fit_explained_surrogate(
    model: Any,
    classes: Labels,
    generator: VAE | Generator,
    encoder: Encoder,
    rows: Tensor,
    held_out: Tensor,
    run: Run,
) -> ExplainedModel:
    """Distil a black-box model: from training rows, from drawn rows, and from rows that searches visit.

    A search goes where the surrogate promises most, which is where it is most likely to be wrong. So it learns again
    from the rows that searches visited and on which the two disagreed, twice.
    """
    ask, trained = black_box_proba(model, encoder), rows[~held_out]
    count = min(_MOST_DRAWN, max(_FEWEST_DRAWN, len(rows)))
    drawn, unseen = encoder.round(draw(generator, trained, 2 * count, seed=run.seed)).chunk(2)
    data = SurrogateData(trained, ask(trained)) + SurrogateData(drawn, ask(drawn))
    test = rows[held_out] if bool(held_out.any()) else rows
    checks = [SurrogateData(x, ask(x)) for x in (test, unseen[:_MOST_HELD_OUT])]
    surrogate = fit_surrogate(data, run=run)
    for again in range(_SURROGATE_ROUNDS):
        visited = _visited(surrogate, ask, generator, encoder, trained, run.seed + again)
        data = data + disagreements(surrogate, visited)
        surrogate = fit_surrogate(data, run=run, name=f"surrogate again {again + 1}")
    visited = _visited(surrogate, ask, generator, encoder, trained, run.seed + _SURROGATE_ROUNDS)
    agreed = Agreement(*(agreement(surrogate, check) for check in (*checks, visited)))
    return ExplainedModel(
        "black-box", qualified_name(model), classes, ask, surrogate, agreed, table_proba(model, encoder)
    )


def _visited(
    surrogate: Classifier,
    predict_proba: PredictProba,
    generator: VAE | Generator,
    encoder: Encoder,
    rows: Tensor,
    seed: int,
) -> SurrogateData:
    """Rows that searches from a few training rows to any other class visit, as long as the surrogate is followed."""
    models = SearchModels[Any, Any](surrogate, generator).folded()
    surrogate_proba = blockwise_proba(surrogate)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:_SEARCHED_ROWS]
    start = rows[order.to(rows.device)]
    predicted = surrogate_proba(start)
    setup = SearchSetup(encoder, models, surrogate_proba, True, start, predicted)
    now, options = predicted.argmax(-1), SearchOptions(max_steps=_SEARCH_STEPS)
    visited = []
    for index in now.unique().tolist():
        feasible = FeasibleSet.of(encoder, start[now == index])
        target = Target(index, other=True, confidence=_SURROGATE_CONFIDENCE)
        visited.append(search(METHODS["rsgd"], Problem(setup, feasible, target, options)).x)
    x = torch.unique(torch.cat(visited), dim=0)
    return SurrogateData(x, predict_proba(x))


def fit_flow_model(rows: Tensor, run: Run) -> FlowModel:
    """Fit a normalizing flow to the rows, with a little noise: most features are discrete."""
    batch, epochs = schedule(len(rows), _FLOW_STEPS)
    noise = _FLOW_NOISE * torch.randn(rows.shape, generator=torch.Generator().manual_seed(run.seed)).to(rows)
    return fit_flow(rows + noise, epochs=epochs, batch_size=batch, run=run)


def torch_subject(module: Any, rows: Tensor, layer: str | None, name: str, classes: Labels | None) -> ExplainedModel:
    """A user's torch module as the explained model."""
    classifier = TorchClassifier(module, rows, layer)
    labels = tuple(range(classifier.classes)) if classes is None else classes
    if len(labels) != classifier.classes:
        raise InputError(
            f"{name} has {classifier.classes} classes, but the target column has {len(labels)}: "
            f"{', '.join(map(repr, labels))}"
        )
    return ExplainedModel("torch", name, labels, blockwise_proba(classifier), classifier)


def check_class_labels(schema: Schema, classes: Labels) -> None:
    """Raise an error if the schema has a label for a class that does not exist."""
    known = [str(label) for label in classes]
    unknown = [label for label in schema.class_labels if label not in known]
    if unknown:
        raise InputError(f"class_labels has {unknown[0]!r}; the classes are {', '.join(map(repr, classes))}")


def class_weights(choice: str | Mapping[Any, float] | None, classes: Labels, labels: np.ndarray) -> tuple[float, ...]:
    """How much an error on each class weighs: the same, as scikit-learn's "balanced", or as given."""
    if choice is None:
        return (1.0,) * len(classes)
    if choice == "balanced":
        counts = np.bincount(labels, minlength=len(classes))
        return tuple(float(weight) for weight in len(labels) / (len(classes) * counts))
    if isinstance(choice, str) or set(choice) - set(classes):
        raise InputError(f"class_weight is {choice!r}; expected None, 'balanced' or weights for {list(classes)!r}")
    return tuple(float(choice.get(label, 1.0)) for label in classes)


def schedule(rows: int, steps: int) -> tuple[int, int]:
    """A batch size, and how many epochs make about so many optimiser steps; from 20 to 400 of them."""
    batch = min(_BATCH[1], max(_BATCH[0], rows // 8))
    return batch, min(_EPOCHS[1], max(_EPOCHS[0], round(steps * batch / rows)))


def _latent(latent: int | str, features: int) -> int:
    if isinstance(latent, int):
        return latent
    return max(1, min(features, 5 if features <= 15 else min(16, features // 3)))


def _categories(encoder: Encoder, rows: Tensor) -> Tensor | None:
    return encoder.categorical.to(rows.device) if bool(encoder.categorical.any()) else None


@dataclass(frozen=True)
class FitConfig:
    """What is to be fitted, and how.

    Attributes:
        model: The explained model; None to train a classifier.
        generator: A user's own generator, instead of our VAE.
        method: How explanations will be searched for, with the models that it needs.
        class_weight: Of the classifier.
        representation_layer: The layer of a torch model that is its representation.
        sizes: Of the models.
        run: Seed, checkpoints and progress of their training.
        options: How to search, for what the method itself fits.
    """

    model: Any
    generator: Autoencoder | None
    method: Method
    class_weight: str | Mapping[Any, float] | None
    representation_layer: str | None
    sizes: Sizes
    run: Run
    options: SearchOptions = field(default_factory=SearchOptions)


def fit_models(
    config: FitConfig, encoder: Encoder, rows: Float[Tensor, "n D"], labelled: Labelled | None
) -> FittedModels:
    """Fit everything to encoded training rows and, if there are any, their labels.

    What can be refused is refused before anything is trained. Landmarks are training rows as they are decoded:
    different ones, at most 20,000 of them drawn at random, and of each class the rows of which the model is most
    confident, so that a high confidence has goals, too.
    """
    model, run = config.model, config.run
    classes = _classes(config, encoder, rows, labelled and labelled[0])  # before anything is trained
    check_class_labels(encoder.schema, classes)
    held_out = hold_out(len(rows), run.seed, labelled and labelled[1]).to(rows.device)
    trained = rows[~held_out]
    generator = fit_generator(trained, encoder, config.sizes, run, config.generator)
    if labelled is not None and model is None:
        weights = class_weights(config.class_weight, classes, labelled[1])
        kept = labelled[1][~held_out.cpu().numpy()]
        classifier = fit_own_classifier(trained, kept, len(classes), weights, run)
        explained = ExplainedModel(
            "own", "Counterpath's classifier", classes, blockwise_proba(fold(classifier)), classifier
        )
    elif is_torch(model):
        explained = torch_subject(model, rows, config.representation_layer, qualified_name(model), classes)
    else:
        explained = fit_explained_surrogate(model, classes, generator, encoder, rows, held_out, run)
    flow = fit_flow_model(trained, run) if "flow" in config.method.needs else None
    models = FittedModels(
        encoder, explained, generator, flow, rows, held_out, explained.predict_proba(rows), seed=run.seed
    )
    landmarks = Landmarks.of(models.latent, encoder.round, rows, models.probabilities, models.predict_proba, run.seed)
    models = replace(models, landmarks=landmarks)
    models.state(config.method, config.options)
    return models


def labels_for(models: FittedModels, labelled: Labelled | None) -> Tensor | None:
    """The labels of the training rows as the model's classes; None if there are none, or they are others."""
    if labelled is None or len(labelled[0]) != len(models.explained.classes):
        return None
    return torch.from_numpy(labelled[1]).to(models.rows.device)


def _classes(config: FitConfig, encoder: Encoder, rows: Float[Tensor, "n D"], labels: Labels | None) -> Labels:
    """The classes of the model under explanation; it is tried on a row, or all rows, to see that it works."""
    model = config.model
    if model is None:
        if labels is None:
            raise InputError("without a model to explain, fit needs the labels: target='column'")
        return labels
    if is_torch(model):
        return torch_subject(model, rows, config.representation_layer, qualified_name(model), labels).classes
    return class_labels(model, black_box_proba(model, encoder)(rows[:1]).shape[-1], labels)
