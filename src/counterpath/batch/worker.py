"""A worker process: a task and then shards on standard input, a line of JSON each; their outcomes on its output.

It lives no longer than the process that started it: when standard input ends, so does it, in the middle of a shard too.
"""

import json
import os
import sys
import time
import traceback
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import torch

from counterpath.batch.engine import Outcome, ShardFailure, ShardResult, Task
from counterpath.batch.folder import COUNTERFACTUALS, MILESTONES, write_table
from counterpath.batch.results import explain_rows
from counterpath.batch.sources import Shard, read_shard
from counterpath.explainer.explainer import Explainer
from counterpath.utils.errors import BatchError, CounterpathError
from counterpath.utils.importing import import_object


class Worker:
    """Does shards, one after the other, with a model that is loaded when the first one comes.

    It computes with one thread: there are as many workers as cores, and results do not depend on how many.
    """

    def __init__(self, task: Task) -> None:
        torch.set_num_threads(1)
        self._task = task
        if task.imports not in sys.path:
            sys.path.insert(0, task.imports)

    @cached_property
    def _explainer(self) -> Explainer:
        name = self._task.job.user_model
        user_model = None if name is None else import_object(name)
        explainer = Explainer.load(self._task.model, model=user_model, device=self._task.device)
        explainer.progress = False
        return explainer

    def do(self, shard: Shard) -> Outcome:
        """Explain a shard and write what was found; any error becomes a failure, and nothing half-written is left."""
        source, started = self._task.sources[shard.source], time.monotonic()
        fail, reading = partial(ShardFailure.of, self._task, shard), True
        try:
            explainer = self._explainer
        except CounterpathError as error:  # without the model nothing can be done
            return fail(str(error), fatal=True)
        try:
            rows, ids = read_shard(source, shard, explainer.schema_, self._task.job.ids)
            reading = False
            explained = explain_rows(explainer, self._task.job.request, rows, ids, source.name)
        except Exception as error:  # a shard that cannot be done must not keep the others from being done
            problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
            damaged = reading and not isinstance(error, FileNotFoundError | PermissionError)
            return fail(problem, details=traceback.format_exc(), damaged=damaged)
        try:
            tables = {MILESTONES: explained.milestones, COUNTERFACTUALS: explained.counterfactuals}
            found = {f"{name}/{shard.name}.parquet": table for name, table in tables.items() if table is not None}
            files = {file: write_table(Path(self._task.out) / file, table) for file, table in found.items()}
        except BatchError as error:
            return fail(str(error), details=traceback.format_exc(), fatal=True)
        sums = explained.status, explained.binding, explained.measures
        seconds = round(time.monotonic() - started, 3)
        return ShardResult(shard.name, source.name, shard.first, shard.rows, source.sha256, files, *sums, seconds)


def main() -> None:
    """Serve until standard input ends."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a user's model prints is no outcome
    lines: SimpleQueue[str] = SimpleQueue()
    Thread(target=_listen, args=(lines,), daemon=True).start()
    worker = Worker(Task.from_json(json.loads(lines.get())))
    while True:
        outcome = worker.do(Shard(**json.loads(lines.get())))
        output.write(json.dumps(asdict(outcome), allow_nan=False) + "\n")
        output.flush()


def _listen(lines: "SimpleQueue[str]") -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
