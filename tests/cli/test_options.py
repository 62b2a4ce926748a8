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
        "rules": [],
        "causes": [],
    }


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("2013-01-01:2014-01-01", ["2013-01-01", "2014-01-01"]),
        ("2013-01-01:", ["2013-01-01", None]),
        (":2014-01-01 10:00", [None, "2014-01-01 10:00"]),
        ("2013-01-01 10:00:2014-01-01T11:00:05", ["2013-01-01 10:00", "2014-01-01T11:00:05"]),
        ("soon:later", ["soon", "later"]),
    ],
)
def test_ranges_of_dates_may_have_times_of_day(text: str, ends: list[str | None]) -> None:
    schema = Schema((Feature("day", "date"),))
    assert RequestOptions(ranges=[f"day={text}"]).constraints(schema)["ranges"] == {"day": ends}
