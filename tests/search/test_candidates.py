import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpath.data import Encoder
from counterpath.data.axes import MixedAxes
from counterpath.search import candidates as candidates_module
from counterpath.search.candidates import (
    COSTS,
    Admissible,
    Candidates,
    Sources,
    ValueTable,
    all_accepted,
    feature_values,
    nearest_accepted,
    nearly_accepted,
    no_candidates,
)
from counterpath.utils.errors import InputError
from tests.search.problems import (
    any_linear,
    cheapest_of,
    encoder_of,
    is_admissible,
    pasted,
    problem_of,
    sources_of,
    table,
)
from tests.sizes import examples


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return encoder_of(table())


@pytest.fixture(scope="module")
def rows(encoder: Encoder) -> Tensor:
    return encoder.encode(table())


# Candidates


def _candidates(row: list[int], seed: int = 0) -> Candidates:
    random = torch.Generator().manual_seed(seed)
    return Candidates(
        torch.tensor(row, dtype=torch.long),
        torch.rand(len(row), 2, generator=random),
        torch.rand(len(row), 2, generator=random),
    )


@given(st.lists(st.integers(0, 4), max_size=20), st.integers(1, 3), st.integers(0, 100))
@settings(max_examples=examples(40), deadline=None)
def test_the_cheapest_of_each_row_come_in_order_and_of_equal_ones_the_first(
    row: list[int], count: int, seed: int
) -> None:
    some = _candidates(sorted(row), seed)
    cost = torch.randint(0, 3, (len(row),), generator=torch.Generator().manual_seed(seed)).float()
    expected = []
    for number in sorted(set(row)):
        places = [place for place, whose in enumerate(sorted(row)) if whose == number]
        expected += sorted(places, key=lambda place: (float(cost[place]), place))[:count]
    found = some.cheapest(cost, count)
    assert torch.equal(found.x, some.x[expected])
    assert torch.equal(found.near, some.near[expected])
    assert torch.equal(found.row, some.row[expected])


def test_what_is_joined_is_in_the_order_of_the_rows() -> None:
    one, other = _candidates([0, 2, 2], 0), _candidates([1, 2], 1)
    both = one.join(other)
    assert both.row.tolist() == [0, 1, 2, 2, 2]
    assert torch.equal(both.x, torch.stack([one.x[0], other.x[0], one.x[1], one.x[2], other.x[1]]))
    assert torch.equal(both.near, torch.stack([one.near[0], other.near[0], one.near[1], one.near[2], other.near[1]]))
    assert len(one.join(one.at(one.row > 9))) == 3


# Costs


def test_costs_by_hand(encoder: Encoder, rows: Tensor) -> None:
    problem = problem_of(
        encoder, rows, any_linear(encoder, rows, 0), rows[:1], constraints={"feature_costs": {"hours": 4, "job": 2}}
    )
    feasible, x = problem.feasible, rows[:1].clone()
    hours, income = encoder.columns("hours")[0], encoder.columns("income")[0]
    job = encoder.columns("job")
    x[0, hours] += 0.25
    x[0, income] -= 0.5
    x[0, job] = x[0, job].roll(1)
    row = torch.tensor([0])
    told = {name: float(cost(feasible, x, row)) for name, cost in COSTS.items()}
    # Another category counts as much as the whole range of a number: 1 in L1, and 1 in L2.
    assert told["l1"] == pytest.approx(4 * 0.25 + 0.5 + 2 * 1, rel=1e-6)
    assert told["l2"] == pytest.approx(4 * 0.25**2 + 0.5**2 + 2 * 1, rel=1e-6)
    assert told["l0"] == pytest.approx(4 + 1 + 2, rel=1e-2)
    smaller = x.clone()
    smaller[0, income] += 0.25
    assert float(COSTS["l0"](feasible, smaller, row)) < told["l0"], "of as many changes the smaller ones cost less"


def test_an_unknown_closeness_is_refused(encoder: Encoder, rows: Tensor) -> None:
    with pytest.raises(InputError, match="closeness"):
        Admissible.of(problem_of(encoder, rows, any_linear(encoder, rows, 0), options={"closeness": "l3"}))


