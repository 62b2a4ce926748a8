"""Rules on encoded rows: they hold there if and only if they hold as displayed, and rows can be repaired."""

from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpath.data.encoding import Encoder
from counterpath.data.rules.checks import FrameValues
from counterpath.data.rules.language import parse_rules
from counterpath.data.rules.ruleset import RuleSet
from counterpath.data.rules.values import EncodedValues
from counterpath.data.schema import Schema
from counterpath.search.feasible import FeasibleSet
from tests.sizes import examples

RANDOM = np.random.default_rng(0)
ROWS = 400
FRAME = pd.DataFrame(
    {
        "total": RANDOM.integers(1, 40, ROWS),
        "open": RANDOM.integers(0, 40, ROWS),
        "income": np.exp(RANDOM.normal(7, 1, ROWS)),
        "rent": RANDOM.random(ROWS) * 900,
        "step": RANDOM.integers(0, 20, ROWS) / 4,
        "education": RANDOM.choice(["a", "b", "c", "d"], ROWS),
        "job": RANDOM.choice(["x", "y", "z"], ROWS),
        "months": np.where(RANDOM.random(ROWS) < 0.2, -7, RANDOM.integers(0, 30, ROWS)),
        "ratio": RANDOM.random(ROWS),
    }
)
OVERRIDES: dict[str, Any] = {
    "education": {"kind": "ordinal", "categories": ["a", "b", "c", "d"]},
    "income": {"transform": "log1p"},
    "step": {"kind": "continuous", "step": 0.25},
    "months": {"codes": {-7: "none"}, "lower": 0, "upper": 30},
    "ratio": {"lower": 0, "upper": 100},
}
SCHEMA = Schema.infer(FRAME, overrides=OVERRIDES)
ENCODER = Encoder.fit(FRAME, SCHEMA)
X = ENCODER.encode(FRAME)
TEXTS = [
    "open <= total",
    "open + months <= 1.5 * total",
    "rent <= income",
    "rent + 3 * step < income",
    "step <= 2.5",
    "months >= 4",
    'education == "d" => income >= 500',
    "education up => months up by 2 per level",
    "open up => total up",
    "rent down => step down by 0.5",
    'job: "x" -> "y" forbidden',
    'job in ["x", "y"]',
    'education not in ["a"]',
    'rent > 500 => job == "x"',
    "ratio = rent / income",
    "months = open + 1",
]


def rules(*texts: str) -> RuleSet:
    return RuleSet.of(ENCODER, parse_rules(SCHEMA, texts))


def legal_rows(seed: int, count: int = 60) -> tuple[Tensor, Tensor]:
    """Rows that are made of several, and what each was."""
    random = torch.Generator().manual_seed(seed)
    origin, other = (X[torch.randint(len(X), (count,), generator=random)] for _ in range(2))
    mixed = torch.lerp(origin, other, torch.rand(count, 1, generator=random))
    keep = torch.rand(count, len(SCHEMA), generator=random) < 0.4
    wide = torch.cat([keep[:, [i]].expand(-1, part.stop - part.start) for i, part in enumerate(ENCODER.layout)], 1)
    return torch.where(wide, origin, ENCODER.round(mixed)), origin


@pytest.mark.parametrize("text", TEXTS)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=examples(40))
def test_what_holds_for_encoded_rows_holds_as_displayed(text: str, seed: int):
    own = rules(text)
    x, origin = legal_rows(seed)
    shown = FrameValues(SCHEMA, ENCODER.decode(x))
    as_displayed = own.rules[0].holds(shown, FrameValues(SCHEMA, ENCODER.decode(origin)))
    encoded = own.hold(x, origin)
    changed = (x != origin).any(-1)
    assert not bool((encoded & ~as_displayed & changed).any())
    assert float((encoded == as_displayed).double().mean()) > 0.9  # and what does not is hardly ever refused


@given(seed=st.integers(0, 10_000))
@settings(max_examples=examples(20))
def test_all_rules_at_once_say_what_each_says_by_itself(seed: int):
    own = rules(*TEXTS[::-1], 'job == "z" and step > 2 => open != 7', "open changes => rent changes", "step == 2.5")
    x, origin = legal_rows(seed)
    values, before = EncodedValues(ENCODER, x, origin), EncodedValues(ENCODER, origin, origin)
    each = torch.stack([~rule.holds(values, before) for rule in own.rules], 1)
    assert torch.equal(own.broken(x, origin), each)
    assert torch.equal(own.hold(x, origin), ~each.any(1))


@pytest.mark.parametrize(
    "order", list(permutations(["open <= total", 'job: "x" -> "y" forbidden', "open up => rent up"]))
)
def test_what_is_broken_stands_under_its_own_rule_in_whatever_order_they_come(order: tuple[str, ...]):
    own, (x, origin) = rules(*order), legal_rows(1)
    values, before = EncodedValues(ENCODER, x, origin), EncodedValues(ENCODER, origin, origin)
    for index, rule in enumerate(own.rules):
        assert torch.equal(own.broken(x, origin)[:, own.texts.index(str(rule))], ~rule.holds(values, before)), index


