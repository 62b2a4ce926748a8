import numpy as np
import pandas as pd
import pytest

from counterpath.explanation import Explanation, StatusCode, path_columns
from counterpath.explanation.plots.style import svg
from counterpath.utils.errors import InputError
from tests.explanation.conftest import LABELS, STATUSES, across, make, make_plans


def test_changes_lists_what_changed_in_original_units(explanation: Explanation) -> None:
    changes = explanation.changes
    assert list(changes.columns) == ["feature", "from", "to", "change"]
    assert list(zip(changes.index, changes["feature"], strict=True)) == [
        ("ann", "education-num"),
        ("ann", "hours-per-week"),
        ("ann", "marital-status"),
        ("cem", "hours-per-week"),
        ("cem", "owner"),
        ("dee", "hours-per-week"),
    ]
    assert changes["from"].tolist() == [9.0, 40.0, "Non-Married", 40.0, False, 38.5]
    assert changes["to"].tolist() == [11.4, 46.2345678, "Married", 36.0, True, 60.0]
    assert [changes["change"].iloc[place] for place in (2, 3, 4, 5)] == ["", -4.0, "", 21.5]
    assert changes.index.name == "person"


def test_a_category_that_is_a_number_has_no_difference() -> None:
    schema = make().schema.replace("education-num", kind="binary", categories=(9.0, 11.4))
    changes = make(schema=schema).changes
    assert changes["change"].iloc[0] == ""
    assert "education-num changed from 9 to 11.4" in make(schema=schema).sentences.iloc[0]


def test_found_and_already_are_valid(explanation: Explanation) -> None:
    assert explanation.valid.tolist() == [True, True, True, False, False]
    assert explanation.valid.index.tolist() == LABELS


def test_a_path_begins_with_the_factual_and_ends_with_the_counterfactual(explanation: Explanation) -> None:
    path = explanation.path("cem")
    names = list(explanation.schema.names)
    assert list(path.columns) == [name for name in path_columns(names) if name != "row"]
    assert path["step"].tolist() == list(range(6))
    assert path[names].iloc[0].tolist() == explanation.factuals.loc["cem"].tolist()
    assert path[names].iloc[-1].tolist() == explanation.counterfactuals.loc["cem"].tolist()


