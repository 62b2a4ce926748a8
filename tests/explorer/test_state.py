"""Rows to choose from, constraints of features, and plans, as the page shows them."""

import copy
from dataclasses import replace

import pandas as pd
import pytest

import counterpath as cp
from counterpath.data.constraints import Constraints
from counterpath.explainer.request import OTHER, Request
from counterpath.explanation import StatusCode
from counterpath.explanation.wording import constraint
from counterpath.explorer.state import (
    FeatureConstraint,
    RowTable,
    constraint_error,
    constraints_of,
    keep_first,
    plans_of,
    request_arguments,
    side_by_side,
    single_row,
    value_error,
)
from counterpath.utils.errors import InputError
from tests.tables import described, features


@pytest.fixture(scope="module")
def rows(explainer: cp.Explainer, people: pd.DataFrame) -> RowTable:
    return RowTable.from_table(explainer, people.head(30))


def test_rows_are_searched_by_all_words_and_by_name(rows: RowTable, people: pd.DataFrame) -> None:
    (index,) = rows.search("row=p7 ")
    assert rows.label(index) == "p7"
    assert rows.values(index) == features(people).iloc[7].to_dict()
    city = people["city"].iloc[0]
    found = rows.search(f"city={city} sex=f", limit=99)
    expected = (people["city"] == city) & people["sex"].str.startswith("F")
    assert found == [index for index in range(30) if expected.iloc[index]]
    assert len(rows.search("e", limit=4)) == 4


def test_a_person_is_found_again_by_label_and_values(rows: RowTable, people: pd.DataFrame) -> None:
    person = features(people).iloc[[7]]
    assert rows.position(person) == 7
    assert rows.position(person.assign(debt=person["debt"] + 1)) is None
    assert rows.position(person.set_axis(["p8"])) is None
    assert rows.position(features(people).iloc[[40]]) is None


def test_the_next_rejected_row_goes_round_and_leaves_out_unknown_categories(
    explainer: cp.Explainer, people: pd.DataFrame
) -> None:
    frame = features(people).head(6).astype({"city": object})
    frame.loc["p3", "city"] = "Atlantis"
    rows = RowTable.from_table(explainer, frame)
    assert rows.predicted[3] is None
    assert rows.rejected(OTHER) == [0, 1, 2, 4, 5]
    assert [rows.next_rejected(index, OTHER) for index in (-1, 2, 5)] == [0, 4, 0]
    target = rows.predicted[0]
    assert rows.next_rejected(-1, target) != 0
    accepted = replace(rows, predicted=(target,) * 6)
    assert accepted.next_rejected(2, target) is None


