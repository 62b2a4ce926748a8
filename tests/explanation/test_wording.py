import dataclasses

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpath.explanation import Explanation, StatusCode
from counterpath.explanation.wording import Change, Row, change, listed, percent, probability, texts, value
from tests.explanation.conftest import make

ROW = Row(
    label="7",
    status=StatusCode.NOT_FOUND,
    reason="Because.",
    before="0",
    after="0",
    p_before=0.05,
    p_after=0.41,
    changes=(Change("age", "39", "40", 1),),
    wanted="1",
    confidence=0.5,
)


def test_sentences_say_what_would_have_to_change(explanation: Explanation) -> None:
    found, already, fell, missed, unknown = explanation.sentences
    assert found == (
        "The model says 0 (probability of 1: 0.17). It would say 1 (0.52) if education-num rose from 9 to 11.4, "
        "hours-per-week rose from 40 to 46.23, and marital-status changed from Non-Married to Married."
    )
    assert already == "The model already says 1 (0.83): nothing has to change."
    assert "if hours-per-week fell from 40 to 36 and owner changed from False to True." in fell
    assert missed == (
        "The model says 0 (probability of 1: 0.05). No counterfactual was found: the closest came to 0.41, "
        "where 0.50 was asked, if hours-per-week rose from 38.5 to 60."
    )
    assert unknown.startswith("This row is not explained. marital-status is 'Complicated'")


def test_any_other_outcome_reads_well() -> None:
    made = make(target="other")
    assert made.sentences.iloc[0].startswith("The model says 0 (probability of another outcome: 0.17). It would say 1")
    assert "wanted another outcome" in str(made)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"status": StatusCode.OUT_OF_TIME},
            "The time ran out before a counterfactual was found: the closest came to 0.41",
        ),
        ({"binding": "lock: sex"}, "from 39 to 40. What stands in the way: lock: sex."),
        ({"status": StatusCode.OUT_OF_TIME, "binding": "up: age"}, "to 40. What stands in the way: up: age."),
        ({"changes": ()}, "nothing that was tried came closer than the row itself."),
        ({"p_after": 0.4996}, "came to 0.4996, where 0.5000 was asked"),
        ({"p_after": 0.55, "after": "2"}, "came to 0.55, but the model says 2 there"),
        ({"status": StatusCode.FOUND, "changes": ()}, "after changes too small to list."),
        (
            {"status": StatusCode.CROSSES_GAP, "p_after": 0.6, "after": "1"},
            "It would say 1 (0.60) if age rose from 39 to 40. But no chain of people leads there: the path",
        ),
    ],
)
def test_rare_cases_read_well_too(changes: dict[str, object], expected: str) -> None:
    assert expected in dataclasses.replace(ROW, **changes).sentence


def test_a_line_says_what_stands_in_the_way() -> None:
    assert dataclasses.replace(ROW, binding="lock: sex").line.endswith("| age 39 → 40 | in the way: lock: sex")


def test_a_line_with_many_changes_is_cut() -> None:
    many = tuple(Change(f"f{number}", "0", "1") for number in range(9))
    assert dataclasses.replace(ROW, changes=many).line.endswith("f5 0 → 1; and 3 more")


@pytest.mark.parametrize(
    ("given_value", "text"),
    [
        (9.0, "9"),
        (np.int64(12), "12"),
        (46.2345678, "46.23"),
        (12345.6, "12346"),
        (999.96, "1000"),
        (0.00012345, "0.0001234"),
        (-0.5, "-0.5"),
        (True, "True"),
        (np.bool_(False), "False"),
        ("a b", "a b"),
        (None, "–"),
        (float("nan"), "–"),
        (pd.NA, "–"),
        (float("inf"), "inf"),
        (10**20, "1" + "0" * 20),
    ],
)
def test_values_read_as_people_write_them(given_value: object, text: str) -> None:
    assert value(given_value) == text


def test_values_in_a_row_have_the_digits_that_tell_neighbours_apart() -> None:
    assert texts([40.0, 40.0001, 40.0001, 41.5]) == ("40", "40.0001", "40.0001", "41.5")
    assert texts(["a", "b", "a"]) == ("a", "b", "a")
    assert texts([]) == ()


def test_values_that_differ_never_look_the_same() -> None:
    assert change("x", 40.0, 40.0001, ordered=True) == Change("x", "40", "40.0001", 1)
    assert change("x", 12345.6, 12345.5, ordered=True) == Change("x", "12345.6", "12345.5", -1)


@given(st.floats(-1e12, 1e12), st.floats(-1e12, 1e12))
def test_different_numbers_have_different_texts(old: float, new: float) -> None:
    told = change("x", old, new, ordered=True)
    assert (told.old == told.new) == (old == new)


@pytest.mark.parametrize(
    ("given_value", "text"),
    [(0.0, "0.00"), (0.001, "<0.01"), (0.5, "0.50"), (0.999, ">0.99"), (1.0, "1.00"), (float("nan"), "–")],
)
def test_a_probability_is_only_0_or_1_if_it_is(given_value: float, text: str) -> None:
    assert probability(given_value) == text


def test_lists_and_shares() -> None:
    assert [listed(list("abc")[:count]) for count in range(4)] == ["", "a", "a and b", "a, b, and c"]
    assert [percent(0.666), percent(float("nan"))] == ["67 %", "–"]
    assert [percent(share) for share in (0.0, 0.001, 0.995, 1.0)] == ["0 %", "under 1 %", "over 99 %", "100 %"]
