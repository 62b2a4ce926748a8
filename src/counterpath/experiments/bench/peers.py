"""Our search beside what a user would pick otherwise: the same classifier, the same rows, one clock.

Every method gets the same encoded factuals and gives back one counterfactual a row. All are rounded to legal rows and
evaluated alike: valid where the same classifier accepts the legal row at 0.5; distances over the valid rows, and once
more over those that were solved by all methods that got all rows. Time is what the search takes from the factuals to
the counterfactuals; what a method does once before (`setup_seconds`: DiCE reads its table) is not in it, nor is the
fitting of models.
"""

import io
import random
import statistics
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor, nn

from counterpath.data.axes import on_grid
from counterpath.data.encoding import Encoder
from counterpath.experiments.tables import STEPS, mean_or_none
from counterpath.experiments.tabular import SETTINGS, Study, local_search, timed
from counterpath.models.classifier import Classifier, probabilities
from counterpath.models.vae import VAE
from counterpath.search.measures import MEASURES
from counterpath.search.traverse import at_confidence
from counterpath.utils.errors import InputError, choose, require
from counterpath.utils.progress import Advance, track


@dataclass(frozen=True)
class Counterfactuals:
    """What a method found for n factuals.

    Attributes:
        rows: Encoded counterfactuals; where none was found, the factual.
        exists: Which rows have one.
        failures: How many rows have none, by the reason that the method gave.
    """

    rows: Float[Tensor, "n D"]
    exists: Bool[Tensor, "n"]
    failures: Mapping[str, int] = field(default_factory=dict)


Peer: TypeAlias = Callable[[Tensor, Advance], Counterfactuals]
"""Searches one counterfactual for each of the encoded factuals, and says how many are done."""


class ScaledClassifier(nn.Module):
    """The probability of class 1 for rows as DiCE's gradient method has them, differentiable.

    A number comes min-max scaled to the range of the training rows, which is what the encoder does, too, apart from its
    transform. A category comes one-hot, and need not be 0 or 1 during the descent; it is encoded by the same mixture of
    its categories' codes. So all but the transforms is one matrix.

    Args:
        classifier: Of encoded rows.
        encoder: Encodes them.
        columns: DiCE's columns in order: the names of numbers, and "feature_category".
    """

    translation: Tensor

    def __init__(self, classifier: Classifier, encoder: Encoder, columns: Sequence[str]) -> None:
        super().__init__()
        self.classifier = classifier
        translation = torch.zeros(len(columns), encoder.width)
        self.transformed = {}
        layout = zip(encoder.schema, encoder.axes, encoder.layout, encoder.low, encoder.high, strict=True)
        for feature, axis, column, low, high in layout:
            if feature.categories:
                for number, value in enumerate(feature.categories):
                    if f"{feature.name}_{value}" in columns:  # DiCE knows none that the training rows have not
                        code = axis.points(torch.tensor([float(number)]))
                        translation[columns.index(f"{feature.name}_{value}"), column] = code[0].float()
            else:
                translation[columns.index(feature.name), column] = 1
                if feature.transform != "identity":
                    self.transformed[columns.index(feature.name)] = (axis, low, high - low)
        self.register_buffer("translation", translation)

    def encode(self, scaled: Float[Tensor, "n K"]) -> Float[Tensor, "n D"]:
        """The same rows as the classifier knows them."""
        parts = list(scaled.split(1, dim=-1))
        for column, (axis, low, reach) in self.transformed.items():
            parts[column] = axis.points(low + reach * parts[column][:, 0])
        return torch.cat(parts, dim=-1) @ self.translation

    def forward(self, scaled: Float[Tensor, "*n K"]) -> Float[Tensor, "*n 1"]:
        """The probability of class 1, for rows or for a single one, as DiCE has both."""
        rows = torch.atleast_2d(scaled)
        return self.classifier.probability(self.encode(rows)).view(*scaled.shape[:-1], 1)


