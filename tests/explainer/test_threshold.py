"""Decisions at a threshold of the model: rejected is everywhere what it rejects by it, and no more is asked for."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import counterpath as cp
from counterpath.data.status import StatusCode
from counterpath.models.classifier import decide
from counterpath.models.explained import parse_threshold
from counterpath.search.objective import Target
from counterpath.utils.errors import InputError
from tests.tables import CLASSES, features

YES_FROM = 0.2


@pytest.fixture(scope="module")
def cautious(fitted: cp.Explainer) -> cp.Explainer:
    """The same model of loans, which says yes from 0.2 on."""
    return copy.copy(fitted).set_params(threshold=YES_FROM)


@pytest.fixture(scope="module")
def rows(loans: pd.DataFrame) -> pd.DataFrame:
    return loans.drop(columns="loan").iloc[::4]


def test_a_row_is_decided_by_the_threshold_everywhere(cautious: cp.Explainer, rows: pd.DataFrame) -> None:
    yes = cautious.predict_proba(rows)["yes"]
    granted = yes >= YES_FROM
    assert (granted & (yes < 0.5)).any()
    assert (cautious.predict(rows) == "yes").equals(granted)
    result = cautious.explain(rows, "yes")
    assert (result.status["status"] == StatusCode.ALREADY).equals(granted)
    assert (result.outcome["class_before"] == "yes").equals(granted)
    found = result.status["status"] == StatusCode.FOUND
    assert found.sum() > 5
    after = cautious.predict_proba(result.counterfactuals)["yes"]
    assert (after[found] >= YES_FROM).all()
    assert (after[found] < 0.5).any()  # no more is asked for than the model's own decision
    assert result.measures()["valid"][found].eq(1).all()
    assert result.request["confidence"] is None
    assert result.request["threshold"] == {"no": 0.8, "yes": 0.2}
    assert "yes: 0.2" in repr(result).splitlines()[0]


def test_another_class_and_a_confidence_are_asked_for_on_top(cautious: cp.Explainer, rows: pd.DataFrame) -> None:
    refused = rows[cautious.predict(rows) == "no"]
    other = cautious.explain(refused, "other")
    pd.testing.assert_frame_equal(other.counterfactuals, cautious.explain(refused, "yes").counterfactuals)
    sure = cautious.explain(refused, "yes", confidence=0.7)
    assert (sure.outcome["probability_after"][sure.valid] >= 0.7).all()
    back = cautious.explain(rows[cautious.predict(rows) == "yes"], "no")
    assert (back.outcome["probability_after"][back.valid] > 1 - YES_FROM).all()


def test_what_was_not_reached_is_said_by_the_threshold(cautious: cp.Explainer, rows: pd.DataFrame) -> None:
    locked = ["income", "job", "owner"]
    result = cautious.explain(rows, "yes", lock=locked, stay_within={"age": (18, 90)})
    missed = result.status["status"] == StatusCode.NOT_FOUND
    assert missed.any()
    said = result.sentences[missed].str.extract(r"where (.*?) was asked")[0].dropna()
    assert len(said) > 5
    assert set(said) <= {"20 %", "20.0 %"}


def test_it_is_kept_with_the_model(cautious: cp.Explainer, rows: pd.DataFrame, tmp_path: Path) -> None:
    cautious.save(tmp_path / "model")
    again = cp.load(tmp_path / "model", device="cpu")
    assert again.predict(rows).equals(cautious.predict(rows))
    with pytest.raises(InputError, match="made with threshold="):
        copy.copy(again).set_params(threshold=None).repeat(cautious.explain(rows.head(2), "yes"))


def test_of_three_classes_the_largest_multiple_of_its_threshold_is_decided(
    explainer: cp.Explainer, people: pd.DataFrame
) -> None:
    table = features(people)
    strict = copy.copy(explainer).set_params(threshold={"mid": 0.05})
    probabilities = strict.predict_proba(table)
    expected = (probabilities / [0.475, 0.475, 0.05]).idxmax(axis=1)
    assert (strict.predict(table) == expected).all()
    assert (expected != probabilities.idxmax(axis=1)).any()
    result = strict.explain(table.iloc[::20], "low")
    found = result.valid.to_numpy()
    assert found.mean() > 0.9
    assert (strict.predict(result.counterfactuals)[found] == "low").all()


def test_without_a_confidence_no_more_is_asked_for_than_the_decision() -> None:
    said = torch.tensor([[0.3, 0.4, 0.3], [0.4, 0.2, 0.4]])
    assert Target(1, confidence=None).is_reached(said).tolist() == [True, False]
    assert Target(1, confidence=0.5).is_reached(said).tolist() == [False, False]
    assert Target(0, other=True, confidence=None).is_reached(said).tolist() == [True, False]
    assert Target(1, confidence=None, thresholds=(0.45, 0.1, 0.45)).is_reached(said).tolist() == [True, True]
    assert Target(1, confidence=None, thresholds=(0.8, 0.2)).level == 0.2
    assert Target(1, other=True, confidence=None, thresholds=(0.8, 0.2)).level == 0.8


@pytest.mark.parametrize(
    ("given", "classes", "message"),
    [
        (0, ("no", "yes"), "the threshold of class 'yes' is 0; expected a number between 0 and 1"),
        (1.0, ("no", "yes"), "the threshold of class 'yes' is 1.0; expected"),
        (True, ("no", "yes"), "the threshold of class 'yes' is True; expected"),
        (float("nan"), ("no", "yes"), "the threshold of class 'yes' is nan; expected"),
        ("0.2", ("no", "yes"), "the threshold of class 'yes' is '0.2'; expected"),
        ({"no": -0.1}, ("no", "yes"), "the threshold of class 'no' is -0.1; expected"),
        ({"maybe": 0.2}, ("no", "yes"), "threshold has the class 'maybe', which does not exist; choose one of: 'no'"),
        (0.2, CLASSES, "threshold is 0.2, and there are 3 classes: .*; expected one for each, threshold={'high': 0.2"),
        ({"high": 0.6, "low": 0.4}, CLASSES, "leave nothing to the other classes; name all of"),
    ],
)
def test_a_threshold_that_cannot_be_is_named(given: Any, classes: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_threshold(given, classes)


def test_a_wrong_threshold_stops_a_fit_before_it_trains(loans: pd.DataFrame) -> None:
    with pytest.raises(InputError, match="the threshold of class 'yes' is 2"):
        cp.Explainer(threshold=2).fit(loans, "loan")


def test_thresholds_by_class() -> None:
    assert parse_threshold({1: 0.25}, (0, 1)) == (0.75, 0.25)
    assert parse_threshold({"1": 0.25}, (0, 1)) == (0.75, 0.25)
    assert parse_threshold({"high": 0.2}, CLASSES) == pytest.approx((0.2, 0.4, 0.4))
    assert parse_threshold(dict.fromkeys(CLASSES, 0.5), CLASSES) == pytest.approx((1 / 3,) * 3)
    assert parse_threshold(None, CLASSES) is None


@given(st.floats(0.01, 0.99), st.floats(0, 1))
def test_a_class_is_decided_from_its_threshold_on(threshold: float, probability: float) -> None:
    probabilities = torch.tensor([[1 - probability, probability]], dtype=torch.float64)
    assert bool(decide(probabilities, parse_threshold(threshold, (0, 1)))) == (probability >= threshold)
    assert int(decide(probabilities)) == int(np.argmax(probabilities.numpy()))
