import numpy as np
import pandas as pd
import pytest

from counterpath.data import Feature, Schema
from counterpath.explanation import Explanation, StatusCode
from counterpath.explanation.summary import COMMON, OWN, both_tables, comparison_table, tally
from counterpath.utils.errors import InputError
from tests.explanation.conftest import LABELS, STATUSES, across, make, make_plans
from tests.explanation.markup import svg


def test_features_are_listed_by_how_often_they_change_in_which_direction_and_by_how_much() -> None:
    old = pd.DataFrame({"job": ["a", "a", "b", "b"], "pay": [1.0, 2.0, 3.0, 4.0], "age": [1, 2, 3, 4]})
    new = pd.DataFrame({"job": ["b", "b", "c", "b"], "pay": [3.0, 4.0, 3.0, 2.0], "age": [1, 2, 3, 4]})
    features = Feature("job", "categorical", categories=("a", "b", "c")), Feature("pay", "continuous")
    schema = Schema((*features, Feature("age", "integer")))
    job, pay = tally(old, new, old.ne(new), frozenset({"pay", "age"}), schema)
    assert (pay.share, pay.up, pay.down) == (0.75, 0.5, 0.25)
    assert pay.typical == "+2 (half of them 0 to +2)"
    assert (job.share, job.up, job.down, job.typical) == (0.75, 0.0, 0.0, "a → b (2 of 3)")
    known = schema.replace("pay", label="wage", unit="euros").replace("job", category_labels={"a": "clerk"})
    job, pay = tally(old, new, old.ne(new), frozenset({"pay", "age"}), known)
    assert (job.feature, job.typical) == ("job", "clerk → b (2 of 3)")
    assert (pay.feature, pay.typical) == ("wage", "+2 euros (half of them 0 to +2)")


def test_no_rows_have_no_tally() -> None:
    nothing = pd.DataFrame({"pay": pd.Series(dtype=float)})
    assert (
        tally(nothing, nothing, nothing.astype(bool), frozenset({"pay"}), Schema((Feature("pay", "continuous"),))) == ()
    )


def test_a_summary_says_who_gets_a_counterfactual_and_at_what_cost(explanation: Explanation) -> None:
    (row,) = explanation.summary().to_dict("records")
    assert row["n"] == 5
    assert row["explained"] == 3
    assert row["found"] == pytest.approx(2 / 3)
    assert row["gaps"] == 0
    assert [row[name] for name in ("l0", "l1", "l2_sq", "violation", "steps")] == [2.5, 1.0, 0.75, 0.0, 5.0]
    assert row["changes most"] == "hours-per-week 100 %, education-num 50 %, marital-status 50 %"


def test_a_summary_by_group_has_a_row_each(explanation: Explanation) -> None:
    by_sex = explanation.summary(by="sex")
    assert by_sex.index.tolist() == ["Female", "Male"]
    assert by_sex["n"].tolist() == [3, 2]
    assert by_sex["found"].tolist() == [0.0, 1.0]
    assert by_sex["l1"].isna().tolist() == [True, False]
    assert by_sex["changes most"].iloc[0] == ""
    both = explanation.summary(by=["sex", "owner"])
    assert both.index.tolist() == [("Female", False), ("Female", True), ("Male", False)]
    assert both["n"].tolist() == [1, 2, 2]
    own = explanation.summary(by=pd.Series(["b", "a", "b", "a", "a"]))
    assert own["n"].to_dict() == {"a": 3, "b": 2}
    assert own["explained"].to_dict() == {"a": 1, "b": 2}


def test_a_counterfactual_across_a_gap_is_found_and_counted_apart() -> None:
    made = across("cem")
    assert made.valid.tolist() == [True, True, True, False, False]
    (row,) = made.summary().to_dict("records")
    (same,) = make().summary().to_dict("records")
    assert row == same | {"gaps": pytest.approx(1 / 3)}
    assert made.summary(by="sex")["gaps"].tolist() == [0.0, 0.5]
    assert str(made).startswith("Explanation of 5 rows: 2 found (1 of them across a gap in the data), 1 already, 1 not")
    assert "cem: crosses_gap p 0.30 → 0.61 | hours-per-week" in str(made)
    assert svg(made.plot_changes()) == svg(make().plot_changes())
    again = Explanation.from_json(made.to_json())
    assert again.status.equals(made.status)


def test_people_are_across_a_gap_if_all_their_plans_are(plans: Explanation) -> None:
    status = plans.status.copy()
    status.loc[[("ann", 2), ("cem", 1), ("cem", 2)], "status"] = str(StatusCode.CROSSES_GAP)
    (row,) = make_plans(status=status).summary().to_dict("records")
    assert [row["found"], row["gaps"], row["plans"]] == pytest.approx([2 / 3, 1 / 3, 5 / 3])


