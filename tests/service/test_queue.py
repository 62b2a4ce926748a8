"""The batch queue: what is computed together, what is refused, and what is cancelled."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from counterpath.service.dispatcher import BatchQueue, BatchStats, BusyError, Job, TimedOutError
from counterpath.utils.progress import ShouldStop

T = 20.0
"""Seconds after which a test gives up waiting."""


class Model:
    """Doubles numbers, one call after another; the first call takes until it is let go."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.should_stop: list[ShouldStop] = []
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, rows: pd.DataFrame, should_stop: ShouldStop) -> list[int]:
        numbers = rows["n"].tolist()
        self.calls.append(numbers)
        self.should_stop.append(should_stop)
        if len(self.calls) == 1:
            self.begun.set()
            assert self.go_on.wait(T)
        if -1 in numbers:
            raise ValueError("no number is below 0")
        return [2 * number for number in numbers]


def _job(model: Model, *numbers: int, key: str = "same", seconds: float = T) -> Job[Any, list[int]]:
    return Job(
        key,
        pd.DataFrame({"n": numbers}),
        model,
        lambda result, first, last: result[first:last],
        time.monotonic() + seconds,
    )


def _run(scenario: Callable[[BatchQueue, Model], Any], **options: Any) -> tuple[Model, list[BatchStats]]:
    model, batches = Model(), []

    async def main() -> None:
        queue = BatchQueue("test", **{"max_waiting": 10, "max_rows": 5, "on_batch": batches.append, **options})
        try:
            await asyncio.wait_for(scenario(queue, model), T)
        finally:
            model.go_on.set()
            queue.close()

    asyncio.run(main())
    return model, batches


async def _begun(queue: BatchQueue, model: Model) -> "asyncio.Task[list[int]]":
    """A job that is being computed until the model is let go."""
    task = asyncio.create_task(queue.submit(_job(model, 0)))
    await asyncio.to_thread(model.begun.wait, T)
    return task


async def _waiting(queue: BatchQueue, count: int) -> None:
    while len(queue) != count:
        await asyncio.sleep(0.005)


def test_equal_jobs_that_wait_are_computed_together_and_each_gets_its_own_result() -> None:
    async def scenario(queue: BatchQueue, model: Model) -> None:
        first = await _begun(queue, model)
        rest = [asyncio.create_task(queue.submit(_job(model, n, n + 10))) for n in (1, 2)]
        other = asyncio.create_task(queue.submit(_job(model, 7, key="other")))
        await _waiting(queue, 3)
        assert queue.busy
        model.go_on.set()
        assert await asyncio.gather(first, *rest, other) == [[0], [2, 22], [4, 24], [14]]
        await _waiting(queue, 0)

    model, batches = _run(scenario)
    assert model.calls == [[0], [1, 11, 2, 12], [7]]
    assert [(batch.jobs, batch.rows) for batch in batches] == [(1, 1), (2, 4), (1, 1)]


def test_a_batch_has_only_so_many_rows_unless_a_job_alone_has_more() -> None:
    async def scenario(queue: BatchQueue, model: Model) -> None:
        first = await _begun(queue, model)
        rest = [asyncio.create_task(queue.submit(_job(model, *range(count)))) for count in (3, 4, 2, 9)]
        await _waiting(queue, 4)
        model.go_on.set()
        results = await asyncio.gather(first, *rest)
        assert [len(result) for result in results] == [1, 3, 4, 2, 9]

    model, _ = _run(scenario)
    assert [len(rows) for rows in model.calls] == [1, 5, 4, 9]


def test_a_full_queue_refuses_and_says_when_to_try_again() -> None:
    async def scenario(queue: BatchQueue, model: Model) -> None:
        first = await _begun(queue, model)
        second = asyncio.create_task(queue.submit(_job(model, 1)))
        await _waiting(queue, 1)
        with pytest.raises(BusyError, match="1 requests are waiting, as many as may") as refused:
            await queue.submit(_job(model, 2))
        assert 1 <= refused.value.retry_after <= 60
        model.go_on.set()
        assert await asyncio.gather(first, second) == [[0], [2]]

    _run(scenario, max_waiting=1)


def test_one_bad_job_does_not_fail_those_of_its_batch() -> None:
    async def scenario(queue: BatchQueue, model: Model) -> None:
        first = await _begun(queue, model)
        rest = [asyncio.create_task(queue.submit(_job(model, n))) for n in (1, -1, 2)]
        await _waiting(queue, 3)
        model.go_on.set()
        results = await asyncio.gather(first, *rest, return_exceptions=True)
        assert results[0:2] == [[0], [2]]
        assert str(results[2]) == "no number is below 0"
        assert results[3] == [4]
        while queue.busy:
            await asyncio.sleep(0.005)

    model, _ = _run(scenario)
    assert model.calls == [[0], [1, -1, 2], [1], [-1], [2]]


