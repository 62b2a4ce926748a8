"""Tables of any library, and files, as pandas tables."""

import gzip
import json
import sys
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import narwhals as nw
import pandas as pd
import pyarrow as pa

from counterpath.errors import InputError, choose

STANDARD_INPUT = "-"


def to_pandas(table: Any) -> pd.DataFrame:
    """The table as a pandas table: one of pandas itself as it is, one of polars or Arrow converted.

    Example:
        >>> to_pandas(pa.table({"age": [20, 60]}))["age"].tolist()
        [20, 60]
    """
    if isinstance(table, pd.DataFrame):
        return table
    try:
        converted: pd.DataFrame = nw.from_native(table, eager_only=True).to_pandas()
    except TypeError as error:
        kind = f"{type(table).__module__}.{type(table).__qualname__}"
        raise InputError(
            f"a table was expected, of pandas, polars or Arrow, and {kind} was given; try pandas.DataFrame(…), for one "
            "row frame.iloc[[0]], and for a lazy table .collect()"
        ) from error
    return converted


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a table; the end of the name says what it is, and "-" is CSV from standard input.

    Args:
        path: A file whose name ends in a key of `READERS`: comma- or tab-separated values with a header, compressed by
            gzip or not; Parquet; JSON, a list of rows or an object of columns; or JSON lines, one row each.

    Raises:
        InputError: The file is not there, is empty, cannot be read as what its name says, or has another name.
    """
    if str(path) == STANDARD_INPUT:
        return csv_table(sys.stdin.buffer.read(), "standard input")
    file = Path(path)
    suffix = "".join(file.suffixes[-2:]) if file.suffix.lower() == ".gz" else file.suffix
    reader = choose(f"kind of table (the end of {file.name!r})", suffix.lower(), READERS)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"the table {file} cannot be read: {error.strerror}") from error
    return _read(reader, content, str(file))


def csv_table(content: bytes, name: str) -> pd.DataFrame:
    """The table in comma-separated values with a header; an error names where they are from.

    Raises:
        InputError: There is nothing, or nothing that can be read.
    """
    return _read(_csv, content, name)


def _read(reader: Callable[[bytes], pd.DataFrame], content: bytes, name: str) -> pd.DataFrame:
    try:
        return reader(content)
    except pd.errors.EmptyDataError as error:
        raise InputError(f"{name} is empty; expected a header and rows") from error
    except (ValueError, EOFError, zlib.error, gzip.BadGzipFile, pa.ArrowException) as error:
        raise InputError(f"{name} cannot be read as a table, it is damaged or of another kind: {error}") from error


def _csv(content: bytes, separator: str = ",") -> pd.DataFrame:
    # Low memory reads a column in pieces, and may give it a mixture of types.
    frame = pd.read_csv(BytesIO(_some(content)), sep=separator, encoding="utf-8-sig", low_memory=False)
    if not isinstance(frame.index, pd.RangeIndex):
        raise ValueError("rows have more fields than the header")
    return frame


def _tsv(content: bytes) -> pd.DataFrame:
    return _csv(content, "\t")


def _parquet(content: bytes) -> pd.DataFrame:
    return pd.read_parquet(BytesIO(_some(content)))


def _json(content: bytes) -> pd.DataFrame:
    return pd.DataFrame(json.loads(_some(content)))


def _json_lines(content: bytes) -> pd.DataFrame:
    return pd.DataFrame([json.loads(line) for line in _some(content).splitlines() if line.strip()])


def _some(content: bytes) -> bytes:
    if not content.strip():
        raise pd.errors.EmptyDataError
    return content


READERS: dict[str, Callable[[bytes], pd.DataFrame]] = {
    ".csv": _csv,
    ".csv.gz": lambda content: _csv(gzip.decompress(content)),
    ".tsv": _tsv,
    ".tsv.gz": lambda content: _tsv(gzip.decompress(content)),
    ".parquet": _parquet,
    ".json": _json,
    ".jsonl": _json_lines,
}
