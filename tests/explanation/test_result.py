import numpy as np
import pandas as pd
import pytest

from counterpath.explanation import Explanation, StatusCode, path_columns
from counterpath.utils.errors import InputError
from tests.explanation.conftest import LABELS, LOCKED, lists, make


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
    assert [changes["change"].iloc[position] for position in (2, 3, 4, 5)] == ["", -4.0, "", 21.5]
    assert changes.index.name == "person"


def test_a_category_that_is_a_number_has_no_difference() -> None:
    schema = make().schema.replace("education-num", kind="binary", categories=(9.0, 11.4))
    changes = make(schema=schema).changes
    assert changes["change"].iloc[0] == ""
    assert "education-num were 11.4 instead of 9" in make(schema=schema).sentences.iloc[0]


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
        (make(keep="end"), "ann", "was not kept; .* paths='milestones'.*, or paths='all'"),
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
        "ann: found p 0.17 → 0.52 | education-num 9 → 11.4; hours-per-week 40 → 46.2345678; "
        "marital-status Non-Married → Married"
    )
    assert lines[3].startswith("eva: unknown_category | marital-status is 'Complicated'")
    assert lines[4] == "bob: already p 0.83 → 0.83 | no change"  # who needs nothing comes last


def test_of_many_rows_those_are_shown_for_whom_something_would_have_to_change(explanation: Explanation) -> None:
    lines = str(explanation.select([*["bob"] * 12, "ann"])).splitlines()
    assert [line.split(":")[0] for line in lines[1:4]] == ["ann", "bob", "bob"]
    assert lines[-1] == "… and 3 more"
    some = explanation.rejected()
    assert some.factuals.index.tolist() == ["ann", "cem", "dee", "eva"]
    pd.testing.assert_frame_equal(some.path("cem"), explanation.path("cem"))


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
        assert status.valid == (status in ("found", "crosses_gap", "implausible", "fragile", "already"))
    found = {"found", "crosses_gap", "implausible"}
    assert {status for status in StatusCode if status.found} == found
    assert {status for status in StatusCode if status.searched} == {*found, "fragile", "not_found", "out_of_time"}


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
        ("status", lambda frame: frame.assign(binding=None), "row 'ann' has the binding None; expected a list"),
        (
            "status",
            lambda frame: frame.assign(binding=lists(*[[LOCKED]] * 5, index=frame.index)),
            r"row 'ann' has the binding \[.'kind': 'lock', .*\], but a counterfactual",
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
