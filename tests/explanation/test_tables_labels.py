from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpath.explanation import Explanation, plan_index
from counterpath.explanation.tables import positions
from counterpath.utils.errors import InputError
from tests.explanation.conftest import make, make_plans

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
    assert [index[place][0] for place in positions(index, name, plans)] == [name] * plans


def test_many_labels_are_looked_up_at_once() -> None:
    index = plan_index(pd.RangeIndex(20_000), 3)
    assert positions(index, range(19_999, -1, -1), 3)[:4] == [59_997, 59_998, 59_999, 59_994]
