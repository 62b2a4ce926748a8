"""Tables of any library and of files; their columns as numbers and back; and their dtypes in JSON.

What cannot be used is refused with an error that names the column and the first bad row (by its index label).
"""

import gzip
import json
import sys
import zlib
from collections.abc import Callable, Hashable, Mapping
from decimal import Decimal
from functools import cache
from io import BytesIO
from numbers import Real
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import NDArray

from counterpath.data.schema import KINDS, TRANSFORMS, Feature, Schema
from counterpath.data.times import example, from_days, is_text, python_type, to_days
from counterpath.utils.errors import InputError, RowsError, choose

STANDARD_INPUT = "-"


def to_pandas(table: Any) -> pd.DataFrame:
    """The table as a pandas table: one of pandas itself as it is, one of polars or Arrow converted.

    Example:
        >>> to_pandas(pa.table({"age": [20, 60]}))["age"].tolist()
        [20, 60]
    """
    if isinstance(table, pd.DataFrame):
        return table
    import narwhals as nw

    try:
        converted: pd.DataFrame = nw.from_native(table, eager_only=True).to_pandas()
    except TypeError as error:
        kind = f"{type(table).__module__}.{type(table).__qualname__}"
        raise InputError(
            f"a table was expected, of pandas, polars or Arrow, and {kind} was given; try pandas.DataFrame(…), for one "
            "row frame.iloc[[0]], and for a lazy table .collect()"
        ) from error
    return converted


def draw_rows(count: int, most: int, seed: int) -> np.ndarray:
    """The indices of `most` of `count` rows, drawn at random without replacement, in their order."""
    return np.sort(np.random.default_rng(seed).choice(count, most, replace=False, shuffle=False))


def read_table(path: str | Path, *, most: int | None = None, seed: int = 0) -> pd.DataFrame:
    """Read a table; the end of the name says what it is, and "-" is CSV from standard input.

    Args:
        path: A file whose name ends in a key of `READERS`: comma- or tab-separated values with a header, compressed by
            gzip or not; Parquet; JSON, a list of rows or an object of columns; or JSON lines, one row each.
        most: Of a Parquet file with more rows read so many only, drawn at random; the others are never held in memory.
        seed: Of the draw.

    Raises:
        InputError: The file is not there, is empty, cannot be read as what its name says, or has another name.
    """
    if str(path) == STANDARD_INPUT:
        return parse_table(sys.stdin.buffer.read(), ".csv", "standard input")
    file = Path(path)
    suffix = "".join(file.suffixes[-2:]) if file.suffix.lower() == ".gz" else file.suffix
    choose(f"kind of table (the end of {file.name!r})", suffix.lower(), READERS)
    try:
        if suffix.lower() == ".parquet" and (table := _read_parquet(file, most, seed)) is not None:
            return table
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"the table {file} cannot be read: {error.strerror}") from error
    return parse_table(content, suffix.lower(), str(file))


def parse_table(content: bytes, suffix: str, name: str) -> pd.DataFrame:
    """The table in the content of a file.

    Args:
        content: The bytes.
        suffix: What they are, a key of `READERS`.
        name: Where they are from, for errors.

    Raises:
        InputError: There is nothing, or nothing that can be read.
    """
    try:
        content = gzip.decompress(content) if suffix.endswith(".gz") else content
        if not content.strip():
            raise pd.errors.EmptyDataError
        return READERS[suffix](content)
    except pd.errors.EmptyDataError as error:
        raise InputError(f"{name} is empty; expected a header and rows") from error
    except (ValueError, EOFError, zlib.error, gzip.BadGzipFile, pa.ArrowException) as error:
        raise InputError(f"{name} cannot be read as a table, it is damaged or of another kind: {error}") from error


