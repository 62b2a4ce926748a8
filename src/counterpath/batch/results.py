"""Rows explained, as tables with fixed columns: whatever the engine, this is where the results of a row are made."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from counterpath.data.schema import KINDS, Feature, Schema
from counterpath.data.status import FOUND, StatusCode
from counterpath.data.times import DATE
from counterpath.explainer.explainer import Explainer
from counterpath.explanation import Explanation
from counterpath.explanation.io import STATUS_TYPES
from counterpath.explanation.tables import (
    CHANGES,
    END,
    OUTCOME,
    PATH_BACK,
    PLAN,
    STATUS,
    feature_columns,
    keep_of,
    path_features,
    plans_held,
)
from counterpath.search.measures import MEASURES
from counterpath.utils.errors import InputError, RowsError

ORIGIN = ("source", "row")
"""From which file a row is, and its number there, from 0."""
STEP = "step"
MEASURED = (*MEASURES, "steps")
RESERVED = (*ORIGIN, PLAN, *STATUS, *OUTCOME, *MEASURED)
"""What a feature that is called so is not called in the results: see `feature_columns`."""
_STATUS_TYPES = {"fallback": pa.bool_(), **STATUS_TYPES}
CONSTRAINT_COLUMNS = "constraint_columns"
"""The part of a request that names the columns with constraints of each row's own, which are copied as ids are."""
UNUSABLE = "unusable"
"""The status of a row with a value that cannot be used; its reason names the column and the value."""
UNUSABLE_TEXT = "The row has a value that cannot be used, so it was not explained; its reason names it."


def counterfactuals_schema(schema: Schema, classes: Sequence[Any], ids: pa.Schema, plans: int) -> pa.Schema:
    """The columns of the counterfactuals: where each row is from, what it became, why, and what that costs."""
    label = _common_type(list(classes), "the classes") if classes else pa.float64()  # what a regressor predicts
    outcome = {"class_before": label, "class_after": label}
    return pa.schema(
        [
            *_origin_fields(ids, plans),
            *_feature_fields(schema, RESERVED),
            *((name, _STATUS_TYPES.get(name, pa.string())) for name in STATUS),
            *((name, outcome.get(name, pa.float64())) for name in OUTCOME),
            *((name, pa.float64()) for name in MEASURED),
        ]
    )


def milestones_schema(schema: Schema, ids: pa.Schema, plans: int) -> pa.Schema:
    """The columns of the milestones: which row they are of, the step of the whole path, and what is known there."""
    return pa.schema(
        [
            *_origin_fields(ids, plans),
            (STEP, pa.int64()),
            *_feature_fields(schema, (*RESERVED, STEP, *PATH_BACK, CHANGES)),
            *((name, pa.float64()) for name in PATH_BACK),
        ]
    )


def check_ids(ids: Sequence[str], schema: Schema) -> None:
    """Raise an error if a column cannot be copied to the results, because another one has its name."""
    taken = dict.fromkeys(schema.names, "a feature of the model") | dict.fromkeys(RESERVED, "a column of the result")
    for name in ids:
        if name in taken:
            raise InputError(f"the id column {name!r} is {taken[name]}, too: give it another name in the input")
    if len(set(ids)) < len(ids):
        raise InputError(f"an id column is there twice: {', '.join(ids)}")


def _origin_fields(ids: pa.Schema, plans: int) -> list[Any]:
    return [("source", pa.string()), ("row", pa.int64()), *ids, *([(PLAN, pa.int64())] if plans > 1 else [])]


def _feature_fields(schema: Schema, reserved: Sequence[str]) -> list[tuple[str, pa.DataType]]:
    columns = feature_columns(schema.names, reserved)
    return [
        (columns[name], _common_type(list(schema[name].categories), f"the categories of {name!r}"))
        if KINDS[schema[name].kind].categories is not None
        else (columns[name], _number_type(schema[name]))
        for name in schema.names
    ]


def _number_type(feature: Feature) -> pa.DataType:
    """The type of a column of numbers or times; a date that is text stays text."""
    if KINDS[feature.kind].times:
        return pa.string() if feature.format else pa.timestamp("us") if feature.kind == DATE else pa.duration("us")
    return pa.int64() if KINDS[feature.kind].whole else pa.float64()


def _common_type(values: list[Any], what: str) -> pa.DataType:
    try:
        return pa.array(values).type
    except pa.ArrowException as error:
        kinds = ", ".join(sorted({type(value).__name__ for value in values}))
        raise InputError(f"{what} are of several kinds ({kinds}), which Parquet cannot hold in one column") from error


@dataclass(frozen=True)
class ExplainedRows:
    """What became of some rows.

    Attributes:
        counterfactuals: One row a row, or for each row and plan, in the order in which they were given.
        milestones: The milestones of each path, if the request keeps them.
    """

    counterfactuals: pa.Table
    milestones: pa.Table | None

    @property
    def status(self) -> dict[str, int]:
        """How many rows have each status; of several plans the first counts."""
        return dict(Counter(self._first_plans["status"].to_pylist()))

    @property
    def binding(self) -> dict[str, int]:
        """How many rows without a counterfactual each constraint stands in the way of."""
        every = (constraint for row in self._first_plans["binding"].to_pylist() for constraint in row)
        return dict(Counter(f"{constraint['kind']}: {constraint['feature']}" for constraint in every))

    @property
    def measures(self) -> dict[str, tuple[int, float, float]]:
        """Of each measure over the rows that were found: how many numbers, their sum, and the sum of their squares."""
        found = np.isin(self._first_plans["status"].to_numpy(zero_copy_only=False).astype(str), FOUND)
        numbers = {name: self._first_plans[name].to_numpy(zero_copy_only=False)[found] for name in MEASURED}
        finite = {name: values[np.isfinite(values)] for name, values in numbers.items()}
        return {
            name: (len(values), float(values.sum()), float(np.square(values).sum())) for name, values in finite.items()
        }

    @cached_property
    def _first_plans(self) -> pa.Table:
        if PLAN not in self.counterfactuals.column_names:
            return self.counterfactuals
        table = self.counterfactuals.select([PLAN, *STATUS, *MEASURED])
        return table.filter(pa.compute.equal(table[PLAN], 1))


