"""Jobs on a disk that becomes full: a small file system in memory stands in for it, which takes root to mount."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .jobs import BatchCommand, CommandResult, faults, half_written

PAGE = os.sysconf("SC_PAGE_SIZE")
CANNOT_GO_ON = 2  # the exit code: see `counterpath.cli.EXIT_CODES`
_ROOM = "size=64m,nr_inodes=10000"
_INODES = 1000  # more than any of these jobs has files


class NotPermittedError(Exception):
    """This user may not mount a file system."""


@contextmanager
def small_disk(path: Path, free: int, *, inodes: int = _INODES) -> Iterator[Path]:
    """A file system with so many free pages at a path; what is there is gone at the end.

    Raises:
        NotPermittedError: This user may not mount one, or the system has none of that kind.
    """
    path.mkdir(parents=True, exist_ok=True)
    options = f"size={(free + 1) * PAGE},nr_inodes={inodes}"  # a page more, since 0 would mean as many as you like
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(path)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotPermittedError(f"a tmpfs cannot be mounted: {getattr(error, 'stderr', b'') or error}") from error
    try:
        (path / "taken").write_bytes(bytes(PAGE))
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def make_room(path: Path) -> None:
    """Let a file system be as large as a job needs."""
    subprocess.run(["mount", "-o", f"remount,{_ROOM}", str(path)], check=True, capture_output=True)


def pages(path: Path) -> int:
    """How many pages a file takes."""
    return -(-path.stat().st_size // PAGE)


def tight(whole: Path) -> dict[str, int]:
    """Sizes, in pages, at which a job with one worker finds the disk full in one file and the next, by its name."""
    manifest, journal = pages(whole / "manifest.json"), pages(whole / "shards.jsonl")
    tables = [pages(path) for path in sorted((whole / "counterfactuals").glob("*.parquet"))]
    return {
        "manifest.json": manifest - 1,
        "counterfactuals/": manifest + tables[0] - 1,
        "shards.jsonl": manifest + tables[0],
        "counterfactuals/ (later)": manifest + sum(tables[: len(tables) // 2]) + journal,
        "summary.json": manifest + sum(tables) + journal,
    }


def problems(ended: CommandResult, out: Path, file: str) -> list[str]:
    """What is wrong with how a job ended that found the disk full in a file."""
    found = half_written(out)
    if ended.code != CANNOT_GO_ON:
        found.append(f"exit code {ended.code}, expected {CANNOT_GO_ON}")
    if "Traceback" in ended.messages:
        found.append("the messages have a traceback")
    error = ended.messages.strip().splitlines()[-1:]
    expected = ("No space left on device", "Make room", "same command again", file)
    found += [f"the error does not say {words!r}: {error}" for words in expected if not error or words not in error[0]]
    return found


def check(
    command: BatchCommand, whole: Path, file: str, free: int, scratch: Path, *, inodes: int = _INODES
) -> dict[str, Any]:
    """Run a job on a disk of a size at which it is full in a certain file, make room, and run it again."""
    with small_disk(scratch / "disk", free, inodes=inodes) as disk:
        out = disk / "out"
        first = command.run(out)
        found = problems(first, out, file.split(" ")[0])
        second = command.run(out)  # it is still full: nothing may be lost by another try
        found += problems(second, out, "")
        make_room(disk)
        third = command.run(out)
        found += [] if third.code == 0 else [f"with room: exit code {third.code}: {third.messages.strip()[-300:]}"]
        found += faults(out, whole) if third.code == 0 else []
    shutil.rmtree(scratch / "disk")
    return {
        "full_in": file,
        "free_pages": free,
        "inodes": inodes,
        "exit_code": first.code,
        "message": first.messages.strip().replace(f"{disk}/", ""),
        "faults": found,
    }
