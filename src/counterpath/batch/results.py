"""Some rows explained, as tables with fixed columns: whatever the engine, this is where a row's answer is made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from counterpath.data.schema import KINDS, Feature, Schema
from counterpath.data.status import FOUND, StatusCode
from counterpath.explainer.explainer import Explainer
from counterpath.explanation import Explanation
from counterpath.explanation.milestones import END, keep_of
from counterpath.explanation.tables import (
    CHANGES,
    OUTCOME,
    PATH_BACK,
    PLAN,
    STATUS,
    feature_columns,
    path_features,
    plans_held,
)
from counterpath.search.measures import MEASURES
from counterpath.utils.errors import InputError, RowsError

BINDING = pa.struct([("kind", pa.string()), ("feature", pa.string()), ("reach", pa.float64())])
STATUS_TYPES = {"fallback": pa.bool_(), "binding": pa.list_(BINDING), "imputed": pa.list_(pa.string())}
"""The columns of a status that are not text."""
WHERE = ("source", "row")
"""From which file a row is, and its number there, from 0."""
STEP = "step"
MEASURED = (*MEASURES, "steps")
RESERVED = (*WHERE, PLAN, *STATUS, *OUTCOME, *MEASURED)
"""What a feature that is called so is not called in the results: see `feature_columns`."""


def answers_schema(schema: Schema, classes: Sequence[Any], carried: pa.Schema, plans: int) -> pa.Schema:
    """The columns of the counterfactuals: where each row is from, what it became, why, and what that costs."""
    label = _common(list(classes), "the classes")
    outcome = {"class_before": label, "class_after": label}
    return pa.schema(
        [
            *_front_fields(carried, plans),
            *_features(schema, RESERVED),
            *((name, STATUS_TYPES.get(name, pa.string())) for name in STATUS),
            *((name, outcome.get(name, pa.float64())) for name in OUTCOME),
            *((name, pa.float64()) for name in MEASURED),
        ]
    )


def milestones_schema(schema: Schema, carried: pa.Schema, plans: int) -> pa.Schema:
    """The columns of the milestones: whose they are, the step of the whole path, and what is known there."""
    reserved = (*RESERVED, STEP, *PATH_BACK, CHANGES)
    return pa.schema(
        [
            *_front_fields(carried, plans),
            (STEP, pa.int64()),
            *_features(schema, reserved),
            *((name, pa.float64()) for name in PATH_BACK),
        ]
    )


def check_ids(ids: Sequence[str], schema: Schema) -> None:
    """Raise an error if a column cannot be carried along, because another one has its name."""
    taken = dict.fromkeys(schema.names, "a feature of the model") | dict.fromkeys(RESERVED, "a column of the result")
    for name in ids:
        if name in taken:
            raise InputError(f"the id column {name!r} is {taken[name]}, too: give it another name in the input")
    if len(set(ids)) < len(ids):
        raise InputError(f"an id column is there twice: {', '.join(ids)}")


def _front_fields(carried: pa.Schema, plans: int) -> list[Any]:
    return [("source", pa.string()), ("row", pa.int64()), *carried, *([(PLAN, pa.int64())] if plans > 1 else [])]


def _features(schema: Schema, reserved: Sequence[str]) -> list[tuple[str, pa.DataType]]:
    columns = feature_columns(schema.names, reserved)
    return [(columns[feature.name], _type(feature)) for feature in schema]


def _type(feature: Feature) -> pa.DataType:
    if KINDS[feature.kind].categories is None:
        return pa.int64() if KINDS[feature.kind].whole else pa.float64()
    return _common(list(feature.categories), f"the categories of {feature.name!r}")


def _common(values: list[Any], what: str) -> pa.DataType:
    try:
        return pa.array(values).type
    except pa.ArrowException as error:
        kinds = ", ".join(sorted({type(value).__name__ for value in values}))
        raise InputError(f"{what} are of several kinds ({kinds}), which Parquet cannot hold in one column") from error


UNUSABLE = "unusable"
"""The status of a row with a value that cannot be used; its reason names the column and the value."""
UNUSABLE_TEXT = "The row has a value that cannot be used, so it was not explained; its reason names it."
_NOT_FITTING = (UNUSABLE, StatusCode.UNKNOWN_CATEGORY.value)


@dataclass(frozen=True)
class Answers:
    """What became of some rows.

    Attributes:
        counterfactuals: One row a row, or for each row and plan, in the order in which they were given.
        milestones: The steps that tell each path, if they were asked for.
    """

    counterfactuals: pa.Table
    milestones: pa.Table | None

    @property
    def status(self) -> dict[str, int]:
        """How many rows have each status; of several plans the first counts."""
        counts: dict[str, int] = {}
        for status in self._first["status"].to_pylist():
            counts[status] = counts.get(status, 0) + 1
        return counts

    @property
    def binding(self) -> dict[str, int]:
        """How many rows without a counterfactual each constraint stands in the way of."""
        counts: dict[str, int] = {}
        for constraints in self._first["binding"].to_pylist():
            for constraint in constraints:
                name = f"{constraint['kind']}: {constraint['feature']}"
                counts[name] = counts.get(name, 0) + 1
        return counts

    @property
    def measures(self) -> dict[str, tuple[int, float, float]]:
        """Of each measure over the rows that were found: how many numbers, their sum, and the sum of their squares."""
        found = np.isin(self._first["status"].to_numpy(zero_copy_only=False).astype(str), FOUND)
        numbers = {name: self._first[name].to_numpy(zero_copy_only=False)[found] for name in MEASURED}
        known = {name: values[np.isfinite(values)] for name, values in numbers.items()}
        return {
            name: (len(values), float(values.sum()), float(np.square(values).sum())) for name, values in known.items()
        }

    @property
    def _first(self) -> pa.Table:
        table = self.counterfactuals.select(
            [*STATUS, *MEASURED, *([PLAN] if PLAN in self.counterfactuals.column_names else [])]
        )
        if PLAN not in table.column_names:
            return table
        return table.filter(pa.compute.equal(table[PLAN], 1))


def answer(
    explainer: Explainer,
    request: Mapping[str, Any],
    frame: pd.DataFrame,
    carried: pa.Table | None = None,
    source: str = "",
) -> Answers:
    """Explain rows, and say of those that cannot be explained why not.

    Args:
        explainer: The model.
        request: What to ask: see `Explainer.repeat`.
        frame: The rows, with the features as columns, under labels that are numbers and no two of them equal.
        carried: Further columns of the same rows, to be carried along.
        source: Where they are from.
    """
    carried = pa.table({}) if carried is None else carried
    unusable: dict[int, str] = {}
    usable = frame
    while True:
        try:
            result = explainer.repeat(request, usable)
            break
        except RowsError as error:  # raised before anything is searched for, with all rows that have the same problem
            unusable |= error.reasons
            usable = frame.loc[~frame.index.isin(list(unusable))]
    plans, keep = plans_held(result.request), keep_of(result.request)
    place = np.flatnonzero(frame.index.isin(usable.index))
    table = _counterfactuals(explainer, result, frame, carried, source, place, unusable, plans)
    return Answers(table, None if keep == END else _milestones(result, frame, carried, source, place, plans))


def _counterfactuals(
    explainer: Explainer,
    result: Explanation,
    frame: pd.DataFrame,
    carried: pa.Table,
    source: str,
    place: NDArray[np.int64],
    unusable: Mapping[int, str],
    plans: int,
) -> pa.Table:
    schema = answers_schema(explainer.schema_, explainer.classes_, carried.schema, plans)
    count = len(frame) * plans
    where = (place[:, None] * plans + np.arange(plans)).ravel()
    columns: dict[str, Any] = _front(frame, carried, source, np.arange(count) // plans, plans)
    columns |= {PLAN: np.arange(count) % plans + 1} if plans > 1 else {}
    status = {name: np.array(_spread(result.status[name], where, count), dtype=object) for name in STATUS}
    for here, reason in zip(frame.index.get_indexer(pd.Index(list(unusable))) * plans, unusable.values(), strict=True):
        for name, value in zip(STATUS, (UNUSABLE, reason, False, [], []), strict=True):
            for plan in range(plans):
                status[name][here + plan] = value
    fits = np.repeat(~np.isin(status["status"][::plans].astype(str), _NOT_FITTING), plans)
    for name, column in feature_columns(explainer.schema_.names, RESERVED).items():
        values = _spread(result.counterfactuals[name], where, count)
        columns[column] = _typed(values, schema.field(column).type, fits)
    columns |= status
    columns |= {name: _spread(result.outcome[name], where, count) for name in OUTCOME}
    measures = result.measures()
    columns |= {name: _spread(measures[name], where, count) for name in MEASURED}
    return pa.table({name: _array(columns[name], schema.field(name).type) for name in schema.names}, schema=schema)


def _milestones(
    result: Explanation, frame: pd.DataFrame, carried: pa.Table, source: str, place: NDArray[np.int64], plans: int
) -> pa.Table:
    schema = milestones_schema(result.schema, carried.schema, plans)
    rows = result.paths["row"].to_numpy(np.int64)
    columns: dict[str, Any] = _front(frame, carried, source, place[rows // plans], plans)
    columns |= {PLAN: rows % plans + 1} if plans > 1 else {}
    columns[STEP] = result.paths["step"]
    features = path_features(result.paths, result.schema.names)
    start = schema.names.index(STEP) + 1
    for name, column in zip(features.columns, schema.names[start:], strict=False):
        columns[column] = features[name]
    columns |= {name: result.paths[name] for name in PATH_BACK}
    return pa.table({name: _array(columns[name], schema.field(name).type) for name in schema.names}, schema=schema)


def _front(
    frame: pd.DataFrame, carried: pa.Table, source: str, place: NDArray[np.int64], plans: int
) -> dict[str, pa.Array]:
    """Where rows are from, and what is carried along; `place` says which rows."""
    taken = carried.take(pa.array(place)) if carried.num_columns else carried
    named = {name: taken[name].combine_chunks() for name in taken.column_names}
    return {
        "source": pa.array([source]).take(pa.array(np.zeros(len(place), np.int64))),
        "row": frame.index[place],
    } | named


def _spread(values: pd.Series, where: NDArray[np.int64], count: int) -> Any:
    """Values at their places among more rows, nothing elsewhere."""
    if len(where) == count:
        return values
    spread = np.full(count, None, dtype=object)
    spread[where] = values.to_numpy(dtype=object)
    return spread


def _typed(values: Any, kind: pa.DataType, fits: NDArray[np.bool_]) -> Any:
    """The values, without those that a column cannot hold because nothing of their kind was ever seen."""
    if fits.all():
        return values
    held = np.array(values, dtype=object)
    for place in np.flatnonzero(~fits).tolist():
        try:
            pa.scalar(held[place], kind)
        except (pa.ArrowException, TypeError, ValueError):
            held[place] = None
    return held


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    """One column; Arrow reads objects as what they ought to be, and casts what has a type already."""
    if isinstance(values, pa.Array):
        return values
    if values.dtype == object:
        return pa.array(values, kind, from_pandas=True)
    array = pa.array(values, from_pandas=True)
    return (array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array).cast(kind)
