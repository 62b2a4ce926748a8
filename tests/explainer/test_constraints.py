"""What may change in a request: no constraint is broken in any row of any path, and every status is true."""

import os
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import counterpath as cp
from counterpath.data.schema import KINDS
from tests.tables import CITIES, LABEL, SIZES, small

pytestmark = pytest.mark.whole

FEW, MANY = 6, int(os.environ.get("COUNTERPATH_EXAMPLES", "30"))
"""How many random requests are tried; 1,000 take half an hour."""
IMMUTABLE = "sex"
ORDERED = ("size", "children", "member", "debt", "score")
NAMES = ("city", *ORDERED, IMMUTABLE)
METHODS = ("geodesic", "geodesic", "geodesic", "rsgd", "rsgd-c", "sgd", "wachter", "face", "nearest")


@pytest.fixture(scope="module")
def holding(people: pd.DataFrame) -> cp.Explainer:
    schema = cp.Schema.infer(people, target=LABEL, immutable=[IMMUTABLE])
    return small(max_steps=30).fit(people, LABEL, schema=schema)


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[int], dict[str, Any]]:
    """A few people, by position, and what may change for them; which includes what they are."""
    rows = draw(st.lists(st.integers(0, 599), min_size=1, max_size=4, unique=True))
    some = st.sets(st.sampled_from(NAMES), max_size=3)
    ways = st.sampled_from(["up", "down"])
    wish: dict[str, Any] = {
        "lock": sorted(draw(some)),
        "directions": {name: draw(ways) for name in sorted(draw(some) & set(ORDERED))},
        "slack": {name: (draw(st.floats(0, 0.6)), draw(st.floats(0, 0.6))) for name in sorted(draw(some))},
        "more": draw(st.sets(st.sampled_from(CITIES))),
        "max_changes": draw(st.none() | st.integers(1, 5)),
        "feature_costs": {name: draw(st.floats(0.2, 5)) for name in sorted(draw(some))},
        "confidence": draw(st.floats(0.35, 0.9)),
        "plans": draw(st.sampled_from([1, 1, 1, 2, 3])),
        "method": draw(st.sampled_from(METHODS)),
        "target_class": draw(st.sampled_from(["other", "low", "high"])),
    }
    return rows, wish


def _ranges(people: pd.DataFrame, asked: pd.DataFrame, wish: dict[str, Any]) -> dict[str, Any]:
    """Ranges around the people, open or wider by some of what there is."""
    found: dict[str, Any] = {}
    for name, (below, above) in wish["slack"].items():
        if name in ("city", IMMUTABLE, "member"):
            found[name] = sorted({*asked[name], *(wish["more"] if name == "city" else ())})
        elif name == "size":
            places = [SIZES.index(value) for value in asked[name]]
            last = min(len(SIZES) - 1, max(places) + int(3 * above))
            found[name] = (SIZES[max(0, min(places) - int(3 * below))], SIZES[last])
        else:
            reach = people[name].max() - people[name].min()
            low = float(asked[name].min() - below * reach) if below < 0.5 else None
            found[name] = (low, float(asked[name].max() + above * reach) if above < 0.5 else None)
    return found


def _number(name: str, values: pd.Series) -> np.ndarray:
    """Values in their order."""
    return np.array([SIZES.index(value) for value in values] if name == "size" else values.astype(float).tolist())


