"""Which rows are meant: by label where labels are unique, else by position."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.errors import InputError
from counterpath.explanation.plans import own_labels, people_numbers, plan_numbers

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
