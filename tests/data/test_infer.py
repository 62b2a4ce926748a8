from decimal import Decimal
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpath.data import Encoder, Feature, Schema
from counterpath.utils.errors import CounterpathWarning, InputError
from tests.sizes import examples

COUNT = 30
FRAME = pd.DataFrame(
    {
        "member": [True, False, True] * 10,
        "size": pd.Categorical(["small", "large", "small"] * 10, categories=["small", "medium", "large"], ordered=True),
        "sex": ["Male", "Female", "Male"] * 10,
        "city": ["Rome", "Oslo", "Bonn"] * 10,
        "shade": pd.Categorical(["red", "blue", "green"] * 10, categories=["red", "green", "blue", "unused"]),
        "age": range(COUNT),
        "flag": [1, 0, 0] * 10,
        "height": np.linspace(1.5, 2.0, COUNT),
        "yes": [0.0, 1.0, 1.0] * 10,
        "children": [0.0, 1.0, 2.0, 3.0, np.nan] * 6,
        "gain": [0.0] * 25 + [1e2, 1e3, 1e4, 1e5, 1e5],
        "visits": [1] * 25 + [50, 60, 70, 80, 1000],
        "constant": ["x"] * COUNT,
        "fixed": [7] * COUNT,
        "label": [0, 1, 1] * 10,
    }
)


def test_every_kind_is_found():
    schema = Schema.infer(FRAME, target="label", immutable=["age", "sex"])
    assert schema == Schema(
        (
            Feature("member", "boolean"),
            Feature("size", "ordinal", categories=("small", "medium", "large")),
            Feature("sex", "binary", categories=("Female", "Male"), immutable=True),
            Feature("city", "categorical", categories=("Bonn", "Oslo", "Rome")),
            Feature("shade", "categorical", categories=("blue", "green", "red")),
            Feature("age", "integer", immutable=True),
            Feature("flag", "integer"),
            Feature("height", "continuous", step=0.001),
            Feature("yes", "integer"),
            Feature("children", "integer"),
            Feature("gain", "integer", transform="log1p", values="observed"),
            Feature("visits", "integer", transform="log1p", values="observed"),
            Feature("constant", "categorical", categories=("x",)),
            Feature("fixed", "integer"),
        )
    )
    whole = FRAME.drop(columns="label").dropna()
    fitted = Encoder.fit(whole, schema)
    decoded = fitted.decode(fitted.encode(whole), whole.index)
    assert (decoded.dtypes == whole.dtypes).all()


def test_a_whole_table_without_a_target_has_all_columns():
    assert Schema.infer(FRAME).names == tuple(FRAME.columns)


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "double[pyarrow]", "object"])
def test_whole_numbers_with_gaps_are_integers_in_every_dtype(dtype):
    frame = FRAME[["children"]].astype(dtype)
    assert Schema.infer(frame)["children"].kind == "integer"


NUMBERS = ["int8", "float32", "Int64", "Float64", "double[pyarrow]", "object", pd.ArrowDtype(pa.decimal128(6, 2))]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_stay_numbers_where_there_are_two_of_them(dtype):
    frame = pd.DataFrame({"x": pd.Series([0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], dtype=dtype)})
    schema = Schema.infer(frame)
    assert schema["x"] == Feature("x", "integer")
    assert Encoder.fit(frame, schema).encode(pd.DataFrame({"x": [2]})).tolist() == [[2.0]]
    assert Schema.infer(frame, overrides={"x": {"kind": "binary"}})["x"].categories == (0, 1)


@pytest.mark.parametrize(("texts", "kind"), [(["3", "5"], "integer"), (["3", "5.25"], "continuous")])
def test_decimals_are_numbers(texts, kind):
    frame = pd.DataFrame({"x": [*map(Decimal, texts), None]})
    schema, present = Schema.infer(frame), frame.dropna()
    assert schema["x"].kind == kind
    fitted = Encoder.fit(present, schema)
    assert fitted.decode(fitted.encode(present))["x"].tolist() == [Decimal(text) for text in texts]


@pytest.mark.parametrize("values", [[True, None, False], pd.array([True, None, False], dtype="boolean")])
def test_truth_values_with_gaps_are_boolean(values):
    assert Schema.infer(pd.DataFrame({"x": values}))["x"] == Feature("x", "boolean")


@pytest.mark.parametrize("dtype", ["str", "object", "string", "category", pd.ArrowDtype(pa.string())])
def test_text_is_text_in_every_dtype(dtype):
    frame = pd.DataFrame({"x": pd.Series(["b", None, "a", "c"], dtype=dtype)})
    assert Schema.infer(frame)["x"].categories == ("a", "b", "c")
    assert Schema.infer(frame.iloc[:3])["x"] == Feature("x", "binary", categories=("a", "b"))


