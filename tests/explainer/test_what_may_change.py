"""Locks, directions, ranges, limits, feature_costs and plans, from the request to the tables."""

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest

import counterpath as cp
from counterpath.explanation import Explanation, StatusCode, wording
from tests.explainer.conftest import shorten_surrogate
from tests.tables import LABEL, features, small

pytestmark = pytest.mark.whole

TABLES = ("counterfactuals", "status", "outcome", "changed", "paths")


@pytest.fixture(scope="module")
def rows(people: pd.DataFrame) -> pd.DataFrame:
    return features(people).head(40)


def _same(one: Explanation, other: Explanation) -> None:
    for name in TABLES:
        pd.testing.assert_frame_equal(getattr(one, name), getattr(other, name), check_exact=True)


@pytest.mark.parametrize("method", ["rsgd", "wachter", "nearest"])
def test_what_is_locked_stays_to_the_bit_at_every_step(
    explainer: cp.Explainer, rows: pd.DataFrame, method: str
) -> None:
    result = explainer.explain(rows, method=method, lock=["city", "children", "member", "sex"])
    locked = ["city", "children", "member", "sex"]
    assert result.valid.mean() > (0.1 if method == "nearest" else 0.7)
    assert not result.changed[locked].any(axis=None)
    pd.testing.assert_frame_equal(result.counterfactuals[locked], rows[locked], check_exact=True)
    own = rows[locked].iloc[result.paths["row"]].reset_index(drop=True)
    assert (result.paths[locked].astype(object) == own.astype(object)).all(axis=None)


