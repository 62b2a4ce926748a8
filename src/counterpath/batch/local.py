"""Workers on this machine: processes that are given shards one at a time, over their standard input."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from threading import Event, Thread
from typing import Any

import torch

from counterpath.batch import engine
from counterpath.batch.engine import Report, ShardFailure, Task
from counterpath.batch.sources import Shard

WORKERS_PER_GPU = 6
"""While the GPU computes for some of them, the others read, round and write; each takes memory of the GPU."""
_MODULE = "counterpath.batch.worker"


class Local:
    """Workers on this machine: one for each core, or several for each GPU.

    Args:
        workers: How many; by default as many as the device has use for.
        device: "cpu", "cuda" or "cuda:N"; "cuda" is all GPUs there are.
    """

    name = "local"

    def __init__(self, workers: int | None = None, device: str = "cpu") -> None:
        cores = engine.count_cores()
        devices = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if device == "cuda" else [device]
        usual = cores if device == "cpu" else min(WORKERS_PER_GPU * len(devices), max(cores - 1, 1))
        self.workers = engine.check_workers(workers) or usual
        self._devices = [devices[index % len(devices)] for index in range(self.workers)]
        self._waiting: Iterator[Shard] = iter(())
        self._stopped = Event()
        self._processes: set[_Process] = set()
        self._threads: list[Thread] = []

    def start(self, task: Task, shards: Sequence[Shard], report: Report) -> None:
        """Begin, and return at once."""
        self._waiting = iter(shards)
        for device in self._devices[: len(shards)]:
            thread = Thread(target=self._run_worker, args=(replace(task, device=device), report), daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Kill what is still under way."""
        self._stopped.set()
        self._waiting = iter(())
        for process in list(self._processes):
            process.kill()
        for thread in self._threads:
            thread.join()

    def _run_worker(self, task: Task, report: Report) -> None:
        """Have one process after the other do shards until there are none; a process that dies is replaced."""
        process: _Process | None = None
        while shard := next(self._waiting, None):
            for deaths in range(1, engine.TRIES + 1):
                try:
                    process = self._begin(task) if process is None else process
                except OSError as error:  # no process can be started, and the job waits for its shards
                    problem = f"a worker cannot be started: {error}; try fewer workers"
                    report(ShardFailure.of(task, shard, problem, fatal=True))
                    return
                outcome = process.do(shard)
                if outcome is not None:
                    report(engine.outcome_from_json(outcome))
                    break
                failure = ShardFailure.of_worker(task, shard, deaths, f"({process.close()}) ")
                self._processes.discard(process)
                process = None
                if self._stopped.is_set():
                    return
            else:
                report(failure)
        if process is not None:
            process.close()
            self._processes.discard(process)

    def _begin(self, task: Task) -> "_Process":
        process = _Process(task)
        self._processes.add(process)
        if self._stopped.is_set():
            process.kill()
        return process


class _Process(subprocess.Popen[bytes]):
    """A worker process; it ends when its standard input does, and so with the process that started it."""

    def __init__(self, task: Task) -> None:
        super().__init__(
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Each has one thread, and says so before any library starts more.
            env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is for the process that started it
        )
        self._send(asdict(task))

    def do(self, shard: Shard) -> Any | None:
        """The outcome of a shard in JSON; None if the process died."""
        self._send(asdict(shard))
        assert self.stdout is not None
        line = self.stdout.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def close(self) -> str:
        """Let it end; how it did, in words."""
        # Leaving the block closes both pipes and waits; a process that died may not have read all that was sent.
        with suppress(BrokenPipeError), self:
            pass
        return signal.Signals(-self.returncode).name if self.returncode < 0 else f"exit code {self.returncode}"

    def _send(self, value: Any) -> None:
        assert self.stdin is not None
        with suppress(BrokenPipeError):  # it died: that is seen where its outcome is missing
            self.stdin.write(json.dumps(value).encode() + b"\n")
            self.stdin.flush()
