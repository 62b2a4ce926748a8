"""Models under explanation of every kind. Validity is what the user's own model says about the returned table."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from xgboost import XGBClassifier

from counterpath import StatusCode
from counterpath.utils.errors import InputError
from tests.explainer.conftest import shorten_surrogate
from tests.tables import LABEL, features

from .asking import NUMERIC, assert_valid, fit

pytestmark = [pytest.mark.whole, pytest.mark.filterwarnings("ignore:The :counterpath.utils.errors.CounterpathWarning")]


@pytest.fixture(autouse=True)
def _short_lessons(monkeypatch: pytest.MonkeyPatch) -> None:
    """A surrogate that is good enough to be followed, in a tenth of the time."""
    shorten_surrogate(monkeypatch, 250, rows=60)


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(max_iter=1000),
        GradientBoostingClassifier(n_estimators=20, random_state=0),
        XGBClassifier(n_estimators=20, max_depth=3, n_jobs=1),
        LGBMClassifier(n_estimators=20, verbose=-1, n_jobs=1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_two_classes_by_a_model_on_numbers(numbers: pd.DataFrame, model: Any) -> None:
    y = (numbers["granted"] == "yes").astype(int)
    model = model.fit(numbers[NUMERIC], y)
    explainer = fit(numbers, "granted", model)
    assert explainer.classes_ == ("no", "yes")
    rejected = numbers[model.predict(numbers[NUMERIC]) == 0].head(15)
    found = explainer.explain(rejected, "yes", confidence=0.6)
    assert_valid(found, lambda frame: model.predict_proba(frame)[:, 1], 0.6)
    assert found.request["model"].endswith(type(model).__name__)
    np.testing.assert_allclose(
        explainer.predict_proba(rejected).to_numpy(), model.predict_proba(rejected[NUMERIC]), atol=1e-6
    )
    already = explainer.explain(numbers, "yes", confidence=0.6, method="nearest").status["status"] == StatusCode.ALREADY
    assert (already == (model.predict_proba(numbers[NUMERIC])[:, 1] >= 0.6)).all()


def test_catboost_with_its_own_categories_and_gaps(people: pd.DataFrame) -> None:
    catboost = pytest.importorskip("catboost", reason="CatBoost is part of the extra bench: it has 275 MB")
    table = features(people).astype({"city": "category", "debt": float})[["city", *NUMERIC]]
    table.loc[table.index[::5], "debt"] = np.nan
    model = catboost.CatBoostClassifier(
        iterations=20, depth=3, random_seed=0, verbose=False, allow_writing_files=False, cat_features=["city"]
    ).fit(table, people[LABEL])
    explainer = fit(table, None, model)
    assert explainer.classes_ == ("high", "low", "mid")
    rows = table[model.predict(table)[:, 0] != "low"].head(15)
    found = explainer.explain(rows, "low", confidence=0.5)
    assert_valid(found, lambda frame: model.predict_proba(frame)[:, 1], 0.5)
    assert found.counterfactuals.dtypes.to_dict() == table.dtypes.to_dict()
    assert found.factuals["debt"].isna().any()
    assert not (found.counterfactuals["debt"].isna() & found.factuals["debt"].notna()).any()


def test_a_pipeline_gets_the_text_that_it_was_trained_on(people: pd.DataFrame) -> None:
    table = features(people)
    steps = make_column_transformer(
        (OneHotEncoder(), ["city", "size", "sex"]), (StandardScaler(), NUMERIC), remainder="passthrough"
    )
    model = make_pipeline(steps, LogisticRegression(max_iter=1000)).fit(table, people[LABEL])
    explainer = fit(table, None, model)
    assert explainer.classes_ == ("high", "low", "mid")
    rows = table[model.predict(table) != "low"].head(15)
    found = explainer.explain(rows, "low", confidence=0.5)
    assert_valid(found, lambda frame: model.predict_proba(frame)[:, 1], 0.5)
    assert found.counterfactuals.dtypes.to_dict() == table.dtypes.to_dict()
    other = explainer.explain(rows)
    assert (model.predict(other.counterfactuals)[other.valid] != model.predict(rows)[other.valid]).all()


def test_a_model_on_numbered_classes_has_the_labels_of_the_table(
    people: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = people[LABEL].astype("category")
    model = XGBClassifier(n_estimators=15, max_depth=3, n_jobs=1).fit(people[NUMERIC], labels.cat.codes)
    table = people[[*NUMERIC, LABEL]]
    explainer = fit(table, LABEL, model)
    assert explainer.classes_ == ("high", "low", "mid")
    rows = table[model.predict(table[NUMERIC]) != 1].head(15)
    assert_valid(
        explainer.explain(rows, "low"),
        lambda frame: model.predict_proba(frame)[:, 1],
        0.5,
    )
    shorten_surrogate(monkeypatch, 20, rows=20)
    assert fit(people[NUMERIC], None, model).classes_ == (0, 1, 2)


def test_a_function_may_return_one_probability_a_row(numbers: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    def grant(frame: pd.DataFrame) -> np.ndarray:
        assert list(frame.columns) == NUMERIC
        assert frame.dtypes.to_dict() == numbers[NUMERIC].dtypes.to_dict()
        return 1 / (1 + np.exp(4 - 0.7 * frame["score"].to_numpy() + 0.2 * frame["children"].to_numpy()))

    explainer = fit(numbers, "granted", grant)
    rejected = numbers[grant(numbers[NUMERIC]) < 0.5].head(15)[["score", "children", "debt"]]
    found = explainer.explain(rejected.astype({"children": float}), "yes", confidence=0.7)
    assert_valid(found, lambda frame: grant(frame[NUMERIC]), 0.7)
    shorten_surrogate(monkeypatch, 20, rows=20)
    assert fit(numbers[NUMERIC], None, grant).classes_ == (0, 1)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda frame: np.zeros((len(frame), 2, 2)), "expected one probability for each row"),
        (lambda frame: np.full(len(frame) + 1, 0.5), "expected one probability for each row"),
        (lambda frame: 0.5, "expected one probability for each row"),
        (lambda frame: np.full(len(frame), 7.0), "not probabilities"),
        (lambda frame: np.full((len(frame), 2), 0.7), "not probabilities"),
        (lambda frame: np.full(len(frame), np.nan), "not probabilities"),
        (lambda frame: ["yes"] * len(frame), "not probabilities .could not convert string to float"),
        (lambda frame: np.full((len(frame), 3), 1 / 3), "has 3 classes, but the target column has 2"),
    ],
)
def test_a_model_that_answers_with_nonsense_is_refused(
    numbers: pd.DataFrame, answer: Callable[[pd.DataFrame], Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fit(numbers, "granted", answer)


@pytest.mark.parametrize("model", ["a name", 7, LogisticRegression])
def test_what_cannot_be_asked_is_refused(numbers: pd.DataFrame, model: Any) -> None:
    with pytest.raises(InputError, match="cannot be asked for probabilities"):
        fit(numbers, "granted", model)
