"""Several workers behind one port: processes that accept from the same socket, and one that looks after them."""

import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from counterpath.data.schema import Number
from counterpath.utils.errors import InputError

SOCKET = "COUNTERPATH_SOCKET"
"""The variable that tells a worker the file descriptor of the socket."""
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux
_POLL_SECONDS = 0.1  # between two looks at the workers: hardly any work, and soon enough
_TOO_SOON = 10.0
"""Seconds after which a worker that ends has at least started: one that ends before is not started again for ever."""
_LOG = logging.getLogger("counterpath.service")


def inherited() -> socket.socket | None:
    """The socket that a worker accepts from; None in a process that is no worker."""
    given = os.environ.get(SOCKET)
    if given is None:
        return None
    if sys.platform == "linux":  # who is left behind by a parent that was killed would answer for ever
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    return socket.socket(fileno=int(given))


def look_after(
    count: int, listening: socket.socket, arguments: Sequence[str], grace: Number, announce: Callable[[], Any]
) -> int | None:
    """Start workers, start those again that end by themselves, and pass signals on; return the one that stopped all.

    Args:
        count: How many.
        listening: What they accept from.
        arguments: Of the command, of which each worker is a process.
        grace: How many seconds requests may still take when the service is stopped.
        announce: Called once the workers are started.
    """
    os.set_inheritable(listening.fileno(), True)
    environment = os.environ | {SOCKET: str(listening.fileno())}
    # In sessions of their own: else Ctrl-C in a terminal reached them, too, and what is passed on would come second.
    shared: dict[str, Any] = {"env": environment, "pass_fds": [listening.fileno()], "start_new_session": True}
    command = [sys.executable, "-m", "counterpath.cli", *arguments]

    def start() -> tuple["subprocess.Popen[bytes]", float]:
        return subprocess.Popen(command, **shared), time.monotonic()

    stopped: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGHUP:
            stopped.append(number)
            return
        for process, _ in workers:
            process.send_signal(number)

    workers: list[tuple[subprocess.Popen[bytes], float]] = []
    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        workers += [start() for _ in range(count)]
        announce()
        while not stopped:
            time.sleep(_POLL_SECONDS)
            for place in [number for number, (process, _) in enumerate(workers) if process.poll() is not None]:
                workers[place] = workers[place] if stopped else _again(place, *workers[place], start)
        return stopped[0]
    finally:
        for process, _ in workers:
            process.send_signal(signal.SIGTERM)
        _wait(workers, grace)
        for number, handler in before.items():
            signal.signal(number, handler)


def _again(
    place: int,
    process: "subprocess.Popen[bytes]",
    since: float,
    start: Callable[[], tuple["subprocess.Popen[bytes]", float]],
) -> tuple["subprocess.Popen[bytes]", float]:
    """A worker in place of one that has ended by itself."""
    if time.monotonic() - since < _TOO_SOON:
        raise InputError(f"worker {place} did not start (exit code {process.returncode}); what it said stands above")
    _LOG.warning("worker %d ended with the exit code %s, and is started again", place, process.returncode)
    return start()


def _wait(workers: Sequence[tuple["subprocess.Popen[bytes]", float]], grace: Number) -> None:
    """Wait until all have ended; those that do not within their grace, and some seconds, are killed."""
    deadline = time.monotonic() + grace + _TOO_SOON
    for process, _ in workers:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