def test_a_mixture_of_numbers_and_text_is_categorical():
    assert Schema.infer(pd.DataFrame({"x": ["b", 2, "a", 1]}))["x"].categories == (1, 2, "a", "b")


def test_numbers_that_log1p_does_not_suit_stay_as_they_are():
    gain = FRAME["gain"]
    frame = pd.DataFrame({"negative": gain - 1, "mild": np.sqrt(np.arange(COUNT)), "huge": [1e300, *range(29)]})
    assert [feature.transform for feature in Schema.infer(frame)] == ["identity", "identity", "log1p"]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.integers(-5, 5) | st.none(), min_size=1, max_size=8).filter(any),
    st.lists(st.floats(-1e300, 1e300) | st.none(), min_size=1, max_size=8).filter(
        lambda v: any(x is not None for x in v)
    ),
    st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=8).filter(any),
)
def test_what_is_inferred_fits_the_table(integers, floats, texts):
    for values in (integers, floats, texts):
        frame = pd.DataFrame({"x": values})
        schema = Schema.infer(frame)
        present = frame.dropna()
        fitted = Encoder.fit(present, schema)
        assert fitted.known(present).all()
        assert fitted.encode(present).isfinite().all()


def test_overrides_change_what_they_say():
    schema = Schema.infer(
        FRAME,
        target="label",
        overrides={
            "age": {"kind": "continuous", "upper": 90},
            "children": {"kind": "ordinal"},
            "flag": {"kind": "categorical"},
            "city": {"kind": "ordinal", "categories": ("Rome", "Bonn", "Oslo")},
            "gain": {"transform": "identity", "immutable": True},
        },
    )
    assert schema["age"] == Feature("age", "continuous", upper=90)
    assert schema["children"] == Feature("children", "ordinal", categories=(0.0, 1.0, 2.0, 3.0))
    assert schema["flag"] == Feature("flag", "categorical", categories=(0, 1))
    assert schema["city"].categories == ("Rome", "Bonn", "Oslo")
    assert schema["gain"] == Feature("gain", "integer", values="observed", immutable=True)


IDS = pd.DataFrame({"id": [f"person {i}" for i in range(30)], "age": range(30)})


def test_a_strange_column_may_be_declared():
    assert len(Schema.infer(IDS, overrides={"id": {"kind": "categorical"}})["id"].categories) == 30


def test_text_with_many_values_that_repeat_is_no_identifier():
    assert len(Schema.infer(pd.concat([IDS, IDS, IDS]))["id"].categories) == 30


UNIQUE = {
    "id": range(30),
    "customerID": [float(i) for i in range(30)],
    "Unnamed: 0": range(1, 31),
    "case number": [1000 + i for i in range(30)],
    "token": [UUID(int=i) for i in range(30)],
    "surname": [f"n{i // 2}" for i in range(16)] + list("abcdefghijklmn"),
    "essay": [f"text {i}" for i in range(30)],
    "void": [None] * 30,
}


@pytest.mark.parametrize("name", UNIQUE)
def test_identifiers_and_empty_columns_are_left_out_with_a_word(name):
    frame = pd.DataFrame({"age": range(30), name: UNIQUE[name]})
    with pytest.warns(CounterpathWarning, match=f"are left out: '{name}'.*ignored=.*overrides="):
        schema = Schema.infer(frame)
    assert schema.names == ("age",)
    assert list(schema.ignored) == [name]
    assert Schema.infer(frame, ignored=[name]).ignored == {name: ""}  # and no word
    fitted = Encoder.fit(frame, schema)
    assert fitted.decode(fitted.encode(frame)).columns.tolist() == ["age"]
    assert fitted.encode(frame[["age"]]).tolist() == fitted.encode(frame).tolist()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("paid", range(30)),
        ("region_id", [1, 2, 3] * 10),
        ("id", [i + 0.5 for i in range(30)]),
        ("NumberOfTimes", range(30)),
        ("surname", ["Li", "Bo", "Li"] * 10),
    ],
)
def test_what_only_looks_like_an_identifier_is_a_feature(name, values):
    assert Schema.infer(pd.DataFrame({name: values})).names == (name,)


@pytest.mark.parametrize("said", [{"overrides": {"id": {"kind": "integer"}}}, {"immutable": ["id"]}])
def test_an_identifier_that_is_named_is_a_feature(said):
    assert Schema.infer(pd.DataFrame({"id": range(30)}), **said)["id"].kind == "integer"


