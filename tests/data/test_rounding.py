"""All features at once, against the axes one by one."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpath.data import Feature, Schema, rounding
from counterpath.data.axes import NumberAxis, on_grid
from counterpath.data.encoding import Encoder
from tests.sizes import examples

KINDS = ("integer", "continuous", "ordinal", "binary", "categorical")
RANGES = (
    (0.0, 1e4, "float64"),
    (0.0, 1.0, "float32"),
    (1.0, 1e4, "float32"),
    (3.0, 2.0, "float16"),
    (1.6e9, 1e4, "float64"),
    (4e6, 1.0, "float64"),
    (3e4, 0.1, "float64"),
    (4e12, 3.0, "float64"),
    (2e4, 0.3, "float32"),
)
"""From where on, how far, and how it is kept: in the last ones a column has fewer numbers than the grid has points."""


def plainly(encoder: Encoder, encoded: Tensor) -> Tensor:
    """What `round` promises, axis by axis."""
    rows = on_grid(encoded, torch.promote_types(encoded.dtype, torch.float32))
    parts = []
    for axis, columns in zip(encoder.axes, encoder.layout, strict=True):
        numbers = axis.numbers(rows[:, columns])
        if isinstance(axis, NumberAxis):
            numbers = numbers.clamp(axis.lower, axis.upper)
        parts.append(axis.points(numbers))
    return on_grid(torch.cat(parts, 1), encoded.dtype)


def same_bits(one: Tensor, other: Tensor) -> bool:
    whole = torch.int32 if one.dtype == torch.float32 else torch.int64
    return one.dtype == other.dtype and torch.equal(one.contiguous().view(whole), other.contiguous().view(whole))


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Columns of any kinds in any order, and what features they are; not all of their categories are there."""
    features: list[dict[str, Any]] = []
    table: dict[str, Any] = {}
    count = draw(st.integers(2, 6))
    for index in range(draw(st.integers(1, 7))):
        name, kind = f"f{index}", draw(st.sampled_from(KINDS))
        if kind in ("integer", "continuous"):
            transform = draw(st.sampled_from(("identity", "log1p")))
            origin, reach, kept = draw(st.sampled_from(RANGES))
            spread = draw(st.lists(st.floats(0, reach), min_size=count, max_size=count))
            values = origin + np.array(spread)
            table[name] = np.rint(values).astype(np.int64) if kind == "integer" else values.astype(kept)
            features.append({"name": name, "kind": kind, "transform": transform, **draw(_bounds(table[name]))})
        else:
            size = 2 if kind == "binary" else draw(st.integers(2, 5))
            names = tuple("abcde"[:size])
            table[name] = draw(st.lists(st.sampled_from(names), min_size=count, max_size=count))
            features.append({"name": name, "kind": kind, "categories": names})
    return table, features


@st.composite
def _bounds(draw: st.DrawFn, values: np.ndarray) -> dict[str, float]:
    if not draw(st.booleans()):
        return {}
    return {"lower": math.floor(values.min()), "upper": math.ceil(values.max()) + draw(st.integers(0, 3))}


@settings(max_examples=examples(100), deadline=None)
@given(tables(), st.sampled_from((torch.float32, torch.float64)), st.integers(0, 2**32))
def test_rounding_is_that_of_every_axis_to_the_bit(drawn: Any, dtype: torch.dtype, seed: int) -> None:
    table, features = drawn
    encoder = Encoder.fit(pd.DataFrame(table), Schema(tuple(Feature(**feature) for feature in features)))
    random = torch.Generator().manual_seed(seed)
    scale = torch.tensor([1.0, 1.0, 3.0, 1e9])[torch.randint(4, (64, 1), generator=random)]
    near = torch.rand(64, encoder.width, generator=random) * scale
    halves = torch.randint(-1, 13, (64, encoder.width), generator=random) / 12  # halfway between categories
    steps = torch.randint(-4, 5, (64, encoder.width), generator=random) / 2**24
    for points in (near, -near, halves, -0.0 * near, encoder.round(near * 9 - 4) + steps):
        assert same_bits(encoder.round(points.to(dtype)), plainly(encoder, points.to(dtype)))


def _mixed() -> Encoder:
    table = pd.DataFrame({"job": list("abcab"), "age": [20, 30, 41, 50, 60], "debt": [0.0, 10.5, 2e3, 3.0, 7.0]})
    features = (
        Feature("job", "categorical", categories=tuple("abc")),
        Feature("age", "integer"),
        Feature("debt", "continuous", transform="log1p"),
    )
    return Encoder.fit(table, Schema(features))


def test_many_rows_are_rounded_in_pieces_as_if_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, rows = _mixed(), torch.rand(103, 5, generator=torch.Generator().manual_seed(0))
    whole = encoder.round(rows)
    monkeypatch.setitem(rounding._AT_ONCE, "cpu", 10)
    assert same_bits(encoder.round(rows), whole)
    assert whole.is_contiguous()


def test_what_is_not_a_number_is_no_category_of_its_own_and_no_number() -> None:
    encoder = _mixed()
    rows = torch.tensor([[math.nan] * 5, [math.inf] * 5, [-math.inf] * 5])
    rounded, plain = encoder.round(rows), plainly(encoder, rows)
    torch.testing.assert_close(rounded, plain, rtol=0, atol=0, equal_nan=True)
    assert rounded[0, 3:].isnan().all()
    assert rounded[1:].isfinite().all()


def test_a_table_without_rows_stays_one() -> None:
    assert _mixed().round(torch.zeros(0, 5)).shape == (0, 5)
