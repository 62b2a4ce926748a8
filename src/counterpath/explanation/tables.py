"""The tables of an explanation: their columns, the index with plans, which rows are meant, and what must hold."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_integer_dtype, is_numeric_dtype

from counterpath.data.schema import Feature, Schema
from counterpath.data.status import StatusCode
from counterpath.utils.errors import InputError, choose

STATUS = ("status", "reason", "fallback", "binding", "unseen", "follows", "share", "retrained", "imputed")
_NEW = ("share", "retrained")
"""The columns of a status that explanations from before do not have."""
ROW_CONSTRAINTS = "row_constraints"
"""The part of a request that has what was asked for each row alone."""
OUTCOME = ("class_before", "probability_before", "class_after", "probability_after")
PATH_FRONT = ("row", "step")
PATH_BACK = ("probability", "uncertainty", "length", "map_x", "map_y")
LANDSCAPE = ("map_x", "map_y", "predicted")
FILE = ("status", "reason", "fallback", "binding", *OUTCOME)
"""What a file has beside the counterfactuals."""
BY_ROW = ("factuals", "counterfactuals", "status", "outcome", "changed")
FRAMES = (*BY_ROW, "paths", "landscape")
NEEDED = ("method", "target_class", "confidence")
"""What every request says."""
CHANGES = "changes"
"""What milestones have beside the columns of a path."""
PLAN = "plan"
"""The name of the last level of the index; in a request, the one plan that an explanation still has of several."""
PLANS = "plans"
"""In a request, how many plans were asked for."""
PREFIX = "feature_"
_LABELS_SHOWN = 5  # in an error: enough to see what kind of labels there are, and still one line

KEEP = "paths"
"""In a request, how much of every path is kept."""
ALL, MILESTONES, END = "all", "milestones", "end"
KEEPS = {
    ALL: "every point",
    MILESTONES: "the points that tell it in a few steps",
    END: "nothing but its end, which is the counterfactual",
}
"""What can be kept of a path."""


def with_new_columns(status: pd.DataFrame) -> pd.DataFrame:
    """A status that was written before there were models that may follow, with nothing said of them."""
    if not set(_NEW).isdisjoint(status.columns) or not set(STATUS) - set(_NEW) <= set(status.columns):
        return status
    nothing: pd.Series = pd.Series([[] for _ in range(len(status))], index=status.index, dtype=object)
    return status.assign(share=np.nan, retrained=nothing)[list(STATUS)]


def feature_columns(features: Iterable[str], reserved: Sequence[str]) -> dict[str, str]:
    """The column of each feature in a table that also has the `reserved` columns.

    A feature keeps its name, unless it is reserved: then `feature_` is put before it, as often as it takes to be unlike
    every other feature.

    Example:
        >>> feature_columns(("age", "status"), reserved=("status",))
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


def path_columns(features: Iterable[str]) -> list[str]:
    """The columns of `Explanation.paths`, in order; see `feature_columns` for features that are called like others."""
    return [*PATH_FRONT, *feature_columns(features, PATH_FRONT + PATH_BACK).values(), *PATH_BACK]


def path_features(path: pd.DataFrame, features: Iterable[str]) -> pd.DataFrame:
    """The features of a path under their own names."""
    columns = feature_columns(features, PATH_FRONT + PATH_BACK)
    return path[list(columns.values())].set_axis(list(columns), axis=1)


def moving_features(features: pd.DataFrame) -> list[str]:
    """The features of a path that are not the same all along; a gap is equal to a gap."""
    return [str(name) for name in features if features[name].astype(object).nunique(dropna=False) > 1]


def numeric_features(schema: Schema, frame: pd.DataFrame) -> frozenset[str]:
    """The features that are numbers, so that it makes sense to say by how much they changed."""
    names = (feature.name for feature in schema if not feature.categories)
    return frozenset(name for name in names if is_numeric_dtype(frame[name]) and not is_bool_dtype(frame[name]))


