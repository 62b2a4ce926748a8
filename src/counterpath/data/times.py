"""Dates and durations: as numbers of days and back, and the format in which text is a date.

A date is the number of days since 1970-01-01 in UTC, or in no time zone where it has none; 0.25 is six in the morning.
Days are exact to a millisecond until the year 9999, and that is the resolution in which they come back at best.
"""

from collections.abc import Iterator
from datetime import date, timedelta
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

DATE, DURATION = "date", "duration"
_TYPES: dict[str, tuple[type, ...]] = {DATE: (date, np.datetime64), DURATION: (timedelta, np.timedelta64)}
_CODES = {DATE: "M", DURATION: "m"}  # NumPy's, which Arrow's types have, too
_MICROSECONDS = {"D": 86_400_000_000, "min": 60_000_000, "s": 1_000_000, "ms": 1000, "us": 1000, "ns": 1000}
"""Microseconds of each unit; what is finer than a millisecond is not resolved."""
_DAY = _MICROSECONDS["D"]
_DATES = ("%Y-%m-%d", "%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%d-%b-%Y", "%d %B %Y")
_TIMES = ("", *("".join(parts) for parts in product(" T", ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f"), ("", "%z"))))
_ISO = "ISO8601"
_FEW = 5  # texts at which most formats fail, before all are read
_SOME = 40  # texts by which formats are sorted out that hardly any of them has, before all are read
_NEARLY = 0.95  # of the texts: where so many are dates in one format, the others are mistakes and not words


def kind_of(present: pd.Series) -> str | None:
    """Whether values, none of them missing, are dates or durations; None if they are neither; text is neither."""
    is_object = pd.api.types.is_object_dtype(present.dtype)
    for kind, code in _CODES.items():
        if present.dtype.kind == code or (is_object and all(isinstance(each, _TYPES[kind]) for each in present)):
            return kind
    return None


def text_format(present: pd.Series) -> str:
    """The format in which every value is a date, the first of several; empty if there is none, or not all are text.

    Formats have separators, because eight digits may be anything; and month before day comes before day before month.
    """
    if not _all_text(present) or not present.iloc[0][:1].isdigit():
        return ""
    texts: pd.Series = pd.Series(present.unique(), dtype=object)
    fitting = (
        each for each in _formats() if all(_text_times(some, each).notna().all() for some in (texts[:_FEW], texts))
    )
    return next(fitting, "")


def nearly_format(present: pd.Series) -> str:
    """The format in which nearly every text is a date, but not all; empty if there is none, or only few texts."""
    texts: pd.Series = pd.Series(present.unique() if _all_text(present) else [], dtype=object)
    if len(texts) * (1 - _NEARLY) < 1:
        return ""
    some = texts.iloc[:: -(-len(texts) // _SOME)]
    for form in _formats():
        dates = float(_text_times(some, form).notna().mean())
        if dates > 1 - 2 * (1 - _NEARLY) and _NEARLY <= _text_times(texts, form).notna().mean() < 1:
            return form
    return ""


def _all_text(present: pd.Series) -> bool:
    first = len(present) > 0 and isinstance(present.iloc[0], str)
    return first and (is_text(present.dtype) or all(isinstance(text, str) for text in present))


def _formats() -> Iterator[str]:
    return ("".join(parts) for parts in product(_DATES, _TIMES))


def is_text(dtype: Any) -> bool:
    """Whether a dtype holds nothing but text; objects may hold anything."""
    if isinstance(dtype, pd.CategoricalDtype):
        return is_text(dtype.categories.dtype)
    own = getattr(dtype, "pyarrow_dtype", None)
    return isinstance(dtype, pd.StringDtype) or (own is not None and bool(pa.types.is_string(own)))


def to_days(column: pd.Series, kind: str, form: str) -> NDArray[np.float64]:
    """Dates or durations as numbers of days; NaN for what is neither, or is missing.

    Args:
        column: Dates or durations of any library, or text.
        kind: `DATE` or `DURATION`.
        form: The format of dates that are text; if empty, any of ISO 8601.
    """
    if column.dtype.kind == _CODES[kind]:
        return _days(column)
    if is_text(column.dtype):  # of which many are often the same
        codes, different = pd.factorize(column)
        parsed = to_days(pd.Series(different, dtype=object), kind, form)
        return np.append(parsed, np.nan)[codes]
    days = np.full(len(column), np.nan)
    texts, times = (column.map(lambda each, types=types: isinstance(each, types)) for types in (str, _TYPES[kind]))
    for where, written in ((texts.to_numpy(bool), True), (times.to_numpy(bool), False)):
        values = column[where].astype(object)
        if kind == DURATION:
            days[where] = _days(pd.to_timedelta(values, errors="coerce"))
        else:
            days[where] = _days(_text_times(values, form or _ISO) if written else pd.to_datetime(values, utc=True))
    return days


def _text_times(texts: pd.Series, form: str) -> pd.Series:
    return pd.to_datetime(texts, format=form, errors="coerce", utc=True)


def _days(times: pd.Series) -> NDArray[np.float64]:
    """Of a column whose dtype has times."""
    if times.dtype.kind == _CODES[DATE]:
        times = pd.to_datetime(times, utc=True).dt.tz_localize(None)
    exact = times.to_numpy(dtype=f"{times.dtype.kind}8[us]", na_value=np.datetime64("NaT"))
    days: NDArray[np.float64] = exact.astype(np.int64) / _DAY
    return np.where(np.isnat(exact), np.nan, days)


def from_days(days: NDArray[np.float64], kind: str, form: str, dtype: Any, python: str) -> pd.Series:
    """The values that numbers of days stand for, to the resolution that they are written with.

    Args:
        days: The numbers; NaN is missing.
        kind: `DATE` or `DURATION`.
        form: The format of dates that are text.
        dtype: The dtype to return.
        python: Which type of Python's own a column of objects holds: "date", "datetime" or "timedelta".
    """
    missing, unit = np.isnan(days), _resolution(form, dtype, python)
    exact = np.rint(np.where(missing, 0, days) * (_DAY / unit)).astype(np.int64) * unit
    times: pd.Series = pd.Series(exact.astype(f"{_CODES[kind]}8[us]")).mask(missing)
    if python:
        convert = "to_pytimedelta" if kind == DURATION else "to_pydatetime"
        own = [None if value is pd.NaT else getattr(value, convert)() for value in times]
        return pd.Series([value and value.date() if python == "date" else value for value in own], dtype=object)
    zoned = times.dt.tz_localize("UTC") if kind == DATE and ("%z" in form or _zone(dtype)) else times
    if form:
        values: pd.Series = zoned.dt.strftime(form)
    else:
        values = zoned.dt.tz_convert(_zone(dtype)) if _zone(dtype) else times
    return values.astype(dtype)


def python_type(present: pd.Series) -> str:
    """Which of Python's own types a column of objects holds, a key of `from_days`; empty if it is text."""
    first = present.iloc[0] if len(present) else ""
    return type(first).__name__.lower().replace("timestamp", "datetime") if not isinstance(first, str) else ""


def _zone(dtype: Any) -> Any:
    """The time zone of a dtype, if it has one."""
    return getattr(getattr(dtype, "pyarrow_dtype", dtype), "tz", None)


def _resolution(form: str, dtype: Any, python: str) -> int:
    """How many microseconds there are between times that can be written."""
    own = getattr(dtype, "pyarrow_dtype", dtype)
    if form:
        unit = next((unit for part, unit in (("%f", "us"), ("%S", "s"), ("%M", "min")) if part in form), "D")
    elif isinstance(own, pa.DataType):
        unit = "D" if pa.types.is_date(own) else own.unit
    elif isinstance(own, np.dtype) and own.kind in "Mm":
        unit = np.datetime_data(own)[0]
    else:
        unit = "D" if python == "date" else getattr(own, "unit", "us")
    return _MICROSECONDS[unit]


def day_text(days: int | float) -> str:
    """A number of days since 1970-01-01 as a date, with the time of day where that is not midnight."""
    return value_text(from_days(np.array([days], dtype=np.float64), DATE, "", np.dtype("M8[us]"), "").iloc[0])


def example(kind: str, form: str) -> str:
    """A date or duration as it is to be written."""
    if kind == DURATION:
        return "3 days 12:00:00"
    return pd.Timestamp("2013-08-14", tz="UTC").strftime(form or "%Y-%m-%d")


def value_text(value: Any) -> str:
    """A date without the time of day where that is midnight, a duration without hours where there are none."""
    value = pd.Timestamp(value) if isinstance(value, np.datetime64) else value
    value = pd.Timedelta(value) if isinstance(value, timedelta | np.timedelta64) else value
    return str(value).removesuffix(" 00:00:00")


def as_days(value: Any) -> Any:
    """A date or duration, or a text of ISO 8601, as a number of days; anything else as it is."""
    kind = DURATION if isinstance(value, _TYPES[DURATION]) else DATE
    if not isinstance(value, str | date | timedelta | np.datetime64 | np.timedelta64):
        return value
    days = float(to_days(pd.Series([value], dtype=object), kind, "")[0])
    return value if np.isnan(days) else int(days) if days.is_integer() else days
