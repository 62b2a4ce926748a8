"""A table with every kind of column, and the promise of the grid: a legal row survives decoding bit for bit."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpath.data import Encoder, Feature, Schema
from counterpath.utils.errors import InputError
from tests.sizes import examples

CITIES = tuple("ABCDEFGHIJKL")
SIZES = ("small", "medium", "large", "huge")
SCHEMA = Schema(
    (
        Feature("city", "categorical", categories=CITIES),
        Feature("income", "continuous", lower=0),
        Feature("size", "ordinal", categories=SIZES),
        Feature("children", "integer"),
        Feature("member", "boolean", immutable=True),
        Feature("sex", "binary", categories=("Female", "Male")),
        Feature("gain", "continuous", transform="log1p"),
        Feature("only", "categorical", categories=("x",)),
    )
)
TRAIN = pd.DataFrame(
    {
        "income": [1200.5, 0.1, 77000.25, 31234.56, 5.0],
        "city": ["A", "C", "L", "C", "H"],
        "children": [0, 3, 11, 1, 2],
        "size": pd.Categorical(["small", "huge", "large", "small", "huge"], categories=SIZES, ordered=True),
        "member": [True, False, False, True, True],
        "sex": ["Male", "Female", "Male", "Female", "Male"],
        "gain": [0.0, 99999.0, 2174.0, 7.0, 0.5],
        "only": ["x"] * 5,
    }
)
WIDTH = 12 + 1 + 1 + 1 + 1 + 1 + 1 + 1


def encoder() -> Encoder:
    return Encoder.fit(TRAIN, SCHEMA)


def assert_survives(fitted: Encoder, legal: torch.Tensor) -> None:
    """A legal row is the same after decoding and after rounding, bit for bit."""
    assert torch.equal(fitted.encode(fitted.decode(legal)), legal)
    assert torch.equal(fitted.round(legal), legal)


def test_the_layout_says_where_each_feature_is():
    fitted = encoder()
    assert fitted.width == WIDTH
    assert fitted.layout[0] == slice(0, 12)
    assert fitted.layout[1:3] == (slice(12, 13), slice(13, 14))
    assert fitted.layout[-1] == slice(18, 19)
    assert fitted.blocks == ((0, 12), (18, 19))
    assert fitted.categorical.nonzero()[:, 0].tolist() == [*range(12), 18]
    assert fitted.weights[12:18].tolist() == [1.0] * 6
    assert fitted.weights[:12].square().tolist() == pytest.approx([0.5] * 12)
    assert fitted.columns("size", "city") == [13, *range(12)]


def test_every_kind_is_encoded_as_it_should_be():
    rows = encoder().encode(TRAIN)
    assert rows.dtype == torch.float32
    assert rows[:, :12].argmax(1).tolist() == [0, 2, 11, 2, 7]
    assert rows[:, :12].sum(1).tolist() == [1.0] * 5
    assert rows[:, 13].tolist() == pytest.approx([0, 1, 2 / 3, 0, 1])
    assert rows[:, 15].tolist() == [1, 0, 0, 1, 1]
    assert rows[:, 18].tolist() == [1.0] * 5
    assert ((rows.double() * 2**23) % 1 == 0).all()


def test_a_mixed_table_comes_back_as_it_was():
    fitted = encoder()
    decoded = fitted.decode(fitted.encode(TRAIN), TRAIN.index)
    exact = TRAIN.columns.drop(["income", "gain"])
    pd.testing.assert_frame_equal(decoded[exact], TRAIN[exact], check_exact=True)
    pd.testing.assert_frame_equal(decoded, TRAIN, rtol=1e-6, atol=0.005)


def test_only_categories_that_were_seen_are_known():
    fitted = encoder()
    assert fitted.seen[0] == (0, 2, 7, 11)
    assert fitted.seen[1] == ()
    assert fitted.seen[2] == (0, 2, 3)
    # B lies between A and C, which were seen; "medium" between "small" and "large".
    rows = TRAIN.assign(city=["B", "A", "Z", "L", "H"])
    assert fitted.known(rows).tolist() == [False, True, False, True, True]
    with pytest.raises(
        InputError, match=r"column 'city', row 0: 'B' is not a known category; known are: 'A', 'C', 'H', "
    ):
        fitted.encode(rows)
    sizes = TRAIN["size"].to_list()
    with pytest.raises(
        InputError, match=r"row 4: 'medium' is not a known category; known are: 'small', 'large', 'huge'"
    ):
        fitted.encode(TRAIN.assign(size=[*sizes[:4], "medium"]))


def test_soft_rows_become_the_largest_seen_category_and_the_nearest_seen_place():
    fitted = encoder()
    row = fitted.encode(TRAIN)[:1].repeat(3, 1)
    row[0, :12] = torch.tensor([0.2, 0.9, 0.3] + [0.0] * 9)  # B was never seen
    row[1, :12] = -5.0
    row[1, 11] = -4.0
    row[:, 13] = torch.tensor([0.3, 0.36, 5.0])  # "medium" is at 1/3
    decoded = fitted.decode(row)
    assert decoded["city"].tolist() == ["C", "L", "A"]
    assert decoded["size"].tolist() == ["small", "large", "huge"]
    legal = fitted.round(row)
    assert legal[:, :12].tolist() == torch.eye(12)[[2, 11, 0]].tolist()
    assert_survives(fitted, legal)


def test_a_category_counts_once():
    fitted = encoder()
    rows = fitted.encode(TRAIN)
    changed = fitted.changed(rows[:1], rows[1:2])
    assert changed.shape == (1, len(SCHEMA))
    assert changed[0].tolist() == [True, True, True, True, True, True, True, False]
    assert not fitted.changed(rows, rows).any()


def test_json_keeps_what_was_seen():
    again = Encoder.from_json(json.loads(json.dumps(encoder().to_json())))
    assert again == encoder()
    pd.testing.assert_frame_equal(again.decode(again.encode(TRAIN)), encoder().decode(encoder().encode(TRAIN)))


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(
        st.lists(st.floats(width=32, allow_nan=False) | st.floats(-1, 2, width=32), min_size=WIDTH, max_size=WIDTH),
        min_size=1,
        max_size=5,
    )
)
def test_whatever_is_rounded_survives_decoding(values):
    fitted = encoder()
    legal = fitted.round(torch.tensor(values, dtype=torch.float32))
    assert legal.dtype == torch.float32
    assert_survives(fitted, legal)
    decoded = fitted.decode(legal)
    assert (decoded.dtypes == TRAIN.dtypes).all()
    assert decoded["income"].between(0, 77000.25).all()
    assert decoded["gain"].between(0, 99999).all()
    assert fitted.known(decoded).all()


columns = st.fixed_dictionaries(
    {
        "offset": st.sampled_from([0.0, 1.0, 0.1, 1e3, 1e6, 1.7e9, 1.7e12]) | st.floats(0, 1e12),
        "span": st.sampled_from([1.0, 7.0, 0.3, 1e6, 2.0**24, 2.0**23 + 1]) | st.floats(1e-3, 1e9),
        "shares": st.lists(st.floats(0, 1), max_size=4),
        "whole": st.booleans(),
        "dtype": st.sampled_from(["float64", "float32", "Float64", "Int64", "int64"]),
    }
)
lowers, uppers = st.none() | st.floats(-3, 0.4), st.none() | st.floats(0.6, 3)
anything = st.floats(-0.5, 1.5, width=32) | st.floats(width=32, allow_nan=False)


def column(offset, span, shares, whole, dtype) -> pd.Series:
    values = offset + span * np.array([0.0, 1.0, *shares])
    return pd.Series(np.rint(values) if whole or "nt" in dtype else values, name="x").astype(dtype)


@settings(max_examples=examples(400), deadline=None)
@given(
    columns,
    st.sampled_from(["identity", "log1p"]),
    st.booleans(),
    lowers,
    uppers,
    st.lists(anything, min_size=1, max_size=8),
)
def test_numbers_survive_whatever_their_offset_scale_transform_and_dtype(
    table, transform, negative, lower, upper, points
):
    values = column(**table)
    values = -values if negative and transform == "identity" else values
    low, high = float(values.min()), float(values.max())
    kind = "integer" if table["whole"] else "continuous"
    # Bounds are shares of the range, but where the transform or the kind forbids that.
    bounds = {
        name: low + share * (high - low) for name, share in (("lower", lower), ("upper", upper)) if share is not None
    }
    bounds = {name: max(0.0, bound) if transform == "log1p" else bound for name, bound in bounds.items()}
    bounds = {name: float(round(bound)) if kind == "integer" else bound for name, bound in bounds.items()}
    fitted = Encoder.fit(values.to_frame(), Schema((Feature("x", kind, transform=transform, **bounds),)))
    legal = fitted.round(torch.tensor(points, dtype=torch.float32)[:, None])
    assert_survives(fitted, legal)
    decoded = fitted.decode(legal)["x"]
    bounds = bounds if low < high else {}
    assert (decoded >= bounds.get("lower", low)).all()
    assert (decoded <= bounds.get("upper", high)).all()


@settings(max_examples=examples(100), deadline=None)
@given(columns, st.lists(st.integers(-1000, 1000), min_size=1, max_size=5))
def test_whole_numbers_near_a_large_offset_are_distinguished(table, steps):
    values = column(**(table | {"whole": True, "dtype": "int64", "span": 1000.0}))
    fitted = Encoder.fit(values.to_frame(), Schema((Feature("x", "integer"),)))
    rows = pd.DataFrame({"x": int(values.min()) + np.array(steps)})
    pd.testing.assert_frame_equal(fitted.decode(fitted.encode(rows)), rows)


def test_huge_numbers_among_small_ones_are_encoded_and_never_nan():
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0, 1e300]})
    for transform in ("identity", "log1p"):
        fitted = Encoder.fit(frame, Schema((Feature("x", "continuous", transform=transform),)))
        assert fitted.encode(frame).isfinite().all()
        assert_survives(fitted, fitted.round(torch.tensor([[-3e38], [0.0], [0.3], [1.0], [3e38]])))


DTYPES = {
    "bool": pd.Series([True, False, True]),
    "boolean": pd.Series([True, False, True], dtype="boolean"),
    "arrow bool": pd.Series([True, False, True], dtype="bool[pyarrow]"),
    "object bool": pd.Series([True, False, True], dtype=object),
    "str": pd.Series(["a", "b", "a"]),
    "string": pd.Series(["a", "b", "a"], dtype="string[python]"),
    "string of Arrow": pd.Series(["a", "b", "a"], dtype="string[pyarrow]"),
    "arrow text": pd.Series(["a", "b", "a"], dtype=pd.ArrowDtype(pa.string())),
    "large arrow text": pd.Series(["a", "b", "a"], dtype=pd.ArrowDtype(pa.large_string())),
    "category": pd.Series(["a", "b", "a"], dtype=pd.CategoricalDtype(["z", "b", "a"])),
    "ordered": pd.Series(["a", "b", "a"], dtype=pd.CategoricalDtype(["b", "unused", "a"], ordered=True)),
    "category of numbers": pd.Series([1, 2, 1], dtype="category"),
    "int": pd.Series([1, 2, 1], dtype="int8"),
    "Int": pd.Series([1, 2, 1], dtype="Int64"),
    "Float": pd.Series([1.5, 2.5, 1.5], dtype="Float32"),
    "arrow int": pd.Series([1, 2, 1], dtype="int32[pyarrow]"),
    "arrow float": pd.Series([1.5, 2.5, 1.5], dtype="double[pyarrow]"),
}


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("kind", ["binary", "ordinal", "categorical"])
def test_categories_come_back_in_their_dtype(name, kind):
    frame = DTYPES[name].to_frame("x")
    schema = Schema((Feature("x", kind, categories=tuple(frame["x"].unique())),))
    fitted = Encoder.from_json(json.loads(json.dumps(Encoder.fit(frame, schema).to_json())))
    pd.testing.assert_frame_equal(fitted.decode(fitted.encode(frame)), frame, check_exact=True)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float16", "float16"),
        ("float[pyarrow]", "float[pyarrow]"),
        ("category", "int64"),
        ("int8[pyarrow]", "int8[pyarrow]"),
    ],
)
def test_numbers_come_back_in_their_dtype(dtype, expected):
    frame = pd.DataFrame({"x": [1, 2, 5]}).astype(dtype)
    fitted = Encoder.fit(frame, Schema((Feature("x", "continuous"),)))
    pd.testing.assert_frame_equal(fitted.decode(fitted.encode(frame)), frame.astype(expected), check_exact=True)


def test_decimals_come_back_as_floats():
    frame = pd.DataFrame({"x": pd.Series([1, 2, 5], dtype=pd.ArrowDtype(pa.decimal128(5, 2)))})
    fitted = Encoder.fit(frame, Schema((Feature("x", "continuous"),)))
    assert fitted.decode(fitted.encode(frame))["x"].tolist() == [1.0, 2.0, 5.0]


def test_a_dtype_that_is_none_is_refused():
    value = json.loads(json.dumps(encoder().to_json()))
    value["dtypes"]["city"] = "rainbow"
    with pytest.raises(InputError, match="'rainbow' is not a dtype that this version knows"):
        Encoder.from_json(value).decode(encoder().encode(TRAIN))
