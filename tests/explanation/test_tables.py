from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpath.explanation import Explanation, StatusCode, plan_index
from counterpath.explanation.tables import (
    labels_without_plan,
    moving_features,
    person_numbers,
    plan_numbers,
    positions,
)
from counterpath.utils.errors import InputError
from tests.explanation.conftest import LABELS, make, make_plans

PAIRS = pd.MultiIndex.from_tuples([("x", 1), ("y", 1), ("x", 2), ("y", 2), ("z", 1)], names=["branch", None])


def hours(explanation: Explanation) -> list[float]:
    return explanation.counterfactuals["hours-per-week"].tolist()


def test_a_label_is_all_plans_of_a_person_and_a_pair_is_one(plans: Explanation) -> None:
    assert plans.select("ann").factuals.index.tolist() == [("ann", 1), ("ann", 2), ("ann", 3)]
    assert hours(plans.select(("ann", 2))) == [48.2345678]
    assert plans.select(["cem", ("ann", 3)]).factuals.index.tolist() == [("cem", 1), ("cem", 2), ("cem", 3), ("ann", 3)]
    assert plans.select((("ann", 2), ("cem", 1))).factuals.index.tolist() == [("ann", 2), ("cem", 1)]
    assert hours(plans.select(plans.factuals.index[:2])) == [46.2345678, 48.2345678]
    assert len(plans.select(())) == 0


def test_a_path_is_that_of_the_first_plan_or_of_the_one_that_is_named(plans: Explanation) -> None:
    ends = {1: 46.2345678, 2: 48.2345678, 3: 50.2345678}
    for plan, end in ends.items():
        for path in (plans.path("ann", plan), plans.path("ann", plan=plan), plans.path(("ann", plan))):
            assert path["hours-per-week"].iloc[-1] == pytest.approx(end)
    assert plans.path("ann").equals(plans.path("ann", 1))
    only = plans.select(("ann", 2))
    assert only.path("ann").equals(plans.path("ann", 2))
    assert len(plans.path("cem", 3)) == 1


def test_a_selection_of_plans_keeps_their_paths_and_measures(plans: Explanation) -> None:
    some = plans.select([("cem", 2), "ann"])
    assert some.path("cem").equals(plans.path("cem", 2))
    assert some.path("ann", 3).equals(plans.path("ann", 3))
    assert some.measures().equals(plans.measures().loc[[("cem", 2), ("ann", 1), ("ann", 2), ("ann", 3)]])
    assert some.plan(2).factuals.index.tolist() == ["cem", "ann"]


def test_whole_numbers_as_labels_are_people_in_a_list_and_a_plan_in_a_pair() -> None:
    made = make_plans(labels=[4, 3, 2, 1, 0])
    assert made.select([4, 2]).factuals.index.tolist() == [(4, 1), (4, 2), (4, 3), (2, 1), (2, 2), (2, 3)]
    assert made.select((4, 2)).factuals.index.tolist() == [(4, 2)]
    assert made.path(np.int64(4), plan=2).equals(made.path((4, 2)))


def test_labels_of_several_parts_are_flat_or_a_pair_with_the_plan() -> None:
    made = make_plans(labels=PAIRS)
    assert made.factuals.index.names == ["branch", None, "plan"]
    assert hours(made.select(("x", 1))) == [46.2345678, 48.2345678, 50.2345678]
    for row in (("x", 1, 2), (("x", 1), 2)):
        assert hours(made.select(row)) == hours(made.select([row])) == [48.2345678]
        assert made.path(row).equals(made.path(("x", 1), plan=2))
    assert len(made.select([("x", 1), ("x", 2, 1)])) == 4
    assert made.plan(2).factuals.index.equals(PAIRS)
    assert made.sentences.iloc[0].startswith("Plan 1 of 3: ")
    for row in ("x", ("x", 5), ("x", 1, 2, 3)):
        with pytest.raises(InputError, match=r"no row .*; its rows are: \('x', 1\)"):
            made.path(row)