# What is admissible


@given(
    st.integers(0, 1000),
    st.sampled_from((None, 1, 2)),
    st.booleans(),
    st.sampled_from((0.2, 0.95, 1.0)),
    st.booleans(),
)
@settings(max_examples=examples(30), deadline=None)
def test_what_is_admissible_is_feasible_valid_possible_and_plausible(
    encoder_seed: int, most: int | None, pairs: bool, share: float, held: bool
) -> None:
    frame = table(seed=encoder_seed)
    encoder = encoder_of(frame)
    rows = encoder.encode(frame)
    model = any_linear(encoder, rows[:80], encoder_seed)
    problem = problem_of(
        encoder,
        rows[:80],
        model,
        rows[80:],  # they are none of the training rows
        share=share,
        seen_pairs=pairs,
        max_changes=most,
        options={"plausibility": share},
        constraints={"lock": ["size"], "directions": {"hours": "up"}} if held else None,
    )
    row = torch.arange(len(problem)).repeat_interleave(60)
    random = torch.Generator().manual_seed(encoder_seed)
    there = rows[torch.randint(len(rows), (len(row),), generator=random)]
    change = problem.feasible.columns(torch.rand(len(row), len(encoder.layout), generator=random) < 0.3)
    x = torch.where(change, there, problem.feasible.factual[row])
    inside = problem.feasible.legal(x, row)
    x = torch.where((torch.arange(len(row)) % 2 == 0)[:, None], x, inside)  # half of them may be outside
    legal = (problem.feasible.legal(x, row) == x).all(-1) | ~problem.feasible.contains(x, row)
    row, x = row[legal], x[legal]
    admissible = Admissible.of(problem)
    sure, expected = (is_admissible(problem, x, row, slack) for slack in (-1e-6, 1e-6))
    clear = sure == expected  # the others are as far away as they may be, up to the last digit
    row, x, expected = row[clear], x[clear], expected[clear]
    assert torch.equal(admissible(x, row)[0], expected)
    near = problem.setup.rows[torch.randint(80, (len(row),), generator=random)]
    assert torch.equal(admissible(x, row, near)[0], expected), "whichever training row is known to be near"
    good, there = admissible(x, row, admissible.near[row])
    assert torch.equal(good, expected)
    assert (there[good][:, None] == problem.setup.rows).all(-1).any(1).all()
    close = ((x - there) * encoder.weights).norm(dim=-1) <= admissible.reach[row] + 1e-6
    assert close[good].all(), "the training row that it carries makes it plausible"
    anywhere = admissible.anywhere()(x, row)[0]
    assert (anywhere | ~expected).all()
    bare = replace(problem, setup=replace(problem.setup, plausibility=None))
    assert torch.equal(anywhere, is_admissible(bare, x, row))
    assert torch.equal(Admissible.of(bare)(x, row, near)[0], anywhere)


def test_the_row_that_is_near_is_a_training_row_and_the_nearest(encoder: Encoder, rows: Tensor) -> None:
    problem = problem_of(encoder, rows[:60], any_linear(encoder, rows, 0), rows[60:])
    admissible = Admissible.of(problem)
    weights = encoder.weights
    away = torch.cdist((rows[60:] * weights).double(), (rows[:60] * weights).double())
    own = (((admissible.near - rows[60:]) * weights) ** 2).sum(-1).sqrt()
    torch.testing.assert_close(own.double(), away.amin(1), rtol=1e-5, atol=1e-6)
    assert (admissible.near[:, None] == rows[:60]).all(-1).any(1).all()
    plausibility = problem.setup.plausibility
    assert plausibility is not None
    torch.testing.assert_close(admissible.reach, own.clamp_min(plausibility.limit), rtol=1e-5, atol=1e-6)


# Values


