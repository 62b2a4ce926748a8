"""One plan or several for each row: with few features changed, and different from one another.

A plan is sparse: every change that is redundant is put back.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.search.feasible import FeasibleSet
from counterpath.search.paths import Paths, better_paths, is_first, merge
from counterpath.search.traverse import StopReason
from counterpath.search.validity import IsPlausible, Validator

RowFunction = Callable[[Tensor], Tensor]
"""From rows to one value each."""
Settle = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Rows with what follows from them, and which features actions have changed, given the indices as of `IsPlausible`."""


def sparsify(validator: Validator, feasible: FeasibleSet, paths: Paths) -> Paths:
    """The paths, with features whose change is redundant left as they are at every point.

    Without training rows nothing is known about plausibility, and nothing is put back.
    """
    plausibility, found = validator.plausibility, paths.found.nonzero()[:, 0]
    if plausibility is None or len(found) == 0:
        return paths
    factual, end = feasible.factual[found], paths.x[paths.last[found]]
    origin = feasible.origin[found]
    features = redundant_changes(
        factual,
        end,
        feasible.encoder.layout,
        is_valid=lambda tried, index: validator.is_valid(tried, origin[index]),
        probability=validator.probability,
        is_plausible=plausibility.no_farther_than(end, plausibility.limit),
        feature_costs=[float(feasible.feature_costs[columns][0]) for columns in feasible.encoder.layout],
        settle=_settle(feasible.at(found)) if feasible.ruled else None,
    )
    unchanged = feasible.features(end != factual).logical_not()  # what came back by itself need not move on the way
    back = torch.zeros_like(feasible.fixed)
    back[found] = feasible.columns(features | unchanged)
    return validator.with_columns_fixed(feasible, paths, back)


def redundant_changes(
    factual: Float[Tensor, "n D"],
    end: Float[Tensor, "n D"],
    layout: Sequence[slice],
    *,
    is_valid: IsPlausible,
    probability: RowFunction,
    is_plausible: IsPlausible,
    feature_costs: Sequence[float] | None = None,
    settle: Settle | None = None,
) -> Bool[Tensor, "n f"]:
    """Which changed features of every counterfactual are redundant, all of them together.

    Greedy: what costs most to change is tried first, and of equals the feature whose return alone costs the least
    probability. A change is put back if the row is still valid without it, and no less plausible than it may be.

    Args:
        factual: The rows, encoded.
        end: Their counterfactuals.
        layout: The columns of each feature.
        is_valid: Which rows are valid, given them and the index of the counterfactual that each would replace.
        probability: Of the target.
        is_plausible: Which rows are plausible enough.
        feature_costs: Of each feature; by default the same.
        settle: What follows from a change that is put back: rows and indices, as of `is_valid`, to rows, and to which
            features are changed by an action then.
    """
    alone = torch.stack([probability(_restored(end, factual, columns)) for columns in layout], dim=1)
    order = alone.argsort(dim=1, descending=True, stable=True)
    if feature_costs is not None:
        costs = torch.tensor(feature_costs, device=end.device)[order]
        order = order.gather(1, costs.argsort(dim=1, descending=True, stable=True))
    row, back = end.clone(), torch.zeros(len(end), len(layout), dtype=torch.bool, device=end.device)
    wide = torch.zeros(len(layout), end.shape[1], dtype=torch.bool, device=end.device)
    for number, columns in enumerate(layout):
        wide[number, columns] = True
    for rank in range(len(layout)):
        feature = order[:, rank]
        tried = torch.where(wide[feature], factual, row)
        good = (tried != row).any(-1).nonzero()[:, 0]
        if len(good) == 0:
            continue
        if settle is not None:
            tried[good], acts = settle(tried[good], good)
            good = good[~acts.gather(1, feature[good, None])[:, 0]]
        good = good[is_valid(tried[good], good)]
        good = good[is_plausible(tried[good], good)]
        row[good] = tried[good]
        back[good, feature[good]] = True
    return back


