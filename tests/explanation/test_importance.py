import numpy as np
import pandas as pd
import pytest

from counterpath.explanation import Explanation
from counterpath.explanation.importance import RESAMPLES
from counterpath.utils.errors import InputError
from tests.explanation.conftest import make, make_empty, make_plans


def test_it_counts_how_often_and_how_far_over_people(explanation: Explanation) -> None:
    table = explanation.importance()
    assert list(table.index) == ["hours-per-week", "marital-status", "owner", "education-num", "age", "sex"]
    hours = table.loc["hours-per-week"]
    spread = 60.0 - 13.0  # of all rows, as asked and as returned
    assert hours["often"] == 1
    assert hours["far"] == pytest.approx((6.2345678 + 4.0) / 2 / spread)
    assert (hours["up"], hours["down"]) == (0.5, 0.5)
    assert table.loc["marital-status", ["often", "far", "up"]].tolist() == [0.5, 1.0, 0.0]
    assert np.isnan(table.loc["age", "far"])
    assert table["held"].to_dict() == {name: name in ("age", "sex") for name in table.index}


def test_plans_of_one_person_count_as_one_person(plans: Explanation) -> None:
    """Ann has three plans, Cem two: education changes in all of Ann's, and who owns in all of Cem's."""
    table = plans.importance()
    assert table["often"].to_dict() == {
        "hours-per-week": 1.0,
        "education-num": 0.5,
        "marital-status": 0.5,
        "owner": 0.5,
        "age": 0.0,
        "sex": 0.0,
    }
    ann, cem = np.mean([6.2345678, 8.2345678, 10.2345678]), np.mean([4.0, 2.0])
    assert table.loc["hours-per-week", "far"] == pytest.approx((ann + cem) / 2 / (60.0 - 13.0))


def test_where_resampling_has_nothing_to_vary_the_bound_is_exact(explanation: Explanation) -> None:
    table = explanation.importance()
    assert table.loc["age", "often_low"] == 0
    assert table.loc["age", "often_high"] == pytest.approx(1 - 0.025 ** (1 / 2))
    assert table.loc["hours-per-week", "often_low"] == pytest.approx(0.025 ** (1 / 2))
    assert table.loc["hours-per-week", "often_high"] == 1


def test_intervals_cover_the_share_that_rows_were_drawn_with() -> None:
    """95 % intervals of 300 samples of 40 people: 0.95 ± three standard errors, and what a bootstrap of 40 lacks."""
    rng, share, covered, samples = np.random.default_rng(0), 0.3, 0, 300
    one = make().select(["ann"])
    for number in range(samples):
        many = _copies(one, rng.random(40) < share)
        row = many.importance(resamples=200, seed=number).loc["education-num"]
        covered += row["often_low"] <= share <= row["often_high"]
    assert 0.88 < covered / samples <= 0.99


def _copies(one: Explanation, changed: np.ndarray) -> Explanation:
    """One person's answer as often as there are flags, with education changed where they say so."""
    made = one.select(["ann"] * len(changed))
    object.__setattr__(made, "changed", made.changed.assign(**{"education-num": changed}))
    return made


def test_the_seed_decides_and_what_is_locked_is_held(explanation: Explanation) -> None:
    first = explanation.importance(seed=3)
    pd.testing.assert_frame_equal(first, explanation.importance(seed=3, resamples=RESAMPLES))
    locked = make(request=explanation.request | {"lock": ["owner"]})
    assert locked.importance().loc["owner", "held"]


def test_where_nothing_was_found_nothing_is_said(explanation: Explanation) -> None:
    for nothing in (make_empty(), explanation.select(["dee"])):
        table = nothing.importance()
        assert table.drop(columns="held").isna().all(axis=None)
        texts = [text.get_text() for text in nothing.plot_importance().texts]
        assert texts == ["Nothing changes in any answer, so there is nothing to draw."]
    with pytest.raises(InputError, match="resamples is 0; expected how often people are drawn"):
        explanation.importance(resamples=0)


def test_a_drawing_has_what_changes_with_its_intervals() -> None:
    fig = make_plans().plot_importance()
    often, far = fig.axes
    assert next(label.get_text() for label in often.get_yticklabels()) == "hours-per-week"
    assert often.get_title() == "How often it changes (2 people)"
    assert far.lines[1].get_xdata()[0] == pytest.approx(make_plans().importance()["far"].iloc[0])
    assert fig._repr_png_().startswith(b"\x89PNG")