@pytest.mark.parametrize("most", [2, 5, 12, 1000])
def test_values_are_all_or_quantiles_and_legal(encoder: Encoder, rows: Tensor, most: int) -> None:
    found = feature_values(encoder, rows, most)
    mixed = 0
    for axis, columns, values in zip(encoder.axes, encoder.layout, found, strict=True):
        own = rows[:, columns]
        assert torch.equal(values.unique(dim=0), values.unique(dim=0).flip(0).unique(dim=0))
        assert len(values.unique(dim=0)) == len(values), "each once"
        whole = rows[:1].repeat(len(values), 1)
        whole[:, columns] = values
        assert torch.equal(encoder.round(whole)[:, columns], values), "they are legal"
        legal = encoder.round(rows)[:, columns].unique(dim=0)
        assert (values[:, None] == legal).all(-1).any(1).all(), "somebody has them"
        if isinstance(axis, MixedAxes):
            mixed += 1
            codes = legal[legal[:, 1] == 0]
            assert len(codes) == 2, "the code and the gap"
            assert torch.equal(values[values[:, 1] == 0].unique(dim=0), codes.unique(dim=0))
            numbers, there = values[values[:, 1] > 0], legal[legal[:, 1] > 0]
            assert len(numbers) == len(there) if len(there) <= most else len(numbers) <= most
        elif axis.width == 1 and len(legal) > most:
            assert len(values) <= most
            assert values.min() == legal.min()
            assert values.max() == legal.max()
        else:
            assert torch.equal(values.unique(dim=0), legal)
        assert own.shape[1] == values.shape[1]
    assert mixed == 1


def test_quantiles_are_where_people_are(encoder: Encoder, rows: Tensor) -> None:
    column = encoder.columns("income")[0]
    values = feature_values(encoder, rows, 5)[encoder.schema.index("income")][:, 0]
    legal = encoder.round(rows)[:, column].sort().values
    ranks = torch.linspace(0, len(rows) - 1, 5).round().long()
    assert torch.equal(values, legal[ranks].unique())


def test_a_table_of_values_has_each_in_its_columns(encoder: Encoder, rows: Tensor) -> None:
    values = feature_values(encoder, rows, 4)
    made = ValueTable.of(encoder, values)
    assert len(made.rows) == sum(len(each) for each in values) == made.first[-1]
    for feature, (columns, each) in enumerate(zip(encoder.layout, values, strict=True)):
        place = slice(made.first[feature], made.first[feature + 1])
        assert torch.equal(made.rows[place, columns], each)
        assert (made.feature[place] == feature).all()
        expected = torch.zeros(len(each), encoder.width, dtype=torch.bool)
        expected[:, columns] = True
        assert torch.equal(made.columns[place], expected)
        assert (made.rows[place][~expected] == 0).all()


def test_of_many_rows_a_sample_is_kept_with_those_the_model_is_surest_of(
    encoder: Encoder, rows: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates_module, "POOL_ROWS", 30)
    monkeypatch.setattr(candidates_module, "_SUREST", 5)
    probabilities = any_linear(encoder, rows, 0)(rows)
    one, other = (Sources.of(encoder, rows, probabilities) for _ in range(2))
    assert torch.equal(one.rows, other.rows)
    assert 30 <= len(one.rows) <= 40
    for label in range(2):
        surest = rows[probabilities[:, label].topk(5).indices]
        assert (surest[:, None] == one.rows).all(-1).any(1).all()
    monkeypatch.undo()
    assert torch.equal(Sources.of(encoder, rows, probabilities).rows.unique(dim=0), rows.unique(dim=0))


# Accepted training rows