class TableClassifier:
    """The probabilities of both classes for tables, as scikit-learn's classifiers give them.

    Args:
        classifier: Of encoded rows.
        encoder: Encodes them.
    """

    def __init__(self, classifier: Classifier, encoder: Encoder) -> None:
        self.classifier, self.encoder = classifier, encoder
        self.classes_ = np.array([0, 1])

    def predict_proba(self, frame: pd.DataFrame) -> NDArray[np.float32]:
        """One row a row of the table, one column a class."""
        with torch.no_grad():
            both: NDArray[np.float32] = probabilities(self.classifier(encode_text(self.encoder, frame))).numpy()
        return both

    def predict(self, frame: pd.DataFrame) -> NDArray[np.int64]:
        """The class of every row."""
        classes: NDArray[np.int64] = self.predict_proba(frame).argmax(1)
        return classes


def encode_text(encoder: Encoder, frame: pd.DataFrame) -> Float[Tensor, "n D"]:
    """Encode a table as DiCE returns it: categories as text, numbers of any dtype, other columns besides.

    `Encoder.encode` would check the table first, which takes longer than all the rest for a single row, and DiCE asks
    for single rows thousands of times.
    """
    parts = []
    for feature, axis in zip(encoder.schema, encoder.axes, strict=True):
        column = frame[feature.name].tolist()
        if feature.categories:
            codes = {str(value): code for code, value in enumerate(feature.categories)}
            column = [codes[str(value)] for value in column]
        parts.append(axis.points(torch.tensor(column, dtype=torch.float64)))
    return on_grid(torch.cat(parts, dim=1), torch.float32)


DICE_METHODS = {
    "gradient": {"backend": "PYT", "func": "ohe-min-max"},
    "random": {"backend": "sklearn"},
    "genetic": {"backend": "sklearn"},
    "kdtree": {"backend": "sklearn"},
}
"""DiCE's methods, with the arguments of its wrapper around a classifier."""
_OUTCOME = "outcome of the classifier"


def prepare_dice(study: Study, method: str, *, seed: int = 0, settings: Mapping[str, Any] | None = None) -> Peer:
    """Hand DiCE the training rows and the classifier of a study.

    Args:
        study: Classifier and training rows, on a CPU.
        method: A key of `DICE_METHODS`.
        seed: Of the random generators that DiCE draws from.
        settings: Further arguments of DiCE's `generate_counterfactuals`; by default none, so all have their defaults.

    Raises:
        MissingExtraError: `dice-ml` is not installed.
    """
    wrapper = choose("method of DiCE", method, DICE_METHODS)
    dice_ml = require("dice_ml", "bench", "a comparison with DiCE")
    encoder, names = study.encoder, list(study.encoder.schema.names)
    table = encoder.decode(study.data.train)[names]
    with _isolated(seed):
        data = dice_ml.Data(
            dataframe=table.assign(**{_OUTCOME: study.data.train_labels.numpy().astype(int)}),
            continuous_features=[feature.name for feature in encoder.schema if not feature.categories],
            outcome_name=_OUTCOME,
        )
        model: ScaledClassifier | TableClassifier
        if method == "gradient":
            columns = data.get_ohe_min_max_normalized_data(table[:1]).columns.tolist()
            model = ScaledClassifier(study.classifier, encoder, columns)
        else:
            model = TableClassifier(study.classifier, encoder)
        explainer = dice_ml.Dice(data, dice_ml.Model(model=model, **wrapper), method=method)

    def search_one(factual: Tensor) -> Tensor | str:
        try:
            result = explainer.generate_counterfactuals(
                encoder.decode(factual)[names], total_CFs=1, desired_class=1, **(settings or {})
            ).cf_examples_list[0]
            sparse = result.final_cfs_df_sparse
            return encode_text(encoder, result.final_cfs_df if sparse is None else sparse)[0]
        except Exception as error:  # whatever goes wrong in there is this peer's result for the row
            return f"{type(error).__name__}: {error}"

    def search(factual: Tensor, advance: Advance) -> Counterfactuals:
        with _isolated(seed):
            return _row_by_row(search_one, factual, advance)

    return search


