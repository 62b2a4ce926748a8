"""The cheapest actions, where changes have consequences: a search over what a person does, and not over rows.

A path through the data changes features together. Where some of these follow from others, the same decision may take
fewer actions: one feature is changed, its effects do the rest. So every feature by itself and every pair of them is
tried, over all that costs no more than what is known and then more finely around the best, and what costs least is
taken if it is as plausible as real rows are, or as the end that was found. At last one action of a pair is moved along
while the other one is as small as it can be at each of its values, which is found by bisection: what costs least lies
where validity ends, and mostly between the points of any grid.
"""

from itertools import combinations, permutations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.search.feasible import FeasibleSet
from counterpath.search.paths import Paths, is_first, merge
from counterpath.search.traverse import StopReason
from counterpath.search.validity import Validator

_ONE, _TWO = 65, 13
"""Values that are tried of a feature by itself, and of each of a pair, within what costs no more than what is known."""
_ROUNDS = 4  # of looking more finely around the best: each is four times as fine, so the last is at 0.1 % of the cost
_FEATURES = 8  # whose pairs are tried: those that do most by themselves; 28 pairs
_FINER = 4.0
_BISECTED = 4  # features of whose pairs the one is bisected for many values of the other: 12 pairs
_HALVINGS = 8  # of the one: it is known to within 1/256 of what is affordable
_TURNS = 3  # of looking more finely around the best value of the other
_AT_ONCE = 512  # people whose actions are tried at the same time: up to 256 rows each
_LINE = 8  # steps of the path to an end, before it is staged


def cheapest_actions(validator: Validator, feasible: FeasibleSet, paths: Paths) -> Paths:
    """The paths, with those of rows for which fewer or smaller actions do led to where these end.

    Args:
        validator: Asks the model.
        feasible: What each row may become, and what follows from it.
        paths: What a search found.
    """
    if feasible.effects is None or not len(feasible):
        return paths
    if len(feasible) > _AT_ONCE:
        some = torch.arange(len(feasible), device=feasible.factual.device).split(_AT_ONCE)
        return merge([(each, cheapest_actions(validator, feasible.at(each), paths.select(each))) for each in some])
    device = feasible.factual.device
    end = torch.where(paths.found[:, None], paths.x[paths.last], feasible.factual)
    cost = torch.where(paths.found, feasible.cost(end), torch.inf)
    limit = torch.full_like(cost, torch.inf)
    if validator.plausibility is not None:
        limit = validator.plausibility.distance(end).clamp_min(validator.plausibility.limit)
    start, every = cost, torch.arange(len(feasible.encoder.layout), device=device)
    best, gains = end, torch.full((len(feasible), len(every)), -torch.inf, device=device)
    free = _free(feasible)
    singles = [(feature,) for feature in every[free.any(0)].tolist()]
    for features in singles:
        best, cost, seen = _over(validator, feasible, features, _ONE, free, limit, best, cost)
        gains[:, features[0]] = seen
    ranked = gains.amax(0).argsort(descending=True).tolist()[:_FEATURES]
    ranked = [feature for feature in ranked if (feature,) in singles]
    for pair in combinations(ranked, 2):
        best, cost, _ = _over(validator, feasible, pair, _TWO, free, limit, best, cost)
    for kept, other in permutations(ranked[:_BISECTED], 2):
        if feasible.encoder.axes[other].width == 1:
            best, cost = _bisected(validator, feasible, (kept, other), free, limit, best, cost)
    better = (cost < start).nonzero()[:, 0]
    if len(better) == 0:
        return paths
    within = feasible.at(better)
    share = torch.linspace(0, 1, _LINE + 1, device=device).repeat(len(better))[:, None]
    row = torch.arange(len(better), device=device).repeat_interleave(_LINE + 1)
    x = torch.lerp(within.factual[row], best[better][row], share.to(best))
    x = within.legal(x, row)
    x = torch.where(share == 1, best[better][row], torch.where(is_first(row)[:, None], within.factual[row], x))
    reason = torch.full_like(better, StopReason.CONFIDENCE_REACHED)
    led = validator.paths(within, row, x, reason).truncate()
    kept = torch.ones_like(paths.found).index_fill(0, better, False).nonzero()[:, 0]
    return merge([(kept, paths.select(kept)), (better, led)])


