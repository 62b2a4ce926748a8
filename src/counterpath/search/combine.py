"""Few changes at once: other values of one feature are asked about, and sets of up to three are composed from them.

To ask the model about all sets of three values takes seconds a row. What it says about single values takes no time, and
log odds nearly add up:

    logit p(x with a and b) ≈ logit p(x) + Δ(a) + Δ(b),  Δ(a) = logit p(x with a) − logit p(x).

So all sets are ranked by what they cost and by what they are predicted to reach, and the model is asked about the few
that are cheapest. Around a counterfactual instead of the factual row the same exchanges features: some are put back,
others move further, and the sum costs less.
"""

from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.search.candidates import TRIALS_AT_ONCE, Admissible, Candidates, ValueTable, no_candidates

MOST_TOGETHER = 3
"""Values that are combined: the answers of an exhaustive search change 2.3 features on average."""
_PUT_BACK = 6
"""Of these values so many may cost less than what the row has now, if there are: the others pay for them."""
_SURPLUS = (0.0, 0.5)
"""By which share of what is lacking a prediction has to be above the target: they do not quite add up."""
_SURE = 1e-6  # probabilities are kept this far from 0 and 1, where log odds are infinite


@dataclass(frozen=True)
class Effort:
    """How much is tried for each row.

    Attributes:
        moves: Values that are combined, of all features.
        asked: Sets that the model is asked about for each surplus, the cheapest.
        short: Whether as many are asked about that are predicted to fall short, in any case.
    """

    moves: int
    asked: int
    short: bool = False


QUICK = Effort(moves=16, asked=16)
"""700 sets of up to three: the first admissible one is mostly among the sixteen cheapest that should be valid."""
THOROUGH = Effort(moves=32, asked=32, short=True)
"""5,500 sets, for what has to cost less than something that is known: many that should be valid are not, or are not
plausible. On validation rows of Adult twice as many of either lower the cost by 0.4 %."""
COUPLED = Effort(moves=24, asked=24, short=True)
"""2,300 sets, where rules couple changes, so that they do not add up: on validation rows of HELOC 700 cost 1 % more,
and 5,500 cost 0.6 % less, and take longer."""
EXHAUSTIVE = Effort(moves=64, asked=128, short=True)
"""43,700 sets, for rows that nothing else serves."""


@dataclass(frozen=True)
class _Moves:
    """Other values of single features, for n rows, as many for each; what is missing costs infinitely much.

    Attributes:
        cost: What a row costs more by each.
        gain: By how much the log odds of the target rise.
        feature: Of which feature it is.
        value: Which value it is.
    """

    cost: Float[Tensor, "n m"]
    gain: Float[Tensor, "n m"]
    feature: Int[Tensor, "n m"]
    value: Int[Tensor, "n m"]