@given(st.integers(0, 1000), st.booleans(), st.sampled_from((0.3, 0.95)))
@settings(max_examples=examples(20), deadline=None)
def test_accepted_rows_come_as_a_row_may_become_them_and_only_if_admissible(
    seed: int, pairs: bool, share: float
) -> None:
    frame = table(100, seed)
    encoder = encoder_of(frame)
    rows = encoder.encode(frame)
    problem = problem_of(
        encoder,
        rows[:70],
        any_linear(encoder, rows[:70], seed),
        rows[70:],
        share=share,
        seen_pairs=pairs,
        options={"plausibility": share},
    )
    sources, admissible, every = sources_of(problem), Admissible.of(problem), torch.arange(len(problem))
    near, best = (find(problem, sources, admissible, every) for find in (nearest_accepted, all_accepted))
    whose, made = pasted(problem)
    cheapest, made = cheapest_of(problem, whose, made), made.view(len(problem), -1, encoder.width)
    for found in (near, best):
        assert is_admissible(problem, found.x, found.row).all()
        assert (found.x[:, None] == made[found.row]).all(-1).any(1).all(), "it is an accepted training row, put in"
        held = problem.feasible.fixed[found.row]
        assert torch.equal(found.x[held], problem.feasible.factual[found.row][held])
        assert (found.near[:, None] == problem.setup.rows).all(-1).any(1).all()
        assert torch.equal(found.row, found.row.sort().values)
    assert torch.equal(torch.isin(every, best.row), cheapest.isfinite())
    torch.testing.assert_close(problem.feasible.cost(best.x, best.row), cheapest[best.row])
    cost = problem.feasible.cost(near.x, near.row)
    assert all((part.diff() >= 0).all() for part in cost.split(torch.bincount(near.row).tolist())), "cheapest first"
    order = torch.randperm(len(problem), generator=torch.Generator().manual_seed(seed))
    shuffled = problem.at(order)
    other = nearest_accepted(shuffled, sources, Admissible.of(shuffled), every)
    for place in range(0, len(problem), 5):
        assert torch.equal(other.x[other.row == place], near.x[near.row == order[place]])
    alone = problem.at(torch.tensor([3]))
    only = nearest_accepted(alone, sources, Admissible.of(alone), torch.tensor([0]))
    assert torch.equal(only.x, near.x[near.row == 3])


def test_all_accepted_rows_are_looked_at_in_parts(
    encoder: Encoder, rows: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of(encoder, rows, any_linear(encoder, rows, 0))
    sources, admissible, every = sources_of(problem), Admissible.of(problem), torch.arange(len(problem))
    whole = all_accepted(problem, sources, admissible, every)
    monkeypatch.setitem(candidates_module.TRIALS_AT_ONCE, "cpu", 300)
    parts = all_accepted(problem, sources, admissible, every)
    assert torch.equal(whole.row, parts.row)
    assert torch.equal(admissible.cost(whole.x, whole.row), admissible.cost(parts.x, parts.row))


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_are_not_accepted_may_be_with_the_columns_of_others_put_in(seed: int) -> None:
    frame = table(100, seed)
    encoder = encoder_of(frame)
    rows = encoder.encode(frame)
    problem = problem_of(encoder, rows[:70], any_linear(encoder, rows[:70], seed, scale=1.0), rows[70:])
    sources, every = sources_of(problem), torch.arange(len(problem))
    found = nearly_accepted(problem, sources, Admissible.of(problem), every)
    others = rows[:70][~problem.accepted(rows[:70], problem.setup.predict_proba(rows[:70]))]
    row = every.repeat_interleave(len(others))
    cheapest = cheapest_of(problem, row, problem.feasible.legal(others.repeat(len(problem), 1), row))
    assert len(found), "some are"
    assert is_admissible(problem, found.x, found.row).all()
    assert torch.equal(torch.isin(every, found.row), cheapest.isfinite())
    torch.testing.assert_close(problem.feasible.cost(found.x, found.row), cheapest[found.row])


def test_where_nobody_is_accepted_there_is_nobody(encoder: Encoder, rows: Tensor) -> None:
    problem = problem_of(encoder, rows, any_linear(encoder, rows, 0, share=0.0), rows[:5])
    sources, every = sources_of(problem), torch.arange(5)
    nobody = replace(sources, probabilities=torch.tensor([[1.0, 0.0]]).expand(len(rows), -1))
    for find in (nearest_accepted, all_accepted):
        assert len(find(problem, nobody, Admissible.of(problem), every)) == 0
    assert len(no_candidates(problem.feasible)) == 0
    assert math.prod(no_candidates(problem.feasible).x.shape) == 0
