import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from counterpath.data.constraints import Bounds
from counterpath.fitting.fitted import FittedModels
from counterpath.search.feasible import FeasibleSet
from counterpath.search.method import SearchOptions
from counterpath.search.methods import METHODS
from counterpath.search.methods import search as search_with
from counterpath.search.objective import Target
from counterpath.search.paths import Paths, is_first
from counterpath.search.plans import changed_most, one_plan, several_plans

TARGET = Target(1, confidence=0.5)
Search = Callable[[FeasibleSet], Paths]


def _searcher(models: FittedModels, options: SearchOptions) -> Search:
    method = METHODS["rsgd"]
    return lambda feasible: search_with(method, models.problem(method, feasible, TARGET, options))


@pytest.fixture(scope="module")
def rows(models: FittedModels) -> Tensor:
    return models.rows[~TARGET.is_reached(models.probabilities)][:30]


@pytest.fixture(scope="module")
def feasible(models: FittedModels, rows: Tensor) -> FeasibleSet:
    return FeasibleSet.of(models.encoder, rows)


@pytest.fixture(scope="module")
def search(models: FittedModels) -> Search:
    return _searcher(models, SearchOptions(max_steps=40))


@pytest.fixture(scope="module")
def probability(models: FittedModels) -> Callable[[Tensor], Tensor]:
    return lambda x: TARGET.probability(models.explained.predict_proba(x))


@pytest.fixture(scope="module")
def limited(
    search: Search, feasible: FeasibleSet, probability: Callable[[Tensor], Tensor]
) -> Callable[[int | None], Paths]:
    """The plans under a limit on changes, each of which is searched for once."""
    return functools.cache(lambda most: one_plan(search, feasible, probability, most))


@pytest.mark.whole
@pytest.mark.parametrize("most", [1, 2, 3])
def test_no_point_of_any_path_changes_more_than_it_may(
    models: FittedModels,
    feasible: FeasibleSet,
    limited: Callable[[int | None], Paths],
    probability: Callable[[Tensor], Tensor],
    most: int,
) -> None:
    free, few = limited(None), limited(most)
    assert (changed_most(feasible, few) <= most).all()
    assert (changed_most(feasible, free) > most).any()
    assert torch.equal(few.x[is_first(few.row)], feasible.factual)
    assert few.found.float().mean() > 0.15 * most
    ends = few.x[few.last]
    met = (probability(ends) >= 0.5) & models.combinations.allowed(ends, feasible.factual)
    assert torch.equal(met, few.found)


def test_who_changes_little_anyway_is_left_alone(feasible: FeasibleSet, limited: Callable[[int | None], Paths]) -> None:
    free, few = limited(None), limited(2)
    fits = changed_most(feasible, free) <= 2
    assert fits.any()
    for row in fits.nonzero()[:, 0].tolist():
        assert torch.equal(free.x[free.row == row], few.x[few.row == row])


@pytest.mark.whole
def test_plans_differ_the_only_one_comes_first_and_the_others_follow_by_cost(
    feasible: FeasibleSet, search: Search, probability: Callable[[Tensor], Tensor]
) -> None:
    count = 3
    plans = several_plans(search, feasible, probability, count=count)
    paths, several, only = plans.paths, 0, one_plan(search, feasible, probability)
    assert len(paths.reason) == len(feasible) * count
    first = is_first(paths.row)
    assert torch.equal(paths.x[first], feasible.factual.repeat_interleave(count, 0))
    ends, wide = paths.x[paths.last], feasible.at(torch.arange(len(feasible)).repeat_interleave(count))
    changed = feasible.encoder.changed(wide.factual, ends)
    costs = wide.cost(ends)
    for person in range(len(feasible)):
        places = [person * count + number for number in range(count) if plans.exists[person * count + number]]
        assert places[0] == person * count
        later = [float(costs[place]) for place in places[1:]]
        assert later == sorted(later)
        assert torch.equal(paths.x[paths.row == places[0]], only.x[only.row == person])
        several += len(places) > 1
        for one in places:
            assert len(places) == 1 or paths.found[one]
            for other in places:
                assert one >= other or not bool((changed[one] <= changed[other]).all()), "no plan has all of another"
    assert several > len(feasible) / 2
    missing = ~plans.exists[paths.row]
    assert torch.equal(paths.x[missing], wide.factual[~plans.exists])


@pytest.mark.whole
def test_plans_do_not_depend_on_who_else_is_asked_about(
    feasible: FeasibleSet, search: Search, probability: Callable[[Tensor], Tensor]
) -> None:
    whole = several_plans(search, feasible.at(torch.arange(12)), probability, count=2)
    part = several_plans(search, feasible.at(torch.tensor([7, 3])), probability, count=2)
    for place, person in enumerate((7, 3)):
        for number in range(2):
            one, other = (
                paths.x[paths.row == 2 * who + number] for paths, who in ((whole.paths, person), (part.paths, place))
            )
            assert torch.equal(one, other)


@pytest.mark.whole
def test_who_is_stopped_by_a_bound_is_searched_for_again(
    models: FittedModels, rows: Tensor, probability: Callable[[Tensor], Tensor]
) -> None:
    """Several features may not fall. Held by the step alone more people get stuck than with the model being told."""
    wide = torch.full_like(rows, torch.inf)
    bounds = Bounds(-wide, wide.clone(), torch.zeros_like(rows, dtype=torch.bool))
    columns = models.encoder.columns("debt", "children", "size")
    bounds.upper[:, columns] = rows[:, columns]
    feasible = FeasibleSet.of(models.encoder, rows, bounds)
    options = SearchOptions(max_steps=40, fallback=False)
    search = _searcher(models, options)
    once, again = search(feasible), one_plan(search, feasible, probability)
    assert again.found.sum() >= once.found.sum()
    for paths in (once, again):
        assert (paths.x[:, columns] <= rows[paths.row][:, columns]).all()


def test_a_search_that_respects_limits_itself_is_asked_once_for_the_first_plan_and_only_narrower_for_others(
    feasible: FeasibleSet, search: Search, probability: Callable[[Tensor], Tensor]
) -> None:
    asked: list[FeasibleSet] = []

    def watched(within: FeasibleSet) -> Paths:
        asked.append(within)
        return search(within)

    few = feasible.at(torch.arange(8))
    plans = several_plans(watched, few, probability, count=2, max_changes=1, respects_limits=True)
    first = torch.arange(8) * 2
    one = search(few)
    for row in range(8):
        assert torch.equal(plans.paths.x[plans.paths.row == first[row]], one.x[one.row == row])
    assert len(asked[0]) == 8
    assert not asked[0].fixed.any()
    assert all((narrower.fixed.any(1)).all() for narrower in asked[1:]), "each with something fixed that it changed"
