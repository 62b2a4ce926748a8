import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpath.data import Feature, Schema
from counterpath.explanation import Explanation
from counterpath.explanation.milestones import (
    choose_points,
    describe_changes,
    list_milestones,
    only_milestones,
    steps_between,
)
from counterpath.explanation.tables import KEEPS
from counterpath.explanation.wording import Step
from counterpath.utils.errors import InputError
from tests.explanation.conftest import LABELS, make, make_plans

JOBS, LEVELS = ("baker", "clerk", "nurse"), ("none", "school", "college")
SCHEMA = Schema(
    (
        Feature("hours", "integer"),
        Feature("pay", "continuous"),
        Feature("job", "categorical", categories=JOBS),
        Feature("education", "ordinal", categories=LEVELS),
    )
)
NUMBERS = ("hours", "pay")


def points(**columns: Any) -> pd.DataFrame:
    """A path on which all features stay but those that are given."""
    length = len(next(iter(columns.values())))
    stay = {"hours": 40, "pay": 10.0, "job": "baker", "education": "none"}
    return pd.DataFrame({name: columns.get(name, [value] * length) for name, value in stay.items()})


def as_path(features: pd.DataFrame) -> pd.DataFrame:
    count = len(features)
    rest = {name: np.linspace(0, 1, count) for name in ("probability", "uncertainty", "length", "map_x", "map_y")}
    return pd.concat([pd.DataFrame({"step": range(count)}), features, pd.DataFrame(rest)], axis=1)


def steps(features: pd.DataFrame) -> tuple[Step, ...]:
    """The steps of a path with these features."""
    return steps_between(list_milestones(as_path(features), SCHEMA, NUMBERS))


PATHS = st.integers(1, 12).flatmap(
    lambda count: st.fixed_dictionaries(
        {
            "hours": st.lists(st.integers(10, 60), min_size=count, max_size=count),
            "pay": st.lists(st.floats(-1e6, 1e6), min_size=count, max_size=count),
            "job": st.lists(st.sampled_from(JOBS), min_size=count, max_size=count),
            "education": st.lists(st.sampled_from(LEVELS), min_size=count, max_size=count),
        }
    ).map(lambda columns: points(**columns))
)


@given(PATHS, st.integers(2, 7))
def test_milestones_are_a_few_points_of_the_path_in_its_order_from_end_to_end(path: pd.DataFrame, most: int) -> None:
    positions = choose_points(path, SCHEMA, NUMBERS, most)
    assert positions[0] == 0
    assert positions[-1] == len(path) - 1
    assert all(before < after for before, after in pairwise(positions))
    assert len(positions) <= most
    table = list_milestones(as_path(path), SCHEMA, NUMBERS, most)
    pd.testing.assert_frame_equal(table.drop(columns="changes"), as_path(path).iloc[positions].reset_index(drop=True))


@given(PATHS)
def test_every_change_is_described_and_texts_join_up(path: pd.DataFrame) -> None:
    texts = describe_changes(path, SCHEMA, NUMBERS)
    assert texts[0] == ""
    now: dict[str, str] = {}
    for position, text in enumerate(texts[1:], start=1):
        changes = dict(entry.split(": ") for entry in text.split("; ")) if text else {}
        for name in ("hours", "job", "education"):
            assert (name in changes) == (path[name].iloc[position] != path[name].iloc[position - 1])
        for name, change in changes.items():
            old, new = change.split(" → ")
            assert old != new
            assert now.get(name, old) == old
            now[name] = new


@given(PATHS)
def test_where_more_milestones_are_allowed_there_are_never_fewer(path: pd.DataFrame) -> None:
    counts = [len(choose_points(path, SCHEMA, NUMBERS, most)) for most in range(2, 7)]
    assert counts == sorted(counts)


def test_features_that_change_one_after_the_other_are_separate_steps() -> None:
    path = points(hours=[40, 42, 44, 46, 46, 46, 46], pay=[10.0, 10.0, 10.0, 10.0, 10.0, 11.0, 12.0])
    assert choose_points(path, SCHEMA, NUMBERS) == [0, 3, 6]
    stops = path.assign(job=["baker"] * 4 + ["clerk"] * 3)
    assert [step.changes for step in steps(stops)] == [
        "hours: 40 → 46",
        "job: baker → clerk",
        "pay: 10 → 12",
    ]


def test_a_straight_line_is_one_step_and_so_is_a_single_feature_at_any_pace() -> None:
    assert choose_points(points(hours=[40, 41, 42, 43], pay=[10.0, 11.0, 12.0, 13.0]), SCHEMA, NUMBERS) == [0, 3]
    assert choose_points(points(pay=[1.0, 1.1, 5.0, 9.0]), SCHEMA, NUMBERS) == [0, 3]
    assert choose_points(points(education=["none", "school", "college"]), SCHEMA, NUMBERS) == [0, 2]
    assert steps(points(pay=[1.0, 5.0, 9.0])) == ()


