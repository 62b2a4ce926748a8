"""What must hold between the tables of an explanation, checked once, when it is made."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from counterpath.errors import InputError
from counterpath.explanation.columns import BY_ROW, LANDSCAPE, OUTCOME, STATUS, path_columns
from counterpath.explanation.status import Status

NEEDED = ("method", "target_class", "confidence")


def check_tables(frames: Mapping[str, pd.DataFrame], features: Sequence[str]) -> None:
    """Raise an error if a table lacks a column, has other rows than `factuals`, or a status or path that cannot be.

    Args:
        frames: The tables of an explanation, by the name of their field.
        features: The names of the schema's features.
    """
    factuals = frames["factuals"]
    for name in BY_ROW:
        if not frames[name].index.equals(factuals.index):
            raise InputError(f"{name} and factuals have different indexes; expected the same labels in the same order")
    if list(frames["counterfactuals"].columns) != list(factuals.columns):
        raise InputError("counterfactuals and factuals have different columns; expected the same in the same order")
    expected = {
        "factuals": features,
        "status": STATUS,
        "outcome": OUTCOME,
        "changed": features,
        "paths": path_columns(features),
        "landscape": LANDSCAPE,
    }
    for name, columns in expected.items():
        missing = [column for column in columns if column not in frames[name].columns]
        if missing:
            raise InputError(f"{name} lacks the column {missing[0]!r}; expected: {', '.join(columns)}")
    _check_statuses(frames["status"]["status"])
    _check_binding(frames["status"])
    _check_rows(frames["paths"]["row"], len(factuals))


def plain_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request as it will be after a round trip through JSON, or an error that says what has no place in it."""
    missing = [key for key in NEEDED if key not in request]
    if missing:
        raise InputError(f"the request lacks {missing[0]!r}; expected at least: {', '.join(NEEDED)}")
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(request), allow_nan=False, default=_scalar))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the request has no form in JSON: {error}; expected text, numbers and lists of them"
        ) from error
    return plain


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} {value!r}")


def _check_statuses(status: pd.Series) -> None:
    known = [str(kind) for kind in Status]
    unknown = status[~status.isin(known)]
    if len(unknown):
        given, label = unknown.iloc[0], unknown.index.tolist()[0]
        raise InputError(f"row {label!r} has the status {given!r}; expected one of: {', '.join(known)}")


def _check_binding(status: pd.DataFrame) -> None:
    """What stands in the way of a counterfactual is text, and there is none where there is a counterfactual."""
    valid = status["status"].isin([kind for kind in Status if kind.valid])
    for label, binding, done in zip(status.index.tolist(), status["binding"], valid, strict=True):
        if not isinstance(binding, str):
            raise InputError(f"row {label!r} has the binding {binding!r}; expected text, empty if nothing is known")
        if binding and done:
            raise InputError(f"row {label!r} has the binding {binding!r}, but a counterfactual; expected an empty text")


def _check_rows(rows: pd.Series, count: int) -> None:
    if len(rows) and not rows.between(0, count - 1).all():
        raise InputError(f"paths has row {rows.max()} for {count} explained rows; expected positions from 0")
