"""Which rows are meant: by label where labels are unique, else by position."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_integer_dtype

from counterpath.data.status import StatusCode
from counterpath.utils.errors import InputError

STATUS = ("status", "reason", "fallback", "binding", "imputed")
OUTCOME = ("class_before", "probability_before", "class_after", "probability_after")
PATH_FRONT = ("row", "step")
PATH_BACK = ("probability", "uncertainty", "length", "map_x", "map_y")
LANDSCAPE = ("map_x", "map_y", "predicted")
TOLD = ("status", "reason", "fallback", "binding")
FILE = (*TOLD, *OUTCOME)
BY_ROW = ("factuals", "counterfactuals", "status", "outcome", "changed")
FRAMES = (*BY_ROW, "paths", "landscape")

CHANGES = "changes"
"""What milestones have beside the columns of a path."""

PREFIX = "feature_"


def beside(features: Iterable[str], reserved: Sequence[str]) -> dict[str, str]:
    """The column of each feature in a table that also has the `reserved` columns.

    A feature keeps its name, unless it is reserved: then `feature_` is put before it, as often as it takes to be unlike
    every other feature.

    Example:
        >>> beside(("age", "status"), reserved=("status",))
        {'age': 'age', 'status': 'feature_status'}
    """
    names = tuple(features)
    columns = {}
    for name in names:
        column = name
        while column in reserved or (column != name and column in names):
            column = PREFIX + column
        columns[name] = column
    return columns


def path_features(path: pd.DataFrame, features: Iterable[str]) -> pd.DataFrame:
    """The features of a path under their own names."""
    columns = beside(features, PATH_FRONT + PATH_BACK)
    return path[list(columns.values())].set_axis(list(columns), axis=1)


def milestone_columns(features: Iterable[str]) -> dict[str, str]:
    """For each feature's column of a path its column among milestones, where one more name is taken."""
    names = tuple(features)
    old, new = beside(names, PATH_FRONT + PATH_BACK), beside(names, (*PATH_FRONT, *PATH_BACK, CHANGES))
    return {old[name]: new[name] for name in names}


def path_columns(features: Iterable[str]) -> list[str]:
    """The columns of `Explanation.paths`, in order: see `beside` for a feature that has the name of one of ours."""
    return [*PATH_FRONT, *beside(features, PATH_FRONT + PATH_BACK).values(), *PATH_BACK]


PLAN = "plan"
"""The name of the last level of the index; in a request, the one plan that an explanation still has of several."""
PLANS = "plans"
"""In a request, how many plans were asked for."""


def plan_index(index: pd.Index, plans: int) -> pd.Index:
    """The index of a table with so many plans for each row of another one; for one plan, that one's own.

    Example:
        >>> plan_index(pd.Index(["ann", "bob"]), 2).tolist()
        [('ann', 1), ('ann', 2), ('bob', 1), ('bob', 2)]
    """
    if plans == 1:
        return index
    repeated = index.repeat(plans)
    levels = [repeated.get_level_values(level) for level in range(index.nlevels)]
    numbers = np.tile(np.arange(1, plans + 1), len(index))
    return pd.MultiIndex.from_arrays([*levels, numbers], names=[*index.names, PLAN])


def own_labels(index: pd.Index, plans: int) -> pd.Index:
    """The people's own labels, without the number of the plan."""
    return index.droplevel(-1) if plans > 1 and isinstance(index, pd.MultiIndex) else index


def plans_held(request: Mapping[str, Any]) -> int:
    """How many plans everybody has in the explanation of a request: as many as were asked for, unless one was taken."""
    return 1 if request.get(PLAN) is not None else int(request.get(PLANS, 1))


def plan_numbers(index: pd.Index, plans: int) -> NDArray[np.int64]:
    """The number of each row's plan."""
    return index.get_level_values(-1).to_numpy(np.int64) if plans > 1 else np.ones(len(index), np.int64)


def people_numbers(index: pd.Index, plans: int) -> NDArray[np.int64]:
    """Which person each row belongs to, numbered from 0 in the order in which they first appear.

    Where no label is there twice, a person is a label. Else people may have equal labels, and another one begins
    wherever the label changes or the number of the plan does not rise.
    """
    if plans == 1:
        return np.arange(len(index), dtype=np.int64)
    labels, _ = own_labels(index, plans).factorize(use_na_sentinel=False)
    if index.is_unique:
        return labels.astype(np.int64)
    begins = (np.diff(labels) != 0) | (np.diff(plan_numbers(index, plans)) <= 0)
    return np.concatenate([np.zeros(min(len(index), 1), np.int64), np.cumsum(begins)])


