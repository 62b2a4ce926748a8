"""What stands on the page as an address, and the history of it."""

import json
from dataclasses import replace

import pandas as pd
import pytest

import counterpath as cp
from counterpath.explorer.state import FeatureConstraint
from counterpath.explorer.url_state import History, PageState, from_fragment, from_parts, to_fragment
from counterpath.utils.errors import InputError
from tests.tables import features


@pytest.fixture
def defaults(explainer: cp.Explainer, people: pd.DataFrame) -> PageState:
    values = features(people).iloc[3].to_dict()
    constraints = {each.name: FeatureConstraint.default(each) for each in explainer.schema_}
    return PageState(3, values, constraints, (), {"plans": 3, "method": "geodesic"})


def test_a_state_comes_back_from_its_address(explainer: cp.Explainer, defaults: PageState) -> None:
    state = replace(
        defaults,
        values={**defaults.values, "score": 5.5, "city": "Ä & #%"},
        constraints={**defaults.constraints, "debt": FeatureConstraint(direction="down", high=900, stays=True)}
        | {"city": FeatureConstraint(allowed=("A", "B"))},
        rules=("score <= 1000",),
        asked={"plans": 2, "method": "geodesic"},
    )
    parts = state.to_json(defaults)
    assert parts["values"] == {"score": 5.5, "city": "Ä & #%"}, "only what differs"
    assert parts["asked"] == {"plans": 2}
    fragment = to_fragment(parts | {"plans": True})
    read = from_fragment(fragment)
    assert read.pop("plans") is True
    assert from_parts(read, defaults, explainer.schema_) == state


def test_somebody_of_another_table_is_in_the_address_whole(explainer: cp.Explainer, defaults: PageState) -> None:
    alone = replace(defaults, row=None)
    parts = json.loads(json.dumps(alone.to_json(defaults)))
    assert set(parts["values"]) == set(explainer.schema_.names)
    assert "row" not in parts


@pytest.mark.parametrize(
    "fragment", ["#{", "#[]", '#{"row":"3"}', '#{"row":true}', '#{"more":1}', "#" + "1" * 30_000, "#" + "[" * 9_000]
)
def test_an_address_that_cannot_be_is_refused(fragment: str) -> None:
    with pytest.raises(InputError, match="This link cannot be read"):
        from_fragment(fragment)
    assert from_fragment("#") == from_fragment("") == {}


@pytest.mark.parametrize(
    "parts",
    [
        {"values": {"nothing": 1}},
        {"asked": {"token": "x"}},
        {"limits": {"score": {"locked": 1}}},
        {"limits": {"score": {"more": 1}}},
        {"limits": {"score": []}},
        {"rules": [1]},
    ],
)
def test_parts_that_are_not_of_the_model_are_refused(
    explainer: cp.Explainer, defaults: PageState, parts: dict[str, object]
) -> None:
    with pytest.raises(InputError, match="This link cannot be read"):
        from_parts(parts, defaults, explainer.schema_)


def test_a_history_goes_back_and_forth_and_takes_one_edit_as_one(defaults: PageState) -> None:
    one, two, three = (replace(defaults, row=row) for row in (1, 2, 3))
    history = History()
    for state, same in ((one, False), (two, False), (three, True), (three, False)):
        history.record(state, same_edit=same)
    assert history.undo() == one
    assert not history.can_undo
    assert history.redo() == three
    history.undo()
    history.record(two)
    assert not history.can_redo
    assert history.undo() == one
