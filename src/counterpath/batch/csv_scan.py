"""Where the rows of a file of comma-separated values begin, without reading what they hold.

A line break within quotes ends no row, so a file cannot be cut just anywhere. One pass over its bytes counts quotes:
after an even number of them, a line break ends a row.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from counterpath.errors import InputError

_AT_ONCE = 1 << 22
_QUOTE, _NEWLINE, _RETURN = b'"\n\r'


def scan(path: Path, shard_rows: int) -> tuple[int, list[int], list[str]]:
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
    return lines - 1, [*cuts, path.stat().st_size], header_of(path, header[1])


def header_of(path: Path, end: int | None = None) -> list[str]:
    """The names of the columns: the first row, which ends at byte `end`."""
    if end is None:
        end = next((int(ends[0]) for _, ends in _lines(path) if len(ends)), 0)
    with path.open("rb") as file:
        text = file.read(end).decode("utf-8-sig", errors="replace")
    return next(iter(csv.reader(text.strip("\r\n").splitlines(keepends=True))), [])


def _lines(path: Path) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Where lines that are not blank begin and end, some at a time."""
    begin, position, quoted, last = 0, 0, False, 0
    with path.open("rb") as file:
        while chunk := file.read(_AT_ONCE):
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
            alone = np.concatenate([[last], content])[np.maximum(starts - position + 1, 0)]
            blank = (ends == starts) | ((ends == starts + 1) & (alone == _RETURN))
            yield starts[~blank], ends[~blank]
            position, last = position + len(content), int(content[-1])
        if quoted:
            raise InputError("a quote is opened and nothing closes it; correct it, or convert the table to Parquet")
        file.seek(begin)
        if file.read().strip(b"\r\n"):
            yield np.array([begin]), np.array([position])