def check_plans(index: pd.Index, request: Mapping[str, Any]) -> None:
    """Raise an error unless the index of the tables has the plans that the request says there are."""
    asked, taken = request.get(PLANS, 1), request.get(PLAN)
    if type(asked) is not int or asked < 1:
        raise InputError(f"the request has {PLANS}={asked!r}; expected a whole number from 1")
    if taken is not None and (type(taken) is not int or not 1 <= taken <= asked):
        raise InputError(f"the request has {PLAN}={taken!r} of {asked}; expected a whole number from 1 to {asked}")
    if plans_held(request) == 1:
        return
    if not isinstance(index, pd.MultiIndex) or index.names[-1] != PLAN or not is_integer_dtype(index.levels[-1].dtype):
        raise InputError(
            f"the request has {PLANS}={asked}, but the index has no last level {PLAN!r} of whole numbers; expected one "
            f"row for each person and plan, as plan_index(index, {asked}) numbers them"
        )
    numbers = plan_numbers(index, asked)
    wrong = numbers[(numbers < 1) | (numbers > asked)]
    if len(wrong):
        raise InputError(f"the index has plan {wrong[0]} of {asked}; expected plans from 1 to {asked}")


def check_number(number: int, request: Mapping[str, Any]) -> None:
    """Raise an error unless the explanation of a request has plans of this number."""
    held = plans_held(request)
    there = list(range(1, held + 1)) if held > 1 else [request.get(PLAN) or 1]
    if isinstance(number, bool) or number not in there:
        raise InputError(
            f"the explanation has no plan {number!r}; its plans are: {', '.join(map(str, there))} (to look for more, "
            f"call explain(…, {PLANS}={max(there) + 1}))"
        )


_MOST_SHOWN = 5


def positions(index: pd.Index, rows: Any, plans: int = 1) -> list[int]:
    """Where rows are in an index; a row that is not there is an error that names it.

    Args:
        index: The index of a table.
        rows: One label or several; in a table with plans also (label, plan), and a label alone is all the plans of it.
            Positions instead, if the index has a label twice.
        plans: How many plans the table has for each person.
    """
    wanted = [rows] if _is_one(index, rows) else rows
    if not index.is_unique:
        return [_checked(index, row) for row in wanted]
    if plans == 1:
        return [_found(index, row) for row in wanted]
    return _plans_found(index, wanted, plans)


def position(index: pd.Index, row: Any, plan: int | None, plans: int) -> int:
    """Where one row is, or one plan of a person, by default the first that is there."""
    if plan is None or plans == 1:
        return positions(index, [row], plans)[0]
    if not index.is_unique:
        raise InputError(f"labels are not unique, so give the position of plan {plan} among all rows, and no plan")
    return positions(index, [(row, plan)], plans)[0]


def path_places(paths: pd.DataFrame) -> dict[int, NDArray[np.intp]]:
    """By the position of a row, which lines of a table of paths are its own: one look at the table for all rows."""
    places: dict[Any, Any] = paths.groupby("row").indices
    return {int(row): np.asarray(of_row) for row, of_row in places.items()}


def take_paths(paths: pd.DataFrame, places: Mapping[int, NDArray[np.intp]], rows: list[int]) -> pd.DataFrame:
    """The paths of a few rows, whose positions are now counted among these; `places` as of `path_places`."""
    taken = [np.asarray(places.get(row, ()), dtype=int) for row in rows]
    numbers = np.repeat(np.arange(len(rows)), [len(steps) for steps in taken])
    chosen = paths.iloc[np.concatenate([*taken, np.empty(0, int)])].assign(row=numbers)
    return chosen.astype({"row": paths["row"].dtype}).reset_index(drop=True)


def walkers(paths: pd.DataFrame) -> list[int]:
    """The positions of the rows whose paths have more than one step."""
    steps = paths["row"].value_counts()
    return sorted(steps[steps > 1].index.tolist())


def _is_one(index: pd.Index, rows: Any) -> bool:
    """Whether this is one label; where labels have several parts, a tuple is one unless it ends with a label itself."""
    if pd.api.types.is_scalar(rows):
        return True
    parts = index.nlevels > 1 and index.is_unique
    return parts and isinstance(rows, tuple) and bool(rows) and not isinstance(rows[-1], tuple)


def _checked(index: pd.Index, row: Any) -> int:
    """A position in an index whose labels do not say which row is meant."""
    if _is_whole(row) and 0 <= row < len(index):
        return int(row)
    hint = f"its labels are not unique, so give a position from 0 to {len(index) - 1}"
    raise InputError(f"the explanation has no row at {row!r}; {hint}")


def _found(index: pd.Index, row: Any) -> int:
    place = _place(index, row)
    if place is None:
        raise _missing(index, row)
    return place


