import datetime
import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpath.data import Encoder, Feature, Schema
from counterpath.data.constraints import Constraints
from counterpath.data.impute import Imputer
from counterpath.data.tables import to_numbers
from counterpath.data.times import as_days, day_text, from_days, text_format, to_days
from counterpath.utils.errors import CounterpathWarning, InputError, RowsError
from tests.sizes import examples

pytestmark = pytest.mark.filterwarnings("ignore:These columns are dates:counterpath.utils.errors.CounterpathWarning")
STAMPS = pd.Series(pd.to_datetime(["2013-08-14 05:41:20", "2014-01-31 07:10:00", "1969-12-31 23:59:59"]))
DAYS = STAMPS.dt.normalize()
DATES = {
    "timestamps": STAMPS,
    "seconds": STAMPS.astype("datetime64[s]"),
    "nanoseconds": STAMPS.astype("datetime64[ns]"),
    "zone": STAMPS.dt.tz_localize("Europe/Berlin"),
    "arrow": STAMPS.astype(pd.ArrowDtype(pa.timestamp("ms"))),
    "arrow zone": STAMPS.astype(pd.ArrowDtype(pa.timestamp("us", tz="US/Eastern"))),
    "arrow date": DAYS.dt.date.astype(pd.ArrowDtype(pa.date32())),
    "midnights": DAYS,
    "dates": DAYS.dt.date,
    "objects": STAMPS.astype(object),
    "text": STAMPS.dt.strftime("%Y-%m-%d %H:%M:%S"),
    "iso": STAMPS.dt.strftime("%Y-%m-%dT%H:%M:%S"),
    "days": DAYS.dt.strftime("%Y-%m-%d"),
    "american": DAYS.dt.strftime("%m/%d/%Y"),
    "german": DAYS.dt.strftime("%d.%m.%Y"),
    "categories": DAYS.dt.strftime("%Y-%m-%d").astype("category"),
    "arrow text": DAYS.dt.strftime("%Y-%m-%d").astype(pd.ArrowDtype(pa.string())),
}
SPANS = pd.Series(pd.to_timedelta(["3 days", "5 days 12:00:00", "-1 days"]))
DURATIONS = {
    "durations": SPANS,
    "arrow": SPANS.astype(pd.ArrowDtype(pa.duration("s"))),
    "objects": pd.Series([datetime.timedelta(days=3), datetime.timedelta(hours=5)], dtype=object),
}


@pytest.mark.parametrize("name", DATES)
def test_dates_of_every_kind_are_days_and_come_back(name: str) -> None:
    frame = pd.DataFrame({"day": DATES[name]})
    with pytest.warns(CounterpathWarning, match=r"are dates, which answers leave as they are: 'day' .*overrides="):
        schema = Schema.infer(frame)
    feature = schema["day"]
    assert (feature.kind, feature.immutable) == ("date", True)
    whole = name in ("arrow date", "midnights", "dates", "days", "american", "german", "categories", "arrow text")
    assert feature.step == 1
    assert Schema.infer(frame.iloc[:1])["day"].step == (1 if whole else None)
    numbers = to_numbers(frame["day"], feature)
    if "zone" not in name:
        np.testing.assert_allclose(numbers, to_days(DAYS if whole else STAMPS, "date", ""), rtol=0, atol=1e-12)
    fitted = Encoder.from_json(json.loads(json.dumps(Encoder.fit(frame, schema).to_json())))
    decoded = fitted.decode(fitted.encode(frame))["day"]
    expected = frame["day"].astype(str) if name == "categories" else frame["day"]
    assert decoded.dtype == expected.dtype
    if whole:
        assert decoded.tolist() == expected.tolist()
    near = to_numbers(decoded, feature)
    np.testing.assert_allclose(near, numbers, rtol=0, atol=1e-3)  # a minute of forty years, by float32


