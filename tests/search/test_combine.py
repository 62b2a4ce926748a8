"""Sets of few changes: complete where they say so, and the cheapest where log odds do add up."""

import itertools

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpath.data import Encoder, Feature, Schema
from counterpath.search import candidates as candidates_module
from counterpath.search import combine as combine_module
from counterpath.search.candidates import Admissible, Candidates, ValueTable
from counterpath.search.combine import combine, pairs_of_changes, single_changes
from counterpath.search.method import Problem
from tests.search.problems import (
    any_linear,
    candidates_of,
    encoder_of,
    is_admissible,
    linear,
    problem_of,
    sources_of,
    table,
)
from tests.sizes import examples

SMALL = Schema(
    (
        Feature("a", "integer"),
        Feature("b", "integer"),
        Feature("c", "binary", categories=("no", "yes")),
        Feature("d", "categorical", categories=("x", "y", "z")),
    )
)


def _small(seed: int) -> tuple[Encoder, Tensor]:
    """A table of which every combination of values can be tried: 4 · 3 · 2 · 3 of them."""
    random = torch.Generator().manual_seed(seed)
    a, b, c, d = (torch.randint(most, (40,), generator=random).tolist() for most in (4, 3, 2, 3))
    frame = pd.DataFrame(
        {"a": [*a, 0, 3], "b": [*b, 0, 2], "c": [("no", "yes")[k] for k in [*c, 0, 1]]}
        | {"d": ["xyz"[k] for k in [*d, 0, 1]]}
    )
    encoder = encoder_of(frame, SMALL)
    return encoder, encoder.encode(frame)


def _at_factual(admissible: Admissible) -> Candidates:
    every = torch.arange(len(admissible.feasible))
    return Candidates(every, admissible.feasible.factual, admissible.near)


def _every_set(problem: Problem, values: ValueTable, most: int, person: int) -> Tensor:
    """All rows that differ from one in at most so many features, by values of a table."""
    factual, found = problem.feasible.factual[person], []
    features = range(len(problem.feasible.encoder.layout))
    for size in range(1, most + 1):
        for chosen in itertools.combinations(features, size):
            places = [range(values.first[feature], values.first[feature + 1]) for feature in chosen]
            for picked in itertools.product(*places):
                x = factual.clone()
                for value in picked:
                    x = torch.where(values.columns[value], values.rows[value], x)
                found.append(x)
    x = torch.stack(found)
    row = torch.full((len(x),), person)
    legal = problem.feasible.legal(x, row)
    x = torch.where(x == factual, x, legal)
    return x[(x != factual).any(-1) & problem.feasible.contains(x, row)]


def _cheapest(problem: Problem, values: ValueTable, most: int, person: int) -> float:
    x = _every_set(problem, values, most, person)
    return _least_cost(problem, x, torch.full((len(x),), person), 1e-6)


def _least_cost(problem: Problem, x: Tensor, row: Tensor, slack: float) -> float:
    good = is_admissible(problem, x, row, slack)
    return float(problem.feasible.cost(x[good], row[good]).min()) if bool(good.any()) else float("inf")


@given(st.integers(0, 10_000), st.sampled_from((0.5, 0.7)))
@settings(max_examples=examples(30), deadline=None)
def test_on_an_additive_model_it_finds_the_cheapest_set_of_up_to_three(seed: int, confidence: float) -> None:
    encoder, rows = _small(seed)
    model = any_linear(encoder, rows, seed, share=0.3, scale=2.0)
    target = problem_of(encoder, rows, model).target
    problem = problem_of(encoder, rows, model, share=None, target=type(target)(1, confidence=confidence))
    table_, admissible = sources_of(problem).fine, Admissible.of(problem)
    found = combine(admissible, _at_factual(admissible), table_, 1)
    assert is_admissible(problem, found.x, found.row).all()
    cost = dict(zip(found.row.tolist(), problem.feasible.cost(found.x, found.row).tolist(), strict=True))
    for person in range(0, len(problem), 4):
        assert cost.get(person, float("inf")) == pytest.approx(_cheapest(problem, table_, 3, person), abs=1e-5)


@given(st.integers(0, 10_000), st.booleans(), st.sampled_from((0.4, 0.95)))
@settings(max_examples=examples(20), deadline=None)
def test_single_changes_and_pairs_are_complete(seed: int, pairs: bool, share: float) -> None:
    """All values of all features are tried, whatever the model, and whatever is plausible or possible."""
    encoder, rows = _small(seed)
    bent = torch.randn(encoder.width, 2, generator=torch.Generator().manual_seed(seed))

    def model(x: Tensor) -> Tensor:  # log odds that do not add up
        p = torch.sigmoid(8 * torch.sin(3 * (x @ bent)).prod(-1)).float()
        return torch.stack([1 - p, p], 1)

    problem = problem_of(encoder, rows, model, share=share, seen_pairs=pairs, options={"plausibility": share})
    if len(problem) == 0:
        return
    values, admissible, every = sources_of(problem).fine, Admissible.of(problem), torch.arange(len(problem))
    for most, search in ((1, single_changes), (2, pairs_of_changes)):
        found = search(admissible, every, values, 3)
        assert is_admissible(problem, found.x, found.row).all()
        cost = problem.feasible.cost(found.x, found.row)
        assert int(torch.bincount(found.row).max() if len(found) else 0) <= 3
        assert all((part.diff() >= 0).all() for part in cost.split(torch.bincount(found.row).tolist()))
        for person in range(0, len(problem), 6):
            x = _every_set(problem, values, most, person)
            row = torch.full((len(x),), person)
            # Between what surely is admissible, and what is but for the last digit of a distance.
            most_it_costs, least_it_costs = (_least_cost(problem, x, row, slack) for slack in (-1e-6, 1e-6))
            own = cost[found.row == person]
            costs = float(own.min()) if len(own) else float("inf")
            assert least_it_costs - 1e-6 <= costs <= most_it_costs + 1e-6