def _read_parquet(file: Path, most: int | None, seed: int) -> pd.DataFrame | None:
    """The rows of a file, or `most` of them, drawn at random and read piece by piece; None if it is damaged.

    Every column is given up as soon as it is converted, and read by one thread: each of several keeps memory of its
    own, and together they took three times the table's.
    """
    import pyarrow.parquet as pq

    try:
        source = pq.ParquetFile(file, pre_buffer=False, memory_map=True)
        count = source.metadata.num_rows
        if most is None or count <= most:
            rows = source.read(use_threads=False, use_pandas_metadata=True)
        else:
            drawn, first, kept = draw_rows(count, most, seed), 0, []
            for batch in source.iter_batches(batch_size=_PIECE, use_threads=False):
                inside = drawn[np.searchsorted(drawn, first) : np.searchsorted(drawn, first + len(batch))] - first
                kept.append(batch.take(pa.array(inside)))
                first += len(batch)
            rows = pa.Table.from_batches(kept)
            del kept
        table: pd.DataFrame = rows.to_pandas(split_blocks=True, self_destruct=True)
        return table
    except pa.ArrowException:
        return None  # from its content come the errors that name the file


_PIECE = 65_536  # rows that are read at once: some megabytes, whatever the file


def _csv(content: bytes, separator: str = ",") -> pd.DataFrame:
    # Low memory reads a column in pieces, and may give it a mixture of types.
    frame = pd.read_csv(BytesIO(content), sep=separator, encoding="utf-8-sig", low_memory=False)
    if not isinstance(frame.index, pd.RangeIndex):
        raise ValueError("rows have more fields than the header")
    return frame


READERS: dict[str, Callable[[bytes], pd.DataFrame]] = {
    ".csv": _csv,
    ".csv.gz": _csv,
    ".tsv": lambda content: _csv(content, "\t"),
    ".tsv.gz": lambda content: _csv(content, "\t"),
    ".parquet": lambda content: pd.read_parquet(BytesIO(content)),
    ".json": lambda content: pd.DataFrame(json.loads(content)),
    ".jsonl": lambda content: pd.DataFrame([json.loads(line) for line in content.splitlines() if line.strip()]),
}
"""What makes a table of the content of a file, unpacked, by the end of its name."""


Described: TypeAlias = str | Mapping[str, Any]
"""A dtype in JSON: its name, or a mapping where the name does not say it all."""

_SHORT_FLOATS = {2: torch.float16, 4: torch.float32}  # by their size in bytes


_DECIMAL = "decimal"  # what a column of objects holds that are numbers, and neither integers nor floats


def describe(dtype: Any) -> Described:
    """A value that `json.dumps` takes and `restore` turns back into the dtype.

    Arrow types without a name of their own come back as something close: decimals as float64, because they cannot hold
    every number, and a dictionary as the type of its values.
    """
    if isinstance(dtype, pd.CategoricalDtype):
        categories = dtype.categories
        return {"categories": categories.to_list(), "ordered": bool(dtype.ordered), "of": describe(categories.dtype)}
    if isinstance(dtype, pd.ArrowDtype):
        kind = dtype.pyarrow_dtype
        if pa.types.is_dictionary(kind):
            return describe(pd.ArrowDtype(kind.value_type))
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            return {"arrow": f"timestamp[{kind.unit}]", "zone": kind.tz}
        # pandas reads the name "string[pyarrow]" as another dtype, so that names of Arrow are marked as such.
        return "float64" if pa.types.is_decimal(kind) else {"arrow": str(kind)}
    if isinstance(dtype, pd.StringDtype) and str(dtype) == "string":
        return f"string[{dtype.storage}]"
    return str(dtype)


