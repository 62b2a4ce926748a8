"""Who is in a cohort, what a browser may remember of it, and two of them side by side."""

import pandas as pd
import pytest

import counterpath as cp
from counterpath.explainer.request import OTHER
from counterpath.explorer.cohort_results import Side, compare
from counterpath.explorer.cohorts import Cohort, Condition, cohorts_from_json
from counterpath.explorer.state import RowTable
from tests.tables import features


@pytest.fixture(scope="module")
def rows(explainer: cp.Explainer, people: pd.DataFrame) -> RowTable:
    return RowTable.from_table(explainer, features(people).head(60))


def test_rejected_people_are_those_with_another_prediction_than_the_target(rows: RowTable) -> None:
    target = rows.predicted[0]
    rejected = Cohort("all").positions(rows, target)
    assert rejected == [index for index, predicted in enumerate(rows.predicted) if predicted != target]
    assert Cohort("all", rejected=False).positions(rows, target) == list(range(60))
    assert Cohort("all").positions(rows, OTHER) == list(range(60)), "everybody has another class to become"


def test_all_conditions_must_hold(rows: RowTable, explainer: cp.Explainer) -> None:
    conditions = (Condition("sex", categories=("Female",)), Condition("children", 2, 4))
    cohort = Cohort("mothers", conditions, rejected=False)
    found = rows.frame.iloc[cohort.positions(rows, OTHER)]
    expected = (rows.frame["sex"] == "Female") & rows.frame["children"].between(2, 4)
    assert len(found) == int(expected.sum()) > 0
    assert set(found["sex"]) == {"Female"}
    assert cohort.text(explainer.schema_) == "all people; sex: Female; children: 2 to 4"
    open_end = Condition("children", low=3)
    assert open_end.text(explainer.schema_["children"]) == "children: at least 3"
    assert open_end.holds(pd.Series([2.0, 3.0, None])) == [False, True, False]


def test_what_a_browser_remembers_is_read_strictly(explainer: cp.Explainer) -> None:
    cohort = Cohort("x", (Condition("sex", categories=("Male",)), Condition("children", high=4)), rejected=False)
    good = cohort.to_json()
    assert cohorts_from_json([good], explainer.schema_) == [cohort]
    bad = [
        3,
        good | {"name": ""},
        good | {"rejected": 1},
        good | {"conditions": [{"feature": "nothing", "low": None, "high": None, "categories": []}]},
        good | {"conditions": [{"feature": "sex", "low": None, "high": None, "categories": ["Else"]}]},
        good | {"conditions": [{"feature": "children", "low": "1", "high": None, "categories": []}]},
    ]
    assert cohorts_from_json(bad, explainer.schema_) == []
    assert cohorts_from_json({"no": "list"}, explainer.schema_) == []


def test_two_cohorts_side_by_side_have_the_difference_of_their_own_measures(
    explainer: cp.Explainer, people: pd.DataFrame
) -> None:
    rows = features(people)
    women, men = (rows[rows["sex"] == sex].head(30) for sex in ("Female", "Male"))
    sides = [Side(name, "", explainer.explain(part, method="nearest")) for name, part in (("W", women), ("M", men))]
    made, lines = compare(*sides)
    assert len(made.differences)
    cost = next(line for line in lines if line[0] == "cost")
    means = [side.result.measures()["l1"][side.result.valid].mean() for side in sides]
    shown = [float(cell.split(" ")[0]) for cell in cost[1:3]]
    assert shown == pytest.approx(means, rel=0.01)
    sign = 1 if means[0] > means[1] else -1
    assert cost[3].startswith("+" if sign > 0 else "−"), "the first minus the second, whoever is larger"
    other, swapped = compare(*reversed(sides))
    assert next(line for line in swapped if line[0] == "cost")[3][0] != cost[3][0]
    assert len(other.differences) == len(made.differences)
