import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpath.data import Encoder, Feature, Schema
from counterpath.data.impute import Imputer
from counterpath.utils.errors import InputError
from tests.sizes import examples

SCHEMA = Schema(
    (
        Feature("height", "continuous"),
        Feature("children", "integer", lower=0, upper=3),
        Feature("member", "boolean"),
        Feature("city", "categorical", categories=("Rome", "Oslo", "Bonn")),
    )
)
FRAME = pd.DataFrame(
    {
        "city": ["Bonn", None, "Oslo", "Oslo", "Bonn"],
        "height": [1.5, 2.0, np.nan, 1.75, np.nan],
        "children": [1.0, 2.0, 2.0, np.nan, 1.0],
        "member": [True, None, True, False, None],
    },
    index=list("vwxyz"),
)


def test_medians_and_frequent_values_are_filled_in_and_named():
    filled, imputed = Imputer.fit(FRAME, SCHEMA).fill(FRAME)
    assert list(filled.columns) == list(FRAME.columns)
    assert filled["height"].tolist() == [1.5, 2.0, 1.75, 1.75, 1.75]
    assert filled["children"].tolist() == [1, 2, 2, 2, 1]  # 1.5 is no legal number
    assert filled["member"].tolist() == [True, True, True, False, True]
    assert filled["city"].tolist() == ["Bonn", "Oslo", "Oslo", "Oslo", "Bonn"]  # of two, the schema's first
    expected = {"v": (), "w": ("member", "city"), "x": ("height",), "y": ("children",), "z": ("height", "member")}
    assert imputed.to_dict() == expected
    assert (filled.dtypes == FRAME.dtypes).all()
    assert FRAME["height"].isna().sum() == 2
    assert Encoder.fit(filled, SCHEMA).encode(filled).isfinite().all()


def test_a_full_table_stays_as_it_is():
    filled, imputed = Imputer.fit(FRAME, SCHEMA).fill(FRAME.iloc[:1])
    pd.testing.assert_frame_equal(filled, FRAME.iloc[:1])
    assert imputed.tolist() == [()]
    empty, none = Imputer.fit(FRAME, SCHEMA).fill(FRAME.iloc[:0])
    assert (len(empty), len(none)) == (0, 0)


def test_the_median_stays_within_the_bounds():
    schema = SCHEMA.replace("height", lower=1.8).replace("children", upper=1)
    imputer = Imputer.fit(FRAME, schema)
    assert (imputer.values["height"], imputer.values["children"]) == (1.8, 1.0)


@pytest.mark.parametrize(
    ("values", "dtype", "after"),
    [
        ([1, 2, None], "Int64", "float64"),
        ([1, 3, None], "Int64", "Int64"),
        ([1, 3, None], "int32[pyarrow]", "int32[pyarrow]"),
        ([0.1, 0.2, None], "float32", "float32"),
        ([0.1, 0.2, None], "Float32", "Float32"),
        ([0.1, 0.2, None], "double[pyarrow]", "double[pyarrow]"),
        ([1, 2, None], "object", "object"),
    ],
)
def test_dtypes_of_numbers_are_kept_where_they_can_hold_the_median(values, dtype, after):
    frame = pd.DataFrame({"x": pd.Series(values, dtype=dtype)})
    filled = Imputer.fit(frame, Schema((Feature("x", "continuous"),))).fill(frame)[0]
    assert filled["x"].dtype == after
    assert filled["x"].iloc[2] == pytest.approx((values[0] + values[1]) / 2)


@pytest.mark.parametrize("dtype", ["str", "object", "string", "category", "string[pyarrow]"])
def test_dtypes_of_text_are_kept(dtype):
    frame = pd.DataFrame({"x": pd.Series(["a", "b", "b", None], dtype=dtype)})
    imputer = Imputer.fit(frame, Schema((Feature("x", "binary", categories=("a", "b")),)))
    assert imputer.fill(frame)[0]["x"].tolist() == ["a", "b", "b", "b"]
    assert imputer.fill(frame)[0]["x"].dtype == frame["x"].dtype
    # A table of which the categories lack the usual one.
    other = pd.DataFrame({"x": pd.Series(["a", None], dtype=dtype)})
    assert imputer.fill(other)[0]["x"].tolist() == ["a", "b"]


def test_infinities_and_unknown_categories_are_left_to_the_encoder():
    imputer = Imputer.fit(FRAME, SCHEMA)
    rows = FRAME.assign(height=np.inf, city="Paris")
    filled, _ = imputer.fill(rows)
    assert np.isinf(filled["height"]).all()
    assert (filled["city"] == "Paris").all()


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.none() | st.floats(-1e308, 1e308), min_size=1).filter(lambda v: any(x is not None for x in v)))
def test_only_missing_values_change(values):
    frame = pd.DataFrame({"x": pd.Series(values, dtype="float64")})
    imputer = Imputer.fit(frame, Schema((Feature("x", "continuous"),)))
    filled, imputed = imputer.fill(frame)
    missing = frame["x"].isna()
    assert (filled["x"][~missing] == frame["x"][~missing]).all()
    assert filled["x"].between(frame["x"].min(), frame["x"].max()).all()
    assert (imputed.map(len) == missing).all()


def test_json_round_trip():
    imputer = Imputer.fit(FRAME, SCHEMA)
    assert Imputer.from_json(json.loads(json.dumps(imputer.to_json()))) == imputer
    with pytest.raises(InputError, match="not an imputer in JSON"):
        Imputer.from_json({"schema": {}})
    value = json.loads(json.dumps(imputer.to_json()))
    del value["values"]["city"]
    with pytest.raises(InputError, match="lacks the values of: city"):
        Imputer.from_json(value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"height": np.nan}, "'height' has only missing or unknown values"),
        ({"city": None}, "'city' has only missing or unknown values"),
        ({"height": "tall"}, "'height', row v: 'tall' is not a number"),
        ({"height": np.inf}, "'height', row v: inf is not finite"),
        ({"label": 1}, "columns too many: label"),
    ],
)
def test_what_cannot_be_learned_from_is_explained(change, message):
    with pytest.raises(InputError, match=message):
        Imputer.fit(FRAME.assign(**change), SCHEMA)