def _settle(feasible: FeasibleSet) -> Settle:
    def settle(tried: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        within = feasible.at(index)
        settled = within.legal(tried, own=True)
        return settled, within.actions(settled) & within.features(settled != within.factual)

    return settle


def _restored(row: Tensor, factual: Tensor, columns: slice) -> Tensor:
    restored = row.clone()
    restored[:, columns] = factual[:, columns]
    return restored


Search = Callable[[FeasibleSet], Paths]
"""Looks for one counterfactual a row within a feasible set."""
Score = Callable[[Tensor], Tensor]
"""The probability of the target for rows."""

_FEATURE_SETS = 12  # sets of features that are tried under a limit on changes, best first: each is a search


@dataclass(frozen=True)
class Plans:
    """`count` plans for each of n rows, row after row, cheapest first.

    Attributes:
        paths: The path of each plan. One that does not exist has only its first point, the row itself.
        exists: Which plans there are. The first one always is, if only as the best point that was reached.
        timed_out: For which rows there was no time to look for further plans.
    """

    paths: Paths
    exists: Bool[Tensor, "p"]
    timed_out: Bool[Tensor, "p"]

    def replace_rows(self, rows: Int[Tensor, "m"], others: "Plans", count: int) -> "Plans":
        """The same with the plans of some rows, `count` each, replaced by others."""
        chosen = (rows[:, None] * count + torch.arange(count, device=rows.device)).flatten()
        kept = torch.ones_like(self.exists).index_fill(0, chosen, False).nonzero()[:, 0]
        paths = merge([(kept, self.paths.select(kept)), (chosen, others.paths)])
        exists = self.exists.index_copy(0, chosen, others.exists)
        return Plans(paths, exists, self.timed_out.index_copy(0, chosen, others.timed_out))


def one_plan(search: Search, feasible: FeasibleSet, probability: Score, max_changes: int | None = None) -> Paths:
    """A counterfactual for each row, with at most so many features changed at any point of its path.

    Where some features cost more, it is also looked for with those of each level and above fixed, and the cheapest is
    taken. Features that are stopped by a bound right where the row is are fixed in a second search: what the
    model is conditioned on does not stand in its way, as a bound does. If too many features change, the search begins
    again with all fixed but the ones that matter most; of several such sets the first one with a counterfactual is
    taken.

    Args:
        search: Looks for one counterfactual a row.
        feasible: What each row may become.
        probability: Of the target.
        max_changes: How many features may change.
    """
    paths = search(feasible)
    for level in feasible.feature_costs.unique().tolist()[1:]:
        hard = (feasible.feature_costs >= level).expand_as(feasible.fixed)
        paths = _cheaper(feasible, paths, search(feasible.fix(hard)))
    if bool(feasible.bounded.any()):
        stopped = feasible.bounded & (paths.x[paths.last] == feasible.factual)
        paths = _again(search, feasible, paths, stopped, ~paths.found & (stopped & ~feasible.fixed).any(-1))
    return paths if max_changes is None else _limited(search, feasible, paths, probability, max_changes)


def several_plans(
    search: Search,
    feasible: FeasibleSet,
    probability: Score,
    *,
    count: int,
    max_changes: int | None = None,
    respects_limits: bool = False,
) -> Plans:
    """Up to `count` plans for each row, none of which changes all features that one before it changes.

    The first is the one that is found if no more are asked for. The next ones are looked for with one feature fixed
    that a plan before changes, for each such feature; the cheapest plan is branched first (Lawler, 1972). They follow
    by cost, the sum of their changes, weighted by the costs of the features.

    Args:
        search: Looks for one counterfactual a row.
        feasible: What each row may become.
        probability: Of the target.
        count: How many plans are looked for, where a row does not ask for fewer.
        max_changes: How many features may change.
        respects_limits: Whether the search respects that itself.
    """

    def one(within: FeasibleSet) -> Paths:
        return search(within) if respects_limits else one_plan(search, within, probability, max_changes)

    found = _PlanSearch(feasible, one(feasible), count)
    for turn in range(count):
        rows, fixed = found.branches(turn)
        if len(rows) == 0:
            break
        narrower = feasible.at(rows).fix(feasible.columns(fixed))
        found.add(rows, fixed, one(narrower))
    return found.chosen()


def changed_most(feasible: FeasibleSet, paths: Paths) -> Int[Tensor, "n"]:
    """How many features are changed at that point of each path where most are."""
    changed = feasible.actions(paths.x, paths.row).sum(-1)
    return torch.zeros_like(paths.reason).scatter_reduce(0, paths.row, changed, "amax")


def _cheaper(feasible: FeasibleSet, before: Paths, after: Paths) -> Paths:
    """Of two searches for the same rows the later one where it alone found a counterfactual, or a cheaper one."""
    costs = [feasible.cost(paths.x[paths.last]) for paths in (before, after)]
    taken = after.found & (~before.found | (costs[1] < costs[0]))
    return before.replace_where(taken, after)


def _again(search: Search, feasible: FeasibleSet, paths: Paths, fixed: Tensor, rows: Tensor) -> Paths:
    """The paths, some rows searched for again with further columns fixed."""
    if not bool(rows.any()):
        return paths
    index = torch.arange(len(rows), device=rows.device)
    later = better_paths(paths.filter(rows), search(feasible.at(rows).fix(fixed[rows])))
    return merge([(index[~rows], paths.filter(~rows)), (index[rows], later)])


def _limited(search: Search, feasible: FeasibleSet, paths: Paths, probability: Score, max_changes: int) -> Paths:
    fits = changed_most(feasible, paths) <= max_changes
    pending = (~fits).nonzero()[:, 0]
    if len(pending) == 0:
        return paths
    free = ~feasible.features(feasible.fixed)[pending]
    ranked = _ranked(feasible.at(pending), paths.x[paths.last[pending]], free, probability)
    kept, best = [(fits.nonzero()[:, 0], paths.filter(fits))], None
    sets = list(itertools.islice(_sets(free.shape[1], max_changes), _FEATURE_SETS))
    for chosen in (sets[:1], sets[1:]):  # most rows need only the first; the others take all the rest at once
        if len(pending) and chosen:
            best = better_paths(best, _within(search, feasible.at(pending), free, ranked, chosen))
            done = best.found
            kept.append((pending[done], best.filter(done)))
            pending, ranked, free, best = pending[~done], ranked[~done], free[~done], best.filter(~done)
    assert best is not None
    return merge([*kept, (pending, best)])


def _within(search: Search, feasible: FeasibleSet, free: Tensor, ranked: Tensor, sets: list[tuple[int, ...]]) -> Paths:
    """For each row the first set of features within which there is a counterfactual, or else the best."""
    count = len(sets)
    rows = torch.arange(len(feasible), device=free.device).repeat_interleave(count)
    columns = torch.tensor(sets, device=free.device).repeat(len(feasible), 1)
    open_ = torch.zeros_like(free[rows]).scatter(1, ranked[rows].gather(1, columns), value=True) & free[rows]
    open_ |= feasible.features(feasible.entering)[rows]
    in_order = open_.gather(1, ranked[rows])
    in_order &= in_order.cumsum(1) <= columns.shape[1]
    open_ = torch.zeros_like(open_).scatter(1, ranked[rows], in_order)
    paths = search(feasible.at(rows).fix(feasible.columns(free[rows] & ~open_)))
    found = paths.found.view(-1, count)
    reached = paths.probability[paths.last].view(-1, count)
    which = torch.where(found.any(1), found.int().argmax(1), reached.argmax(1))
    return paths.select(torch.arange(len(feasible), device=free.device) * count + which)


def _ranked(feasible: FeasibleSet, end: Tensor, free: Tensor, probability: Score) -> Int[Tensor, "n f"]:
    """Features by how much of the probability it costs to put them back, most first.

    Those that enter a range, and so change in any case, come before all others, and fixed ones last.
    """
    there, lost = probability(end), []
    for columns in feasible.encoder.layout:
        without = end.clone()
        without[:, columns] = feasible.factual[:, columns]
        lost.append(there - probability(without))
    by_feature = torch.where(free, torch.stack(lost, dim=1), -torch.inf)
    by_feature = by_feature.masked_fill(feasible.features(feasible.entering), torch.inf)
    return by_feature.argsort(dim=1, descending=True, stable=True)


def _sets(features: int, size: int) -> Iterator[tuple[int, ...]]:
    """Sets of ranks, the best together first."""
    size = min(size, features)
    ranks = range(min(features, size + _FEATURE_SETS))
    return iter(sorted(itertools.combinations(ranks, size), key=lambda chosen: (sum(chosen), chosen)))


class _PlanSearch:
    """The plans of every row, as they are found."""

    def __init__(self, feasible: FeasibleSet, first: Paths, count: int) -> None:
        self.feasible, self.count = feasible, count
        own = feasible.plan_counts
        self.counts = [count] * len(feasible) if own is None else own.clamp(max=count).tolist()
        self.pieces: list[Paths] = []
        self.plans: list[list[_Plan]] = [[] for _ in range(len(feasible))]
        self.tried: list[set[frozenset[int]]] = [{frozenset()} for _ in range(len(feasible))]
        self.timed_out: set[int] = set()
        fixed = torch.zeros(
            len(feasible), len(feasible.encoder.layout), dtype=torch.bool, device=feasible.factual.device
        )
        self.add(torch.arange(len(feasible), device=fixed.device), fixed, first)

    def add(self, rows: Int[Tensor, "m"], fixed: Bool[Tensor, "m f"], paths: Paths) -> None:
        """Add what was found for some rows with some features fixed."""
        end, feasible = paths.x[paths.last], self.feasible.at(rows)
        changed, costs = feasible.encoder.changed(feasible.factual, end), feasible.cost(end).tolist()
        if feasible.ruled:
            changed = changed & feasible.actions(end)
        for index, row in enumerate(rows.tolist()):
            if int(paths.reason[index]) == StopReason.OUT_OF_TIME:
                self.timed_out.add(row)
            if bool(paths.found[index]):
                features = frozenset(changed[index].nonzero()[:, 0].tolist())
                before = frozenset(fixed[index].nonzero()[:, 0].tolist())
                self.plans[row].append(_Plan(costs[index], len(self.pieces), index, features, before))
        self.pieces.append(paths)

    def branches(self, turn: int) -> tuple[Int[Tensor, "m"], Bool[Tensor, "m f"]]:
        """Which rows to search for next, and with which features fixed: those that have too few plans.

        Whoever asks for so many plans has as many turns, whatever others ask for.
        """
        rows, fixed = [], []
        for row, (plans, count) in enumerate(zip(self.plans, self.counts, strict=True)):
            if turn >= count or not plans or len(_different(plans)) >= count:
                continue
            for plan in sorted(plans):
                ahead = [plan.fixed | {feature} for feature in sorted(plan.features)]
                ahead = [branch for branch in ahead if branch not in self.tried[row]]
                if ahead:
                    self.tried[row].update(ahead)
                    rows += [row] * len(ahead)
                    fixed += ahead
                    break
        wide = torch.zeros(len(rows), len(self.feasible.encoder.layout), dtype=torch.bool)
        for index, features in enumerate(fixed):
            wide[index, sorted(features)] = True
        device = self.feasible.factual.device
        return torch.tensor(rows, dtype=torch.long, device=device), wide.to(device)

    def chosen(self) -> Plans:
        """The cheapest plans of every row that differ."""
        count = self.count
        nothing = self.pieces[0].points(is_first(self.pieces[0].row))
        pieces = [*self.pieces, nothing]
        starts = list(itertools.accumulate((len(piece.reason) for piece in pieces), initial=0))
        chosen, exists = [], []
        for row, plans in enumerate(self.plans):
            best = [starts[plan.piece] + plan.index for plan in _different(plans)[: self.counts[row]]] or [row]
            chosen += best + [starts[-2] + row] * (count - len(best))
            exists += [number < len(best) for number in range(count)]
        device = self.feasible.factual.device
        numbered = [
            (torch.arange(first, last, device=device), piece)
            for piece, (first, last) in zip(pieces, itertools.pairwise(starts), strict=True)
        ]
        timed_out = [row in self.timed_out for row in range(len(self.plans)) for _ in range(count)]
        return Plans(
            merge(numbered).select(torch.tensor(chosen, device=device)),
            *(torch.tensor(flags, dtype=torch.bool, device=device) for flags in (exists, timed_out)),
        )


@dataclass(frozen=True, order=True)
class _Plan:
    cost: float
    piece: int
    index: int
    features: frozenset[int]
    fixed: frozenset[int]


def _different(plans: list[_Plan]) -> list[_Plan]:
    """The plans that do not change all that one before changes: first what was found first, the others by cost."""
    kept: list[_Plan] = []
    for plan in sorted(plans, key=lambda plan: (plan.piece > 0, plan.cost, plan.piece, plan.index)):
        if not any(other.features <= plan.features for other in kept):
            kept.append(plan)
    return kept
