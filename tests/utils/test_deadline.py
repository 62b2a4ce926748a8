import time

import pandas as pd
import pytest

import counterpath as cp
from counterpath.utils.deadline import after, unlimited
from tests.tables import features, mixed


def test_without_a_limit_there_is_no_end() -> None:
    assert after(None) is unlimited
    assert not unlimited()


def test_time_runs_out() -> None:
    over = after(0.05)
    assert not over()
    time.sleep(0.06)
    assert over()


@pytest.mark.parametrize("seconds", [None, 1000.0])
def test_whoever_waits_may_leave(seconds: float | None) -> None:
    gone = []
    over = after(seconds, lambda: bool(gone))
    assert not over()
    gone.append(True)
    assert over()


@pytest.mark.parametrize("method", ["rsgd", "geodesic"])
def test_a_search_that_nobody_waits_for_ends(explainer: cp.Explainer, method: str) -> None:
    people: pd.DataFrame = features(mixed(60, seed=5))
    asked = 0

    def gone() -> bool:
        nonlocal asked
        asked += 1
        return asked > 2

    result = explainer.explain(people, "low", method=method, lock=["score"], should_stop=gone)
    statuses = set(result.status["status"])
    assert cp.StatusCode.OUT_OF_TIME in statuses
    assert 2 < asked < 100, "it is asked while the search runs, and believed"
    assert set(
        explainer.explain(people, "low", method=method, lock=["score"], should_stop=lambda: False).status["status"]
    ).isdisjoint({cp.StatusCode.OUT_OF_TIME})