def test_all_problems_are_listed_at_once():
    frame = FRAME.assign(z=1j, tags=[["a"]] * COUNT)
    with pytest.raises(InputError) as caught:
        Schema.infer(frame, overrides={"city": {"kind": "binary"}})
    message = str(caught.value)
    assert "3 of 17 columns cannot be features as they are:" in message
    assert "\n- 'z': it has values like " in message
    assert "(dtype complex128); expected numbers, text" in message
    assert "\n- 'tags': it has values like ['a'] (dtype object)" in message
    assert "\n- 'city': feature 'city' (kind 'binary') has the categories" in message
    assert "Schema.infer(…, ignored=['city', 'z', 'tags'])" in message
    assert "counterpath schema DATA --out schema.json" in message
    assert list(Schema.infer(frame, ignored=["city", "z", "tags"]).ignored) == ["city", "z", "tags"]


def test_a_table_of_nothing_but_identifiers_has_no_schema():
    with pytest.raises(InputError, match=r"at least one feature, and the table has none\n- 'id': identifies rows"):
        Schema.infer(IDS[["id"]])


@pytest.mark.parametrize(
    ("table", "arguments", "message"),
    [
        (pd.DataFrame({"a": []}), {}, "the table has 0 rows of 1 columns"),
        (pd.DataFrame(), {}, "the table has 0 rows of 0 columns"),
        (pd.DataFrame({"a": [1]}), {"target": "a"}, "at least one feature"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), {}, "there twice: a; rename or drop"),
        (pd.DataFrame([[1, 2]]), {}, r"a column named 0, which is int; expected text; try frame.columns ="),
        (FRAME, {"target": "lable"}, r"unknown target 'lable' \(did you mean 'label'\?\)"),
        (FRAME, {"immutable": ["agee"]}, "unknown column 'agee'"),
        (FRAME, {"overrides": {"agee": {}}}, "unknown column 'agee'"),
        (FRAME, {"target": "label", "overrides": {"label": {}}}, "unknown column 'label'"),
        (
            FRAME,
            {"overrides": {"age": {"maximum": 3}}},
            "has no maximum; choose from: actionable, categories",
        ),
        (FRAME, {"overrides": {"age": {"name": "years"}}}, "the name 'years'; rename it in the table"),
        (FRAME, {"overrides": {"age": {"kind": "whole"}}}, "unknown kind of feature 'age': 'whole'"),
        (FRAME, {"overrides": {"city": {"kind": "binary"}}}, "'Oslo', 'Rome'.*; expected 2 different values"),
        (FRAME, {"overrides": {"flag": {"kind": "boolean"}}}, "'flag', row 0: 1 is not True or False.*'binary'"),
        (FRAME, {"overrides": {"sex": {"kind": "boolean"}}}, "'sex', row 0: 'Male' is not True or False"),
    ],
)
def test_what_cannot_be_inferred_is_explained(table, arguments, message):
    with pytest.raises(InputError, match=message):
        Schema.infer(table, **arguments)


def test_a_column_of_truth_values_may_be_declared_boolean():
    frame = pd.DataFrame({"x": pd.Series([True, None], dtype=object)})
    assert Schema.infer(frame, overrides={"x": {"kind": "boolean", "immutable": True}})["x"].immutable


def _column(values: list[float], times: int = 30) -> Feature:
    return Schema.infer(pd.DataFrame({"x": values * times}))["x"]


def test_whole_numbers_stay_multiples_of_what_they_all_are():
    """Nobody asks for a credit of 15,981 where all are in hundreds; a single other one, and nothing is known."""
    amounts = [float(100 * each) for each in range(7, 90)]
    assert _column(amounts).step == 100
    assert _column([*amounts, 1237]).step is None
    assert _column([12, 24, 36, 48, 72]).step == 12
    assert _column([12, 24, 36, 48, 72], times=3).step is None  # so few may be so by chance
    assert _column([2.0**60, 2.0**61, 2.0**62]).step is None


def test_few_numbers_with_gaps_between_them_are_numbers_of_something():
    """There is no branch 109 between 102 and 205; but 6 children may be had, though nobody here has."""
    assert _column([101, 102, 205, 310]).values == "observed"
    assert _column([0, 1, 2, 3, 4, 5, 8]).values == "any"
    assert _column([101, 102, 205, 310], times=10).values == "any"
    assert _column([0, 7]).values == "any"
    given = Schema.infer(pd.DataFrame({"x": [101, 102, 205, 310] * 30}), overrides={"x": {"step": 1}})["x"]
    assert (given.values, given.step) == ("any", 1)
