"""Which constraints bind where there is no counterfactual, by asking the model."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.data.constraints import Constraints
from counterpath.data.encoding import Encoder, MixedAxes
from counterpath.data.status import BindingConstraint
from counterpath.search.feasible import FeasibleSet
from counterpath.search.plans import Score

_VALUES = 9  # over the range of a number: its ends, quarters and eighths show whether a bound matters
_GAIN = 1e-6  # of probability: what float32 rounding makes of equal rows is no gain


def binding_constraints(
    feasible: FeasibleSet, end: Float[Tensor, "n D"], probability: Score, constraints: Constraints
) -> list[list[BindingConstraint]]:
    """For every row the constraints that bind at the end of its path, the one that costs most first.

    A constraint binds if it forbids a value of one feature with which the model finds the target more probable
    than at the end as it is. Every category and nine values over the range of a number are tried.
    """
    here = probability(end)
    found: list[list[BindingConstraint]] = [[] for _ in range(len(feasible))]
    changed = feasible.encoder.changed(feasible.origin, end)
    full = changed.sum(-1) >= (constraints.max_changes or len(feasible.encoder.schema) + 1)
    more = torch.full_like(here, -torch.inf)
    for feature, (name, part) in enumerate(zip(feasible.encoder.schema.names, feasible.encoder.layout, strict=True)):
        kinds = {rises: _kind(feasible, constraints, name, rises=rises) for rises in (False, True)}
        for tried in _alternatives(feasible.encoder, end, feature):
            reached = probability(tried)
            better = reached > here + _GAIN
            outside = ((tried < feasible.lower) | (tried > feasible.upper)).any(-1)
            further = full & ~changed[:, feature] & ~outside
            more = torch.where(better & further, more.maximum(reached), more)
            rows = (better & outside).nonzero()[:, 0]
            rises = (tried[rows, part] > feasible.factual[rows, part]).any(-1)
            for row, up, reach in zip(rows.tolist(), rises.tolist(), reached[rows].tolist(), strict=True):
                found[row].append(BindingConstraint(kinds[up], name, reach))
    rows = (more > -torch.inf).nonzero()[:, 0]
    for row, reach in zip(rows.tolist(), more[rows].tolist(), strict=True):
        found[row].append(BindingConstraint("max_changes", str(constraints.max_changes), reach))
    return [_strongest(group) for group in found]


def _alternatives(encoder: Encoder, end: Tensor, feature: int) -> Iterator[Tensor]:
    """The rows with other values of one feature."""
    columns = encoder.layout[feature]
    axis = encoder.axes[feature]
    values = torch.eye(axis.width) if axis.width > 1 else torch.linspace(0, 1, _VALUES)[:, None]
    if isinstance(axis, MixedAxes):
        numbers = torch.zeros(_VALUES, axis.width)
        numbers[:, 0], numbers[:, 1] = torch.linspace(0, 1, _VALUES), 1
        values = torch.cat([numbers, values[2:]])
    for value in values.to(end):
        tried = end.clone()
        tried[:, columns] = value
        legal = end.clone()
        legal[:, columns] = encoder.round(tried)[:, columns]
        yield legal


def _kind(feasible: FeasibleSet, constraints: Constraints, name: str, *, rises: bool) -> str:
    if name in feasible.encoder.schema.immutable:
        return "immutable"
    if name in constraints.lock:
        return "lock"
    if name in constraints.not_actionable(feasible.encoder.schema):
        return "not_actionable"
    direction = constraints.directions.get(name)
    if direction is not None and (direction == "up") != rises:
        return direction
    return "range"


def _strongest(group: list[BindingConstraint]) -> list[BindingConstraint]:
    best: dict[tuple[str, str], BindingConstraint] = {}
    for constraint in group:
        key = (constraint.kind, constraint.feature)
        if key not in best or constraint.reach > best[key].reach:
            best[key] = constraint
    return sorted(best.values(), key=lambda constraint: -constraint.reach)
