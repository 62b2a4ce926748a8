import math

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from counterpath.data import Encoder, Feature, Schema
from counterpath.geometry.graph import Neighbours
from counterpath.search.combinations import Combinations
from counterpath.search.measures import (
    MEASURES,
    Case,
    distance_to_data,
    instability,
    path_distance_to_data,
    path_length,
    spreads,
    turning,
)

SCHEMA = Schema(
    (
        Feature("age", "continuous", immutable=True),
        Feature("gain", "continuous", transform="log1p"),
        Feature("sex", "binary", categories=("Female", "Male"), immutable=True),
        Feature("job", "binary", categories=("no", "yes")),
    )
)
FRAME = pd.DataFrame(
    {"age": [20.0, 60.0, 40.0], "gain": [0.0, 99.0, 9.0], "sex": ["Male", "Female", "Male"], "job": ["no", "yes", "no"]}
)
ENCODER = Encoder.fit(FRAME, SCHEMA)
TRAIN = ENCODER.encode(FRAME)


def _probability(x: Tensor) -> Tensor:
    """Accepts whoever has a job; a gain helps a little."""
    return 0.6 * x[:, 3] + 0.2 * x[:, 1]


def _case(factual: Tensor, counterfactual: Tensor, confidence: float = 0.5) -> Case:
    seen = Combinations.fit(ENCODER, TRAIN)
    end = ENCODER.round(counterfactual)
    found = spreads(ENCODER, TRAIN)
    known = {"combinations": seen, "spreads": found, "share_after": lambda x: 0.5 * x[:, 3]}
    return Case(factual, end, _probability, ENCODER, Neighbours(TRAIN), confidence, **known)


def test_every_measure_on_a_row_worked_out_by_hand() -> None:
    factual = TRAIN[:1]  # age 20, gain 0, male, no job: encoded 0, 0, 1, 0
    case = _case(factual, torch.tensor([[0.5, 0.5, 0.2, 0.9]]))  # rounded to 0.5, 0.5, 0, 1
    expected = {
        "valid": 1.0,
        "confidence": 0.7,
        "ld": math.sqrt(0.5**2 + 0.5**2),  # the second training row: 1, 1, 0, 1
        "ld_sq": 0.5,
        "copy": 0,
        "l0": 4.0,
        "l1": 3.0,
        "l1_mad": 4.0,  # the age by 20, the gain by 9, which are their MADs; and two categories
        "l2": math.sqrt(2.5),
        "l2_sq": 2.5,
        "linf": 1.0,
        "violation": 2.0,
        "unseen_pairs": 4.0,  # age 40 and gain 9 are those of the third row, who is a man without a job
        "ynn": 1 / 3,  # of the three training rows one is accepted
        "redundancy": 3.0,  # all but the job could be put back
        "valid_after": 0.5,  # of the other models half want no more than a job
        "valid_noise": 1.0,  # a year or a gain more or less does not matter
    }
    assert set(expected) == set(MEASURES)
    for name, value in expected.items():
        assert MEASURES[name](case).tolist() == pytest.approx([value], abs=1e-6), name


def test_a_category_counts_once_in_every_measure() -> None:
    frame = pd.DataFrame({"city": ["A", "B", "C"], "rank": [0.0, 1.0, 2.0]})
    encoder = Encoder.fit(
        frame, Schema.infer(frame, immutable=["city"], overrides={"rank": {"kind": "continuous", "step": None}})
    )
    train = encoder.encode(frame)
    moved = encoder.encode(pd.DataFrame({"city": ["C"], "rank": [0.5]}))
    neighbours = Neighbours(train, encoder.weights)
    case = Case(train[:1], moved, lambda x: 0.6 * x[:, 2] + 0.5 * x[:, 0], encoder, neighbours)
    expected = {
        "l0": 2.0,
        "l1": 1.25,
        "l2_sq": 1 + 0.25**2,
        "l2": math.sqrt(1 + 0.25**2),
        "linf": 1.0,
        "violation": 1.0,
        "ld": 0.75,  # the third row has the city, too
        "ld_sq": 0.75**2,
        "copy": 0,
        "redundancy": 2.0,  # the factual's city alone is accepted as well, and the rank does not matter
    }
    for name, value in expected.items():
        assert MEASURES[name](case).tolist() == pytest.approx([value], abs=1e-6), name


def test_validity_needs_the_asked_confidence_and_the_decision() -> None:
    end = torch.tensor([[0.5, 0.5, 0.0, 1.0]])
    assert MEASURES["valid"](_case(TRAIN[:1], end, confidence=0.71)).item() == 0.0
    assert MEASURES["valid"](_case(TRAIN[:1], TRAIN[:1], confidence=0.0)).item() == 0.0


