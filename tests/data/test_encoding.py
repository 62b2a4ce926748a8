import json

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpath.data import Encoder, Feature, Schema
from counterpath.utils.errors import InputError
from tests.sizes import examples

SCHEMA = Schema(
    (
        Feature("income", "continuous"),
        Feature("age", "continuous"),
        Feature("gain", "continuous", transform="log1p"),
        Feature("children", "integer"),
        Feature("visits", "integer", transform="log1p"),
        Feature("sex", "binary", categories=("Female", "Male")),
    )
)
TRAIN = pd.DataFrame(
    {
        # not the order of the schema
        "sex": ["Male", "Female", "Male", "Female"],
        "income": [1200.5, 0.1, 77000.25, 31234.56],
        "age": [17, 90, 41, 38],
        "gain": [0, 99999, 2174, 7],
        "children": [0, 3, 11, 1],
        "visits": [1, 1000, 30, 5],
    }
)
DISCRETE = [SCHEMA.index(name) for name in ("children", "visits", "sex")]

finite = st.floats(-1e6, 1e6, allow_subnormal=False)
rows = st.lists(
    st.tuples(
        finite,
        st.integers(-100_000, 100_000),
        st.integers(0, 100_000),
        st.integers(-1000, 1000),
        st.integers(0, 10_000),
        st.sampled_from(["Female", "Male"]),
    ),
    min_size=1,
    max_size=12,
)
tensors = st.lists(st.lists(st.floats(-3, 4, width=32), min_size=6, max_size=6), min_size=1, max_size=8)


def table(values) -> pd.DataFrame:
    return pd.DataFrame(values, columns=list(SCHEMA.names))


def encoder() -> Encoder:
    return Encoder.fit(TRAIN, SCHEMA)


def test_encoded_rows_are_scaled_to_the_unit_interval():
    encoded = encoder().encode(TRAIN)
    assert encoded.dtype == torch.float32
    assert encoded.shape == (4, encoder().width)
    assert encoded.min(dim=0).values.tolist() == [0.0] * 6
    assert encoded.max(dim=0).values.tolist() == [1.0] * 6
    assert encoded[2, 2].item() == pytest.approx(np.log1p(2174) / np.log1p(99999))
    assert encoded[:, 5].tolist() == [1.0, 0.0, 1.0, 0.0]


def test_decode_restores_columns_order_dtypes_and_index():
    rows = TRAIN.set_index(pd.Index(["a", "b", "c", "d"]))
    decoded = encoder().decode(encoder().encode(rows), rows.index)
    pd.testing.assert_frame_equal(decoded, rows, rtol=1e-6)
    pd.testing.assert_frame_equal(decoded.drop(columns="income"), rows.drop(columns="income"), check_exact=True)


@settings(max_examples=examples(100), deadline=None)
@given(rows, rows)
def test_decode_inverts_encode_inside_and_outside_the_training_range(train, rows):
    fitted = Encoder.fit(table([*train, (0.0, 0, 0, 0, 0, "Female"), (1.0, 1, 1, 1, 1, "Male")]), SCHEMA)
    frame = table(rows)
    encoded = fitted.encode(frame)
    decoded = fitted.decode(encoded)
    pd.testing.assert_frame_equal(decoded.drop(columns="income"), frame.drop(columns="income"), check_exact=True)
    span = fitted.high[0] - fitted.low[0]
    allowed = 2e-7 * span * np.maximum(1.0, encoded[:, 0].abs().numpy())
    assert (np.abs(decoded["income"] - frame["income"]) <= allowed).all()


@settings(max_examples=examples(100), deadline=None)
@given(rows, tensors)
def test_rounded_rows_are_legal_and_stay_as_they_are(train, values):
    frame = table(train)
    fitted = Encoder.fit(frame, SCHEMA)
    rounded = fitted.round(torch.tensor(values))
    assert torch.equal(fitted.round(rounded), rounded)
    assert rounded.dtype == torch.float32
    decoded = fitted.decode(rounded)
    assert (decoded.dtypes[["children", "visits"]] == "int64").all()
    for name in SCHEMA.names[:-1]:
        assert decoded[name].between(frame[name].min(), frame[name].max()).all()
    assert decoded["sex"].isin(frame["sex"]).all()
    assert torch.equal(fitted.encode(decoded)[:, DISCRETE], rounded[:, DISCRETE])


@settings(max_examples=examples(50), deadline=None)
@given(tensors)
def test_round_leaves_continuous_values_within_bounds_on_the_grid_alone(values):
    inside = (torch.tensor(values).clamp(0.0, 1.0) * 2**23).round() / 2**23
    assert torch.equal(encoder().round(inside)[:, :3], inside[:, :3])


