"""A range is where an answer must end: paths lead into it and never leave it; `stay_within` holds from the start."""

import copy
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import counterpath as cp
from counterpath.data.status import StatusCode
from counterpath.search.methods import METHODS
from tests.tables import CITIES, LABEL, SIZES, features

FITTED = [name for name, method in METHODS.items() if not method.needs]
FEW, MANY = 3, 30  # examples for each method: seconds, and minutes


@pytest.fixture(scope="module")
def rows(people: pd.DataFrame) -> pd.DataFrame:
    return features(people).iloc[::15]


def inside(name: str, values: pd.Series, wanted: Any) -> list[bool]:
    """Which values are in a range, in original units."""
    if name in ("city", "member"):
        return values.isin(wanted).tolist()
    places = [SIZES.index(value) for value in values] if name == "size" else values.astype(float).tolist()
    low, high = (SIZES.index(end) if isinstance(end, str) else end for end in wanted)
    return [(low is None or place >= low) and (high is None or place <= high) for place in places]


def test_who_is_outside_a_range_is_led_into_it(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    ranges = {"debt": (0, 60), "city": ["C", "D"]}
    result = explainer.explain(rows, "low", ranges=ranges)
    assert result.valid.mean() > 0.9
    for name, wanted in ranges.items():
        assert not all(inside(name, rows[name], wanted))
        assert all(inside(name, result.counterfactuals[name][result.valid], wanted))
    already = explainer.predict(rows) == "low"
    assert (result.status["status"][already] == "found").any()  # they are accepted, and have to enter all the same


def test_a_number_enters_its_range_step_by_step(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    accepted = rows[explainer.predict(rows) == "low"]
    most = accepted["debt"].median()
    result = explainer.explain(accepted, "low", ranges={"debt": (0, most)})
    outside = accepted.index[accepted["debt"] > most]
    assert (result.status["status"][outside] == "found").all()
    debts = [result.path(label)["debt"] for label in outside]
    assert all(debt.is_monotonic_decreasing for debt in debts)
    assert any(((debt > most) & (debt < debt.iloc[0])).any() for debt in debts)


@pytest.mark.parametrize("plans", [1, 2])
def test_who_must_stay_within_and_is_outside_has_a_status_and_the_others_are_answered(
    explainer: cp.Explainer, rows: pd.DataFrame, plans: int
) -> None:
    wanted = {"debt": (0, 60)}
    result = explainer.explain(rows, "low", stay_within=wanted, plans=plans)
    first = result.plan(1) if plans > 1 else result
    outside = [not each for each in inside("debt", rows["debt"], wanted["debt"])]
    assert (first.status["status"] == StatusCode.OUTSIDE).tolist() == outside
    label = rows.index[outside.index(True)]
    why = f"debt is {float(rows['debt'][label])!r}, outside of where it must stay, from 0 to 60."
    assert first.status["reason"][label].endswith(why)
    assert first.counterfactuals.loc[label].tolist() == rows.loc[label].tolist()
    assert first.outcome["class_before"].notna().all()
    explained = first.paths[~first.paths["row"].map(outside.__getitem__)]
    assert all(inside("debt", explained["debt"], (0, 60)))
    assert first.sentences[label].endswith(why)


def test_who_cannot_enter_has_a_status(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    result = explainer.explain(rows, "low", ranges={"debt": (0, 60)}, lock=["debt"])
    outside = [not each for each in inside("debt", rows["debt"], (0, 60))]
    assert (result.status["status"] == StatusCode.OUTSIDE).tolist() == outside
    assert result.status["reason"][outside].str.endswith("and must become from 0 to 60, but is locked.").all()


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    kinds = {
        "debt": st.tuples(st.floats(1, 3000), st.floats(1, 3000)).map(sorted),
        "score": st.tuples(st.floats(0, 15) | st.none(), st.just(None)),
        "children": st.tuples(st.integers(0, 7), st.integers(0, 7)).map(sorted),
        "size": st.tuples(st.integers(0, 3), st.integers(0, 3)).map(lambda ends: [SIZES[i] for i in sorted(ends)]),
        "city": st.sets(st.sampled_from(CITIES), min_size=1).map(sorted),
        "member": st.sampled_from([[True], [False], [False, True]]),
    }
    names = draw(st.sets(st.sampled_from(sorted(kinds)), min_size=1, max_size=3))
    return {
        "ranges": {name: draw(kinds[name]) for name in sorted(names)},
        "rows": draw(st.lists(st.integers(0, 599), min_size=1, max_size=6, unique=True)),
        "max_changes": draw(st.none() | st.integers(1, 5)),
        "plans": draw(st.integers(1, 2)),
        "staged": draw(st.booleans()),
        "lock": draw(st.sets(st.sampled_from(sorted(kinds)), max_size=1)),
    }


@pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", FITTED)
def test_a_range_once_entered_is_never_left_by_any_method(
    explainer: cp.Explainer, people: pd.DataFrame, method: str, examples: int
) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=examples < MANY,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],  # to shrink an example takes minutes
    )
    @given(requests())
    def check(asked: dict[str, Any]) -> None:
        asking = copy.copy(explainer).set_params(staged=asked["staged"], max_steps=10)
        table = people.drop(columns=LABEL).iloc[asked["rows"]]
        options = {name: asked[name] for name in ("ranges", "max_changes", "plans", "lock")}
        result = asking.explain(table, "low", method=method, **options)
        limit = asked["max_changes"] or len(table.columns)
        assert (result.changed.sum(axis=1) <= limit).all()
        for position, status in enumerate(result.status["status"]):
            path = result.paths[result.paths["row"] == position]
            pd.testing.assert_series_equal(
                path.iloc[-1][list(table.columns)].astype(object),
                result.counterfactuals.iloc[position].astype(object),
                check_names=False,
            )
            for name, wanted in asked["ranges"].items():
                within = inside(name, path[name], wanted)
                assert within == sorted(within)
                assert within[-1] or not StatusCode(status).valid
            for name in asked["lock"]:
                assert path[name].nunique() == 1

    check()
