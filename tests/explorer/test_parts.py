"""What the explorer is made of, without a browser."""

import json
from random import Random
from typing import Any

import pandas as pd
import pytest

import counterpath as cp
from counterpath.data.schema import Feature, Schema
from counterpath.explainer.solve import NEAREST, OTHER
from counterpath.explanation import StatusCode
from counterpath.explorer.request_form import IN_WORDS, available, favourable
from counterpath.explorer.results import FORMATS, content
from counterpath.explorer.state import (
    Limit,
    People,
    arguments,
    binding,
    framed,
    limit_problem,
    plans_of,
    side_by_side,
    value_problem,
    whole,
)
from counterpath.search.methods import METHODS
from counterpath.utils.errors import InputError
from tests.tables import features


@pytest.fixture(scope="module")
def given(explainer: cp.Explainer, people: pd.DataFrame) -> People:
    return People.of(explainer, people.head(30))


def test_every_method_is_told_in_words(explainer: cp.Explainer) -> None:
    assert set(IN_WORDS) == {*METHODS, NEAREST}
    there = available(explainer)
    assert there[0] == explainer.method
    assert set(there) == set(IN_WORDS) - {"flow"}, "which was not fitted"
    assert favourable(explainer) == OTHER


def test_people_are_searched_by_all_words_and_by_name(given: People, people: pd.DataFrame) -> None:
    (place,) = given.search("row=p7 ")
    assert given.label(place) == "p7"
    assert given.values(place) == features(people).iloc[7].to_dict()
    city = people["city"].iloc[0]
    found = given.search(f"city={city} sex=f", most=99)
    wanted = (people["city"] == city) & people["sex"].str.startswith("F")
    assert found == [place for place in range(30) if wanted.iloc[place]]
    assert len(given.search("e", most=4)) == 4
    assert 0 <= given.at_random(Random(0)) < 30


def test_the_next_rejected_goes_round_and_leaves_out_whom_the_model_does_not_know(
    explainer: cp.Explainer, people: pd.DataFrame
) -> None:
    rows = features(people).head(6).astype({"city": object})
    rows.loc["p3", "city"] = "Atlantis"
    given = People.of(explainer, rows)
    assert given.decided[3] is None
    assert [given.next_rejected(place, OTHER) for place in (-1, 2, 5)] == [0, 4, 0]
    wanted = given.decided[0]
    assert given.next_rejected(-1, wanted) != 0
    everybody = People(given.frame, (wanted,) * 6, given.texts)
    assert everybody.next_rejected(2, wanted) is None


def test_an_empty_table_is_refused(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    with pytest.raises(InputError, match="nobody to pick"):
        People.of(explainer, people.head(0))


def test_one_person_has_the_dtypes_of_the_training_table(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    row = features(people).iloc[[4]]
    pd.testing.assert_frame_equal(framed(explainer, row.iloc[0].to_dict(), "p4"), row, check_names=False)


def test_limits_become_what_is_asked(explainer: cp.Explainer) -> None:
    said = {
        "city": Limit(allowed=("A", "B")),
        "size": Limit(low="small", high="large"),
        "children": Limit(locked=True, feature_costs=2),
        "debt": Limit(direction="down", high=whole(900.0)),
        "score": Limit(),
    }
    asked = arguments(explainer.schema_, said)
    assert asked == {
        "lock": ("children",),
        "directions": {"debt": "down"},
        "ranges": {"city": ("A", "B"), "size": ("small", "large"), "debt": (None, 900)},
        "feature_costs": {"children": 2},
    }
    told = {name: limit.told(explainer.schema_[name]) for name, limit in said.items()}
    assert told["debt"] == "only down, –900"
    assert told["children"] == "locked, feature_costs 2"
    assert told["score"] == ""


def test_what_cannot_be_is_told(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    schema, row = explainer.schema_, features(people).head(1)
    assert "2.5 is not a whole number" in value_problem(schema["children"], 2.5, "p0")
    assert value_problem(schema["children"], 2, "p0") == ""
    assert "missing" in value_problem(schema["score"], None, "p0")
    assert "expected a positive number" in limit_problem(explainer, schema["score"], Limit(feature_costs=None), row)
    beyond = Limit(low=float(row["score"].iloc[0]) + 1)
    assert "outside the range" in limit_problem(explainer, schema["score"], beyond, row)
    assert limit_problem(explainer, schema["score"], beyond, None) == ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("lock: a; up: b", [("lock", "a"), ("up", "b")]),
        ("lock: a; lock: b; max_changes: 2", [("lock", "a; lock: b"), ("max_changes", "2")]),
        ("range: b; immutable: a", [("range", "b"), ("immutable", "a")]),
        ("something else", []),
    ],
)
def test_obstacles_are_read_whatever_features_are_called(text: str, found: list[tuple[str, str]]) -> None:
    schema = Schema(tuple(Feature(name, "continuous") for name in ("a", "b", "a; lock: b")))
    assert binding(schema, text) == found


def test_the_obstacles_of_an_explanation_are_read(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    result = explainer.explain(features(people).head(2), lock=["debt", "score"], confidence=0.97, max_changes=1)
    texts = [text for text in result.status["binding"] if text]
    assert texts
    for text in texts:
        assert "; ".join(f"{kind}: {name}" for kind, name in binding(explainer.schema_, text)) == text


@pytest.fixture(scope="module")
def result(explainer: cp.Explainer, people: pd.DataFrame) -> cp.Explanation:
    return explainer.explain(features(people).head(1), plans=2)


def test_a_plan_tells_what_its_explanation_does(result: cp.Explanation) -> None:
    plans = plans_of(result)
    assert [plan.number for plan in plans] == [1, 2]
    for plan in plans:
        own = result.plan(plan.number)
        assert plan.sentence == own.sentences.iloc[0]
        assert [change.feature for change in plan.changes] == own.changes["feature"].tolist()
        assert len(plan.stops) == len(own.milestones("p0"))
        assert all(plan.odds)
    rows = side_by_side(plans)
    assert all(len(row) == 3 for row in rows)
    assert {row[0] for row in rows[4:]} == {change.feature for plan in plans for change in plan.changes}


def test_who_needs_or_has_no_plan_has_one_thing_to_tell(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    row = features(people).head(1)
    (already,) = plans_of(explainer.explain(row, explainer.predict(row).iloc[0], plans=3))
    assert already.status is StatusCode.ALREADY
    stranger = row.astype({"city": object}).assign(city="Atlantis")
    (unknown,) = plans_of(explainer.explain(stranger, plans=2))
    assert unknown.status is StatusCode.UNKNOWN_CATEGORY
    assert len(unknown.stops) == 0
    assert unknown.steps == []


@pytest.mark.parametrize("suffix", FORMATS)
def test_files_hold_the_explanation(result: cp.Explanation, suffix: str) -> None:
    made: Any = content(result, suffix, {"Beside it": pd.DataFrame({"n": [3]})}).decode()
    match suffix:
        case "json":
            assert json.loads(made)["request"]["plans"] == 2
        case "csv":
            assert made.count("\n") == 3
        case "html":
            assert "Beside it" in made
