"""Tables as JSON and back, exactly: values, dtypes, categories and index."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from counterpath.errors import InputError

_SCALARS = (str, bool, int, float)
_NULLABLE = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64", "boolean")


def frame_to_json(frame: pd.DataFrame) -> dict[str, Any]:
    """A value that `json.dumps` takes and `frame_from_json` turns back into an equal table."""
    return {
        "index": _index_to_json(frame.index),
        "names": _index_to_json(frame.columns),
        "columns": [_values_to_json(frame.iloc[:, place]) for place in range(frame.shape[1])],
    }


def frame_from_json(value: Any) -> pd.DataFrame:
    """Build a table from the value of `frame_to_json`."""
    try:
        index, names = _index_from_json(value["index"]), _index_from_json(value["names"])
        columns = [_values_from_json(column) for column in value["columns"]]
        if len(columns) != len(names) or any(len(column) != len(index) for column in columns):
            raise InputError("a table in JSON has columns of other lengths than its index")
        if not columns:
            return pd.DataFrame(index=index, columns=names)
        frame = pd.concat([column.set_axis(index) for column in columns], axis=1)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"a table in JSON cannot be read: {type(error).__name__}: {error}") from error
    return frame.set_axis(names, axis=1)


def _index_to_json(index: pd.Index) -> dict[str, Any]:
    if isinstance(index, pd.MultiIndex):
        return {"levels": [_index_to_json(index.get_level_values(level)) for level in range(index.nlevels)]}
    if not isinstance(index.name, (*_SCALARS, type(None))):
        raise InputError(
            f"an index with the name {index.name!r} cannot be written as JSON; expected text or a number: "
            "try frame.rename_axis(…) before you explain"
        )
    if isinstance(index, pd.RangeIndex):
        values: dict[str, Any] = {"dtype": "range", "values": [index.start, index.stop, index.step]}
    else:
        values = _values_to_json(index.to_series())
    return {"name": index.name, **values}


def _index_from_json(value: Mapping[str, Any]) -> pd.Index:
    if "levels" in value:
        levels = [_index_from_json(level) for level in value["levels"]]
        return pd.MultiIndex.from_arrays(levels, names=[level.name for level in levels])
    if value["dtype"] == "range":
        start, stop, step = value["values"]
        return pd.RangeIndex(start, stop, step, name=value["name"])
    index: pd.Index = pd.Index(_values_from_json(value), name=value["name"])
    return index


def _values_to_json(column: pd.Series) -> dict[str, Any]:
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        categories = _values_to_json(dtype.categories.to_series())
        codes = column.cat.codes.tolist()
        return {"dtype": "category", "values": codes, "categories": categories, "ordered": bool(dtype.ordered)}
    name = _name(dtype)
    write = _WRITERS[_family(name)]
    return {"dtype": name, "values": [write(value) for value in column.tolist()]}


def _values_from_json(value: Mapping[str, Any]) -> pd.Series:
    name, values = value["dtype"], value["values"]
    if name == "category":
        kind = pd.CategoricalDtype(pd.Index(_values_from_json(value["categories"])), ordered=value["ordered"])
        return pd.Series(pd.Categorical.from_codes(values, dtype=kind))
    read = _READERS[_family(name)]
    column: pd.Series = pd.Series([read(item) for item in values], dtype=name)
    return column


def _name(dtype: Any) -> str:
    """The name under which pandas makes an equal dtype again; `str` says nothing of how a string dtype is stored."""
    name = str(dtype)
    return f"string[{dtype.storage}]" if name == "string" else name


def _family(name: str) -> str:
    """How values of a dtype are written: as they are, as floats, with gaps, or as whatever objects they are."""
    if name in ("str", "object"):
        return "object"
    if name in _NULLABLE or name in ("string[python]", "string[pyarrow]"):
        return "nullable"
    if name == "bool" or re.fullmatch(r"u?int(8|16|32|64)", name):
        return "plain"
    if re.fullmatch(r"float(16|32|64)", name):
        return "float"
    raise InputError(
        f"values of dtype {name!r} have no form in JSON; expected numbers, booleans, text or categories: "
        "convert the column or the index before you explain, for example with .astype(str)"
    )


def _write_object(value: Any) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and not math.isfinite(plain):
        return {"float": str(plain)}
    if plain is None or isinstance(plain, _SCALARS):
        return plain
    raise InputError(f"the value {value!r} has no form in JSON; expected text, a number, a boolean or None")


_WRITERS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda value: value,
    "float": lambda value: value if math.isfinite(value) else str(value),
    "nullable": lambda value: None if value is pd.NA else value,
    "object": _write_object,
}
_READERS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda value: value,
    "float": float,
    "nullable": lambda value: pd.NA if value is None else value,
    "object": lambda value: float(value["float"]) if isinstance(value, dict) else value,
}
