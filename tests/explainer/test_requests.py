"""What can be asked for, and what scikit-learn's conventions promise."""

import copy
import inspect
import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import counterpath as cp
from counterpath import StatusCode
from counterpath.cli.options import RequestOptions
from counterpath.data.constraints import CONSTRAINTS, Constraints
from counterpath.explainer.request import Request
from counterpath.explanation.wording import REQUEST_MEANINGS
from counterpath.fitting.diagnostics import Diagnostics
from counterpath.search import measures
from counterpath.service.schemas import request_types
from counterpath.service.settings import Settings
from counterpath.utils.errors import InputError, NotFittedError
from tests.tables import CITIES, LABEL, SMALL, features, mixed, small


@pytest.fixture(scope="module")
def quick(explainer: cp.Explainer) -> cp.Explainer:
    return copy.copy(explainer).set_params(max_steps=12)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return features(mixed(30, seed=1))


# The wanted class

small_table = pytest.mark.filterwarnings("ignore:The generative model:counterpath.utils.errors.CounterpathWarning")


def test_every_class_can_be_wanted_and_any_other(quick: cp.Explainer, rows: pd.DataFrame) -> None:
    for label in quick.classes_:
        found = quick.explain(rows, label, method="nearest")
        assert (quick.predict(found.counterfactuals) == label).all()
        assert found.request["target_class"] == label
    found = quick.explain(rows, method="nearest")
    assert (quick.predict(found.counterfactuals) != quick.predict(rows)).all()
    assert (found.outcome["class_after"] != found.outcome["class_before"]).all()


@pytest.mark.parametrize("wanted", ["hihg", 1, None, math.nan, ["low"], ""])
def test_a_class_that_does_not_exist_is_refused_with_those_that_do(
    quick: cp.Explainer, rows: pd.DataFrame, wanted: Any
) -> None:
    with pytest.raises(InputError, match="does not exist; choose one of: 'high', 'low', 'mid', or 'other'"):
        quick.explain(rows, wanted)


@pytest.fixture(scope="module")
def adult() -> cp.Explainer:
    """Two classes with numbers for labels."""
    data = cp.datasets.load("adult-carla")
    return small(epochs=20).fit(data.train.head(1500), data.target, schema=data.schema)


@small_table
def test_a_number_may_be_given_as_text(adult: cp.Explainer) -> None:
    people = cp.datasets.load("adult-carla").test.head(40)
    assert adult.classes_ == (0, 1)
    number, text, numpy = (adult.explain(people, label, method="nearest") for label in (1, "1", np.int64(1)))
    pd.testing.assert_frame_equal(number.counterfactuals, text.counterfactuals)
    pd.testing.assert_frame_equal(number.counterfactuals, numpy.counterfactuals)
    assert number.request == text.request
    with pytest.raises(InputError, match="'2' does not exist; choose one of: 0, 1, or 'other'"):
        adult.explain(people, "2")


@small_table
def test_of_two_classes_the_other_is_the_other(adult: cp.Explainer) -> None:
    people = cp.datasets.load("adult-carla").test.head(40)
    people = people[adult.predict(people) == 0]
    one, other = adult.explain(people, 1, confidence=0.6), adult.explain(people, confidence=0.6)
    pd.testing.assert_frame_equal(one.counterfactuals, other.counterfactuals)
    assert (one.status["status"] == StatusCode.FOUND).sum() > 5


def test_the_label_may_be_there_and_is_not_looked_at(quick: cp.Explainer, rows: pd.DataFrame) -> None:
    given = rows.assign(**{LABEL: "nonsense"})
    pd.testing.assert_frame_equal(quick.explain(given).counterfactuals, quick.explain(rows).counterfactuals)
    pd.testing.assert_frame_equal(quick.predict_proba(given), quick.predict_proba(rows))


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.5, 2.0, math.nan])
def test_a_confidence_lies_between_0_and_1(quick: cp.Explainer, rows: pd.DataFrame, confidence: float) -> None:
    with pytest.raises(InputError, match=r"a confidence lies between 0 and 1; given .*, try 0.5"):
        quick.explain(rows, confidence=confidence)


def test_per_cent_are_taken_for_what_they_are(quick: cp.Explainer, rows: pd.DataFrame) -> None:
    with pytest.raises(InputError, match=r"given 95, try 0\.95"):
        quick.explain(rows, confidence=95)


def test_an_unknown_method_lists_the_known_ones(quick: cp.Explainer, rows: pd.DataFrame) -> None:
    with pytest.raises(InputError, match=r"unknown method 'rsdg' \(did you mean 'rsgd'\?\); .*nearest"):
        quick.explain(rows, method="rsdg")
    with pytest.raises(InputError, match="unknown method 'magic'"):
        small(method="magic").fit(mixed(), LABEL)


