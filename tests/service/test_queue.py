"""The queue of questions: what is answered together, what is refused, and what is dropped."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from counterpath.service.queue import BusyError, Call, LateError, Line, Question
from counterpath.utils.deadline import ShouldStop

T = 20.0
"""Seconds after which a test gives up waiting."""


class Model:
    """Doubles numbers, one call after another; the first call takes until it is let go."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.overs: list[ShouldStop] = []
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, rows: pd.DataFrame, over: ShouldStop) -> list[int]:
        numbers = rows["n"].tolist()
        self.calls.append(numbers)
        self.overs.append(over)
        if len(self.calls) == 1:
            self.begun.set()
            assert self.go_on.wait(T)
        if -1 in numbers:
            raise ValueError("no number is below 0")
        return [2 * number for number in numbers]


def _question(model: Model, *numbers: int, key: str = "same", seconds: float = T) -> Question[Any, list[int]]:
    return Question(
        key,
        pd.DataFrame({"n": numbers}),
        model,
        lambda answer, first, last: answer[first:last],
        time.monotonic() + seconds,
    )


def _run(scenario: Callable[[Line, Model], Any], **options: Any) -> tuple[Model, list[Call]]:
    model, calls = Model(), []

    async def main() -> None:
        line = Line("test", **{"most_waiting": 10, "most_rows": 5, "watch": calls.append, **options})
        try:
            await asyncio.wait_for(scenario(line, model), T)
        finally:
            model.go_on.set()
            line.close()

    asyncio.run(main())
    return model, calls


async def _begun(line: Line, model: Model) -> "asyncio.Task[list[int]]":
    """A question that is being answered until the model is let go."""
    task = asyncio.create_task(line.ask(_question(model, 0)))
    await asyncio.to_thread(model.begun.wait, T)
    return task


async def _waiting(line: Line, count: int) -> None:
    while len(line) != count:
        await asyncio.sleep(0.005)


def test_equal_questions_that_wait_are_answered_by_one_call_and_each_gets_its_own() -> None:
    async def scenario(line: Line, model: Model) -> None:
        first = await _begun(line, model)
        rest = [asyncio.create_task(line.ask(_question(model, n, n + 10))) for n in (1, 2)]
        other = asyncio.create_task(line.ask(_question(model, 7, key="other")))
        await _waiting(line, 3)
        assert line.busy
        model.go_on.set()
        assert await asyncio.gather(first, *rest, other) == [[0], [2, 22], [4, 24], [14]]
        await _waiting(line, 0)

    model, calls = _run(scenario)
    assert model.calls == [[0], [1, 11, 2, 12], [7]]
    assert [(call.questions, call.rows) for call in calls] == [(1, 1), (2, 4), (1, 1)]


def test_a_call_has_only_so_many_rows_unless_a_question_alone_has_more() -> None:
    async def scenario(line: Line, model: Model) -> None:
        first = await _begun(line, model)
        rest = [asyncio.create_task(line.ask(_question(model, *range(count)))) for count in (3, 4, 2, 9)]
        await _waiting(line, 4)
        model.go_on.set()
        answers = await asyncio.gather(first, *rest)
        assert [len(answer) for answer in answers] == [1, 3, 4, 2, 9]

    model, _ = _run(scenario)
    assert [len(rows) for rows in model.calls] == [1, 5, 4, 9]


def test_a_full_queue_refuses_and_says_when_to_try_again() -> None:
    async def scenario(line: Line, model: Model) -> None:
        first = await _begun(line, model)
        second = asyncio.create_task(line.ask(_question(model, 1)))
        await _waiting(line, 1)
        with pytest.raises(BusyError, match="1 questions are waiting, as many as may") as refused:
            await line.ask(_question(model, 2))
        assert 1 <= refused.value.retry_after <= 60
        model.go_on.set()
        assert await asyncio.gather(first, second) == [[0], [2]]

    _run(scenario, most_waiting=1)


def test_one_bad_question_does_not_fail_those_that_were_asked_with_it() -> None:
    async def scenario(line: Line, model: Model) -> None:
        first = await _begun(line, model)
        rest = [asyncio.create_task(line.ask(_question(model, n))) for n in (1, -1, 2)]
        await _waiting(line, 3)
        model.go_on.set()
        answers = await asyncio.gather(first, *rest, return_exceptions=True)
        assert answers[0:2] == [[0], [2]]
        assert str(answers[2]) == "no number is below 0"
        assert answers[3] == [4]
        while line.busy:
            await asyncio.sleep(0.005)

    model, _ = _run(scenario)
    assert model.calls == [[0], [1, -1, 2], [1], [-1], [2]]