def _free(feasible: FeasibleSet) -> Bool[Tensor, "n f"]:
    """The features that each person can act on."""
    return feasible.features(feasible.lower < feasible.upper) & ~feasible.followers


def _over(
    validator: Validator,
    feasible: FeasibleSet,
    features: tuple[int, ...],
    count: int,
    free: Bool[Tensor, "n f"],
    limit: Float[Tensor, "n"],
    best: Float[Tensor, "n D"],
    cost: Float[Tensor, "n"],
) -> tuple[Float[Tensor, "n D"], Float[Tensor, "n"], Float[Tensor, "n"]]:
    """The best rows so far, or cheaper ones with some features changed; their cost; the highest probability seen."""
    seen = torch.full_like(cost, -torch.inf)
    going = free[:, list(features)].all(1).nonzero()[:, 0]
    parts = [feasible.encoder.layout[feature] for feature in features]
    spans = [_affordable(feasible, part, cost) for part in parts]
    for turn in range(_ROUNDS):
        if len(going) == 0:
            break
        within = feasible.at(going)
        own = [within.factual[:, part] if turn == 0 and len(parts) > 1 else None for part in parts]
        values = [_values(low[going], high[going], count, mid) for (low, high), mid in zip(spans, own, strict=True)]
        x, row = _tried(within, parts, values)
        x = within.legal(x, row)
        costs = within.cost(x, row)
        if turn == 0:
            seen[going] = seen[going].scatter_reduce(0, row, validator.probability(x).to(seen), "amax")
        good = (costs < cost[going][row]).nonzero()[:, 0]
        good = good[validator.is_valid(x[good], within.origin[row[good]])]
        if validator.plausibility is not None and len(good):
            good = good[validator.plausibility.distance(x[good]) <= limit[going][row[good]]]
        if len(good) == 0:
            break
        costs = torch.full_like(costs, torch.inf).index_copy(0, good, costs[good]).view(len(going), -1)
        chosen = costs.argmin(1)
        price = costs.gather(1, chosen[:, None])[:, 0]
        better = price < cost[going]
        index = torch.arange(len(going), device=going.device) * costs.shape[1] + chosen
        going, found = going[better], x[index[better]]
        best, cost = best.index_copy(0, going, found), cost.index_copy(0, going, price[better])
        for (low, high), part in zip(spans, parts, strict=True):
            if low.shape[1] == 1:  # categories are all tried each time
                _around(feasible, part, low, high, going, found)
    return best, cost, seen


def _around(
    feasible: FeasibleSet, part: slice, low: Tensor, high: Tensor, rows: Int[Tensor, "m"], found: Float[Tensor, "m D"]
) -> None:
    """Look more finely around the best from now on: between what a feature of some rows is tried."""
    half = (high[rows] - low[rows]) / (2 * _FINER)
    low[rows] = (found[:, part] - half).maximum(feasible.lower[rows][:, part])
    high[rows] = (found[:, part] + half).minimum(feasible.upper[rows][:, part])


