"""Which constraints bind where there is no counterfactual, by asking the model."""

import itertools
from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.data.axes import MixedAxes
from counterpath.data.constraints import Constraints
from counterpath.data.encoding import Encoder
from counterpath.data.status import BindingConstraint
from counterpath.search.feasible import FeasibleSet
from counterpath.search.objective import Target, by_row

_AT_ONCE = 1 << 13
"""Rows about which the model is asked at once: of a table it takes about as long for one row as for a thousand."""
_VALUES = 9  # over the range of a number: its ends, quarters and eighths show whether a bound matters


def binding_constraints(
    feasible: FeasibleSet,
    end: Float[Tensor, "n D"],
    predict_proba: Callable[[Tensor], Tensor],
    target: Target,
    constraints: Constraints | Sequence[Constraints],
) -> list[list[BindingConstraint]]:
    """For every row the constraints that bind at the end of its path, the one that costs most first.

    A constraint binds if it forbids a value of one feature with which the model decides as asked, all else as it is at
    the end: it is blamed only if the model was asked without it and said yes, and with it no. Every category and nine
    values over the range of a number are tried.

    Args:
        feasible: What each row may become.
        end: Where its path ends.
        predict_proba: The explained model.
        target: What is wanted.
        constraints: Those of all rows, or of each.
    """
    found: list[list[BindingConstraint]] = [[] for _ in range(len(feasible))]
    constraints = [constraints] * len(feasible) if isinstance(constraints, Constraints) else constraints
    changed = feasible.encoder.changed(feasible.origin, end)
    most = next((each.max_changes for each in constraints), None)  # the same for all rows
    full = changed.sum(-1) >= (most or len(feasible.encoder.schema) + 1)
    asked = by_row(target, feasible.confidences)
    more, already = torch.full_like(end[:, 0], -torch.inf), asked.is_reached(predict_proba(end))
    names, layout = feasible.encoder.schema.names, feasible.encoder.layout
    for feature, tried, said in _asked(feasible.encoder, end, predict_proba):
        name, part = names[feature], layout[feature]
        reached, better = target.probability(said).to(end.dtype), asked.is_reached(said) & ~already
        outside = ((tried < feasible.lower) | (tried > feasible.upper)).any(-1)
        further = full & ~changed[:, feature] & ~outside
        more = torch.where(better & further, more.maximum(reached), more)
        if feasible.rules is not None:
            open_ = (better & ~outside).nonzero()[:, 0]
            for row, text, reach in _broken(feasible, open_, tried[open_], predict_proba, target):
                found[row].append(BindingConstraint("rule", text, reach))
        rows = (better & outside).nonzero()[:, 0]
        rises = (tried[rows, part] > feasible.factual[rows, part]).any(-1)
        for row, up, reach in zip(rows.tolist(), rises.tolist(), reached[rows].tolist(), strict=True):
            found[row].append(BindingConstraint(_kind(feasible, constraints[row], name, rises=up), name, reach))
    rows = (more > -torch.inf).nonzero()[:, 0]
    for row, reach in zip(rows.tolist(), more[rows].tolist(), strict=True):
        found[row].append(BindingConstraint("max_changes", str(most), reach))
    return [_strongest(group) for group in found]


def _broken(
    feasible: FeasibleSet, rows: Tensor, tried: Tensor, predict_proba: Callable[[Tensor], Tensor], target: Target
) -> Iterator[tuple[int, str, float]]:
    """The rules that forbid values with which the model decides as asked: of which row, and how probable that is.

    A rule that is met by what follows from the value, or by a change that comes with it, does not stand in the way.
    """
    rules, within = feasible.rules, feasible.at(rows)
    assert rules is not None
    target = by_row(target, within.confidences)
    followed = rules.derive(tried)
    broken = rules.broken(followed, within.origin)
    mended = within.legal(followed, own=True)
    settled = rules.hold(mended, within.origin) & target.is_reached(predict_proba(mended))
    said = predict_proba(followed)
    reached = target.probability(said)
    for index in (broken.any(1) & ~settled & target.is_reached(said)).nonzero()[:, 0].tolist():
        for rule in broken[index].nonzero()[:, 0].tolist():
            yield int(rows[index]), rules.texts[rule], float(reached[index])


def _asked(
    encoder: Encoder, end: Tensor, predict_proba: Callable[[Tensor], Tensor]
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Every feature, the rows with another value of it, and what the model says about them."""
    features = range(len(encoder.schema))
    every = ((feature, tried) for feature in features for tried in _alternatives(encoder, end, feature))
    while some := list(itertools.islice(every, max(1, _AT_ONCE // max(1, len(end))))):
        said = predict_proba(torch.cat([tried for _, tried in some])).split(len(end))
        for (feature, tried), each in zip(some, said, strict=True):
            yield feature, tried, each


def _alternatives(encoder: Encoder, end: Tensor, feature: int) -> Iterator[Tensor]:
    """The rows with other values of one feature, without a gap in it."""
    columns = encoder.layout[feature]
    axis = encoder.axes[feature]
    values = torch.eye(axis.width) if axis.width > 1 else torch.linspace(0, 1, _VALUES)[:, None]
    if isinstance(axis, MixedAxes):
        numbers = torch.zeros(_VALUES, axis.width)
        numbers[:, 0], numbers[:, 1] = torch.linspace(0, 1, _VALUES), 1
        values = torch.cat([numbers, values[2:]])
    if feature in encoder.gaps:  # the last one; that nobody is advised to leave something out is no constraint
        values = values[:-1]
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