def test_a_question_that_is_late_is_answered_so_at_once_and_dropped_if_it_waits() -> None:
    async def scenario(line: Line, model: Model) -> None:
        first = await _begun(line, model)
        started = time.monotonic()
        with pytest.raises(LateError, match="try more seconds"):
            await line.ask(_question(model, 1, seconds=0.1))
        assert time.monotonic() - started < 5
        assert len(line) == 0
        model.go_on.set()
        assert await first == [0]

    model, _ = _run(scenario)
    assert model.calls == [[0]]


@pytest.mark.parametrize("late", [True, False])
def test_a_call_goes_on_as_long_as_anybody_waits(late: bool) -> None:
    """The first of the two questions that it answers is late or gone; the second waits on."""

    async def scenario(line: Line, model: Model) -> None:
        blocking = await _begun(line, model)
        tasks = [asyncio.create_task(line.ask(_question(model, n, seconds=s))) for n, s in ((1, 0.5), (2, T))]
        await _waiting(line, 2)
        model.begun.clear()
        model.calls.clear()  # so that the next call waits, too
        gate, model.go_on = model.go_on, threading.Event()
        gate.set()
        assert await blocking == [0]
        assert await asyncio.to_thread(model.begun.wait, T)
        (over,) = model.overs[1:]
        assert not over()
        if not late:
            tasks[0].cancel()
        with pytest.raises(LateError if late else asyncio.CancelledError):
            await tasks[0]
        assert not over(), "somebody waits"
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        assert over()
        model.go_on.set()

    model, _ = _run(scenario)
    assert model.calls == [[1, 2]]


def test_who_goes_away_is_not_answered_and_waits_no_longer() -> None:
    async def scenario(line: Line, model: Model) -> None:
        first = await _begun(line, model)
        second = asyncio.create_task(line.ask(_question(model, 1)))
        await _waiting(line, 1)
        for task in (first, second):
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        assert len(line) == 0
        model.go_on.set()
        assert await line.ask(_question(model, 3)) == [6]

    model, _ = _run(scenario)
    assert model.calls == [[0], [3]]


def test_a_closed_line_gives_up_what_it_has_and_refuses_whoever_comes() -> None:
    async def scenario(line: Line, model: Model) -> None:
        first = await _begun(line, model)
        second = asyncio.create_task(line.ask(_question(model, 1)))
        await _waiting(line, 1)
        line.close()
        for task in (first, second):
            with pytest.raises(BusyError, match="stopping"):
                await task
        with pytest.raises(BusyError, match="stopping"):
            await line.ask(_question(model, 1))
        assert line.busy, "the call itself goes on until it looks"
        assert model.overs[0]()
        model.go_on.set()
        while line.alive:
            await asyncio.sleep(0.005)
        assert not line.busy

    model, _ = _run(scenario)
    assert model.calls == [[0]]


def test_an_error_of_the_model_that_looks_like_lateness_is_told_as_it_is() -> None:
    async def scenario(line: Line, model: Model) -> None:
        def late(rows: pd.DataFrame, over: ShouldStop) -> Any:
            raise TimeoutError("the model's own server")

        question = Question("x", pd.DataFrame({"n": [1]}), late, lambda answer, first, last: answer)
        with pytest.raises(TimeoutError, match="own server"):
            await line.ask(question)

    _run(scenario)


def test_a_process_ends_well_while_a_line_computes() -> None:
    """A thread that is in torch when the interpreter goes away would break the process."""
    code = """if True:
        import asyncio, time
        import pandas as pd, torch
        from counterpath.app.line import LateError, Line, Question

        def compute(rows, seconds):
            until = time.monotonic() + 1.5
            while time.monotonic() < until:
                torch.rand(50, 50) @ torch.rand(50, 50)

        async def main():
            line = Line("busy", most_waiting=1, most_rows=1)
            question = Question("x", pd.DataFrame({"n": [1]}), compute, print, time.monotonic() + 0.2)
            try:
                await line.ask(question)
            except LateError:
                print("late")

        asyncio.run(main())
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "late\n", "")
