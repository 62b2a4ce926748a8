"""Workers on Ray, on this machine or many: actors of Ray Data that are given shards one at a time."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from threading import Event, Thread
from typing import Any

import torch

from counterpath.batch import ray_cluster, ray_driver
from counterpath.batch.engine import Tell, failure
from counterpath.batch.ray_cluster import SPARE, Cluster
from counterpath.batch.shards import from_json
from counterpath.batch.sources import Shard
from counterpath.batch.worker import Errand
from counterpath.utils.devices import resolve_device
from counterpath.utils.errors import InputError

_PARTING = 30.0


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
        if workers is not None and workers < 1:
            raise InputError(f"there must be at least one worker; given {workers}")
        if device not in ("auto", "cpu", "cuda"):
            raise InputError(f"--engine ray cannot use the device {device!r}; choose one of: auto, cpu, cuda")
        self._address, self._given, self._device = address, workers, device
        self._alone = address is None and not ray_cluster.running()
        self._cluster: Cluster | None = None
        self._foreman: Any = None
        self._listener: Thread | None = None
        self._stopped = Event()

    @cached_property
    def device(self) -> str:
        """Where workers compute: "cpu" or "cuda"."""
        if self._alone:
            return resolve_device(self._device).type
        if self._device == "cuda" and not self._connected().gpus:
            raise InputError("device 'cuda' was asked for, but the Ray cluster has no GPUs; try: cpu")
        return "cuda" if self._device != "cpu" and self._connected().gpus else "cpu"

    @cached_property
    def workers(self) -> int:
        """How many there are."""
        if self.device == "cuda":
            return self._given or self._gpus
        if self._alone:
            return self._given or _cores()
        room = max(self._connected().cpus - SPARE, 1)
        return room if self._given is None else min(self._given, room)

    def start(self, errand: Errand, shards: Sequence[Shard], tell: Tell) -> None:
        """Begin, and return as soon as Ray runs."""
        self._connected()
        ray_cluster.insist_on_room("GPU" if self.device == "cuda" else "CPU")
        ray = ray_cluster.ray()
        ray.cloudpickle.register_pickle_by_value(ray_driver)
        self._foreman = ray.remote(num_cpus=0, max_concurrency=2)(ray_driver.Foreman).remote(
            json.dumps(errand.on(self.device).to_json()),
            [json.dumps(asdict(shard)) for shard in shards],
            min(self.workers, len(shards)),
            self.resources,
        )
        self._listener = Thread(target=self._listen, args=(errand, shards, tell), daemon=True)
        self._listener.start()

    def stop(self) -> None:
        """Kill what is still under way, and leave Ray, unless it was there before."""
        self._stopped.set()
        if self._cluster is None:
            return
        if self._foreman is not None:
            ray_cluster.ray().kill(self._foreman)
        if self._listener is not None:
            self._listener.join(_PARTING)  # asked anything once it is left, Ray would start anew
        self._cluster.leave()
        self._cluster = None

    def _listen(self, errand: Errand, shards: Sequence[Shard], tell: Tell) -> None:
        """Tell what the foreman says, until every shard is told of, or nothing more is to be heard."""
        waiting = {shard.name: shard for shard in shards}
        foreman, get = self._foreman, ray_cluster.ray().get
        problem = "Ray has ended the job and does not say what became of this shard"
        try:
            while (text := get(foreman.more.remote())) is not None:
                told = from_json(json.loads(text))
                del waiting[told.shard]
                tell(told)
        except Exception as error:  # whatever Ray raises: the job cannot go on, and somebody has to say so
            problem = f"Ray has ended the job: {type(error).__name__}: {' '.join(str(error).split())}"
        if waiting and not self._stopped.is_set():
            shard = next(iter(waiting.values()))
            tell(failure(errand, shard, f"{problem}. Run the same command again, or with --engine local", fatal=True))

    def _connected(self) -> Cluster:
        if self._cluster is None:
            if ray_cluster.running():
                self._cluster = ray_cluster.found()
            elif self._address is not None:
                self._cluster = ray_cluster.join(self._address)
            else:
                self._cluster = ray_cluster.start(self.workers, self._gpus if self.device == "cuda" else 0)
        return self._cluster

    @property
    def _gpus(self) -> int:
        return torch.cuda.device_count() if self._alone else self._connected().gpus

    @property
    def resources(self) -> dict[str, float]:
        """What Ray sets aside for a worker."""
        if self.device == "cpu":
            return {"num_cpus": 1}
        sharing = -(-self.workers // self._gpus)
        return {"num_gpus": 1 / sharing}


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
