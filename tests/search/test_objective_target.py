import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from counterpath.search.objective import Target
from counterpath.utils.errors import InputError

ANSWERS = torch.tensor([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2], [0.4, 0.4, 0.2], [0.2, 0.45, 0.35]])


def test_a_class_is_wanted_by_its_own_probability() -> None:
    target = Target(1, confidence=0.4)
    torch.testing.assert_close(target.probability(ANSWERS), ANSWERS[:, 1])
    assert target.is_predicted(ANSWERS).tolist() == [False, False, False, True]  # of equals the first is predicted
    assert target.is_reached(ANSWERS).tolist() == [False, False, False, True]


def test_any_other_class_is_wanted_by_what_is_left() -> None:
    target = Target(0, other=True, confidence=0.5)
    torch.testing.assert_close(target.probability(ANSWERS), 1 - ANSWERS[:, 0])
    assert target.is_predicted(ANSWERS).tolist() == [True, False, False, True]
    assert target.is_reached(ANSWERS).tolist() == [True, False, False, True], (
        "0.6 for another one, and 0 is still predicted"
    )


def test_to_be_predicted_is_not_enough() -> None:
    assert Target(1, confidence=0.46).is_reached(ANSWERS).tolist() == [False] * 4
    assert Target(2, confidence=0.7).is_reached(ANSWERS.double().round(decimals=6)).tolist() == [
        True,
        False,
        False,
        False,
    ]


@given(st.integers(0, 2), st.booleans(), st.floats(0.01, 0.99), st.integers(0, 1000))
def test_a_higher_confidence_is_never_easier(target: int, other: bool, confidence: float, seed: int) -> None:
    answers = torch.randn(20, 3, generator=torch.Generator().manual_seed(seed)).softmax(-1)
    easy, hard = Target(target, other, confidence / 2), Target(target, other, confidence)
    assert (easy.is_reached(answers) | ~hard.is_reached(answers)).all()
    assert (hard.is_predicted(answers) | ~hard.is_reached(answers)).all()


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, math.nan, math.inf])
def test_a_confidence_lies_between_0_and_1(confidence: float) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        Target(0, confidence=confidence)


def test_the_lead_is_positive_where_the_target_is_what_is_decided() -> None:
    said = torch.tensor([[0.4, 0.35, 0.25], [0.3, 0.3, 0.4], [0.1, 0.8, 0.1]])
    for target in (Target(1), Target(0, thresholds=(0.4, 0.3, 0.3)), Target(2, other=True), Target(0, confidence=0.9)):
        assert ((target.lead(said) > 0) == target.is_predicted(said)).all()
    two = torch.tensor([[0.7, 0.3], [0.6, 0.4]])
    strict = Target(1, thresholds=(0.65, 0.35))
    assert ((strict.lead(two) > 0) == strict.is_predicted(two)).all()
    assert strict.lead(two)[1].item() == pytest.approx(math.log(0.4 / 0.6) - math.log(0.35 / 0.65), abs=1e-6)
