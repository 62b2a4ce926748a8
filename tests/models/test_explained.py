from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression

from counterpath.data import Encoder, Schema
from counterpath.models.explained import Subject, ask, asked, asked_table, classes_of, differentiable, labels_of, named
from counterpath.utils.errors import InputError
from tests.conftest import random_classifier

FRAME = pd.DataFrame({"a": [0.1, 0.7, 0.3], "b": ["x", "y", "z"]})


def _subject(*classes: Any) -> Subject:
    classifier = random_classifier()
    return Subject("own", "ours", classes, differentiable(classifier), classifier)


@pytest.mark.parametrize(
    ("classes", "label", "place"),
    [
        (("no", "yes"), "yes", 1),
        ((0, 1), 1, 1),
        ((0, 1), "1", 1),
        ((0, 1), np.int64(1), 1),
        ((0, 1), True, 1),
        ((False, True), "True", 1),
        ((False, True), np.bool_(True), 1),
        ((0.5, 1.5), "1.5", 1),
        (("1", 1), 1, 1),
    ],
)
def test_a_label_is_found_by_value_and_then_by_its_text(classes: tuple[Any, ...], label: Any, place: int) -> None:
    assert _subject(*classes).index(label) == place


@pytest.mark.parametrize("label", ["maybe", None, 2, ["yes"], {}])
def test_an_unknown_label_lists_the_known_ones(label: Any) -> None:
    with pytest.raises(InputError, match="does not exist; choose one of: 'no', 'yes', or 'other'"):
        _subject("no", "yes").index(label)


def test_labels_are_sorted_plain_values() -> None:
    classes, places = labels_of(pd.Series(np.array([3, 1, 3, 2])))
    assert (classes, places.tolist()) == ((1, 2, 3), [2, 0, 2, 1])
    assert all(type(label) is int for label in classes)
    assert labels_of(pd.Series([True, False]))[0] == (False, True)
    assert labels_of(pd.Series(["b", "a", 1]))[0] == (1, "a", "b")
    assert labels_of(pd.Series(["b", "a"], dtype="category"))[0] == ("a", "b")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a", None], "row 1: the label is missing"),
        (["a", "a"], "one class only, 'a'"),
        ([], "has no rows"),
        (list(range(51)), "51 different values"),
        (pd.to_datetime(["2024-01-01", "2024-01-02"]), "labels like Timestamp"),
        (pd.cut(pd.Series([1, 2, 3]), 2), r"labels like Interval.*astype\(str\)"),
    ],
)
def test_what_are_no_labels_is_refused(values: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        labels_of(pd.Series(values, name="y"))


def test_one_probability_is_that_of_the_second_class() -> None:
    for answer in ([0.2, 0.9, 0.5], [[0.2], [0.9], [0.5]], [[0.8, 0.2], [0.1, 0.9], [0.5, 0.5]]):
        np.testing.assert_allclose(ask(lambda frame, a=answer: a, FRAME), [[0.8, 0.2], [0.1, 0.9], [0.5, 0.5]])


@pytest.mark.parametrize(
    "answer",
    [[0.2, 0.9], 0.3, np.zeros((3, 2, 2)), [0.2, 0.9, 1.5], [0.2, np.nan, 0.5], np.ones((3, 2)), ["a", "b", "c"], None],
)
def test_nonsense_is_refused(answer: Any) -> None:
    with pytest.raises(InputError, match=r"expected one probability|not probabilities"):
        ask(lambda frame: answer, FRAME)


def test_a_model_sees_the_table_that_it_knows() -> None:
    seen = []

    def model(frame: pd.DataFrame) -> np.ndarray:
        seen.append(frame)
        return np.full(len(frame), 0.5)

    encoder = Encoder.fit(FRAME, Schema.infer(FRAME))
    answers = asked(model, encoder)
    assert answers(encoder.encode(FRAME)).shape == (3, 2)
    pd.testing.assert_frame_equal(seen[-1], FRAME, rtol=1e-6)
    assert answers(encoder.encode(FRAME)[:0]).shape == (0, 2)
    given = FRAME[["b", "a"]].astype({"b": "category", "a": object})
    asked_table(model, encoder)(given)
    pd.testing.assert_frame_equal(seen[-1], FRAME, check_exact=True)


def test_a_row_is_asked_about_exactly_as_it_was_given() -> None:
    """A tree splits at the very numbers of its rows; encoding moves them by up to 6e-8 of the range."""
    frame = pd.DataFrame({"a": [0.0, 1 / 3, 1.0]})
    encoder = Encoder.fit(frame, Schema.infer(frame))

    def step(table: pd.DataFrame) -> np.ndarray:
        return (table["a"] == 1 / 3).to_numpy().astype(float)

    classifier = random_classifier(1)
    subject = Subject("asked", "step", (0, 1), asked(step, encoder), classifier, None, asked_table(step, encoder))
    x = encoder.encode(frame)
    assert subject.answers(x)[:, 1].tolist() == [0, 0, 0]
    assert subject.about(frame, x)[:, 1].tolist() == [0, 1, 0]


def test_whose_labels_they_are() -> None:
    numbered = DummyClassifier().fit(np.zeros((3, 1)), [0, 1, 2])
    lettered = DummyClassifier().fit(np.zeros((3, 1)), ["c", "a", "b"])
    assert classes_of(numbered, 3, None) == (0, 1, 2)
    assert classes_of(numbered, 3, ("x", "y", "z")) == ("x", "y", "z")
    assert classes_of(lettered, 3, ("a", "b", "c")) == ("a", "b", "c")
    assert classes_of(lettered, 3, ("x", "y", "z")) == ("a", "b", "c"), "what the model itself says"
    assert classes_of(len, 2, ("no", "yes")) == ("no", "yes")
    assert classes_of(len, 4, None) == (0, 1, 2, 3)
    with pytest.raises(InputError, match="tells 3 classes apart, but the target column has 2: 'no', 'yes'"):
        classes_of(len, 3, ("no", "yes"))


def test_models_have_a_name() -> None:
    assert named(LogisticRegression()) == "sklearn.linear_model._logistic.LogisticRegression"
    assert named(torch.nn.Linear(1, 1)) == "torch.nn.modules.linear.Linear"
    assert named(labels_of) == "counterpath.models.explained.labels_of"
