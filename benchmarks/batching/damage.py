"""Files of rows that are damaged in ways in which files get damaged, and what a job makes of them."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from .jobs import BatchCommand, CommandResult, faults, half_written

QUARANTINED = 4  # the exit code: see `counterpath.cli.EXIT_CODES`


def cut(length: Callable[[int], int]) -> Callable[[Path], None]:
    """Damage that keeps so many of a file's bytes."""

    def damage(path: Path) -> None:
        content = path.read_bytes()
        path.write_bytes(content[: length(len(content))])

    return damage


def scribble(path: Path) -> None:
    """Overwrite the pages of a column in the middle of a Parquet file: the footer still counts all rows."""
    with pq.ParquetFile(path) as file:
        group = file.metadata.row_group(0)
        chunk = group.column(group.num_columns // 2)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        size = chunk.total_compressed_size
    content = bytearray(path.read_bytes())
    content[start : start + size] = bytes(0xFF for _ in range(size))
    path.write_bytes(content)


def open_quote(path: Path) -> None:
    """Open a quote in the middle of a file of comma-separated values, which nothing closes."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[len(lines) // 2] = b'"' + lines[len(lines) // 2]
    path.write_bytes(b"".join(lines))


def wide_row(path: Path) -> None:
    """Give one row in the middle of a file of comma-separated values a field more than the header has."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[len(lines) // 2] = b"another," + lines[len(lines) // 2]
    path.write_bytes(b"".join(lines))


PARQUET: dict[str, Callable[[Path], None]] = {
    "no bytes": cut(lambda size: 0),
    "4 bytes": cut(lambda size: 4),
    "half": cut(lambda size: size // 2),
    "all but 1 byte": cut(lambda size: size - 1),
    "a column scribbled over": scribble,
}
CSV: dict[str, Callable[[Path], None]] = {"a quote left open": open_quote, "a row too wide": wide_row}


def damaged(command: BatchCommand, name: str, damage: Callable[[Path], None], scratch: Path) -> BatchCommand:
    """The command on a copy of its folder in which one file is damaged."""
    rows = scratch / "in"
    shutil.copytree(command.rows, rows)
    damage(rows / name)
    return replace(command, rows=rows)


def repair(command: BatchCommand, whole: BatchCommand, name: str) -> None:
    """Put the good file in the place of the damaged one."""
    shutil.copyfile(whole.rows / name, command.rows / name)


def problems(ended: CommandResult, out: Path, name: str) -> list[str]:
    """What is wrong with how a job ended that met one damaged file."""
    found = half_written(out)
    if ended.code != QUARANTINED:
        found.append(f"exit code {ended.code}, expected {QUARANTINED}")
    if name not in ended.messages:
        found.append(f"the messages do not name {name}")
    if "Traceback" in ended.messages:
        found.append("the messages have a traceback")
    if not any(name in path.read_text(encoding="utf-8") for path in out.glob("quarantine/*.json")):
        found.append(f"no file in quarantine names {name}")
    if f'"source": "{name}"' not in ended.output:
        found.append(f"the summary does not name {name}")
    return found


def check(
    command: BatchCommand, whole: Path, name: str, damage: Callable[[Path], None], scratch: Path
) -> dict[str, Any]:
    """Run a job on a folder with one damaged file, repair the file, and run it again."""
    harmed, out = damaged(command, name, damage, scratch), scratch / "out"
    first = harmed.run(out)
    found = problems(first, out, name)
    repair(harmed, command, name)
    second = harmed.run(out)
    if second.code:
        found.append(f"after the repair: exit code {second.code}: {second.messages.strip()[-300:]}")
    return {
        "file": name,
        "exit_code": first.code,
        "message": next((line for line in first.messages.splitlines() if name in line), ""),
        "exit_code_repaired": second.code,
        "faults": found + (faults(out, whole) if second.code == 0 else []),
    }