def test_labels_of_several_parts_need_no_plans() -> None:
    one = make()
    tables = ("factuals", "counterfactuals", "status", "outcome", "changed")
    made = make(**{name: getattr(one, name).set_axis(PAIRS) for name in tables})
    assert hours(made.select(("x", 2))) == [36.0]
    assert hours(made.select([("x", 2), ("x", 1)])) == hours(made.select((("x", 2), ("x", 1)))) == [36.0, 46.2345678]
    assert made.path(("x", 1)).equals(one.path("ann"))
    with pytest.raises(InputError, match="no row 'x'"):
        made.select("x")


def test_where_labels_are_not_unique_rows_are_found_by_position_among_all_plans() -> None:
    made = make_plans(labels=[7, 7, 8, 9, 10])
    assert hours(made.select([1, 6])) == [48.2345678, 36.0]
    assert made.path(1)["hours-per-week"].iloc[-1] == pytest.approx(48.2345678)
    assert made.plan(2).factuals.index.tolist() == [7, 7, 8, 9, 10]
    assert made.plan(2).path(0).equals(made.path(1))
    assert made.select(3).plan(1).sentences.tolist() == made.sentences.iloc[[3]].tolist()
    for row in (15, (7, 1), "ann"):
        with pytest.raises(InputError, match="its labels are not unique, so give a position from 0 to 14"):
            made.path(row)
    with pytest.raises(InputError, match="labels are not unique, so give the position of plan 2 among all rows"):
        made.path(0, plan=2)


