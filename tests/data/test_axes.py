"""What is decoded has no more digits than it takes to be encoded as the same point."""

import decimal
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from counterpath.data import Encoder, Feature, Schema
from counterpath.data.axes import shortest_decimals
from tests.sizes import examples

transforms = st.sampled_from(["identity", "log1p"])
dtypes = st.sampled_from(["float64", "float32", "Float64", "double[pyarrow]"])
points = st.lists(st.floats(0, 1, width=32) | st.floats(-1, 3, width=32), min_size=1, max_size=8)


def fitted(values, transform="identity", dtype="float64", **bounds) -> Encoder:
    frame = pd.DataFrame({"x": pd.Series(values).astype(dtype)})
    return Encoder.fit(frame, Schema((Feature("x", "continuous", transform=transform, **bounds),)))


def there_and_back(encoder: Encoder, values, dtype="float64") -> list[float]:
    frame = pd.DataFrame({"x": pd.Series(values).astype(dtype)})
    return encoder.decode(encoder.encode(frame))["x"].tolist()


def test_what_did_not_change_comes_back_as_it_was():
    encoder = fitted([18.61, 62345.67, 2226.9])
    assert there_and_back(encoder, [2226.90, 844.8, 0.07, -3.5]) == [2226.90, 844.8, 0.07, -3.5]
    assert encoder.decode(torch.tensor([[0.25]]))["x"].tolist() == [15600.375]


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=6),
    st.integers(-3, 9),
    st.sampled_from([0, 10**6, 3 * 10**7]),
    dtypes,
)
def test_few_digits_come_back_bit_for_bit(wholes, places, offset, dtype):
    offset = 0 if dtype == "float32" else offset
    values = [float(Decimal(whole + offset).scaleb(-places)) for whole in (-(10**6), 10**6, *wholes)]
    encoder = fitted(values, dtype=dtype)
    assert there_and_back(encoder, values, dtype) == pd.Series(values).astype(dtype).tolist()


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.integers(0, 9_999), min_size=1, max_size=6), st.integers(-40, 30))
def test_four_digits_come_back_whatever_the_unit(wholes, exponent):
    values = [float(f"{whole}e{exponent}") for whole in (0, 9_999, *wholes)]
    assert there_and_back(fitted(values), values) == values


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.integers(0, 99_999), min_size=1, max_size=6))
def test_few_digits_come_back_under_a_transform(cents):
    values = [cent / 100 for cent in (0, 99_999, *cents)]
    assert there_and_back(fitted(values, "log1p"), values) == values


def shorter(number: float) -> list[float]:
    """The decimals on both sides of a number that have one place less than it."""
    exact = Decimal(repr(number)).normalize()
    unit = Decimal(1).scaleb(int(exact.as_tuple().exponent) + 1)
    return [
        float((exact / unit).to_integral_value(rounding) * unit)
        for rounding in (decimal.ROUND_FLOOR, decimal.ROUND_CEILING)
    ]


@settings(max_examples=examples(300), deadline=None)
@given(points, transforms, dtypes, st.sampled_from([0.0, 0.1, 1e4, 1.7e9]), st.floats(1e-3, 1e7))
@example([0.708932101726532], "identity", "float64", 1.7e9, 4.0)  # which takes sixteen digits
def test_nothing_shorter_is_the_same_point(where, transform, dtype, offset, span):
    encoder = fitted([offset, offset + span], transform, dtype)
    legal = encoder.round(torch.tensor(where)[:, None])
    decoded = encoder.decode(legal)["x"]
    assert torch.equal(encoder.encode(decoded.to_frame()), legal)
    for point, value in zip(legal, decoded.to_numpy(), strict=True):
        # A short float has the digits of its own type: float32's 0.1 is 0.1.
        number = float(str(value))
        if float(value) in (*encoder.low, *encoder.high) or number == 0:
            continue
        tried = pd.DataFrame({"x": pd.Series(shorter(number)).astype(dtype)})
        assert (encoder.encode(tried)[:, 0] != point).all(), (value, tried)


@settings(max_examples=examples(100), deadline=None)
@given(points, transforms)
def test_bounds_and_whole_numbers_come_first(where, transform):
    lower, upper = 0.1234567890123, 98765.43210987
    encoder = fitted([0.0, 1e5], transform, lower=lower, upper=upper)
    decoded = encoder.decode(encoder.round(torch.tensor([[-1.0], [2.0], *([point] for point in where)])))["x"]
    assert decoded.tolist()[:2] == [lower, upper]
    assert decoded.between(lower, upper).all()
    wholes = np.arange(1, 98765, 777).astype(float)
    assert there_and_back(encoder, wholes) == wholes.tolist()


def test_an_integer_is_the_nearest_and_not_the_roundest():
    schema = Schema((Feature("x", "integer"),))
    frame = pd.DataFrame({"x": [0, 7_999_999, 1_234_567]})
    encoder = Encoder.fit(frame, schema)
    pd.testing.assert_frame_equal(encoder.decode(encoder.encode(frame)), frame)


def test_of_two_that_are_equally_short_the_nearer_is_taken():
    numbers = torch.tensor([0.4871, -0.4871, 0.0004, 7.0, 1.5e-30], dtype=torch.float64)
    widths = torch.tensor([0.3, 0.3, 0.1, 0.1, 4e-31], dtype=torch.float64)

    def same(candidates, rows):
        return (candidates - numbers[rows]).abs() <= widths[rows] / 2

    assert shortest_decimals(numbers, widths, same).tolist() == [0.5, -0.5, 0.0, 7.0, 1.5e-30]


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan, 1e308, 5e-324, 0.0])
def test_what_cannot_be_shortened_stays(number):
    numbers = torch.tensor([number], dtype=torch.float64)
    kept = shortest_decimals(numbers, torch.zeros(1, dtype=torch.float64), lambda each, rows: each == numbers[rows])
    assert torch.equal(kept.nan_to_num(-1.0), numbers.nan_to_num(-1.0))
