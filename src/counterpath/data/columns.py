"""One column of a table: its values as numbers, and numbers as its values.

What cannot be used is refused with an error that names the column and the first bad row (by its index label).
"""

from collections.abc import Hashable
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.data.dtypes import Described, describe, restore
from counterpath.data.schema import KINDS, TRANSFORMS, Feature, Schema
from counterpath.errors import InputError, RowsError

UNKNOWN = -1
"""The number of a value that is none of the categories."""


def check_columns(frame: pd.DataFrame, schema: Schema) -> None:
    """Raise an error unless the table has exactly the columns of the schema, in any order."""
    given = list(frame.columns)
    twice = sorted({str(name) for name in given if given.count(name) > 1})
    missing = [name for name in schema.names if name not in given]
    extra = [str(name) for name in given if name not in schema.names]
    for problem, names in (("that are there twice", twice), ("that are missing", missing), ("too many", extra)):
        if names:
            raise InputError(
                f"the table has columns {problem}: {', '.join(names)}; expected were exactly: "
                f"{', '.join(schema.names)} (frame[list(schema.names)] leaves out a label and all else)"
            )


def to_numbers(column: pd.Series, feature: Feature) -> NDArray[np.float64]:
    """The values of a column in original units; for categories their places in the schema, or `UNKNOWN`."""
    refuse(
        column,
        column.isna().to_numpy(),
        "is a missing value; fill it in, drop the row, or let the Explainer do it: missing='impute'",
    )
    if KINDS[feature.kind].categories is None:
        return _numbers(column, feature)
    places: dict[Hashable, int] = {value: place for place, value in enumerate(feature.categories)}
    number, values = _distinct(column)
    found = [places.get(value, UNKNOWN) if isinstance(value, Hashable) else UNKNOWN for value in values]
    numbers: NDArray[np.float64] = np.array(found, dtype=np.float64)[number]
    return numbers


def from_numbers(numbers: NDArray[np.float64], feature: Feature, dtype: Described, index: pd.Index) -> pd.Series:
    """The values that `numbers` stand for, in the given dtype.

    Numbers that an integer dtype cannot hold without loss come back as float64: half a year of age is not rounded
    away because the training rows happened to have whole years. A feature of the kind "integer" has no such numbers.
    """
    wanted = restore(dtype)
    if KINDS[feature.kind].categories is not None:
        values = [feature.categories[place] for place in numbers.astype(np.intp)]
        categories: pd.Series = pd.Series(values, index=index, name=feature.name, dtype=wanted)
        return categories
    column = pd.Series(numbers, index=index, name=feature.name)
    if pd.api.types.is_integer_dtype(wanted) and not _fits(numbers, wanted):
        return column
    return column.astype(wanted)


def alike(column: pd.Series, dtype: Any) -> pd.Series:
    """The column in a dtype, if that changes none of its values; else as it is."""
    known = not isinstance(dtype, pd.CategoricalDtype) or column.isin(dtype.categories).all()
    cast = column.astype(dtype) if known else column
    return cast if cast.tolist() == column.tolist() else column


def described_dtype(column: pd.Series, feature: Feature) -> Described:
    """The dtype to give back; numbers that are stored as objects or categories come back as what they are."""
    if KINDS[feature.kind].categories is None:
        if isinstance(column.dtype, pd.CategoricalDtype):
            return describe(column.dtype.categories.dtype)
        if column.dtype == object:
            return describe(pd.Series(column.to_list()).dtype)
    return describe(column.dtype)


def refuse(column: pd.Series, bad: NDArray[np.bool_], problem: str) -> None:
    """Raise an error that names the column and the first bad row, if there is one, and knows all others."""
    if not bad.any():
        return
    reasons: dict[Any, str] = {}
    # Labels as plain values, also where they are tuples; of rows with one label the first counts.
    for label, value in zip(column.index[bad].tolist(), column[bad], strict=True):
        plain = value.item() if isinstance(value, np.generic) else value
        reasons.setdefault(label, f"column {column.name!r}, row {label}: {plain!r} {problem}")
    raise RowsError(reasons)


def _numbers(column: pd.Series, feature: Feature) -> NDArray[np.float64]:
    kind, transform = KINDS[feature.kind], TRANSFORMS[feature.transform]
    if not pd.api.types.is_any_real_numeric_dtype(column.dtype):
        # One person taken out of a table with `frame.loc[i].to_frame().T` has numbers in columns of objects.
        strange = np.array([not _is_number(value) for value in column], dtype=bool)
        refuse(column, strange, f"is not a number, which {feature.kind} features need; try pandas.to_numeric")
    numbers = column.to_numpy(dtype=np.float64)
    refuse(column, ~np.isfinite(numbers), "is not finite; correct it or drop the row")
    if kind.whole:
        problem = "is not a whole number, which integer features need; round it, or declare the feature continuous"
        refuse(column, numbers != np.rint(numbers), problem)
    problem = f"is outside what the transform {feature.transform} takes, numbers above {transform.above:g}"
    refuse(column, numbers <= transform.above, problem)
    return numbers


def _distinct(column: pd.Series) -> tuple[NDArray[np.intp], list[Any]]:
    """The different values of a column without gaps, as plain ones, and for each row which of them it has."""
    try:
        number, values = column.factorize()
    except TypeError:  # a list or the like among the values has no hash to be told apart by
        return np.arange(len(column)), column.to_list()
    return number, pd.Index(values).to_list()


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def _fits(numbers: NDArray[np.float64], dtype: Any) -> bool:
    """Whether every number is whole and in the range of an integer dtype, be it of NumPy, pandas or Arrow."""
    limits = np.iinfo(str(pd.Series([], dtype=dtype).to_numpy().dtype))
    legal = (numbers == np.rint(numbers)) & (numbers >= limits.min) & (numbers < float(int(limits.max) + 1))
    return bool(legal.all())