@pytest.mark.parametrize(
    ("row", "plan", "message"),
    [
        ("zoe", None, "no row 'zoe'; its rows are: 'ann', 'bob', 'cem', 'dee', 'eva'$"),
        ("zoe", 2, r"no row \('zoe', 2\)"),
        (["ann"], None, r"no row \['ann'\]"),
        ("ann", 4, "the explanation has no plan 4; its plans are: 1, 2, 3"),
        (("ann", 4), None, "row 'ann' has no plan 4; its plans are: 1, 2, 3"),
        (("ann", "bob"), None, "row 'ann' has no plan 'bob'"),
        (("ann", True), None, "row 'ann' has no plan True"),
        (("ann", 2), 2, r"no row \(\('ann', 2\), 2\)"),
        ("eva", None, "row 'eva' has no path: marital-status is 'Complicated'"),
    ],
)
def test_a_plan_that_is_not_there_is_an_error_that_says_why(
    plans: Explanation, row: Any, plan: int | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        plans.path(row, plan)


def test_a_plan_that_was_left_out_is_an_error_too(plans: Explanation) -> None:
    with pytest.raises(InputError, match="row 'ann' has no plan 1; its plans are: 2"):
        plans.select(("ann", 2)).path("ann", plan=1)


def test_a_missing_plan_without_a_path_says_that_there_is_no_other_plan(plans: Explanation) -> None:
    bare = make_plans(paths=plans.paths[~plans.paths["row"].isin([8])])
    with pytest.raises(InputError, match="row 'cem', plan 3, has no path: No further plan"):
        bare.path("cem", plan=3)
    with pytest.raises(InputError, match="path of row 'ann', plan 2, was not kept"):
        make_plans(keep="end").path("ann", plan=2)


@settings(deadline=None)
@given(st.lists(st.text(max_size=2), min_size=1, max_size=6, unique=True), st.integers(2, 4), st.data())
def test_every_row_is_found_under_its_label(names: list[str], plans: int, data: st.DataObject) -> None:
    index = plan_index(pd.Index(names), plans)[:: data.draw(st.sampled_from([1, -1]))]
    assert positions(index, index, plans) == list(range(len(index)))
    name = data.draw(st.sampled_from(names))
    assert [index[at][0] for at in positions(index, name, plans)] == [name] * plans


def test_many_labels_are_looked_up_at_once() -> None:
    index = plan_index(pd.RangeIndex(20_000), 3)
    assert positions(index, range(19_999, -1, -1), 3)[:4] == [59_997, 59_998, 59_999, 59_994]


NAMES = st.sampled_from([None, "id", "plan", 7])
LEVELS = st.one_of(
    st.lists(st.integers(-9, 9), min_size=3, max_size=3),
    st.lists(st.text(max_size=3), min_size=3, max_size=3),
    st.lists(st.floats(allow_nan=True), min_size=3, max_size=3),
    st.lists(st.booleans(), min_size=3, max_size=3),
    st.lists(st.sampled_from("ab"), min_size=3, max_size=3).map(lambda values: pd.Categorical(values, ["b", "c", "a"])),
)


@st.composite
def indexes(draw: Any) -> pd.Index:
    """An index of three labels, some of them equal, with one level or two, named or not."""
    levels = draw(st.lists(LEVELS, min_size=1, max_size=2))
    names = [draw(NAMES) for _ in levels]
    index = pd.Index(levels[0], name=names[0]) if len(levels) == 1 else pd.MultiIndex.from_arrays(levels, names=names)
    return index[: draw(st.integers(0, 3))]


@settings(deadline=None)
@given(indexes(), st.integers(2, 4))
def test_an_index_with_plans_has_the_peoples_own_labels(index: pd.Index, plans: int) -> None:
    longer = plan_index(index, plans)
    assert list(longer.names) == [*index.names, "plan"]
    assert len(longer) == plans * len(index)
    for number in range(1, plans + 1):
        own = labels_without_plan(longer[plan_numbers(longer, plans) == number], plans)
        pd.testing.assert_index_equal(own, index, exact="equiv")
    assert plan_index(index, 1) is index


@settings(deadline=None)
@given(indexes(), st.integers(2, 4))
def test_everybody_is_counted_once_even_if_labels_are_equal(index: pd.Index, plans: int) -> None:
    numbers = person_numbers(plan_index(index, plans), plans)
    assert numbers.tolist() == np.repeat(np.arange(len(index)), plans).tolist()
    assert person_numbers(index, 1).tolist() == list(range(len(index)))


def test_a_person_whose_plans_are_apart_is_still_one() -> None:
    index = pd.MultiIndex.from_tuples([("ann", 1), ("bob", 1), ("ann", 2)], names=[None, "plan"])
    assert person_numbers(index, 2).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("request_", "labels", "message"),
    [
        ({"plans": 0}, None, "plans=0; expected a whole number from 1"),
        ({"plans": True}, None, "plans=True; expected a whole number"),
        ({"plans": 2.5}, None, "plans=2.5; expected a whole number"),
        ({"plans": 3}, pd.Index(LABELS), "no last level 'plan' of whole numbers; .* plan_index.index, 3."),
        ({"plans": 3}, pd.MultiIndex.from_product([LABELS, [1]], names=[None, "way"]), "no last level 'plan'"),
        ({"plans": 3}, pd.MultiIndex.from_product([LABELS, [1.0]], names=[None, "plan"]), "of whole numbers"),
        ({"plans": 3}, pd.MultiIndex.from_product([LABELS, [4]], names=[None, "plan"]), "has plan 4 of 3"),
        ({"plans": 3}, pd.MultiIndex.from_product([LABELS, [0]], names=[None, "plan"]), "has plan 0 of 3"),
        ({"plans": 3, "plan": 4}, None, "plan=4 of 3; expected a whole number from 1 to 3"),
        ({"plans": 3, "plan": "1"}, None, "plan='1' of 3"),
        ({"plan": 2}, None, "plan=2 of 1"),
    ],
)
def test_tables_without_the_plans_of_the_request_are_refused(request_: dict, labels: Any, message: str) -> None:
    one = make()
    names = ("factuals", "counterfactuals", "status", "outcome", "changed")
    tables = {name: getattr(one, name).set_axis(labels) for name in names} if labels is not None else {}
    with pytest.raises(InputError, match=message):
        make(**tables, request=one.request | request_)


def test_one_plan_is_as_if_no_plans_were_asked_for() -> None:
    made = make(request=make().request | {"plans": 1})
    assert made.plans == 1
    assert str(made) == str(make())
    assert made.plan(1) is made
    assert made.path("ann", plan=1).equals(made.path("ann"))
    for use in (made.plan, lambda number: made.path("ann", plan=number)):
        with pytest.raises(InputError, match=r"no plan 2; its plans are: 1 \(to look for more, .* plans=2"):
            use(2)


