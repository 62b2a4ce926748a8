"""Ray, started here or joined: where it listens, what it has, and how it is left.

A Ray that is started here is for this job alone, and nothing of it listens beyond the loopback address. One that runs
already, be it a cluster or what a notebook has started, is used as it is.
"""

import logging
import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest.mock import patch

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


def is_connected() -> bool:
    """Whether this process is connected already."""
    return bool(ray().is_initialized())


def start(workers: int, gpus: int) -> Cluster:
    """Start Ray on this machine, for so many workers, as child processes that do not outlive this one."""
    library, constants = ray(), require("ray._private.ray_constants", "ray", "--engine ray")
    loopback = {"ENABLE_RAY_CLUSTER": False}  # by which Ray takes the loopback address for that of this machine
    try:
        with patch.dict(os.environ, _worker_environment()), patch.dict(vars(constants), loopback | _OWN_PYTHON):
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
    _set_worker_logs(False)
    return _describe(is_ours=True)


def join(address: str) -> Cluster:
    """Connect to a Ray that runs already.

    Raises:
        InputError: There is none.
    """
    library, constants = ray(), require("ray._private.ray_constants", "ray", "--engine ray")
    try:
        _check_reachable(address)
        with patch.dict(vars(constants), _OWN_PYTHON):
            library.init(address=address, **_QUIET)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        problem = " ".join(str(error).split()).rstrip(".")
        raise InputError(
            f"--address {address!r} leads to no Ray: {problem}. Run this on a machine of the cluster with auto or "
            "HOST:6379, with RAY_AUTH_MODE=token if it asks for a token, or leave --address out to start Ray here"
        ) from error
    _set_worker_logs(False)
    return _describe(is_ours=True)


def connected() -> Cluster:
    """The Ray that this process is connected to already; it is left as it is."""
    return _describe(is_ours=False)


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


_QUIET: Mapping[str, Any] = {"log_to_driver": False, "configure_logging": True, "logging_level": logging.ERROR}
# Ray reads these from the environment when it is imported, which may have happened long ago: so they are patched.
_OWN_PYTHON = {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": False}
"""Workers run in the Python environment that is there; none is made for them."""


def _describe(*, is_ours: bool) -> Cluster:
    resources = ray().cluster_resources()
    return Cluster(is_ours, int(resources.get("CPU", 0)), int(resources.get("GPU", 0)))


def _check_reachable(address: str) -> None:
    """Raise an OSError if nothing listens at an address, which Ray itself would try for minutes."""
    if "://" in address:
        return
    services = require("ray._private.services", "ray", "--engine ray")
    host, _, port = services.canonicalize_bootstrap_address(address).rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT).close()


def _set_worker_logs(enabled: bool) -> None:
    """Whether Ray prints what happens to workers, to standard output, where results are."""
    worker: Any = require("ray._private.worker", "ray", "--engine ray")
    worker._worker_logs_enabled = enabled


def _worker_environment() -> dict[str, str]:
    """What all processes of Ray inherit: workers find the modules that this process finds, and have one thread each."""
    return {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