def _row_by_row(
    search_one: Callable[[Tensor], Tensor | str], factual: Float[Tensor, "n D"], advance: Advance
) -> Counterfactuals:
    """One search a row, as DiCE and CARLA do it, of which each gives back a row, or why there is none."""
    rows, exists = factual.clone(), torch.zeros(len(factual), dtype=torch.bool, device=factual.device)
    failures: Counter[str] = Counter()
    for row in range(len(factual)):
        result = search_one(factual[row : row + 1])
        if isinstance(result, str):
            failures[result] += 1
        else:
            rows[row], exists[row] = result, True
        advance()
    return Counterfactuals(rows, exists, failures)


@contextmanager
def _isolated(seed: int) -> Iterator[None]:
    """Run what prints, warns, and draws from the global generators, and leave these as they were."""
    # NumPy's global generator is old, and the one that DiCE draws from.
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    with (
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
        torch.random.fork_rng(devices=[]),
    ):
        warnings.simplefilter("ignore")
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)  # noqa: NPY002
            random.setstate(python_state)


ITERATIONS, LEARNING_RATE, DISTANCE_WEIGHT = 1000, 0.1, 0.5
"""REVISE's, as CARLA runs it."""


def prepare_revise(study: Study, *, iterations: int = ITERATIONS) -> Peer:
    """REVISE (Joshi et al., 2019), row by row, on the models of a study."""
    binary = binary_columns(study.encoder).to(study.factual.device)

    def search_one(factual: Tensor) -> Tensor | str:
        best = revise(study.vae, study.classifier, factual, binary, iterations=iterations)
        return "no step was accepted" if best is None else best[0]

    return partial(_row_by_row, search_one)


