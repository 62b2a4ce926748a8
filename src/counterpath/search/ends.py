"""The closest plausible counterfactual of every row: candidates from several sources, the best of them polished.

A row that none of the quick sources serves is looked for in others, one more thorough than the other, before it is said
that there is nothing: all accepted training rows, all values of one feature and of two, training rows that are nearly
accepted, and last of all whatever is valid, plausible or not, closest to the data.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.search.candidates import (
    NEAREST_ACCEPTED,
    Admissible,
    Candidates,
    Sources,
    all_accepted,
    nearest_accepted,
    nearly_accepted,
    no_candidates,
)
from counterpath.search.combine import (
    combine,
    few_changes,
    likely_sets,
    most_probable,
    pairs_of_changes,
    single_changes,
)
from counterpath.search.method import Problem
from counterpath.search.polish import finalists, keep_most_needed, polish, shrink

_PAIR = 2  # features: all pairs of their values are tried, all triples would take too long
_FEW = 6  # candidates that are kept of each further source: the polish needs a few to choose from


@dataclass(frozen=True)
class Ends:
    """What n rows may become.

    Attributes:
        x: The counterfactuals; where there is none, what came closest to one.
        found: Which rows have one.
        timed_out: For which there was no time to find one.
        implausible: Whose counterfactual is farther from the data than it was to be, because there is none nearer.
    """

    x: Float[Tensor, "n D"]
    found: Bool[Tensor, "n"]
    timed_out: Bool[Tensor, "n"]
    implausible: Bool[Tensor, "n"]

    def take(self, candidates: Candidates, implausible: Bool[Tensor, "m"]) -> "Ends":
        """The same with one candidate for each of some rows."""
        x, found = self.x.index_copy(0, candidates.row, candidates.x), self.found.index_fill(0, candidates.row, True)
        far = self.implausible.index_copy(0, candidates.row, implausible)
        return Ends(x, found, self.timed_out & ~found, far)


def closest_ends(problem: Problem, sources: Sources) -> Ends:
    """The closest plausible counterfactual of every row that has any.

    Args:
        problem: The rows, and what they may become.
        sources: What candidates are made from.
    """
    feasible, options = problem.feasible, problem.options
    nobody = torch.zeros(len(feasible), dtype=torch.bool, device=feasible.factual.device)
    ends = Ends(feasible.factual.clone(), nobody, ~nobody, nobody)
    if len(feasible) == 0 or options.should_stop():
        return ends
    admissible = Admissible.of(problem)
    every = torch.arange(len(feasible), device=nobody.device)
    found = _surviving(problem, _entered(problem, admissible, every))
    ends, found = ends.take(found, nobody[found.row]), no_candidates(feasible)
    for source in (_quick, _every_source, _greedy):
        if source is not _quick and problem.max_changes == 1:
            break  # all there is has been tried
        stuck = every[~ends.found & ~torch.isin(every, found.row)]
        if len(stuck) == 0 or options.should_stop():
            break
        tried = source(problem, sources, admissible, stuck)
        if options.stability is None:
            found = found.join(tried)
            continue
        # On the way rows with many changes may be refused by more models; the next source may have what lasts.
        tried = _surviving(problem, _best(problem, sources, admissible, tried))
        ends = ends.take(tried, nobody[tried.row])
    found = _best(problem, sources, admissible, found)  # all at once: few rows take as many steps as many do
    ends = ends.take(found, nobody[found.row])
    stuck = every[~ends.found]
    if len(stuck) == 0 or options.should_stop():
        return ends
    found = _surviving(problem, _implausible(problem, sources, admissible, stuck))
    ends = replace(ends.take(found, _is_far(problem, admissible, found)), timed_out=nobody)
    stuck = every[~ends.found]
    if len(stuck):
        x = ends.x.index_copy(0, stuck, most_probable(admissible, stuck, sources.coarse))
        ends = replace(ends, x=x)
    return ends


def _entered(problem: Problem, admissible: Admissible, rows: Int[Tensor, "m"]) -> Candidates:
    """Rows that have to enter their bounds, and are valid as soon as they have."""
    feasible = problem.feasible
    rows = rows[(feasible.origin[rows] != feasible.factual[rows]).any(-1)]
    return admissible.admit(feasible.factual[rows], rows)


def _quick(problem: Problem, sources: Sources, admissible: Admissible, rows: Int[Tensor, "m"]) -> Candidates:
    """Sets of up to three changes, and the nearest accepted training rows."""
    if problem.max_changes == 1:
        return single_changes(admissible, rows, sources.fine, _FEW)
    found = _accepted(problem, sources, admissible, rows)
    found = shrink(admissible, finalists(admissible, found)) if problem.options.refine is not False else found
    best = torch.full_like(admissible.reach, torch.inf)
    best = best.scatter_reduce(0, found.row, admissible.cost(found.x, found.row), "amin")
    return found.join(few_changes(admissible, rows, sources.coarse, _FEW, best[rows]))


def _accepted(problem: Problem, sources: Sources, admissible: Admissible, rows: Int[Tensor, "m"]) -> Candidates:
    """Accepted training rows; under a limit on changes with the changes alone that matter most."""
    limit = admissible.max_changes
    if limit is None:
        return nearest_accepted(problem, sources, admissible, rows)
    whole = nearest_accepted(problem, sources, replace(admissible, max_changes=None), rows)
    return keep_most_needed(admissible, whole, limit)


def _every_source(problem: Problem, sources: Sources, admissible: Admissible, rows: Int[Tensor, "m"]) -> Candidates:
    """Some admissible candidates of all accepted training rows, or else of all values of one feature, or of two.

    Last come training rows that are not accepted as they are, and may be with what a person cannot change.

    Hardly a training row differs from a person in one feature or two alone, so that under such a limit none is tried.
    """
    limit, found = problem.max_changes or len(problem.feasible.encoder.layout), no_candidates(problem.feasible)
    if admissible.validator.stability is not None:  # few of all pairs last: sets of three that should are tried
        found = likely_sets(admissible, rows, sources.coarse, _FEW)
        lacking = rows[~torch.isin(rows, found.row)]
        return found.join(all_accepted(problem, sources, admissible, lacking)) if limit > _PAIR else found
    if limit > _PAIR:
        found = all_accepted(problem, sources, admissible, rows)
    for size, search, table in ((1, single_changes, sources.fine), (_PAIR, pairs_of_changes, sources.coarse)):
        lacking = rows[~torch.isin(rows, found.row)]
        if len(lacking) and limit >= size:
            found = found.join(search(admissible, lacking, table, _FEW))
    lacking = rows[~torch.isin(rows, found.row)]
    if len(lacking) and limit > _PAIR:
        found = found.join(nearly_accepted(problem, sources, admissible, lacking))
    return found


def _greedy(problem: Problem, sources: Sources, admissible: Admissible, rows: Int[Tensor, "m"]) -> Candidates:
    """What comes closest to a counterfactual by one change after the other, where that is one."""
    return admissible.admit(most_probable(admissible, rows, sources.coarse), rows)


def _is_far(problem: Problem, admissible: Admissible, found: Candidates) -> Bool[Tensor, "m"]:
    """Which candidates are farther from the data than they were to be."""
    plausibility = problem.setup.plausibility
    if plausibility is None or len(found) == 0:
        return torch.zeros_like(found.row, dtype=torch.bool)
    within, _ = plausibility.within(found.x, admissible.reach[found.row])
    return torch.logical_not(within)


def _implausible(problem: Problem, sources: Sources, admissible: Admissible, rows: Int[Tensor, "m"]) -> Candidates:
    """Of what is valid though not plausible, what is closest to the data: polished, but no farther from them."""
    plausibility, anywhere = problem.setup.plausibility, admissible.anywhere()
    if plausibility is None:
        return no_candidates(problem.feasible)
    found = _entered(problem, anywhere, rows)
    if problem.max_changes != 1:
        found = found.join(combine(anywhere, _unchanged(admissible, rows), sources.coarse, NEAREST_ACCEPTED))
        found = found.join(_accepted(problem, sources, anywhere, rows))
    lacking = rows[~torch.isin(rows, found.row) & admissible.seen_valid[rows]]  # all sources were in vain for others
    if len(lacking):
        found = found.join(_every_source(problem, sources, anywhere, lacking))
    lacking = rows[~torch.isin(rows, found.row)]
    if len(lacking):
        found = found.join(anywhere.admit(most_probable(admissible, lacking, sources.coarse), lacking))
    distance, near = plausibility.nearest(found.x)
    found = replace(found, near=near).cheapest(distance)
    reach = admissible.reach.index_copy(0, found.row, plausibility.distance(found.x))
    return _best(problem, sources, replace(admissible, reach=reach.maximum(admissible.reach)), found)


def _surviving(problem: Problem, found: Candidates) -> Candidates:
    """Those candidates that survive what they have to, by all models that are asked."""
    if problem.options.stability is None:
        return found
    return found.at(problem.validator.lasts(found.x, problem.feasible.origin[found.row]))


def _unchanged(admissible: Admissible, rows: Int[Tensor, "m"]) -> Candidates:
    """The rows as they are, to begin at."""
    return Candidates(rows, admissible.feasible.factual[rows], admissible.near[rows])


def _best(problem: Problem, sources: Sources, admissible: Admissible, found: Candidates) -> Candidates:
    """The cheapest candidate of each row, polished if that is asked for."""
    if problem.options.refine is not False and len(found):
        return polish(admissible, found, sources.coarse, should_stop=problem.options.should_stop)
    return found.cheapest(admissible.cost(found.x, found.row))