def test_what_goes_back_and_forth_is_left_out() -> None:
    path = points(hours=[40, 20, 60, 45, 45, 45], job=["baker", "nurse", "clerk", "baker", "clerk", "clerk"])
    assert [step.changes for step in steps(path)] == [
        "hours: 40 → 45",
        "job: baker → clerk",
    ]


def test_a_feature_with_an_order_moves_by_its_places() -> None:
    path = points(pay=[10.0, 10.0, 12.0, 12.0], education=["none", "school", "school", "college"])
    assert choose_points(path, SCHEMA, NUMBERS) == [0, 1, 2, 3]
    assert choose_points(path.assign(pay=10.0), SCHEMA, NUMBERS) == [0, 3]


def test_no_stop_is_made_for_a_hair() -> None:
    path = points(hours=[40, 50, 50], pay=[10.0, 10.0 + 1e-7, 20.0])
    assert [step.changes for step in steps(path)] == ["hours: 40 → 50", "pay: 10 → 20"]


@pytest.mark.parametrize("dtype", ["Int64", "int8"])
def test_numbers_may_be_of_any_dtype(dtype: str) -> None:
    path = points(hours=pd.array([40, 50, 50], dtype=dtype), job=["baker", "baker", "clerk"])
    assert describe_changes(path, SCHEMA, NUMBERS) == ["", "hours: 40 → 50", "job: baker → clerk"]
    assert choose_points(path, SCHEMA, NUMBERS) == [0, 1, 2]


def test_an_explanation_has_the_milestones_of_a_row(explanation: Explanation) -> None:
    names = list(explanation.schema.names)
    stops = explanation.milestones("ann")
    path = explanation.path("ann")
    assert list(stops.columns) == [*path.columns, "changes"]
    assert stops["step"].tolist() == [0, 2, 3, 5]
    assert stops[names].iloc[0].tolist() == explanation.factuals.loc["ann"].tolist()
    assert stops[names].iloc[-1].tolist() == explanation.counterfactuals.loc["ann"].tolist()
    assert stops["changes"].tolist() == [
        "",
        "education-num: 9 → 9.96; hours-per-week: 40 → 42.49382712",
        "education-num: 9.96 → 10.44; hours-per-week: 42.49382712 → 43.74074068; marital-status: Non-Married → Married",
        "education-num: 10.44 → 11.4; hours-per-week: 43.74074068 → 46.2345678",
    ]
    assert explanation.milestones("ann", most=2)["step"].tolist() == [0, 5]
    assert explanation.milestones("ann", most=3)["step"].tolist() in ([0, 2, 5], [0, 3, 5])


def test_a_path_of_one_point_has_one_milestone(explanation: Explanation) -> None:
    (row,) = explanation.milestones("bob").to_dict("records")
    assert row["changes"] == ""
    assert row["age"] == 50


def test_milestones_do_not_depend_on_other_rows(explanation: Explanation) -> None:
    for label in ("ann", "cem", "dee"):
        alone = explanation.select(label).milestones(label)
        pd.testing.assert_frame_equal(alone, explanation.milestones(label))


def test_milestones_are_those_of_a_plan(plans: Explanation) -> None:
    assert plans.milestones("ann", plan=2).equals(plans.milestones(("ann", 2)))
    assert plans.milestones("ann", plan=2)["hours-per-week"].iloc[-1] == pytest.approx(48.2345678)


def test_a_feature_that_is_called_changes_stands_beside_them() -> None:
    schema = Schema((Feature("changes", "integer"),))
    table = list_milestones(as_path(pd.DataFrame({"changes": [1, 2]})), schema, ("changes",))
    assert table["feature_changes"].tolist() == [1, 2]
    assert table["changes"].tolist() == ["", "changes: 1 → 2"]


@pytest.mark.parametrize("most", [1, 0, -3, True])
def test_fewer_milestones_than_both_ends_are_refused(explanation: Explanation, most: Any) -> None:
    with pytest.raises(InputError, match=r"most is .*; expected a whole number from 2"):
        explanation.milestones("ann", most=most)


