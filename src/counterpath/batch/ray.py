"""Workers on Ray, on this machine or many: actors of Ray Data that are given shards one at a time."""

import json
import socket
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from threading import Event, Thread
from typing import Any

import torch

from counterpath.batch import engine, ray_cluster, ray_driver
from counterpath.batch.engine import Outcome, Report, ShardFailure, Task
from counterpath.batch.ray_cluster import SPARE, Cluster
from counterpath.batch.sources import Shard
from counterpath.batch.worker import Worker
from counterpath.explanation.result import versions
from counterpath.utils.devices import resolve_device
from counterpath.utils.errors import BatchError, InputError

_JOIN_TIMEOUT = 30.0
"""Seconds for the listening thread to see that the driver is gone: a Ray that hangs must not hang the command."""


class Ray:
    """Workers on Ray: one for each CPU slot but a few, or one for each GPU; more of them share the GPUs.

    Ray is started, or joined, when it is needed first. A process that is connected to one already uses that.

    Args:
        address: Where a Ray runs; by default one is started on this machine.
        workers: How many; by default as many as there is room for, which on a Ray that runs already is the most.
        device: "cpu", "cuda" or "auto", which takes GPUs where there are some.
    """

    name = "ray"

    def __init__(self, address: str | None = None, workers: int | None = None, device: str = "auto") -> None:
        ray_cluster.ray()
        if device not in ("auto", "cpu", "cuda"):
            raise InputError(f"--engine ray cannot use the device {device!r}; choose one of: auto, cpu, cuda")
        self._address, self._given, self._device = address, engine.check_workers(workers), device
        self._is_started_here = address is None and not ray_cluster.is_connected()
        self._cluster: Cluster | None = None
        self._driver: Any = None
        self._listener: Thread | None = None
        self._stopped = Event()

    @cached_property
    def device(self) -> str:
        """Where workers compute: "cpu" or "cuda"."""
        if self._is_started_here:
            return resolve_device(self._device).type
        if self._device == "cuda" and not self._connected().gpus:
            raise InputError("device 'cuda' was asked for, but the Ray cluster has no GPUs; try: cpu")
        return "cuda" if self._device != "cpu" and self._connected().gpus else "cpu"

    @cached_property
    def workers(self) -> int:
        """How many there are."""
        if self.device == "cuda":
            return self._given or self._gpus
        if self._is_started_here:
            return self._given or engine.count_cores()
        room = max(self._connected().cpus - SPARE, 1)
        return room if self._given is None else min(self._given, room)

    def start(self, task: Task, shards: Sequence[Shard], report: Report) -> None:
        """Begin, and return as soon as Ray runs."""
        self._connected()
        ray_cluster.check_free_slot("GPU" if self.device == "cuda" else "CPU")
        ray = ray_cluster.ray()
        ray.cloudpickle.register_pickle_by_value(ray_driver)
        self._driver = ray.remote(num_cpus=0, max_concurrency=2)(ray_driver.RayDriver).remote(
            json.dumps(asdict(replace(task, device=self.device))),
            [json.dumps(asdict(shard)) for shard in shards],
            min(self.workers, len(shards)),
            self.resources,
        )
        self._listener = Thread(target=self._listen, args=(task, shards, report), daemon=True)
        self._listener.start()

    def stop(self) -> None:
        """Kill what is still under way, and leave Ray, unless it was there before."""
        self._stopped.set()
        if self._cluster is None:
            return
        if self._driver is not None:
            ray_cluster.ray().kill(self._driver)
        if self._listener is not None:
            self._listener.join(_JOIN_TIMEOUT)  # asked anything once it is left, Ray would start anew
        self._cluster.leave()
        self._cluster = None

    def _listen(self, task: Task, shards: Sequence[Shard], report: Report) -> None:
        """Report what the driver says, until there is an outcome of every shard, or the driver says no more."""
        waiting = {shard.name: shard for shard in shards}
        driver, get = self._driver, ray_cluster.ray().get
        problem = "Ray has ended the job and does not say what became of this shard"
        try:
            while (text := get(driver.next_outcome.remote())) is not None:
                outcome = engine.outcome_from_json(json.loads(text))
                del waiting[outcome.shard]
                report(outcome)
        except Exception as error:  # whatever Ray raises: the job cannot go on, and has to hear of it
            problem = f"Ray has ended the job: {type(error).__name__}: {' '.join(str(error).split())}"
        if waiting and not self._stopped.is_set():
            problem = f"{problem}. Run the same command again, or with --engine local"
            report(ShardFailure.of(task, next(iter(waiting.values())), problem, fatal=True))

    def _connected(self) -> Cluster:
        if self._cluster is None:
            if ray_cluster.is_connected():
                self._cluster = ray_cluster.connected()
            elif self._address is not None:
                self._cluster = ray_cluster.join(self._address)
            else:
                self._cluster = ray_cluster.start(self.workers, self._gpus if self.device == "cuda" else 0)
        return self._cluster

    @property
    def _gpus(self) -> int:
        return torch.cuda.device_count() if self._is_started_here else self._connected().gpus

    @property
    def resources(self) -> dict[str, float]:
        """What Ray sets aside for a worker."""
        if self.device == "cpu":
            return {"num_cpus": 1}
        sharing = -(-self.workers // self._gpus)
        return {"num_gpus": 1 / sharing}


class CheckedWorker:
    """Does shards on a machine of the cluster, if that is like the one that has sent them.

    Args:
        task: What to know, as JSON.
    """

    def __init__(self, task: str) -> None:
        self._task = Task.from_json(json.loads(task))
        self._worker: Worker | None = None

    def do(self, shard: str, deaths: int) -> str:
        """Do a shard over which so many workers have died; it and its outcome are JSON."""
        return json.dumps(asdict(self._outcome(Shard(**json.loads(shard)), deaths)), allow_nan=False)

    def _outcome(self, shard: Shard, deaths: int) -> Outcome:
        if deaths >= engine.TRIES:
            return ShardFailure.of_worker(self._task, shard, deaths)
        if self._worker is None:
            try:
                check_machine(self._task)
            except BatchError as error:
                return ShardFailure.of(self._task, shard, str(error), fatal=True)
            self._worker = Worker(self._task)
        return self._worker.do(shard)


def check_machine(task: Task) -> None:
    """Raise an error if this machine does not see the same files, or would compute otherwise.

    Raises:
        BatchError: It does not.
    """
    here = f"the Ray worker on {socket.gethostname()}"
    for what, path in (("model", task.model), ("folder of results", task.out)):
        if not Path(path).is_dir():
            raise BatchError(
                f"{here} does not see the {what} {path}: model, input and results must be on a file system that all "
                "machines of the cluster share, under the same path"
            )
    found, expected = versions(), task.job.versions
    others = [
        f"{name} {found.get(name)} instead of {expected[name]}"
        for name in expected
        if found.get(name) != expected[name]
    ]
    if others:
        raise BatchError(f"{here} has {', '.join(others)}: install the same versions on all machines of the cluster")
