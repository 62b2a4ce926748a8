"""A folder of results: how it is written, who may write there, what is done, and what could not be done."""

import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from counterpath.batch.engine import Job, ShardFailure, ShardResult, outcome_from_json
from counterpath.batch.sources import Source
from counterpath.utils.errors import BatchError, InputError
from counterpath.utils.files import atomic, sync_folder, write_json, write_text

FORMAT = "counterpath-batch"
VERSION = 1  # of the manifest and the journal; a newer one may have what this code does not know
MANIFEST, JOURNAL, SUMMARY = "manifest.json", "shards.jsonl", "summary.json"
COUNTERFACTUALS, MILESTONES, QUARANTINE = "counterfactuals", "milestones", "quarantine"
_NAMES = (MANIFEST, JOURNAL, SUMMARY, COUNTERFACTUALS, MILESTONES, QUARANTINE)
_LOCK = ".lock"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says of a full disk, or the like, into an error that says what to do.

    Raises:
        BatchError: Something in the block could not be written.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise BatchError(
            f"{path} cannot be written: {reason}. Make room, or see to whatever it is, and run the same command again: "
            "what is done is kept"
        ) from error


def write_table(path: Path, table: pa.Table) -> int:
    """Write a table beside its final name, sync it, give it that name, and sync the folder; returns its size.

    Raises:
        BatchError: The disk is full, or the like; nothing is left behind.
    """
    with writing(path):
        with atomic(path) as temporary:
            pq.write_table(table, temporary, compression="zstd")
            size = temporary.stat().st_size
        sync_folder(path.parent)
    return size


@dataclass(frozen=True)
class Manifest:
    """What results are of.

    Attributes:
        job: The request, and all else that the results depend on.
        sources: What is known of every file of the input, by its name.
    """

    job: Job
    sources: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, job: Job, sources: Sequence[Source]) -> "Manifest":
        """That of a job that is about to begin."""
        return cls(job, {source.name: source.to_json() for source in sources})

    @classmethod
    def read(cls, folder: Path) -> "Manifest | None":
        """That of the results in a folder; None where nothing has begun.

        Raises:
            InputError: The folder holds something else, or what a newer version wrote.
        """
        path = folder / MANIFEST
        if not path.is_file():
            return None
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            if value["format"] != FORMAT:
                raise KeyError("format")
            if value["version"] > VERSION:
                raise InputError(f"{path} is of version {value['version']}, and this Counterpath reads up to {VERSION}")
            return cls(Job.from_json(value["job"]), {one["name"]: one for one in value["sources"]})
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path} is no manifest of a batch job, or damaged; choose another folder") from error

    def write(self, folder: Path) -> None:
        """Keep it in a folder, whole or not at all."""
        described = {
            "format": FORMAT,
            "version": VERSION,
            "job": self.job.to_json(),
            "sources": list(self.sources.values()),
        }
        with writing(folder / MANIFEST):
            write_json(folder / MANIFEST, described)
            sync_folder(folder)

    def differences(self, job: Job, sources: Sequence[Source], quarantined: Collection[str] = ()) -> list[str]:
        """In what a job on some files differs from this one, in words.

        A file that could not be read, or of which something is in quarantine, may have been repaired meanwhile.
        """
        now = {source.name: source.to_json() for source in sources}
        changed = [
            f"the input {name} has changed"
            for name in self.sources.keys() & now.keys()
            if self.sources[name]["sha256"] != now[name]["sha256"]
            and not (self.sources[name]["problem"] or name in quarantined)
        ]
        added = [f"the input {name} is new" for name in now.keys() - self.sources.keys()]
        gone = [f"the input {name} is gone" for name in self.sources.keys() - now.keys()]
        return [*self.job.differences(job), *sorted(changed), *sorted(added), *sorted(gone)]