@pytest.mark.parametrize(
    ("made", "row", "message"),
    [
        (make(), "zoe", "no row 'zoe'; its rows are: 'ann', 'bob'"),
        (make(), "eva", "row 'eva' has no path: marital-status is 'Complicated'"),
        (make(keep="end"), "ann", "was not kept; .* paths='milestones'"),
    ],
)
def test_milestones_that_are_not_there_are_an_error_as_of_path(made: Explanation, row: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        made.milestones(row)


FICKLE = points(hours=[4, 4, 0, 0, 0], pay=[2.0, 0.0, 0.0, 4.0, 1.0])
"""A path of whose milestones others are chosen, if they are taken for the whole path."""


def several(*paths: pd.DataFrame) -> pd.DataFrame:
    """Paths one after another, as an explanation has them."""
    return pd.concat([as_path(path).assign(row=row) for row, path in enumerate(paths)], ignore_index=True)


def test_the_milestones_of_many_paths_are_those_of_each() -> None:
    random = np.random.default_rng(0)
    paths = []
    for count in (1, 2, 9, 30):
        columns = {name: random.integers(0, 3, count) for name in ("hours", "pay", "job", "education")}
        names = {
            name: [SCHEMA[name].categories[position] for position in columns[name]] for name in ("job", "education")
        }
        paths.append(points(**columns | names))
    whole = several(*paths)
    kept = only_milestones(whole, SCHEMA, NUMBERS)
    for row, path in enumerate(paths):
        assert kept.loc[kept["row"] == row, "step"].tolist() == choose_points(path, SCHEMA, NUMBERS)
    assert kept.index.tolist() == list(range(len(kept)))
    assert (kept.dtypes == whole.dtypes).all()
    pd.testing.assert_frame_equal(kept, whole.merge(kept[["row", "step"]])[list(kept)])


def test_no_paths_have_no_milestones() -> None:
    assert len(only_milestones(several(FICKLE).iloc[:0], SCHEMA, NUMBERS)) == 0


def test_milestones_that_were_kept_are_not_chosen_again() -> None:
    positions = choose_points(FICKLE, SCHEMA, NUMBERS)
    kept = FICKLE.iloc[positions]
    assert choose_points(kept, SCHEMA, NUMBERS) != list(range(len(positions)))
    assert choose_points(kept, SCHEMA, NUMBERS, chosen=True) == list(range(len(positions)))
    assert choose_points(kept, SCHEMA, NUMBERS, 2, chosen=True) == [0, len(positions) - 1]


@pytest.mark.parametrize("made", [make, make_plans])
def test_an_explanation_says_the_same_by_its_milestones(made: Any, tmp_path: Path) -> None:
    whole, kept = made(), made(keep="milestones")
    assert (whole.kept_paths, kept.kept_paths) == ("all", "milestones")
    assert len(kept.paths) < len(whole.paths)
    for label in LABELS[:4]:
        stops = whole.milestones(label)
        pd.testing.assert_frame_equal(kept.milestones(label), stops)
        pd.testing.assert_frame_equal(kept.path(label), stops.drop(columns="changes"))
    assert kept.to_text(steps=True) == whole.to_text(steps=True)
    assert kept.sentences.equals(whole.sentences)
    pd.testing.assert_frame_equal(kept.summary(), whole.summary())
    again = Explanation.from_json(kept.to_json())
    assert again.kept_paths == "milestones"
    pd.testing.assert_frame_equal(again.milestones("ann"), whole.milestones("ann"))
    cards = [result.to_html(tmp_path / "page.html").read_text(encoding="utf-8") for result in (whole, kept)]
    texts = [re.sub("<svg.*?</svg>", "", card[card.index("<article") :], flags=re.DOTALL) for card in cards]
    assert texts[0] == texts[1]


def test_selected_rows_and_plans_know_what_was_kept() -> None:
    kept = make_plans(keep="milestones")
    assert kept.select("ann").kept_paths == kept.plan(2).kept_paths == "milestones"
    pd.testing.assert_frame_equal(kept.plan(2).milestones("ann"), make_plans().milestones("ann", plan=2))


def test_the_figures_of_milestones_stand_at_their_true_steps() -> None:
    whole, kept = make(), make(keep="milestones")
    stops = kept.path("ann")
    line = kept.plot_path("ann").axes[0].lines[0]
    assert line.get_xdata().tolist() == stops["step"].tolist()
    assert line.get_ydata().tolist() == stops["probability"].tolist()
    numbers = [[text.get_text() for text in made.plot_path("ann").axes[0].texts] for made in (whole, kept)]
    assert numbers[0] == numbers[1]
    assert len(kept.plot_map().axes) == len(whole.plot_map().axes)


@pytest.mark.parametrize("keep", ["some", "mileston", True, None])
def test_what_cannot_be_kept_is_refused_with_what_can(keep: Any) -> None:
    with pytest.raises(InputError, match=f"unknown way to keep paths '{keep}'.*: {', '.join(KEEPS)}"):
        make(request=make().request | {"paths": keep})
    with pytest.raises(InputError, match="unknown way to keep paths"):
        Explanation.from_json(make(keep="end").to_json().replace('"paths": "end"', f'"paths": "{keep}"'))