def test_answers_do_not_depend_on_the_split():
    encoded = torch.rand(50, 6, generator=torch.Generator().manual_seed(0)) * 2 - 0.5
    whole = encoder().decode(encoder().round(encoded))
    parts = pd.concat([encoder().decode(encoder().round(encoded[i : i + 1])) for i in range(50)], ignore_index=True)
    assert (whole == parts).all(axis=None)


def test_a_fraction_in_an_integer_column_is_kept_unless_the_kind_is_integer():
    encoded = encoder().encode(TRAIN)
    encoded[0, SCHEMA.index("age")] = 0.123
    encoded[0, SCHEMA.index("children")] = 0.123
    decoded = encoder().decode(encoded)
    assert decoded["age"].dtype == "float64"
    assert decoded["age"].iloc[0] == pytest.approx(17 + 0.123 * 73)
    assert decoded["age"].iloc[1:].tolist() == [90.0, 41.0, 38.0]
    assert decoded["children"].dtype == "int64"
    assert decoded["children"].iloc[0] == 1


def test_the_schemas_bounds_come_before_the_training_range():
    schema = SCHEMA.replace("income", lower=0.3, upper=1e5).replace("children", upper=2)
    fitted = Encoder.fit(TRAIN, schema)
    low, high = fitted.decode(fitted.round(torch.tensor([[-9.0] * 6, [9.0] * 6]))).to_dict("records")
    assert (low["income"], high["income"]) == (0.3, 1e5)
    assert (low["children"], high["children"]) == (0, 2)
    assert (low["age"], high["age"]) == (17, 90)
    assert fitted.encode(TRAIN)[:, 0].max() == 1.0


def test_a_bound_that_excludes_the_training_rows_is_refused():
    with pytest.raises(InputError, match="'age' has no legal value from 95 to 90"):
        Encoder.fit(TRAIN, SCHEMA.replace("age", lower=95))


def test_a_constant_column_never_changes():
    constant = TRAIN.assign(income=0.1, age=40, gain=5, children=2, visits=3, sex="Male")
    fitted = Encoder.fit(constant, SCHEMA.replace("age", lower=0, upper=100))
    assert fitted.encode(constant).tolist() == [[0.0] * 5 + [1.0]] * 4
    moved = fitted.decode(fitted.round(torch.randn(4, 6, generator=torch.Generator().manual_seed(1)) * 5))
    pd.testing.assert_frame_equal(moved, constant, check_exact=True)


def test_an_empty_table_is_encoded_and_decoded_with_its_types_but_not_fitted():
    encoded = encoder().encode(TRAIN.iloc[:0])
    assert encoded.shape == (0, 6)
    assert encoder().round(encoded).shape == (0, 6)
    assert (encoder().decode(encoded).dtypes == TRAIN.dtypes).all()
    assert encoder().known(TRAIN.iloc[:0]).shape == (0,)
    with pytest.raises(InputError, match="needs rows"):
        Encoder.fit(TRAIN.iloc[:0], SCHEMA)


@pytest.mark.parametrize("dtype", ["object", "string", "category", "str"])
def test_every_way_to_store_text_works(dtype):
    frame = TRAIN.astype({"sex": dtype})
    fitted = Encoder.fit(frame, SCHEMA)
    pd.testing.assert_frame_equal(fitted.decode(fitted.encode(frame))[["sex"]], frame[["sex"]])


@pytest.mark.parametrize("dtype", ["uint8", "int32", "Int64", "UInt16", "int16[pyarrow]", "float32", "Float64"])
def test_every_way_to_store_numbers_works(dtype):
    frame = TRAIN.astype({"age": dtype, "children": dtype})
    fitted = Encoder.fit(frame, SCHEMA)
    decoded = fitted.decode(fitted.encode(frame))[["age", "children"]]
    pd.testing.assert_frame_equal(decoded, frame[["age", "children"]], check_exact=True)


def test_a_number_that_the_dtype_cannot_hold_is_not_wrapped_around():
    fitted = Encoder.fit(TRAIN.astype({"age": "uint8"}), SCHEMA)
    encoded = fitted.encode(TRAIN.assign(age=300))
    assert fitted.decode(encoded)["age"].tolist() == [300.0] * 4


@pytest.mark.parametrize("categories", [(0, 1), (False, True), (1.5, 2.5)])
def test_categories_need_not_be_text(categories):
    schema = SCHEMA.replace("sex", categories=categories)
    frame = TRAIN.assign(sex=[categories[1], categories[0], categories[1], categories[0]])
    fitted = Encoder.fit(frame, schema)
    assert fitted.encode(frame)[:, 5].tolist() == [1.0, 0.0, 1.0, 0.0]
    pd.testing.assert_frame_equal(fitted.decode(fitted.encode(frame))[["sex"]], frame[["sex"]])