def test_a_flow_must_have_been_fitted(quick: cp.Explainer, rows: pd.DataFrame) -> None:
    with pytest.raises(NotFittedError, match=r"a flow, and none was fitted.*method='flow'"):
        quick.explain(rows, method="flow")


def test_a_higher_confidence_is_reached_or_the_best_point_told(quick: cp.Explainer, rows: pd.DataFrame) -> None:
    alone = copy.copy(quick).set_params(fallback=False)
    low, high = (alone.explain(rows, "low", confidence=sure, method="rsgd") for sure in (0.5, 0.97))
    assert high.valid.sum() < low.valid.sum()
    stuck = high.status[high.status["status"] == StatusCode.NOT_FOUND]
    assert stuck["reason"].str.contains("asked confidence. The best point on the way is returned").all()
    for label in stuck.index:
        best = high.path(label)["probability"]
        assert best.iloc[-1] == best.max()


def test_a_row_that_gets_stuck_falls_back_and_says_so(quick: cp.Explainer, rows: pd.DataFrame) -> None:
    line = quick.explain(rows, "low", method="rsgd")
    alone = copy.copy(quick).set_params(fallback=False).explain(rows, "low", method="rsgd")
    stuck = ~alone.valid
    assert stuck.any()
    assert line.valid.all()
    assert (line.status["fallback"] == stuck).all()
    assert line.status.loc[stuck, "reason"].str.startswith("The local search got stuck").all()
    pd.testing.assert_frame_equal(line.counterfactuals[~stuck], alone.counterfactuals[~stuck], check_exact=True)


# Time


def test_when_the_time_is_up_nothing_is_lost(quick: cp.Explainer, people: pd.DataFrame, rows: pd.DataFrame) -> None:
    found = quick.explain(rows, "low", time_limit=1e-6)
    already = quick.predict(rows) == "low"
    assert (found.status["status"] == np.where(already, StatusCode.ALREADY, StatusCode.OUT_OF_TIME)).all()
    inside = rows["score"].between(*people["score"].agg(["min", "max"]))
    assert inside.sum() > 20
    pd.testing.assert_frame_equal(found.counterfactuals[inside], rows[inside], check_exact=True)
    assert (found.status.loc[~already, "reason"] == StatusCode.OUT_OF_TIME.text).all()
    assert found.measures().notna().any(axis=1).all()
    assert all(len(found.path(label)) == 1 for label in rows.index[inside])
    assert f"{(~already).sum()} out of time" in repr(found)


def test_enough_time_changes_nothing(quick: cp.Explainer, rows: pd.DataFrame) -> None:
    timed, free = quick.explain(rows, time_limit=500.0), quick.explain(rows)
    pd.testing.assert_frame_equal(timed.counterfactuals, free.counterfactuals, check_exact=True)
    pd.testing.assert_frame_equal(timed.paths, free.paths, check_exact=True)


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan])
def test_a_budget_is_positive(quick: cp.Explainer, rows: pd.DataFrame, seconds: float) -> None:
    with pytest.raises(InputError, match="positive number of seconds"):
        quick.explain(rows, time_limit=seconds)


# Missing values


def test_missing_values_are_refused_by_name_or_filled_in_and_told(people: pd.DataFrame, rows: pd.DataFrame) -> None:
    holes = people.copy()
    holes.loc["p3", "score"] = np.nan
    holes.loc["p7", "city"] = None
    with pytest.raises(InputError, match=r"column '(score|city)', row p[37]: .* is a missing value"):
        small(missing="error").fit(holes, LABEL)
    filling = small(missing="impute").fit(holes, LABEL)
    asked = rows.head(4).copy()
    asked.iloc[1, asked.columns.get_loc("score")] = np.nan
    asked.iloc[2, asked.columns.get_loc("city")] = None
    asked.iloc[2, asked.columns.get_loc("debt")] = np.nan
    found = filling.explain(asked)
    assert found.status["imputed"].tolist() == [[], ["score"], ["city", "debt"], []]
    assert found.factuals.notna().all(axis=None)
    assert found.counterfactuals.notna().all(axis=None)
    assert found.factuals["score"].iloc[1] == holes["score"].median()
    with pytest.raises(InputError, match="unknown way to treat missing values 'drop'; choose one of: auto, keep"):
        small(missing="drop").fit(people, LABEL)


# Diagnostics