def test_one_plan_of_everybody_has_their_own_labels(plans: Explanation) -> None:
    assert plans.plans == 3
    second = plans.plan(2)
    assert second.factuals.index.equals(make().factuals.index)
    assert second.factuals.index.names == ["person"]
    assert second.counterfactuals.loc["ann", "hours-per-week"] == 48.2345678
    assert second.status["status"].tolist() == ["found", "no_other_plan", "found", "no_other_plan", "no_other_plan"]
    assert (second.plans, second.request["plans"], second.request["plan"]) == (1, 3, 2)
    assert second.path("ann").equals(plans.path("ann", 2))
    assert second.path("ann", plan=2).equals(plans.path("ann", 2))
    assert second.measures()["l0"].tolist() == [3.0, 0.0, 2.0, 0.0, 0.0]
    assert str(second).startswith("Explanation of 5 rows, plan 2 of 3: 2 found, 3 no other plan (method")
    assert second.sentences.iloc[0].startswith("The model predicts 0")
    assert second.plan(2) is second
    assert second.select(["cem"]).plan(2).plans == 1
    assert str(Explanation.from_json(second.to_json())) == str(second)
    with pytest.raises(InputError, match="no plan 1; its plans are: 2 "):
        second.plan(1)
    with pytest.raises(InputError, match="no plan 1; its plans are: 2 "):
        second.path("ann", plan=1)


@pytest.mark.parametrize("number", [0, 4, True])
def test_a_plan_that_was_not_asked_for_is_refused(plans: Explanation, number: int) -> None:
    with pytest.raises(InputError, match=r"no plan .*its plans are: 1, 2, 3"):
        plans.plan(number)


def test_the_first_plan_is_the_explanation_with_one_plan(plans: Explanation) -> None:
    first, one = plans.plan(1), make()
    pd.testing.assert_frame_equal(first.counterfactuals, one.counterfactuals)
    pd.testing.assert_frame_equal(first.paths.drop(columns="map_x"), one.paths.drop(columns="map_x"))
    pd.testing.assert_frame_equal(first.changes, one.changes)
    assert first.status["status"].tolist() == one.status["status"].tolist()
    pd.testing.assert_frame_equal(first.summary(by="sex"), one.summary(by="sex"))


def test_a_missing_plan_is_neither_valid_nor_looked_for(plans: Explanation) -> None:
    assert not StatusCode.NO_OTHER_PLAN.valid
    assert not StatusCode.NO_OTHER_PLAN.searched
    missing = plans.status["status"] == StatusCode.NO_OTHER_PLAN
    assert missing.sum() == 7
    assert not plans.valid[missing].any()
    assert plans.counterfactuals[missing].equals(plans.factuals[missing])


def test_every_table_has_a_row_for_each_person_and_plan(plans: Explanation) -> None:
    index = plan_index(pd.Index(LABELS, name="person"), 3)
    assert len(plans) == 15
    for table in (plans.factuals, plans.measures(), plans.sentences, plans.valid):
        assert table.index.equals(index)
    assert plans.changes.loc[("cem", 2), "feature"].tolist() == ["hours-per-week", "owner"]
    assert plans.changes.index.names == ["person", "plan"]


def test_no_rows_have_any_number_of_plans() -> None:
    nothing = make_plans().select([])
    assert (len(nothing), nothing.plans) == (0, 3)
    assert str(nothing) == (
        "Explanation of 0 people, up to 3 plans each: 0 plans found (method rsgd-c, wanted 1, confidence 0.5)"
    )
    assert len(nothing.plan(3)) == 0
    assert nothing.summary()["n"].tolist() == [0]
    assert nothing.summary(by="sex").shape == (0, 13)
    assert str(Explanation.from_json(nothing.to_json())) == str(nothing)


def test_a_gap_that_stays_one_does_not_move() -> None:
    path = pd.DataFrame({"a": [np.nan, np.nan], "b": [np.nan, 1.0], "c": ["x", "x"], "d": [None, None]})
    assert moving_features(path) == ["b"]
