"""Which rows are meant: by label where labels are unique, else by position."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from counterpath.errors import InputError


def positions(index: pd.Index, rows: Iterable[Any]) -> list[int]:
    """Where rows are in an index; a row that is not there is an error that names it."""
    return [_position(index, row) for row in rows]


def take_paths(paths: pd.DataFrame, rows: list[int]) -> pd.DataFrame:
    """The paths of a few rows, whose positions are now counted among these."""
    places = paths.groupby("row").indices
    taken = [np.asarray(places.get(row, ()), dtype=int) for row in rows]
    numbers = np.repeat(np.arange(len(rows)), [len(steps) for steps in taken])
    chosen = paths.iloc[np.concatenate([*taken, np.empty(0, int)])].assign(row=numbers)
    return chosen.astype({"row": paths["row"].dtype}).reset_index(drop=True)


def walkers(index: pd.Index, paths: pd.DataFrame) -> list[Any]:
    """The rows whose paths have more than one step, as `positions` takes them."""
    steps = paths["row"].value_counts()
    places = sorted(steps[steps > 1].index.tolist())
    return index[places].tolist() if index.is_unique else places


def _position(index: pd.Index, row: Any) -> int:
    if not index.is_unique:
        if isinstance(row, int | np.integer) and not isinstance(row, bool) and 0 <= row < len(index):
            return int(row)
        hint = f"its labels are not unique, so give a position from 0 to {len(index) - 1}"
        raise InputError(f"the explanation has no row at {row!r}; {hint}")
    try:
        place = index.get_loc(row)
    except (KeyError, TypeError, pd.errors.InvalidIndexError):
        place = None
    if isinstance(place, int | np.integer):  # and not the slice of part of a label
        return int(place)
    shown = ", ".join(repr(label) for label in index[:5].tolist()) or "none, for it is empty"
    raise InputError(f"the explanation has no row {row!r}; its rows are: {shown}{', …' if len(index) > 5 else ''}")