def test_one_row_taken_out_of_a_table_is_welcome():
    row = TRAIN.loc[2].to_frame().T
    assert row["age"].dtype == object
    assert torch.equal(encoder().encode(row), encoder().encode(TRAIN)[2:3])
    assert Encoder.fit(row, SCHEMA).decode(torch.zeros(1, 6))["age"].dtype == "int64"


def test_json_round_trip():
    again = Encoder.from_json(json.loads(json.dumps(encoder().to_json())))
    assert again == encoder()
    assert torch.equal(again.encode(TRAIN), encoder().encode(TRAIN))
    pd.testing.assert_frame_equal(again.decode(again.encode(TRAIN)), encoder().decode(encoder().encode(TRAIN)))
    with pytest.raises(InputError, match="not an encoder in JSON: it lacks dtypes, fill, high, seen"):
        Encoder.from_json({"schema": {}, "low": []})


def test_rows_with_unknown_categories_are_found_and_refused():
    rows = TRAIN.astype({"sex": object}).set_index(pd.Index([10, 11, 12, 13]))
    rows.loc[12, "sex"] = "Diverse"
    assert encoder().known(rows).to_dict() == {10: True, 11: True, 12: False, 13: True}
    message = "column 'sex', row 12: 'Diverse' is not a known category; known are: 'Female', 'Male'"
    with pytest.raises(InputError, match=message):
        encoder().encode(rows)
    with pytest.raises(InputError, match=message):
        Encoder.fit(rows, SCHEMA)
    assert encoder().encode(rows[encoder().known(rows)]).shape == (3, 6)


def test_a_category_of_the_schema_that_training_lacks_is_unknown():
    fitted = Encoder.fit(TRAIN[TRAIN["sex"] == "Male"], SCHEMA)
    assert fitted.known(TRAIN).tolist() == [True, False, True, False]
    with pytest.raises(InputError, match=r"row 1: 'Female' is not a known category; known are: 'Male'$"):
        fitted.encode(TRAIN)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("income", float("nan"), "'income', row 12: nan is a missing value"),
        ("income", float("inf"), "'income', row 12: inf is not finite"),
        ("income", 1e300, "'income', row 12: 1e\\+300 is too far from the training rows, which go from 0.1 to 77000"),
        ("income", "much", "'income', row 12: 'much' is not a number.*pandas.to_numeric"),
        ("income", True, "'income', row 12: True is not a number"),
        ("income", 1j, "'income', row 12: 1j is not a number"),
        ("income", pd.Timestamp(0), "'income', row 12: .* is not a number"),
        ("gain", -1, "'gain', row 12: -1 is outside what the transform log1p takes, numbers above -1"),
        ("children", 1.5, "'children', row 12: 1.5 is not a whole number"),
        ("sex", None, "'sex', row 12: None is a missing value"),
        ("sex", ["Male"], r"'sex', row 12: \['Male'\] is not a known category"),
    ],
)
def test_a_bad_value_is_named_with_its_column_and_row(column, value, message):
    rows = TRAIN.astype({column: object}).set_index(pd.Index([10, 11, 12, 13]))
    rows.at[12, column] = value
    with pytest.raises(InputError, match=message):
        encoder().encode(rows)


@pytest.mark.parametrize("dtype", ["str", "bool", "datetime64[ns]"])
def test_a_column_of_the_wrong_dtype_is_named(dtype):
    with pytest.raises(InputError, match=r"column 'age', row 0: .* is not a number"):
        encoder().encode(TRAIN.astype({"age": dtype}))


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (TRAIN.drop(columns=["age", "sex"]), "columns that are missing: age, sex"),
        (TRAIN.assign(label=1), "columns too many: label; .*leaves out a label"),
        (pd.concat([TRAIN, TRAIN[["age"]]], axis=1), "columns that are there twice: age"),
    ],
)
def test_missing_and_extra_columns_are_named(frame, message):
    with pytest.raises(InputError, match=message):
        encoder().encode(frame)
    with pytest.raises(InputError, match=message):
        Encoder.fit(frame, SCHEMA)


def test_a_range_that_overflows_is_refused():
    with pytest.raises(InputError, match=r"'income' goes from -1.7e\+308 to 1.7e\+308, too far"):
        Encoder.fit(TRAIN.assign(income=[-1.7e308, 1.7e308, 0.0, 0.0]), SCHEMA)


def test_encoded_rows_of_another_shape_or_with_nan_are_refused():
    with pytest.raises(InputError, match="6 columns; given were 5 columns"):
        encoder().decode(torch.zeros(1, 5))
    with pytest.raises(InputError, match="1 values not finite"):
        encoder().decode(torch.full((1, 6), 0.5).index_fill(1, torch.tensor(0), torch.nan))
