"""Workers on Ray, on this machine or many: actors of Ray Data that are given shards one at a time.

A Ray that is started here is for this job alone, and nothing of it listens beyond the loopback address. One that runs
already, be it a cluster or what a notebook has started, is used as it is.
"""

import json
import logging
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Event, Thread
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch

from counterpath.batch import engine, ray_driver
from counterpath.batch.engine import Outcome, Report, ShardFailure, Task
from counterpath.batch.sources import Shard
from counterpath.batch.worker import Worker
from counterpath.explanation.result import versions
from counterpath.utils.devices import resolve_device
from counterpath.utils.errors import BatchError, InputError, require

SPARE = 2
"""CPU slots that no worker gets: with as many actors as slots Ray Data may wait for a slot forever."""
_LOOPBACK = ("127.0.0.1", "::1")
_STORE_BYTES = 80 << 20
"""The least that Ray takes for objects; only the names of shards and their outcomes are kept there."""
_CONNECT_TIMEOUT = 10.0
"""Seconds until nothing is taken to listen at an address: far more than a connection takes in any network."""
FREE_SLOT_TIMEOUT = 10.0
"""Seconds until slots of a job that has just ended are free again, at most."""
_POLL_SECONDS = 0.2
"""Between two looks at the free slots: short for a user who waits, and rare enough for Ray."""
_JOIN_TIMEOUT = 30.0
"""Seconds for the listening thread to see that the driver is gone: a Ray that hangs must not hang the command."""
_QUIET: Mapping[str, Any] = {"log_to_driver": False, "configure_logging": True, "logging_level": logging.ERROR}
# Ray reads these from the environment when it is imported, which may have happened long ago: so they are patched.
_OWN_PYTHON = {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": False}
"""Workers run in the Python environment that is there; none is made for them."""


@dataclass(frozen=True)
class Cluster:
    """A Ray that this process is connected to.

    Attributes:
        is_ours: Whether the connection was made here, and so is to be ended.
        cpus: How many CPU slots it has in all.
        gpus: How many GPUs.
    """

    is_ours: bool
    cpus: int
    gpus: int

    @classmethod
    def connected(cls, *, is_ours: bool) -> "Cluster":
        """The Ray that this process is connected to."""
        if is_ours:
            _set_worker_logs(False)
        resources = ray().cluster_resources()
        return cls(is_ours, int(resources.get("CPU", 0)), int(resources.get("GPU", 0)))

    def leave(self) -> None:
        """End the connection, and with it all that was started over it, Ray itself if it was started here."""
        if self.is_ours:
            ray().shutdown()
            _set_worker_logs(True)


def ray() -> ModuleType:
    """The library.

    Raises:
        MissingExtraError: It is not installed.
    """
    return require("ray", "ray", "--engine ray")


def start(workers: int, gpus: int) -> Cluster:
    """Start Ray on this machine, for so many workers, as child processes that do not outlive this one."""
    library, constants = ray(), require("ray._private.ray_constants", "ray", "--engine ray")
    loopback = {"ENABLE_RAY_CLUSTER": False}  # by which Ray takes the loopback address for that of this machine
    # What all processes of Ray inherit: workers find the modules that this process finds, and have one thread each.
    environment = {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    try:
        with patch.dict(os.environ, environment), patch.dict(vars(constants), loopback | _OWN_PYTHON):
            library.init(
                address="local",
                num_cpus=workers + SPARE,
                num_gpus=gpus,
                object_store_memory=_STORE_BYTES,
                include_dashboard=False,
                _node_ip_address=_LOOPBACK[0],
                **_QUIET,
            )
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise BatchError(f"Ray cannot be started here: {reason}. Try once more, or --engine local") from error
    address = library.util.get_node_ip_address()
    if address not in _LOOPBACK:
        library.shutdown()
        raise BatchError(
            f"this version of Ray would listen on {address}, for other machines to connect: install the version that "
            "constraints.txt names, or start Ray yourself and give its --address"
        )
    return Cluster.connected(is_ours=True)


def join(address: str) -> Cluster:
    """Connect to a Ray that runs already.

    Raises:
        InputError: There is none.
    """
    library, constants = ray(), require("ray._private.ray_constants", "ray", "--engine ray")
    try:
        if "://" not in address:  # where nothing listens, Ray itself would try for minutes
            services = require("ray._private.services", "ray", "--engine ray")
            host, _, port = services.canonicalize_bootstrap_address(address).rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT).close()
        with patch.dict(vars(constants), _OWN_PYTHON):
            library.init(address=address, **_QUIET)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        problem = " ".join(str(error).split()).rstrip(".")
        raise InputError(
            f"--address {address!r} leads to no Ray: {problem}. Run this on a machine of the cluster with auto or "
            "HOST:6379, with RAY_AUTH_MODE=token if it asks for a token, or leave --address out to start Ray here"
        ) from error
    return Cluster.connected(is_ours=True)


def check_free_slot(kind: str) -> None:
    """Raise an error if not a single worker can begin, since nothing of the kind ("CPU" or "GPU") is free."""
    library, until = ray(), time.monotonic() + FREE_SLOT_TIMEOUT
    while library.available_resources().get(kind, 0) < 1:
        if time.monotonic() > until:
            raise BatchError(
                f"the Ray cluster has no free {kind}: {library.cluster_resources().get(kind, 0):g} in all, in use by "
                "others. Wait for them, or use --engine local"
            )
        time.sleep(_POLL_SECONDS)


def _set_worker_logs(enabled: bool) -> None:
    """Whether Ray prints what happens to workers, to standard output, where results are."""
    worker: Any = require("ray._private.worker", "ray", "--engine ray")
    worker._worker_logs_enabled = enabled


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
        ray()
        if device not in ("auto", "cpu", "cuda"):
            raise InputError(f"--engine ray cannot use the device {device!r}; choose one of: auto, cpu, cuda")
        self._address, self._given, self._device = address, engine.check_workers(workers), device
        self._is_started_here = address is None and not ray().is_initialized()
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
        check_free_slot("GPU" if self.device == "cuda" else "CPU")
        ray().cloudpickle.register_pickle_by_value(ray_driver)
        self._driver = (
            ray()
            .remote(num_cpus=0, max_concurrency=2)(ray_driver.RayDriver)
            .remote(
                json.dumps(asdict(replace(task, device=self.device))),
                [json.dumps(asdict(shard)) for shard in shards],
                min(self.workers, len(shards)),
                self.resources,
            )
        )
        self._listener = Thread(target=self._listen, args=(task, shards, report), daemon=True)
        self._listener.start()

    def stop(self) -> None:
        """Kill what is still under way, and leave Ray, unless it was there before."""
        self._stopped.set()
        if self._cluster is None:
            return
        if self._driver is not None:
            ray().kill(self._driver)
        if self._listener is not None:
            self._listener.join(_JOIN_TIMEOUT)  # asked anything once it is left, Ray would start anew
        self._cluster.leave()
        self._cluster = None

    def _listen(self, task: Task, shards: Sequence[Shard], report: Report) -> None:
        """Report what the driver says, until there is an outcome of every shard, or the driver says no more."""
        waiting = {shard.name: shard for shard in shards}
        driver, get = self._driver, ray().get
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
            if ray().is_initialized():
                self._cluster = Cluster.connected(is_ours=False)  # it is left as it is
            elif self._address is not None:
                self._cluster = join(self._address)
            else:
                self._cluster = start(self.workers, self._gpus if self.device == "cuda" else 0)
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
            problem = check_machine(self._task)
            if problem:
                return ShardFailure.of(self._task, shard, problem, fatal=True)
            self._worker = Worker(self._task)
        return self._worker.do(shard)


def check_machine(task: Task) -> str:
    """Why this machine cannot be used, if it does not see the same files, or would compute otherwise; or nothing."""
    here = f"the Ray worker on {socket.gethostname()}"
    for what, path in (("model", task.model), ("folder of results", task.out)):
        if not Path(path).is_dir():
            return (
                f"{here} does not see the {what} {path}: model, input and results must be on a file system that all "
                "machines of the cluster share, under the same path"
            )
    found, expected = versions(), task.job.versions
    names = [name for name in expected if found.get(name) != expected[name]]
    others = ", ".join(f"{name} {found.get(name)} instead of {expected[name]}" for name in names)
    return f"{here} has {others}: install the same versions on all machines of the cluster" if others else ""