def differences(feature: Feature, old: pd.Series, new: pd.Series) -> NDArray[np.float64]:
    """By how much a number changes; NaN where it becomes, or was, a code or a gap."""
    both = feature.is_measured(old) & feature.is_measured(new)
    found: NDArray[np.float64] = np.full(len(old), np.nan)
    found[both] = new[both].to_numpy(float) - old[both].to_numpy(float)
    return found


def changed_cells(changed: pd.DataFrame, features: Sequence[str]) -> list[tuple[int, str]]:
    """Which feature changed in which row, by position, row after row."""
    rows, columns = np.nonzero(changed[list(features)].to_numpy(bool))
    return [(row, features[column]) for row, column in zip(rows.tolist(), columns.tolist(), strict=True)]


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


def labels_without_plan(index: pd.Index, plans: int) -> pd.Index:
    """The people's own labels, without the number of the plan."""
    return index.droplevel(-1) if plans > 1 and isinstance(index, pd.MultiIndex) else index


def plans_held(request: Mapping[str, Any]) -> int:
    """How many plans everybody has in the explanation of a request: as many as were asked for, unless one was taken."""
    return 1 if request.get(PLAN) is not None else int(request.get(PLANS, 1))


def plan_numbers(index: pd.Index, plans: int) -> NDArray[np.int64]:
    """The number of each row's plan."""
    return index.get_level_values(-1).to_numpy(np.int64) if plans > 1 else np.ones(len(index), np.int64)


def person_numbers(index: pd.Index, plans: int) -> NDArray[np.int64]:
    """Which person each row belongs to, numbered from 0 in the order in which they first appear.

    Where no label is there twice, a person is a label. Else people may have equal labels, and another one begins
    wherever the label changes or the number of the plan does not rise.
    """
    if plans == 1:
        return np.arange(len(index), dtype=np.int64)
    labels, _ = labels_without_plan(index, plans).factorize(use_na_sentinel=False)
    if index.is_unique:
        return labels.astype(np.int64)
    begins = (np.diff(labels) != 0) | (np.diff(plan_numbers(index, plans)) <= 0)
    return np.concatenate([np.zeros(min(len(index), 1), np.int64), np.cumsum(begins)])


def positions(index: pd.Index, rows: Any, plans: int = 1) -> list[int]:
    """Where rows are in an index; a row that is not there is an error that names it.

    Args:
        index: The index of a table.
        rows: One label or several; in a table with plans also (label, plan), and a label alone is all the plans of it.
            Positions instead, if the index has a label twice.
        plans: How many plans the table has for each person.
    """
    wanted = [rows] if _is_one_label(index, rows) else rows
    if not index.is_unique:
        return [_check_position(index, row) for row in wanted]
    if plans == 1:
        return [_find(index, row) for row in wanted]
    people = labels_without_plan(index, plans).unique()
    held: list[dict[int, int]] = [{} for _ in people]  # for each person the position of each plan
    numbers = person_numbers(index, plans).tolist(), plan_numbers(index, plans).tolist()
    for position, (person, plan) in enumerate(zip(*numbers, strict=True)):
        held[person][plan] = position
    return [position for row in wanted for position in _plan_positions(people, held, row)]


def position(index: pd.Index, row: Any, plan: int | None, plans: int) -> int:
    """Where one row is, or one plan of a person, by default the first that is there."""
    if plan is None or plans == 1:
        return positions(index, [row], plans)[0]
    if not index.is_unique:
        raise InputError(f"labels are not unique, so give the position of plan {plan} among all rows, and no plan")
    return positions(index, [(row, plan)], plans)[0]


def _is_one_label(index: pd.Index, rows: Any) -> bool:
    """Whether this is one label; where labels have several parts, a tuple is one unless it ends with a label itself."""
    if pd.api.types.is_scalar(rows):
        return True
    parts = index.nlevels > 1 and index.is_unique
    return parts and isinstance(rows, tuple) and bool(rows) and not isinstance(rows[-1], tuple)


