"""How long a piece of work takes, how much memory it needs at its peak, and on what machine that was measured."""

import contextlib
import ctypes
import multiprocessing
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from counterpath.utils.errors import InputError
from counterpath.utils.progress import Advance

Task = Callable[[], object]
"""A piece of work, ready to run."""


@dataclass(frozen=True)
class Timing:
    """How long a task took.

    Attributes:
        first: Seconds of the very first call, in which whatever is compiled is compiled.
        rounds: Seconds of a call, one number a round. Without rounds the first call stands for all of them.
    """

    first: float
    rounds: tuple[float, ...] = ()

    @property
    def median(self) -> float:
        """Seconds of a call, the middle of all rounds."""
        return statistics.median(self.rounds or (self.first,))

    @property
    def quartiles(self) -> tuple[float, float]:
        """Between which seconds the middle half of the rounds lies."""
        lower, upper = np.quantile(self.rounds or (self.first,), (0.25, 0.75)).tolist()
        return lower, upper


def side_by_side(
    tasks: Mapping[str, Task],
    device: torch.device,
    *,
    rounds: int,
    warmup: int = 2,
    calls: int = 1,
    seed: int = 0,
    advance: Advance | None = None,
) -> dict[str, Timing]:
    """Time every task in every round, in another order each round.

    First every task is called once, which is timed on its own; then `warmup` times untimed. (`torch.utils.benchmark`
    times one task after the other; on a busy machine that measures the machine.)

    Args:
        tasks: What to time, by name.
        device: Where the tasks compute; on a GPU each time is taken when all work is done.
        rounds: How often each task is timed; 0 times nothing but the first call.
        warmup: Calls between the first and the rounds.
        calls: How many calls in a row make one time, which is divided by them. More than one is for GPUs, where a
            search launches a step before the one before it is done.
        seed: Of the orders.
        advance: Moves a progress bar on, once a task and round, and once for its first call.
    """
    if rounds < 0 or warmup < 0 or calls < 1:
        raise InputError(
            f"rounds and warm-up calls are at least 0, calls at least 1; given {rounds}, {warmup} and {calls}"
        )
    order, shuffler = list(tasks), random.Random(seed)
    first: dict[str, float] = {}
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for name, task in tasks.items():
        first[name] = seconds_of(task, device)
        for _ in range(warmup if rounds else 0):
            task()
        if advance is not None:
            advance(note=name)
    for _ in range(rounds):
        shuffler.shuffle(order)
        for name in order:
            times[name].append(seconds_of(tasks[name], device, calls))
            if advance is not None:
                advance(note=name)
    return {name: Timing(first[name], tuple(times[name])) for name in tasks}


def seconds_of(task: Task, device: torch.device, calls: int = 1) -> float:
    """How long a call takes until all is done, also on a GPU."""
    _synchronize(device)
    started = time.perf_counter()
    for _ in range(calls):
        task()
    _synchronize(device)
    return (time.perf_counter() - started) / calls


def _synchronize(device: torch.device) -> None:
    """Wait until a GPU has done all of its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory(
    build: Callable[[], Task], warmup: Callable[[], Task], device: torch.device, threads: int
) -> tuple[int, str]:
    """Run a task once and see how far the memory rises.

    On a CPU the work is done in a fresh process, because what one has freed is not returned to the system: `build` and
    `warmup` can be sent to another process.

    Args:
        build: Makes the task; what it allocates itself is not counted.
        warmup: Makes a small task that is run before, so that what the libraries set up once is not counted.
        device: Where the task computes.
        threads: How many threads the fresh process uses.

    Returns:
        Bytes at the peak beyond what was in use when the task was ready to run, and what was measured.
    """
    if device.type == "cuda":
        return _peak_on_gpu(build, warmup, device), "allocated by torch on the GPU"
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as process:
        return process.submit(_peak_of_process, build, warmup, threads).result(), "resident set of a fresh process"


def _peak_on_gpu(build: Callable[[], Task], warmup: Callable[[], Task], device: torch.device) -> int:
    warmup()()
    task = build()
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    result = task()
    torch.cuda.synchronize(device)
    del result
    return torch.cuda.max_memory_allocated(device) - before


_STATUS = Path("/proc/self/status")


def _peak_of_process(build: Callable[[], Task], warmup: Callable[[], Task], threads: int) -> int:
    torch.set_num_threads(threads)
    warmup()()
    task = build()
    # Freed memory goes back to the system, where the C library can: the task would fill it unseen.
    if _STATUS.exists() and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)
    # The peak counts from here on: building the task may have needed more in passing.
    with contextlib.suppress(OSError):  # not every system can do it; the figure is then an upper bound
        Path("/proc/self/clear_refs").write_text("5")
    before = _kilobytes("VmRSS")
    result = task()
    peak = _kilobytes("VmHWM")
    del result
    return max(0, peak - before) * 1024


def _kilobytes(entry: str) -> int:
    """What the system says about this process: VmRSS is what is resident now, VmHWM the most that ever was."""
    if _STATUS.exists():
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{entry}:"))
        return int(line.split()[1])
    import resource  # not on every system, and nobody else needs it

    # Elsewhere only the most that ever was is known; macOS counts it in bytes.
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most // 1024 if sys.platform == "darwin" else most


_MATRIX = {"cpu": 2048, "cuda": 8192}
"""Rows and columns of the product that shows how fast a device multiplies: large enough to keep all of it busy."""
_CPU_INFO = Path("/proc/cpuinfo")


def machine(device: torch.device) -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "device": device.type,
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "matmul_flop_per_second": _matmul_speed(device),
    }


def _matmul_speed(device: torch.device) -> float:
    """Floating-point operations a second in the product of two large matrices, as exact as products are now."""
    size = _MATRIX[device.type]
    one, out = torch.rand(size, size, device=device), torch.empty(size, size, device=device)
    times = side_by_side({"product": lambda: torch.mm(one, one, out=out)}, device, rounds=5)
    return 2 * size**3 / times["product"].median


def _cpu() -> str:
    if _CPU_INFO.exists():
        names = [line.partition(":")[2].strip() for line in _CPU_INFO.read_text().splitlines() if "model name" in line]
        if names:
            return names[0]
    return platform.processor() or platform.machine()
