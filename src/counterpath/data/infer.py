"""The schema that a table suggests."""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from counterpath.data.schema import KINDS, OBSERVED, PLACES, Feature, Schema, check_attributes
from counterpath.data.tables import is_number, refuse, to_pandas
from counterpath.utils.errors import InputError, choose

SKEWNESS = 2.0
"""That of the exponential distribution: numbers ≥ 0 with a heavier tail may be encoded by log1p."""
MOSTLY = 0.5
"""A number that more than half of the rows share is a state of its own, not a point of a scale: what lies between it
and the next one is often nothing that anybody has."""
DECIMALS = 4
"""The most decimals that a column is taken to be written with; more are the digits of a quotient."""
RESOLUTION = 0.01
"""Of the distance between the quartiles: smaller differences of a quotient mean nothing to anybody."""
IDENTIFIERS = 20
"""Text with more different values than this, and another one in most rows, identifies rows; in a short table names of
few categories may all differ by chance."""


def infer(
    table: Any,
    *,
    target: str | None = None,
    immutable: Sequence[str] = (),
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
) -> Schema:
    """Read off a table what its columns are; missing values are passed over.

    - Truth values are boolean, ordered categories of pandas ordinal in their own order.
    - Text and other categories are binary if there are exactly two, else categorical; both sorted.
    - Numbers stay numbers: whole ones are integer, whatever their dtype, 0 and 1 too; others are continuous. A new row
      may have a 2 where the table has 0 and 1.
    - Numbers of which most are one and the same, such as a capital gain of 0, may only have values that are observed.
    - Continuous numbers have as many decimals as the column; where that is more than four, a hundredth of the middle
      half of the column is resolved.
    - Numbers ≥ 0 whose skewness E[(x − μ)³]/σ³ is above 2, and smaller after log1p, are transformed by it.

    Args:
        table: A table of pandas, polars or Arrow.
        target: The column of the label, which is left out.
        immutable: Features that a counterfactual must leave as they are.
        overrides: For a column the attributes of its `Feature` that shall be others; a kind with categories that are
            not given has those of the column, sorted.

    Raises:
        InputError: A column is empty, holds dates or something else that is no feature, or identifies rows; or the
            arguments name columns or attributes that are not there.

    Example:
        >>> frame = pd.DataFrame({"age": [20, 60, 35], "job": ["no", "yes", "no"], "label": [0, 1, 1]})
        >>> [feature.kind for feature in infer(frame, target="label")]
        ['integer', 'binary']
    """
    frame = to_pandas(table)
    _check_table(frame)
    if target is not None:
        choose("target", target, dict.fromkeys(frame.columns))
    names = [name for name in frame.columns if name != target]
    overrides = overrides or {}
    for name, attributes in overrides.items():
        choose("column", name, dict.fromkeys(names))
        check_attributes(attributes)
        if "name" in attributes:
            raise InputError(f"overrides give column {name!r} the name {attributes['name']!r}; rename it in the table")
    schema = Schema(tuple(_feature(frame[name], overrides.get(name, {})) for name in names))
    return schema.with_immutable(*immutable)


def _check_table(frame: pd.DataFrame) -> None:
    strange = [name for name in frame.columns if not isinstance(name, str)]
    if strange:
        raise InputError(
            f"the table has a column named {strange[0]!r}, which is {type(strange[0]).__name__}; expected text; "
            "try frame.columns = frame.columns.map(str)"
        )
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise InputError(
            f"the table has columns that are there twice: {', '.join(twice.unique())}; rename or drop them"
        )
    if frame.empty:
        rows, columns = frame.shape
        raise InputError(f"a schema is inferred from rows, and the table has {rows} rows of {columns} columns")


def _feature(column: pd.Series, overrides: Mapping[str, Any]) -> Feature:
    """The feature that a column suggests, with some attributes overridden."""
    name, present = str(column.name), column.dropna()
    if present.empty:
        raise InputError(f"column {name!r} has only missing values; {_advice(name)}")
    present = _plain(present)
    kind = overrides["kind"] if "kind" in overrides else _kind(present)
    options = choose(f"kind of feature {name!r}:", kind, KINDS)
    if options.categories is None:
        own: dict[str, Any] = {"transform": _transform(present), **_legal_numbers(present, kind, overrides)}
    elif options.values and "categories" not in overrides:
        wrong = np.array([not isinstance(value, bool | np.bool_) for value in present], dtype=bool)
        refuse(present, wrong, f"is not True or False, which {kind} features need; try the kind 'binary'")
        own = {}
    else:
        own = {"categories": _categories(present)}
    return Feature(**{"name": name, "kind": kind, **own, **overrides})


