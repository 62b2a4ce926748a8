"""Tables of pandas, polars and Arrow with dates, identifiers, gaps, codes and mixed dtypes, encoded and given back."""

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpath.data import Encoder, Schema
from counterpath.data.schema import KINDS
from counterpath.data.tables import to_numbers, to_pandas
from tests.sizes import examples

pytestmark = pytest.mark.filterwarnings("ignore:These :counterpath.utils.errors.CounterpathWarning")
ROWS = 60
DAYS = st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 12, 31))
STAMPS = st.datetimes(datetime.datetime(1990, 1, 1), datetime.datetime(2040, 1, 1)).map(
    lambda at: at.replace(microsecond=0)
)
WHOLE = [
    "int8",
    "int64",
    "uint16",
    "float32",
    "float64",
    "Int32",
    "Float64",
    "int64[pyarrow]",
    "double[pyarrow]",
    "object",
]
TEXT = ["str", "object", "string", "category", "string[pyarrow]"]
FORMATS = ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%Y/%m/%d"]
ZONES = ["UTC", "Europe/Berlin", "Asia/Tokyo"]


def _spread(values: list[Any], rows: int = ROWS) -> list[Any]:
    """A few values, each in many rows."""
    return [values[row % len(values)] for row in range(rows)]


def _few(elements: st.SearchStrategy[Any], least: int = 2) -> st.SearchStrategy[list[Any]]:
    return st.lists(elements, min_size=least, max_size=9, unique=True).map(_spread)


COLUMNS: dict[str, st.SearchStrategy[pd.Series]] = {
    "integer": st.builds(lambda v, t: pd.Series(v).astype(t), _few(st.integers(0, 120)), st.sampled_from(WHOLE)),
    "continuous": _few(st.decimals(-9999, 9999, places=2)).map(lambda v: pd.Series([*map(float, v[1:]), 0.25])),
    "decimals": _few(st.decimals(0, 99, places=1)).map(lambda v: pd.Series([*v[1:], Decimal("0.5")], dtype=object)),
    "boolean": st.sampled_from(["bool", "boolean", "object"]).map(lambda t: pd.Series(_spread([True, False]), dtype=t)),
    "text": st.builds(lambda v, t: pd.Series(v, dtype=t), _few(st.text("abcXYZ ", min_size=1)), st.sampled_from(TEXT)),
    "days": _few(DAYS).map(lambda v: pd.Series(pd.to_datetime(v))),
    "objects": _few(DAYS).map(lambda v: pd.Series(v, dtype=object)),
    "written": st.builds(lambda v, f: pd.Series([day.strftime(f) for day in v]), _few(DAYS), st.sampled_from(FORMATS)),
    "stamps": st.builds(
        lambda v, u: pd.Series(v, dtype=f"datetime64[{u}]"), _few(STAMPS), st.sampled_from(["s", "us", "ns"])
    ),
    "zoned": st.builds(
        lambda v, z: pd.Series(v, dtype="datetime64[us]").dt.tz_localize("UTC").dt.tz_convert(z),
        _few(STAMPS),
        st.sampled_from(ZONES),
    ),
    "spans": _few(st.integers(0, 5000)).map(lambda v: pd.Series(pd.to_timedelta(v, unit="h"))),
}
EXPECTED = dict.fromkeys(("days", "objects", "written", "stamps", "zoned"), "date")
EXPECTED |= {"integer": "integer", "boolean": "boolean", "continuous": "continuous", "spans": "duration"}


@st.composite
def tables(draw: st.DrawFn) -> tuple[pd.DataFrame, set[str]]:
    """A table in pandas, and which of its columns have gaps."""
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4, unique=True))
    frame = pd.DataFrame({name: draw(COLUMNS[name]) for name in names})
    gaps = {name for name in names if draw(st.booleans())}
    for name in gaps:
        frame[name] = frame[name].where(np.arange(ROWS) % draw(st.integers(3, 7)) != 1)
    return frame, gaps


def as_library(frame: pd.DataFrame, library: str) -> Any:
    if library == "pandas":
        return frame
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return table if library == "arrow" else pytest.importorskip("polars").from_arrow(table)


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
@settings(max_examples=examples(350, share=12), deadline=None)
@given(tables(), st.booleans())
def test_what_is_inferred_gives_the_table_back(library: str, drawn: tuple[pd.DataFrame, set[str]], coded: bool) -> None:
    frame, gaps = drawn
    frame = frame.assign(age=range(ROWS), person_id=[f"p{row}" for row in range(ROWS)], empty=np.nan)
    if coded:
        frame["count"] = [*_spread([0, 1, 2, 3], ROWS - 4), -9, -9, -8, 999]
        frame.loc[ROWS - 1, "count"] = 3
    table = to_pandas(as_library(frame, library))
    schema = Schema.infer(as_library(frame, library))
    assert {*schema.ignored} == {"person_id", "empty"}
    assert not coded or dict(schema["count"].codes) == {-9: "code -9", -8: "code -8"}
    for name in schema.names:
        assert schema[name].kind == EXPECTED.get(name, schema[name].kind)
        assert schema[name].kind != "date" or schema[name].immutable
        schema = schema.replace(name, missing=bool(table[name].isna().any()))
    assert {feature.name for feature in schema if feature.missing} == gaps
    fitted = Encoder.fit(table, schema)
    encoded = fitted.encode(table)
    assert encoded.isfinite().all()
    decoded = fitted.decode(encoded)
    for feature in schema:
        old, new = table[feature.name], decoded[feature.name]
        assert new.isna().tolist() == old.isna().tolist()
        assert new.dtype == old.dtype or (old.dtype == object and feature.kind == "integer")  # objects become integers
        if KINDS[feature.kind].times and not np.array_equal(to_numbers(old, feature) % 1, np.zeros(len(old))):
            away = to_numbers(new, feature) - to_numbers(old, feature)
            assert np.nanmax(np.abs(away)) < 0.01  # float32: a quarter of an hour of fifty years
        else:
            assert new.dropna().tolist() == old.dropna().tolist()
    again = fitted.in_own_types(table[[*schema.names]])
    assert all(again[name].dropna().tolist() == table[name].dropna().tolist() for name in schema.names)
