"""alibi's signatures. alibi itself needs TensorFlow and is not installed; scripts are as its documentation has them."""

import json
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from counterpath.explainer.adapters.alibi import Counterfactual, CounterfactualProto
from counterpath.utils.errors import CounterpathWarning, InputError, NotFittedError
from tests.tables import SMALL

OPTIONS: dict[str, Any] = SMALL | {"device": "cpu"}
COUNT = 400


@pytest.fixture(scope="module")
def numbers() -> tuple[Any, Any]:
    """Rows of four numbers, and a model of them."""
    rows = np.random.default_rng(0).normal(size=(COUNT, 4))
    return rows, LogisticRegression().fit(rows, rows[:, 0] + rows[:, 1] > 0)


@pytest.fixture(scope="module")
def mixed() -> tuple[Any, Any]:
    """Rows of two numbers, and of a variable with three categories from column 1 on, one-hot encoded."""
    rng = np.random.default_rng(1)
    category = rng.integers(3, size=COUNT)
    rows = np.column_stack([rng.normal(size=COUNT), np.eye(3)[category], rng.normal(size=COUNT)])
    return rows, LogisticRegression().fit(rows, rows[:, 0] + (category == 2) > 0.8)


def test_prototypes_script(numbers: tuple[Any, Any]) -> None:
    rows, model = numbers
    row = rows[[int(np.flatnonzero(model.predict(rows) == 0)[0])]]
    ends = (rows.min(axis=0).reshape(1, -1), rows.max(axis=0).reshape(1, -1))
    cf = CounterfactualProto(model.predict_proba, row.shape, feature_range=ends, **OPTIONS)
    cf.fit(rows)
    explanation = cf.explain(row)
    assert explanation.orig_class == 0
    assert explanation.orig_proba == pytest.approx(model.predict_proba(row))
    assert explanation.cf["class"] == 1
    assert explanation.cf["X"].shape == (1, 4)
    assert explanation.cf["X"].dtype == row.dtype
    assert explanation.cf["proba"] == pytest.approx(model.predict_proba(explanation.cf["X"]))
    assert ((ends[0] <= explanation.cf["X"]) & (explanation.cf["X"] <= ends[1])).all()
    assert all(model.predict(point)[0] == 1 for point in explanation.all[0])
    assert explanation.all[0][-1] == pytest.approx(explanation.cf["X"])
    assert json.loads(explanation.to_json())["meta"]["name"] == "CounterfactualProto"
    assert explanation.result.valid.all()
    with pytest.raises(AttributeError):
        _ = explanation.counterfactual


def test_categories_stay_one_hot(mixed: tuple[Any, Any]) -> None:
    rows, model = mixed
    row = rows[[int(np.flatnonzero(model.predict(rows) == 0)[0])]]
    cf = CounterfactualProto(model.predict_proba, row.shape, cat_vars={1: 3}, ohe=True, **OPTIONS).fit(rows)
    explanation = cf.explain(row, target_class=[1])
    assert explanation.cf["class"] == 1
    assert sorted(explanation.cf["X"][0, 1:4].tolist()) == [0, 0, 1]
    ordinal = np.column_stack([rows[:, 0], rows[:, 1:4].argmax(1), rows[:, 4]])

    def predict(array: Any) -> Any:
        return model.predict_proba(np.column_stack([array[:, 0], np.eye(3)[array[:, 1].astype(int)], array[:, 2]]))

    plain = CounterfactualProto(predict, (1, 3), cat_vars={1: 3}, **OPTIONS).fit(ordinal)
    found = plain.explain(ordinal[[int(np.flatnonzero(model.predict(rows) == 0)[0])]])
    assert found.cf["X"][0, 1] in (0, 1, 2)
    assert found.cf["class"] == 1


def test_wachters_script_reaches_the_asked_probability(numbers: tuple[Any, Any]) -> None:
    rows, model = numbers
    row = rows[[int(np.flatnonzero(model.predict(rows) == 1)[0])]]
    cf = Counterfactual(model.predict_proba, shape=(1, 4), target_proba=0.8, tol=0.1, target_class="other", **OPTIONS)
    explanation = cf.fit(rows).explain(row)
    assert explanation.success
    assert explanation.cf["class"] == 0
    assert 0.7 <= explanation.cf["proba"][0, 0] <= 0.9
    assert explanation.cf["distance"] == pytest.approx(np.abs(explanation.cf["X"] - row).sum())


def test_where_there_is_none_nothing_is_returned(numbers: tuple[Any, Any]) -> None:
    rows, model = numbers
    row = rows[[int(np.argmin(model.decision_function(rows)))]]
    ends = (row - 0.01, row + 0.01)
    cf = CounterfactualProto(model.predict_proba, (1, 4), feature_range=ends, **OPTIONS).fit(rows)
    explanation = cf.explain(row)
    assert explanation.cf is None
    assert explanation.result.status["reason"].iloc[0]


def test_what_cannot_be_done_is_named(numbers: tuple[Any, Any]) -> None:
    rows, model = numbers
    with pytest.raises(NotFittedError, match="has not seen training rows: call fit"):
        Counterfactual(model.predict_proba, (1, 4)).explain(rows[:1])
    with pytest.warns(CounterpathWarning, match="beta, use_kdtree: set for the search of alibi"):
        cf = CounterfactualProto(model.predict_proba, (1, 4), beta=0.1, use_kdtree=True, **OPTIONS)
    with pytest.raises(InputError, match="there are no training rows"):
        cf.fit()
    cf.fit(rows)
    with pytest.raises(InputError, match="X has 2 rows; expected one"):
        cf.explain(rows[:2])
    with pytest.raises(InputError, match=r"rows have the shape \(1, 3\)"):
        cf.explain(rows[:1, :3])
    with pytest.raises(InputError, match=r"target_class is \[0, 1\]"):
        cf.explain(rows[:1], target_class=[0, 1])
    with pytest.raises(InputError, match="expected 0 < target_proba - tol < 1"):
        Counterfactual(model.predict_proba, (1, 4), target_proba=0.04)
    with pytest.raises(InputError, match="images are given as flat rows"):
        Counterfactual(model.predict_proba, (1, 8, 8))
