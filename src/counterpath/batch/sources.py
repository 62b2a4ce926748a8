"""The files of a batch job: which they are, what they hold, and where to cut them into shards."""

import glob
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from counterpath.batch.csv_scan import scan
from counterpath.errors import InputError, choose

_PART = re.compile(r"(\d+)")


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
        """What is written about it, which tells whether it has changed."""
        names = ("name", "bytes", "sha256", "rows", "problem")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Shard:
    """Rows of one file, one after the other.

    Attributes:
        source: The place of the file among all.
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


def find(given: str, without: Path | None = None) -> list[tuple[str, Path]]:
    """The files that are meant by a file, a folder or a pattern, each with its name, in the order of their names.

    In a folder those count that end in a key of `KINDS`, at any depth; hidden files and folders do not, nor do those
    that begin with an underscore. Numbers in names are in numerical order. What is in the folder `without`, to which
    results are written, is left out.

    Raises:
        InputError: There is none, or one of another kind.
    """
    place = Path(given)
    if place.is_dir():
        inside = (path.relative_to(place) for path in place.rglob("*") if path.is_file())
        names = [path for path in inside if path.suffix.lower() in KINDS and not _hidden(path)]
        found = [(path.as_posix(), place / path) for path in names]
    elif place.is_file():
        found = [(place.name, place)]
    else:
        paths = [Path(name) for name in glob.glob(given, recursive=True) if Path(name).is_file()]
        top = Path(os.path.commonpath([path.parent for path in paths])) if paths else Path()
        found = [(path.relative_to(top).as_posix(), path) for path in paths]
    found = [(name, path.resolve()) for name, path in found]
    if without is not None:
        found = [(name, path) for name, path in found if not path.is_relative_to(without.resolve())]
    if not found:
        kinds = " or ".join(KINDS)
        raise InputError(f"there are no rows to read: {given!r} is no file, no folder with {kinds} files, no pattern")
    for name, path in found:
        choose(f"kind of table (the end of {name!r})", path.suffix.lower(), KINDS)
    return sorted(found, key=lambda one: _in_order(one[0]))


def survey(files: Sequence[tuple[str, Path]], columns: Sequence[str], shard_rows: int) -> list[Source]:
    """Look at every file: its hash, its rows, and whether it has the columns that are needed.

    A file that cannot be read is a source with a `problem`; the others can be explained all the same.
    """
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:  # hashing lets other threads run
        return list(threads.map(partial(_look, columns=columns, shard_rows=shard_rows), files))


def shards_of(sources: Sequence[Source], shard_rows: int) -> list[Shard]:
    """All shards of all files that can be read, in order."""
    return [
        Shard(place, number, first, min(shard_rows, source.rows - first))
        for place, source in enumerate(sources)
        for number, first in enumerate(range(0, source.rows, shard_rows))
    ]


def insist_unchanged(source: Source) -> None:
    """Raise an error if a file is not what it was when the job was planned."""
    now = os.stat(source.path)
    if (now.st_size, now.st_mtime_ns) != (source.bytes, source.modified):
        raise InputError(f"{source.name} has changed while the job ran: run it again")


def _look(file: tuple[str, Path], columns: Sequence[str], shard_rows: int) -> Source:
    name, path = file
    there = path.stat()
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    rows, problem = 0, ""
    cuts: Sequence[int] = ()
    try:
        rows, cuts, given = KINDS[path.suffix.lower()](path, shard_rows)
        missing = [column for column in columns if column not in given]
        twice = sorted({column for column in columns if given.count(column) > 1})
        if missing:
            problem = f"it has no column {', '.join(missing)}; it has: {', '.join(given)}"
        if twice:
            problem = f"it has several columns {', '.join(twice)}"
    except (InputError, OSError, pa.ArrowException) as error:
        problem = f"it cannot be read, it is damaged or of another kind: {' '.join(str(error).split())}"
    rows = 0 if problem else rows
    return Source(name, str(path), there.st_size, there.st_mtime_ns, sha256, rows, tuple(cuts), problem)


def _parquet(path: Path, shard_rows: int) -> tuple[int, Sequence[int], list[str]]:
    with pq.ParquetFile(path) as file:
        return file.metadata.num_rows, (), list(file.schema_arrow.names)


KINDS: dict[str, Callable[[Path, int], tuple[int, Sequence[int], list[str]]]] = {".parquet": _parquet, ".csv": scan}
"""How to look at a file, by the end of its name: it gives its rows, its cuts and its columns."""


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _in_order(name: str) -> list[tuple[int, Any]]:
    """A key by which part-10 comes after part-9."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in _PART.split(name)]
