"""The cheapest actions, where changes have consequences: a search over what a person does, and not over rows.

A path through the data changes features together. Where some of these follow from others, the same decision may take
fewer actions: one feature is changed, its effects do the rest. So every feature by itself and every pair of them is
tried, over all that costs no more than what is known and then more finely around the best, and what costs least is
taken if it is as plausible as real rows are, or as the end that was found.
"""

from itertools import combinations

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
    for pair in combinations([feature for feature in ranked if (feature,) in singles], 2):
        best, cost, _ = _over(validator, feasible, pair, _TWO, free, limit, best, cost)
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
            if low.shape[1] == 1:  # more finely around the best; categories are all tried each time
                half = (high[going] - low[going]) / (2 * _FINER)
                low[going] = (found[:, part] - half).maximum(feasible.lower[going][:, part])
                high[going] = (found[:, part] + half).minimum(feasible.upper[going][:, part])
    return best, cost, seen


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


def _values(
    low: Float[Tensor, "n w"], high: Float[Tensor, "n w"], count: int, own: Float[Tensor, "n w"] | None = None
) -> Float[Tensor, "n v w"]:
    """Some values of a feature from one end to the other, evenly or around its own; of categories each."""
    if low.shape[1] > 1:
        return torch.eye(low.shape[1]).to(low).expand(len(low), -1, -1)
    if own is None:
        return torch.lerp(low[:, None], high[:, None], torch.linspace(0, 1, count).to(low)[:, None])
    shares = torch.tensor(_SHARES).to(low)[:, None]
    return torch.cat([torch.lerp(own[:, None], end[:, None], shares) for end in (low, high)], 1)


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
