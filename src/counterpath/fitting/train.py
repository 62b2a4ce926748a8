"""Fit all that explanations need to a table: a latent space, a classifier to follow, and what methods fit.

The table is made ready first: labels apart, columns checked, gaps kept or filled in.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
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
from counterpath.data.tables import check_columns, draw_rows, to_pandas, without_ignored
from counterpath.fitting.fitted import FittedModels
from counterpath.models.classifier import Classifier, PredictProba, Thresholds, blockwise_proba, decide, rescaled
from counterpath.models.ensemble import fit_ensemble
from counterpath.models.explained import (
    ExplainedModel,
    Labelled,
    Labels,
    TorchClassifier,
    ask_table,
    black_box_proba,
    check_ignored,
    class_labels,
    is_regression,
    is_torch,
    parse_threshold,
    qualified_name,
    table_proba,
)
from counterpath.models.family import HELD_OUT, RETRAINED, SIZE, Family
from counterpath.models.flow import FlowModel, fit_flow
from counterpath.models.generator import Autoencoder, Generator, draw
from counterpath.models.layers import fold
from counterpath.models.own import fit_own, fit_own_regressor
from counterpath.models.surrogate import Agreement, SurrogateData, agreement, disagreements, fit_surrogate
from counterpath.models.training import Run
from counterpath.models.uncertainty import UNCERTAINTIES
from counterpath.models.vae import OUTPUTS, VAE, VAETraining, fit_uncertainty, fit_vae
from counterpath.search.feasible import FeasibleSet
from counterpath.search.method import Method, Problem, SearchModels, SearchOptions, SearchSetup
from counterpath.search.methods import METHODS, search
from counterpath.search.objective import NumberTarget, Target
from counterpath.search.roadmap import Landmarks
from counterpath.utils.devices import release_memory
from counterpath.utils.errors import CounterpathWarning, InputError, choose
from counterpath.utils.progress import stages, track

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
        numbers: Whether the labels are numbers to predict, and not classes.
    """

    features: pd.DataFrame
    labels: pd.Series | None
    target: str | None
    encoder: Encoder
    imputer: Imputer | None
    numbers: bool = False


def prepare_training(
    table: Any,
    target: TargetColumn,
    schema: Schema | None,
    encoder: Encoder | None,
    *,
    missing: str,
    model: Any = None,
    task: str = "auto",
    seed: int = 0,
    immutable: Sequence[str] = (),
) -> TrainingTable:
    """A table to fit to: what is not given of schema and encoder follows from it.

    Args:
        table: A table of pandas, polars or Arrow.
        target: The column of the label, the labels, or neither.
        schema: What the columns are.
        encoder: A fitted encoder, whose schema it is then.
        missing: One of `MISSING`.
        model: The model to explain, which may refuse gaps; None for ours, which does not.
        task: What it predicts, as of `is_regression`.
        seed: Of the rows that are drawn of a table with more than a million.
        immutable: Features that must not change, beside those of the schema.
    """
    if isinstance(immutable, str):
        raise InputError(f"immutable is {immutable!r}; expected a list of features: immutable=[{immutable!r}]")
    if immutable and encoder is not None:
        raise InputError("immutable goes with a table, and the encoder has a schema: Schema.with_immutable before it")
    choose("way to treat missing values", missing, dict.fromkeys(MISSING))
    features, labels, name = _without_labels(to_pandas(table), target)
    numbers = is_regression(task, model, labels)
    if len(features) > MOST_ROWS:
        warnings.warn(
            f"the table has {len(features):,} rows; the models are fitted to {MOST_ROWS:,} of them, drawn at random",
            CounterpathWarning,
            stacklevel=3,
        )
        drawn = draw_rows(len(features), MOST_ROWS, seed)
        features, labels = features.iloc[drawn], None if labels is None else labels.iloc[drawn]
    if len(features) < FEWEST_ROWS:
        raise InputError(f"a fit needs at least {FEWEST_ROWS} rows; given {len(features)}")
    if encoder is not None:
        schema = encoder.schema
    schema = Schema.infer(features, immutable=immutable) if schema is None else schema.with_immutable(*immutable)
    features = without_ignored(features, schema)
    check_columns(features, schema)
    check_ignored(model, schema)
    parse_forbidden(schema)  # what cannot be used is said before hours of training, and not after
    imputer = Imputer.fit(features, schema) if missing == "impute" else None
    features = features if imputer is None else imputer.fill(features)[0]
    if encoder is None:
        if missing in ("auto", "keep"):
            schema = _with_gaps(schema, features, model, missing, numbers=numbers)
        encoder = Encoder.fit(features, schema)
    return TrainingTable(features, labels, name, encoder, imputer, numbers)


