"""What is said about many rows, without a browser."""

import pandas as pd

import counterpath as cp
from counterpath.explanation.intervals import group_intervals
from counterpath.explanation.summary import group_keys
from counterpath.explorer import group_view
from counterpath.explorer.figures import FEW
from tests.explanation.conftest import make, make_plans
from tests.tables import features


def test_concatenated_explanations_are_that_of_all_rows(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    rows = features(people).head(12)
    parts = [explainer.explain(rows.iloc[:5], paths="milestones"), explainer.explain(rows.iloc[5:], paths="milestones")]
    one, whole = group_view.concatenate(parts), explainer.explain(rows, paths="milestones")
    for name in ("factuals", "counterfactuals", "status", "outcome", "changed", "paths"):
        pd.testing.assert_frame_equal(getattr(one, name), getattr(whole, name), check_exact=True)
    pd.testing.assert_frame_equal(one.measures(), whole.measures(), check_exact=True)


def test_groups_are_those_of_the_summary(explainer: cp.Explainer, people: pd.DataFrame) -> None:
    result = explainer.explain(features(people).head(40), paths="milestones")
    for by in ("sex", "debt"):
        summary, keys = result.summary(by=by), group_keys(result, by)[0]
        assert [int((keys == label).sum()) for label in summary.index] == summary["n"].tolist()


def test_rows_are_selected_by_position_even_if_labels_are_not_unique() -> None:
    assert make()._take([2, 0]).factuals.index.tolist() == ["cem", "ann"]
    twins = make(labels=["ann", "ann", "cem", "dee", "eva"])
    assert twins._take([2]).factuals["age"].tolist() == [38]


def test_binding_constraints_and_reasons_are_counted_by_row() -> None:
    result = make_plans().plan(1)
    assert group_view.count_binding(result) == [("age is locked", 1), ("hours-per-week may only go up", 1)]
    reasons = dict(group_view.count_reasons(result))
    assert sum(reasons.values()) == 2, "dee was not found, and eva has an unknown category"
    assert any("Complicated" in reason for reason in reasons)


def test_small_groups_are_marked() -> None:
    summary = make().summary(by="sex")
    assert "Female and Male" in group_view.small_groups_warning(summary)
    assert group_view.small_groups_warning(summary.assign(n=FEW)) == ""
    intervals = group_intervals(make(), group_keys(make(), "sex")[0]).reindex(summary.index)
    head, rows = group_view.group_table(summary, intervals)
    assert [row[0] for row in rows] == ["Female (few)", "Male (few)"]
    assert all(len(row) == len(head) for row in rows)


def test_rows_are_described_in_words() -> None:
    (ann, eva) = group_view.row_table(make(), [0, 4])
    assert ann[:3] == ("ann", "found", "17 % → 52 %")
    assert "marital-status: Non-Married → Married" in ann[3]
    assert eva[1:] == ("unknown category", "–", "–")
    assert group_view.positions_by_status(make())["found"] == [0, 2]


def test_rows_are_grouped_at_first_by_an_immutable_feature() -> None:
    assert group_view.default_grouping(make().schema) == "sex"