def _plans_found(index: pd.Index, rows: Iterable[Any], plans: int) -> list[int]:
    numbers, people = people_numbers(index, plans).tolist(), own_labels(index, plans).unique()
    held: list[dict[int, int]] = [{} for _ in people]
    for place, (person, plan) in enumerate(zip(numbers, plan_numbers(index, plans).tolist(), strict=True)):
        held[person][plan] = place
    return [place for row in rows for place in _plans_of(people, held, row)]


def _plans_of(people: pd.Index, held: list[dict[int, int]], row: Any) -> list[int]:
    """The positions that a label, or a label with the number of a plan, stands for."""
    for label, plan in _readings(row, people.nlevels):
        person = _place(people, label)
        if person is None:
            continue
        if plan is None:
            return list(held[person].values())
        if _is_whole(plan) and plan in held[person]:
            return [held[person][plan]]
        there = ", ".join(map(str, held[person]))
        raise InputError(f"row {label!r} has no plan {plan!r}; its plans are: {there}")
    raise _missing(people, row)


def _readings(row: Any, levels: int) -> Iterator[tuple[Any, Any]]:
    """What a row can mean as (label, plan): a label of several parts may be flat or a tuple of its own."""
    if isinstance(row, tuple) and len(row) == levels + 1:
        yield (row[0] if levels == 1 else row[:-1]), row[-1]
    if isinstance(row, tuple) and len(row) == 2 and isinstance(row[0], tuple):
        yield row
    yield row, None


def _place(index: pd.Index, label: Any) -> int | None:
    if index.nlevels > 1 and not (isinstance(label, tuple) and len(label) == index.nlevels):
        return None  # part of a label may be in many rows
    try:
        place = index.get_loc(label)
    except (KeyError, TypeError, pd.errors.InvalidIndexError):
        return None
    return int(place) if isinstance(place, int | np.integer) else None


def _missing(index: pd.Index, row: Any) -> InputError:
    shown = ", ".join(repr(label) for label in index[:_MOST_SHOWN].tolist()) or "none, for it is empty"
    more = ", …" if len(index) > _MOST_SHOWN else ""
    return InputError(f"the explanation has no row {row!r}; its rows are: {shown}{more}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


NEEDED = ("method", "target_class", "confidence")


def check_tables(frames: Mapping[str, pd.DataFrame], features: Sequence[str]) -> None:
    """Raise an error if a table lacks a column, has other rows than `factuals`, or a status or path that cannot be.

    Args:
        frames: The tables of an explanation, by the name of their field.
        features: The names of the schema's features.
    """
    factuals = frames["factuals"]
    for name in BY_ROW:
        if not frames[name].index.equals(factuals.index):
            raise InputError(f"{name} and factuals have different indexes; expected the same labels in the same order")
    if list(frames["counterfactuals"].columns) != list(factuals.columns):
        raise InputError("counterfactuals and factuals have different columns; expected the same in the same order")
    expected = {
        "factuals": features,
        "status": STATUS,
        "outcome": OUTCOME,
        "changed": features,
        "paths": path_columns(features),
        "landscape": LANDSCAPE,
    }
    for name, columns in expected.items():
        missing = [column for column in columns if column not in frames[name].columns]
        if missing:
            raise InputError(f"{name} lacks the column {missing[0]!r}; expected: {', '.join(columns)}")
    _check_statuses(frames["status"]["status"])
    _check_binding(frames["status"])
    _check_rows(frames["paths"]["row"], len(factuals))


def plain_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request as it will be after a round trip through JSON, or an error that says what has no place in it."""
    missing = [key for key in NEEDED if key not in request]
    if missing:
        raise InputError(f"the request lacks {missing[0]!r}; expected at least: {', '.join(NEEDED)}")
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(request), allow_nan=False, default=_scalar))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the request has no form in JSON: {error}; expected text, numbers and lists of them"
        ) from error
    return plain


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} {value!r}")


def _check_statuses(status: pd.Series) -> None:
    known = [str(kind) for kind in StatusCode]
    unknown = status[~status.isin(known)]
    if len(unknown):
        given, label = unknown.iloc[0], unknown.index.tolist()[0]
        raise InputError(f"row {label!r} has the status {given!r}; expected one of: {', '.join(known)}")


def _check_binding(status: pd.DataFrame) -> None:
    """Binding constraints are a list, and there are none where there is a counterfactual."""
    valid = status["status"].isin([kind for kind in StatusCode if kind.valid])
    for label, binding, done in zip(status.index.tolist(), status["binding"], valid, strict=True):
        if not isinstance(binding, list):
            raise InputError(f"row {label!r} has the binding {binding!r}; expected a list, empty if nothing is known")
        if binding and done:
            raise InputError(f"row {label!r} has the binding {binding!r}, but a counterfactual; expected an empty list")


def _check_rows(rows: pd.Series, count: int) -> None:
    if len(rows) and not rows.between(0, count - 1).all():
        raise InputError(f"paths has row {rows.max()} for {count} explained rows; expected positions from 0")