@pytest.mark.parametrize("most", [1, 2, 3])
def test_no_more_features_change_than_may(most: int) -> None:
    frame = table()
    encoder = encoder_of(frame)
    rows = encoder.encode(frame)
    problem = problem_of(encoder, rows, any_linear(encoder, rows, 1, scale=2.0), max_changes=most, share=None)
    admissible = Admissible.of(problem)
    found = combine(admissible, _at_factual(admissible), sources_of(problem).coarse, 4)
    changed = encoder.changed(problem.feasible.origin[found.row], found.x).sum(-1)
    assert changed.max() == most
    assert len(found.row.unique()) > len(problem) / 3


def test_around_a_counterfactual_what_is_found_costs_less() -> None:
    frame = table()
    encoder = encoder_of(frame)
    rows = encoder.encode(frame)
    problem = problem_of(encoder, rows, any_linear(encoder, rows, 2), seen_pairs=True)
    admissible, some = candidates_of(problem, 400)
    base = some.cheapest(torch.rand(len(some), generator=torch.Generator().manual_seed(0)))  # one of each row
    found = combine(admissible, base, sources_of(problem).coarse, 2)
    before = torch.full((len(problem),), torch.inf).scatter(0, base.row, admissible.cost(base.x, base.row))
    assert len(found.row.unique()) > len(base) / 2
    assert (admissible.cost(found.x, found.row) < before[found.row]).all()
    assert is_admissible(problem, found.x, found.row).all()
    start = torch.zeros(len(problem), encoder.width).index_copy(0, base.row, base.x)
    assert (encoder.changed(start[found.row], found.x).sum(-1) <= 3).all()


def test_equal_costs_are_told_apart_by_their_order_whoever_else_is_asked_about() -> None:
    """Categories all cost the same. Which of them is taken must not depend on how many moves others have."""
    schema = Schema(tuple(Feature(name, "categorical", categories=("a", "b", "c")) for name in "stuvwxyz"))
    random = torch.Generator().manual_seed(3)
    frame = pd.DataFrame(
        {name: ["abc"[k] for k in torch.randint(3, (90,), generator=random).tolist()] for name in "stuvwxyz"}
    )
    encoder = encoder_of(frame, schema)
    rows = encoder.encode(frame)
    slope = torch.randint(-3, 4, (encoder.width,), generator=random).float()
    score = (rows * slope).sum(-1)
    problem = problem_of(encoder, rows, linear(slope, -float(score.quantile(0.9))), share=None)
    values, admissible = sources_of(problem).coarse, Admissible.of(problem)
    together = combine(admissible, _at_factual(admissible), values, 2)
    assert len(together.row.unique()) > 20
    for person in range(len(problem)):
        alone = Admissible.of(problem.at(torch.tensor([person])))
        found = combine(alone, _at_factual(alone), values, 2)
        assert torch.equal(found.x, together.x[together.row == person])


@given(st.integers(1, 30), st.integers(1, 20), st.integers(0, 1000))
@settings(max_examples=examples(40), deadline=None)
def test_the_least_values_are_those_of_a_stable_sort(width: int, count: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    values = torch.randint(-3, 4, (5, width), generator=random).float() / 3
    values[torch.rand(5, width, generator=random) < 0.2] = torch.inf
    values[0] = -0.0
    expected = values.sort(dim=1, stable=True).indices[:, : min(count, width)]
    assert torch.equal(combine_module._least(values, count), expected)


def test_many_rows_are_combined_in_parts_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = table()
    encoder = encoder_of(frame)
    rows = encoder.encode(frame)
    problem = problem_of(encoder, rows, any_linear(encoder, rows, 1))
    values, admissible, every = sources_of(problem).coarse, Admissible.of(problem), torch.arange(len(problem))
    whole = combine(admissible, _at_factual(admissible), values, 3), single_changes(admissible, every, values, 3)
    for at_once in (candidates_module.TRIALS_AT_ONCE, combine_module.TRIALS_AT_ONCE):
        monkeypatch.setitem(at_once, "cpu", 500)
    parts = combine(admissible, _at_factual(admissible), values, 3), single_changes(admissible, every, values, 3)
    for one, other in zip(whole, parts, strict=True):
        assert torch.equal(one.row, other.row)
        assert torch.equal(one.x, other.x)