def _with_gaps(schema: Schema, features: pd.DataFrame, model: Any, missing: str, *, numbers: bool = False) -> Schema:
    """The schema in which what is missing in some row may be, if the model takes such rows.

    Raises:
        InputError: It does not.
    """
    names = [name for name in schema.names if features[name].hasnans]
    if not names:
        return schema
    if model is not None:
        complete = features.notna().all(axis=1).to_numpy()
        if complete.any() and not is_torch(model):  # what is wrong without gaps is not for lack of them
            ask_table(model, features.iloc[[int(complete.argmax())]], numbers=numbers)
        first = [int(features[name].isna().to_numpy().argmax()) for name in names][:_ASKED_GAPS]
        try:
            if is_torch(model):
                raise TypeError("a torch module sees encoded rows; give the encoder, too, whose schema has gaps")
            ask_table(model, features.iloc[first], numbers=numbers)
        except Exception as error:
            raise InputError(
                f"column {names[0]!r}, row {features.index[first[0]]}: the value is missing, and "
                f"{qualified_name(model)} does not take rows with gaps, so missing={missing!r} cannot keep them "
                f"({_first_line(error)}); fill them in with missing='impute', or give a pipeline that does"
            ) from error
    for name in names:
        schema = schema.replace(name, missing=True)
    return schema


def _first_line(error: Exception) -> str:
    """What an error says, without the advice that some libraries add; its type if it says nothing."""
    return next(iter(str(error).splitlines()), type(error).__name__)


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
_FEWEST_DRAWN = 3000  # a surrogate of a small table learns from so many drawn rows all the same
_SEARCHED_ROWS = 100  # rows from which searches visit what a surrogate learns again from: a thousand points or two
_SEARCH_STEPS, _SEARCH_STEP = 30, 0.2  # of those searches: six units of a space whose codes have unit scale
_SURROGATE_ROUNDS = 2  # rounds in which a surrogate learns from its own disagreements; each costs a fit
_SURROGATE_CONFIDENCE = 0.7  # up to which those searches go: beyond the boundary, where answers end
_GENERATOR_ROWS, _FLOW_ROWS = 2_000_000, 1_000_000
"""Rows that training sees in all, one as often as it is seen: they set how long the fit of a large table takes."""
MOST_ROWS = 1_000_000  # rows of a table that are fitted to: training sees two million, and more rows would be seen once
_SOME_ROWS = 50_000  # rows of a large table that do where each is compared with others: centres, a surrogate, limits
_ENCODED_AT_ONCE = 1 << 13  # rows: with fewer, what is done once for each part begins to count
_EPOCH_ROWS = 100_000  # rows that make an epoch of a larger table, drawn anew each time
_STAGES = {
    "own": (
        ("training vae mean", 57.0),
        ("training vae uncertainty", 6.0),
        ("choosing the classifier", 13.0),
        ("training classifier", 2.0),
    ),
    "torch": (("training vae mean", 80.0), ("training vae uncertainty", 10.0)),
    "black-box": (
        ("training vae mean", 35.0),
        ("training vae uncertainty", 3.0),
        ("training surrogate", 11.0),
        *(
            pair
            for again in range(1, _SURROGATE_ROUNDS + 1)
            for pair in (("visiting rows", 12.0), (f"training surrogate again {again}", 5.0))
        ),
    ),
}  # by kind of model: the percentage of the time of a fit to German Credit that each part takes
_FLOW_STAGE, _METHOD_STAGE = ("training flow", 80.0), ("fitting the method", 4.0)  # measured likewise
_FLOW_NOISE = 0.01  # of a range, so that a flow, which is a density, can be fitted to discrete features
_EPOCHS = 60, 1 / 16  # a table is seen so often, or by this many times its rows: a small one is soon learned by heart
_BATCH = 16, 512  # smallest and largest batch: BatchNorm needs some rows
_BATCHES = 16  # make an epoch of a small table: with larger batches it takes longer to learn as much
_GENERATOR_RATE = 2e-3  # of Adam, at the beginning; the paper's constant rate is half of it