def _bisected(
    validator: Validator,
    feasible: FeasibleSet,
    pair: tuple[int, int],
    free: Bool[Tensor, "n f"],
    limit: Float[Tensor, "n"],
    best: Float[Tensor, "n D"],
    cost: Float[Tensor, "n"],
) -> tuple[Float[Tensor, "n D"], Float[Tensor, "n"]]:
    """The best rows so far, or cheaper ones: one feature has some value, a second one as little of a change as will do.

    Both are actions, so that a feature that would follow can be kept next to where it is.
    """
    kept, other = (feasible.encoder.layout[feature] for feature in pair)
    column, going = other.start, free[:, list(pair)].all(1).nonzero()[:, 0]
    low, high = _affordable(feasible, kept, cost)
    weights = feasible.weights.square()
    for turn in range(_TURNS):
        if len(going) == 0:
            break
        within, most = feasible.at(going), cost[going]
        own = within.factual[:, kept] if turn == 0 else None
        values = _values(low[going], high[going], _TWO, own, _FINE_SHARES)
        start, row = _tried(within, [kept], [values])
        left = most[row] - ((start - within.factual[row])[:, kept].abs() * weights[kept]).sum(-1)
        start, row, left = (torch.cat([each, each]) for each in (start, row, left))
        sign = torch.ones_like(left)
        sign[len(left) // 2 :] = -1
        bad = within.factual[row, column]
        good = bad + sign * left.clamp_min(0) / weights[column]
        good = good.clamp(within.lower[row, column], within.upper[row, column])
        found, price = start, torch.full_like(left, torch.inf)
        index = (good != bad).nonzero()[:, 0]
        for number in range(_HALVINGS + 1):
            tried = good[index] if number == 0 else torch.lerp(bad[index], good[index], 0.5)
            x = start[index].index_copy(1, torch.tensor([column], device=start.device), tried[:, None])
            x = within.legal(x, row[index])
            costs = within.cost(x, row[index])
            ask = (costs <= most[row[index]]).nonzero()[:, 0]
            ask = ask[validator.is_valid(x[ask], within.origin[row[index[ask]]])]
            if validator.plausibility is not None and len(ask):
                ask = ask[validator.plausibility.distance(x[ask]) <= limit[going][row[index[ask]]]]
            there = index[ask]
            found, price = found.index_copy(0, there, x[ask]), price.index_copy(0, there, costs[ask])
            if number == 0:
                index = there
                continue
            bad[index] = tried.index_copy(0, ask, bad[there])
            good[there] = tried[ask]
        least = torch.full_like(most, torch.inf).scatter_reduce(0, row, price, "amin")
        better = (least < most).nonzero()[:, 0]
        first = (price == least[row]).nonzero()[:, 0]
        chosen = torch.full_like(going, len(price)).scatter_reduce(0, row[first], first, "amin")[better]
        going = going[better]
        best, cost = best.index_copy(0, going, found[chosen]), cost.index_copy(0, going, price[chosen])
        if kept.stop - kept.start == 1:
            _around(feasible, kept, low, high, going, found[chosen])
    return best, cost


def _affordable(
    feasible: FeasibleSet, part: slice, cost: Float[Tensor, "n"]
) -> tuple[Float[Tensor, "n w"], Float[Tensor, "n w"]]:
    """Between what a feature may be without costing more than what is known: little, for who is next to the target."""
    low, high = feasible.lower[:, part].clone(), feasible.upper[:, part].clone()
    if part.stop - part.start > 1:  # categories are all tried
        return low, high
    own, most = feasible.factual[:, part], cost[:, None] / feasible.weights[part].square()
    return low.maximum(own - most), high.minimum(own + most)


_SHARES = 0.0, 0.01, 0.1, 0.3, 0.6, 0.85, 0.95, 1.0
"""Of what a pair of actions may cost, on either side of a person's own values: who acts on one feature may have to keep
an effect of it, which is another action, of next to no size, and leaves nearly all for the first."""
_FINE_SHARES = 0.0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.85, 0.95, 1.0
"""The same of one of the pair, where the other one is bisected."""


def _values(
    low: Float[Tensor, "n w"],
    high: Float[Tensor, "n w"],
    count: int,
    own: Float[Tensor, "n w"] | None = None,
    shares: tuple[float, ...] = _SHARES,
) -> Float[Tensor, "n v w"]:
    """Some values of a feature from one end to the other, evenly or around its own; of categories each."""
    if low.shape[1] > 1:
        return torch.eye(low.shape[1]).to(low).expand(len(low), -1, -1)
    if own is None:
        return torch.lerp(low[:, None], high[:, None], torch.linspace(0, 1, count).to(low)[:, None])
    parts = torch.tensor(shares).to(low)[:, None]
    return torch.cat([torch.lerp(own[:, None], end[:, None], parts) for end in (low, high)], 1)


def _tried(
    feasible: FeasibleSet, parts: list[slice], values: list[Float[Tensor, "n v w"]]
) -> tuple[Float[Tensor, "m D"], Int[Tensor, "m"]]:
    """Every row with all combinations of values, and which row each is."""
    index = torch.cartesian_prod(*(torch.arange(each.shape[1]) for each in values)).view(-1, len(parts))
    x = feasible.factual[:, None].repeat(1, len(index), 1)
    for column, (part, each) in enumerate(zip(parts, values, strict=True)):
        x[:, :, part] = each[:, index[:, column].to(each.device)]
    row = torch.arange(len(feasible), device=x.device).repeat_interleave(len(index))
    return x.flatten(0, 1), row