def combine(
    admissible: Admissible,
    base: Candidates,
    table: ValueTable,
    count: int,
    *,
    below: Float[Tensor, "n"] | None = None,
    effort: Effort = QUICK,
) -> Candidates:
    """Admissible candidates that differ from given rows in at most three features, and cost less than they do.

    Args:
        admissible: Which rows may be counterfactuals.
        base: One row each to begin at: the factual rows, where anything is cheaper than nothing, or counterfactuals.
        table: The values to try.
        count: How many candidates are kept for each, the cheapest.
        below: What they must cost less than, instead of what the given rows cost.
        effort: How much is tried.
    """
    found = no_candidates(admissible.feasible)
    if below is None:
        now = admissible.cost(base.x, base.row)
        at_factual = (base.x == admissible.feasible.factual[base.row]).all(-1)
        below = torch.where(at_factual, torch.inf, now)
    at_once = max(1, TRIALS_AT_ONCE[table.rows.device.type] // max(len(table.rows), len(_sets(effort.moves)) // 8))
    for some in torch.arange(len(base), device=table.rows.device).split(at_once):
        tried = _combined(admissible, base.at(some), table, below[some], effort)
        found = found.join(tried.cheapest(admissible.cost(tried.x, tried.row), count))
    return found


def _combined(
    admissible: Admissible, base: Candidates, table: ValueTable, limit: Float[Tensor, "n"], effort: Effort
) -> Candidates:
    feasible, count = admissible.feasible, len(base)
    now = admissible.cost(base.x, base.row)
    here = admissible.advantage(base.x)
    moves = _moves(admissible, base, table, now, here, limit, effort.moves)
    most = min(MOST_TOGETHER, admissible.max_changes or MOST_TOGETHER)
    sets = _sets(moves.cost.shape[1], most).to(now.device)
    cost, gain = _padded(moves.cost, 0.0), _padded(moves.gain, 0.0)
    total = cost[:, sets[:, 0]] + cost[:, sets[:, 1]] + cost[:, sets[:, 2]]
    sure = gain[:, sets[:, 0]] + gain[:, sets[:, 1]] + gain[:, sets[:, 2]]
    feature = torch.cat([moves.feature, torch.full((count, 1), -1, device=now.device)], 1)
    one, two, three = (feature[:, sets[:, number]] for number in range(MOST_TOGETHER))
    twice = (one == two) | ((three >= 0) & ((three == one) | (three == two)))
    total = total.masked_fill(twice | (total + now[:, None] >= limit[:, None]), torch.inf)
    lacking = admissible.enough(here, base.row) - here
    possible, chosen, asked = total.isfinite(), [], []
    for surplus in _SURPLUS:
        enough = possible & (sure >= (lacking + surplus * lacking.abs())[:, None])
        chosen.append(_least(total.masked_fill(~enough, torch.inf), effort.asked))
        asked.append(enough.gather(1, chosen[-1]))
        possible = possible & ~torch.zeros_like(possible).scatter(1, chosen[-1], asked[-1])  # nothing is asked twice
    # Predictions are wrong where a probability is next to 0: with few sets that reach it, those that nearly do, too.
    short = (lacking[:, None] - sure).masked_fill(~possible | (sure >= lacking[:, None]), torch.inf)
    chosen.append(_least(short, effort.asked))
    spare = effort.asked - asked[0].sum(1, keepdim=True) * (not effort.short)
    asked.append(short.gather(1, chosen[-1]).isfinite() & (torch.arange(chosen[-1].shape[1]).to(spare) < spare))
    index, there = torch.cat(chosen, 1), torch.cat(asked, 1)
    which = torch.arange(count, device=now.device)[:, None].expand_as(index)[there]
    start = feasible.acted(base.x, base.row)[which]
    x, value = start, torch.cat([moves.value, torch.zeros_like(moves.value[:, :1])], 1)
    kept = torch.zeros_like(x, dtype=torch.bool)
    for number in range(MOST_TOGETHER):
        move = sets[index[there], number]
        put = value[which, move]
        columns = table.columns[put] & (move < moves.cost.shape[1])[:, None]
        x, kept = torch.where(columns, table.rows[put], x), kept | columns
    row = base.row[which]
    x = feasible.settle_keeping(torch.where(x == start, x, feasible.legal(x, row, repair=False)), row, kept)
    cheaper = admissible.cost(x, row) < limit[which]
    return admissible.admit(x[cheaper], row[cheaper], base.near[which][cheaper])


def few_changes(
    admissible: Admissible, rows: Int[Tensor, "m"], table: ValueTable, count: int, below: Float[Tensor, "m"]
) -> Candidates:
    """Admissible candidates that change at most three features of some rows, and cost less than something else.

    What is valid and cheap is often a little too far from the data, because other features do not go with what changes:
    that is moved towards the nearest training row until it is plausible.

    Args:
        admissible: Which rows may be counterfactuals.
        rows: For which rows.
        table: The values to try.
        count: How many candidates are kept for each, the cheapest.
        below: What they must cost less than.
    """
    feasible = admissible.feasible
    start = Candidates(rows, feasible.factual[rows], admissible.near[rows])
    valid = combine(admissible.anywhere().at_once(), start, table, _VALID, below=below, effort=THOROUGH)
    good, near = admissible.among_data(torch.ones_like(valid.row, dtype=torch.bool), valid.x, valid.row, valid.near)
    found, far = Candidates(valid.row, valid.x, near).at(good), valid.at(~good)
    best = torch.full_like(admissible.reach, torch.inf).scatter(0, rows, below)
    best = best.scatter_reduce(0, found.row, admissible.cost(found.x, found.row), "amin")
    far = far.cheapest(admissible.cost(far.x, far.row), _MOVED)
    moved = towards_data(admissible, far.at(admissible.cost(far.x, far.row) < best[far.row]))
    moved = moved.at(admissible.cost(moved.x, moved.row) < best[moved.row])
    return admissible.lasting(found.join(moved), count)


def likely_sets(admissible: Admissible, rows: Int[Tensor, "m"], table: ValueTable, count: int) -> Candidates:
    """Admissible candidates that change at most three features of some rows: of very many sets, those that should do.

    Args:
        admissible: Which rows may be counterfactuals.
        rows: For which rows.
        table: The values to try.
        count: How many candidates are kept for each, the cheapest.
    """
    start = Candidates(rows, admissible.feasible.factual[rows], admissible.near[rows])
    return combine(admissible, start, table, count, effort=EXHAUSTIVE)


_VALID = 48  # valid sets of each row that are looked for in the data: most of those that are asked about
_MOVED = 4  # sets of each row that are moved towards the data: on validation rows more gain nothing


def towards_data(admissible: Admissible, candidates: Candidates) -> Candidates:
    """Those of valid but implausible candidates that stay valid as they are moved to where they are plausible.

    Args:
        admissible: Which rows may be counterfactuals; whether they last is not asked.
        candidates: What is too far from the data.
    """
    plausibility, feasible, row = admissible.validator.plausibility, admissible.feasible, candidates.row
    if plausibility is None or len(candidates) == 0:
        return no_candidates(feasible)
    distance, near = plausibility.nearest(candidates.x)
    share = 1 - _WELL_WITHIN * admissible.reach[row] / distance
    x = torch.lerp(candidates.x, near, share.clamp(0, 1)[:, None])
    x = feasible.settle(feasible.rounded(x, row), row)
    return admissible.at_once().admit(x, row, near)


_WELL_WITHIN = 0.95  # of the reach is where a row is moved to, since values are rounded to legal ones


def _moves(
    admissible: Admissible, base: Candidates, table: ValueTable, now: Tensor, here: Tensor, limit: Tensor, most: int
) -> _Moves:
    """The values worth combining: of each feature those that no other one beats in both cost and gain."""
    feasible, count, width = admissible.feasible, len(base), len(table.rows)
    which = torch.arange(count, device=now.device).repeat_interleave(width)
    value = torch.arange(width, device=now.device).repeat(count)
    row = base.row[which]
    lower, upper = feasible.lower[row], feasible.upper[row]
    start = feasible.acted(base.x, base.row)[which]
    x = torch.where(table.columns[value], table.rows[value], start)
    open_ = ((x >= lower) & (x <= upper)).all(-1) & (x != start).any(-1)
    index = open_.nonzero()[:, 0]
    cost = torch.full((count * width,), torch.inf, dtype=now.dtype, device=now.device)
    gain = torch.full_like(cost, -torch.inf)
    tried = feasible.settle_keeping(x[index], row[index], table.columns[value[index]])
    cost[index] = admissible.cost(tried, row[index]) - now[which[index]]
    gain[index] = admissible.advantage(tried) - here[which[index]]
    cost, gain = cost.view(count, width), gain.view(count, width)
    worth = torch.zeros_like(cost, dtype=torch.bool)
    for first, end in zip(table.first, table.first[1:], strict=False):
        worth[:, first:end] = _undominated(cost[:, first:end], gain[:, first:end])
    cost = cost.masked_fill(~worth, torch.inf)
    # Those that pay best come first: of what costs more by gain per cost, of what costs less by saving per loss.
    ratio = gain / cost.clamp_min(_SURE)
    saved = -cost / (-gain).clamp_min(_SURE)
    affordable = cost < limit[:, None]  # even if all else is put back
    dearer = _least(torch.where(worth & (cost > 0) & affordable, -ratio, torch.inf), most)
    cheaper = _least(torch.where(worth & (cost < 0), -saved, torch.inf), _PUT_BACK)
    index = torch.cat([cheaper, dearer], 1)
    cost, gain = cost.gather(1, index), gain.gather(1, index)
    cost[:, : cheaper.shape[1]] = cost[:, : cheaper.shape[1]].masked_fill(cost[:, : cheaper.shape[1]] >= 0, torch.inf)
    cost[:, cheaper.shape[1] :] = cost[:, cheaper.shape[1] :].masked_fill(cost[:, cheaper.shape[1] :] <= 0, torch.inf)
    order = cost.isinf().to(torch.int8).argsort(dim=1, stable=True)[:, :most]
    index, cost, gain = index.gather(1, order), cost.gather(1, order), gain.gather(1, order)
    used = max(1, int(cost.isfinite().sum(1).max())) if count else 1
    return _Moves(cost[:, :used], gain[:, :used].clamp_min(-_LEAST), table.feature[index[:, :used]], index[:, :used])


_LEAST = 1e9  # a gain of −∞ would be no number where it is added to one of ∞


def _least(values: Float[Tensor, "n v"], count: int) -> Int[Tensor, "n k"]:
    """Indices of the least values of each row; of equal ones the first.

    Which of several equal ones `topk` takes depends on the length and the number of rows, and categories all cost the
    same. So whole numbers are compared that are in the order of the values and, where these are equal, of the indices.
    """
    bits, width = values.float().view(torch.int32).long(), values.shape[1]
    order = torch.where(bits < 0, -(1 << 31) - bits, bits)  # the sign of a float is its first bit, and no complement
    key = order * width + torch.arange(width, device=values.device)
    return key.topk(min(count, width), largest=False).indices


def _undominated(cost: Float[Tensor, "n v"], gain: Float[Tensor, "n v"]) -> Bool[Tensor, "n v"]:
    """Which values of a feature gain more than all that cost no more, the present one, which costs and gains 0, too."""
    order = cost.argsort(dim=1, stable=True)
    sorted_cost, sorted_gain = cost.gather(1, order), gain.gather(1, order)
    before = sorted_gain.cummax(1).values.roll(1, 1)
    before[:, 0] = -torch.inf
    before = torch.where(sorted_cost > 0, before.clamp_min(0), before)
    good = (sorted_gain > before) & sorted_cost.isfinite()
    return torch.zeros_like(good).scatter(1, order, good)


def _padded(numbers: Float[Tensor, "n m"], by: float) -> Float[Tensor, "n k"]:
    return torch.cat([numbers, torch.full_like(numbers[:, :1], by)], 1)


@cache
def _sets(count: int, most: int = MOST_TOGETHER) -> Int[Tensor, "s 3"]:
    """All sets of one to `most` of so many moves, as their indices; `count` stands for none."""
    of_size = [torch.combinations(torch.arange(count), size).view(-1, size) for size in range(1, most + 1)]
    return torch.cat(
        [torch.nn.functional.pad(some, (0, MOST_TOGETHER - some.shape[1]), value=count) for some in of_size]
    )


def single_changes(admissible: Admissible, rows: Int[Tensor, "m"], table: ValueTable, count: int) -> Candidates:
    """For some rows admissible candidates that change one feature alone: all values of the table are tried.

    Args:
        admissible: Which rows may be counterfactuals.
        rows: For which rows.
        table: The values to try.
        count: How many candidates are kept for each, the cheapest of as many features.
    """
    return _every(admissible, rows, table, torch.arange(len(table.rows))[:, None], count)


def pairs_of_changes(admissible: Admissible, rows: Int[Tensor, "m"], table: ValueTable, count: int) -> Candidates:
    """The same for all pairs of values of two features."""
    pairs = torch.combinations(torch.arange(len(table.rows), device=table.rows.device))
    return _every(admissible, rows, table, pairs[table.feature[pairs[:, 0]] != table.feature[pairs[:, 1]]], count)


def _every(
    admissible: Admissible, rows: Int[Tensor, "m"], table: ValueTable, sets: Int[Tensor, "s k"], count: int
) -> Candidates:
    """All sets of values, for some rows."""
    feasible, found, any_ = admissible.feasible, no_candidates(admissible.feasible), admissible.at_once()
    sets = sets.to(rows.device)
    for some in sets.split(max(1, TRIALS_AT_ONCE[rows.device.type] // max(1, len(rows)))):
        row, values = rows.repeat_interleave(len(some)), some.repeat(len(rows), 1)
        factual = feasible.factual[row]
        x = factual
        for value in values.T:
            x = torch.where(table.columns[value], table.rows[value], x)
        open_ = ((x >= feasible.lower[row]) & (x <= feasible.upper[row])).all(-1) & (x != factual).any(-1)
        row, x, factual = row[open_], x[open_], factual[open_]
        x = feasible.settle(torch.where(x == factual, x, feasible.legal(x, row, repair=False)), row)
        found = found.join(admissible.lasting(any_.admit(x, row), count))
        found = found.cheapest(admissible.cost(found.x, found.row), count)
    return found


def most_probable(admissible: Admissible, rows: Int[Tensor, "m"], table: ValueTable) -> Float[Tensor, "m D"]:
    """What rows without a counterfactual may become that is closest to one: the best change after the other.

    Args:
        admissible: Which rows may be counterfactuals.
        rows: For which rows.
        table: The values to try.
    """
    width, found = len(table.rows), []
    for some in rows.split(max(1, TRIALS_AT_ONCE[rows.device.type] // width)):
        x = admissible.feasible.factual[some]
        best = admissible.advantage(x)
        for _ in range(min(MOST_TOGETHER, admissible.max_changes or MOST_TOGETHER)):
            tried, odds = _single_moves(admissible, some, x, table)
            highest = odds.max(1)
            better = highest.values > best
            index = torch.arange(len(some), device=x.device) * width + highest.indices
            x, best = torch.where(better[:, None], tried[index], x), torch.where(better, highest.values, best)
        found.append(x)
    return torch.cat(found)


def _single_moves(
    admissible: Admissible, rows: Int[Tensor, "m"], base: Float[Tensor, "m D"], table: ValueTable
) -> tuple[Float[Tensor, "t D"], Float[Tensor, "m v"]]:
    """Rows with every value of the table put in, and the log odds of the target there; −∞ where they may not be."""
    feasible, width = admissible.feasible, len(table.rows)
    row, start = rows.repeat_interleave(width), feasible.acted(base, rows).repeat_interleave(width, 0)
    value = torch.arange(width, device=rows.device).repeat(len(rows))
    x = torch.where(table.columns[value], table.rows[value], start)
    inside = ((x >= feasible.lower[row]) & (x <= feasible.upper[row])).all(-1)
    x = feasible.settle(torch.where(x == start, x, feasible.legal(x, row, repair=False)), row)
    open_ = (inside & admissible.is_open(x, row) & (x != start).any(-1)).nonzero()[:, 0]
    odds = torch.full_like(x[:, 0], -torch.inf)
    odds[open_] = admissible.advantage(x[open_])
    return x, odds.view(len(rows), width)
