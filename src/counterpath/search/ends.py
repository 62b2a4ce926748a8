"""The closest plausible counterfactual of every row: candidates from several sources, the best of them polished.

A row that none of the quick sources serves is looked for in others, one more thorough than the other, before it is said
that there is nothing: all accepted training rows, all values of one feature and of two, and last of all whatever is
valid, plausible or not, closest to the data.
"""

from collections.abc import Callable
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
    lasting_level,
    nearest_accepted,
    no_candidates,
)
from counterpath.search.combine import combine, few_changes, most_probable, pairs_of_changes, single_changes
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


def closest_ends(problem: Problem, sources: Sources, further: "Further" = None) -> Ends:
    """The closest plausible counterfactual of every row that has any.

    Args:
        problem: The rows, and what they may become.
        sources: What candidates are made from.
        further: For rows that nothing else serves, by their indices: rows that may be admissible, and whose they are.
    """
    feasible, options = problem.feasible, problem.options
    nobody = torch.zeros(len(feasible), dtype=torch.bool, device=feasible.factual.device)
    ends = Ends(feasible.factual.clone(), nobody, ~nobody, nobody)
    if len(feasible) == 0 or options.should_stop():
        return ends
    admissible = replace(Admissible.of(problem), level=lasting_level(problem, sources))
    for source in (_entered, _quick, _thorough, _greedy, _implausible):
        if source in (_thorough, _greedy) and problem.max_changes == 1:
            continue  # all there is has been tried
        stuck = (~ends.found).nonzero()[:, 0]
        if len(stuck) == 0 or (source is not _entered and options.should_stop()):
            break
        found = source(problem, sources, admissible, stuck, further)
        ends = ends.take(found, _is_far(problem, admissible, found) if source is _implausible else nobody[found.row])
    else:
        ends = replace(ends, timed_out=nobody)
        stuck = (~ends.found).nonzero()[:, 0]
        if len(stuck):
            x = ends.x.index_copy(0, stuck, most_probable(admissible, stuck, sources.coarse))
            ends = replace(ends, x=x)
    return ends


Further = Callable[[Tensor], tuple[Tensor, Tensor]] | None


def _entered(
    problem: Problem, sources: Sources, admissible: Admissible, rows: Int[Tensor, "m"], further: Further
) -> Candidates:
    """Rows that have to enter their bounds, and are valid as soon as they have."""
    feasible = problem.feasible
    rows = rows[(feasible.origin[rows] != feasible.factual[rows]).any(-1)]
    return admissible.admit(feasible.factual[rows], rows)


def _quick(
    problem: Problem, sources: Sources, admissible: Admissible, rows: Int[Tensor, "m"], further: Further
) -> Candidates:
    """The polished best of sets of up to three changes and of the nearest accepted training rows."""
    if problem.max_changes == 1:
        found = single_changes(admissible, rows, sources.fine, _FEW)
    else:
        found = _accepted(problem, sources, admissible, rows)
        found = shrink(admissible, finalists(admissible, found)) if problem.options.refine is not False else found
        best = torch.full_like(admissible.reach, torch.inf)
        best = best.scatter_reduce(0, found.row, admissible.cost(found.x, found.row), "amin")
        found = found.join(few_changes(admissible, rows, sources.coarse, _FEW, best[rows]))
    return _best(problem, sources, admissible, found)


def _accepted(problem: Problem, sources: Sources, admissible: Admissible, rows: Int[Tensor, "m"]) -> Candidates:
    """Accepted training rows; under a limit on changes with the changes alone that matter most."""
    limit = admissible.max_changes
    if limit is None:
        return nearest_accepted(problem, sources, admissible, rows)
    whole = nearest_accepted(problem, sources, replace(admissible, max_changes=None), rows)
    return keep_most_needed(admissible, whole, limit)


