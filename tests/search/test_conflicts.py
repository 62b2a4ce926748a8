import pandas as pd
import pytest
import torch
from torch import Tensor

import counterpath as cp
from counterpath.data.constraints import Constraints
from counterpath.data.encoding import Encoder
from counterpath.search.conflicts import binding_constraints
from counterpath.search.feasible import FeasibleSet

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


def _told(encoder: Encoder, weights: dict[str, float], **wishes: object) -> list[list[str]]:
    """What binds for every who stays where they are, under a model that is linear in the columns."""
    x = encoder.encode(FRAME)
    constraints = Constraints.of(encoder.schema, **wishes)  # type: ignore[arg-type]
    feasible = FeasibleSet.of(encoder, x, constraints.bounds(encoder, FRAME, x))
    slope = torch.zeros(encoder.width)
    for name, weight in weights.items():
        slope[encoder.columns(name)[0]] = weight

    def probability(rows: Tensor) -> Tensor:
        return torch.sigmoid(rows @ slope)

    return [
        [str(obstacle) for obstacle in group] for group in binding_constraints(feasible, x, probability, constraints)
    ]


def test_a_lock_binds_where_another_value_would_help(encoder: Encoder) -> None:
    assert _told(encoder, {"pay": 1.0}, lock=["pay", "age"]) == [["lock: pay"]] * 3 + [[]]


def test_a_direction_binds_only_the_other_way(encoder: Encoder) -> None:
    assert _told(encoder, {"pay": 1.0}, directions={"pay": "down"}) == [["down: pay"]] * 3 + [[]]
    assert _told(encoder, {"pay": 1.0}, directions={"pay": "up"}) == [[]] * 4


def test_a_range_binds_beyond_its_ends(encoder: Encoder) -> None:
    assert _told(encoder, {"pay": -1.0}, ranges={"pay": (0, None)}) == [[]] * 4
    assert _told(encoder, {"age": 1.0}, ranges={"age": (20, 60)}) == [[]] * 4
    assert _told(encoder, {"job": 1.0}, ranges={"job": ["a", "b", "c"]}) == [[]] * 4


def test_immutable_features_and_categories_count_too(encoder: Encoder) -> None:
    assert _told(encoder, {"sex": 1.0, "job": 2.0}, lock=["job"]) == [
        ["immutable: sex"],
        ["lock: job"],
        ["lock: job", "immutable: sex"],
        [],
    ]


def test_a_limit_binds_where_one_change_more_would_help(encoder: Encoder) -> None:
    x = encoder.encode(FRAME)
    constraints = Constraints.of(encoder.schema, max_changes=1)
    feasible = FeasibleSet.of(encoder, x, constraints.bounds(encoder, FRAME, x))
    moved = x.clone()
    moved[:2, encoder.columns("age")] = 1.0
    found = binding_constraints(feasible, moved, lambda rows: rows[:, encoder.columns("pay")[0]], constraints)
    assert [[str(obstacle) for obstacle in group] for group in found] == [["max_changes: 1"]] * 2 + [[], []]
    assert found[0][0].reach == 1.0
