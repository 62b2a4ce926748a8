"""Workers on this machine: processes that are given shards one at a time, over their standard input."""

import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from threading import Event, Thread
from typing import Any

import torch

from counterpath.batch.engine import TRIES, Tell, failure
from counterpath.batch.shards import from_json
from counterpath.batch.sources import Shard
from counterpath.batch.worker import Errand
from counterpath.utils.errors import InputError

ON_A_GPU = 6
"""How many workers share a GPU: while it computes for some of them, the others read, round and write."""
_MODULE = "counterpath.batch.worker"
_NONE = Shard(0, 0, 0, 0)


class Local:
    """Workers on this machine: one for each core, or several for each GPU.

    Args:
        workers: How many; by default as many as the device has use for.
        device: "cpu", "cuda" or "cuda:N"; "cuda" is all GPUs there are.
    """

    name = "local"

    def __init__(self, workers: int | None = None, device: str = "cpu") -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        gpus = [f"cuda:{place}" for place in range(torch.cuda.device_count())] if device == "cuda" else [device]
        usual = cores if device == "cpu" else min(ON_A_GPU * len(gpus), max(cores - 1, 1))
        if workers is not None and workers < 1:
            raise InputError(f"there must be at least one worker; given {workers}")
        self.workers = usual if workers is None else workers
        self._devices = [gpus[place % len(gpus)] for place in range(self.workers)]
        self._waiting: deque[Shard] = deque()
        self._stopped = Event()
        self._processes: set[_Process] = set()
        self._threads: list[Thread] = []

    def start(self, errand: Errand, shards: Sequence[Shard], tell: Tell) -> None:
        """Begin, and return at once."""
        self._waiting.extend(shards)
        for device in self._devices[: len(shards)]:
            thread = Thread(target=self._labour, args=(errand.on(device), tell), daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Kill what is still under way."""
        self._stopped.set()
        self._waiting.clear()
        for process in list(self._processes):
            process.kill()
        for thread in self._threads:
            thread.join()

    def _labour(self, errand: Errand, tell: Tell) -> None:
        """Have one process after the other do shards until there are none; a process that dies is replaced."""
        try:
            self._do_all(errand, tell)
        except OSError as error:  # no process can be started: whoever waits for its shards has to be told
            tell(failure(errand, _NONE, f"a worker cannot be started: {error}; try fewer workers", fatal=True))

    def _do_all(self, errand: Errand, tell: Tell) -> None:
        process: _Process | None = None
        while shard := self._next():
            for tried in range(1, TRIES + 1):
                process = self._begin(errand) if process is None else process
                reply = process.ask(asdict(shard))
                if reply is not None:
                    tell(from_json(reply))
                    break
                problem = f"the worker died ({process.close()}) {tried} times over this shard; it may need more memory"
                self._processes.discard(process)
                process = None
                if self._stopped.is_set():
                    return
            else:
                tell(failure(errand, shard, f"{problem}: try fewer workers, or fewer rows in a shard"))
        if process is not None:
            process.close()
            self._processes.discard(process)

    def _next(self) -> Shard | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def _begin(self, errand: Errand) -> "_Process":
        process = _Process(errand)
        self._processes.add(process)
        if self._stopped.is_set():
            process.kill()
        return process


class _Process:
    """A worker process; it ends when its standard input does, and so with the process that started it."""

    def __init__(self, errand: Errand) -> None:
        # Each has one thread, and says so before any library starts more.
        environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the one that gave out the work
        )
        self._say(errand.to_json())

    def ask(self, value: Any) -> Any | None:
        """What it answers; None if it died."""
        self._say(value)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def close(self) -> str:
        """Let it end; how it did, in words."""
        with (
            suppress(BrokenPipeError),
            self._process,
        ):  # closes both ends and waits; it may not have heard the last word
            pass
        code = self._process.returncode
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def kill(self) -> None:
        """End it now."""
        self._process.kill()

    def _say(self, value: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(value).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return  # it died: that is seen where its answer is missing
