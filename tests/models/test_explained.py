from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression

from counterpath.data import Encoder, Feature, Schema
from counterpath.models.classifier import blockwise_proba
from counterpath.models.explained import (
    ExplainedModel,
    black_box_proba,
    check_ignored,
    class_labels,
    encode_labels,
    predict_proba,
    qualified_name,
    table_proba,
)
from counterpath.utils.errors import InputError
from tests.conftest import random_classifier

FRAME = pd.DataFrame({"a": [0.1, 0.7, 0.3], "b": ["x", "y", "z"]})


def _explained(*classes: Any) -> ExplainedModel:
    classifier = random_classifier()
    return ExplainedModel("own", "ours", classes, blockwise_proba(classifier), classifier)


@pytest.mark.parametrize(
    ("classes", "label", "index"),
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
def test_a_label_is_found_by_value_and_then_by_its_text(classes: tuple[Any, ...], label: Any, index: int) -> None:
    assert _explained(*classes).class_index(label) == index


@pytest.mark.parametrize("label", ["maybe", None, 2, ["yes"], {}])
def test_an_unknown_label_lists_the_known_ones(label: Any) -> None:
    with pytest.raises(InputError, match="does not exist; choose one of: 'no', 'yes', or 'other'"):
        _explained("no", "yes").class_index(label)


def test_labels_are_sorted_plain_values() -> None:
    classes, index = encode_labels(pd.Series(np.array([3, 1, 3, 2])))
    assert (classes, index.tolist()) == ((1, 2, 3), [2, 0, 2, 1])
    assert all(type(label) is int for label in classes)
    assert encode_labels(pd.Series([True, False]))[0] == (False, True)
    assert encode_labels(pd.Series(["b", "a", 1]))[0] == (1, "a", "b")
    assert encode_labels(pd.Series(["b", "a"], dtype="category"))[0] == ("a", "b")


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
        encode_labels(pd.Series(values, name="y"))


def test_one_probability_is_that_of_the_second_class() -> None:
    for output in ([0.2, 0.9, 0.5], [[0.2], [0.9], [0.5]], [[0.8, 0.2], [0.1, 0.9], [0.5, 0.5]]):
        np.testing.assert_allclose(
            predict_proba(lambda frame, a=output: a, FRAME), [[0.8, 0.2], [0.1, 0.9], [0.5, 0.5]]
        )


@pytest.mark.parametrize(
    "output",
    [[0.2, 0.9], 0.3, np.zeros((3, 2, 2)), [0.2, 0.9, 1.5], [0.2, np.nan, 0.5], np.ones((3, 2)), ["a", "b", "c"], None],
)
def test_nonsense_is_refused(output: Any) -> None:
    with pytest.raises(InputError, match=r"expected one probability|not probabilities"):
        predict_proba(lambda frame: output, FRAME)


def test_a_model_sees_the_table_that_it_knows() -> None:
    seen = []

    def model(frame: pd.DataFrame) -> np.ndarray:
        seen.append(frame)
        return np.full(len(frame), 0.5)

    encoder = Encoder.fit(FRAME, Schema.infer(FRAME))
    predict = black_box_proba(model, encoder)
    assert predict(encoder.encode(FRAME)).shape == (3, 2)
    pd.testing.assert_frame_equal(seen[-1], FRAME, rtol=1e-6)
    assert predict(encoder.encode(FRAME)[:0]).shape == (0, 2)
    shuffled = FRAME[["b", "a"]].astype({"b": "category", "a": object})
    table_proba(model, encoder)(shuffled)
    pd.testing.assert_frame_equal(seen[-1], FRAME, check_exact=True)


def test_a_table_is_predicted_exactly_as_it_was_given() -> None:
    """A tree splits at the very numbers of its rows; encoding moves them by up to 6e-8 of the range."""
    frame = pd.DataFrame({"a": [0.0, 1 / 3, 1.0]})
    encoder = Encoder.fit(frame, Schema.infer(frame))

    def step(table: pd.DataFrame) -> np.ndarray:
        return (table["a"] == 1 / 3).to_numpy().astype(float)

    classifier = random_classifier(1)
    explained = ExplainedModel(
        "black-box", "step", (0, 1), black_box_proba(step, encoder), classifier, None, table_proba(step, encoder)
    )
    x = encoder.encode(frame)
    assert explained.predict_proba(x)[:, 1].tolist() == [0, 0, 0]
    assert explained.predict_proba_table(frame, x)[:, 1].tolist() == [0, 1, 0]


def test_labels_are_the_models_own_or_those_of_the_target_column() -> None:
    numbered = DummyClassifier().fit(np.zeros((3, 1)), [0, 1, 2])
    lettered = DummyClassifier().fit(np.zeros((3, 1)), ["c", "a", "b"])
    assert class_labels(numbered, 3, None) == (0, 1, 2)
    assert class_labels(numbered, 3, ("x", "y", "z")) == ("x", "y", "z")
    assert class_labels(lettered, 3, ("a", "b", "c")) == ("a", "b", "c")
    assert class_labels(lettered, 3, ("x", "y", "z")) == ("a", "b", "c"), "what the model itself says"
    assert class_labels(len, 2, ("no", "yes")) == ("no", "yes")
    assert class_labels(len, 4, None) == (0, 1, 2, 3)
    with pytest.raises(InputError, match="has 3 classes, but the target column has 2: 'no', 'yes'"):
        class_labels(len, 3, ("no", "yes"))


def test_models_have_a_name() -> None:
    assert qualified_name(LogisticRegression()) == "sklearn.linear_model._logistic.LogisticRegression"
    assert qualified_name(torch.nn.Linear(1, 1)) == "torch.nn.modules.linear.Linear"
    assert qualified_name(encode_labels) == "counterpath.models.explained.encode_labels"


def test_a_model_must_not_need_a_column_that_is_left_out() -> None:
    model, ignored = DummyClassifier(), Schema((Feature("a", "continuous"),), ignored=["b"])
    check_ignored(model.fit(FRAME[["a"]], [0, 1, 1]), ignored)
    check_ignored(len, ignored)
    with pytest.raises(InputError, match=r"DummyClassifier was trained with columns that the schema ignores: b; train"):
        check_ignored(model.fit(FRAME, [0, 1, 1]), ignored)


@pytest.fixture(scope="module")
def labelled() -> tuple[pd.DataFrame, np.ndarray]:
    random = np.random.default_rng(100)
    frame = pd.DataFrame(
        {"a b": random.normal(size=200), "c": random.integers(0, 5, 200), "d": random.normal(size=200)}
    )
    return frame, np.digitize(frame["a b"] + 0.3 * frame["c"], [0.2, 1.0])


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("objective", ["binary:logistic", "binary:logitraw", "multi:softprob", "multi:softmax"])
def test_a_booster_of_xgboost_gives_probabilities(
    labelled: tuple[pd.DataFrame, np.ndarray], objective: str, named: bool
) -> None:
    xgboost = pytest.importorskip("xgboost")
    frame, label = labelled
    several = objective.startswith("multi")
    data = xgboost.DMatrix(frame if named else frame.to_numpy(), label if several else label > 0)
    plain = "multi:softprob" if several else "binary:logistic"
    given, expected = (
        xgboost.train(
            {"objective": each, "base_score": 0.5, "seed": 0} | ({"num_class": 3} if several else {}), data, 5
        )
        for each in (objective, plain)
    )
    found = predict_proba(given, frame[["d", "c", "a b"]] if named else frame)
    assert found.shape == (200, 3 if several else 2)
    if objective == plain:
        np.testing.assert_allclose(found if several else found[:, 1], expected.predict(data), atol=1e-6)
    assert (found.argmax(1) == (label if several else label > 0)).mean() > 0.9
    with pytest.raises(InputError, match=r"trained on 3 features, and the table (lacks 'c'|has 2 columns)"):
        predict_proba(given, frame.drop(columns="c"))


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("objective", ["binary", "multiclass"])
def test_a_booster_of_lightgbm_gives_probabilities(
    labelled: tuple[pd.DataFrame, np.ndarray], objective: str, named: bool
) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    frame, label = labelled
    several = objective == "multiclass"
    data = lightgbm.Dataset(frame if named else frame.to_numpy(), label if several else label > 0)
    settings = {"objective": objective, "verbose": -1, "num_threads": 1} | ({"num_class": 3} if several else {})
    booster = lightgbm.train(settings, data, 20)
    expected = booster.predict(frame if named else frame.to_numpy())
    found = predict_proba(booster, frame[["d", "c", "a b"]] if named else frame)
    np.testing.assert_allclose(found if several else found[:, 1], expected)
    with pytest.raises(InputError, match=r"trained on 3 features, and the table (lacks 'c'|has 2 columns)"):
        predict_proba(booster, frame.drop(columns="c"))


def test_a_booster_that_gives_no_probabilities_is_refused(labelled: tuple[pd.DataFrame, np.ndarray]) -> None:
    lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")
    frame, label = labelled
    tree = xgboost.train({"objective": "reg:squarederror"}, xgboost.DMatrix(frame, label), 1)
    with pytest.raises(InputError, match="XGBoost booster has the objective 'reg:squarederror', which gives no prob"):
        predict_proba(tree, frame)
    tree = lightgbm.train({"objective": "regression", "verbose": -1}, lightgbm.Dataset(frame, label), 1)
    with pytest.raises(InputError, match="LightGBM booster has the objective 'regression', which gives no prob"):
        predict_proba(tree, frame)