@pytest.mark.parametrize(
    ("made", "row", "message"),
    [
        (make(), "zoe", "no row 'zoe'; its rows are: 'ann', 'bob'"),
        (make(), ["ann"], r"no row \['ann'\]"),
        (make(), "eva", "row 'eva' has no path: marital-status is 'Complicated'"),
        (make(keep="end"), "ann", "was not kept; .* keep='milestones'.*, or keep='all'"),
        (make(labels=[7, 7, 8, 9, 10]), 9, "no row at 9; its labels are not unique, so give a position from 0 to 4"),
        (make(labels=[7, 7, 8, 9, 10]), True, "no row at True"),
    ],
)
def test_a_path_that_is_not_there_is_an_error_that_says_why(made: Explanation, row: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        made.path(row)


def test_rows_with_equal_labels_are_found_by_position() -> None:
    made = make(labels=[7, 7, 8, 9, 10])
    assert made.path(2)["hours-per-week"].iloc[-1] == 36.0
    assert made.select([2, 0]).counterfactuals["hours-per-week"].tolist() == [36.0, 46.2345678]
    assert made.changes.index.tolist() == [7, 7, 7, 8, 8, 9]


def test_integer_labels_come_before_positions() -> None:
    assert make(labels=[4, 3, 2, 1, 0]).path(4)["education-num"].iloc[-1] == 11.4


def test_measures_are_computed_once_and_carry_the_index() -> None:
    calls = []
    frame = make().measures().reset_index(drop=True)
    made = make(compute_measures=lambda: calls.append(1) or frame)
    first = made.measures()
    first["l1"] = 0.0
    assert made.measures()["l1"].iloc[0] == 1.2
    assert made.measures().index.tolist() == LABELS
    assert len(calls) == 1


def test_measures_of_another_length_are_refused() -> None:
    with pytest.raises(InputError, match="gave 4 rows for 5 rows"):
        make(compute_measures=make().measures().iloc[:4]).measures()


def test_a_selection_is_an_explanation_of_its_rows(explanation: Explanation) -> None:
    some = explanation.select(["dee", "ann"])
    assert some.factuals.index.tolist() == ["dee", "ann"]
    assert some.path("ann").equals(explanation.path("ann"))
    assert some.path("dee").equals(explanation.path("dee"))
    assert some.measures().equals(explanation.measures().loc[["dee", "ann"]])
    assert some.sentences.tolist() == explanation.sentences[["dee", "ann"]].tolist()
    assert some.select("ann").factuals.index.tolist() == ["ann"]
    assert len(some.select([])) == 0


def test_the_terminal_view_says_it_all_in_a_few_lines(explanation: Explanation) -> None:
    header, *lines = str(explanation).splitlines()
    assert header == (
        "Explanation of 5 rows: 2 found, 1 already, 1 not found, 1 unknown category "
        "(method rsgd-c, wanted 1, confidence 0.5)"
    )
    assert lines[0] == (
        "ann: found p 0.17 → 0.52 | education-num 9 → 11.4; hours-per-week 40 → 46.23; "
        "marital-status Non-Married → Married"
    )
    assert lines[1] == "bob: already p 0.83 → 0.83 | no change"
    assert lines[4].startswith("eva: unknown_category | marital-status is 'Complicated'")


def test_the_terminal_view_stops_after_ten_rows(explanation: Explanation) -> None:
    lines = str(explanation.select(["ann"] * 12)).splitlines()
    assert len(lines) == 12
    assert lines[-1] == "… and 2 more"


def test_nothing_to_explain_works_everywhere(empty: Explanation) -> None:
    assert len(empty) == 0
    assert str(empty) == "Explanation of 0 rows: 0 found (method rsgd-c, wanted 1, confidence 0.5)"
    assert len(empty.changes) == len(empty.sentences) == len(empty.valid) == len(empty.measures()) == 0
    assert empty.counterfactuals.dtypes.equals(make().counterfactuals.dtypes)
    assert empty.summary()["n"].tolist() == [0]
    assert empty.summary(by="sex").shape == (0, 12)
    assert len(empty.select([])) == 0
    with pytest.raises(InputError, match="none, for it is empty"):
        empty.path("ann")


def test_every_status_has_a_sentence() -> None:
    for status in StatusCode:
        assert status.text.endswith(".")
        assert status.valid == (status in ("found", "crosses_gap", "already"))
    assert {status for status in StatusCode if status.found} == {"found", "crosses_gap"}
    assert {status for status in StatusCode if status.searched} == {"found", "crosses_gap", "not_found", "out_of_time"}


@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        ("counterfactuals", lambda frame: frame.iloc[::-1], "counterfactuals and factuals have different indexes"),
        ("counterfactuals", lambda frame: frame.iloc[:, ::-1], "different columns"),
        (
            "status",
            lambda frame: frame.assign(status="lost"),
            "row 'ann' has the status 'lost'; expected one of: found",
        ),
        ("status", lambda frame: frame.drop(columns="imputed"), "status lacks the column 'imputed'"),
        ("status", lambda frame: frame.drop(columns="binding"), "status lacks the column 'binding'"),
        ("status", lambda frame: frame.assign(binding=None), "row 'ann' has the binding None; expected text"),
        (
            "status",
            lambda frame: frame.assign(binding="lock: age"),
            "row 'ann' has the binding 'lock: age', but a counterfactual",
        ),
        ("outcome", lambda frame: frame.drop(columns="class_after"), "outcome lacks the column 'class_after'"),
        ("changed", lambda frame: frame.drop(columns="age"), "changed lacks the column 'age'"),
        ("paths", lambda frame: frame.drop(columns="map_x"), "paths lacks the column 'map_x'"),
        ("paths", lambda frame: frame.assign(row=5), "paths has row 5 for 5 explained rows"),
        ("landscape", lambda frame: frame[["map_x"]], "landscape lacks the column 'map_y'"),
        ("request", lambda _: {"method": "sgd", "confidence": 0.5}, "the request lacks 'target_class'"),
        ("request", lambda request: request | {"x": np.zeros(2)}, "no form in JSON: ndarray"),
        ("request", lambda request: request | {"confidence": float("nan")}, "no form in JSON"),
    ],
)
def test_tables_that_do_not_fit_together_are_refused(field, change, message) -> None:
    with pytest.raises(InputError, match=message):
        make(**{field: change(getattr(make(), field))})


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
    assert [Status(status) for status in made.status["status"]] == STATUSES