def _breaches(
    explainer: cp.Explainer, person: pd.Series, rows: pd.DataFrame, wish: dict[str, Any], ranges: dict[str, Any]
) -> list[str]:
    """What rows of a person break, looked at in original units."""
    found = []
    for name in {*wish["lock"], IMMUTABLE}:
        found += [f"lock {name}"] * (not (rows[name] == person[name]).all())
    for name, way in wish["directions"].items():
        moved = _number(name, rows[name]) - _number(name, pd.Series([person[name]]))
        found += [f"{way} {name}"] * bool(((moved < 0) if way == "up" else (moved > 0)).any())
    for name, wanted in ranges.items():
        if name in ("city", IMMUTABLE, "member"):
            found += [f"range {name}"] * (not rows[name].isin(wanted).all())
            continue
        values = _number(name, rows[name])
        low, high = (end if end is None else float(_number(name, pd.Series([end]))[0]) for end in wanted)
        found += [f"range {name}"] * bool(low is not None and (values < low).any())
        found += [f"range {name}"] * bool(high is not None and (values > high).any())
    if wish["max_changes"] is not None:
        count = np.zeros(len(rows))
        for name, low, high in zip(
            explainer.schema_.names, explainer.encoder_.low, explainer.encoder_.high, strict=True
        ):
            if KINDS[explainer.schema_[name].kind].whole or explainer.schema_[name].categories:
                count += (rows[name].astype(object) != person[name]).to_numpy()
            else:
                count += (rows[name].astype(float) - person[name]).abs().to_numpy() > 1e-5 * (high - low)
        found += ["max_changes"] * bool((count > wish["max_changes"]).any())
    return found


@pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_no_constraint_is_broken_in_any_row_of_any_path_and_every_status_is_true(
    holding: cp.Explainer, people: pd.DataFrame, examples: int
) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=examples < 100, suppress_health_check=list(HealthCheck))
    @given(requests())
    def check(request: tuple[list[int], dict[str, Any]]) -> None:
        _check(holding, people, *request)

    check()


def _check(holding: cp.Explainer, people: pd.DataFrame, rows: list[int], wish: dict[str, Any]) -> None:
    asked = people.drop(columns=LABEL).iloc[rows]
    ranges = _ranges(people, asked, wish)
    options = {name: wish[name] for name in ("lock", "directions", "max_changes", "feature_costs", "plans", "method")}
    result = holding.explain(asked, wish["target_class"], confidence=wish["confidence"], ranges=ranges, **options)
    before = holding.predict(asked)
    for position in range(len(result)):
        person = asked.iloc[position // wish["plans"]]
        path = result.paths[result.paths["row"] == position]
        returned = result.counterfactuals.iloc[[position]]
        assert _breaches(holding, person, pd.concat([path[list(NAMES)], returned[list(NAMES)]]), wish, ranges) == []
        pd.testing.assert_frame_equal(
            path[list(NAMES)].iloc[[-1]].reset_index(drop=True).astype(object),
            returned[list(NAMES)].reset_index(drop=True).astype(object),
            check_exact=True,
        )
        assert (path[list(NAMES)].iloc[0].astype(object) == person[list(NAMES)].astype(object)).all()
        _check_status(holding, result, position, before.iloc[position // wish["plans"]], wish)


def _check_status(
    holding: cp.Explainer, result: cp.Explanation, position: int, before: Any, wish: dict[str, Any]
) -> None:
    status = result.status["status"].iloc[position]
    returned = result.counterfactuals.iloc[[position]]
    answers = holding.predict_proba(returned).iloc[0]
    target = wish["target_class"]
    probability = 1 - answers[before] if target == "other" else answers[target]
    decided = answers.idxmax() != before if target == "other" else answers.idxmax() == target
    valid = bool(decided and probability >= wish["confidence"])
    changed = result.changed.iloc[position]
    if status == "no_other_plan":
        assert wish["plans"] > 1
        assert not changed.any()
        return
    assert abs(result.outcome["probability_after"].iloc[position] - probability) < 1e-6
    assert valid == (status in ("found", "crosses_gap", "implausible", "already"))
    assert status in ("found", "crosses_gap", "implausible", "already", "not_found")
    assert (status == "already") <= (not changed.any())
    for constraint in result.status["binding"].iloc[position]:
        kind, name = constraint["kind"], constraint["feature"]
        assert status == "not_found"
        holds = {
            "immutable": name == IMMUTABLE,
            "lock": name in wish["lock"],
            "up": wish["directions"].get(name) == "up",
            "down": wish["directions"].get(name) == "down",
            "range": name in wish["slack"],
            "max_changes": name == str(wish["max_changes"]) and changed.sum() == wish["max_changes"],
        }
        assert holds[kind], text
