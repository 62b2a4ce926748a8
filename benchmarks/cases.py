"""Models that benchmarks explain: of which data, and what is trained on it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import counterpath as cp
from counterpath.data.datasets import Dataset
from counterpath.utils.errors import require

CLASS_WEIGHTS = {"gmc-carla": "balanced"}  # 93 % of its labels are positive
MODELS = ("own", "forest", "xgboost")


@dataclass(frozen=True)
class Labelled:
    """A model that numbers its classes, under their own names."""

    model: Any
    classes_: np.ndarray[Any, Any]

    def predict_proba(self, table: pd.DataFrame) -> np.ndarray[Any, Any]:
        """The probability of every class."""
        found: np.ndarray[Any, Any] = self.model.predict_proba(table)
        return found


def black_box(kind: str, table: pd.DataFrame, labels: pd.Series, seed: int) -> Any:
    """A model as users have them, with its library's settings, fitted to a table as it is; None for our own."""
    if kind == "own":
        return None
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    text = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer((encoder, text), remainder="passthrough")
    if kind == "forest":
        return make_pipeline(columns, RandomForestClassifier(random_state=seed, n_jobs=1)).fit(table, labels)
    xgboost = require("xgboost", "dev", "this benchmark")
    classes = labels.astype("category").cat
    model = make_pipeline(columns, xgboost.XGBClassifier(random_state=seed, n_jobs=1)).fit(table, classes.codes)
    return Labelled(model, classes.categories.to_numpy())


def fitted(
    data: Dataset,
    kind: str,
    seed: int,
    *,
    immutable: bool = True,
    train_rows: int | None = None,
    epochs: int | str = "auto",
    device: str = "auto",
    keep: Path | None = None,
) -> tuple[cp.Explainer, Any]:
    """An explainer with default settings, and the model that it explains, None where that is our own.

    Args:
        data: What it is fitted to.
        kind: One of `MODELS`.
        seed: Of both, and of which training rows are taken.
        immutable: Hold the features that nobody can change.
        train_rows: How many training rows are taken; all by default.
        epochs: Of the generator, in which other methods walk than the default.
        device: Where it computes.
        keep: A folder in which explainers are stored, and taken from when they are asked for again.
    """
    train = data.train if train_rows is None else data.train.sample(min(train_rows, len(data.train)), random_state=seed)
    model = black_box(kind, train.drop(columns=data.target), train[data.target], seed)
    schema = data.schema
    for name in () if immutable else schema.immutable:
        schema = schema.replace(name, immutable=False)
    name = f"{data.name}-{kind}-{seed}-{'fixed' if immutable else 'free'}-{train_rows or 'all'}-{epochs}"
    if keep is not None and (keep / name).exists():
        return cp.Explainer.load(keep / name, model=model, device=device), model
    weight = CLASS_WEIGHTS.get(data.name) if model is None else None
    explainer = cp.Explainer(class_weight=weight, epochs=epochs, seed=seed, device=device, progress=False)
    explainer.fit(train, target=data.target, schema=schema, model=model)
    if keep is not None:
        explainer.save(keep / name)
    return explainer, model


def rejected_rows(explainer: cp.Explainer, data: Dataset, rows: int | None) -> tuple[pd.DataFrame, Any]:
    """The first of the test rows that are rejected, rightly, without their labels; and the wanted class."""
    wanted = data.desired_class if data.desired_class in explainer.classes_ else explainer.classes_[-1]
    rejected = (explainer.predict(data.test).to_numpy() != wanted) & (data.test[data.target].to_numpy() != wanted)
    return data.test[rejected].head(rows).drop(columns=data.target), wanted
