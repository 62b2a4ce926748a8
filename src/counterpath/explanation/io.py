"""Explanations in files: JSON that comes back as it was, and one flat table for other programs.

The JSON is our own, because none of pandas' forms gives back every dtype, category, index level and missing value.
"""

import json
import math
import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from itertools import chain, count
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from counterpath.explanation import wording
from counterpath.utils.errors import InputError
from counterpath.utils.files import atomic

_SCALARS = (str, bool, int, float)
_FLOAT = "float"  # what stands for infinity and NaN, which JSON does not have
_TIMES = re.compile(r"datetime64\[(s|ms|us|ns)(, .+)?\]|timedelta64\[(s|ms|us|ns)\]|period\[.+\]")
"""Times are written as whole numbers of their units since 1970, as pandas stores them; the smallest one is NaT."""
_OBJECTS = {"date": date, "datetime": datetime}
"""Python's own dates, by what stands for them in JSON."""
_DTYPES = re.compile(r"str|object|string\[(python|pyarrow)\]|bool(ean)?|([Uu]?[Ii]nt(8|16|32|64)|[Ff]loat(16|32|64))")


def frame_to_json(frame: pd.DataFrame) -> dict[str, Any]:
    """A value that `json.dumps` takes and `frame_from_json` turns back into an equal table."""
    return {
        "index": _index_to_json(frame.index),
        "names": _index_to_json(frame.columns),
        "columns": [_values_to_json(frame.iloc[:, position]) for position in range(frame.shape[1])],
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
    freq = index.freqstr if isinstance(index, pd.DatetimeIndex | pd.TimedeltaIndex) else None
    return {"name": index.name, **values, **({} if freq is None else {"freq": freq})}


def _index_from_json(value: Mapping[str, Any]) -> pd.Index:
    if "levels" in value:
        levels = [_index_from_json(level) for level in value["levels"]]
        return pd.MultiIndex.from_arrays(levels, names=[level.name for level in levels])
    if value["dtype"] == "range":
        start, stop, step = value["values"]
        return pd.RangeIndex(start, stop, step, name=value["name"])
    index: Any = pd.Index(_values_from_json(value), name=value["name"])
    if "freq" in value:
        index.freq = value["freq"]
    found: pd.Index = index
    return found


def _values_to_json(column: pd.Series) -> dict[str, Any]:
    dtype: Any = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        categories = _values_to_json(dtype.categories.to_series())
        codes = column.cat.codes.tolist()
        return {"dtype": "category", "values": codes, "categories": categories, "ordered": bool(dtype.ordered)}
    if isinstance(dtype, pd.IntervalDtype):
        ends = pd.IntervalIndex(column.array)
        sides = {side: _values_to_json(getattr(ends, side).to_series()) for side in ("left", "right")}
        return {"dtype": "interval", "values": [], "closed": ends.closed, **sides}
    if _TIMES.fullmatch(str(dtype)):
        return {"dtype": str(dtype), "values": pd.Index(column).asi8.tolist()}
    # `str` says nothing of how a string dtype is stored.
    name = f"string[{dtype.storage}]" if str(dtype) == "string" else str(dtype)
    _check_dtype(name)
    return {"dtype": name, "values": [_to_json(value) for value in column.tolist()]}


def _values_from_json(value: Mapping[str, Any]) -> pd.Series:
    name, values = value["dtype"], value["values"]
    if name == "category":
        kind = pd.CategoricalDtype(pd.Index(_values_from_json(value["categories"])), ordered=value["ordered"])
        return pd.Series(pd.Categorical.from_codes(values, dtype=kind))
    if name == "interval":
        left, right = (pd.Index(_values_from_json(value[side])) for side in ("left", "right"))
        return pd.Series(pd.IntervalIndex.from_arrays(left, right, closed=value["closed"]))
    if _TIMES.fullmatch(name):
        return pd.Series(_times(name, np.array(values, dtype=np.int64)))
    _check_dtype(name)
    column: pd.Series = pd.Series([_from_json(item) for item in values], dtype=name)
    return column


def _times(name: str, numbers: NDArray[np.int64]) -> pd.Index:
    """The times that whole numbers stand for in a dtype of this name."""
    dtype: Any = pd.api.types.pandas_dtype(name)
    times: Any
    if isinstance(dtype, pd.PeriodDtype):
        times = pd.PeriodIndex.from_ordinals(numbers, freq=dtype.freq)  # type: ignore[attr-defined]  # the stubs lack it
    elif isinstance(dtype, pd.DatetimeTZDtype):
        times = pd.DatetimeIndex(numbers.view(f"M8[{dtype.unit}]")).tz_localize("UTC").tz_convert(dtype.tz)
    else:
        times = pd.Index(numbers.view(dtype))
    found: pd.Index = times
    return found


def _check_dtype(name: str) -> None:
    if not _DTYPES.fullmatch(name):
        raise InputError(
            f"values of dtype {name!r} have no form in JSON; expected numbers, booleans, text, times or categories: "
            "convert the column or the index before you explain, for example with .astype(str)"
        )


def _to_json(value: Any) -> Any:
    """A scalar, or the lists of a status: binding constraints, which have names, unseen pairs and imputed columns."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and not math.isfinite(plain):
        return {_FLOAT: str(plain)}
    if plain is None or plain is pd.NA or isinstance(plain, _SCALARS):
        return None if plain is pd.NA else plain
    if isinstance(plain, date):
        return {"datetime" if isinstance(plain, datetime) else "date": plain.isoformat()}
    if isinstance(plain, timedelta):
        return {"timedelta": pd.Timedelta(plain).isoformat()}
    if isinstance(plain, list):
        return [_to_json(item) for item in plain]
    if isinstance(plain, dict):
        return {str(key): _to_json(item) for key, item in plain.items()}
    raise InputError(f"the value {value!r} has no form in JSON; expected text, a number, a boolean or None")


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if isinstance(value, dict) and len(value) == 1 and (one := next(iter(value))) in (*_OBJECTS, "timedelta"):
        text = value[one]
        return pd.Timedelta(text).to_pytimedelta() if one == "timedelta" else _OBJECTS[one].fromisoformat(text)
    if isinstance(value, dict):
        return float(value[_FLOAT]) if _FLOAT in value else {key: _from_json(item) for key, item in value.items()}
    return value


FORMAT = "counterpath-explanation"
VERSION = 3
"""3: a status is structured. Nothing older was ever released, so nothing older is read."""


def dumps(frames: Mapping[str, pd.DataFrame], rest: Mapping[str, Any]) -> str:
    """The text of a file that holds tables and other values."""
    tables = {name: frame_to_json(frame) for name, frame in frames.items()}
    value = {"format": FORMAT, "version": VERSION, **rest, "frames": tables}
    return json.dumps(value, allow_nan=False, ensure_ascii=False, default=dict)  # a mapping need not be a dict


def loads(source: str | Path) -> tuple[dict[str, pd.DataFrame], dict[str, Any]]:
    """The tables and the other values of a text that `dumps` made, or of the file that holds it."""
    text, name = _read(source)
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InputError(f"{name} is not JSON: {error}; expected what Explanation.to_json writes") from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise InputError(f"{name} is JSON, but no explanation; expected what Explanation.to_json writes")
    version = value.get("version")
    if version != VERSION:
        newer = isinstance(version, int) and version > VERSION
        advice = "a newer one wrote it; upgrade to read it" if newer else "write it again"
        raise InputError(f"{name} has version {version!r}, and this Counterpath reads {VERSION}: {advice}")
    if not isinstance(value.get("frames"), dict):
        raise InputError(f"{name} is a damaged explanation: it has no tables; write it again")
    frames = {key: frame_from_json(table) for key, table in value["frames"].items()}
    return frames, value


def stream_csv(table: pd.DataFrame, stream: TextIO) -> None:
    """Write a table with its index, which is called `row` if it has no name of its own."""
    if "binding" in table.columns:
        table = table.assign(binding=table["binding"].map(wording.binding_text))
    table.to_csv(stream, index_label=index_labels(table), lineterminator="\n")


def index_labels(table: pd.DataFrame) -> list[str]:
    """The levels of the index as columns of a file: by name, or `row`, `row_2` … if it has none, or one that is taken.

    Of levels with equal names the last one keeps it: that is the number of the plan.
    """
    names = list(table.index.names)
    taken = {*map(str, table.columns), *map(str, names)}
    spare = (label for label in chain(["row"], (f"row_{number}" for number in count(2))) if label not in taken)
    free = (
        name is not None and name not in table.columns and name not in names[level + 1 :]
        for level, name in enumerate(names)
    )
    return [str(name) if is_free else next(spare) for name, is_free in zip(names, free, strict=True)]


STATUS_TYPES = {
    "fallback": pa.bool_(),
    "binding": pa.list_(pa.struct({"kind": pa.string(), "feature": pa.string(), "reach": pa.float64()})),
    "unseen": pa.list_(pa.string()),
    "follows": pa.list_(pa.string()),
    "share": pa.float64(),
    "retrained": pa.list_(pa.int64()),
    "imputed": pa.list_(pa.string()),
}
"""The types of the columns of a status that are not text: a list that is empty in every row does not say its own."""


def write_parquet(table: pd.DataFrame, path: Path) -> Path:
    """Write a table with its index; people in a level called "plan", beside that of their plans, are called "row"."""
    from pyarrow import parquet

    if len({*table.index.names}) < table.index.nlevels:  # which most readers of Parquet refuse
        table = table.rename_axis(index_labels(table))
    try:
        typed = pa.Table.from_pandas(table)
        for name in STATUS_TYPES.keys() & set(table.columns):
            values = pa.array(table[name].tolist(), STATUS_TYPES[name], from_pandas=name == "share")
            typed = typed.set_column(typed.column_names.index(name), name, values)
        with atomic(path) as temporary:
            parquet.write_table(typed, temporary)
    except pa.ArrowException as error:
        message = f"the explanation has no form in Parquet: {error}; try to_csv or to_json"
        raise InputError(message) from error
    return path


def _read(source: str | Path) -> tuple[str, str]:
    """The text, and what to call it in an error: a string that begins like JSON is the text itself, else a path."""
    if isinstance(source, str) and source.lstrip()[:1] in ("{", "["):
        return source, "the text"
    try:
        return Path(source).read_text(encoding="utf-8"), str(source)
    except OSError as error:
        shown = repr(str(source)[:60])
        reason = error.strerror or error
        raise InputError(f"{shown} is neither JSON text nor a file that can be read: {reason}") from error
    except ValueError as error:  # not UTF-8, or a text that no path can be
        raise InputError(f"{str(source)[:60]!r} is neither JSON text nor a text file: {error}") from error