ORDERED_METRICS = ("euclidean", "fisher-rao")
"""What changes of binary, boolean and ordinal features are measured by: like numbers, or as in `geometry.ordered`."""


@dataclass(frozen=True)
class Sizes:
    """How large the models are and how long they are trained; "auto" follows the table.

    Attributes:
        latent_dim: Width of a code: 5, as in the paper, up to 15 features; a third of the features beyond, at most 16.
        hidden: Widths of the encoder's hidden layers.
        n_centers: RBF centres of the uncertainty: one for every twenty rows, from 10 to 200.
        epochs: For encoder and mean: 60, or a sixteenth of the number of rows, but at most 2 million rows are seen in
            all, and more than 100,000 rows make several epochs.
        numeric_output: How the decoder ends for numbers, "sigmoid" or "linear".
        uncertainty: How its uncertainty is estimated (see `models.uncertainty`).
        ordered_metric: How binary, boolean and ordinal features are measured, one of `ORDERED_METRICS`.
    """

    latent_dim: int | str = "auto"
    hidden: tuple[int, ...] = (512, 256)
    n_centers: int | str = "auto"
    epochs: int | str = "auto"
    numeric_output: str = "sigmoid"
    uncertainty: str = "rbf"
    ordered_metric: str = "euclidean"

    def __post_init__(self) -> None:
        for name in ("latent_dim", "n_centers", "epochs"):
            value = getattr(self, name)
            if value != "auto" and (isinstance(value, bool | str) or value < 1):
                raise InputError(f"{name} is {value!r}; expected a whole number from 1, or 'auto'")
        if not self.hidden or min(self.hidden) < 1:
            raise InputError(f"hidden is {self.hidden!r}; expected widths of layers, for instance (512, 256)")
        choose("way to decode numbers", self.numeric_output, OUTPUTS)
        choose("uncertainty", self.uncertainty, UNCERTAINTIES)
        choose("ordered_metric", self.ordered_metric, dict.fromkeys(ORDERED_METRICS))
        if (self.ordered_metric, self.numeric_output) == ("fisher-rao", "linear"):
            raise InputError(
                "ordered_metric='fisher-rao' measures values between 0 and 1, where numeric_output='linear' does not "
                "stay; leave out one of them"
            )


def hold_out(count: int, seed: int, labels: np.ndarray | None = None) -> Tensor:
    """Which of `count` rows are kept from training: a tenth, at most 4,000; none of fewer than 200 rows.

    Rows of a class with fewer than 20 rows are not: training needs them.
    """
    held_out = torch.zeros(count, dtype=torch.bool)
    if count >= _FEWEST_TO_HOLD_OUT:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        held_out[order[: min(_MOST_HELD_OUT, int(_HELD_OUT * count))]] = True
    if labels is not None and labels.dtype.kind == "i":
        held_out &= torch.from_numpy(np.bincount(labels)[labels] >= _RARE_CLASS)
    return held_out