def _thorough(
    problem: Problem, sources: Sources, admissible: Admissible, rows: Int[Tensor, "m"], further: Further
) -> Candidates:
    """The polished best of all accepted training rows, and of all values of one feature and of two."""
    return _best(problem, sources, admissible, _every_source(problem, sources, admissible, rows))


def _every_source(problem: Problem, sources: Sources, admissible: Admissible, rows: Int[Tensor, "m"]) -> Candidates:
    """Some admissible candidates of all accepted training rows, or else of all values of one feature, or of two.

    Hardly a training row differs from a person in one feature or two alone, so that under such a limit none is tried.
    """
    limit, found = problem.max_changes or len(problem.feasible.encoder.layout), no_candidates(problem.feasible)
    if limit > _PAIR:
        found = all_accepted(problem, sources, admissible, rows)
    for size, search, table in ((1, single_changes, sources.fine), (_PAIR, pairs_of_changes, sources.coarse)):
        lacking = rows[~torch.isin(rows, found.row)]
        if len(lacking) and limit >= size:
            found = found.join(search(admissible, lacking, table, _FEW))
    return found


def _greedy(
    problem: Problem, sources: Sources, admissible: Admissible, rows: Int[Tensor, "m"], further: Further
) -> Candidates:
    """What comes closest to a counterfactual by one change after the other, where that is one."""
    return _best(problem, sources, admissible, admissible.admit(most_probable(admissible, rows, sources.coarse), rows))


def _is_far(problem: Problem, admissible: Admissible, found: Candidates) -> Bool[Tensor, "m"]:
    """Which candidates are farther from the data than they were to be."""
    plausibility = problem.setup.plausibility
    if plausibility is None or len(found) == 0:
        return torch.zeros_like(found.row, dtype=torch.bool)
    within, _ = plausibility.within(found.x, admissible.reach[found.row])
    return torch.logical_not(within)


def _implausible(
    problem: Problem, sources: Sources, admissible: Admissible, rows: Int[Tensor, "m"], further: Further
) -> Candidates:
    """Of what is valid though not plausible, what is closest to the data: polished, but no farther from them."""
    plausibility, anywhere = problem.setup.plausibility, admissible.anywhere()
    if plausibility is None:
        return no_candidates(problem.feasible)
    found = _entered(problem, sources, anywhere, rows, further)
    if problem.max_changes != 1:
        found = found.join(combine(anywhere, _unchanged(admissible, rows), sources.coarse, NEAREST_ACCEPTED))
        found = found.join(_accepted(problem, sources, anywhere, rows))
    lacking = rows[~torch.isin(rows, found.row) & admissible.seen_valid[rows]]  # all sources were in vain for others
    if len(lacking):
        found = found.join(_every_source(problem, sources, anywhere, lacking))
    lacking = rows[~torch.isin(rows, found.row)]
    if len(lacking):
        found = found.join(anywhere.admit(most_probable(admissible, lacking, sources.coarse), lacking))
    lacking = rows[~torch.isin(rows, found.row)]
    lasting = problem.options.stability is not None  # then it is not the model that stands in the way
    if len(lacking) and further is not None and problem.max_changes is None and not lasting:
        found = found.join(anywhere.admit(*further(lacking)))
    distance, near = plausibility.nearest(found.x)
    found = replace(found, near=near).cheapest(distance)
    reach = admissible.reach.index_copy(0, found.row, plausibility.distance(found.x))
    return _best(problem, sources, replace(admissible, reach=reach.maximum(admissible.reach)), found)


def _unchanged(admissible: Admissible, rows: Int[Tensor, "m"]) -> Candidates:
    """The rows as they are, to begin at."""
    return Candidates(rows, admissible.feasible.factual[rows], admissible.near[rows])


def _best(problem: Problem, sources: Sources, admissible: Admissible, found: Candidates) -> Candidates:
    """The cheapest candidate of each row, polished if that is asked for."""
    if problem.options.refine is not False and len(found):
        return polish(admissible, found, sources.coarse, should_stop=problem.options.should_stop)
    return found.cheapest(admissible.cost(found.x, found.row))
