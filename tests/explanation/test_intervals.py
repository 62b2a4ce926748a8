"""Intervals of shares and means."""

import numpy as np
import pandas as pd
import pytest

from counterpath.explanation.intervals import group_intervals, mean_intervals, share_interval
from counterpath.explanation.summary import group_keys
from tests.explanation.conftest import make


def test_a_share_has_wilsons_interval() -> None:
    low, high = share_interval(8, 10)  # worked out by hand from the formula
    assert (low, high) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert share_interval(0, 20) == (0.0, pytest.approx(0.1611, abs=1e-4))
    assert share_interval(20, 20) == (pytest.approx(0.8389, abs=1e-4), 1.0)
    assert np.isnan(share_interval(0, 0)).all()


def test_the_interval_of_a_mean_covers_it_about_as_often_as_it_says() -> None:
    random, covered = np.random.default_rng(0), 0
    for _ in range(100):
        ends = mean_intervals(pd.DataFrame({"x": random.normal(3, 1, 60)}), resamples=200).loc["x"]
        covered += bool(ends["low"] <= 3 <= ends["high"])
    assert 88 <= covered <= 99
    few = mean_intervals(pd.DataFrame({"x": [1.0, np.nan], "y": [1.0, 2.0]}))
    assert few.loc["x"].isna().all()
    assert few.loc["y", "low"] <= 1.5 <= few.loc["y", "high"]


def test_every_group_has_intervals_around_its_measures() -> None:
    result = make()
    ends = group_intervals(result, group_keys(result, "sex")[0])
    summary = result.summary(by="sex")
    assert set(ends.index) == set(summary.index)
    for group in summary.index:
        for name in ("found", "l1"):
            low, high = ends.loc[group, (name, "low")], ends.loc[group, (name, "high")]
            value = summary.loc[group, name]
            assert np.isnan(low) or low - 1e-9 <= value <= high + 1e-9