def test_a_lock_leaves_what_is_plausible_to_the_others(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    """The model is told: with debt locked people reach the same by other ways, not farther from the data."""
    free, locked = explainer.explain(rows), explainer.explain(rows, lock=["debt"])
    assert free.changed["debt"].mean() > 0.5
    assert locked.valid.mean() > 0.8
    distances = [result.measures()["ld"][result.valid].median() for result in (free, locked)]
    assert distances[1] < 1.5 * distances[0] + 0.05


def test_what_is_put_back_is_as_it_was_given(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    result = explainer.explain(rows)
    same = ~result.changed["debt"] & result.valid
    assert same.any()
    assert (result.counterfactuals.loc[same, "debt"] == rows.loc[same, "debt"]).all()
    for label in rows.index[same][:5]:
        assert (result.path(label)["debt"] == rows.loc[label, "debt"]).all()


def test_a_value_beyond_the_training_rows_may_stay(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    beyond = rows.head(10).assign(children=12)
    result = explainer.explain(beyond, directions={"children": "up"})
    assert result.valid.any()
    assert (result.counterfactuals["children"] == 12).all()


def test_where_nothing_can_be_found_it_is_said_what_is_in_the_way(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    locked = ["debt", "score", "children", "size"]
    result = explainer.explain(rows, "low", confidence=0.9, lock=locked)
    short = result.status[result.status["status"] == StatusCode.NOT_FOUND]
    assert len(short) > 3
    blamed = short[short["binding"].map(bool)]  # of the others no single lock is to blame
    assert len(blamed)
    for label, told in blamed.iterrows():
        assert "Within what may change the search came to a probability of" in told["reason"]
        reached = result.outcome.loc[label, "probability_after"]
        assert f"a probability of {wording.shortfall(reached, 0.9)}. In the way: " in told["reason"]
        for constraint in told["binding"]:
            name = constraint["feature"]
            assert constraint["kind"] == "lock"
            assert name in locked
            assert _best(explainer, result.counterfactuals.loc[[label]], rows, name) > 0.9


def _best(explainer: cp.Explainer, row: pd.DataFrame, rows: pd.DataFrame, name: str) -> float:
    """The highest probability with another value of one feature."""
    number = pd.api.types.is_numeric_dtype(rows[name])
    low, high = explainer.encoder_.low, explainer.encoder_.high
    place = explainer.schema_.index(name)
    values: Any = np.linspace(low[place], high[place], 400) if number else list(rows[name].cat.categories)
    tried = row.loc[row.index.repeat(len(values))].reset_index(drop=True)
    tried[name] = np.round(values).astype(int) if name == "children" else pd.Series(values).astype(rows[name].dtype)
    return float(explainer.predict_proba(tried)["low"].max())


def test_a_limit_that_binds_is_named(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    result = explainer.explain(rows.head(12), "low", confidence=0.97, max_changes=1)
    short = result.status["status"] == StatusCode.NOT_FOUND
    assert short.any()
    bound = result.status["binding"].map(lambda each: any(one["kind"] == "max_changes" for one in each))
    assert bound[short].any()
    assert result.status.loc[bound, "reason"].str.contains("only one feature may change|and 1 more").all()
    assert (result.changed.sum(axis=1) <= 1).all()


def test_who_asks_for_more_than_there_is_comes_no_less_far(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    """Where no landmark is accepted any more, the best of them counts, and not the nearest."""
    rows, locked = features(people).head(150), ["debt", "score"]
    modest, greedy = (explainer.explain(rows, "low", confidence=asked, lock=locked) for asked in (0.5, 0.99))
    vain = (modest.status["status"] == StatusCode.FOUND) & (greedy.status["status"] == StatusCode.NOT_FOUND)
    assert vain.sum() > 3
    reached = [result.outcome.loc[vain, "probability_after"] for result in (modest, greedy)]
    assert (reached[1] >= reached[0]).all()


def test_without_constraints_nothing_binds(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    stopped = copy.copy(explainer).set_params(max_steps=1, fallback=False)
    result = stopped.explain(rows, "low", confidence=0.9, method="rsgd")
    assert (result.status["status"] == StatusCode.NOT_FOUND).any()
    assert not result.status["binding"].map(bool).any()


def test_what_is_hard_to_change_changes_less_and_the_whole_costs_less(
    explainer: cp.Explainer, rows: pd.DataFrame
) -> None:
    free, priced = explainer.explain(rows), explainer.explain(rows, feature_costs={"debt": 10})
    assert priced.valid.mean() >= free.valid.mean() - 0.05
    assert priced.changed["debt"].mean() < 0.6 * free.changed["debt"].mean()
    both = (free.valid & priced.valid).to_numpy()
    costs = [_cost(explainer, rows, result, {"debt": 10})[both].mean() for result in (free, priced)]
    assert costs[1] < costs[0]


def _cost(
    explainer: cp.Explainer, rows: pd.DataFrame, result: Explanation, feature_costs: dict[str, float]
) -> np.ndarray:
    encoder = explainer.encoder_
    before, after = (encoder.encode(frame).numpy() for frame in (rows, result.counterfactuals))
    weights = encoder.weights.numpy() ** 2
    for name, hard in feature_costs.items():
        weights[encoder.columns(name)] *= hard
    cost: np.ndarray = (weights * np.abs(after - before)).sum(1)
    return cost


def test_only_the_ratio_of_difficulties_matters(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    names = explainer.schema_.names
    one = explainer.explain(rows.head(10), feature_costs={"debt": 4})
    other = explainer.explain(rows.head(10), feature_costs={name: 2 if name == "debt" else 0.5 for name in names})
    _same(one, other)


def test_several_plans_each_with_its_own_path(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    strange = rows.head(8).copy()
    strange["city"] = strange["city"].astype(object)
    strange.loc[strange.index[3], "city"] = "Atlantis"
    result = explainer.explain(strange, "low", plans=3)
    assert result.plans == 3
    assert result.counterfactuals.index.equals(
        pd.MultiIndex.from_product([strange.index, [1, 2, 3]], names=["person", "plan"])
    )
    for label in strange.index:
        status = result.status.loc[label, "status"].tolist()
        if label == strange.index[3]:
            assert status == [StatusCode.UNKNOWN_CATEGORY, StatusCode.NO_OTHER_PLAN, StatusCode.NO_OTHER_PLAN]
            continue
        there = [number for number in (1, 2, 3) if status[number - 1] == StatusCode.FOUND]
        assert there == list(range(1, len(there) + 1)) or status[0] in (StatusCode.ALREADY, StatusCode.NOT_FOUND)
        sets = [frozenset(np.flatnonzero(result.changed.loc[(label, number)])) for number in there]
        assert len(set(sets)) == len(sets)
        for number in there:
            path = result.path(label, plan=number)
            assert path[list(rows.columns)].iloc[0].to_dict() == strange.loc[label].to_dict()
            assert path[list(rows.columns)].iloc[-1].to_dict() == result.counterfactuals.loc[(label, number)].to_dict()
    first = explainer.explain(strange, "low")
    assert (first.valid.to_numpy() == result.plan(1).valid.to_numpy()).all()
    assert first.counterfactuals.equals(result.plan(1).counterfactuals), "the first is the one that is found alone"
    costs = result.measures()["l1"].where(result.valid).drop(1, level="plan")
    assert (costs.groupby(level="person").diff().dropna() >= -1e-6).all(), "of the others the cheapest comes first"


def test_any_order_and_split_gives_the_same_plans(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    options: dict[str, Any] = {"plans": 2, "max_changes": 2, "directions": {"debt": "down"}, "lock": ["sex"]}
    whole = explainer.explain(rows.head(6), **options)
    parts = [explainer.explain(part, **options) for part in (rows.iloc[4:6], rows.iloc[[3]])]
    for part in parts:
        people = part.counterfactuals.index.get_level_values("person").unique().tolist()
        pd.testing.assert_frame_equal(whole.select(people).counterfactuals, part.counterfactuals, check_exact=True)
        pd.testing.assert_frame_equal(whole.select(people).status, part.status, check_exact=True)


def test_a_stored_request_is_answered_the_same(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    result = explainer.explain(
        rows.head(4),
        "low",
        confidence=0.6,
        lock=["sex"],
        directions={"score": "up"},
        ranges={"debt": (None, 1e6), "city": sorted(set(rows["city"]))},
        max_changes=3,
        feature_costs={"children": 3},
        plans=2,
    )
    _same(explainer.repeat(Explanation.from_json(result.to_json())), result)
    second = explainer.repeat(result.plan(2))
    pd.testing.assert_frame_equal(second.counterfactuals, result.plan(2).counterfactuals, check_exact=True)


def test_no_time_is_left_for_limits_and_plans_either(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    result = explainer.explain(rows, "low", time_limit=1e-6, max_changes=1, plans=2)
    assert set(result.status["status"]) <= {StatusCode.OUT_OF_TIME, StatusCode.ALREADY, StatusCode.NO_OTHER_PLAN}
    assert (result.status["status"] == StatusCode.OUT_OF_TIME).any()
    assert not result.changed.any(axis=None)
    late = result.plan(1).status["status"].to_numpy() == StatusCode.OUT_OF_TIME
    assert result.plan(2).status["reason"][late].str.startswith("The time was up before a further plan").all()


def test_a_model_that_can_only_be_asked_is_asked_about_the_row_as_returned(
    people: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that is put back is returned as it was, and the model's edge may lie in the digits that decoding loses."""
    shorten_surrogate(monkeypatch, 100, rows=40)
    two = people.assign(**{LABEL: people["score"] > people["score"].median()})

    def model(frame: pd.DataFrame) -> pd.Series:
        return 1 / (1 + np.exp(-(frame["score"] - 7) - 0.2 * frame["children"] + 0.1 * np.log(frame["debt"])))

    asked = small().fit(two, LABEL, model=model)
    result = asked.explain(features(two).head(15), lock=["sex", "debt"], plans=2)
    found = result.status["status"] == StatusCode.FOUND
    assert found.sum() > 10
    now = model(result.counterfactuals)
    wanted = np.where(result.outcome["class_before"] == True, 1 - now, now)  # noqa: E712
    np.testing.assert_allclose(result.outcome["probability_after"], wanted, rtol=0, atol=1e-12)
    assert (wanted[found] >= 0.5).all()
    last = result.paths.groupby("row").tail(1)["probability"].to_numpy()
    np.testing.assert_allclose(last, result.outcome["probability_after"], rtol=0, atol=1e-6)
