"""Legal numbers: multiples of a step, listed and observed values, and the least change."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from counterpath.data.encoding import Encoder
from counterpath.data.schema import Feature, Schema
from counterpath.search.feasible import FeasibleSet
from counterpath.utils.errors import InputError


def fitted(column: list[float], **attributes: object) -> Encoder:
    kind = str(attributes.pop("kind", "continuous"))
    return Encoder.fit(pd.DataFrame({"x": column}), Schema((Feature("x", kind, **attributes),)))  # type: ignore[arg-type]


def legal(encoder: Encoder, own: float, *wanted: float) -> list[float]:
    """What a person may have that is nearest to each wanted value."""
    frame = pd.DataFrame({"x": [own] * len(wanted)})
    feasible = FeasibleSet.of(encoder, encoder.encode(frame))
    found = feasible.legal(encoder.encode(frame.assign(x=wanted)))
    assert torch.equal(feasible.legal(found), found)
    result: list[float] = encoder.decode(found)["x"].tolist()
    return result


def test_a_step_from_zero_leaves_multiples_and_ones_own_value():
    encoder = fitted([0.0, 1000.0], step=50)
    assert legal(encoder, 120.0, 0.0, 119.0, 130.0, 149.0, 163.0, 990.0) == [0, 120, 120, 150, 150, 1000]


def test_a_step_from_ones_own_value_goes_up_and_down_from_there_within_bounds():
    encoder = fitted([0.0, 1000.0], step=50, step_from="own")
    assert legal(encoder, 120.0, 0.0, 130.0, 149.0, 990.0) == [20, 120, 170, 970]


def test_decimals_of_a_step_are_written_as_people_do():
    encoder = fitted([0.0, 7.0], step=0.1)
    assert legal(encoder, 0.0, 0.29, 0.31, 5.649) == [0.3, 0.3, 5.6]


def test_only_observed_values_are_legal():
    encoder = fitted([0.0, 0.0, 0.0, 3103.0, 7298.0], values="observed", transform="log1p", kind="integer")
    assert set(legal(encoder, 0.0, *np.linspace(0, 7298, 50).round())) == {0, 3103, 7298}
    assert legal(encoder, 12.0, 15.0, 40.0, 7000.0) == [12, 12, 7298]
    assert Encoder.from_json(json.loads(json.dumps(encoder.to_json()))) == encoder


def test_listed_values_and_bounds():
    encoder = fitted([6.0, 60.0], values=(6, 12, 24, 36, 48, 60), upper=50, kind="integer")
    assert legal(encoder, 12.0, 29.0, 31.0, 60.0) == [24, 36, 48]


def test_a_change_below_the_least_one_is_none():
    encoder = fitted([0.0, 100.0], min_change=5, kind="integer")
    assert legal(encoder, 40.0, 41.0, 42.0, 43.0, 46.0, 38.0, 36.0, 35.0) == [40, 40, 45, 46, 40, 35, 35]
    assert legal(fitted([0.0, 100.0], min_change=5), 98.0, 99.9) == [98]


@given(
    step=st.sampled_from([0.005, 0.01, 0.25, 0.5, 1.0, 2.5, 50.0, 1000.0]),
    own=st.floats(0, 1, width=32),
    least=st.sampled_from([0.0, 0.7, 3.0, 120.0]),
    start=st.sampled_from(["zero", "own"]),
    transform=st.sampled_from(["identity", "log1p"]),
    seed=st.integers(0, 999),
)
def test_what_is_legal_is_on_the_grid_far_enough_and_the_nearest(
    step: float, own: float, least: float, start: str, transform: str, seed: int
) -> None:
    high = 200 * step
    encoder = fitted([0.0, high], step=step, step_from=start, min_change=least, transform=transform)
    mine = round(own * high, 3)
    mine = encoder.decode(encoder.encode(pd.DataFrame({"x": [mine]})))["x"].item()
    wanted = np.random.default_rng(seed).uniform(0, high, 20)
    found = np.array(legal(encoder, mine, *wanted))
    moved = found[found != mine]
    steps = (moved - (mine if start == "own" else 0)) / step
    assert np.abs(steps - np.rint(steps)).max(initial=0) < 1e-3
    assert (np.abs(moved - mine) >= least * (1 - 1e-4)).all()
    assert ((found >= 0) & (found <= high)).all()
    if not least and transform == "identity":
        assert (np.abs(found - wanted) <= step * (0.5 + 1e-3) + (high % step if start == "own" else 0) + step).all()
    if start == "zero" and len(moved):
        assert all(math.isclose(value, round(value / step) * step, rel_tol=0, abs_tol=1e-9) for value in moved)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            {"step": 30, "lower": 0, "upper": 100},
            "'x' .* step=30, which does not divide upper=100; try upper=90",
        ),
        ({"step": 0}, "step=0; expected a positive number"),
        ({"step": math.inf}, "step=inf; expected a positive number"),
        ({"step": 0.5, "kind": "integer"}, "step=0.5; expected a whole number"),
        ({"step": 5, "values": "observed"}, "a step and values='observed'; give it one of them"),
        ({"step": 5, "step_from": "mine"}, "unknown start of the steps of feature 'x': 'mine'"),
        ({"values": "seen"}, "unknown values of feature 'x': 'seen'"),
        ({"values": (1, 2), "lower": 5}, r"values=\[1.0, 2.0\], none of them from 5 to None"),
        ({"values": (1.5,), "kind": "integer"}, "expected whole numbers"),
        ({"min_change": -1}, "min_change=-1; expected a number from 0"),
        ({"kind": "categorical", "categories": ("a", "b"), "step": 1}, "a step, values or min_change"),
        ({"kind": "categorical", "categories": ("a",), "category_labels": {"b": "B"}}, "a label for 'b', which is no"),
    ],
)
def test_what_cannot_be_is_refused(attributes: dict[str, object], message: str) -> None:
    kind = str(attributes.pop("kind", "continuous"))
    with pytest.raises(InputError, match=message):
        Feature("x", kind, **attributes)  # type: ignore[arg-type]


def test_observed_values_that_no_bound_leaves_are_refused():
    with pytest.raises(
        InputError, match="'x' has no legal value: it may only have observed values, which go from 0 to 9"
    ):
        fitted([0.0, 9.0], values="observed", lower=4, upper=6)


@pytest.mark.parametrize(("given", "words"), [(500, "from 0 to 99"), (-5, "from 0 to 99")])
def test_a_number_that_cannot_be_is_refused(given: float, words: str) -> None:
    encoder = fitted([20.0, 60.0], lower=0, upper=99, kind="integer")
    with pytest.raises(InputError, match=f"column 'x', row 0: {given} cannot be; expected is a number {words}"):
        encoder.encode(pd.DataFrame({"x": [given]}))


def test_rows_of_training_beyond_a_bound_of_the_schema_are_possible():
    encoder = fitted([0.0, 100.0], upper=50, step=10)
    assert legal(encoder, 100.0, 100.0, 90.0, 70.0, 41.0) == [100, 100, 50, 40]
