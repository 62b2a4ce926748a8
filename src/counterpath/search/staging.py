"""Paths that people can follow: no feature goes back and forth, and few of them change at a time.

A path through a latent space shows that the data lead from a row to its counterfactual. Its points are not yet steps
that anybody could take: a decoder may be flat for most of the way and jump at the end, or lower a number on the way to
a higher one. So the path is staged:

1. every feature goes straight from its value to that of the counterfactual: a point keeps the largest share of the way
   that any point before it had, and a category changes once;
2. points that are less plausible than real rows or the ends of the path, have a combination of values that nobody has,
   or are valid already, are left out: a path ends at its first valid point;
3. where more than two features still change in one step, they change one after another, or two at a time where nobody
   is in between, in the order that stays closest to the training rows.
"""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from counterpath.search.feasible import FeasibleSet
from counterpath.search.paths import Paths, is_first, merge, path_fraction, plausible_points
from counterpath.search.validity import Plausibility, Validator

MOST_POINTS = 25
"""Of a path that is staged: the steps of a long search are no steps of a person, and every point is looked up."""
MOST_FEATURES = 2
"""That change in one step: more than two things at a time nobody plans."""
_IMPOSSIBLE = 1e6  # beyond every distance between rows: the last choice, if all orders lead over somebody who cannot be


def stage(validator: Validator, feasible: FeasibleSet, paths: Paths) -> Paths:
    """The paths of rows with a counterfactual staged, and the others as they are.

    Args:
        validator: Asks the model; without plausibility paths stay as they are.
        feasible: What each row may become.
        paths: One for each row.
    """
    plausibility, found = validator.plausibility, paths.found.nonzero()[:, 0]
    if plausibility is None or len(found) == 0:
        return paths
    asks = replace(validator, combinations=None, allow_copies=True)  # what the model says, possible or not
    bounds, chosen = feasible.at(found), paths.select(found)
    within, end = bounds.way, chosen.x[chosen.last]
    start = within.factual

    def asked(row: Tensor, x: Tensor, rows: Tensor) -> Paths:
        asked = asks.paths(within.at(rows), row, x, chosen.reason[rows])
        return replace(asked, valid=asked.valid & bounds.at(rows).contains(x, row))

    row, x = _thinned(chosen)
    x = _straight(within, start, end, row, x, bounds.entering)
    every = torch.arange(len(found), device=found.device)
    staged = _without_detours(validator, plausibility, within, asked(row, x, every))
    crowded = _crowded(within, staged)
    if bool(crowded.any()):
        some = crowded.nonzero()[:, 0]
        row, x = _in_order(validator, plausibility, within.at(some), start[some], end[some])
        chain = _without_detours(validator, plausibility, within.at(some), asked(row, x, some), plausibility.limit)
        staged = merge([((~crowded).nonzero()[:, 0], staged.filter(~crowded)), (some, chain)])
    staged = replace(staged, reason=chosen.reason).described_as(chosen)
    others = (~paths.found).nonzero()[:, 0]
    return merge([(others, paths.select(others)), (found, staged)])


def feature_steps(feasible: FeasibleSet, paths: Paths) -> Int[Tensor, "p"]:
    """How many features change from the point before to each point; 0 for first points."""
    before = paths.x.roll(1, 0)
    changed = feasible.features(paths.x != before)
    counts = (changed & ~feasible.followers).sum(-1)
    return torch.where(is_first(paths.row), 0, counts)


def _is_last(row: Int[Tensor, "p"]) -> Bool[Tensor, "p"]:
    first = is_first(row)
    return torch.cat([first[1:], torch.ones_like(first[:1])])


def _thinned(paths: Paths) -> tuple[Int[Tensor, "p"], Float[Tensor, "p D"]]:
    """At most so many points of each path, evenly spaced, its ends among them."""
    counts = torch.bincount(paths.row, minlength=len(paths.reason))
    starts, kept = counts.cumsum(0) - counts, counts.clamp_max(MOST_POINTS)
    row = torch.arange(len(counts), device=counts.device).repeat_interleave(kept)
    number = torch.arange(len(row), device=counts.device) - (kept.cumsum(0) - kept)[row]
    share = number / (kept[row] - 1).clamp_min(1)
    index = starts[row] + (share * (counts[row] - 1)).round().long()
    return row, paths.x[index]


