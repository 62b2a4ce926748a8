from functools import partial

import pandas as pd
import pytest
import torch
from torch import Tensor

import counterpath as cp
from counterpath.data.constraints import Constraints
from counterpath.data.encoding import Encoder
from counterpath.search.conflicts import binding_constraints
from counterpath.search.feasible import FeasibleSet
from counterpath.search.objective import Target

TARGET = Target(1)

FRAME = pd.DataFrame(
    {
        "age": [20, 30, 40, 60],
        "pay": [0.0, 1.0, 2.0, 4.0],
        "job": ["a", "b", "c", "a"],
        "sex": ["f", "m", "f", "m"],
    }
)


@pytest.fixture
def encoder() -> Encoder:
    return Encoder.fit(FRAME, cp.Schema.infer(FRAME, immutable=["sex"]))


def _told(encoder: Encoder, weights: dict[str, float], level: float, **wishes: object) -> list[list[str]]:
    """What binds for every row that stays where it is, under a linear model that says yes from a level on."""
    x = encoder.encode(FRAME)
    constraints = Constraints.of(encoder.schema, **wishes)  # type: ignore[arg-type]
    feasible = FeasibleSet.of(encoder, x, constraints.bounds(encoder, FRAME, x))
    slope = torch.zeros(encoder.width)
    for name, weight in weights.items():
        slope[encoder.columns(name)[0]] = weight
    found = binding_constraints(feasible, x, lambda rows: _two(rows @ slope - level), TARGET, constraints)
    return [[str(obstacle) for obstacle in group] for group in found]


def _two(score: Tensor) -> Tensor:
    p = torch.sigmoid(8 * score)
    return torch.stack([1 - p, p], 1)


def test_a_lock_is_blamed_where_another_value_would_do(encoder: Encoder) -> None:
    """The model says yes to those who are paid most. One who is that already is not held back by anything."""
    assert _told(encoder, {"pay": 1.0}, 0.9, lock=["pay", "age"]) == [["lock: pay"]] * 3 + [[]]


def test_what_would_help_but_not_enough_is_not_blamed(encoder: Encoder) -> None:
    assert _told(encoder, {"pay": 1.0}, 1.1, lock=["pay", "age"]) == [[]] * 4
    assert _told(encoder, {"pay": 1.0, "age": 1.0}, 1.2, lock=["pay", "age"]) == [
        [],
        ["lock: age", "lock: pay"],  # both reach 1.25; in the order of the features
        ["lock: age", "lock: pay"],
        [],  # it is at both ends already
    ]


def test_a_direction_is_blamed_only_the_other_way(encoder: Encoder) -> None:
    assert _told(encoder, {"pay": 1.0}, 0.9, directions={"pay": "down"}) == [["down: pay"]] * 3 + [[]]
    assert _told(encoder, {"pay": 1.0}, 0.9, directions={"pay": "up"}) == [[]] * 4


def test_a_range_is_blamed_for_what_is_beyond_its_ends_alone(encoder: Encoder) -> None:
    assert _told(encoder, {"pay": -1.0}, -0.1, ranges={"pay": (0, None)}) == [[]] * 4
    assert _told(encoder, {"age": 1.0}, 0.9, ranges={"age": (20, 60)}) == [[]] * 4
    assert _told(encoder, {"age": 1.0}, 0.9, ranges={"age": (20, 50)})[:3] == [["range: age"]] * 3
    assert _told(encoder, {"job": 1.0}, 0.9, ranges={"job": ["a", "b", "c"]}) == [[]] * 4


def test_immutable_features_and_categories_count_too(encoder: Encoder) -> None:
    assert _told(encoder, {"sex": 1.0, "job": 2.0}, 0.9, lock=["job"])[1:3] == [
        [],
        ["lock: job", "immutable: sex"],
    ]
    assert _told(encoder, {"sex": 1.0, "job": 2.0}, 1.9, lock=["job"])[1] == ["lock: job"]
    assert _told(encoder, {"sex": 1.0, "job": 2.0}, 1.9, lock=["job"])[2] == ["lock: job"]


def test_a_limit_is_blamed_where_one_change_more_would_do(encoder: Encoder) -> None:
    x = encoder.encode(FRAME)
    constraints = Constraints.of(encoder.schema, max_changes=1)
    feasible = FeasibleSet.of(encoder, x, constraints.bounds(encoder, FRAME, x))
    moved = x.clone()
    moved[:2, encoder.columns("age")] = 1.0
    pay = encoder.columns("pay")[0]
    for level, expected in ((0.9, ["max_changes: 1"]), (1.1, [])):

        def predict_proba(rows: Tensor, level: float = level) -> Tensor:
            return _two(rows[:, pay] - level)

        found = binding_constraints(feasible, moved, predict_proba, TARGET, constraints)
        assert [[str(obstacle) for obstacle in group] for group in found] == [expected] * 2 + [[], []]


def test_the_model_is_asked_about_many_values_at_once(encoder: Encoder) -> None:
    x, asked = encoder.encode(FRAME), []
    constraints = Constraints.of(encoder.schema, lock=["pay"])

    def predict(rows: Tensor) -> Tensor:
        asked.append(len(rows))
        return _two(rows @ torch.ones(encoder.width) - 100)

    binding_constraints(
        FeasibleSet.of(encoder, x, constraints.bounds(encoder, FRAME, x)), x, predict, TARGET, constraints
    )
    values = 9 + 9 + 3 + 2  # of two numbers, of the job, and of the sex
    assert len(asked) == 2
    assert asked[1] in (len(FRAME) * values, len(FRAME) * (values + 7))  # two categories are one column, or two


def test_that_nobody_may_leave_something_out_is_not_blamed() -> None:
    """The model likes those of whom it does not know the job: that is no advice, and no constraint of anybody's."""
    schema = cp.Schema.infer(FRAME, immutable=["sex"]).replace("job", missing=True).replace("age", missing=True)
    frame = pd.concat([FRAME, FRAME.assign(job=None, age=None)], ignore_index=True)
    encoder = Encoder.fit(frame, schema)
    x = encoder.encode(frame)[:4]
    constraints = Constraints.of(schema)
    feasible = FeasibleSet.of(encoder, x, constraints.bounds(encoder, frame.head(4), x))
    for gap in encoder.gaps.values():
        likes = partial(_likes, gap)
        assert binding_constraints(feasible, x, likes, TARGET, constraints) == [[]] * 4


def _likes(column: int, rows: Tensor) -> Tensor:
    return _two(rows[:, column] - 0.5)
