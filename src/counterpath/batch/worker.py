"""A worker process: an errand and then shards on standard input, a line of JSON each; what came of them on its output.

It lives no longer than the process that started it: when standard input ends, so does it, in the middle of a shard too.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from counterpath.batch.job import Job
from counterpath.batch.results import Answers, answer
from counterpath.batch.shards import Failure, Receipt, Told, to_json
from counterpath.batch.sources import Shard, Source, read
from counterpath.batch.writing import writing
from counterpath.explainer.explainer import Explainer
from counterpath.utils.errors import BatchError, CounterpathError
from counterpath.utils.files import atomic, sync_folder
from counterpath.utils.importing import import_object

ANSWERS, MILESTONES = "counterfactuals", "milestones"


@dataclass(frozen=True)
class Errand:
    """All that a worker has to know, fit for JSON: models are not sent, but loaded from their directory.

    Attributes:
        model: The model directory.
        imports: The folder from which the user's own model is imported.
        job: What is asked.
        sources: The files.
        out: The folder of results.
        device: Where to compute.
    """

    model: str
    imports: str
    job: Job
    sources: tuple[Source, ...]
    out: str
    device: str

    def to_json(self) -> dict[str, Any]:
        """A value that `json.dumps` takes and `from_json` turns back into an equal errand."""
        return asdict(self) | {"job": self.job.to_json()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Errand":
        """Build an errand from the value of `to_json`."""
        sources = tuple(Source(**source | {"cuts": tuple(source["cuts"])}) for source in value["sources"])
        return cls(**dict(value) | {"job": Job.from_json(value["job"]), "sources": sources})

    def on(self, device: str) -> "Errand":
        """The same, on another device."""
        return replace(self, device=device)


class Worker:
    """Does shards, one after the other, with a model that is loaded when the first one comes.

    It computes with one thread: there are as many workers as cores, and answers do not depend on how many.
    """

    def __init__(self, errand: Errand) -> None:
        torch.set_num_threads(1)
        self._errand = errand
        if errand.imports not in sys.path:
            sys.path.insert(0, errand.imports)

    @cached_property
    def _explainer(self) -> Explainer:
        errand = self._errand
        own = None if errand.job.own is None else import_object(errand.job.own)
        explainer = Explainer.load(errand.model, model=own, device=errand.device)
        explainer.progress = False
        return explainer

    def do(self, shard: Shard) -> Told:
        """Explain a shard and write what was found; whatever goes wrong is told, and nothing half-written is left."""
        source, started = self._errand.sources[shard.source], time.monotonic()
        failed, reading = Failure(shard.name, source.name, shard.first, shard.rows, ""), True
        try:
            explainer = self._explainer
        except CounterpathError as error:  # without the model nothing can be done
            return replace(failed, problem=str(error), fatal=True)
        try:
            frame, carried = read(source, shard, explainer.schema_, self._errand.job.ids)
            reading = False
            answers = answer(explainer, self._errand.job.request, frame, carried, source.name)
        except Exception as error:  # a shard that cannot be done must not keep the others from being done
            problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
            damaged = reading and not isinstance(error, FileNotFoundError | PermissionError)
            return replace(failed, problem=problem, details=traceback.format_exc(), damaged=damaged)
        try:
            files = self._write(shard, answers)
        except BatchError as error:
            return replace(failed, problem=str(error), details=traceback.format_exc(), fatal=True)
        return Receipt(
            shard.name,
            source.name,
            shard.first,
            shard.rows,
            source.sha256,
            files,
            answers.status,
            answers.binding,
            answers.measures,
            round(time.monotonic() - started, 3),
        )

    def _write(self, shard: Shard, answers: Answers) -> dict[str, int]:
        tables = {MILESTONES: answers.milestones, ANSWERS: answers.counterfactuals}
        names = {folder: f"{folder}/{shard.name}.parquet" for folder, table in tables.items() if table is not None}
        return {name: write_part(Path(self._errand.out) / name, tables[folder]) for folder, name in names.items()}


def write_part(path: Path, table: pa.Table) -> int:
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


def main() -> None:
    """Serve until standard input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a user's model prints is no answer
    lines: SimpleQueue[str] = SimpleQueue()
    Thread(target=_listen, args=(lines,), daemon=True).start()
    worker = Worker(Errand.from_json(json.loads(lines.get())))
    while True:
        told = worker.do(Shard(**json.loads(lines.get())))
        answers.write(json.dumps(to_json(told), allow_nan=False) + "\n")
        answers.flush()


def _listen(lines: "SimpleQueue[str]") -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
