"""A folder of results: who may write there, what was left over, and what could not be done."""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from filelock import FileLock, Timeout

from counterpath.batch.manifest import JOURNAL, MANIFEST
from counterpath.batch.receipts import Failure, Receipt
from counterpath.batch.sources import Source
from counterpath.batch.work import ANSWERS, MILESTONES
from counterpath.batch.writing import writing
from counterpath.errors import InputError
from counterpath.files import write_json

QUARANTINE, SUMMARY = "quarantine", "summary.json"
_LOCK = ".lock"
_OURS = (ANSWERS, MILESTONES, QUARANTINE, MANIFEST, JOURNAL, SUMMARY)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Let nobody else write to a folder of results meanwhile; it is made if it is not there.

    Raises:
        InputError: Somebody else does, or the folder holds something else.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; results are written to a folder")
    strangers = sorted(
        path.name for path in folder.glob("*") if path.name not in _OURS and not path.name.startswith(".")
    )
    if strangers:
        raise InputError(f"{folder} holds {', '.join(strangers[:3])}; choose a new or empty folder for the results")
    lock = FileLock(folder / _LOCK)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise InputError(f"another job is writing to {folder}: wait for it, or choose another folder") from None
    try:
        yield
    finally:
        lock.release()


def clear(folder: Path) -> None:
    """Remove all results; the manifest first, without which the others are nothing."""
    for name in (MANIFEST, JOURNAL, SUMMARY, ANSWERS, MILESTONES, QUARANTINE):
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove what a process that was killed while it wrote left behind."""
    for leftover in (*folder.glob(".*.json*"), *folder.glob(f"{ANSWERS}/.*"), *folder.glob(f"{MILESTONES}/.*")):
        leftover.unlink(missing_ok=True)  # a worker of a job that was killed may be about to end, and remove its own


def tidy(folder: Path, done: Iterable[Receipt]) -> None:
    """Remove what is out of date when a job goes on: quarantine, and tables of shards that are to be done."""
    kept = {file for receipt in done for file in receipt.files}
    for path in (*folder.glob(f"{ANSWERS}/*"), *folder.glob(f"{MILESTONES}/*")):
        if path.relative_to(folder).as_posix() not in kept:
            path.unlink(missing_ok=True)
    if (folder / QUARANTINE).is_dir():
        shutil.rmtree(folder / QUARANTINE)


def intact(folder: Path, done: Mapping[str, Receipt], sources: Iterable[Source]) -> dict[str, Receipt]:
    """Of the shards that are recorded as done those of files as they are, whose tables are there, in full length."""
    hashes = {source.name: source.sha256 for source in sources}
    return {
        name: receipt
        for name, receipt in done.items()
        if receipt.input == hashes.get(receipt.source)
        and all(_size(folder / file) == size for file, size in receipt.files.items())
    }


def quarantine(folder: Path, failure: Failure) -> Path:
    """Put what is known about a shard that could not be done where it will be looked for."""
    path = folder / QUARANTINE / f"{failure.shard}.json"
    with writing(path):
        return write_json(path, asdict(failure))


def quarantined(folder: Path) -> set[str]:
    """The files of the input of which something is in quarantine."""
    found = (json.loads(path.read_text(encoding="utf-8")) for path in folder.glob(f"{QUARANTINE}/[!.]*.json"))
    return {failure["source"] for failure in found}


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1