def explain_rows(
    explainer: Explainer,
    request: Mapping[str, Any],
    rows: pd.DataFrame,
    ids: pa.Table | None = None,
    source: str = "",
) -> ExplainedRows:
    """Explain rows, and say of those that cannot be explained why not.

    Args:
        explainer: The model.
        request: The request, as `Explainer.repeat` takes it.
        rows: The features, under labels that are numbers and no two of them equal.
        ids: Further columns of the same rows, to be copied to the results.
        source: Where the rows are from.
    """
    ids = pa.table({}) if ids is None else ids
    request, columns = dict(request), list(request.get(CONSTRAINT_COLUMNS, ()))
    request.pop(CONSTRAINT_COLUMNS, None)
    own = ids.select(columns).to_pandas().set_axis(rows.index) if columns else None
    unusable: dict[int, str] = {}
    usable = rows
    while True:
        try:
            if own is not None:
                request["row_constraints"] = explainer.row_constraints(usable, own.loc[usable.index])
            result = explainer.repeat(request, usable)
            break
        except RowsError as error:  # raised before anything is searched for, with all rows that have the same problem
            unusable |= error.reasons
            usable = rows.loc[~rows.index.isin(list(unusable))]
    plans = plans_held(result.request)
    is_usable = np.repeat(rows.index.isin(usable.index), plans)
    explained, others = np.flatnonzero(is_usable), np.flatnonzero(~is_usable)
    origin = partial(_origin, rows, ids, source, plans)
    schema = counterfactuals_schema(explainer.schema_, explainer.classes_, ids.schema, plans)
    table = _table(schema, origin(explained) | _results(result, schema, plans))
    if len(others):
        reasons = [unusable[label] for label in rows.index[others // plans]]
        status = {"status": [UNUSABLE] * len(others), "reason": reasons, "fallback": [False] * len(others)}
        status |= {name: [[]] * len(others) for name in ("binding", "unseen", "follows", "retrained", "imputed")}
        status["share"] = [None] * len(others)
        order = np.argsort(np.concatenate([explained, others]))
        table = pa.concat_tables([table, _table(schema, origin(others) | status)]).take(order)
    if keep_of(result.request) == END:
        return ExplainedRows(table, None)
    steps = origin(explained[result.paths["row"].to_numpy(np.int64)]) | _steps(result)
    return ExplainedRows(table, _table(milestones_schema(explainer.schema_, ids.schema, plans), steps))


def _origin(rows: pd.DataFrame, ids: pa.Table, source: str, plans: int, positions: NDArray[np.int64]) -> dict[str, Any]:
    """Where results are from; their positions are those of a table with so many plans for each row."""
    numbers = positions // plans
    copied = ids.take(pa.array(numbers)) if ids.num_columns else ids
    return {
        "source": [source] * len(positions),
        "row": rows.index[numbers],
        **{name: copied[name].combine_chunks() for name in copied.column_names},
        PLAN: positions % plans + 1,
    }


def _results(result: Explanation, schema: pa.Schema, plans: int) -> dict[str, Any]:
    """The columns of an explanation: features, status, outcome and measures."""
    unknown = result.status["status"].to_numpy()[::plans] == StatusCode.UNKNOWN_CATEGORY
    columns = {
        column: _without_foreign(result.counterfactuals[name], schema.field(column).type, np.repeat(unknown, plans))
        for name, column in feature_columns(result.schema.names, RESERVED).items()
    }
    measures = result.measures()
    tables = ((result.status, STATUS), (result.outcome, OUTCOME), (measures, MEASURED))
    return columns | {name: table[name] for table, names in tables for name in names}


def _steps(result: Explanation) -> dict[str, Any]:
    """The columns of the paths of an explanation."""
    features = path_features(result.paths, result.schema.names)
    columns = feature_columns(result.schema.names, (*RESERVED, STEP, *PATH_BACK, CHANGES))
    return {column: features[name] for name, column in columns.items()} | {
        name: result.paths[name] for name in (STEP, *PATH_BACK)
    }


def _without_foreign(values: pd.Series, kind: pa.DataType, unknown: NDArray[np.bool_]) -> Any:
    """The values; of rows with an unknown category only those that a column of this type can hold."""
    held = values.to_numpy(dtype=object, copy=True) if unknown.any() else values
    for index in np.flatnonzero(unknown).tolist():
        try:
            pa.scalar(held[index], kind)
        except (pa.ArrowException, TypeError, ValueError):
            held[index] = None
    return held


def _table(schema: pa.Schema, columns: Mapping[str, Any]) -> pa.Table:
    """A table of the columns that the schema names; those that are not there hold nothing.

    Arrow reads objects as what they ought to be, and casts what has a type already.
    """
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if values is None:
            values = pa.nulls(len(columns["row"]), field.type)
        elif pa.types.is_temporal(field.type) and not isinstance(values, pa.Array):
            values = pa.array(list(values), from_pandas=True).cast(field.type)  # dates become times
        elif isinstance(values, list) or (not isinstance(values, pa.Array) and values.dtype == object):
            values = pa.array(values, field.type, from_pandas=True)
        elif not isinstance(values, pa.Array):
            array = pa.array(values, from_pandas=True)
            values = (array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array).cast(field.type)
        arrays.append(values)
    return pa.table(arrays, schema=schema)
