"""DiCE (`dice-ml`) on the models of a study: the library as its users run it, on the table in original units.

DiCE gets the decoded training rows as its data interface and looks for one counterfactual a row with its default
settings. All that it asks of the model are probabilities, and these come from the study's classifier: `gradient`
descends on numbers and one-hot categories that it scales itself (backend "PYT"), `random`, `genetic` and `kdtree` ask
for the probabilities of tables (backend "sklearn").

What counts as found is what DiCE shows: its counterfactual after its own last step towards fewer changes. A row for
which it raises an error, or finds nothing, has none.

References:
    Mothilal, Sharma and Tan, "Explaining machine learning classifiers through diverse counterfactual explanations",
    FAT* 2020.
"""

import io
import random
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpath.bench.dice_models import ScaledClassifier, TableClassifier, encode_text
from counterpath.bench.found import Finder, Found
from counterpath.errors import choose, require
from counterpath.experiments.study import Study
from counterpath.progress import Advance

DICE_METHODS = {
    "gradient": {"backend": "PYT", "func": "ohe-min-max"},
    "random": {"backend": "sklearn"},
    "genetic": {"backend": "sklearn"},
    "kdtree": {"backend": "sklearn"},
}
"""DiCE's methods, with how each is told to reach a classifier."""
_OUTCOME = "outcome of the classifier"


def prepare_dice(study: Study, method: str, *, seed: int = 0, settings: Mapping[str, Any] | None = None) -> Finder:
    """Hand DiCE the training rows and the classifier of a study.

    Args:
        study: Whose classifier is explained, on a CPU.
        method: A key of `DICE_METHODS`.
        seed: Of the random generators that DiCE draws from.
        settings: Further arguments of DiCE's `generate_counterfactuals`; by default none, so all have their defaults.

    Raises:
        MissingExtraError: `dice-ml` is not installed.
    """
    reach = choose("method of DiCE", method, DICE_METHODS)
    dice_ml = require("dice_ml", "bench", "a comparison with DiCE")
    encoder, names = study.encoder, list(study.encoder.schema.names)
    table = encoder.decode(study.train)[names]
    with _undisturbed(seed):
        data = dice_ml.Data(
            dataframe=table.assign(**{_OUTCOME: study.train_labels.numpy().astype(int)}),
            continuous_features=[feature.name for feature in encoder.schema if not feature.categories],
            outcome_name=_OUTCOME,
        )
        model: ScaledClassifier | TableClassifier
        if method == "gradient":
            columns = data.get_ohe_min_max_normalized_data(table[:1]).columns.tolist()
            model = ScaledClassifier(study.classifier, encoder, columns)
        else:
            model = TableClassifier(study.classifier, encoder)
        explainer = dice_ml.Dice(data, dice_ml.Model(model=model, **reach), method=method)

    def find(factual: Tensor, advance: Advance) -> Found:
        rows, exists = factual.clone(), torch.zeros(len(factual), dtype=torch.bool)
        failures: Counter[str] = Counter()
        queries = encoder.decode(factual)[names]
        with _undisturbed(seed):
            for row in range(len(factual)):
                # One call a row: an error in one of them then costs the others nothing. DiCE itself goes row by row.
                try:
                    answer = explainer.generate_counterfactuals(
                        queries[row : row + 1], total_CFs=1, desired_class=1, **(settings or {})
                    )
                    rows[row] = encode_text(encoder, _shown(answer))[0]
                    exists[row] = True
                except Exception as error:  # whatever goes wrong in there is what this peer has to say about the row
                    failures[f"{type(error).__name__}: {error}"] += 1
                advance()
        return Found(rows, exists, failures)

    return find


def _shown(answer: Any) -> Any:
    example = answer.cf_examples_list[0]
    return example.final_cfs_df if example.final_cfs_df_sparse is None else example.final_cfs_df_sparse


@contextmanager
def _undisturbed(seed: int) -> Iterator[None]:
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
