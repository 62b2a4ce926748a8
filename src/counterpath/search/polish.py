"""Counterfactuals made closer, for many rows at once: every move asks the explained model, and none makes one worse.

Three moves are repeated:

1. **put back**: features return to what they were, the costliest change first;
2. **shrink**: numbers move back towards what they were by bisection, to the legal value next to where validity ends;
   for an ensemble of trees that is just beyond the split that matters;
3. **exchange**: some features return or shrink, others take another of their usual values, and together it costs less:
   see `combine`.

A move is taken if the row is still admissible: feasible, valid, possible and plausible.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.search.candidates import Admissible, Candidates, ValueTable
from counterpath.search.combine import COUPLED, QUICK, combine
from counterpath.utils.progress import ShouldStop, never_stop

_HALVINGS = 8  # of an interval in which validity ends: its end is known to within 1/256 of the change
_LASTING_HALVINGS = 6  # the same where many models are asked about each: to within 1/64
_ROUNDS = 1  # of shrink and exchange: on validation rows a second one lowers the cost by less than 0.1 %
_LASTING = (
    8  # candidates of each row where many models are asked about every move: a third of the time, 1 % of the cost
)
_FINALISTS = 2  # candidates of each row whose numbers are shrunk: the cheapest before is nearly always among them


def polish(
    admissible: Admissible, candidates: Candidates, table: ValueTable, *, should_stop: ShouldStop = never_stop
) -> Candidates:
    """The cheapest counterfactual of every row that has a candidate.

    Args:
        admissible: Which rows may be counterfactuals.
        candidates: Admissible rows, one or more for each row.
        table: Values of features to exchange.
        should_stop: When to be content with what there is.
    """
    best = finalists(admissible, candidates)
    effort = QUICK if admissible.feasible.rules is None else COUPLED
    for number in range(_ROUNDS):
        if should_stop():
            break
        best = shrink(admissible, put_back(admissible, best) if number else best)
        best = best.cheapest(admissible.cost(best.x, best.row))
        if should_stop():
            break
        best = best.join(combine(admissible, best, table, _FINALISTS, effort=effort))
    best = shrink(admissible, put_back(admissible, best))
    best = best.cheapest(admissible.cost(best.x, best.row))
    while True:  # what returned last may make redundant what had to stay before
        before, best = best, put_back(admissible, best)
        if bool((before.x == best.x).all()):
            return best


def finalists(admissible: Admissible, candidates: Candidates) -> Candidates:
    """The candidates without what is redundant, and of each row only those that promise most."""
    if admissible.validator.stability is not None:
        candidates = candidates.cheapest(admissible.cost(candidates.x, candidates.row), _LASTING)
    best = put_back(admissible, candidates)
    return best.cheapest(admissible.cost(best.x, best.row), _FINALISTS)


def put_back(admissible: Admissible, candidates: Candidates) -> Candidates:
    """The candidates with every feature as it was whose change is redundant, the costliest tried first."""
    feasible, row = admissible.feasible, candidates.row
    x, near = candidates.x.clone(), candidates.near.clone()
    amounts = feasible.amounts(x, row)
    order, left = amounts.argsort(dim=1, descending=True, stable=True), (amounts > 0).sum(1)
    one_of = torch.eye(amounts.shape[1], dtype=torch.bool, device=x.device)
    for rank in range(int(left.max()) if len(left) else 0):
        feature = order[:, rank]
        # What is left alone is the whole change: without it the row is the factual one.
        some = ((amounts.gather(1, feature[:, None])[:, 0] > 0) & (left > 1)).nonzero()[:, 0]
        acted = feasible.acted(x[some], row[some])
        tried = torch.where(feasible.columns(one_of[feature[some]]), feasible.anchor[row[some]], acted)
        tried = feasible.settle(tried, row[some])
        if feasible.ruled:  # what comes with a return may cost more than it saves
            cheaper = admissible.cost(tried, row[some]) < admissible.cost(x[some], row[some])
            some, tried = some[cheaper], tried[cheaper]
        good, there = admissible(tried, row[some], near[some])
        x[some[good]], near[some[good]] = tried[good], there[good]
        left[some[good]] -= 1
    return Candidates(row, x, near)


def keep_most_needed(admissible: Admissible, candidates: Candidates, count: int) -> Candidates:
    """Those candidates that are admissible with `count` of their changes alone: the ones whose return costs most.

    Args:
        admissible: Which rows may be counterfactuals.
        candidates: Valid rows, with any number of changes.
        count: How many changes are kept.
    """
    feasible, row = admissible.feasible, candidates.row
    factual, x = feasible.factual[row], feasible.acted(candidates.x, row)
    changed = feasible.features(x != factual)
    probability = torch.full(changed.shape, torch.inf, dtype=x.dtype, device=x.device)
    which, feature = changed.nonzero(as_tuple=True)
    one_of = feasible.columns(torch.eye(changed.shape[1], dtype=torch.bool, device=x.device))
    without = feasible.settle(torch.where(one_of[feature], factual[which], x[which]), row[which])
    probability[which, feature] = admissible.validator.probability(without).to(x.dtype)
    entering = feasible.features(feasible.entering[row])  # these change in any case
    order = probability.masked_fill(entering, -torch.inf).argsort(dim=1, stable=True)
    kept = torch.zeros_like(changed).scatter(1, order[:, :count], value=True) & changed
    x = feasible.settle(torch.where(feasible.columns(kept), x, factual), row)
    return admissible.admit(x, row, candidates.near)


def shrink(admissible: Admissible, candidates: Candidates) -> Candidates:
    """The candidates with every changed number as close to what it was as it can be, the costliest tried first."""
    feasible, row = admissible.feasible, candidates.row
    x, near = candidates.x.clone(), candidates.near.clone()
    encoder, halvings = feasible.encoder, _HALVINGS if admissible.validator.stability is None else _LASTING_HALVINGS
    first = torch.tensor([columns.start for columns in encoder.layout], device=x.device)
    ordered = ~encoder.categorical.to(x.device)[first]
    amounts = feasible.amounts(x, row)
    amounts = torch.where(ordered & _same_state(admissible, x, row), amounts, 0)
    order = amounts.argsort(dim=1, descending=True, stable=True)
    for rank in range(int((amounts > 0).sum(1).max()) if len(row) else 0):
        feature = order[:, rank]
        some = (amounts.gather(1, feature[:, None])[:, 0] > 0).nonzero()[:, 0]
        column, its_row = first[feature[some]], row[some]
        best = x[some, column]
        bad = feasible.anchor[its_row, column]
        for _ in range(halvings):
            acted = feasible.acted(x[some], its_row)
            tried = acted.scatter(1, column[:, None], torch.lerp(bad, best, 0.5)[:, None])
            value = feasible.rounded(tried, its_row).gather(1, column[:, None])[:, 0]
            low, high = torch.minimum(bad, best), torch.maximum(bad, best)
            inside = (value != best) & (value >= low) & (value <= high)
            tried.scatter_(1, column[:, None], value[:, None])
            if feasible.ruled:  # what breaks a rule is no step on the way, and need not be mended
                tried = feasible.legal(tried, its_row, own=True, repair=False)
            inside &= tried.gather(1, column[:, None])[:, 0] == value
            ask = inside.nonzero()[:, 0]
            good = torch.zeros_like(inside)
            good[ask], there = admissible(tried[ask], its_row[ask], near[some[ask]])
            near[some[ask[good[ask]]]] = there[good[ask]]
            bad = torch.where(good, bad, torch.lerp(bad, best, 0.5))
            best = torch.where(good, value, best)
            x[some] = torch.where(good[:, None], tried, x[some])
    return Candidates(row, x, near)


def _same_state(admissible: Admissible, x: Float[Tensor, "q D"], row: Int[Tensor, "q"]) -> Bool[Tensor, "q f"]:
    """Which features are numbers before and after, and no codes or gaps."""
    feasible = admissible.feasible
    categorical = feasible.encoder.categorical.to(x.device)
    return ~feasible.features((x != feasible.anchor[row]) & categorical)
