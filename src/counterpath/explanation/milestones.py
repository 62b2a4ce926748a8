"""A long path as a few steps that a person can follow: which of its points to name, and what to say at each.

A milestone is a point of the path, never one between two points: the model was asked about it, and it respects all
constraints. Which points help a reader? Those between which few features change, and no feature goes back and forth.
So a step from one point to another has the length

    ‖a‖_½ = (Σ_f √a_f)²,

where a_f is how much feature f changes, and the milestones are the shortest route along the path in a few steps:

- two features that change one after the other, each by 1, make 1 + 1 = 2; both in one step make (1 + 1)² = 4. A route
  with few features a step is short, unlike in the norms ‖·‖₁ and ‖·‖₂, by which no stop makes a route shorter;
- a change that is taken back is length for nothing;
- the length grows in proportion to the step, so a stop on a straight line gains nothing: there is none.

A step in which more than two features change, or a number moves by less than a tenth of its way, is taken only where no
other route exists.

Douglas–Peucker, the usual way to simplify a line, would keep the points that stick out farthest: where a feature has
strayed most, and not where it has arrived.
"""

from collections.abc import Collection
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.data.schema import Schema
from counterpath.explanation import wording
from counterpath.explanation.tables import CHANGES, PATH_BACK, PATH_FRONT, feature_columns, path_features
from counterpath.utils.errors import InputError

MOST = 5
"""How many milestones a path has unless more or fewer are asked for, both ends included: four steps, about as many as
can be kept in mind."""
_WORTH = 0.1
"""By which share of the single step from end to end a further milestone must make the route shorter: what is a tenth of
all that changes is worth a step of its own."""
_MOST_FEATURES = 2
"""That change in one step, where that is possible: more than two things at a time nobody plans."""
_LEAST_SHARE = 0.1
"""Of its way that a number moves in a step, where that is possible: less is not worth mentioning."""
_AVOIDED = 1e4
"""What an unwanted step costs, for each feature: beyond the length of any route, which is at most the square of the
count of features."""
_SAME = 1e-5
"""Numbers that differ by a smaller share of all that they move are one: the share below which a value is unchanged."""


def list_milestones(
    path: pd.DataFrame, schema: Schema, numeric: Collection[str], most: int = MOST, *, chosen: bool = False
) -> pd.DataFrame:
    """The milestones of a path, with its columns and `changes`; see `Explanation.milestones`.

    Args:
        path: One row a point, as `Explanation.path` has it.
        schema: What the features are.
        numeric: Those that are numbers.
        most: How many milestones there may be.
        chosen: Whether all its points are milestones already, as in `choose_points`.
    """
    features = path_features(path, schema.names)
    chosen_points = choose_points(features, schema, numeric, most, chosen=chosen)
    changes = describe_changes(features.iloc[chosen_points], schema, numeric)
    # Among the columns of milestones one more name is taken than among those of a path.
    taken = (*PATH_FRONT, *PATH_BACK)
    columns = (feature_columns(schema.names, reserved).values() for reserved in (taken, (*taken, CHANGES)))
    stops = path.iloc[chosen_points].rename(columns=dict(zip(*columns, strict=True))).reset_index(drop=True)
    return stops.assign(**{CHANGES: pd.Series(changes, dtype=str)})


def steps_between(milestones: pd.DataFrame) -> tuple[wording.Step, ...]:
    """The steps from milestone to milestone, if there are several: a single one is described by its ends."""
    stops = milestones.iloc[1:]
    steps = zip(stops[CHANGES].tolist(), stops["probability"].tolist(), strict=True)
    return tuple(wording.Step(*step) for step in steps) if len(stops) > 1 else ()


def choose_points(
    points: pd.DataFrame, schema: Schema, numeric: Collection[str], most: int = MOST, *, chosen: bool = False
) -> list[int]:
    """The positions of the milestones of a path, its first and last point included.

    Args:
        points: The features at every point of the path.
        schema: What they are.
        numeric: The features that are numbers.
        most: How many milestones there may be.
        chosen: Whether these points are all that was kept of the path, its milestones. Then they are chosen again only
            if they are too many: without the detours that were left out, others could be chosen of them.
    """
    if isinstance(most, bool) or not isinstance(most, int) or most < 2:
        raise InputError(f"most is {most!r}; expected a whole number from 2, for both ends of a path are milestones")
    if chosen and len(points) <= most:
        return list(range(len(points)))
    return _shortest(*_lengths(*_coordinates(points, schema, numeric)), most)


