"""Tables of the library that the rows came in: polars, Arrow, and whatever else narwhals knows.

Inside, all tables are of pandas. An explanation of rows that came in a table of another library has tables of that one:
the columns of the rows with the types that they had, and an index that says more than the position as a column.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import pandas as pd
import pyarrow as pa

from counterpath.explanation.io import STATUS_TYPES, index_labels
from counterpath.explanation.result import Explanation


@dataclass(frozen=True)
class Library:
    """The library of a table.

    Attributes:
        backend: As narwhals calls it.
        types: The Arrow types of the table's columns.
    """

    backend: Any
    types: dict[str, pa.DataType]

    @classmethod
    def of(cls, table: Any) -> "Library | None":
        """The library of a table; None for pandas."""
        if isinstance(table, pd.DataFrame):
            return None
        import narwhals as nw

        known = nw.from_native(table, eager_only=True)
        schema = known.head(0).to_arrow().schema
        return cls(known.implementation, {field.name: field.type for field in schema})

    def table(self, frame: pd.DataFrame) -> Any:
        """A table of pandas as one of this library."""
        import narwhals as nw

        columns = {}
        if not _is_position(frame.index):
            names = index_labels(frame)
            levels = (frame.index.get_level_values(level) for level in range(frame.index.nlevels))
            columns = {name: self._column(name, level.to_series()) for name, level in zip(names, levels, strict=True)}
        columns |= {str(name): self._column(str(name), frame[name]) for name in frame.columns}
        return nw.to_native(nw.from_arrow(pa.table(columns), backend=self.backend))

    def series(self, column: pd.Series) -> Any:
        """A series of pandas as a column of this library."""
        import narwhals as nw

        name = "" if column.name is None else str(column.name)
        table = pa.table({name: self._column(name, column)})
        return nw.to_native(nw.from_arrow(table, backend=self.backend)[name])

    def convert(self, value: Any) -> Any:
        """What an explanation returns, its tables in this library."""
        if isinstance(value, pd.DataFrame):
            return self.table(value)
        if isinstance(value, pd.Series):
            return self.series(value)
        return NativeExplanation(value, self) if isinstance(value, Explanation) else value

    def _column(self, name: str, column: pd.Series) -> pa.Array:
        """A column with the type that it had in the rows; what has no type of its own, as mixed values, is text."""
        values, known = column.tolist(), STATUS_TYPES.get(name)
        if known is not None and column.dtype == object:
            return pa.array(values, known)
        try:
            array = pa.array(column if column.dtype != object else values, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            array = pa.array([None if value is None or value is pd.NA else str(value) for value in values])
        try:
            return array.cast(self.types.get(name, array.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # the type of the rows cannot hold what was found
            return array


class NativeExplanation(Explanation):
    """An explanation whose tables are those of another library than pandas; `pandas` is the one behind it."""

    _inner: Explanation
    _library: Library

    def __init__(self, inner: Explanation, library: Library) -> None:
        object.__setattr__(self, "_inner", inner)
        object.__setattr__(self, "_library", library)

    @property
    def pandas(self) -> Explanation:
        """The explanation behind it, with tables of pandas."""
        return self._inner

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__
        if name in ("pandas", "_inner", "_library") or name.startswith("__"):
            return own(self, name)
        value = getattr(own(self, "_inner"), name)
        convert: Callable[[Any], Any] = own(self, "_library").convert
        if name.startswith("_") or not callable(value):
            return convert(value)
        return wraps(value)(lambda *args, **options: convert(value(*args, **options)))


def in_library_of(table: Any, value: Any) -> Any:
    """A table or an explanation of pandas in the library of another table."""
    library = Library.of(table)
    return value if library is None else library.convert(value)


def _is_position(index: pd.Index) -> bool:
    """Whether an index says no more than the position."""
    return isinstance(index, pd.RangeIndex) and index.name is None and index.start == 0 and index.step == 1
