"""Constraints of each row's own: a table with one line a row, or columns of a batch file.

    age.lock            true: this row's age must not change
    age.direction       up or down
    income.low          where it must end, at least
    income.high         at most
    job.allowed         the categories that are allowed, A|B
    lock                names of features, separated by commas
    unlock              likewise
    target_class        the class that is wanted for this row
    confidence          what its probability must reach
    target_low          of a regressor, what it must predict at least
    target_high         at most

An empty cell says nothing; what a cell says comes beside what the request says about all rows.
"""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from counterpath.data.constraints import Constraints, is_interval
from counterpath.data.schema import KINDS, Feature, Schema
from counterpath.data.tables import to_pandas
from counterpath.utils.errors import InputError, RowsError, choose

TARGETS = ("target_class", "confidence", "target_low", "target_high")
"""The columns that say what is wanted of a row."""
OWN_CONSTRAINTS = ("lock", "unlock", "directions", "ranges")
"""What a row's own constraints may say about what may change, as arguments of a request."""
OWN_TARGETS = ("target_class", "confidence", "target_range")
"""And about its target."""
_NAMES = ("lock", "unlock")
_BY_FEATURE = ("lock", "direction", "low", "high", "allowed")
_TRUE = {"true": True, "yes": True, "1": True, "1.0": True, "false": False, "no": False, "0": False, "0.0": False}
_PATTERN = "FEATURE.lock, FEATURE.direction, FEATURE.low, FEATURE.high or FEATURE.allowed"

Row = Mapping[str, Any]
"""The constraints of one row, as arguments of a request; nothing for none."""


def check_constraint_columns(schema: Schema, names: Sequence[Any]) -> None:
    """Raise an error unless all names are columns of such a table."""
    for name in names:
        if name in TARGETS or name in _NAMES:
            continue
        feature, dot, what = str(name).rpartition(".")
        if not dot or what not in _BY_FEATURE:
            raise InputError(
                f"the table of constraints has the column {name!r}; expected are {_PATTERN}, "
                f"{', '.join((*_NAMES, *TARGETS))}"
            )
        choose("feature in the table of constraints:", feature, {each.name: each for each in schema})


def parse_row_constraints(schema: Schema, table: Any, index: pd.Index) -> tuple[Row, ...]:
    """The constraints of every row of a table.

    Args:
        schema: What the features are.
        table: One line a row: by its label, or without labels of its own in the order of the rows. Rows that are not
            there have no constraints of their own.
        index: The labels of the rows.

    Raises:
        InputError: A column or a row is not known, or a row is there twice.
        RowsError: What is said about a row cannot be; by its label.
    """
    frame = to_pandas(table)
    check_constraint_columns(schema, list(frame.columns))
    plain = isinstance(frame.index, pd.RangeIndex) and frame.index.start == 0 and frame.index.step == 1
    if plain and len(frame) == len(index):
        frame = frame.set_axis(index)
    elif not frame.index.isin(index).all():
        unknown = frame.index[~frame.index.isin(index)].tolist()[0]
        raise InputError(
            f"the table of constraints has the row {unknown!r}, which is not among the {len(index)} rows to explain; "
            "give it the labels of these rows, or one line for each in their order"
        )
    if frame.index.has_duplicates:
        twice = frame.index[frame.index.duplicated()].tolist()[0]
        raise InputError(f"the table of constraints has the row {twice!r} twice; expected one line a row")
    found: dict[Any, Row] = {}
    reasons: dict[Any, str] = {}
    for label, cells in zip(frame.index, frame.to_dict("records"), strict=True):
        try:
            found[label] = _row(schema, {str(name): cell for name, cell in cells.items()})
        except InputError as error:
            reasons[label] = f"the constraints of row {label!r}: {error}"
    if reasons:
        raise RowsError(reasons)
    return tuple(found.get(label, {}) for label in index)


def _row(schema: Schema, cells: Mapping[str, Any]) -> Row:
    given = {name: cell for name, cell in cells.items() if not _is_empty(cell)}
    row: dict[str, Any] = {name: _names(given[name]) for name in _NAMES if name in given}
    for name in given:
        feature, dot, what = name.rpartition(".")
        if not dot or what not in _BY_FEATURE:
            continue
        cell = given[name].item() if isinstance(given[name], np.generic) else given[name]
        if what == "lock":
            if choose(f"value of {name!r}:", str(cell).lower(), _TRUE):
                row["lock"] = [*row.get("lock", []), feature]
        elif what == "direction":
            row.setdefault("directions", {})[feature] = str(cell)
        else:
            row.setdefault("ranges", {})[feature] = _range(schema[feature], given)
    if "target_class" in given:
        cell = given["target_class"]
        row["target_class"] = cell.item() if isinstance(cell, np.generic) else cell
    if "confidence" in given:
        row["confidence"] = _number("confidence", given["confidence"])
    ends = [_number(name, given[name]) if name in given else None for name in ("target_low", "target_high")]
    if ends != [None, None]:
        row["target_range"] = ends
    Constraints.of(schema, **{name: row[name] for name in row if name in OWN_CONSTRAINTS})
    return row


def _is_empty(cell: Any) -> bool:
    if isinstance(cell, list | tuple | set | dict | np.ndarray):
        return len(cell) == 0
    return cell is None or cell is pd.NA or cell is pd.NaT or cell != cell or cell == ""


def _names(cell: Any) -> list[str]:
    listed = cell.split(",") if isinstance(cell, str) else list(cell)
    return [str(name).strip() for name in listed]


def _range(feature: Feature, given: Mapping[str, Any]) -> list[Any]:
    low, high, allowed = (given.get(f"{feature.name}.{what}") for what in ("low", "high", "allowed"))
    if not is_interval(feature):
        if allowed is None:
            raise InputError(f"feature {feature.name!r} has no order; expected {feature.name}.allowed, such as A|B")
        return allowed.split("|") if isinstance(allowed, str) else list(allowed)
    if allowed is not None:
        raise InputError(f"feature {feature.name!r} has an order; expected {feature.name}.low and {feature.name}.high")
    ends = [cell.item() if isinstance(cell, np.generic) else cell for cell in (low, high)]
    is_number = not feature.categories and not KINDS[feature.kind].times
    if is_number:  # files of text have text
        ends = [
            _number(f"{feature.name}.{what}", end) if isinstance(end, str) else end
            for what, end in zip(("low", "high"), ends, strict=True)
        ]
    return ends


def _number(name: str, cell: Any) -> float:
    try:
        number = float(cell) if isinstance(cell, Real | str) and not isinstance(cell, bool) else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name} is {cell!r}; expected a number")
    return number


def merged(constraints: Constraints, row: Row, schema: Schema) -> Constraints:
    """The constraints of a request with those of a row beside them; where both say something, the row's count."""
    if not any(name in row for name in OWN_CONSTRAINTS):
        return constraints
    given = dict(vars(constraints))
    for name in _NAMES:
        given[name] = (*given[name], *row.get(name, ()))
    for name in ("directions", "ranges"):
        given[name] = {**given[name], **row.get(name, {})}
    return Constraints.of(schema, **given)
