"""What a job and an engine are, and what they exchange: a task, and an outcome for every shard.

Tasks, shards and outcomes are plain data that fit into a line of JSON, so that any channel can transport them.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from counterpath.batch.sources import Shard, Source
from counterpath.explanation.result import versions
from counterpath.fitting import persistence
from counterpath.utils.errors import InputError

TRIES = 3
"""How often a shard is tried if its worker dies: one death may be bad luck, and after three it is the shard."""


@dataclass(frozen=True)
class Job:
    """A request to a model, and all else that the results depend on: with equal jobs, results are equal to the bit.

    How many processes or machines share the work is no part of it.

    Attributes:
        fingerprint: Of the model directory: see `persistence.fingerprint`.
        user_model: The user's own model as `module:attribute`, if there is one.
        request: The request as an explanation records it, with the settings on which the results depend.
        ids: Columns of the input that are copied to the results.
        shard_rows: The most rows of a shard.
        device: "cpu" or "cuda": they round differently.
        versions: Of Counterpath and of the libraries on which the results may depend.
    """

    fingerprint: str
    user_model: str | None
    request: Mapping[str, Any]
    ids: tuple[str, ...]
    shard_rows: int
    device: str
    versions: Mapping[str, str]

    @classmethod
    def of(
        cls,
        folder: Path,
        request: Mapping[str, Any],
        *,
        user_model: str | None = None,
        ids: Sequence[str] = (),
        shard_rows: int,
        device: str,
    ) -> "Job":
        """The job for the model in a folder."""
        if shard_rows < 1:
            raise InputError(f"a shard has at least one row; given {shard_rows}")
        fingerprint = persistence.fingerprint(folder)
        return cls(fingerprint, user_model, dict(request), tuple(ids), shard_rows, device, versions())

    def to_json(self) -> dict[str, Any]:
        """A value that `json.dumps` takes and `from_json` turns back into an equal job."""
        return asdict(self) | {"ids": list(self.ids)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Job":
        """Build a job from the value of `to_json`."""
        return cls(**dict(value) | {"ids": tuple(value["ids"])})

    def differences(self, other: "Job") -> list[str]:
        """In what another job differs from this one, in words: what it has, and what this one has."""
        before, now = self._by_name, other._by_name
        names = [name for name in (before | now) if before.get(name) != now.get(name)]
        return [
            "the model is another one, or was fitted again"
            if name == "fingerprint"
            else f"{name.replace('_', ' ')} is {now.get(name)!r} and was {before.get(name)!r}"
            for name in names
        ]

    @property
    def _by_name(self) -> dict[str, Any]:
        """The parts by what people call them."""
        versions = {f"version of {name}": version for name, version in self.versions.items()}
        rest = {name: part for name, part in self.to_json().items() if name not in ("request", "versions")}
        return {**rest, **self.request, **versions}


@dataclass(frozen=True)
class Task:
    """All that a worker has to know; models are not sent, but loaded from their directory.

    Attributes:
        model: The model directory.
        imports: The folder from which the user's own model is imported.
        job: The request, and all else that the results depend on.
        sources: The files of the input.
        out: The folder of results.
        device: Where to compute.
    """

    model: str
    imports: str
    job: Job
    sources: tuple[Source, ...]
    out: str
    device: str

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Task":
        """The task of which `dataclasses.asdict` and JSON made this value."""
        sources = tuple(Source(**source | {"cuts": tuple(source["cuts"])}) for source in value["sources"])
        return cls(**dict(value) | {"job": Job.from_json(value["job"]), "sources": sources})


@dataclass(frozen=True)
class ShardResult:
    """A shard that is done: its files are written, synced, and have their final names.

    Attributes:
        shard: Its name.
        source: The file that its rows are from.
        first: Its first row there, from 0.
        rows: How many rows it has.
        sha256: The hash of the file that its rows are from.
        files: The size in bytes of each file that was written, by its path in the folder of results.
        status: How many rows have each status.
        binding: How many rows each constraint stands in the way of.
        measures: Of each measure over the rows that were found: how many numbers, their sum, their sum of squares.
        seconds: How long it took.
    """

    shard: str
    source: str
    first: int
    rows: int
    sha256: str
    files: Mapping[str, int]
    status: Mapping[str, int]
    binding: Mapping[str, int]
    measures: Mapping[str, tuple[int, float, float]]
    seconds: float


@dataclass(frozen=True)
class ShardFailure:
    """A shard that could not be done, or a whole file.

    Attributes:
        shard: Its name, or the number of the file.
        source: The file that its rows are from.
        first: Its first row there, from 0.
        rows: How many rows it has, as far as is known.
        problem: What went wrong, in a sentence.
        details: The traceback, if there is one.
        fatal: Whether no other shard can be done, either.
        damaged: Whether it is the rows that cannot be read, which says nothing about other shards.
    """

    shard: str
    source: str
    first: int
    rows: int
    problem: str
    details: str = ""
    fatal: bool = False
    damaged: bool = False

    @classmethod
    def of(cls, task: Task, shard: Shard, problem: str, **more: Any) -> "ShardFailure":
        """The failure of a shard of a task."""
        return cls(shard.name, task.sources[shard.source].name, shard.first, shard.rows, problem, **more)

    @classmethod
    def of_worker(cls, task: Task, shard: Shard, deaths: int, how: str = "") -> "ShardFailure":
        """The failure of a shard over which so many workers have died."""
        problem = f"the worker died {how}{deaths} times over this shard; it may need more memory"
        return cls.of(task, shard, f"{problem}: try fewer workers, or fewer rows in a shard")


Outcome: TypeAlias = ShardResult | ShardFailure
"""What became of a shard; `dataclasses.asdict` makes it fit for JSON."""
Report: TypeAlias = Callable[[Outcome], None]
"""Takes what became of a shard; may be called from any thread."""


def outcome_from_json(value: Mapping[str, Any]) -> Outcome:
    """The outcome of which `dataclasses.asdict` and JSON made this value."""
    if "problem" in value:
        return ShardFailure(**value)
    measures = {name: (int(n), float(total), float(squares)) for name, (n, total, squares) in value["measures"].items()}
    return ShardResult(**dict(value) | {"measures": measures})


@runtime_checkable
class Engine(Protocol):
    """Has shards done by workers, and reports the outcome of each of them once."""

    name: str

    @property
    def workers(self) -> int:
        """How many there are."""
        ...

    def start(self, task: Task, shards: Sequence[Shard], report: Report) -> None:
        """Begin, and return at once."""
        ...

    def stop(self) -> None:
        """End everything that is still under way; does no harm when all is done."""
        ...


def check_workers(workers: int | None) -> int | None:
    """The number of workers, or None for the default; an error if it is less than one."""
    if workers is not None and workers < 1:
        raise InputError(f"there must be at least one worker; given {workers}")
    return workers


def count_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
