"""Several pieces of work timed side by side, so that what else the machine does hits all of them alike."""

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from counterpath.errors import InputError
from counterpath.progress import Advance

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
        if len(self.rounds) < 2:
            return self.median, self.median
        lower, _, upper = statistics.quantiles(self.rounds, n=4, method="inclusive")
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

    First every task is called once, which is timed on its own; then `warmup` times untimed.

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
        first[name] = seconds_of(task, device, 1)
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
    _finish(device)
    started = time.perf_counter()
    for _ in range(calls):
        task()
    _finish(device)
    return (time.perf_counter() - started) / calls


def _finish(device: torch.device) -> None:
    """Wait until a GPU has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