def fit_generator(
    rows: Tensor, index: Tensor, encoder: Encoder, sizes: Sizes, run: Run, own: Autoencoder | None = None
) -> VAE | Generator:
    """Fit a VAE to some rows, which can be conditioned on any features; or our uncertainty to a user's generator."""
    batch, epochs = schedule(len(index), _GENERATOR_ROWS)
    epochs = epochs if isinstance(sizes.epochs, str) else sizes.epochs
    training = VAETraining(
        mean_epochs=epochs,
        std_epochs=max(2, math.ceil(epochs / 8)),
        batch_size=batch,
        learning_rate=_GENERATOR_RATE,
        std_learning_rate=0.01,
        anneal=True,
        epoch_rows=_EPOCH_ROWS,
        std_rows=_SOME_ROWS,
    )
    different = len(torch.unique(rows[some(index)], dim=0))
    if different < 2:
        raise InputError("all training rows are equal: there is nothing that could change")
    centers = sizes.n_centers if isinstance(sizes.n_centers, int) else min(200, max(10, len(index) // 20))
    if len(encoder.schema.immutable) == len(encoder.schema):
        raise InputError("all features are immutable: there is nothing that could change")
    if own is not None:
        if sizes.uncertainty != "rbf":
            raise InputError(
                f"uncertainty={sizes.uncertainty!r} trains or looks into our own decoder; with a generator of yours it "
                "is 'rbf'"
            )
        if sizes.ordered_metric != "euclidean":
            raise InputError(
                f"ordered_metric={sizes.ordered_metric!r} needs values that stay between 0 and 1, as our own decoder's "
                "do; with a generator of yours it is 'euclidean'"
            )
        model = Generator(own, rows[index], centers=centers, category=_categories(encoder, rows))
        fit_uncertainty(model, rows, training=training, run=run, index=index)
        return model
    return fit_vae(
        rows,
        _latent(sizes.latent_dim, len(encoder.schema)),
        features=encoder.layout,
        always_conditioned=encoder.columns(*encoder.schema.immutable),
        hidden=sizes.hidden,
        output=sizes.numeric_output,
        blocks=encoder.blocks,
        levels=encoder.levels if sizes.ordered_metric == "fisher-rao" else (),
        uncertainty=sizes.uncertainty,
        centers=min(centers, different),
        training=training,
        run=run,
        index=index,
    )


def fit_own_classifier(
    rows: Tensor, index: Tensor, labels: np.ndarray, classes: int, weights: tuple[float, ...] | None, run: Run
) -> Classifier:
    """Train the classifier under explanation ourselves, on some rows; where labels are numbers, a regressor."""
    y = torch.from_numpy(np.require(labels, requirements="W")).to(rows.device)  # those of a frame may be read-only
    if y.is_floating_point():
        return fit_own_regressor(rows, y, run=run, index=index)
    return fit_own(rows, y, classes, class_weights=weights, run=run, index=index)


def fit_explained_surrogate(
    model: Any,
    classes: Labels,
    generator: VAE | Generator,
    encoder: Encoder,
    rows: Tensor,
    held_out: Tensor,
    run: Run,
    *,
    numbers: bool = False,
    thresholds: Thresholds | None = None,
) -> ExplainedModel:
    """Distil a black-box model: from training rows, from drawn rows, and from rows that searches visit.

    A search goes where the surrogate promises most, which is where it is most likely to be wrong. So it learns again
    from the rows that searches visited and on which the two disagreed, twice. What a class is goes by the thresholds
    of the model. The numbers of a regressor are standardised meanwhile.
    """
    said = partial(_in_parts, black_box_proba(model, encoder, numbers=numbers))
    trained = rows[some((~held_out).nonzero()[:, 0])]
    mean, spread = 0.0, 1.0
    if numbers:
        known = said(trained)
        mean, spread = float(known.mean()), float(known.std()) or 1.0

    def ask(x: Tensor) -> Tensor:
        return (said(x) - mean) / spread if numbers else said(x)

    count = min(_MOST_DRAWN, max(_FEWEST_DRAWN, len(rows)))
    drawn, unseen = encoder.round(draw(generator, trained, 2 * count, seed=run.seed)).chunk(2)
    data = SurrogateData(trained, ask(trained)) + SurrogateData(drawn, ask(drawn))
    test = rows[held_out] if bool(held_out.any()) else rows
    checks = [SurrogateData(x, ask(x)) for x in (test, unseen[:_MOST_HELD_OUT])]
    surrogate, on_visited = fit_surrogate(data, run=run), 1.0
    for again in range(_SURROGATE_ROUNDS):
        one = replace(run, seed=run.seed + again)
        visited = _visited(surrogate, ask, generator, encoder, trained, one, thresholds)
        on_visited = agreement(surrogate, visited, thresholds)  # before it learns from them
        data = data + disagreements(surrogate, visited, thresholds)
        surrogate = fit_surrogate(data, run=run, name=f"surrogate again {again + 1}", start=surrogate)
    on_held_out, on_drawn = (agreement(surrogate, check, thresholds) for check in checks)
    agreed = Agreement(on_held_out, on_drawn, on_visited)
    return ExplainedModel(
        "black-box",
        qualified_name(model),
        classes,
        black_box_proba(model, encoder, numbers=numbers),
        rescaled(surrogate, mean, spread) if numbers else surrogate,
        agreed,
        table_proba(model, encoder, numbers=numbers),
        numbers,
    )


def some(rows: Tensor) -> Tensor:
    """At most 50,000 rows, at equal distances, because a table may be sorted."""
    return rows[:: -(-len(rows) // _SOME_ROWS)]


def _in_parts(ask: PredictProba, rows: Tensor) -> Tensor:
    """What a model says about rows, some of them at a time: as a table they take a multiple of their memory."""
    return torch.cat([ask(part) for part in rows.split(_SOME_ROWS)])


def encode_rows(encoder: Encoder, frame: pd.DataFrame) -> Tensor:
    """All rows of a table encoded, some of them at a time: in between they take a multiple of their memory."""
    encoded = torch.empty(len(frame), encoder.width)
    for first in range(0, len(frame), _ENCODED_AT_ONCE):
        encoded[first : first + _ENCODED_AT_ONCE] = encoder.encode(frame.iloc[first : first + _ENCODED_AT_ONCE])
    return encoded


def _visited(
    surrogate: Classifier,
    predict_proba: PredictProba,
    generator: VAE | Generator,
    encoder: Encoder,
    rows: Tensor,
    run: Run,
    thresholds: Thresholds | None,
) -> SurrogateData:
    """Rows that searches from a few training rows to any other class visit, as long as the surrogate is followed."""
    models = SearchModels[Any, Any](surrogate, generator).folded()
    asked = predict_proba(rows[:1])
    surrogate_proba = blockwise_proba(surrogate, numbers=asked.shape[-1] == 1)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(run.seed))[:_SEARCHED_ROWS]
    start = rows[order.to(rows.device)]
    predicted = surrogate_proba(start)
    setup = SearchSetup(encoder, models, surrogate_proba, True, start, predicted)
    options = SearchOptions(max_steps=_SEARCH_STEPS, step_size=_SEARCH_STEP, progress=False)
    visited, targets = [], _away(predicted, thresholds)
    with track("visiting rows", len(targets), shown=run.progress) as advance:
        for member, target in targets:
            feasible = FeasibleSet.of(encoder, start[member])
            visited.append(search(METHODS["rsgd"], Problem(setup, feasible, target, options)).x)
            advance()
    x = torch.unique(torch.cat(visited), dim=0)
    return SurrogateData(x, predict_proba(x))


def _away(predicted: Tensor, thresholds: Thresholds | None = None) -> list[tuple[Tensor, Target]]:
    """Rows by what a surrogate decides, and a target elsewhere: any other class, or a number that is a spread away."""
    if predicted.shape[-1] == 1:
        high = predicted[:, 0] > 0
        pairs = ((high, NumberTarget(high=-1.0)), (~high, NumberTarget(low=1.0)))
        return [(member, target) for member, target in pairs if bool(member.any())]
    now = decide(predicted, thresholds)
    return [
        (now == index, Target(index, other=True, confidence=_SURROGATE_CONFIDENCE, thresholds=thresholds))
        for index in now.unique().tolist()
    ]


def fit_flow_model(rows: Tensor, run: Run) -> FlowModel:
    """Fit a normalizing flow to the rows, with a little noise: most features are discrete."""
    batch, epochs = schedule(len(rows), _FLOW_ROWS)
    noise = _FLOW_NOISE * torch.randn(rows.shape, generator=torch.Generator().manual_seed(run.seed)).to(rows)
    return fit_flow(
        rows + noise,
        epochs=epochs,
        batch_size=batch,
        learning_rate=_GENERATOR_RATE,
        run=run,
        anneal=True,
        epoch_rows=_EPOCH_ROWS,
    )


def torch_subject(
    module: Any, rows: Tensor, layer: str | None, name: str, classes: Labels | None, *, numbers: bool = False
) -> ExplainedModel:
    """A user's torch module as the explained model."""
    classifier = TorchClassifier(module, rows, layer, numbers=numbers)
    if numbers:
        said = blockwise_proba(classifier, numbers=True)
        return ExplainedModel("torch", name, (), said, classifier, numbers=True)
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


def schedule(rows: int, budget: int) -> tuple[int, int]:
    """A batch size, and how many epochs: 60, or a sixteenth of the rows, as long as no more than `budget` are seen."""
    batch = min(_BATCH[1], max(_BATCH[0], rows // _BATCHES))
    wanted = max(_EPOCHS[0], round(_EPOCHS[1] * rows))
    return batch, max(1, min(wanted, budget // min(rows, _EPOCH_ROWS)))


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
        numbers: Whether the model predicts numbers, and not classes.
        threshold: From which probability on it decides for a class, as of `parse_threshold`.
    """

    model: Any
    generator: Autoencoder | None
    method: Method
    class_weight: str | Mapping[Any, float] | None
    representation_layer: str | None
    sizes: Sizes
    run: Run
    options: SearchOptions = field(default_factory=SearchOptions)
    numbers: bool = False
    threshold: float | Mapping[Any, float] | None = None


def fit_models(
    config: FitConfig, encoder: Encoder, rows: Float[Tensor, "n D"], labelled: Labelled | None
) -> FittedModels:
    """Fit everything to encoded training rows and, if there are any, their labels; stage by stage."""
    kind = "own" if config.model is None else "torch" if is_torch(config.model) else "black-box"
    flow = (_FLOW_STAGE,) if "flow" in config.method.needs else ()
    with stages((*_STAGES[kind], *flow, _METHOD_STAGE)):
        return _fit_models(config, encoder, rows, labelled)


def _fit_models(
    config: FitConfig, encoder: Encoder, rows: Float[Tensor, "n D"], labelled: Labelled | None
) -> FittedModels:
    """Fit everything.

    What can be refused is refused before anything is trained. Landmarks are training rows as they are decoded:
    different ones, at most 20,000 of them drawn at random, and of each class the rows of which the model is most
    confident, so that a high confidence has goals, too.
    """
    model, run = config.model, config.run
    classes = _classes(config, encoder, rows, labelled and labelled[0])  # before anything is trained
    check_class_labels(encoder.schema, classes)
    thresholds = parse_threshold(config.threshold, classes)
    held_out = hold_out(len(rows), run.seed, labelled and labelled[1]).to(rows.device)
    index = (~held_out).nonzero()[:, 0]
    generator = fit_generator(rows, index, encoder, config.sizes, run, config.generator)
    release_memory()
    if labelled is not None and model is None:
        weights = None if config.numbers else class_weights(config.class_weight, classes, labelled[1])
        classifier = fit_own_classifier(rows, index, labelled[1], len(classes), weights, run)
        said = blockwise_proba(fold(classifier), numbers=config.numbers)
        name = "Counterpath's regressor" if config.numbers else "Counterpath's classifier"
        explained = ExplainedModel("own", name, classes, said, classifier, numbers=config.numbers)
    elif is_torch(model):
        named = config.representation_layer, qualified_name(model)
        explained = torch_subject(model, rows, *named, classes, numbers=config.numbers)
    else:
        to = generator, encoder, rows, held_out, run
        explained = fit_explained_surrogate(model, classes, *to, numbers=config.numbers, thresholds=thresholds)
    flow = fit_flow_model(rows[index], run) if "flow" in config.method.needs else None
    release_memory()
    models = FittedModels(
        encoder,
        explained,
        generator,
        flow,
        rows,
        held_out,
        _in_parts(explained.predict_proba, rows),
        seed=run.seed,
    )
    with track("fitting the method", 2, shown=run.progress) as advance:
        codes = models.latent, encoder.round, rows, models.probabilities, models.predict_proba
        models = replace(models, landmarks=Landmarks.of(*codes, run.seed))
        release_memory()
        advance()
        models.state(config.method, config.options)
        release_memory()
        advance()
    return models


def fit_family(
    models: FittedModels,
    class_weight: str | Mapping[Any, float] | None = None,
    *,
    retrain: Any = None,
    alternatives: Sequence[Any] | None = None,
    size: int | None = None,
    held_out: int = HELD_OUT,
    progress: bool | None = None,
) -> FittedModels:
    """The same models with a family of those that may follow the explained one.

    Args:
        models: The models.
        class_weight: Of our own classifier.
        retrain: How the explained model is trained; see `Family.of_retraining`.
        alternatives: Fitted models, instead.
        size: How many models are asked; by default 640 of ours, 128 of the user's.
        held_out: How many more are held out.
        progress: Show a bar.

    Raises:
        InputError: There is no way to make one, or what was given cannot be used.
    """
    explained, rows, labels = models.explained, models.rows, models.labels
    if size is None:
        size = SIZE if retrain is None else RETRAINED
    for name, count in (("size", size), ("held_out", held_out)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InputError(f"{name} of a family is {count!r}; expected a whole number from 1, for instance {SIZE}")
    if alternatives is not None:
        if retrain is not None:
            raise InputError("alternatives and retrain were both given; expected one of them")
        return replace(models, family=Family.of_models(alternatives, explained, models.encoder, rows))
    if retrain is None and explained.kind != "own":
        raise InputError(
            f"{explained.name} is a model of yours: say how it is trained, retrain=function or retrain=estimator, or "
            "give fitted models, alternatives=[…]"
        )
    if labels is None:
        raise InputError(
            "a family of models is trained, and the labels of the training rows are not known: fit with "
            "target='column', or give fitted models, alternatives=[…]"
        )
    if retrain is not None:
        given = _labels_as_trained(retrain, explained, labels)
        options: dict[str, Any] = {"size": size, "held_out": held_out, "seed": models.seed, "progress": progress}
        return replace(models, family=Family.of_retraining(retrain, explained, models.encoder, rows, given, **options))
    kept, classes = ~models.held_out, max(2, len(explained.classes))
    weights = None
    if not explained.numbers:
        weights = class_weights(class_weight, explained.classes, labels[kept].cpu().numpy())
    ensemble = fit_ensemble(
        rows[kept],
        labels[kept],
        classes,
        size + held_out,
        class_weights=weights,
        seed=models.seed + _FAMILY_SEED,
        progress=progress,
    )
    return replace(models, family=Family.of_ensemble(ensemble, held_out))


_FAMILY_SEED = 1_000_003  # apart from the seeds of all else that is fitted, so that no member repeats it


def _labels_as_trained(retrain: Any, explained: ExplainedModel, labels: Tensor) -> pd.Series:
    """The labels as a model was trained with them: numbered where it knows classes by numbers, as XGBoost does."""
    known = labels.cpu().numpy()
    numbered = [*getattr(retrain, "classes_", ())] == list(range(len(explained.classes)))
    if explained.numbers or numbered:
        return pd.Series(known)
    return pd.Series([explained.classes[index] for index in known.tolist()])


def labels_for(models: FittedModels, labelled: Labelled | None) -> Tensor | None:
    """The labels of the training rows as the model's classes; None if there are none, or they are others."""
    if labelled is None or len(labelled[0]) != len(models.explained.classes):
        return None
    if models.explained.numbers != (labelled[1].dtype.kind == "f"):
        return None
    return torch.tensor(labelled[1], device=models.rows.device)  # a copy: a table's own numbers may be read-only


def _classes(config: FitConfig, encoder: Encoder, rows: Float[Tensor, "n D"], labels: Labels | None) -> Labels:
    """The classes of the model under explanation; it is tried on a row, or all rows, to see that it works."""
    model = config.model
    if model is None:
        if labels is None:
            raise InputError("without a model to explain, fit needs the labels: target='column'")
        return labels
    if config.numbers:
        if not is_torch(model):
            black_box_proba(model, encoder, numbers=True)(rows[:1])
        return ()
    if is_torch(model):
        return torch_subject(model, rows, config.representation_layer, qualified_name(model), labels).classes
    return class_labels(model, black_box_proba(model, encoder)(rows[:1]).shape[-1], labels)