def test_a_number_with_many_values_is_cut_at_its_quartiles(explanation: Explanation) -> None:
    many = explanation.select(LABELS * 4)
    groups = many.summary(by=pd.Series(range(20), name="score"))
    assert groups.index.tolist() == ["0 to 4.75", "over 4.75 to 9.5", "over 9.5 to 14.25", "over 14.25 to 19"]
    assert groups["n"].tolist() == [5, 5, 5, 5]
    assert many.summary(by=pd.Series([0] * 11 + list(range(9))))["n"].sum() == 20


def test_a_summary_counts_people_once_however_many_plans_they_have(plans: Explanation) -> None:
    (row,) = plans.summary().to_dict("records")
    assert [row[name] for name in ("n", "explained", "found")] == [5, 3, pytest.approx(2 / 3)]
    assert row["plans"] == pytest.approx(5 / 3)
    assert row["l0"] == pytest.approx((3 * 3 + 2 * 2) / 5)
    assert row["changes most"] == "hours-per-week 100 %, education-num 60 %, marital-status 60 %"
    by_sex = plans.summary(by="sex")
    assert by_sex[["n", "explained", "found", "plans"]].to_numpy().tolist() == [[3, 1, 0, 0], [2, 2, 1, 2.5]]
    assert plans.summary(by=["sex", "owner"])["n"].tolist() == [1, 2, 2]


def test_a_summary_of_plans_takes_a_value_a_row_or_a_person_or_the_number_of_the_plan(plans: Explanation) -> None:
    a_person = plans.summary(by=pd.Series(["b", "a", "b", "a", "a"]))
    a_row = plans.summary(by=pd.Series(np.repeat(["b", "a", "b", "a", "a"], 3)))
    pd.testing.assert_frame_equal(a_person, a_row)
    assert a_person["n"].to_dict() == {"a": 3, "b": 2}
    by_plan = plans.summary(by="plan")
    assert by_plan.index.tolist() == [1, 2, 3]
    assert by_plan["n"].tolist() == [5, 5, 5]
    assert by_plan["explained"].tolist() == [3, 2, 1]
    assert by_plan.loc[1, "found"] == pytest.approx(2 / 3)
    with pytest.raises(InputError, match="unknown column 'plan'"):
        make().summary(by="plan")
    with pytest.raises(InputError, match="4 values for 15 rows of 5 people"):
        plans.summary(by=pd.Series([1, 2, 3, 4]))


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("sexx", "unknown column 'sexx' .did you mean 'sex'"),
        (pd.Series([1, 2]), "2 values for 5 rows"),
        ([], "by is an empty list"),
    ],
)
def test_a_grouping_that_is_not_there_is_refused(explanation: Explanation, by: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        explanation.summary(by=by)


def test_without_paths_and_measures_a_summary_still_counts() -> None:
    made = make(keep="end", compute_measures=pd.DataFrame(index=range(5)))
    assert made.summary()["n"].tolist() == [5]
    assert made.summary()[["l1", "steps"]].isna().all(axis=None)
    assert [StatusCode(status) for status in made.status["status"]] == STATUSES


def test_methods_are_compared_over_their_own_and_over_common_rows() -> None:
    status = make().status.assign(
        status=["found", "already", "not_found", "crosses_gap", "unknown_category"],
        fallback=[True, False, False, False, False],
    )
    other = make(status=status, provenance={"seconds": 2.5})
    tables = both_tables({"rsgd": make(), "own": other})
    own, common = tables[OWN], tables[COMMON]
    assert own["n"].tolist() == [2, 2]
    assert own.loc["own", ["flip ratio", "local", "gaps"]].tolist() == pytest.approx([2 / 3, 1 / 3, 1 / 3])
    assert own["l0"].tolist() == [2.5, 2.0]
    assert own["seconds"].tolist() == pytest.approx([np.nan, 2.5], nan_ok=True)
    assert common["n"].tolist() == [1, 1]
    assert common["l0"].tolist() == [3.0, 3.0]
    assert "flip ratio" not in common
    assert list(both_tables({"rsgd": make()})) == [OWN]
    none = make(status=status.assign(status="not_found"))
    assert list(both_tables({"rsgd": make(), "none": none})) == [OWN]
    assert both_tables({"rsgd": make(), "own": other, "none": none})[COMMON].equals(common)  # it is in nobody's way
    over = comparison_table({"rsgd": make(), "own": other, "none": none}, common=True)["n"]
    assert over.tolist() == [1, 1, 0]
    assert comparison_table({"a": make()}, seconds={"a": 7.0})["seconds"].tolist() == [7.0]


def test_methods_on_other_rows_are_not_compared() -> None:
    with pytest.raises(InputError, match="'b' and 'a' are not of the same rows: 'b' has 1 rows, and 'a' 5"):
        comparison_table({"a": make(), "b": make().select(["ann"])})


def test_nothing_that_was_searched_has_no_share() -> None:
    already = make().select(["bob"])
    assert comparison_table({"a": already})[["flip ratio", "local", "gaps"]].isna().all(axis=None)