def test_who_has_to_take_another_value_takes_the_nearest_whoever_else_is_there():
    own, (x, origin) = rules('education in ["a", "d"]'), legal_rows(3)
    lower, upper = X.amin(0).expand_as(x), X.amax(0).expand_as(x)
    one_by_one = torch.cat([own.repair(*(rows[[i]] for rows in (x, origin, lower, upper))) for i in range(len(x))])
    assert torch.equal(own.repair(x, origin, lower, upper), one_by_one)


@pytest.mark.parametrize("text", TEXTS)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=examples(20))
def test_rows_are_repaired_within_their_bounds(text: str, seed: int):
    own = rules(text)
    x, origin = legal_rows(seed)
    lower, upper = origin.minimum(X.amin(0)), origin.maximum(X.amax(0))
    lower[:, own._slice("ratio")], upper[:, own._slice("ratio")] = -1, 1000
    repaired = own.repair(x, origin, lower, upper)
    assert bool(((repaired >= lower) & (repaired <= upper)).all())
    legal = (ENCODER.round(repaired) == repaired) | (repaired == origin)
    assert bool(legal.all())
    lawful = own.hold(origin, origin) if not own.derived else torch.ones_like(origin[:, 0], dtype=torch.bool)
    assert bool(own.hold(repaired, origin)[lawful].all()) or text == "months = open + 1"  # which may leave its range
    untouched = own.hold(x, origin)
    assert torch.equal(repaired[untouched], x[untouched])


def test_a_relation_is_met_by_what_has_changed_already():
    own, x = rules("open <= total"), X[:1].clone()
    origin = own._with_number(own._with_number(x, "total", torch.tensor([10.0])), "open", torch.tensor([5.0]))
    raised = own._with_number(origin, "open", torch.tensor([12.0]))
    repaired = ENCODER.decode(own.repair(raised, origin, X.amin(0)[None], X.amax(0)[None]))
    assert (repaired["open"][0], repaired["total"][0]) == (10, 10)


def test_fixed_features_stay():
    own = rules("open <= total")
    origin = own._with_number(own._with_number(X[:1], "total", torch.tensor([10.0])), "open", torch.tensor([12.0]))
    lower, upper = X.amin(0)[None].clone(), X.amax(0)[None].clone()
    part = own._slice("open")
    lower[:, part] = upper[:, part] = origin[:, part]
    repaired = ENCODER.decode(own.repair(origin, origin, lower, upper))
    assert (repaired["open"][0], repaired["total"][0]) == (12, 12)


def test_derived_features_follow_one_after_another():
    own = rules("ratio = step + 1", "step = open / 8")
    shown = ENCODER.decode(own.derive(X[:50]))
    assert np.allclose(shown["step"], shown["open"] / 8, atol=0.1251)
    assert np.allclose(shown["ratio"], shown["step"] + 1)


def test_shares_of_training_rows_leave_out_rules_about_changes():
    shares = rules("open <= total", "open up => total up").broken_shares(X)
    assert shares == {"open <= total": pytest.approx(float((FRAME["open"] > FRAME["total"]).mean()))}


@pytest.mark.parametrize("text", ["open <= total", "open + months <= 1.5 * total", "total > months", "months >= 4"])
@given(seed=st.integers(0, 10_000))
@settings(max_examples=examples(20), deadline=None)
def test_whole_numbers_are_mended_as_any_are(text: str, seed: int):
    origin, x = legal_rows(seed)
    ruleset = rules(text)
    wrong = ruleset.broken(x, origin)[:, 0]
    ends = torch.full_like(x, -0.2), torch.full_like(x, 1.2)
    given = x[wrong], origin[wrong], *(each[wrong] for each in ends)
    relation = ruleset.rules[0]
    assert ruleset._whole(relation, x.device) is not None
    quick = ruleset._related(relation, *given)
    ruleset._wholes[relation, x.device] = None
    assert torch.equal(quick, ruleset._related(relation, *given))


def test_what_a_rule_couples_moves_along_with_what_is_kept():
    feasible = FeasibleSet.of(ENCODER, X, rules=rules("open <= total"))
    row = (FRAME["open"] < FRAME["total"]).to_numpy().nonzero()[0]
    row = torch.tensor(row[FRAME["total"].to_numpy()[row] < 30])
    column = ENCODER.columns("open")
    x = X[row].clone()
    x[:, column] = ENCODER.encode(FRAME.iloc[row].assign(open=35))[:, column]
    kept = torch.zeros_like(x, dtype=torch.bool)
    kept[:, column] = True
    moved = ENCODER.decode(feasible.settle_keeping(x, row, kept))
    assert (moved["open"] == 35).all()
    assert (moved["total"] == 35).all()
    assert (ENCODER.decode(feasible.settle(x, row))["total"] < 35).all(), "what has changed already moves first"


def test_changes_are_counted_from_the_row_as_it_was_and_not_from_its_first_mend():
    some = torch.tensor((FRAME["open"] > FRAME["total"] + 4).to_numpy().nonzero()[0])
    feasible = FeasibleSet.of(ENCODER, X[some], rules=rules("open <= total"))
    assert bool((feasible.factual != feasible.origin).any(-1).all())
    x = feasible.origin.clone()
    column = ENCODER.columns("total")
    x[:, column] = x[:, ENCODER.columns("total")] + 0.01
    assert torch.allclose(feasible.cost(x), torch.full((len(some),), 0.01), atol=1e-6)
    assert bool((feasible.cost(feasible.factual) > 0).all())
