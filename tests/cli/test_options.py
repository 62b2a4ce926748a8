"""How options are parsed."""

import pytest

from counterpath import Feature, Schema
from counterpath.cli.options import RequestOptions

pytestmark = pytest.mark.whole


def test_names_may_hold_the_signs_that_separate_them() -> None:
    schema = Schema(
        (
            Feature("a,b", "integer"),
            Feature("c=d", "integer"),
            Feature("c", "categorical", categories=("<=50K", ">50K", "x|y", "x")),
            Feature(" blank", "integer"),
            Feature("at", "ordinal", categories=("10:30", "11:00", "noon")),
        )
    )
    parsed = RequestOptions(
        lock=["a,b,c", " blank"],
        unlock=["a,b", "c=d"],
        up=["at,a,b"],
        down=[],
        ranges=["c=d=1:2", "c=<=50K|x|y", "at=10:30:11:00", "a,b=-3:", " blank=:2.5"],
        stay_within=["c=d=0:9"],
        feature_costs=["c=d=2", "c=3"],
    ).constraints(schema)
    assert parsed == {
        "lock": ["a,b", "c", " blank"],
        "unlock": ["a,b", "c=d"],
        "directions": {"at": "up", "a,b": "up"},
        "ranges": {
            "c=d": [1, 2],
            "c": ["<=50K", "x|y"],
            "at": ["10:30", "11:00"],
            "a,b": [-3, None],
            " blank": [None, 2.5],
        },
        "stay_within": {"c=d": [0, 9]},
        "max_changes": None,
        "feature_costs": {"c=d": 2, "c": 3},
    }
