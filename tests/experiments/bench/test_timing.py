import time
from functools import partial

import pytest
import torch

from counterpath.experiments.bench.timing import Task, Timing, peak_memory, side_by_side
from counterpath.utils.errors import InputError

CPU = torch.device("cpu")
MEGA = 2**20


def test_tasks_take_turns_in_an_order_that_the_seed_decides() -> None:
    def calls(seed: int) -> list[str]:
        log: list[str] = []
        tasks = {name: partial(log.append, name) for name in "abcd"}
        timings = side_by_side(tasks, CPU, rounds=6, warmup=2, seed=seed)
        assert all(len(timing.rounds) == 6 for timing in timings.values())
        return log

    log = calls(0)
    assert log[:12] == [name for name in "abcd" for _ in range(3)]
    rounds = ["".join(log[start : start + 4]) for start in range(12, 36, 4)]
    assert all(sorted(order) == list("abcd") for order in rounds)
    assert len(set(rounds)) > 1
    assert calls(0) == log != calls(1)


def test_the_first_call_is_timed_on_its_own() -> None:
    waits = iter([0.05])
    timing = side_by_side({"compiles": lambda: time.sleep(next(waits, 0.001))}, CPU, rounds=5, warmup=0)["compiles"]
    assert timing.first >= 0.05 > timing.median >= 0.001
    lower, upper = timing.quartiles
    assert lower <= timing.median <= upper


def test_several_calls_make_one_time() -> None:
    count = iter(range(100))
    timing = side_by_side({"sleep": lambda: (next(count), time.sleep(0.002))}, CPU, rounds=3, warmup=1, calls=4)
    assert next(count) == 1 + 1 + 3 * 4
    assert 0.002 <= timing["sleep"].median < 0.008 * 4


def test_without_rounds_the_first_call_stands_for_all() -> None:
    timing = side_by_side({"once": lambda: time.sleep(0.002)}, CPU, rounds=0)["once"]
    assert timing.rounds == ()
    assert timing.median == timing.first == timing.quartiles[0]


def test_quartiles() -> None:
    assert Timing(9.0, (1.0, 2.0, 3.0, 4.0, 5.0)).quartiles == (2.0, 4.0)


def test_every_call_moves_the_bar_on() -> None:
    notes: list[str] = []

    def advance(amount: int = 1, note: str = "") -> None:
        notes.append(note)

    side_by_side({"a": lambda: None, "b": lambda: None}, CPU, rounds=3, advance=advance)
    assert sorted(notes) == ["a"] * 4 + ["b"] * 4


@pytest.mark.parametrize("wrong", [{"rounds": -1}, {"rounds": 1, "warmup": -1}, {"rounds": 1, "calls": 0}])
def test_counts_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="at least"):
        side_by_side({}, CPU, **wrong)


def allocation(kept: int, passing: int) -> Task:
    """A task that needs `passing` bytes for a moment; `kept` bytes are there before it begins."""
    return partial(lambda before: float(torch.ones(passing // 4).sum() + before[0]), torch.ones(kept // 4))


def test_the_peak_is_what_a_task_needs_beyond_what_was_there() -> None:
    size, how = peak_memory(partial(allocation, 100 * MEGA, 64 * MEGA), partial(allocation, 64, 64), CPU, threads=1)
    assert 60 * MEGA < size < 90 * MEGA
    assert "fresh process" in how