@given(st.integers(0, 2))
def test_a_factual_is_at_no_distance_from_itself(row: int) -> None:
    case = _case(TRAIN[row : row + 1], TRAIN[row : row + 1])
    for name in ("l0", "l1", "l2", "l2_sq", "linf", "ld", "ld_sq", "violation", "redundancy", "unseen_pairs"):
        assert MEASURES[name](case).item() == 0.0, name


def test_unseen_pairs_are_not_counted_where_nobody_looked() -> None:
    case = Case(TRAIN[:1], TRAIN[1:2], _probability, ENCODER, Neighbours(TRAIN))
    assert MEASURES["unseen_pairs"](case).isnan().all()


def test_a_tiny_change_is_no_change_but_a_year_is() -> None:
    moved = TRAIN[:1].clone()
    moved[0, 0] += 1e-6
    assert MEASURES["l0"](_case(TRAIN[:1], moved)).item() == 0.0
    moved[0, 0] += 1 / 40
    assert MEASURES["l0"](_case(TRAIN[:1], moved)).item() == 1.0


def test_distance_to_data() -> None:
    train = Neighbours(torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    assert distance_to_data(torch.tensor([[0.0, 2.0], [1.0, 0.0]]), train).tolist() == [2.0, 0.0]
    path = torch.tensor([[[0.0, 2.0]], [[4.0, 4.0]]])
    assert path_distance_to_data(path, train).tolist() == [[2.0], [5.0]]


def test_turning_and_length_add_up_and_rests_do_not_count() -> None:
    square = torch.tensor([[0.0, 0], [1, 0], [1, 0], [1, 1], [0, 1], [0, 0]])
    straight = torch.tensor([[0.0, 0], [1, 1], [2, 2], [2, 2], [2, 2], [2, 2]])
    paths = torch.stack([square, straight], 1)
    # Standing still between two steps hides the corner there: the square has three corners, one of them hidden.
    assert turning(paths).tolist() == pytest.approx([math.pi, 0.0], abs=1e-3)
    assert turning(torch.tensor([[[0.0]], [[1.0]], [[0.0]]])).item() == pytest.approx(math.pi, abs=1e-3)
    assert path_length(paths).tolist() == pytest.approx([4.0, 2 * math.sqrt(2)])


def test_instability_is_relative_to_the_move_of_the_start() -> None:
    start, end = torch.zeros(4, 2), torch.ones(4, 2)
    assert instability(end, end + 0.2, start, start + 0.1) == pytest.approx(2.0)
    assert instability(end, end, start, start + 0.1) == 0.0


def test_what_is_redundant_is_so_at_the_asked_confidence() -> None:
    start, end = torch.tensor([[0.0, 0.0, 1.0, 0.0]]), torch.tensor([[0.5, 1.0, 1.0, 1.0]])
    counts = [int(MEASURES["redundancy"](_case(start, end, confidence))) for confidence in (0.5, 0.7)]
    assert counts == [2, 1]  # with 0.7 asked, the gain is needed


def test_a_spread_is_that_of_original_units_and_never_zero() -> None:
    frame = pd.DataFrame({"gain": [0.0, 0.0, 0.0, 0.0, 50.0], "same": [3.0] * 5, "sex": ["f", "m", "f", "m", "f"]})
    schema = Schema(
        (
            Feature("gain", "continuous", transform="log1p"),
            Feature("same", "continuous"),
            Feature("sex", "binary", categories=("f", "m")),
        )
    )
    encoder = Encoder.fit(frame, schema)
    found = spreads(encoder, encoder.encode(frame)).tolist()
    assert found[:2] == pytest.approx([10, 1])
    assert math.isnan(found[2])


def test_a_code_is_no_number_of_a_spread_and_leaving_it_counts_once() -> None:
    frame = pd.DataFrame({"since": [-7.0, 10.0, 20.0, 40.0, -7.0]})
    schema = Schema((Feature("since", "continuous", codes={-7: "never"}),))
    encoder = Encoder.fit(frame, schema)
    rows = encoder.encode(frame)
    found = spreads(encoder, rows)
    assert found.tolist() == pytest.approx([10])
    before, after = rows[[1, 0, 2]], rows[[3, 1, 2]]
    case = Case(before, after, lambda x: x[:, 0], encoder, Neighbours(rows), spreads=found)
    assert MEASURES["l1_mad"](case).tolist() == pytest.approx([3, 1, 0])
