"""The columns of what a batch job writes, with types that are the same in every shard.

Types follow from the model alone. What pandas would choose depends on the values of a shard: whole numbers here, and
there, where one is missing, floating-point ones.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from counterpath.data.schema import KINDS, Feature, Schema
from counterpath.errors import InputError
from counterpath.explanation.columns import CHANGES, OUTCOME, PATH_BACK, STATUS, beside
from counterpath.explanation.plans import PLAN
from counterpath.measures import MEASURES

WHERE = ("source", "row")
"""From which file a row is, and its number there, from 0."""
STEP = "step"
MEASURED = (*MEASURES, "steps")
RESERVED = (*WHERE, PLAN, *STATUS, *OUTCOME, *MEASURED)
"""What a feature that is called so is not called in the results: see `beside`."""


def answers_schema(schema: Schema, classes: Sequence[Any], carried: pa.Schema, plans: int) -> pa.Schema:
    """The columns of the counterfactuals: where each row is from, what it became, why, and what that costs."""
    label = _common(list(classes), "the classes")
    outcome = {"class_before": label, "class_after": label}
    return pa.schema(
        [
            *_front(carried, plans),
            *_features(schema, RESERVED),
            *((name, pa.string()) for name in STATUS),
            *((name, outcome.get(name, pa.float64())) for name in OUTCOME),
            *((name, pa.float64()) for name in MEASURED),
        ]
    )


def milestones_schema(schema: Schema, carried: pa.Schema, plans: int) -> pa.Schema:
    """The columns of the milestones: whose they are, the step of the whole path, and what is known there."""
    reserved = (*RESERVED, STEP, *PATH_BACK, CHANGES)
    return pa.schema(
        [
            *_front(carried, plans),
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


def _front(carried: pa.Schema, plans: int) -> list[Any]:
    return [("source", pa.string()), ("row", pa.int64()), *carried, *([(PLAN, pa.int64())] if plans > 1 else [])]


def _features(schema: Schema, reserved: Sequence[str]) -> list[tuple[str, pa.DataType]]:
    columns = beside(schema.names, reserved)
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