def restore(described: Described) -> Any:
    """The dtype of a value that `describe` made."""
    try:
        if isinstance(described, str):
            return pd.api.types.pandas_dtype(described)
        if "python" in described:
            return np.dtype(object)
        if "zone" in described:
            return pd.ArrowDtype(pa.timestamp(pa.type_for_alias(described["arrow"]).unit, described["zone"]))
        if "gap" in described:
            return restore(described["of"])
        if "arrow" in described:
            return pd.ArrowDtype(pa.type_for_alias(described["arrow"]))
        categories = pd.Index(described["categories"], dtype=restore(described["of"]))
        return pd.CategoricalDtype(categories, ordered=described["ordered"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{described!r} is not a dtype that this version knows ({error}); fit again") from error


def storage_dtype(described: Described) -> torch.dtype:
    """The floating-point type in which a column stores its numbers; float64 for all but the short ones.

    A column of integers counts as float64: where `decode` has a fraction for it, it becomes float64.
    """
    dtype = restore(described)
    if not pd.api.types.is_float_dtype(dtype):
        return torch.float64
    return _SHORT_FLOATS.get(pd.Series([], dtype=dtype).to_numpy().dtype.itemsize, torch.float64)


def round_inward(lower: float, upper: float, storage: torch.dtype) -> tuple[float, float]:
    """The smallest and the largest number that a floating-point type can hold from `lower` to `upper`."""
    if storage == torch.float64:
        return lower, upper
    scalar = np.float16 if storage == torch.float16 else np.float32
    with np.errstate(over="ignore"):  # a bound that is too large to be held becomes the largest number that is not
        low, high = scalar(lower), scalar(upper)
    low = np.nextafter(low, scalar(np.inf)) if float(low) < lower else low
    high = np.nextafter(high, scalar(-np.inf)) if float(high) > upper else high
    return float(low), float(high)


UNKNOWN = -1
"""The number of a value that is none of the categories: no index is negative."""


def check_columns(frame: pd.DataFrame, schema: Schema) -> None:
    """Raise an error unless the table has exactly the columns of the schema, in any order, or ones that it ignores."""
    columns = [name for name in frame.columns if name not in schema.ignored]
    twice = sorted({str(name) for name in columns if columns.count(name) > 1})
    missing = [name for name in schema.names if name not in columns]
    extra = [str(name) for name in columns if name not in schema.names]
    for problem, names in (("that are there twice", twice), ("that are missing", missing), ("too many", extra)):
        if names:
            beside = f" (and too many: {', '.join(extra)})" if extra and names is missing else ""
            raise InputError(
                f"the table has columns {problem}: {', '.join(names)}{beside}; expected were exactly: "
                f"{', '.join(schema.names)} (frame[list(schema.names)] leaves out a label and all else)"
            )


def without_ignored(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """The table without the columns that its schema ignores."""
    there = [name for name in schema.ignored if name in frame.columns]
    return frame.drop(columns=there) if there else frame


def to_numbers(column: pd.Series, feature: Feature) -> NDArray[np.float64]:
    """The values of a column in original units; for categories their index or `UNKNOWN`; NaN for gaps."""
    missing = column.isna().to_numpy()
    if not feature.missing:
        problem = (
            "is a missing value, and the training rows have none there; fill it in, drop the row, or fit to rows that "
            "have gaps there, or with missing='impute'"
        )
        refuse(column, missing, problem)
    numbers: NDArray[np.float64] = np.full(len(column), np.nan)
    present = column[~missing] if missing.any() else column
    if KINDS[feature.kind].categories is None:
        numbers[~missing] = _numbers(present, feature)
        return numbers
    index: dict[Hashable, int] = {value: i for i, value in enumerate(feature.categories)}
    code, values = _factorize(present)
    found = [index.get(value, UNKNOWN) if isinstance(value, Hashable) else UNKNOWN for value in values]
    numbers[~missing] = np.array(found, dtype=np.float64)[code]
    return numbers


def from_numbers(numbers: NDArray[np.float64], feature: Feature, dtype: Described, index: pd.Index) -> pd.Series:
    """The values that `numbers` stand for, in the given dtype; NaN is a gap. See `column_writer`."""
    column: pd.Series = pd.Series(column_writer(feature, dtype)(numbers))
    return column.set_axis(index).rename(feature.name)


Writer = Callable[[NDArray[np.float64]], Any]
"""Numbers to the values that they stand for, as whatever a column can be made of."""


def column_writer(feature: Feature, dtype: Described) -> Writer:
    """What turns numbers into values in the given dtype; NaN is a gap.

    Numbers that an integer dtype cannot hold without loss come back as float64: half a year of age is not rounded
    away because the training rows happened to have whole years. A feature of the kind "integer" has no such numbers.

    A search asks a model of tables thousands of times, so what hangs on the feature alone is done once, here, and
    columns are made of arrays wherever NumPy holds them.
    """
    target = restore(dtype)
    if KINDS[feature.kind].categories is not None:
        return _category_writer(feature, dtype, target)
    python = "" if isinstance(dtype, str) else dtype.get("python", "")
    if python == _DECIMAL:
        return lambda numbers: pd.Series(
            [None if np.isnan(number) else Decimal(repr(number)) for number in numbers.tolist()], dtype=object
        )
    if KINDS[feature.kind].times:
        return lambda numbers: from_days(numbers, feature.kind, feature.format, target, python)
    plain = isinstance(target, np.dtype)
    if not pd.api.types.is_integer_dtype(target):
        return lambda numbers: numbers.astype(target) if plain else pd.Series(numbers).astype(target)
    limits = np.iinfo(str(pd.Series([], dtype=target).to_numpy().dtype))

    def integers(numbers: NDArray[np.float64]) -> Any:
        missing = np.isnan(numbers)
        gaps = bool(missing.any())
        if (gaps and plain) or not _fits(numbers[~missing], limits):
            return numbers
        if plain:
            return numbers.astype(target)
        return pd.Series(numbers).astype("Int64").astype(target) if gaps else pd.Series(numbers).astype(target)

    return integers


def _category_writer(feature: Feature, dtype: Described, target: Any) -> Writer:
    plain = isinstance(target, np.dtype)
    gap = None if _gaps_are_none(dtype) else np.nan if plain else pd.NA

    @cache
    def levels(*gaps: Any) -> Any:
        column: pd.Series = pd.Series([*feature.categories, *gaps], dtype=target)
        return column.to_numpy() if plain else column.array

    def categories(numbers: NDArray[np.float64]) -> Any:
        missing = np.isnan(numbers)
        every = levels(gap) if missing.any() else levels()
        values = every.take(np.where(missing, len(feature.categories), numbers).astype(np.intp))
        return pd.Series(values, dtype=object) if plain and target.kind == "O" else values  # or it becomes text

    return categories


def cast_if_lossless(column: pd.Series, dtype: Any) -> pd.Series:
    """The column in a dtype, if that changes none of its values; else as it is."""
    missing = column.isna()
    known = not isinstance(dtype, pd.CategoricalDtype) or bool((column.isin(dtype.categories) | missing).all())
    if not known or (missing.any() and isinstance(dtype, np.dtype) and dtype.kind in "iub"):
        return column
    cast, here = column.astype(dtype), ~missing
    return cast if cast[here].tolist() == column[here].tolist() and cast.isna().equals(missing) else column


def described_dtype(column: pd.Series, feature: Feature) -> Described:
    """The dtype to give back; numbers that are stored as objects or categories come back as what they are."""
    if KINDS[feature.kind].categories is None:
        if isinstance(column.dtype, pd.CategoricalDtype):
            return describe(column.dtype.categories.dtype)
        if KINDS[feature.kind].times and column.dtype == object:
            python = python_type(column.dropna())
            return {"python": python} if python else "object"
        if column.dtype == object:
            plain: pd.Series = pd.Series(column.to_list())
            return describe(plain.dtype) if plain.dtype != object else {"python": _DECIMAL}
    if feature.missing and column.dtype == object and any(value is None for value in column):
        return {"of": "object", "gap": None}  # some models tell None and NaN apart
    return describe(column.dtype)


def _gaps_are_none(described: Described) -> bool:
    return not isinstance(described, str) and "gap" in described


def refuse(column: pd.Series, bad: NDArray[np.bool_], problem: str) -> None:
    """Raise an error that names the column and the first bad row, if there is one, and has the others in `reasons`."""
    if not bad.any():
        return
    reasons: dict[Any, str] = {}
    # Labels as plain values, also where they are tuples; of rows with one label the first counts.
    for label, value in zip(column.index[bad].tolist(), column[bad], strict=True):
        plain = value.item() if isinstance(value, np.generic) else value
        reasons.setdefault(label, f"column {column.name!r}, row {label}: {plain!r} {problem}")
    raise RowsError(reasons)


def in_own_type(column: pd.Series, feature: Feature, described: Described) -> pd.Series:
    """Times in the type of the training rows: text of JSON or CSV becomes a date; all else as it is.

    Raises:
        RowsError: A value is not a time.
    """
    present, kinds = column.notna().to_numpy(), (column.dtype.kind, restore(described).kind)
    texts = is_text(column.dtype) or all(isinstance(value, str) for value in column[present])
    if set(kinds) <= set("Mm") or (bool(feature.format) and texts) or describe(column.dtype) == described:
        return column
    numbers: NDArray[np.float64] = np.full(len(column), np.nan)
    numbers[present] = _numbers(column[present], feature)
    return from_numbers(numbers, feature, described, column.index)


def _numbers(column: pd.Series, feature: Feature) -> NDArray[np.float64]:
    if KINDS[feature.kind].times:
        days = to_days(column, feature.kind, feature.format)
        form = f" in the format {feature.format}" if feature.format else ""
        expected = f"expected one such as {example(feature.kind, feature.format)!r}"
        refuse(column, np.isnan(days), f"is not a {feature.kind}{form}; {expected}")
        return days
    kind, transform = KINDS[feature.kind], TRANSFORMS[feature.transform]
    if not pd.api.types.is_any_real_numeric_dtype(column.dtype):
        # One row taken out of a table with `frame.loc[i].to_frame().T` has numbers in columns of objects.
        strange = np.array([not is_number(value) for value in column], dtype=bool)
        refuse(column, strange, f"is not a number, which {feature.kind} features need; try pandas.to_numeric")
    numbers = column.to_numpy(dtype=np.float64)
    refuse(column, ~np.isfinite(numbers), "is not finite; correct it or drop the row")
    if kind.whole:
        problem = "is not a whole number, which integer features need; round it, or declare the feature continuous"
        refuse(column, (numbers != np.rint(numbers)) & ~np.isin(numbers, list(feature.codes)), problem)
    coded = np.isin(numbers, list(feature.codes))
    problem = f"is outside what the transform {feature.transform} takes, numbers above {transform.above:g}"
    refuse(column, (numbers <= transform.above) & ~coded, problem)
    return numbers


def _factorize(column: pd.Series) -> tuple[NDArray[np.intp], list[Any]]:
    """For each row of a column without gaps the index of its value among the different ones, which are plain values."""
    try:
        code, values = column.factorize()
    except TypeError:  # a list or the like among the values has no hash
        return np.arange(len(column)), column.to_list()
    return code, pd.Index(values).to_list()


def is_number(value: Any) -> bool:
    """Whether a value is a number, which truth values are not."""
    return isinstance(value, Real | Decimal) and not isinstance(value, bool | np.bool_)


def _fits(numbers: NDArray[np.float64], limits: "np.iinfo[Any]") -> bool:
    """Whether every number is whole and within the limits of an integer dtype, be it of NumPy, pandas or Arrow."""
    legal = (numbers == np.rint(numbers)) & (numbers >= limits.min) & (numbers < float(int(limits.max) + 1))
    return bool(legal.all())
