"""Actions that many rows share."""

from itertools import combinations

import pytest
import torch

from counterpath.fitting.fitted import FittedModels
from counterpath.search.feasible import FeasibleSet
from counterpath.search.shared import (
    AT_LEAST,
    BY,
    NOT,
    TO,
    Actions,
    Layout,
    act,
    actions_of_plans,
    choose_actions,
    single_actions,
    united,
)


def worth(cost: torch.Tensor, chosen: tuple[int, ...], unserved: float) -> float:
    best = cost[:, list(chosen)].amin(1)
    return float((unserved - best).clamp_min(0).sum())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_greedy_choice_keeps_its_guarantee_against_all_choices(seed: int, k: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    cost = torch.rand(30, 9, generator=draw, dtype=torch.float64)
    cost[torch.rand(30, 9, generator=draw) < 0.6] = torch.inf
    found = choose_actions(cost, k, 2.0)
    best = max(worth(cost, each, 2.0) for each in combinations(range(9), k))
    assert found.worth[-1] == pytest.approx(worth(cost, found.order, 2.0))
    assert found.worth[-1] >= (1 - 1 / torch.e) * best
    assert best <= found.bound[-1] + 1e-9


def test_the_greedy_choice_is_not_always_the_best_and_the_bound_says_so() -> None:
    one = [[1, 1, 0], [1, 1, 0], [1, 0, 1], [0, 1, 0], [0, 0, 1]]  # 0 alone covers most, 1 and 2 together all
    cost = torch.tensor(one, dtype=torch.float64)
    cost = torch.where(cost == 1, 0.0, torch.inf)
    assert choose_actions(cost, 1, 1.0).bound[0] == 3
    assert choose_actions(cost, 2, 1.0).bound[1] >= 5


def test_of_equal_coverage_the_cheaper_action_is_chosen() -> None:
    cost = torch.tensor([[0.5, 0.2], [0.5, 0.2]], dtype=torch.float64)
    assert choose_actions(cost, 2, 1.0).order == (1,)  # the other one gains nothing


def test_nothing_is_chosen_where_nothing_serves() -> None:
    assert choose_actions(torch.full((4, 3), torch.inf), 2, 1.0).order == ()


def test_a_share_of_an_action_moves_numbers_by_degrees_and_categories_at_once(models: FittedModels) -> None:
    encoder, rows = models.encoder, models.rows[:6]
    layout, feasible = Layout.of(encoder, rows.device), FeasibleSet.of(encoder, rows)
    number = int((layout.plain & ~encoder_fixed(feasible)).nonzero()[0, 0])
    category = next(i for i, axis in enumerate(encoder.axes) if axis.width > 1 and not bool(layout.ordered[i]))
    kind = torch.zeros(1, len(encoder.layout), dtype=torch.long)
    value = torch.zeros(1, encoder.width)
    kind[0, number], value[0, encoder.layout[number].start] = BY, 0.5
    kind[0, category], value[0, encoder.layout[category]] = TO, rows[0, encoder.layout[category]]
    actions, every = Actions(kind, value), torch.arange(6)
    which = torch.zeros(6, dtype=torch.long)
    half, _ = act(actions, layout, feasible, every, which, torch.full((6,), 0.5))
    whole, applies = act(actions, layout, feasible, every, which, torch.ones(6))
    column = encoder.layout[number].start
    assert (half[:, column] <= whole[:, column] + 1e-6).all()
    assert (whole[:, encoder.layout[category]] == rows[0, encoder.layout[category]]).all()
    assert applies.all()
    others = [i for i in range(encoder.width) if i not in range(*encoder.layout[category].indices(99))]
    others.remove(column)
    assert torch.equal(whole[:, others], rows[:, others])


def encoder_fixed(feasible: FeasibleSet) -> torch.Tensor:
    return feasible.features(feasible.fixed).all(0)


def test_actions_of_plans_change_what_the_plans_change(models: FittedModels) -> None:
    encoder = models.encoder
    before = encoder.round(models.rows[:8])
    layout = Layout.of(encoder, before.device)
    number = int(layout.plain.nonzero()[0, 0])
    column = encoder.layout[number].start
    before[:, column] = 0.2
    before = encoder.round(before)
    after = before.clone()
    after[:, column] = (before[:, column] + 0.3).clamp(max=1.0)
    after = encoder.round(after)
    made = actions_of_plans(encoder, before, after, most=5, most_changes=2)
    assert len(made)
    assert ((made.kind != NOT).nonzero()[:, 1] == number).all()
    assert set(made.kind[:, number].tolist()) <= {BY, AT_LEAST}


def test_pairs_are_united_where_they_change_different_features(models: FittedModels) -> None:
    free = torch.ones(len(models.encoder.layout), dtype=torch.bool)
    singles = single_actions(models.encoder, models.rows, free)
    both = united(singles, [0, 1, len(singles) - 1], 2)
    assert (both.changes == 2).all()
    assert len(both) == 2  # the first two are of the same feature