def only_milestones(paths: pd.DataFrame, schema: Schema, numeric: Collection[str]) -> pd.DataFrame:
    """The milestones of every path, with all that is known of them: which step of the whole path, its length so far.

    Args:
        paths: Every point, path after path, with the columns of `Explanation.paths`.
        schema: What the features are.
        numeric: Those that are numbers.
    """
    points, ordered = _coordinates(path_features(paths, schema.names), schema, numeric)
    row = paths["row"].to_numpy(np.int64)
    ends = np.flatnonzero(np.diff(row, prepend=-1, append=-1)).tolist()
    chosen = [
        start + np.array(_shortest(*_lengths(points[start:stop], ordered), MOST)) for start, stop in pairwise(ends)
    ]
    return paths.iloc[np.concatenate([np.zeros(0, dtype=np.int64), *chosen])].reset_index(drop=True)


def describe_changes(points: pd.DataFrame, schema: Schema, numeric: Collection[str]) -> list[str]:
    """What changes at each milestone since the one before: "job: clerk → boss; hours: 40 → 45", and "" at the first.

    Args:
        points: The features at the milestones.
        schema: The features, in the order in which their changes are listed, and what people call them.
        numeric: Those that are numbers.
    """
    entries: list[list[str]] = [[] for _ in range(len(points))]
    for feature in schema:
        values = list(points[feature.name].array)
        measured = feature.name in numeric and bool(feature.is_measured(points[feature.name]).all())
        kept = _without_noise(values) if measured else values
        for changes, (old, new) in zip(entries[1:], pairwise(kept), strict=True):
            if wording.differ(old, new):
                changes.append(wording.change(feature, old, new).entry)
    return ["; ".join(changes) for changes in entries]


def _coordinates(
    points: pd.DataFrame, schema: Schema, numeric: Collection[str]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The features as numbers, a column each, and which of them have an order; others are equal or not."""
    columns, ordered = [], []
    for feature in schema:
        values, is_numeric = points[feature.name], feature.name in numeric
        if is_numeric:
            columns.append(_filled(values.to_numpy(float, na_value=np.nan)))
        elif feature.kind == "ordinal":
            ranks = {category: rank for rank, category in enumerate(feature.categories)}
            columns.append(np.array([ranks.get(value, -1) for value in values.tolist()], dtype=float))  # −1: a gap
        else:
            columns.append(pd.factorize(values.astype(object), use_na_sentinel=False)[0].astype(float))
        ordered.append(is_numeric or feature.kind == "ordinal")
    return np.column_stack(columns), np.array(ordered)


def _filled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers with a gap as one more of them, farther from each than they are from each other."""
    missing = np.isnan(values)
    if not missing.any() or missing.all():
        return np.nan_to_num(values)
    present = values[~missing]
    return np.where(missing, present.min() - np.ptp(present) - 1, values)


def _lengths(
    points: NDArray[np.float64], ordered: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The length of the step from every point of a path to every other, and what it costs beyond, if it is unwanted.

    All that a feature moves on the path is 1, however little that is of its range: for a reader it is one change, as
    another category is. And which other rows are explained makes no difference.
    """
    roots: NDArray[np.float64] = np.zeros((len(points), len(points)))
    changed, little = np.zeros_like(roots), np.zeros_like(roots)
    spans = np.ptp(points, axis=0)
    for feature in np.flatnonzero(spans):  # most features do not move
        values = points[:, feature]
        if ordered[feature]:
            scaled = values / spans[feature]
            moved = np.abs(scaled[:, None] - scaled)
            roots += np.sqrt(moved)
            little += (moved > _SAME) & (moved < _LEAST_SHARE)
            changed += moved > _SAME
        else:
            roots += values[:, None] != values
            changed += values[:, None] != values
    return roots**2, _AVOIDED * ((changed - _MOST_FEATURES).clip(0) + little)


def _shortest(lengths: NDArray[np.float64], unwanted: NDArray[np.float64], most: int) -> list[int]:
    """The shortest route from the first point to the last over fewer than `most` steps, each of which is worth it."""
    last = len(lengths) - 1
    if last < 1:
        return list(range(len(lengths)))
    price = _WORTH * lengths[0, last]
    ahead = np.where(np.triu(np.ones_like(lengths, dtype=bool), 1), lengths + unwanted, np.inf)
    reached, route = ahead[0], [0, last]
    cost, origins = reached[last] + price, []
    for steps in range(2, min(most, len(lengths))):
        through = reached[:, None] + ahead
        origins.append(through.argmin(axis=0))
        reached = through.min(axis=0)
        if reached[last] + steps * price < cost:
            cost, route = reached[last] + steps * price, [last]
            for origin in reversed(origins):  # from where a point is reached best, for each step but the first
                route.append(int(origin[route[-1]]))
            route = [0, *reversed(route)]
    return route


def _without_noise(values: list[Any]) -> list[Any]:
    """Numbers, each of which is the one before it unless it differs enough to be mentioned."""
    numbers = [float(value) for value in values]  # differences of small integers may not be such
    least = _SAME * (max(numbers) - min(numbers))
    kept = values[:1]
    for value in values[1:]:
        kept.append(value if abs(float(value) - float(kept[-1])) > least else kept[-1])
    return kept