def test_diagnostics_have_a_verdict_and_survive_json(explainer: cp.Explainer) -> None:
    told = explainer.diagnostics()
    assert told.verdict in ("good", "fair")
    assert f"are {told.verdict} here (measured on 60 held-out rows)" in str(told)
    assert list(told.reconstruction["feature"]) == list(explainer.schema_.names)
    assert told.coverage["share"].sum() == pytest.approx(1)
    again = Diagnostics.from_json(json.loads(json.dumps(told.to_json())))
    assert str(again) == str(told)
    assert again.findings == told.findings


# scikit-learn's conventions


def test_parameters_are_kept_as_given_and_can_be_set() -> None:
    given = {**SMALL, "method": "rsgd-c", "seed": 7, "class_weight": {"low": 2.0}}
    explainer = cp.Explainer(**given)
    assert explainer.get_params() == {**cp.Explainer().get_params(), **given}
    assert all(explainer.get_params()[name] is value for name, value in given.items())
    assert explainer.set_params(seed=3).seed == 3
    assert "method='rsgd-c'" in repr(explainer)
    with pytest.raises(ValueError, match="Invalid parameter 'sede'"):
        explainer.set_params(sede=3)


def test_nothing_is_checked_before_fit() -> None:
    cp.Explainer(method="nonsense", latent_dim=-1, hidden=(), missing="?", device="tpu")


def test_a_clone_is_unfitted_and_a_fit_returns_itself(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    copied = clone(explainer)
    assert copied.get_params() == explainer.get_params()
    calls = (lambda: copied.explain(rows), lambda: copied.predict(rows), lambda: copied.predict_proba(rows))
    for call in (*calls, copied.diagnostics, lambda: copied.save("nowhere")):
        with pytest.raises(NotFittedError, match=r"call fit\(table, target='column'\) first"):
            call()


def test_predictions_are_tables_with_the_labels(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    given = explainer.predict_proba(people)
    assert given.index.equals(people.index)
    assert tuple(given.columns) == explainer.classes_ == ("high", "low", "mid")
    np.testing.assert_allclose(given.sum(axis=1), 1, atol=1e-6)
    predicted = explainer.predict(people)
    assert predicted.name == LABEL
    assert (predicted == given.idxmax(axis=1)).all()
    assert (predicted == people[LABEL]).mean() > 0.8


@small_table
@pytest.mark.usefixtures("brief")
def test_class_weights_move_the_decision(people: pd.DataFrame) -> None:
    shares = [
        (small(epochs=3, class_weight=weight).fit(people, LABEL).predict(people) == "high").mean()
        for weight in ({"high": 0.05}, None, {"high": 20.0})
    ]
    assert shares[0] < shares[1] < shares[2]
    with pytest.raises(InputError, match="class_weight is"):
        small(class_weight={"nobody": 2.0}).fit(people, LABEL)


@small_table
@pytest.mark.usefixtures("brief")
def test_labels_may_be_given_beside_the_table(people: pd.DataFrame, rows: pd.DataFrame) -> None:
    inside = small(epochs=3).fit(people, LABEL).predict_proba(rows)
    for kind in (list, np.array, pd.Series):
        beside = small(epochs=3).fit(features(people), kind(people[LABEL].to_list()))
        pd.testing.assert_frame_equal(beside.predict_proba(rows), inside, check_exact=True)


def test_one_person_is_enough_to_ask_about(quick: cp.Explainer, rows: pd.DataFrame) -> None:
    one = quick.explain(rows.iloc[[0]], "high", method="nearest")
    assert len(one) == 1
    assert one.counterfactuals["city"].isin(CITIES).all()
    assert rows.index[0] in repr(one)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_every_kind_of_constraint_can_be_asked_for_everywhere(name: str, explainer: cp.Explainer) -> None:
    body = request_types("risk", explainer, Settings())[0].model_fields[name]
    assert body.get_default() == Constraints().to_json()[name]
    assert json.dumps(CONSTRAINTS[name].example) in str(body.description)
    assert name in RequestOptions().constraints(explainer.schema_), "an option of the command line"
    assert name in inspect.signature(explainer.explain).parameters
    assert REQUEST_MEANINGS[name] == CONSTRAINTS[name].meaning
    example = {name: CONSTRAINTS[name].example}
    request = Request.from_json(json.loads(json.dumps(example)))
    assert request.to_json()[name] == example[name]
    assert Constraints.from_json(example).to_json()[name] == example[name]


def test_a_measure_is_registered_once(quick: cp.Explainer, rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(measures.MEASURES, "twice", lambda case: 2 * measures.l0(case))
    result = quick.explain(rows, "low")
    pd.testing.assert_series_equal(result.measures()["twice"], 2 * result.measures()["l0"], check_names=False)
    pd.testing.assert_frame_equal(cp.Explanation.from_json(result.to_json()).measures(), result.measures())
