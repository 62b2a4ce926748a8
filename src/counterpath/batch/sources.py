"""The files of a batch job: which they are, what they hold, and where to cut them into shards."""

import csv
import glob
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from counterpath.data.schema import KINDS, Feature, Schema
from counterpath.utils.errors import InputError, choose

_CHUNK_BYTES = 1 << 22
"""Of a CSV file that are scanned at a time: large enough for NumPy to be fast, small beside any memory."""
_QUOTE, _NEWLINE, _RETURN = b'"\n\r'
_BATCH_ROWS = 1 << 12
"""Rows of a Parquet file that are decoded at a time: a shard far into a large row group passes all before it."""
_GAPS = ["", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>"]
_GAPS += ["N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"]
"""What pandas takes for a missing value; its own list is private."""
_HASHING_THREADS = 8
"""At most: more threads do not make a disk faster."""


def scan_csv(path: Path, shard_rows: int) -> tuple[int, list[int], list[str]]:
    """How many rows there are, where each shard of so many begins and the last one ends, and the columns' names.

    Blank lines are no rows, just as pandas has it.

    Raises:
        InputError: There is no header, or a quote that nothing closes.
    """
    lines, cuts, header = 0, [], None
    for starts, ends in _lines(path):
        if header is None and len(starts):
            header = (int(starts[0]), int(ends[0]))
        first = np.arange(lines, lines + len(starts)) % shard_rows == 1 % shard_rows  # line 0 is the header
        cuts.extend(starts[first].tolist())
        lines += len(starts)
    if header is None:
        raise InputError("it is empty; expected a header and rows")
    cuts = [cut for cut in cuts if cut > header[0]]
    with path.open("rb") as file:
        text = file.read(header[1]).decode("utf-8-sig", errors="replace")
    columns = next(iter(csv.reader(text.strip("\r\n").splitlines(keepends=True))), [])
    return lines - 1, [*cuts, path.stat().st_size], columns


def _lines(path: Path) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Where lines that are not blank begin and end, some at a time."""
    begin, position, quoted, last = 0, 0, False, 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            content = np.frombuffer(chunk, dtype=np.uint8)
            quotes = content == _QUOTE
            breaks = content == _NEWLINE
            if quoted or quotes.any():
                within = np.logical_xor.accumulate(quotes) ^ quoted
                breaks &= ~within
                quoted = bool(within[-1])
            ends = np.flatnonzero(breaks) + position
            starts = np.concatenate([[begin], ends + 1])
            begin, starts = int(starts[-1]), starts[:-1]
            first = np.concatenate([[last], content])[np.maximum(starts - position + 1, 0)]
            blank = (ends == starts) | ((ends == starts + 1) & (first == _RETURN))
            yield starts[~blank], ends[~blank]
            position, last = position + len(content), int(content[-1])
        if quoted:
            raise InputError("a quote is opened and nothing closes it; correct it, or convert the table to Parquet")
        file.seek(begin)
        if file.read().strip(b"\r\n"):
            yield np.array([begin]), np.array([position])


@dataclass(frozen=True)
class Source:
    """One file, as it was when the job was planned.

    Attributes:
        name: What it is called in messages and results: its path below the folder that was given, or its name.
        path: Where it is.
        bytes: Its size.
        modified: When it was last written, in nanoseconds.
        sha256: The hash of its content.
        rows: How many rows it has.
        cuts: Of a file of comma-separated values, where in it each shard begins, and where the last one ends.
        problem: Why it cannot be read, in words; empty if it can.
    """

    name: str
    path: str
    bytes: int
    modified: int
    sha256: str
    rows: int
    cuts: tuple[int, ...] = ()
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """What is written about it, by which a change is noticed."""
        names = ("name", "bytes", "sha256", "rows", "problem")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Shard:
    """Rows of one file, one after the other.

    Attributes:
        source: The number of the file, from 0.
        number: Which shard of that file, from 0.
        first: Its first row in the file, from 0.
        rows: How many there are.
    """

    source: int
    number: int
    first: int
    rows: int

    @property
    def name(self) -> str:
        """What its files are called; names in order are rows in order."""
        return f"{self.source:05d}-{self.number:06d}"


def find_files(given: str, exclude: Path | None = None) -> list[tuple[str, Path]]:
    """The files that are meant by a file, a folder or a pattern, each with its name, in the order of their names.

    In a folder those count that end in a key of `READERS`, at any depth; hidden files and folders do not, nor do those
    that begin with an underscore. Numbers in names are in numerical order. What is in the folder `exclude`, to which
    results are written, is left out.

    Raises:
        InputError: There is none, or one of another kind.
    """
    path = Path(given)
    if path.is_dir():
        inside = [file.relative_to(path) for file in path.rglob("*") if file.is_file()]
        shown = [file for file in inside if not any(part.startswith((".", "_")) for part in file.parts)]
        found = [(file.as_posix(), path / file) for file in shown if file.suffix.lower() in READERS]
    elif path.is_file():
        found = [(path.name, path)]
    else:
        files = [Path(name) for name in glob.glob(given, recursive=True) if Path(name).is_file()]
        top = Path(os.path.commonpath([file.parent for file in files])) if files else Path()
        found = [(file.relative_to(top).as_posix(), file) for file in files]
    found = [(name, file.resolve()) for name, file in found]
    if exclude is not None:
        found = [(name, file) for name, file in found if not file.is_relative_to(exclude.resolve())]
    if not found:
        kinds = " or ".join(READERS)
        raise InputError(f"there are no rows to read: {given!r} is no file, no folder with {kinds} files, no pattern")
    for name, file in found:
        choose(f"kind of table (the end of {name!r})", file.suffix.lower(), READERS)
    digits = re.compile(r"(\d+)")  # by whose values part-10 comes after part-9
    return sorted(
        found,
        key=lambda one: [(0, int(part)) if part.isdigit() else (1, part) for part in digits.split(one[0])],
    )


def inspect_files(files: Sequence[tuple[str, Path]], columns: Sequence[str], shard_rows: int) -> list[Source]:
    """Look at every file: its hash, its rows, and whether it has the columns that are needed.

    A file that cannot be read is a source with a `problem`; the others can be explained all the same.
    """
    with ThreadPoolExecutor(min(_HASHING_THREADS, os.cpu_count() or 1)) as threads:  # hashing frees the GIL
        return list(threads.map(partial(_inspect, columns=columns, shard_rows=shard_rows), files))


def shards_of(sources: Sequence[Source], shard_rows: int) -> list[Shard]:
    """All shards of all files that can be read, in order."""
    return [
        Shard(index, number, first, min(shard_rows, source.rows - first))
        for index, source in enumerate(sources)
        for number, first in enumerate(range(0, source.rows, shard_rows))
    ]


def check_unchanged(source: Source) -> None:
    """Raise an error if a file is not what it was when the job was planned."""
    now = os.stat(source.path)
    if (now.st_size, now.st_mtime_ns) != (source.bytes, source.modified):
        raise InputError(f"{source.name} has changed while the job ran: run it again")


def _inspect(file: tuple[str, Path], columns: Sequence[str], shard_rows: int) -> Source:
    name, path = file
    stat = path.stat()
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    rows, problem = 0, ""
    cuts: Sequence[int] = ()
    try:
        rows, cuts, found = READERS[path.suffix.lower()](path, shard_rows)
        missing = [column for column in columns if column not in found]
        twice = sorted({column for column in columns if found.count(column) > 1})
        if missing:
            problem = f"it has no column {', '.join(missing)}; it has: {', '.join(found)}"
        if twice:
            problem = f"it has several columns {', '.join(twice)}"
    except (InputError, OSError, pa.ArrowException) as error:
        problem = f"it cannot be read, it is damaged or of another kind: {' '.join(str(error).split())}"
    rows = 0 if problem else rows
    return Source(name, str(path), stat.st_size, stat.st_mtime_ns, sha256, rows, tuple(cuts), problem)


def _scan_parquet(path: Path, shard_rows: int) -> tuple[int, Sequence[int], list[str]]:
    with pq.ParquetFile(path) as file:
        return file.metadata.num_rows, (), list(file.schema_arrow.names)


READERS: dict[str, Callable[[Path, int], tuple[int, Sequence[int], list[str]]]] = {
    ".parquet": _scan_parquet,
    ".csv": scan_csv,
}
"""How to scan a file, by the end of its name, for the number of its rows, its cuts and its columns."""


def read_shard(source: Source, shard: Shard, schema: Schema, ids: Sequence[str]) -> tuple[pd.DataFrame, pa.Table]:
    """The features of the rows of a shard, under their numbers in the file, and the id columns as they are.

    Raises:
        InputError: The file has changed since the job was planned, or is not what it seemed to be.
    """
    check_unchanged(source)
    frame, copied = (_read_csv if source.cuts else _read_parquet)(source, shard, schema, ids)
    if len(frame) != shard.rows:
        raise InputError(
            f"{source.name} has {len(frame)} rows where {shard.rows} were counted, from row {shard.first} on: its "
            "quotes or line breaks cannot be followed; convert it to Parquet"
        )
    return frame.set_axis(pd.RangeIndex(shard.first, shard.first + shard.rows)), copied


def _read_parquet(source: Source, shard: Shard, schema: Schema, ids: Sequence[str]) -> tuple[pd.DataFrame, pa.Table]:
    """Only the row groups that the shard is in are read, in batches: a group may be larger than the memory."""
    end = shard.first + shard.rows
    with pq.ParquetFile(source.path) as file:
        sizes = np.array([file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)])
        ends = np.cumsum(sizes)
        touched = np.flatnonzero((ends > shard.first) & (ends - sizes < end)).tolist()
        position = int(ends[touched[0]] - sizes[touched[0]])
        kept: list[pa.RecordBatch] = []
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=touched, columns=[*ids, *schema.names]):
            first, last = max(shard.first - position, 0), min(end - position, len(batch))
            if first < last:
                kept.append(batch.slice(first, last - first))
            position += len(batch)
            if position >= end:
                break
    table = pa.Table.from_batches(kept)
    return table.select(list(schema.names)).to_pandas(), table.select(list(ids))


def _read_csv(source: Source, shard: Shard, schema: Schema, ids: Sequence[str]) -> tuple[pd.DataFrame, pa.Table]:
    start, end = source.cuts[shard.number], source.cuts[shard.number + 1]
    with Path(source.path).open("rb") as file:
        header = file.read(source.cuts[0])
        file.seek(start)
        content = BytesIO(header + file.read(end - start))
    where = f"{source.name}, from row {shard.first} on,"
    try:
        # All columns are read: if only some are, pandas does not notice rows that have more fields than the header.
        frame = pd.read_csv(
            content,
            encoding="utf-8-sig",
            dtype=object,
            keep_default_na=False,
            na_values=dict.fromkeys(schema.names, _GAPS),  # an identifier may be called NA, which is no gap
        )
    except ValueError as error:  # pandas' parser errors are, too
        raise InputError(f"{where} cannot be read: {error}") from error
    if not isinstance(frame.index, pd.RangeIndex):
        raise InputError(f"{where} has rows with more fields than the header")
    features = {feature.name: _values(frame[feature.name], feature) for feature in schema}
    return pd.DataFrame(features), pa.table({name: pa.array(frame[name], pa.string()) for name in ids})


def _values(column: pd.Series, feature: Feature) -> pd.Series:
    """The values of a feature that are written in a column; what is none stays as it is written."""
    codes, texts = pd.factorize(column)
    is_number = KINDS[feature.kind].categories is None and not KINDS[feature.kind].times  # times stay text
    # Categories by how they are written; true and false in all forms that pandas reads.
    known = {f(f"{one}"): one for one in feature.categories if isinstance(one, bool) for f in (str.lower, str.upper)}
    known |= {str(category): category for category in feature.categories}
    values = [_number(text) if is_number else known.get(text, _category(text, feature.categories)) for text in texts]
    found = np.array([*values, np.nan], dtype=object)[codes]  # a gap has the code -1
    plain = is_number and all(isinstance(value, float) for value in values)
    return pd.Series(found, name=column.name, dtype=np.float64 if plain else object)


def _category(text: str, categories: Sequence[Any]) -> Any:
    """The category that a number stands for: 1.0 is 1."""
    number = _number(text)
    return next((one for one in categories if not isinstance(one, str | bool) and one == number), text)


def _number(text: str) -> float | str:
    """The number that is written, or the text if that is none; Python would read 1_000 as one."""
    try:
        return text if "_" in text else float(text)
    except ValueError:
        return text