def test_an_empty_table_is_refused(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    with pytest.raises(InputError, match="nobody to pick"):
        RowTable.from_table(explainer, people.head(0))


def test_a_single_row_has_the_dtypes_of_the_training_table(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    row = features(people).iloc[[4]]
    pd.testing.assert_frame_equal(single_row(explainer, row.iloc[0].to_dict(), "p4"), row, check_names=False)


def test_constraints_become_arguments_of_a_request(explainer: cp.Explainer) -> None:
    constraints = {
        "city": FeatureConstraint(allowed=("A", "B")),
        "size": FeatureConstraint(low="small", high="large"),
        "children": FeatureConstraint(locked=True, cost=2),
        "debt": FeatureConstraint(direction="down", high=900),
        "score": FeatureConstraint(low=3, stays=True),
        "member": FeatureConstraint(stays=True),
    }
    assert request_arguments(explainer.schema_, constraints) == {
        "lock": ("children",),
        "unlock": (),
        "directions": {"debt": "down"},
        "ranges": {"city": ("A", "B"), "size": ("small", "large"), "debt": (None, 900)},
        "stay_within": {"score": (3, None)},
        "feature_costs": {"children": 2},
    }
    summaries = {name: constraint.summary(explainer.schema_[name]) for name, constraint in constraints.items()}
    assert summaries["debt"] == "only down, at most 900"
    assert summaries["children"] == "locked, cost 2"
    assert summaries["score"] == "at least 3, from the start"
    assert summaries["member"] == ""


def test_what_people_cannot_change_is_locked_unless_it_is_unlocked(explainer: cp.Explainer) -> None:
    schema = explainer.schema_.replace("city", actionable=False).replace("sex", immutable=True, actionable=False)
    default = {feature.name: FeatureConstraint.default(feature) for feature in schema}
    assert [name for name, constraint in default.items() if constraint.locked] == ["city"]
    nothing = {"lock": (), "unlock": (), "directions": {}, "ranges": {}, "stay_within": {}, "feature_costs": {}}
    assert request_arguments(schema, default) == nothing
    asked = default | {"city": FeatureConstraint(allowed=("A",)), "debt": FeatureConstraint(locked=True)}
    arguments = request_arguments(schema, asked)
    assert (arguments["lock"], arguments["unlock"]) == (("debt",), ("city",))
    Constraints.of(schema, **arguments)


def test_rows_are_found_and_told_by_labels_too(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    named = copy.copy(explainer)
    named.schema_ = described(explainer.schema_)
    rows = RowTable.from_table(named, people.head(30))
    city = people["city"].iloc[7]
    assert 7 in rows.search(f"town=city {city.lower()}", limit=99)
    assert 7 in rows.search(f"city={city}", limit=99)
    assert rows.summary(7).startswith(f"Home town City {city} · Size of the flat ")


def test_errors_of_values_and_constraints_are_named(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    schema, row = explainer.schema_, features(people).head(1)
    assert "2.5 is not a whole number" in value_error(explainer, schema["children"], 2.5, "p0")
    assert value_error(explainer, schema["children"], 2, "p0") == ""
    assert value_error(explainer, schema["score"], None, "p0").startswith("Invalid value: enter one")
    free = FeatureConstraint(cost=None)
    assert "enter a number above 0" in constraint_error(explainer, schema["score"], free, row)
    end = FeatureConstraint(low=float(row["score"].iloc[0]) + 1)
    assert constraint_error(explainer, schema["score"], end, row) == ""  # the path leads there
    beyond = replace(end, stays=True)
    assert "outside of the range, which must hold from the start" in constraint_error(
        explainer, schema["score"], beyond, row
    )
    assert constraint_error(explainer, schema["score"], beyond, None) == ""


def test_plans_have_the_binding_constraints_of_the_explanation(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    row = features(people).head(1)
    result = explainer.explain(row, lock=["debt", "score"], confidence=0.97, max_changes=1)
    (plan,) = plans_of(result)
    assert plan.binding
    assert [each.to_json() for each in plan.binding] == result.status["binding"].iloc[0]
    assert {each.kind for each in plan.binding} <= {"lock", "max_changes"}
    assert plan.row.binding == "; ".join(constraint(each, result.schema) for each in plan.binding)


def test_plans_say_what_their_explanation_does(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    result = explainer.explain(features(people).head(1), plans=2)
    plans = plans_of(result)
    assert [plan.number for plan in plans] == [1, 2]
    for plan in plans:
        own = result.plan(plan.number)
        assert plan.row.sentence == own.sentences.iloc[0]
        assert [change.feature for change in plan.row.changes] == own.changes["feature"].tolist()
        assert len(plan.milestones) == len(own.milestones("p0"))
    rows = side_by_side(plans)
    assert all(len(row) == 3 for row in rows)
    assert {row[0] for row in rows[5:]} == {change.feature for plan in plans for change in plan.row.changes}


def test_a_locked_value_outside_of_its_range_is_named(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    schema, row = explainer.schema_, features(people).head(1)
    beyond = FeatureConstraint(locked=True, low=float(row["score"].iloc[0]) + 1)
    assert "is locked, and outside of the range" in constraint_error(explainer, schema["score"], beyond, row)
    swapped = FeatureConstraint(low=3, high=1)
    assert constraint_error(explainer, schema["score"], swapped, row).startswith("Invalid range: the minimum 3")


def test_constraints_come_back_from_the_request_that_they_made(explainer: cp.Explainer) -> None:
    constraints = {each.name: FeatureConstraint.default(each) for each in explainer.schema_} | {
        "city": FeatureConstraint(allowed=("A", "B")),
        "size": FeatureConstraint(low="small", high="large"),
        "children": FeatureConstraint(locked=True, cost=2),
        "debt": FeatureConstraint(direction="down", high=900),
        "score": FeatureConstraint(low=3, stays=True),
    }
    request = Request(**request_arguments(explainer.schema_, constraints)).to_json()
    assert constraints_of(explainer.schema_, request) == constraints


def test_the_plan_that_was_shown_first_stays_the_first(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    row = features(people).head(1)
    several = explainer.explain(row, plans=3)
    shown = several.plan(2) if several.plan(2).valid.iloc[0] else several.plan(1)
    kept = keep_first(shown, several)
    assert kept.plans == 3
    pd.testing.assert_frame_equal(kept.plan(1).counterfactuals, shown.counterfactuals)
    ends = [tuple(kept.plan(number).counterfactuals.iloc[0]) for number in (1, 2, 3)]
    assert sorted(map(str, ends)) == sorted(str(tuple(several.plan(n).counterfactuals.iloc[0])) for n in (1, 2, 3))
    pd.testing.assert_frame_equal(kept.plan(1).path("p0"), shown.path("p0"))
    other = explainer.explain(row, method="nearest")
    mixed = keep_first(other, several)
    pd.testing.assert_frame_equal(mixed.plan(1).counterfactuals, other.counterfactuals)
    assert len(mixed.measures()) == 3
    assert cp.Explanation.from_json(mixed.to_json()).plans == 3


def test_a_row_that_needs_or_has_no_plan_has_one_that_says_so(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    row = features(people).head(1)
    (already,) = plans_of(explainer.explain(row, explainer.predict(row).iloc[0], plans=3))
    assert already.row.status is StatusCode.ALREADY
    stranger = row.astype({"city": object}).assign(city="Atlantis")
    (unknown,) = plans_of(explainer.explain(stranger, plans=2))
    assert unknown.row.status is StatusCode.UNKNOWN_CATEGORY
    assert len(unknown.milestones) == 0