def revise(
    vae: VAE,
    classifier: Classifier,
    factual: Float[Tensor, "1 D"],
    binary: Bool[Tensor, "D"],
    *,
    iterations: int = ITERATIONS,
) -> Float[Tensor, "1 D"] | None:
    """The best accepted row of one descent, or None where no step was accepted.

    Args:
        vae: The space to descend in.
        classifier: Has to accept.
        factual: x₀.
        binary: Which columns are rounded.
        iterations: Steps of Adam.
    """
    z = vae.encode(factual).detach().requires_grad_()
    optimizer = torch.optim.Adam([z], lr=LEARNING_RATE)
    best, least = None, float("inf")
    target = factual.new_ones(1)
    for _ in range(iterations):
        decoded = vae.decode(z)
        x = torch.where(binary, decoded.round(), decoded)
        log_odds = classifier(x)
        loss = F.binary_cross_entropy_with_logits(log_odds, target) + DISTANCE_WEIGHT * (x - factual).abs().sum()
        if float(log_odds.detach()) > 0 and float(loss.detach()) < least:
            best, least = x.detach(), float(loss.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return best


def binary_columns(encoder: Encoder) -> Bool[Tensor, "D"]:
    """Which encoded columns are 0 or 1 in every legal row: those of two categories, and one-hot ones."""
    binary = encoder.categorical.clone()
    for feature, columns in zip(encoder.schema, encoder.layout, strict=True):
        if len(feature.categories) == 2:
            binary[columns] = True
    return binary


OURS = ("rsgd", "rsgd-c", "sgd")
CONFIDENCE = 0.5
"""Where our search ends: where the decision flips, which is all that the others look for."""
REPEATS = 5
"""Runs of ours, which take less than a second: the median of so many repeats on a busy machine."""
LIMITS = {"dice-gradient": 5}
"""Rows for slow methods: some take DiCE's gradient method minutes."""
DISTANCES = ("l1", "ld", "ld_sq")


def prepare_ours(study: Study, method: str, *, damping: float = SETTINGS["adult-carla"].damping) -> Peer:
    """One of our methods: all rows at once, each until it reaches the confidence, or the paper's 150 steps."""
    options: dict[str, Any] = {"stop": at_confidence(CONFIDENCE), "steps": STEPS[-1], "damping": damping}

    def search(factual: Tensor, advance: Advance) -> Counterfactuals:
        end = local_search(study.models, method, factual, **options).end
        advance(len(factual))
        return Counterfactuals(end, torch.ones(len(factual), dtype=torch.bool, device=factual.device))

    return search


PEERS: dict[str, Callable[[Study], Peer]] = {
    **{name: partial(prepare_ours, method=name) for name in OURS},
    "revise": prepare_revise,
    **{f"dice-{method}": partial(prepare_dice, method=method) for method in DICE_METHODS},
}
"""Everything that is compared, each with what makes it ready for a study."""


def compare(
    study: Study,
    *,
    methods: Sequence[str] = tuple(PEERS),
    rows: int = 100,
    limits: Mapping[str, int] = LIMITS,
    repeats: int = REPEATS,
    progress: bool | None = None,
) -> list[dict[str, Any]]:
    """Run every method on the first factuals of a study.

    Args:
        study: Classifier, VAE, training rows and factuals, on a CPU.
        methods: Keys of `PEERS`.
        rows: How many factuals.
        limits: At most how many of these rows for slow methods.
        repeats: How often ours are run, in turn; the others, which take far longer, run once.
        progress: Show a bar; by default where standard error is a terminal.

    Returns:
        For each method its name; on how many `rows` it was run, for how many it `found` something, and how many of
        those are `valid` as legal rows; the seconds of `setup`, of the `first` run and the median of all runs; `ratio`,
        the seconds per valid row beside those of the first method; the means of `DISTANCES` over its valid rows, and
        over the rows in `common`, which all methods solved that were run on all rows; and its `failures`, by reason.
        What cannot be said is None.

    Raises:
        MissingExtraError: A method of DiCE is among them, and `dice-ml` is not installed.
    """
    for name in methods:
        choose("method", name, PEERS)
    if rows < 1 or repeats < 1:
        raise InputError(f"a comparison needs rows and repeats of at least 1; given rows={rows}, repeats={repeats}")
    if len(study.factual) == 0:
        raise InputError("this study has no factuals to explain: its classifier rejects no test row of class 0")
    counts = {name: min(rows, len(study.factual), limits.get(name, rows)) for name in methods}
    # All are made ready first, so that a missing library is reported before anything takes long.
    ready = {name: timed(PEERS[name], study) for name in methods}
    runs: dict[str, list[tuple[Counterfactuals, float]]] = {name: [] for name in methods}
    for turn in range(repeats):
        for name in methods:
            if turn == 0 or name in OURS:
                search, factual = ready[name][0], study.factual[: counts[name]]
                with track(name, len(factual), shown=progress) as advance:
                    runs[name].append(timed(search, factual, advance))
    measured = {name: _measure(study, its_runs[0][0]) for name, its_runs in runs.items()}
    most = max(counts.values())
    common = torch.stack([measured[name]["valid"] > 0 for name in methods if counts[name] == most]).all(0)
    results = [_row(name, ready[name][1], runs[name], measured[name], common) for name in methods]
    reference = results[0]["seconds_per_valid"]
    for row in results:
        row["ratio"] = row["seconds_per_valid"] and reference and row["seconds_per_valid"] / reference
    return results


def _measure(study: Study, results: Counterfactuals) -> dict[str, Tensor]:
    """Validity and distances of the legal rows, one number a row."""
    case = study.case(results.rows, CONFIDENCE, study.factual[: len(results.rows)])
    values = {name: MEASURES[name](case) for name in ("valid", *DISTANCES)}
    return values | {"valid": values["valid"] * results.exists}


def _row(
    name: str,
    setup: float,
    runs: Sequence[tuple[Counterfactuals, float]],
    values: Mapping[str, Tensor],
    common: Bool[Tensor, "m"],
) -> dict[str, Any]:
    results, first = runs[0]
    valid = values["valid"] > 0
    rows, count = len(valid), int(valid.sum())
    seconds = statistics.median(seconds for _, seconds in runs)
    whole = rows == len(common)
    return {
        "method": name,
        "rows": rows,
        "found": int(results.exists.sum()),
        "valid": count,
        "validity": count / rows,
        "setup_seconds": setup,
        "first_seconds": first,
        "seconds": seconds,
        "seconds_per_row": seconds / rows,
        "seconds_per_valid": seconds / count if count else None,
        "ratio": None,
        "distances": {key: mean_or_none(values[key][valid]) for key in DISTANCES},
        "common": int(common.sum()) if whole else None,
        "common_distances": {key: mean_or_none(values[key][common]) if whole else None for key in DISTANCES},
        "failures": dict(results.failures),
    }