def test_a_job_times_out_at_once_and_is_cancelled_if_it_waits() -> None:
    async def scenario(queue: BatchQueue, model: Model) -> None:
        first = await _begun(queue, model)
        started = time.monotonic()
        with pytest.raises(TimedOutError, match="try a longer time_limit"):
            await queue.submit(_job(model, 1, seconds=0.1))
        assert time.monotonic() - started < 5
        assert len(queue) == 0
        model.go_on.set()
        assert await first == [0]

    model, _ = _run(scenario)
    assert model.calls == [[0]]


@pytest.mark.parametrize("timed_out", [True, False])
def test_a_batch_goes_on_as_long_as_anybody_waits(timed_out: bool) -> None:
    """The first of its two jobs times out or is cancelled; the second waits on."""

    async def scenario(queue: BatchQueue, model: Model) -> None:
        blocking = await _begun(queue, model)
        tasks = [asyncio.create_task(queue.submit(_job(model, n, seconds=s))) for n, s in ((1, 0.5), (2, T))]
        await _waiting(queue, 2)
        model.begun.clear()
        model.calls.clear()  # so that the next batch waits, too
        gate, model.go_on = model.go_on, threading.Event()
        gate.set()
        assert await blocking == [0]
        assert await asyncio.to_thread(model.begun.wait, T)
        (should_stop,) = model.should_stop[1:]
        assert not should_stop()
        if not timed_out:
            tasks[0].cancel()
        with pytest.raises(TimedOutError if timed_out else asyncio.CancelledError):
            await tasks[0]
        assert not should_stop(), "somebody waits"
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        assert should_stop()
        model.go_on.set()

    model, _ = _run(scenario)
    assert model.calls == [[1, 2]]


def test_a_cancelled_job_is_not_computed_and_waits_no_longer() -> None:
    async def scenario(queue: BatchQueue, model: Model) -> None:
        first = await _begun(queue, model)
        second = asyncio.create_task(queue.submit(_job(model, 1)))
        await _waiting(queue, 1)
        for task in (first, second):
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        assert len(queue) == 0
        model.go_on.set()
        assert await queue.submit(_job(model, 3)) == [6]

    model, _ = _run(scenario)
    assert model.calls == [[0], [3]]


def test_a_closed_queue_cancels_what_it_has_and_refuses_what_comes() -> None:
    async def scenario(queue: BatchQueue, model: Model) -> None:
        first = await _begun(queue, model)
        second = asyncio.create_task(queue.submit(_job(model, 1)))
        await _waiting(queue, 1)
        queue.close()
        for task in (first, second):
            with pytest.raises(BusyError, match="stopping"):
                await task
        with pytest.raises(BusyError, match="stopping"):
            await queue.submit(_job(model, 1))
        assert queue.busy, "the batch itself goes on until it looks"
        assert model.should_stop[0]()
        model.go_on.set()
        while queue.busy or any(thread.name.startswith("test") for thread in threading.enumerate()):
            await asyncio.sleep(0.005)
        queue.close()  # again, which does nothing

    model, _ = _run(scenario)
    assert model.calls == [[0]]


def test_a_timeout_of_the_model_itself_is_raised_as_it_is() -> None:
    async def scenario(queue: BatchQueue, model: Model) -> None:
        def time_out(rows: pd.DataFrame, should_stop: ShouldStop) -> Any:
            raise TimeoutError("the model's own server")

        job = Job("x", pd.DataFrame({"n": [1]}), time_out, lambda result, first, last: result)
        with pytest.raises(TimeoutError, match="own server"):
            await queue.submit(job)

    _run(scenario)


@pytest.mark.slow
def test_a_process_ends_well_while_a_queue_computes() -> None:
    """A thread that is in torch when the interpreter goes away would break the process."""
    code = """if True:
        import asyncio, time
        import pandas as pd, torch
        from counterpath.service.dispatcher import BatchQueue, Job, TimedOutError

        def compute(rows, should_stop):
            until = time.monotonic() + 1.5
            while time.monotonic() < until:
                torch.rand(50, 50) @ torch.rand(50, 50)

        async def main():
            queue = BatchQueue("busy", max_waiting=1, max_rows=1)
            job = Job("x", pd.DataFrame({"n": [1]}), compute, print, time.monotonic() + 0.2)
            try:
                await queue.submit(job)
            except TimedOutError:
                print("timed out")

        asyncio.run(main())
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "timed out\n", "")
