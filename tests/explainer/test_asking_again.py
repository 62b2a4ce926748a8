"""What is asked of the features is checked before anything is searched, recorded, and can be asked again."""

import copy
import json
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

import counterpath as cp
from counterpath import Explanation
from counterpath.explainer import solve
from counterpath.utils.errors import InputError, NotFittedError
from tests.tables import features, mixed

WISHES: dict[str, Any] = {
    "lock": ["sex", "city"],
    "directions": {"score": "up", "children": "down"},
    "ranges": {"debt": (None, 1e6), "city": list("ABCDEFGHIJKL"), "size": ("small", None)},
    "max_changes": 4,
    "feature_costs": {"score": 2.5},
    "plans": 1,
}
FRAMES = ("factuals", "counterfactuals", "status", "outcome", "changed", "paths")


@pytest.fixture(scope="module")
def quick(explainer: cp.Explainer) -> cp.Explainer:
    return copy.copy(explainer).set_params(max_steps=12)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return features(mixed(8, seed=1))


@pytest.fixture(scope="module")
def found(quick: cp.Explainer, rows: pd.DataFrame) -> Explanation:
    return quick.explain(rows, "low", confidence=0.6, method="sgd", time_limit=500, **WISHES)


def assert_equal(first: Explanation, second: Explanation) -> None:
    assert first.request == second.request
    for name in FRAMES:
        pd.testing.assert_frame_equal(getattr(first, name), getattr(second, name), check_exact=True)


def test_the_request_is_recorded_as_json(quick: cp.Explainer, found: Explanation) -> None:
    assert found.request == {
        "method": "sgd",
        "target_class": "low",
        "confidence": 0.6,
        "threshold": None,
        "time_limit": 500,
        "plans": 1,
        "paths": "all",
        "lock": ["city", "sex"],
        "unlock": [],
        "directions": {"children": "down", "score": "up"},
        "ranges": {"city": list("ABCDEFGHIJKL"), "debt": [None, 1e6], "size": ["small", None]},
        "stay_within": {},
        "max_changes": 4,
        "feature_costs": {"score": 2.5},
        "rules": [],
        "causes": [],
        "plausibility": 0.95,
        "closeness": "l1",
        "max_steps": 12,
        "step_size": quick.step_size,
        "damping": quick.damping,
        "sparsify": True,
        "keep_residual": True,
        "fallback": True,
        "fidelity": 0.0,
        "refine": None,
        "allow_copies": True,
        "avoid_unseen": True,
        "staged": True,
        "tf32": False,
        "seed": 0,
        "model": "Counterpath's classifier",
    }
    assert list(found.request["directions"]) == ["children", "score"]
    assert Explanation.from_json(found.to_json()).request == found.request


def test_nothing_asked_for_is_recorded_as_empty(quick: cp.Explainer, rows: pd.DataFrame) -> None:
    asked = quick.explain(rows.head(0)).request
    assert (asked["lock"], asked["directions"], asked["ranges"], asked["feature_costs"]) == ([], {}, {}, {})
    assert (asked["max_changes"], asked["plans"]) == (None, 1)


MISTAKES = [
    ({"lock": ["scoer"]}, "unknown feature in lock: 'scoer' .did you mean 'score'"),
    ({"directions": {"score": "left"}}, "unknown direction of feature 'score': 'left'"),
    ({"ranges": {"score": (5, 1)}}, "range of feature 'score' has low=5 above high=1"),
    ({"stay_within": {"score": (5, 1)}}, "range of feature 'score' has low=5 above high=1"),
    ({"max_changes": 0}, "max_changes is 0; expected a whole number from 1"),
    ({"feature_costs": {"score": -1}}, "feature_costs has -1 for feature 'score'"),
    ({"plans": 0}, "plans is 0; expected a whole number from 1"),
    ({"plans": True}, "plans is True; expected a whole number from 1"),
]