@pytest.mark.parametrize("name", DURATIONS)
def test_durations_are_numbers_that_may_change(name: str) -> None:
    frame = pd.DataFrame({"span": DURATIONS[name]})
    feature = Schema.infer(frame)["span"]
    assert feature == Feature("span", "duration")
    fitted = Encoder.fit(frame, Schema((feature,)))
    assert fitted.decode(fitted.encode(frame))["span"].tolist() == frame["span"].tolist()
    assert to_numbers(pd.Series(["2 days 06:00:00"]), feature).tolist() == [2.25]


@given(st.lists(st.datetimes() | st.none(), min_size=1), st.booleans())
@settings(max_examples=examples(80), deadline=None)
def test_days_are_exact_to_a_millisecond(stamps: list[Any], zoned: bool) -> None:
    column = pd.Series(stamps, dtype="datetime64[us]").astype("datetime64[ms]")
    column = column.dt.tz_localize("UTC") if zoned else column
    pd.testing.assert_series_equal(from_days(to_days(column, "date", ""), "date", "", column.dtype, ""), column)


@pytest.mark.parametrize(
    ("texts", "form"),
    [
        (["2013-08-14", "2014-01-02"], "%Y-%m-%d"),
        (["2013-08-14 05:41", "2014-01-02 00:00"], "%Y-%m-%d %H:%M"),
        (["2013-08-14T05:41:20Z", "2014-01-02T00:00:00+02:00"], "%Y-%m-%dT%H:%M:%S%z"),
        (["08/14/2013", "01/02/2014"], "%m/%d/%Y"),
        (["14/08/2013", "01/02/2014"], "%d/%m/%Y"),
        (["01/02/2014"], "%m/%d/%Y"),
        (["20130814", "20140102"], ""),
        (["2013-08-14", "14.08.2013"], ""),
        (["2013-08-14", "soon"], ""),
        (["25 - 45", "Less than 25"], ""),
        (["1-2-3", "2013-02-30"], ""),
        ([1.5, "2013-08-14"], ""),
    ],
)
def test_text_is_dates_where_one_format_suits_all(texts: list[Any], form: str) -> None:
    assert text_format(pd.Series(texts, dtype=object)) == form


def test_what_is_no_date_is_named_with_its_column_and_row() -> None:
    frame = pd.DataFrame({"day": ["2013-08-14", "2014-01-31"]}, index=["ann", "bob"])
    fitted = Encoder.fit(frame, Schema.infer(frame))
    with pytest.raises(
        RowsError, match=r"'day', row bob: '31.1.2014' is not a date in the format %Y-%m-%d; expected one"
    ):
        fitted.encode(frame.assign(day=["2013-08-14", "31.1.2014"]))
    british = frame.assign(day=["14/08/2013", "31/01/2014"])
    with pytest.raises(RowsError, match=r"'soon' is not a date in the format %d/%m/%Y; expected one such as '14/08/"):
        Encoder.fit(british, Schema.infer(british)).encode(british.assign(day=["14/08/2013", "soon"]))
    with pytest.raises(RowsError, match=r"'day', row ann: 5 is not a date"):
        fitted.encode(frame.assign(day=[5, 6]))
    bounded = Encoder.fit(frame, fitted.schema.replace("day", lower="2013-01-01"))
    with pytest.raises(RowsError, match=r"'1999-01-01' cannot be; expected is a date at least 2013-01-01"):
        bounded.encode(frame.assign(day="1999-01-01"))
    with pytest.raises(InputError, match=r"1 of 1 columns cannot be.*\n- 'day': .*'no' is not a date; say how"):
        Schema.infer(pd.DataFrame({"day": ["no", "2013-08-14"]}), overrides={"day": {"kind": "date"}})


