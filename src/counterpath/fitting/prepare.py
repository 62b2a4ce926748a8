"""Tables as they are given, made ready: labels apart, columns checked, gaps filled in, unknown categories found."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.data.encoding import Encoder
from counterpath.data.impute import Imputer
from counterpath.data.schema import Schema
from counterpath.data.tables import check_columns, to_pandas
from counterpath.utils.errors import InputError, choose

FEWEST_ROWS = 10  # fewer rows than that tell no model anything
MISSING = ("error", "impute")
"""How missing values can be treated: refused, or filled in."""
TargetColumn = str | Sequence[Any] | pd.Series | np.ndarray | None
"""The column of the label, the labels, or neither."""


@dataclass(frozen=True)
class TrainingTable:
    """A training table that is ready to be fitted to.

    Attributes:
        features: The rows without labels and without gaps.
        labels: The labels, if there are any.
        target: The name of their column.
        encoder: Of the features.
        imputer: What fills in gaps, if gaps are not an error.
    """

    features: pd.DataFrame
    labels: pd.Series | None
    target: str | None
    encoder: Encoder
    imputer: Imputer | None


def prepare_training(
    table: Any, target: TargetColumn, schema: Schema | None, encoder: Encoder | None, *, missing: str
) -> TrainingTable:
    """A table to fit to: what is not given of schema and encoder follows from it."""
    choose("way to treat missing values", missing, dict.fromkeys(MISSING))
    features, labels, name = _without_labels(to_pandas(table), target)
    if len(features) < FEWEST_ROWS:
        raise InputError(f"a fit needs at least {FEWEST_ROWS} rows; given {len(features)}")
    if encoder is not None:
        schema = encoder.schema
    schema = Schema.infer(features) if schema is None else schema
    check_columns(features, schema)
    imputer = Imputer.fit(features, schema) if missing == "impute" else None
    features = features if imputer is None else imputer.fill(features)[0]
    return TrainingTable(features, labels, name, Encoder.fit(features, schema) if encoder is None else encoder, imputer)


def prepare_rows(
    table: Any, schema: Schema, target: str | None, imputer: Imputer | None
) -> tuple[pd.DataFrame, list[list[str]]]:
    """The rows as a pandas frame without label and without gaps, and which columns of each were filled in."""
    frame = to_pandas(table)
    if target is not None and target in frame.columns and target not in schema.names:
        frame = frame.drop(columns=target)
    check_columns(frame, schema)
    if imputer is None:
        return frame, [[] for _ in range(len(frame))]
    filled, names = imputer.fill(frame)
    return filled, [list(columns) for columns in names]


def unknown_categories(encoder: Encoder, frame: pd.DataFrame) -> tuple[NDArray[np.bool_], list[str]]:
    """Which rows can be encoded, and for the others which value was never seen."""
    known = encoder.known(frame).to_numpy()
    reasons = [""] * len(frame)
    for row in np.flatnonzero(~known).tolist():
        try:
            encoder.encode(frame.iloc[[row]])
        except InputError as error:
            reasons[row] = f"({error})"
    return known, reasons


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
