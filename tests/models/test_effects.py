"""Consequences: effects follow as structural equations say, given or fitted."""

import numpy as np
import pandas as pd
import pytest
import torch

from counterpath.data.causes import parse_causes
from counterpath.data.encoding import Encoder
from counterpath.data.schema import Feature, Schema
from counterpath.models.effects import Effects
from counterpath.utils.errors import InputError


def table(count: int = 3000, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    x1 = random.normal(size=count)
    x2 = -x1 + 0.5 * random.normal(size=count)
    x3 = 0.5 * x1 + 0.25 * x2**2 + 0.3 * random.normal(size=count)
    return pd.DataFrame({"x1": x1, "x2": x2, "x3": x3}).round(6)


FRAME = table()
SCHEMA = Schema(tuple(Feature(name, "continuous") for name in FRAME))
ENCODER = Encoder.fit(FRAME, SCHEMA)
X = ENCODER.encode(FRAME)
EDGES = [("x1", "x2"), ("x1", "x3"), ("x2", "x3")]


def acted(frame: pd.DataFrame, effects: Effects, **change: float) -> pd.DataFrame:
    """Rows after an action, with its effects."""
    x = ENCODER.encode(frame.assign(**{name: frame[name] + by for name, by in change.items()}))
    return ENCODER.decode(effects.propagate(x, ENCODER.encode(frame)))


ROWS = FRAME[(FRAME.abs() < 1).all(axis=1)].head(50).reset_index(drop=True)


def test_given_equations_are_followed_to_the_digit():
    causes = parse_causes(SCHEMA, ["x2 = -1 * x1", "x3 = 0.5 * x1 + 0.25 * x2 * x2"])
    assert causes is not None
    assert list(causes.parents) == ["x2", "x3"]
    after = acted(ROWS, Effects.fit(ENCODER, X, causes), x1=0.4)
    x2 = ROWS["x2"] - 0.4
    assert np.allclose(after["x2"], x2, atol=1e-5)
    assert np.allclose(after["x3"], ROWS["x3"] + 0.2 + 0.25 * (x2**2 - ROWS["x2"] ** 2), atol=1e-5)


def test_fitted_equations_recover_effects():
    after = acted(ROWS, Effects.fit(ENCODER, X, parse_causes(SCHEMA, EDGES)), x1=0.4)
    x2 = ROWS["x2"] - 0.4
    true = 0.2 + 0.25 * (x2**2 - ROWS["x2"] ** 2)
    assert np.abs(after["x2"] - x2).max() < 0.05 * 0.4
    assert np.abs(after["x3"] - ROWS["x3"] - true).mean() < 0.1 * np.abs(true).mean()


def test_what_is_acted_on_does_not_follow_and_actions_are_told_from_effects():
    effects = Effects.fit(ENCODER, X, parse_causes(SCHEMA, EDGES))
    both = ROWS.assign(x1=ROWS["x1"] + 0.3, x2=ROWS["x2"] + 0.2)
    origin = ENCODER.encode(ROWS)
    after = effects.propagate(ENCODER.encode(both), origin)
    assert np.allclose(ENCODER.decode(after)["x2"], both["x2"], atol=1e-6)
    assert effects.follows(after, origin).tolist() == [[False, False, True]] * len(ROWS)
    assert not effects.follows(origin, origin).any()
    assert torch.equal(effects.propagate(after, origin), after)


def test_what_people_cannot_change_always_follows():
    effects = Effects.fit(ENCODER, X, parse_causes(SCHEMA, EDGES), frozenset({"x3"}))
    origin = ENCODER.encode(ROWS)
    moved = origin.clone()
    moved[:, 2] = 0.9
    assert not effects.hold(moved, origin).any()
    assert torch.equal(effects.propagate(moved, origin), origin)
    assert effects.hold(origin, origin).all()


class Graph:
    """As networkx has directed graphs."""

    edges = (("x1", "x2"), ("x2", "x3"))


def test_graphs_come_in_many_forms():
    forms = [
        [("x1", "x2"), ("x2", "x3")],
        Graph(),
        ["x1 -> x2", "`x2` -> x3"],
        {"edges": [("x1", "x2")], "equations": {"x3": "2 * x2"}},
    ]
    parsed = [parse_causes(SCHEMA, form) for form in forms]
    assert all(each is not None and dict(each.parents) == {"x2": ("x1",), "x3": ("x2",)} for each in parsed)
    again = parse_causes(SCHEMA, parsed[3].texts)  # type: ignore[union-attr]
    assert again == parsed[3]
    assert parse_causes(SCHEMA, []) is None
    assert parse_causes(SCHEMA, None) is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([("x1", "x2"), ("x2", "x1")], "causes has a circle: x2 ← x1 ← x2"),
        ([("x1", "x1")], "as a cause of itself"),
        ([("x1", "y")], "unknown feature in causes: 'y'"),
        (["x3 = x3 + 1"], "from itself"),
        ([("x1", "x3"), "x3 = 2 * x2"], "without 'x1'"),
        (["x3 = x1", "x3 = x2"], "two equations"),
        (["x3 <= x1"], "expected an edge"),
        (7, "expected edges"),
        ([3], "expected a pair"),
    ],
)
def test_what_is_no_graph_is_an_error(given: object, message: str):
    with pytest.raises(InputError, match=message):
        parse_causes(SCHEMA, given)
