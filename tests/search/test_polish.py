"""Counterfactuals made closer: nothing redundant is left, numbers end where validity does, and nothing gets worse."""

import itertools

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpath.data import Feature, Schema
from counterpath.search.candidates import Admissible, Candidates
from counterpath.search.combine import combine
from counterpath.search.method import Problem
from counterpath.search.polish import polish, put_back, shrink
from tests.search.problems import (
    SLACK,
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


def _problem(seed: int, *, pairs: bool = False, share: float | None = 0.95, most: int | None = None) -> Problem:
    frame = table(100, seed)
    encoder = encoder_of(frame)
    rows = encoder.encode(frame)
    return problem_of(
        encoder,
        rows[:70],
        any_linear(encoder, rows[:70], seed),
        rows[70:],
        share=share,
        seen_pairs=pairs,
        max_changes=most,
        options={} if share is None else {"plausibility": share},
    )


@pytest.mark.whole
@given(st.integers(0, 10_000), st.booleans(), st.sampled_from((None, 0.3, 0.95)))
@settings(max_examples=examples(30), deadline=None)
def test_no_move_makes_a_candidate_worse(seed: int, pairs: bool, share: float | None) -> None:
    problem = _problem(seed, pairs=pairs, share=share)
    admissible, some = candidates_of(problem, 150, seed)
    before = problem.feasible.cost(some.x, some.row)
    for move in (put_back, shrink):
        after = move(admissible, some)
        assert torch.equal(after.row, some.row)
        assert is_admissible(problem, after.x, after.row).all()
        assert (problem.feasible.cost(after.x, after.row) <= before).all()
    best = polish(admissible, some, sources_of(problem).coarse)
    assert torch.equal(best.row, some.row.unique()), "one for each row that has any"
    assert is_admissible(problem, best.x, best.row).all()
    least = torch.full((len(problem),), torch.inf).scatter_reduce(0, some.row, before, "amin")
    assert (problem.feasible.cost(best.x, best.row) <= least[best.row]).all()


@given(st.integers(0, 10_000), st.booleans(), st.sampled_from((None, 0.3, 0.95)))
@settings(max_examples=examples(30), deadline=None)
def test_no_single_change_that_is_left_is_redundant(seed: int, pairs: bool, share: float | None) -> None:
    problem = _problem(seed, pairs=pairs, share=share)
    admissible, some = candidates_of(problem, 100, seed)
    feasible = problem.feasible
    for found in (polish(admissible, some, sources_of(problem).coarse),):
        changed = feasible.encoder.changed(feasible.factual[found.row], found.x)
        for feature in range(changed.shape[1]):
            which = (changed[:, feature] & (changed.sum(1) > 1)).nonzero()[:, 0]
            one = torch.zeros_like(changed[which])
            one[:, feature] = True
            tried = torch.where(feasible.columns(one), feasible.factual[found.row[which]], found.x[which])
            assert not is_admissible(problem, tried, found.row[which], slack=-SLACK).any()


def _numbers(seed: int) -> tuple[Problem, Tensor]:
    """A linear model of a whole number and a real one, by whose threshold an answer is known."""
    schema = Schema(
        (Feature("whole", "integer"), Feature("real", "continuous"), Feature("kind", "binary", categories=("a", "b")))
    )
    random = torch.Generator().manual_seed(seed)
    whole = torch.randint(0, 90, (80,), generator=random).tolist()
    real = torch.rand(80, generator=random).double().tolist()
    kinds = ["ab"[k] for k in torch.randint(2, (80,), generator=random).tolist()]
    frame = pd.DataFrame({"whole": [*whole, 0, 90], "real": [*real, 0.0, 1.0], "kind": [*kinds, "a", "b"]})
    encoder = encoder_of(frame, schema)
    rows = encoder.encode(frame)
    slope = torch.zeros(encoder.width)
    slope[:2] = torch.tensor([3.0, 2.0]) + torch.rand(2, generator=random)
    score = (rows * slope).sum(-1)
    return problem_of(encoder, rows, linear(slope, -float(score.quantile(0.6))), share=None), slope


@given(st.integers(0, 10_000))
@settings(max_examples=examples(30), deadline=None)
def test_numbers_end_next_to_where_validity_does(seed: int) -> None:
    """A whole number at the next legal one; a real one within 1/256 of its change."""
    problem, _ = _numbers(seed)
    admissible, feasible = Admissible.of(problem), problem.feasible
    every = torch.arange(len(problem))
    for column in (0, 1):
        x = feasible.factual.clone()
        x[:, column] = feasible.upper[:, column]
        good = admissible(x, every)[0]
        some = Candidates(every[good], x[good], x[good])
        after = shrink(admissible, some).x[:, column]
        factual = feasible.factual[some.row, column]
        assert problem.target.is_reached(problem.setup.predict_proba(shrink(admissible, some).x)).all()
        step = 1 / 90 if column == 0 else (some.x[:, column] - factual) / 256
        closer = some.x.clone()
        closer[:, column] = torch.maximum(factual, after - step * (1 + 1e-3) - 1e-6)
        closer = feasible.legal(closer, some.row)
        reached = problem.target.is_reached(problem.setup.predict_proba(closer))
        assert not reached[(closer != some.x).any(-1) & (after > factual)].any()


def test_for_an_ensemble_of_trees_a_number_ends_just_beyond_the_split_that_matters() -> None:
    problem, _ = _numbers(0)
    column = 1

    def stump(x: Tensor) -> Tensor:
        p = torch.where(x[:, column] >= 0.7, 0.9, 0.1)
        return torch.stack([1 - p, p], 1)

    encoder, rows = problem.setup.encoder, problem.setup.rows
    problem = problem_of(encoder, rows, stump, share=None)
    admissible, feasible, every = Admissible.of(problem), problem.feasible, torch.arange(len(problem))
    x = feasible.factual.clone()
    x[:, column] = 1.0
    after = shrink(admissible, Candidates(every, x, x)).x[:, column]
    assert (after >= 0.7).all()
    assert (after - 0.7 <= (1 - feasible.factual[:, column]) / 256 + 1e-6).all()


def test_codes_and_gaps_are_no_numbers_to_shrink() -> None:
    problem = _problem(0, share=None)
    encoder, feasible = problem.setup.encoder, problem.feasible
    admissible = Admissible.of(problem)
    columns = encoder.layout[encoder.schema.index("delay")]
    _, some = candidates_of(problem, 10**6)
    before, after = some.x, shrink(admissible, some).x
    other_state = (feasible.factual[some.row][:, columns][:, 1:] != before[:, columns][:, 1:]).any(-1)
    assert other_state.any()
    assert torch.equal(after[other_state][:, columns], before[other_state][:, columns])
    numbers = ~other_state & (before[:, columns][:, 1] > 0)
    assert (after[numbers][:, columns][:, 0] != before[numbers][:, columns][:, 0]).any()


@pytest.mark.parametrize("most", [1, 2])
def test_polish_respects_a_limit_on_changes(most: int) -> None:
    problem = _problem(4, share=None, most=most)
    admissible, every = Admissible.of(problem), torch.arange(len(problem))
    some = combine(
        admissible, Candidates(every, problem.feasible.factual, admissible.near), sources_of(problem).fine, 6
    )
    assert len(some)
    best = polish(admissible, some, sources_of(problem).coarse)
    assert (problem.setup.encoder.changed(problem.feasible.origin[best.row], best.x).sum(-1) <= most).all()


def test_when_time_is_up_it_is_content_with_what_there_is() -> None:
    problem = _problem(1)
    admissible, some = candidates_of(problem, 200)
    looks = itertools.count()
    quick = polish(admissible, some, sources_of(problem).coarse, should_stop=lambda: True)
    whole = polish(admissible, some, sources_of(problem).coarse, should_stop=lambda: next(looks) > 99)
    assert torch.equal(quick.row, whole.row)
    assert is_admissible(problem, quick.x, quick.row).all()
    assert (
        problem.feasible.cost(whole.x, whole.row) <= problem.feasible.cost(quick.x, quick.row) + 1e-6
    ).float().mean() > 0.9


def test_nobody_is_polished_where_there_is_nobody() -> None:
    problem = _problem(1)
    admissible, some = candidates_of(problem, 5)
    assert len(polish(admissible, some.at(some.row < 0), sources_of(problem).coarse)) == 0