def _straight(
    feasible: FeasibleSet,
    start: Tensor,
    end: Tensor,
    row: Int[Tensor, "p"],
    x: Float[Tensor, "p D"],
    entering: Bool[Tensor, "n D"],
) -> Float[Tensor, "p D"]:
    """The points with every feature on its way from start to end, never back, as legal rows.

    The search goes on from where a row has entered a range. So what enters one goes evenly all along the path.
    """
    way = (end - start)[row]
    share = torch.where(way == 0, 0, (x - start[row]) / torch.where(way == 0, 1, way)).clamp(0, 1)
    share = torch.where(entering[row], path_fraction(row)[:, None].to(share), share)
    for first, stop in feasible.encoder.blocks:  # a category is the old one or the new one
        share[:, first:stop] = (x[:, first:stop] * end[row, first:stop]).sum(-1, keepdim=True).round()
    mixed = feasible.encoder.rounding(x.device).mixed
    other = start[row][:, mixed + 1] != end[row][:, mixed + 1]  # a value that becomes a code, or is filled in, jumps
    share[:, mixed] = torch.where(other, share[:, mixed + 1], share[:, mixed])
    count, longest = len(start), int(torch.bincount(row).max())
    position = torch.arange(len(row), device=row.device) - (is_first(row).nonzero()[:, 0])[row]
    grid = torch.zeros(count, longest, x.shape[1], dtype=x.dtype, device=x.device)
    grid[row, position] = share
    share = grid.cummax(1).values[row, position]
    moved = feasible.legal(start[row] + share * way, row, repair=False)
    last = _is_last(row)
    moved = torch.where(is_first(row)[:, None], start[row], moved)
    return torch.where(last[:, None], end[row], moved)


def _without_detours(
    validator: Validator,
    plausibility: Plausibility,
    feasible: FeasibleSet,
    paths: Paths,
    distance: float | None = None,
) -> Paths:
    """The points that are plausible, possible and not valid yet, each other than the one before; and both ends."""
    ends = is_first(paths.row) | _is_last(paths.row)
    same = ~is_first(paths.row) & (paths.x == paths.x.roll(1, 0)).all(-1)
    inside = (~ends & ~same & ~paths.valid).nonzero()[:, 0]
    inside = inside[validator.is_possible(paths.x[inside], feasible.factual[paths.row[inside]])]
    look = ends.clone()
    look[inside] = True
    paths = paths.points(look)
    typical = plausibility.typical if distance is None else distance
    return paths.points(plausible_points(paths.row, plausibility.distance(paths.x), typical))


def _crowded(feasible: FeasibleSet, paths: Paths) -> Bool[Tensor, "n"]:
    """Whose paths have a step in which too many features change."""
    many = feature_steps(feasible, paths) > MOST_FEATURES
    return torch.zeros_like(paths.fallback).index_put((paths.row[many],), torch.tensor(True, device=many.device))


def _in_order(
    validator: Validator, plausibility: Plausibility, feasible: FeasibleSet, start: Tensor, end: Tensor
) -> tuple[Int[Tensor, "p"], Float[Tensor, "p D"]]:
    """From start to end by one feature after another, or two where no single one leads to a plausible row."""
    left, everybody = feasible.features(start != end), torch.arange(len(start), device=start.device)
    left &= ~feasible.followers
    here, points, rows = start.clone(), [start], [everybody]
    allowed = plausibility.distance(end).maximum(plausibility.distance(start)).clamp_min(plausibility.limit)
    singles = torch.eye(left.shape[1], dtype=torch.bool, device=start.device)
    one, other = torch.triu_indices(left.shape[1], left.shape[1], 1, device=start.device)
    pairs = singles[one] | singles[other]
    going = (left.sum(1) > MOST_FEATURES).nonzero()[:, 0]
    while len(going):
        step, distance = _best(validator, plausibility, feasible, here, end, left, going, singles)
        far = (distance > allowed[going]).nonzero()[:, 0]
        if len(far):
            step[far] = _best(validator, plausibility, feasible, here, end, left, going[far], pairs)[0]
        here[going] = torch.where(feasible.columns(step), end[going], here[going])
        if feasible.ruled:
            here[going] = feasible.legal(here[going], going, own=True, repair=False)
        left[going] &= ~step
        points.append(here[going])
        rows.append(going)
        going = (left.sum(1) > MOST_FEATURES).nonzero()[:, 0]
    row = torch.cat([*rows, everybody])
    order = row.argsort(stable=True)
    return row[order], torch.cat([*points, end])[order]


def _best(
    validator: Validator,
    plausibility: Plausibility,
    feasible: FeasibleSet,
    here: Tensor,
    end: Tensor,
    left: Bool[Tensor, "n f"],
    going: Int[Tensor, "m"],
    choices: Bool[Tensor, "c f"],
) -> tuple[Bool[Tensor, "m f"], Float[Tensor, "m"]]:
    """Of the choices of features the one that leads closest to the training rows, and how far from them that is."""
    open_to = ~(choices & ~left[going][:, None]).any(-1)
    which, choice = open_to.nonzero(as_tuple=True)
    row = going[which]
    tried = torch.where(feasible.columns(choices[choice]), end[row], here[row])
    if feasible.ruled:
        tried = feasible.legal(tried, row, own=True, repair=False)
    distance = plausibility.distance(tried)
    distance = torch.where(validator.is_possible(tried, feasible.factual[row]), distance, distance + _IMPOSSIBLE)
    table = torch.full(open_to.shape, torch.inf, dtype=distance.dtype, device=distance.device)
    table[which, choice] = distance
    best = table.argmin(1)
    return choices[best], table.gather(1, best[:, None])[:, 0]