@pytest.mark.parametrize(("wishes", "message"), MISTAKES)
def test_a_mistake_is_told_before_anything_is_searched(
    quick: cp.Explainer, rows: pd.DataFrame, wishes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def searching(*arguments: Any) -> None:
        raise AssertionError("the search has begun")

    monkeypatch.setattr(solve.Solver, "_search", searching)
    with pytest.raises(InputError, match=message):
        quick.explain(rows, **wishes)


def test_a_row_with_an_unknown_category_has_no_bounds_to_keep(quick: cp.Explainer, rows: pd.DataFrame) -> None:
    asked = rows.assign(city=["Z", *rows["city"].iloc[1:]], score=[1e6, *rows["score"].iloc[1:]])
    assert len(quick.explain(asked, method="nearest", ranges={"score": (None, 1000)})) == len(rows)


# Again


def test_the_same_request_has_the_same_answer(quick: cp.Explainer, found: Explanation, rows: pd.DataFrame) -> None:
    assert_equal(quick.repeat(found), found)
    assert_equal(quick.repeat(Explanation.from_json(found.to_json())), found)
    assert_equal(quick.repeat(found.request, rows), found)
    assert_equal(quick.repeat(json.loads(json.dumps(found.request)), rows), found)
    assert_equal(quick.repeat(found, rows.head(3)), quick.explain(rows.head(3), "low", **_asked(found)))


def _asked(found: Explanation) -> dict[str, Any]:
    return {"confidence": 0.6, "method": "sgd", "time_limit": found.request["time_limit"], **WISHES}


@pytest.mark.parametrize("keep", ["milestones", "end"])
def test_as_much_of_the_paths_is_kept_again(quick: cp.Explainer, rows: pd.DataFrame, keep: str) -> None:
    found = quick.explain(rows, "low", paths=keep)
    assert (found.kept_paths, found.request["paths"]) == (keep, keep)
    assert_equal(quick.repeat(Explanation.from_json(found.to_json())), found)


def test_parts_of_a_request_may_be_left_out(quick: cp.Explainer, rows: pd.DataFrame) -> None:
    assert_equal(quick.repeat({"target_class": "low"}, rows), quick.explain(rows, "low"))


def test_of_several_plans_the_rows_are_asked_about_once(
    quick: cp.Explainer, found: Explanation, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = found.factuals.index.repeat(2)
    planned = pd.MultiIndex.from_arrays([index, [1, 2] * len(found)], names=["person", "plan"])
    twice = {name: getattr(found, name).loc[index].set_axis(planned) for name in FRAMES[:-1]}
    several = replace(found, **twice, paths=found.paths.head(0), request={**found.request, "plans": 2})
    asked: dict[str, Any] = {}
    monkeypatch.setattr(quick, "solve", lambda table, request: asked.update(request=request, table=table) or found)
    quick.repeat(several)
    pd.testing.assert_frame_equal(asked.pop("table"), found.factuals)
    assert asked["request"].plans == 2


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"max_steps": 13},
            "made with max_steps=12, and this explainer has max_steps=13; repeat it with the explainer that made it",
        ),
        (
            {"seed": 1, "sparsify": False},
            "made with sparsify=True, seed=0, and this explainer has sparsify=False, seed=1",
        ),
        ({"step_size": 0.2}, "made with step_size=0.1"),
        ({"damping": 0.2}, "made with damping=0.005"),
        ({"fallback": False}, "made with fallback=True"),
        ({"fidelity": 1.0}, "made with fidelity=0.0"),
    ],
)
def test_other_settings_are_named(
    quick: cp.Explainer, found: Explanation, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        copy.copy(quick).set_params(**parameters).repeat(found)


def test_what_is_no_request_is_refused(quick: cp.Explainer, found: Explanation, rows: pd.DataFrame) -> None:
    with pytest.raises(InputError, match="made with model='XGBoost', and this explainer has model=\"Counterpath's cl"):
        quick.repeat({**found.request, "model": "XGBoost"}, rows)
    with pytest.raises(InputError, match=r"unknown part of a request 'confidnce' \(did you mean 'confidence'\?\)"):
        quick.repeat({"confidnce": 0.5}, rows)
    with pytest.raises(InputError, match=r"no rows of its own; give them too: repeat\(request, table\)"):
        quick.repeat(found.request)
    with pytest.raises(InputError, match="lock is 'age'; expected in JSON"):
        quick.repeat({"lock": "age"}, rows)
    with pytest.raises(NotFittedError):
        cp.Explainer().repeat(found)