@dataclass(frozen=True)
class Journal:
    """The shards that are done, in a file that only grows.

    Attributes:
        path: The file.
    """

    path: Path

    def read(self) -> dict[str, ShardResult]:
        """What was recorded, by the names of shards; half a line at the end is cut off.

        Raises:
            InputError: The file is damaged elsewhere.
        """
        if not self.path.exists():
            return {}
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))
        try:
            recorded = [outcome_from_json(json.loads(line)) for line in whole.splitlines()]
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{self.path} is damaged: {error}; start over with --restart") from error
        return {result.shard: result for result in recorded if isinstance(result, ShardResult)}

    def add(self, result: ShardResult) -> None:
        """Record a shard; when this returns, the line is on the disk."""
        with writing(self.path), self.path.open("ab") as file:
            file.write(_line(result).encode())
            file.flush()
            os.fsync(file.fileno())

    def keep(self, results: Collection[ShardResult]) -> None:
        """Forget all others; the file is written anew, whole or not at all."""
        with writing(self.path):
            write_text(self.path, "".join(map(_line, results)))
            sync_folder(self.path.parent)


def _line(result: ShardResult) -> str:
    return json.dumps(asdict(result), ensure_ascii=False, allow_nan=False) + "\n"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let no other job write to a folder of results meanwhile; it is made if it is not there.

    Raises:
        InputError: Another job does, or the folder holds something else.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; results are written to a folder")
    foreign = sorted(
        path.name for path in folder.glob("*") if path.name not in _NAMES and not path.name.startswith(".")
    )
    if foreign:
        raise InputError(f"{folder} holds {', '.join(foreign[:3])}; choose a new or empty folder for the results")
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


def open_results(
    folder: Path, job: Job, sources: Sequence[Source], *, restart: bool
) -> tuple[Journal, dict[str, ShardResult]]:
    """The journal of the results in a folder, if they are those of this job or of none yet, and what is done.

    When a job goes on, tables of shards that are to be done are removed, and so is the quarantine.
    """
    before = None if restart else Manifest.read(folder)
    if before is not None:
        aside = (json.loads(path.read_text(encoding="utf-8")) for path in folder.glob(f"{QUARANTINE}/[!.]*.json"))
        differences = before.differences(job, sources, {failure["source"] for failure in aside})
        if differences:
            raise InputError(
                f"{folder} holds the results of another job: {'; '.join(differences)}. Choose another folder, ask as "
                "before, or start over with --restart, which deletes what is there"
            )
    # The summary is out of date while a job runs; else the manifest goes first, without which the others are nothing.
    for path in (folder / name for name in (_NAMES if restart else [SUMMARY])):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    remove_temporary(folder)
    now = Manifest.of(job, sources)
    if now != before:
        now.write(folder)
    journal = Journal(folder / JOURNAL)
    recorded = journal.read()
    done = intact(folder, recorded, sources)
    if len(done) < len(recorded):
        journal.keep(done.values())
    kept = {file for result in done.values() for file in result.files}
    for path in (*folder.glob(f"{COUNTERFACTUALS}/*"), *folder.glob(f"{MILESTONES}/*")):
        if path.relative_to(folder).as_posix() not in kept:
            path.unlink(missing_ok=True)
    # Last: until the manifest has what changed, the quarantine says which files may have changed.
    if (folder / QUARANTINE).is_dir():
        shutil.rmtree(folder / QUARANTINE)
    return journal, done


def remove_temporary(folder: Path) -> None:
    """Remove what a process that was killed while it wrote left behind."""
    for pattern in (".*.json*", f"{COUNTERFACTUALS}/.*", f"{MILESTONES}/.*"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)  # a worker of a job that was killed may be about to end, and remove its own


def intact(folder: Path, done: Mapping[str, ShardResult], sources: Iterable[Source]) -> dict[str, ShardResult]:
    """Of the shards that are recorded as done those of unchanged files, whose tables are there, in full length."""
    hashes = {source.name: source.sha256 for source in sources}
    return {
        name: result
        for name, result in done.items()
        if result.sha256 == hashes.get(result.source)
        and all(
            (path := folder / file).is_file() and path.stat().st_size == size for file, size in result.files.items()
        )
    }


def write_quarantine(folder: Path, failure: ShardFailure) -> None:
    """Put what is known about a shard that could not be done where it will be looked for."""
    path = folder / QUARANTINE / f"{failure.shard}.json"
    with writing(path):
        write_json(path, asdict(failure))
