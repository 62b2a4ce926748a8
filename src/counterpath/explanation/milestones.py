"""A long path as a few steps that a person can follow: which of its points to name, and what to say at each.

A milestone is a point of the path, never one between two points: the model was asked about it, and it respects all
constraints. Which points help a reader? Those between which few features change, and no feature goes back and forth.
So a step from one point to another has the length

    ‖a‖_½ = (Σ_f √a_f)²,

where a_f is how much feature f changes, and the milestones are the shortest way along the path in a few steps:

- two features that change one after the other, each by 1, make 1 + 1 = 2; both in one step make (1 + 1)² = 4. A way
  with few features a step is short, unlike in the norms ‖·‖₁ and ‖·‖₂, by which no stop makes a way shorter;
- a change that is taken back is length for nothing;
- the length grows in proportion to the step, so a stop on a straight line gains nothing: there is none.

Douglas–Peucker, the usual way to simplify a line, would keep the points that stick out farthest: where a feature has
strayed most, and not where it has arrived.
"""

from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.data.schema import Schema
from counterpath.explanation import wording
from counterpath.explanation.tables import CHANGES, milestone_columns, path_features
from counterpath.utils.errors import InputError, choose

MOST = 5
"""How many milestones a path has at most, both ends included, unless more or fewer are asked for."""
WORTH = 0.1
"""A further milestone must make the way shorter by this share of the single step from end to end."""
SAME = 1e-5
"""Numbers that differ by no more than this share of all that they move are told as one."""


def check_most(most: int) -> None:
    """Raise an error unless so many milestones can be had: both ends are two."""
    if isinstance(most, bool) or not isinstance(most, int) or most < 2:
        raise InputError(f"most is {most!r}; expected a whole number from 2, for both ends of a path are milestones")


def list_milestones(
    path: pd.DataFrame, schema: Schema, numbers: Collection[str], most: int = MOST, *, chosen: bool = False
) -> pd.DataFrame:
    """The milestones of a path, with its columns and `changes`; see `Explanation.milestones`.

    Args:
        path: One row a point, as `Explanation.path` has it.
        schema: What the features are.
        numbers: Those that are numbers.
        most: How many milestones there may be.
        chosen: Whether all its points are milestones already, as in `choose`.
    """
    points = path_features(path, schema.names)
    places = choose_points(points, schema, numbers, most, chosen=chosen)
    changes = tell(points.iloc[places], schema.names, numbers)
    stops = path.iloc[places].rename(columns=milestone_columns(schema.names)).reset_index(drop=True)
    return stops.assign(**{CHANGES: pd.Series(changes, dtype=str)})


def list_steps(
    path: pd.DataFrame, schema: Schema, numbers: Collection[str], *, chosen: bool = False
) -> tuple[wording.Step, ...]:
    """The steps from milestone to milestone, if there are several: a single one is told by its ends."""
    return steps_between(list_milestones(path, schema, numbers, chosen=chosen))


def steps_between(milestones: pd.DataFrame) -> tuple[wording.Step, ...]:
    """The same from the milestones, as `list_milestones` has them."""
    stops = milestones.iloc[1:]
    steps = zip(stops[CHANGES].tolist(), stops["probability"].tolist(), strict=True)
    return tuple(wording.Step(*step) for step in steps) if len(stops) > 1 else ()


def choose_points(
    points: pd.DataFrame, schema: Schema, numbers: Collection[str], most: int = MOST, *, chosen: bool = False
) -> list[int]:
    """The positions of the milestones of a path, its first and last point included.

    Args:
        points: The features at every point of the path.
        schema: What they are.
        numbers: The features that are numbers.
        most: How many milestones there may be.
        chosen: Whether these points are all that was kept of the path, its milestones. Then they are chosen again only
            if they are too many: without the detours that were left out, others could be chosen of them.
    """
    check_most(most)
    if chosen and len(points) <= most:
        return list(range(len(points)))
    return _shortest(_lengths(*_places(points, schema, numbers)), most)


def choose_each(
    points: pd.DataFrame, row: NDArray[np.int64], schema: Schema, numbers: Collection[str]
) -> NDArray[np.int64]:
    """The positions of the milestones of many paths, as `choose_points` finds them for each.

    Args:
        points: The features at every point, path after path.
        row: Which path each point belongs to, numbered from 0.
        schema: What the features are.
        numbers: Those that are numbers.
    """
    places, ordered = _places(points, schema, numbers)
    ends = np.flatnonzero(np.diff(row, prepend=-1, append=-1)).tolist()
    chosen = [
        start + np.array(_shortest(_lengths(places[start:stop], ordered), MOST)) for start, stop in pairwise(ends)
    ]
    return np.concatenate([np.zeros(0, dtype=np.int64), *chosen])


