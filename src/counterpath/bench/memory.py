"""How much memory a piece of work needs at its peak, beyond what its models and rows take."""

import contextlib
import ctypes
import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from counterpath.bench.timing import Task

_STATUS = Path("/proc/self/status")
_FORGET = Path("/proc/self/clear_refs")
_ALLOCATED = "allocated by torch on the GPU"
_RESIDENT = "resident set of a fresh process"


@dataclass(frozen=True)
class Peak:
    """The most memory that a task took at any time of its first call.

    Attributes:
        size: Bytes beyond what was in use when the task was ready to run.
        how: What was measured.
    """

    size: int
    how: str


def peak_memory(
    build: Callable[..., Task], device: torch.device, given: tuple[Any, ...], warm: tuple[Any, ...], threads: int
) -> Peak:
    """Run the task `build(*given)` once and see how far the memory rises.

    On a CPU the work is done in a fresh process, because what one has freed is not given back to the system: `build`
    is a function of a module, and its arguments can be sent to another process.

    Args:
        build: Makes the task; what it allocates itself is not counted.
        device: Where the task computes.
        given: Its arguments.
        warm: Arguments of a small task that is run before, so that what the libraries set up once is not counted.
        threads: How many threads the fresh process uses.
    """
    if device.type == "cuda":
        return Peak(_on_gpu(build, device, given, warm), _ALLOCATED)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as process:
        return Peak(process.submit(_resident, build, given, warm, threads).result(), _RESIDENT)


def _on_gpu(build: Callable[..., Task], device: torch.device, given: tuple[Any, ...], warm: tuple[Any, ...]) -> int:
    build(*warm)()
    task = build(*given)
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    result = task()
    torch.cuda.synchronize(device)
    del result
    return torch.cuda.max_memory_allocated(device) - before


def _resident(build: Callable[..., Task], given: tuple[Any, ...], warm: tuple[Any, ...], threads: int) -> int:
    torch.set_num_threads(threads)
    build(*warm)()
    task = build(*given)
    _give_back()
    _forget_peak()
    before = _kilobytes("VmRSS")
    result = task()
    peak = _kilobytes("VmHWM")
    del result
    return max(0, peak - before) * 1024


def _give_back() -> None:
    """Return freed memory to the system, where the C library can: the task would fill it unseen."""
    if _STATUS.exists() and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)


def _forget_peak() -> None:
    """Count the most memory that was ever used from now on: building the task may have needed more in passing."""
    with contextlib.suppress(OSError):  # not every system can do it; the figure is then an upper bound
        _FORGET.write_text("5")


def _kilobytes(entry: str) -> int:
    """What the system says about this process: VmRSS is what is resident now, VmHWM the most that ever was."""
    if _STATUS.exists():
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{entry}:"))
        return int(line.split()[1])
    import resource  # not on every system, and nobody else needs it

    # Elsewhere only the most that ever was is known; macOS counts it in bytes.
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most // 1024 if sys.platform == "darwin" else most