def _plain(present: pd.Series) -> pd.Series:
    """Values that a column holds as objects, in their own dtype; decimals are numbers."""
    dtype = present.dtype
    if dtype != object and not (isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype)):
        return present
    decimals = any(isinstance(value, Decimal) for value in present)
    return present.astype(np.float64) if decimals and all(map(is_number, present)) else present.infer_objects()


def _kind(present: pd.Series) -> str:
    """The kind that the values of a column suggest, which are all there."""
    dtype = present.dtype
    if isinstance(dtype, pd.CategoricalDtype) and dtype.ordered and len(dtype.categories) > 1:
        return "ordinal"
    if pd.api.types.is_bool_dtype(dtype) and not isinstance(dtype, pd.CategoricalDtype):
        return "boolean"
    if not pd.api.types.is_any_real_numeric_dtype(dtype):
        return _kind_of_text(present)
    values = present.to_numpy(dtype=np.float64)
    values = values[np.isfinite(values)]  # what is not finite is for the encoder to refuse, by row
    return "integer" if bool((values == np.rint(values)).all()) else "continuous"


def _kind_of_text(present: pd.Series) -> str:
    _refuse_strange(present)
    different = present.nunique()
    if different > IDENTIFIERS and 2 * different > len(present):
        raise InputError(
            f"column {present.name!r} looks like an identifier: text with {different} different values in "
            f"{len(present)} rows; {_advice(str(present.name))}"
        )
    return "binary" if different == 2 else "categorical"


def _refuse_strange(present: pd.Series) -> None:
    """Raise an error unless the values can be numbers or categories."""
    strange = np.array([not isinstance(value, str | bool | int | float | np.generic) for value in present], dtype=bool)
    if strange.any() or present.dtype.kind in "mMc":
        raise InputError(
            f"column {present.name!r} has values like {present.iloc[int(strange.argmax())]!r} (dtype {present.dtype}); "
            f"expected numbers, text or truth values; {_advice(str(present.name))}"
        )


def _advice(name: str) -> str:
    return (
        f"drop it (frame.drop(columns={name!r})), convert it, or say what it is: "
        f"overrides={{{name!r}: {{'kind': 'categorical'}}}}"
    )


def _categories(present: pd.Series) -> tuple[Any, ...]:
    """The categories of pandas in their own order if they have one, else the values of the column, sorted."""
    if isinstance(present.dtype, pd.CategoricalDtype) and present.dtype.ordered:
        return tuple(present.dtype.categories.to_list())
    # Numbers and text cannot be compared; numbers come first.
    return tuple(sorted(set(present.to_list()), key=lambda value: (isinstance(value, str), value)))


def _transform(present: pd.Series) -> str:
    """Whether log1p makes numbers less skewed that are none of them negative."""
    if not pd.api.types.is_any_real_numeric_dtype(present.dtype):
        return "identity"  # whether they are numbers after all is for the encoder to say
    values = present.to_numpy(dtype=np.float64)
    values = values[np.isfinite(values)]
    if len(np.unique(values)) <= 2 or values.min() < 0:  # two values are as skewed after any transform
        return "identity"
    before, after = _skewness(values), _skewness(np.log1p(values))
    return "log1p" if before > SKEWNESS and abs(after) < before else "identity"


def _legal_numbers(present: pd.Series, kind: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Which numbers are legal, as far as the column suggests it and nothing else is asked for."""
    asked = {"step", "values", "lower", "upper", "step_from"} & overrides.keys()
    if asked or not pd.api.types.is_any_real_numeric_dtype(present.dtype):
        return {}
    values = present.to_numpy(dtype=np.float64)
    values = values[np.isfinite(values)]
    different, counts = np.unique(values, return_counts=True)
    if len(different) > 2 and counts.max() > MOSTLY * len(values):
        return {"values": OBSERVED}
    return {} if kind != "continuous" or len(different) < 2 else {"step": _step(different, values)}


def _step(different: NDArray[np.float64], values: NDArray[np.float64]) -> float | None:
    """The unit of the last decimal that a column has, or that matters."""
    for places in range(DECIMALS + 1):
        if np.allclose(different, np.round(different, places), rtol=1e-12, atol=0):
            return float(10.0**-places) if places else 1
    low, high = np.quantile(values, [0.25, 0.75])
    spread = float(high - low) or float(values.std())
    exponent = math.floor(math.log10(RESOLUTION * spread))
    return float(f"1e{exponent}") if exponent >= -PLACES else None


def _skewness(values: NDArray[np.float64]) -> float:
    """E[(x − μ)³] / σ³; 0 for a constant, where scipy.stats.skew warns, and finite where its cubes overflow."""
    largest = np.abs(values).max()
    scaled = values / largest if largest > 0 else values
    centered = scaled - scaled.mean()
    deviation = float(np.sqrt(np.mean(centered**2)))
    return float(np.mean((centered / deviation) ** 3)) if deviation > 0 else 0.0