def test_a_date_that_does_not_exist_is_named_and_makes_no_categories() -> None:
    days = pd.Series(pd.date_range("2012-01-01", periods=80, freq="11D").strftime("%d/%m/%Y"))
    frame = pd.DataFrame({"day": days.where(days.index != 17, "31/02/2013"), "size": range(80)})
    for overrides in ({}, {"day": {"kind": "date"}}):
        with pytest.raises(InputError, match=r"1 of 2 columns .*\n- 'day': .*row 17: '31/02/2013' is not a date"):
            Schema.infer(frame, overrides=overrides)
    assert Schema.infer(frame, overrides={"day": {"kind": "categorical"}})["day"].kind == "categorical"
    words = frame.assign(day=[f"{number % 30} days" for number in range(80)])  # what is mostly no date is none
    assert Schema.infer(words)["day"].kind == "categorical"


def test_text_of_json_is_a_date_of_the_training_table() -> None:
    frame = pd.DataFrame({"day": STAMPS, "span": SPANS})
    fitted = Encoder.fit(frame, Schema.infer(frame))
    given = pd.DataFrame(
        {"day": ["2013-08-14 05:41:20", "2014-01-31T07:10", None], "span": ["3 days", "P5DT12H", None]}
    )
    own = fitted.in_own_types(given)
    assert own.dtypes.tolist() == frame.dtypes.tolist()
    assert own.iloc[:2].equals(frame.iloc[:2])
    assert own.iloc[2].isna().all()
    texts = pd.DataFrame({"day": DATES["days"]})
    written = Encoder.fit(texts, Schema.infer(texts)).in_own_types(pd.DataFrame({"day": DAYS}))
    assert written.equals(texts)


def test_a_schema_says_bounds_of_dates_as_dates() -> None:
    feature = Feature("day", "date", lower=as_days("2013-08-14"), upper=as_days(datetime.date(2014, 1, 31)), step=1)
    schema = Schema((feature,))
    written = schema.to_json()["features"][0]
    assert (written["lower"], written["upper"]) == ("2013-08-14", "2014-01-31")
    assert schema.replace("day", upper="2014-02-01")["day"].upper == feature.upper + 1
    read = Schema.from_json({"features": [{"name": "day", "kind": "date", "lower": "2013-08-14"}]})
    assert read["day"].lower == feature.lower
    with pytest.raises(InputError, match="lower is 'soon'; expected a date such as"):
        schema.replace("day", lower="soon")
    with pytest.raises(InputError, match="'age' has lower='2013-08-14'; expected int or float"):
        Schema.from_json({"features": [{"name": "age", "kind": "integer", "lower": "2013-08-14"}]})
    with pytest.raises(InputError, match="codes, which are for numbers; make such times gaps"):
        Feature("day", "date", codes={0: "unknown"})
    with pytest.raises(InputError, match="format '%Y', which is for dates"):
        Feature("age", "integer", format="%Y")
    assert [day_text(days) for days in (0, 0.25)] == ["1970-01-01", "1970-01-01 06:00:00"]


def test_dates_may_be_bounded_by_a_request() -> None:
    frame = pd.DataFrame({"day": DAYS, "age": [1, 2, 3]})
    schema = Schema.infer(frame, overrides={"day": {"immutable": False}})
    parsed = Constraints.of(schema, ranges={"day": ("2013-01-01", DAYS[1])}, directions={"day": "up"})
    assert parsed.ranges == {"day": (15706, 16101)}
    with pytest.raises(InputError, match=r"'soon'.* a pair \(low, high\) of dates such as '2013-08-14'"):
        Constraints.of(schema, ranges={"day": ("soon", None)})


@pytest.mark.parametrize("column", [DATES["days"], DAYS, DAYS.dt.date, DATES["zone"]])
def test_a_gap_is_filled_with_a_date(column: pd.Series) -> None:
    frame = pd.DataFrame({"day": column})
    frame.loc[2, "day"] = None
    filled, imputed = Imputer.fit(frame, Schema.infer(frame)).fill(frame)
    assert imputed.tolist() == [(), (), ("day",)]
    assert filled["day"].dtype == column.dtype
    assert type(filled["day"][2]) is type(filled["day"][0])
    assert filled["day"].min() < filled["day"][2] < filled["day"].max()
