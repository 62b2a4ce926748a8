"""One plan or several for each person: with few features changed, and different from one another."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from counterpath.search.feasible import FeasibleSet
from counterpath.search.paths import Paths, better, firsts, merged, picked, some
from counterpath.search.traverse import StopReason

Search = Callable[[FeasibleSet], Paths]
"""Looks for one counterfactual a person within a scope."""
Score = Callable[[Tensor], Tensor]

_SETS = 12


@dataclass(frozen=True)
class Plans:
    """`count` plans for each of n people, person after person, cheapest first.

    Attributes:
        paths: The way of each plan. One that does not exist has only its first point, the person.
        exists: Which plans there are. The first one always is, if only as the best point that was reached.
        cut: Whose further plans there was no time to look for.
    """

    paths: Paths
    exists: Bool[Tensor, "p"]
    cut: Bool[Tensor, "p"]


def one_plan(search: Search, scope: FeasibleSet, probability: Score, most: int | None = None) -> Paths:
    """A counterfactual for each person, with at most so many features changed at any point of its path.

    Where some features cost more, it is also looked for with those of each level and above held, and the cheapest
    is taken. Features that are stopped by a bound right where the person is are held there in a second search: what the
    model is told does not stand in its way. If too many features change, the search begins again with all held but the
    ones that matter most; of several such sets the first one with a counterfactual is taken.

    Args:
        search: Looks for one counterfactual a person.
        scope: What each person may become.
        probability: Of the wanted outcome.
        most: How many features may change.
    """
    paths = search(scope)
    for level in scope.feature_costs.unique().tolist()[1:]:
        hard = (scope.feature_costs >= level).expand_as(scope.told)
        paths = _cheaper(scope, paths, search(scope.holding(hard)))
    if bool(scope.bounded.any()):
        stopped = scope.bounded & (paths.x[paths.last] == scope.factual)
        paths = _again(search, scope, paths, stopped, ~paths.found & (stopped & ~scope.told).any(-1))
    return paths if most is None else _limited(search, scope, paths, probability, most)


def several_plans(
    search: Search, scope: FeasibleSet, probability: Score, *, count: int, most: int | None = None
) -> Plans:
    """Up to `count` plans for each person, none of which changes all features that a cheaper one changes.

    The next plans are looked for with one feature held that a plan before changes, for each such feature; the cheapest
    plan is branched first (Lawler, 1972). The cost of a plan is the sum of its changes, weighted
    by the costs of the features.
    """
    found = _Found(scope, one_plan(search, scope, probability, most))
    for _ in range(count):
        rows, held = found.branches(count)
        if len(rows) == 0:
            break
        narrower = scope.at(rows).holding(scope.columns(held))
        found.add(rows, held, one_plan(search, narrower, probability, most))
    return found.chosen(count)


def changed_most(scope: FeasibleSet, paths: Paths) -> Int[Tensor, "n"]:
    """How many features are changed at that point of each path where most are."""
    changed = scope.encoder.changed(scope.factual[paths.row], paths.x).sum(-1)
    return torch.zeros_like(paths.reason).scatter_reduce(0, paths.row, changed, "amax")


def _cheaper(scope: FeasibleSet, before: Paths, after: Paths) -> Paths:
    """Of two searches for the same people the later one where it alone got there, or at less cost."""
    costs = [scope.cost(paths.x[paths.last]) for paths in (before, after)]
    taken = after.found & (~before.found | (costs[1] < costs[0]))
    places = torch.arange(len(taken), device=taken.device)
    return merged([(places[~taken], some(before, ~taken)), (places[taken], some(after, taken))])


def _again(search: Search, scope: FeasibleSet, paths: Paths, held: Tensor, rows: Tensor) -> Paths:
    """The paths, some rows searched for again with further columns held."""
    if not bool(rows.any()):
        return paths
    places = torch.arange(len(rows), device=rows.device)
    later = better(some(paths, rows), search(scope.at(rows).holding(held[rows])))
    return merged([(places[~rows], some(paths, ~rows)), (places[rows], later)])


def _limited(search: Search, scope: FeasibleSet, paths: Paths, probability: Score, most: int) -> Paths:
    fits = changed_most(scope, paths) <= most
    pending = (~fits).nonzero()[:, 0]
    if len(pending) == 0:
        return paths
    free = ~scope.features(scope.told)[pending]
    ranked = _ranked(scope.at(pending), paths.x[paths.last[pending]], free, probability)
    kept, best = [(fits.nonzero()[:, 0], some(paths, fits))], None
    sets = list(itertools.islice(_sets(free.shape[1], most), _SETS))
    for chosen in (sets[:1], sets[1:]):  # most people need only the first; the others take all the rest at once
        if len(pending) and chosen:
            best = better(best, _within(search, scope.at(pending), free, ranked, chosen))
            done = best.found
            kept.append((pending[done], some(best, done)))
            pending, ranked, free, best = pending[~done], ranked[~done], free[~done], some(best, ~done)
    assert best is not None
    return merged([*kept, (pending, best)])


def _within(search: Search, scope: FeasibleSet, free: Tensor, ranked: Tensor, sets: list[tuple[int, ...]]) -> Paths:
    """For each person the first set of features within which there is a counterfactual, or else the best."""
    count = len(sets)
    rows = torch.arange(len(scope), device=free.device).repeat_interleave(count)
    columns = torch.tensor(sets, device=free.device).repeat(len(scope), 1)
    open_ = torch.zeros_like(free[rows]).scatter(1, ranked[rows].gather(1, columns), value=True) & free[rows]
    paths = search(scope.at(rows).holding(scope.columns(free[rows] & ~open_)))
    found = paths.found.view(-1, count)
    reached = paths.probability[paths.last].view(-1, count)
    which = torch.where(found.any(1), found.int().argmax(1), reached.argmax(1))
    return picked(paths, torch.arange(len(scope), device=free.device) * count + which)


def _ranked(scope: FeasibleSet, end: Tensor, free: Tensor, probability: Score) -> Int[Tensor, "n f"]:
    """Features by how much of the probability their return to the person costs, most first; held ones last."""
    there, lost = probability(end), []
    for columns in scope.encoder.layout:
        without = end.clone()
        without[:, columns] = scope.factual[:, columns]
        lost.append(there - probability(without))
    return torch.where(free, torch.stack(lost, dim=1), -torch.inf).argsort(dim=1, descending=True, stable=True)


def _sets(features: int, size: int) -> Iterator[tuple[int, ...]]:
    """Sets of ranks, the best together first."""
    size = min(size, features)
    ranks = range(min(features, size + _SETS))
    return iter(sorted(itertools.combinations(ranks, size), key=lambda chosen: (sum(chosen), chosen)))


class _Found:
    """The plans of every person, as they are found."""

    def __init__(self, scope: FeasibleSet, first: Paths) -> None:
        self.scope = scope
        self.pieces: list[Paths] = []
        self.plans: list[list[_Plan]] = [[] for _ in range(len(scope))]
        self.tried: list[set[frozenset[int]]] = [{frozenset()} for _ in range(len(scope))]
        self.cut: set[int] = set()
        held = torch.zeros(len(scope), len(scope.encoder.layout), dtype=torch.bool, device=scope.factual.device)
        self.add(torch.arange(len(scope), device=held.device), held, first)

    def add(self, rows: Int[Tensor, "m"], held: Bool[Tensor, "m f"], paths: Paths) -> None:
        """Take in what was found for some people with some features held."""
        end, scope = paths.x[paths.last], self.scope.at(rows)
        changed, costs = scope.encoder.changed(scope.factual, end), scope.cost(end).tolist()
        for place, row in enumerate(rows.tolist()):
            if int(paths.reason[place]) == StopReason.OUT_OF_TIME:
                self.cut.add(row)
            if bool(paths.found[place]):
                features = frozenset(changed[place].nonzero()[:, 0].tolist())
                before = frozenset(held[place].nonzero()[:, 0].tolist())
                self.plans[row].append(_Plan(costs[place], len(self.pieces), place, features, before))
        self.pieces.append(paths)

    def branches(self, count: int) -> tuple[Int[Tensor, "m"], Bool[Tensor, "m f"]]:
        """Whom to search for next, and with which features held: those who have too few plans."""
        rows, held = [], []
        for row, plans in enumerate(self.plans):
            if not plans or len(_different(plans)) >= count:
                continue
            for plan in sorted(plans):
                ahead = [plan.held | {feature} for feature in sorted(plan.features)]
                ahead = [branch for branch in ahead if branch not in self.tried[row]]
                if ahead:
                    self.tried[row].update(ahead)
                    rows += [row] * len(ahead)
                    held += ahead
                    break
        wide = torch.zeros(len(rows), len(self.scope.encoder.layout), dtype=torch.bool)
        for place, features in enumerate(held):
            wide[place, sorted(features)] = True
        device = self.scope.factual.device
        return torch.tensor(rows, dtype=torch.long, device=device), wide.to(device)

    def chosen(self, count: int) -> Plans:
        """The cheapest plans of everybody that differ."""
        nothing = self.pieces[0].points(firsts(self.pieces[0].row))
        pieces = [*self.pieces, nothing]
        starts = list(itertools.accumulate((len(piece.reason) for piece in pieces), initial=0))
        places, exists = [], []
        for row, plans in enumerate(self.plans):
            best = [starts[plan.piece] + plan.place for plan in _different(plans)[:count]] or [row]
            places += best + [starts[-2] + row] * (count - len(best))
            exists += [number < len(best) for number in range(count)]
        device = self.scope.factual.device
        numbered = [
            (torch.arange(first, last, device=device), piece)
            for piece, (first, last) in zip(pieces, itertools.pairwise(starts), strict=True)
        ]
        cut = [row in self.cut for row in range(len(self.plans)) for _ in range(count)]
        return Plans(
            picked(merged(numbered), torch.tensor(places, device=device)),
            *(torch.tensor(flags, dtype=torch.bool, device=device) for flags in (exists, cut)),
        )


@dataclass(frozen=True, order=True)
class _Plan:
    cost: float
    piece: int
    place: int
    features: frozenset[int]
    held: frozenset[int]


def _different(plans: list[_Plan]) -> list[_Plan]:
    """The plans that do not change all that a cheaper one changes, cheapest first."""
    kept: list[_Plan] = []
    for plan in sorted(plans, key=lambda plan: (plan.cost, plan.piece, plan.place)):
        if not any(other.features <= plan.features for other in kept):
            kept.append(plan)
    return kept