def _check_position(index: pd.Index, row: Any) -> int:
    """A position in an index whose labels do not say which row is meant."""
    if _is_whole(row) and 0 <= row < len(index):
        return int(row)
    hint = f"its labels are not unique, so give a position from 0 to {len(index) - 1}"
    raise InputError(f"the explanation has no row at {row!r}; {hint}")


def _find(index: pd.Index, label: Any) -> int:
    found = _location(index, label)
    if found is None:
        shown = ", ".join(repr(label) for label in index[:_LABELS_SHOWN].tolist()) or "none, for it is empty"
        more = ", …" if len(index) > _LABELS_SHOWN else ""
        raise InputError(f"the explanation has no row {label!r}; its rows are: {shown}{more}")
    return found


def _location(index: pd.Index, label: Any) -> int | None:
    if index.nlevels > 1 and not (isinstance(label, tuple) and len(label) == index.nlevels):
        return None  # part of a label may be in many rows
    try:
        found = index.get_loc(label)
    except (KeyError, TypeError, pd.errors.InvalidIndexError):
        return None
    return int(found) if isinstance(found, int | np.integer) else None


def _plan_positions(people: pd.Index, held: list[dict[int, int]], row: Any) -> list[int]:
    """The positions that a label, or a label with the number of a plan, stands for."""
    for label, plan in _readings(row, people.nlevels):
        person = _location(people, label)
        if person is None:
            continue
        if _is_whole(plan) and plan in held[person]:
            return [held[person][plan]]
        raise InputError(f"row {label!r} has no plan {plan!r}; its plans are: {', '.join(map(str, held[person]))}")
    return list(held[_find(people, row)].values())


def _readings(row: Any, levels: int) -> Iterator[tuple[Any, Any]]:
    """What a row can mean as (label, plan), if it is more than a label: one of several parts may be flat or a tuple."""
    if isinstance(row, tuple) and len(row) == levels + 1:
        yield (row[0] if levels == 1 else row[:-1]), row[-1]
    if isinstance(row, tuple) and len(row) == 2 and isinstance(row[0], tuple):
        yield row


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_plan_number(number: int, request: Mapping[str, Any]) -> None:
    """Raise an error unless the explanation of a request has plans of this number."""
    held = plans_held(request)
    there = list(range(1, held + 1)) if held > 1 else [request.get(PLAN) or 1]
    if isinstance(number, bool) or number not in there:
        raise InputError(
            f"the explanation has no plan {number!r}; its plans are: {', '.join(map(str, there))} (to look for more, "
            f"call explain(…, {PLANS}={max(there) + 1}))"
        )


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
    _check_status(frames["status"])
    rows = frames["paths"]["row"]
    if len(rows) and not rows.between(0, len(factuals) - 1).all():
        raise InputError(f"paths has row {rows.max()} for {len(factuals)} explained rows; expected positions from 0")


def _check_status(status: pd.DataFrame) -> None:
    """Codes are known; binding constraints are a list, and there are none where there is a counterfactual."""
    known = {str(code): code for code in StatusCode}
    for label, code, binding in zip(status.index.tolist(), status["status"], status["binding"], strict=True):
        if code not in known:
            raise InputError(f"row {label!r} has the status {code!r}; expected one of: {', '.join(known)}")
        if not isinstance(binding, list):
            raise InputError(f"row {label!r} has the binding {binding!r}; expected a list, empty if nothing is known")
        if binding and known[code].valid:
            raise InputError(f"row {label!r} has the binding {binding!r}, but a counterfactual; expected an empty list")


def plain_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request as it will be after a round trip through JSON, or an error that says what has no form in it."""
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


def check_keep(keep: Any) -> str:
    """What to keep of paths, if there is such a thing."""
    choose("way to keep paths", str(keep), KEEPS)
    return str(keep)


def keep_of(request: Mapping[str, Any]) -> str:
    """How much of every path is kept in the answer to a request; all unless it says otherwise."""
    return check_keep(request.get(KEEP, ALL))
