"""Files that are either whole or not there."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is synced and renamed, on any error it is removed.

    The temporary name keeps the suffix, because some writers choose their format by it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make sure that the names in `folder` outlive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_leftovers(path: Path) -> None:
    """Remove the temporary files of a process that was killed while it wrote `path`; no other may be writing it."""
    for leftover in path.parent.glob(f".{path.stem}-*{path.suffix}"):
        leftover.unlink()


def write_text(path: Path, text: str) -> Path:
    """Write `text` to `path` atomically."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def write_json(path: Path, value: Any) -> Path:
    """Write `value` as indented JSON to `path` atomically; NaN and infinity are refused."""
    return write_text(path, json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
