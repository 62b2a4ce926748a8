from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpath.explanation import Explanation, StatusCode, plan_index
from counterpath.explanation.tables import own_labels, people_numbers, plan_numbers
from counterpath.utils.errors import InputError
from tests.explanation.conftest import LABELS, make, make_plans

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
        own = own_labels(longer[plan_numbers(longer, plans) == number], plans)
        pd.testing.assert_index_equal(own, index, exact="equiv")
    assert plan_index(index, 1) is index


@settings(deadline=None)
@given(indexes(), st.integers(2, 4))
def test_everybody_is_counted_once_even_if_labels_are_equal(index: pd.Index, plans: int) -> None:
    numbers = people_numbers(plan_index(index, plans), plans)
    assert numbers.tolist() == np.repeat(np.arange(len(index)), plans).tolist()
    assert people_numbers(index, 1).tolist() == list(range(len(index)))


def test_a_person_whose_plans_are_apart_is_still_one() -> None:
    index = pd.MultiIndex.from_tuples([("ann", 1), ("bob", 1), ("ann", 2)], names=[None, "plan"])
    assert people_numbers(index, 2).tolist() == [0, 1, 0]


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


def test_one_plan_is_as_if_nobody_had_asked() -> None:
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
    assert second.sentences.iloc[0].startswith("The model says 0")
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
