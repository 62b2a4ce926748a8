from functools import partial

import torch

from counterpath.experiments.bench.timing import Task, peak_memory

MEGA = 2**20


def allocation(kept: int, passing: int) -> Task:
    """A task that needs `passing` bytes for a moment; `kept` bytes are there before it begins."""
    return partial(lambda before: float(torch.ones(passing // 4).sum() + before[0]), torch.ones(kept // 4))


def test_the_peak_is_what_a_task_needs_beyond_what_was_there() -> None:
    peak = peak_memory(allocation, torch.device("cpu"), (100 * MEGA, 64 * MEGA), (64, 64), threads=1)
    assert 60 * MEGA < peak.size < 90 * MEGA
    assert "fresh process" in peak.how
