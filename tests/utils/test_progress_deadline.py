import time

import pandas as pd
import pytest

import counterpath as cp
from counterpath.utils.progress import never_stop, stop_after
from tests.tables import features, mixed


def test_without_a_limit_nothing_stops() -> None:
    assert stop_after(None) is never_stop
    assert not never_stop()


def test_it_stops_when_the_time_is_up() -> None:
    should_stop = stop_after(0.05)
    assert not should_stop()
    time.sleep(0.06)
    assert should_stop()


@pytest.mark.parametrize("seconds", [None, 1000.0])
def test_the_callers_own_condition_stops_too(seconds: float | None) -> None:
    cancelled = []
    should_stop = stop_after(seconds, lambda: bool(cancelled))
    assert not should_stop()
    cancelled.append(True)
    assert should_stop()


@pytest.mark.whole
@pytest.mark.parametrize("method", ["rsgd", "geodesic"])
def test_a_search_that_should_stop_does(explainer: cp.Explainer, method: str) -> None:
    rows: pd.DataFrame = features(mixed(60, seed=5))
    calls = 0

    def should_stop() -> bool:
        nonlocal calls
        calls += 1
        return calls > 2

    result = explainer.explain(rows, "low", method=method, lock=["score"], should_stop=should_stop)
    statuses = set(result.status["status"])
    assert cp.StatusCode.OUT_OF_TIME in statuses
    assert 2 < calls < 100, "it is called while the search runs, and heeded"
    assert set(
        explainer.explain(rows, "low", method=method, lock=["score"], should_stop=lambda: False).status["status"]
    ).isdisjoint({cp.StatusCode.OUT_OF_TIME})
