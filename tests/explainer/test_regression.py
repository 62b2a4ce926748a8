"""Numbers as targets: every kind of regressor, ranges, sentences, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import GradientBoostingRegressor

import counterpath as cp
from counterpath.data.encoding import Encoder
from counterpath.explorer.figures import description_of, path_figure
from counterpath.models.explained import is_regression
from counterpath.utils.errors import InputError, RowsError
from tests.tables import small

from .conftest import shorten_surrogate

FOUND = ("found", "crosses_gap", "implausible")


@pytest.mark.parametrize("method", ["geodesic", "rsgd-c", "sgd", "wachter", "nearest", "face"])
@pytest.mark.parametrize("wanted", [(90, None), (None, 60), (80, 95)])
def test_predictions_of_answers_lie_in_the_range(
    priced: cp.Explainer, houses: pd.DataFrame, method: str, wanted: tuple[float | None, float | None]
):
    said = priced.predict(houses)
    low, high = (-np.inf if wanted[0] is None else wanted[0]), (np.inf if wanted[1] is None else wanted[1])
    rows = houses[~said.between(low, high).to_numpy()].head(8)
    result = priced.explain(rows, target_range=wanted, method=method, plans=1)
    found = result.status["status"].isin(FOUND).to_numpy()
    assert found.mean() > 0.7
    after = priced.predict(result.counterfactuals)
    assert after[found].between(low, high).all()
    assert np.allclose(result.outcome["class_after"].astype(float), after, rtol=1e-5)
    assert (result.outcome["probability_after"][found] == 1).all()
    assert (result.measures()["valid"][found] == 1).all()


def test_sentences_say_numbers(priced: cp.Explainer, houses: pd.DataFrame):
    rows = houses[(priced.predict(houses) < 60).to_numpy()].head(3)
    result = priced.explain(rows, target_range=(90, None))
    first = result.sentences.iloc[0]
    assert first.startswith("The model predicts ")
    assert "k€. It would predict at least 90 k€ (9" in first
    assert "wanted at least 90 k€" in str(result)
    stuck = priced.explain(rows, target_range=(900, None))
    assert (stuck.status["status"] == "not_found").all()
    assert "where at least 900 k€ was asked" in stuck.sentences.iloc[0]
    assert "%" not in stuck.sentences.iloc[0]
    assert "wider range" in stuck.status["reason"].iloc[0]
    assert "confidence" not in stuck.status["reason"].iloc[0]
    again = priced.explain(rows, target_range=(0, 90))
    assert "The model already predicts" in again.sentences.iloc[0]
    assert "0 to 90 k€ is asked" in again.sentences.iloc[0]


def test_nothing_that_is_shown_calls_nearness_a_probability(priced: cp.Explainer, houses: pd.DataFrame, tmp_path: Path):
    rows = houses[(priced.predict(houses) < 60).to_numpy()].head(3)
    result = priced.explain(rows, target_range=(90, None))
    page = result.to_html(tmp_path / "page.html", by="rooms").read_text(encoding="utf-8")
    assert "wanted: at least 90 k€" in page
    assert "how near the prediction is to at least 90 k€; 1 is within" in page
    assert "probability" not in page.lower()
    label = result.plot_path(rows.index[0]).axes[0].get_ylabel()
    assert label.split("\n") == ["nearness", "to at least 90 k€"]
    drawn = path_figure(result, rows.index[0])
    assert "the nearness to at least 90 k€ goes from 0." in description_of(drawn)


def test_a_report_on_ranges_of_rows_alone_knows_no_probabilities_either(
    priced: cp.Explainer, houses: pd.DataFrame, tmp_path: Path
):
    rows = houses[(priced.predict(houses) < 60).to_numpy()].head(2)
    own = pd.DataFrame({"target_low": [80.0, 100.0]}, index=rows.index)
    page = priced.explain(rows, constraints=own).to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "wanted: at least 80 k€" in page
    assert "wanted: at least 100 k€" in page
    assert "probability" not in page.lower()


def test_methods_are_compared(priced: cp.Explainer, houses: pd.DataFrame):
    rows = houses[(priced.predict(houses) < 60).to_numpy()].head(4)
    compared = cp.compare(priced, rows, methods=["geodesic"], target_range=(90, None))
    assert compared.table().index.tolist() == ["geodesic", "nearest"]
    assert (compared.table()["flip ratio"] == 1).all()
    drawn = compared.plot(rows.index[0])
    assert any(axes.get_ylabel() == "nearness\nto at least 90 k€" for axes in drawn.axes)


def test_each_row_may_have_a_range_of_its_own(priced: cp.Explainer, houses: pd.DataFrame):
    rows = houses[(priced.predict(houses) < 60).to_numpy()].head(2)
    own = pd.DataFrame({"target_low": [80.0, 100.0], "target_high": [90.0, None]}, index=rows.index)
    result = priced.explain(rows, constraints=own)
    said = priced.predict(result.counterfactuals)
    assert 80 <= said.iloc[0] <= 90
    assert said.iloc[1] >= 100
    with pytest.raises(RowsError, match=rf"the constraints of row {rows.index[1]}: confidence is 0.7, and"):
        priced.explain(rows, constraints=own.assign(confidence=[None, 0.7]))
    with pytest.raises(InputError, match="is a regressor: say which numbers are wanted"):
        priced.explain(rows, constraints=own.head(1))


def test_it_is_kept_and_asked_again(priced: cp.Explainer, houses: pd.DataFrame, tmp_path: Path):
    rows = houses.head(5)
    result = priced.explain(rows, target_range=(80, 100), plans=2)
    loaded = cp.load(priced.save(tmp_path / "model"))
    assert loaded.repeat(result).counterfactuals.equals(result.counterfactuals)
    back = cp.Explanation.from_json(result.to_json())
    assert back.sentences.tolist() == result.sentences.tolist()
    assert "R²" in str(priced.diagnostics())


def test_other_regressors_are_recognised_and_explained(houses: pd.DataFrame, monkeypatch: pytest.MonkeyPatch):
    shorten_surrogate(monkeypatch, 200, 20)
    rows, names = houses.drop(columns="price"), ["rooms", "age", "coast"]
    trees = GradientBoostingRegressor(n_estimators=30, random_state=0).fit(rows, houses["price"])

    def by_hand(frame: pd.DataFrame) -> Any:
        return 20 + 12 * frame["rooms"] - 0.3 * frame["age"] + 30 * frame["coast"]

    encoder = Encoder.fit(rows, cp.Schema.infer(rows))
    module = torch.nn.Sequential(torch.nn.Linear(encoder.width, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    asked: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
        (trees, {}, {}),
        (by_hand, {"task": "regression"}, {}),
        (module, {"task": "regression"}, {"encoder": encoder}),
    ]
    for model, options, given in asked:
        explainer = small(**options).fit(rows, model=model, **given)
        said = explainer.predict(rows)
        low, high = float(said.quantile(0.6)), float(said.quantile(0.8))
        result = explainer.explain(rows[(said < low).to_numpy()].head(6), target_range=(low, high))
        found = result.status["status"].isin(FOUND)
        assert found.any()
        assert explainer.predict(result.counterfactuals[names])[found].between(low, high).all()


def test_how_a_task_is_found():
    class Forest:
        def predict(self, frame: Any) -> Any: ...

    class Voter(Forest):
        def predict_proba(self, frame: Any) -> Any: ...

    numbers, labels = pd.Series(np.arange(60.0)), pd.Series([0, 1] * 30)
    assert is_regression("auto", Forest(), None)
    assert not is_regression("auto", Voter(), numbers)
    assert is_regression("auto", None, numbers)
    assert not is_regression("auto", None, labels)
    assert is_regression("auto", print, numbers)
    assert not is_regression("auto", print, None)
    assert is_regression("regression", Voter(), labels)
    assert not is_regression("classification", None, numbers)
    with pytest.raises(InputError, match="unknown task 'ranking'"):
        is_regression("ranking", None, None)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "is a regressor: say which numbers are wanted, target_range"),
        ({"target_range": (9, 1)}, "low above high; swap them"),
        ({"target_range": (None, None)}, "expected a pair"),
        ({"target_range": (1, 2), "confidence": 0.5}, "has no probabilities"),
        ({"target_range": (1, 2), "target_class": "high"}, "is a regressor; ask for a range"),
    ],
)
def test_what_a_regressor_cannot_be_asked(
    priced: cp.Explainer, houses: pd.DataFrame, asked: dict[str, Any], message: str
):
    with pytest.raises(InputError, match=message):
        priced.explain(houses.head(2), **asked)
    with pytest.raises(InputError, match="it has no probabilities; use predict"):
        priced.predict_proba(houses)


def test_thresholds_and_class_weights_are_for_classes(houses: pd.DataFrame):
    with pytest.raises(InputError, match="are for classes, and this is a regression"):
        small(threshold=0.4).fit(houses, "price")