def tell(points: pd.DataFrame, features: Collection[str], numbers: Collection[str]) -> list[str]:
    """What changes at each milestone since the one before: "job: clerk → boss; hours: 40 → 45", and "" at the first.

    The text with which a feature leaves a milestone is the one with which it arrived there.

    Args:
        points: The features at the milestones.
        features: Their names, in the order in which their changes are told.
        numbers: Those that are numbers.
    """
    told: list[list[str]] = [[] for _ in range(len(points))]
    for name in features:
        values = points[name].tolist()
        texts = wording.texts(_settled(values) if name in numbers else values)
        for changes, (old, new) in zip(told[1:], pairwise(texts), strict=True):
            if old != new:
                changes.append(wording.Change(name, old, new).entry)
    return ["; ".join(changes) for changes in told]


def _places(
    points: pd.DataFrame, schema: Schema, numbers: Collection[str]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The features as numbers, a column each, and which of them have an order; others are equal or not."""
    columns, ordered = [], []
    for feature in schema:
        values, is_number = points[feature.name], feature.name in numbers
        if is_number:
            columns.append(values.to_numpy(float))
        elif feature.kind == "ordinal":
            place = {category: number for number, category in enumerate(feature.categories)}
            columns.append(np.array([place[value] for value in values.tolist()], dtype=float))
        else:
            columns.append(pd.factorize(values.astype(object), use_na_sentinel=False)[0].astype(float))
        ordered.append(is_number or feature.kind == "ordinal")
    return np.column_stack(columns), np.array(ordered)


def _lengths(places: NDArray[np.float64], ordered: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The length of the step from every point of a path to every other.

    All that a feature moves on the path is 1, however little that is of its range: for a reader it is one change, as
    another category is. And who else was asked about makes no difference.
    """
    roots: NDArray[np.float64] = np.zeros((len(places), len(places)))
    spans = np.ptp(places, axis=0)
    for feature in np.flatnonzero(spans):  # most features do not move
        values = places[:, feature]
        if ordered[feature]:
            scaled = values / spans[feature]
            roots += np.sqrt(np.abs(scaled[:, None] - scaled))
        else:
            roots += values[:, None] != values
    return roots**2


def _shortest(lengths: NDArray[np.float64], most: int) -> list[int]:
    """The shortest way from the first point to the last over fewer than `most` steps, each of which is worth it."""
    last = len(lengths) - 1
    if last < 1:
        return list(range(len(lengths)))
    price = WORTH * lengths[0, last]
    ahead = np.where(np.triu(np.ones_like(lengths, dtype=bool), 1), lengths, np.inf)
    reached, ways = ahead[0], [[0, last]]
    cost, before = reached[last] + price, []
    for steps in range(2, min(most, len(lengths))):
        through = reached[:, None] + ahead
        before.append(through.argmin(axis=0))
        reached = through.min(axis=0)
        if reached[last] + steps * price < cost:
            cost = reached[last] + steps * price
            ways.append(_traced(before, last))
    return ways[-1]


def _traced(before: list[NDArray[np.int64]], last: int) -> list[int]:
    """The way to the last point, given for each step but the first from where a point is reached best."""
    way = [last]
    for origin in reversed(before):
        way.append(int(origin[way[-1]]))
    return [0, *reversed(way)]


def _settled(values: list[Any]) -> list[Any]:
    """Numbers, each of which is the one before it unless it differs enough to be told."""
    least = SAME * (max(values) - min(values))
    settled = values[:1]
    for value in values[1:]:
        settled.append(value if abs(value - settled[-1]) > least else settled[-1])
    return settled


KEEP = "paths"
"""In a request, how much of every path is kept."""
ALL, MILESTONES, END = "all", "milestones", "end"
KEEPS = {
    ALL: "every point",
    MILESTONES: "the points that tell it in a few steps",
    END: "nothing but its end, which is the counterfactual",
}
"""What can be kept of a path."""


def check_keep(keep: Any) -> str:
    """What to keep of paths, if there is such a thing."""
    choose("way to keep paths", str(keep), KEEPS)
    return str(keep)


def keep_of(request: Mapping[str, Any]) -> str:
    """How much of every path is kept in the answer to a request; those from before it could be said keep all."""
    return check_keep(request.get(KEEP, ALL))


def only_milestones(paths: pd.DataFrame, schema: Schema, numbers: Collection[str]) -> pd.DataFrame:
    """The milestones of every path, with all that is known of them: which step of the whole path, its length so far.

    Args:
        paths: Every point, path after path, with the columns of `Explanation.paths`.
        schema: What the features are.
        numbers: Those that are numbers.
    """
    places = choose_each(path_features(paths, schema.names), paths["row"].to_numpy(np.int64), schema, numbers)
    return paths.iloc[places].reset_index(drop=True)
