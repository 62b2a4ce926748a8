"""The dtype of a column in JSON and back, and what numbers a dtype can hold."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from counterpath.errors import InputError

Described: TypeAlias = str | Mapping[str, Any]
"""A dtype in JSON: its name, or a mapping where the name does not say it all."""

_STORAGES = {16: torch.float16, 32: torch.float32}


def describe(dtype: Any) -> Described:
    """A value that `json.dumps` takes and `restore` turns back into the dtype.

    Arrow types without a name of their own come back as something close: decimals as float64, because they cannot hold
    every number, and a dictionary as the type of its values.
    """
    if isinstance(dtype, pd.CategoricalDtype):
        return _describe_categorical(dtype)
    if isinstance(dtype, pd.ArrowDtype):
        return _describe_arrow(dtype.pyarrow_dtype)
    if isinstance(dtype, pd.StringDtype) and str(dtype) == "string":
        return f"string[{dtype.storage}]"
    return str(dtype)


def restore(described: Described) -> Any:
    """The dtype of a value that `describe` made."""
    try:
        if isinstance(described, str):
            return pd.api.types.pandas_dtype(described)
        if "arrow" in described:
            return pd.ArrowDtype(pa.type_for_alias(described["arrow"]))
        categories = pd.Index(described["categories"], dtype=restore(described["of"]))
        return pd.CategoricalDtype(categories, ordered=described["ordered"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{described!r} is not a dtype that this version knows ({error}); fit again") from error


def storage(described: Described) -> torch.dtype:
    """The floating-point type in which a column of numbers keeps them; float64 for all but the short ones.

    A column of integers counts as float64: where `decode` has a fraction for it, it becomes float64.
    """
    dtype = restore(described)
    if not pd.api.types.is_float_dtype(dtype):
        return torch.float64
    return _STORAGES.get(8 * pd.Series([], dtype=dtype).to_numpy().dtype.itemsize, torch.float64)


def inward(lower: float, upper: float, kept: torch.dtype) -> tuple[float, float]:
    """The smallest and the largest number that a floating-point type can hold from `lower` to `upper`."""
    if kept == torch.float64:
        return lower, upper
    scalar = np.float16 if kept == torch.float16 else np.float32
    with np.errstate(over="ignore"):  # a bound that is too large to be held becomes the largest number that is not
        low, high = scalar(lower), scalar(upper)
    low = np.nextafter(low, scalar(np.inf)) if float(low) < lower else low
    high = np.nextafter(high, scalar(-np.inf)) if float(high) > upper else high
    return float(low), float(high)


def _describe_categorical(dtype: pd.CategoricalDtype) -> Described:
    categories = dtype.categories
    return {"categories": categories.to_list(), "ordered": bool(dtype.ordered), "of": describe(categories.dtype)}


def _describe_arrow(kind: pa.DataType) -> Described:
    if pa.types.is_dictionary(kind):
        return _describe_arrow(kind.value_type)
    if pa.types.is_decimal(kind):
        return "float64"
    # pandas reads the name "string[pyarrow]" as another dtype, so that names of Arrow have a place of their own.
    return {"arrow": str(kind)}
