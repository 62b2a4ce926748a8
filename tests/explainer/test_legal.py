"""The promises that every answer keeps, on rows and requests that nobody chose: hundreds, and a thousand if slow."""

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import counterpath as cp
from counterpath import Explanation, StatusCode
from tests.tables import CITIES, CLASSES, SIZES, features

pytestmark = pytest.mark.whole

METHODS = ("rsgd", "rsgd-c", "sgd", "nearest", "wachter")
ROWS = 20
INTEGERS, NUMBERS, CATEGORIES = ("children",), ("debt", "score"), ("city", "size", "member", "sex")

PERSON = st.fixed_dictionaries(
    {
        "city": st.sampled_from(CITIES),
        "size": st.sampled_from(SIZES),
        "children": st.integers(-3, 30),
        "member": st.booleans(),
        "sex": st.sampled_from(["Female", "Male"]),
        "debt": st.floats(0, 1e6),
        "score": st.floats(-100, 100),
    }
)


def assert_kept(
    explainer: cp.Explainer, train: pd.DataFrame, rows: pd.DataFrame, target: str, confidence: float, found: Explanation
) -> None:
    """Everything that is promised about an answer."""
    after = found.counterfactuals
    pd.testing.assert_frame_equal(found.factuals, rows, check_exact=True)
    assert after.index.equals(rows.index)
    assert after.dtypes.to_dict() == train.dtypes.to_dict()
    same = (after == rows).all(axis=1).to_numpy()
    assert_legal(after[~same], train, rows[~same])
    assert_true(explainer, rows, target, confidence, found)
    status = found.status["status"]
    assert same[status == StatusCode.ALREADY].all()
    assert not same[status == StatusCode.FOUND].any()
    assert found.changed[same].to_numpy().sum() == 0
    for place, label in enumerate(rows.index):
        path = found.path(label)[list(train.columns)]
        assert path.iloc[0].to_dict() == rows.iloc[place].to_dict()
        assert path.iloc[-1].to_dict() == after.iloc[place].to_dict()
        own = rows.iloc[[place] * (len(path) - 1)]
        assert_legal(path.iloc[1:], train, own)


def assert_legal(rows: pd.DataFrame, train: pd.DataFrame, own: pd.DataFrame) -> None:
    """Known categories, whole numbers where they belong, and what changed within the range of the training rows."""
    for name in CATEGORIES:
        assert rows[name].isin(train[name].unique()).all(), name
    for name in (*INTEGERS, *NUMBERS):
        inside = rows[name].between(train[name].min(), train[name].max()).to_numpy()
        assert (inside | (rows[name].to_numpy() == own[name].to_numpy())).all(), name
    for name in INTEGERS:
        assert (rows[name] == np.rint(rows[name])).all(), name


def assert_true(
    explainer: cp.Explainer, rows: pd.DataFrame, target: str, confidence: float, found: Explanation
) -> None:
    """A status is what the model says about the row exactly as it was returned."""
    before, after = explainer.predict_proba(rows), explainer.predict_proba(found.counterfactuals)
    now, then = before.idxmax(axis=1), after.idxmax(axis=1)
    for label in rows.index:
        wanted = now[label] if target == "other" else target
        probability, decided = after.loc[label, wanted], then[label] == wanted
        if target == "other":
            probability, decided = 1 - probability, not decided
        valid = decided and probability >= confidence
        status = found.status["status"][label]
        assert (status in (StatusCode.FOUND, StatusCode.ALREADY)) == valid, label
        assert status in (StatusCode.FOUND, StatusCode.ALREADY, StatusCode.NOT_FOUND)
        assert found.outcome.loc[label, "class_before"] == now[label]
        assert found.outcome.loc[label, "class_after"] == then[label]
        assert abs(found.outcome.loc[label, "probability_after"] - probability) < 1e-6


@pytest.mark.parametrize("examples", [15, pytest.param(60, marks=pytest.mark.slow)])
def test_all_cases_keep_every_promise(explainer: cp.Explainer, people: pd.DataFrame, examples: int) -> None:
    train, cases = features(people), 0
    quick = copy.copy(explainer).set_params(max_steps=12)

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(PERSON, min_size=ROWS, max_size=ROWS),
        st.sampled_from((*CLASSES, "other")),
        st.floats(0.01, 0.99),
        st.sampled_from(METHODS),
    )
    def check(drawn: list[dict[str, Any]], target: str, confidence: float, method: str) -> None:
        nonlocal cases
        rows = pd.DataFrame(drawn, index=[f"q{place}" for place in range(ROWS)]).astype(train.dtypes.to_dict())
        found = quick.explain(rows, target, confidence=confidence, method=method)
        assert_kept(quick, train, rows, target, confidence, found)
        cases += len(rows)

    check()
    assert cases >= (1000 if examples == 60 else 300)
