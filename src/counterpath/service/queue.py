"""A queue of questions before one thread: those that can be answered together are answered by one call.

A question about one person takes nearly as long as one about dozens, because a search works on blocks of rows. So while
one call runs, questions gather, and the next call takes as many as it can that ask for the same.
"""

import asyncio
import atexit
import logging
import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, NoReturn, TypeVar

import pandas as pd

from counterpath.data.schema import Number
from counterpath.utils.deadline import ShouldStop
from counterpath.utils.errors import CounterpathError

A = TypeVar("A")
T = TypeVar("T")

GATHER = 0.02
"""How many seconds a call waits for more questions, if the one before it answered several: they come in crowds."""
_LONGEST_WAIT = 60
STOPPING = "the service is stopping; ask again later"
_LOG = logging.getLogger("counterpath.app")


class BusyError(CounterpathError):
    """There is no room for another question; `retry_after` is in how many seconds there may be."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LateError(CounterpathError):
    """The time for a question was up before it was answered."""


@dataclass(eq=False)
class Question(Generic[A, T]):
    """Rows to ask about.

    Attributes:
        key: Questions with equal keys may be answered by one call.
        rows: The rows.
        ask: Answers rows, those of other questions among them, unless it is told to give up.
        finish: What becomes of this question's part of an answer, from its first row to before its last.
        deadline: When nobody waits for it any more, by the clock `time.monotonic`.
        answer: Will hold what `finish` returns.
        dropped: Whether whoever asked is gone.
    """

    key: Hashable
    rows: pd.DataFrame
    ask: Callable[[pd.DataFrame, ShouldStop], A]
    finish: Callable[[A, int, int], T]
    deadline: Number = math.inf
    answer: "Future[T]" = field(default_factory=Future)
    dropped: bool = False

    @property
    def awaited(self) -> bool:
        """Whether anybody still waits for it."""
        return not self.dropped and time.monotonic() < self.deadline


@dataclass(frozen=True)
class Call:
    """What one call answered: how many questions and rows, and in how many seconds."""

    questions: int
    rows: int
    seconds: float


class Line:
    """Answers questions one call after another, on a thread of its own.

    Args:
        name: Of the thread.
        most_waiting: How many questions may wait.
        most_rows: How many rows questions may have together to be answered by one call.
        watch: Told about every call, on the thread of the line.
    """

    def __init__(
        self,
        name: str,
        *,
        most_waiting: int,
        most_rows: int,
        watch: Callable[[Call], None] = lambda call: None,
    ) -> None:
        self._most_waiting, self._most_rows, self._watch = most_waiting, most_rows, watch
        self._waiting: list[Question[Any, Any]] = []
        self._changed = threading.Condition()
        self._answering: list[Question[Any, Any]] = []
        self._closed = False
        self._crowded = False
        self._seconds = 1.0  # that a call takes, of late
        # Answers are told on a thread of their own, so that the next call need not wait for it.
        self._to_tell: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # Daemons, so that a line that nobody closed does not keep the process alive. But a thread that computes while
        # the interpreter goes away breaks the process, so they are waited for before that.
        self._teller = threading.Thread(target=self._tell, name=f"{name}-telling", daemon=True)
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._teller.start()
        self._thread.start()
        atexit.register(self._end)

    def __len__(self) -> int:
        """How many questions wait."""
        return len(self._waiting)

    @property
    def alive(self) -> bool:
        """Whether questions are answered at all."""
        return self._thread.is_alive() and self._teller.is_alive()

    @property
    def busy(self) -> bool:
        """Whether any question waits or is being answered."""
        with self._changed:
            return bool(self._waiting or self._answering)

    async def ask(self, question: Question[Any, T]) -> T:
        """The answer to a question.

        A question whose asker is cancelled is taken out of the queue.

        Raises:
            BusyError: Too many questions are waiting.
            LateError: The question's deadline has passed.
        """
        self._put(question)
        left = None if math.isinf(question.deadline) else question.deadline - time.monotonic()
        limit = asyncio.timeout(left)
        try:
            async with limit:
                return await asyncio.wrap_future(question.answer)
        except TimeoutError:
            if not limit.expired():
                raise  # the model's own
            raise LateError(
                "the time for this request was up before it was answered; try a longer time_limit, fewer rows or plans"
            ) from None
        finally:
            self._drop(question)

    def close(self) -> None:
        """Take no further questions, give up those that are here, and say so to whoever waits for them."""
        with self._changed:
            self._closed = True
            for question in [*self._waiting, *self._answering]:
                _settle(question, partial(question.answer.set_exception, BusyError(STOPPING, retry_after=5)))
                question.dropped = True
            self._waiting.clear()
            self._changed.notify_all()

    def _end(self) -> None:
        self.close()
        self._thread.join()
        self._teller.join()

    def _put(self, question: Question[Any, Any]) -> None:
        with self._changed:
            if self._closed:
                raise BusyError(STOPPING, retry_after=5)
            if len(self._waiting) >= self._most_waiting:
                raise BusyError(
                    f"{len(self._waiting)} questions are waiting, as many as may; ask again later", self._wait()
                )
            self._waiting.append(question)
            self._changed.notify_all()

    def _wait(self) -> int:
        """In how many seconds those who wait now will have been answered, roughly."""
        rows = sum(len(question.rows) for question in self._waiting)
        return min(_LONGEST_WAIT, max(1, math.ceil(self._seconds * math.ceil(rows / self._most_rows))))

    def _drop(self, question: Question[Any, Any]) -> None:
        with self._changed:
            question.dropped = True
            if question in self._waiting:
                self._waiting.remove(question)

    def _work(self) -> None:
        while True:
            batch = self._next()
            if batch is None:
                self._to_tell.put(None)
                atexit.unregister(self._end)
                return
            started = time.monotonic()
            self._answer(batch)
            taken = time.monotonic() - started
            self._seconds = 0.7 * self._seconds + 0.3 * taken
            self._crowded = len(batch) > 1
            self._watch(Call(len(batch), sum(len(question.rows) for question in batch), taken))

    def _tell(self) -> None:
        while (job := self._to_tell.get()) is not None:
            job()

    def _next(self) -> list[Question[Any, Any]] | None:
        """The questions to answer by the next call, once there are any; None at the end."""
        with self._changed:
            while True:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return None
                self._gather()
                batch = self._taken()
                if batch:
                    self._answering += batch
                    return batch

    def _gather(self) -> None:
        until = time.monotonic() + (GATHER if self._crowded else 0)
        while not self._closed and (left := until - time.monotonic()) > 0:
            self._changed.wait(left)

    def _taken(self) -> list[Question[Any, Any]]:
        """Take the oldest question out of the queue, and those that can be answered with it."""
        self._waiting = [question for question in self._waiting if question.awaited]
        batch: list[Question[Any, Any]] = []
        rows = 0
        for question in self._waiting:
            fits = not batch or (question.key == batch[0].key and rows + len(question.rows) <= self._most_rows)
            if fits:
                batch.append(question)
                rows += len(question.rows)
        self._waiting = [question for question in self._waiting if question not in batch]
        for question in batch:
            question.answer.set_running_or_notify_cancel()
        return batch

    def _answer(self, batch: Sequence[Question[Any, Any]]) -> None:
        try:
            answer = _asked(batch)
        except Exception as error:
            if len(batch) == 1:
                self._done(batch[0], partial(_raise, error))
                return
            # One of them may be at fault, and the others are not to suffer from it.
            _LOG.info("%d questions cannot be answered together, and are asked one by one: %s", len(batch), error)
            for question in batch:
                self._answer([question])
            return
        last = 0
        for question in batch:
            first, last = last, last + len(question.rows)
            self._to_tell.put(partial(self._done, question, partial(question.finish, answer, first, last)))

    def _done(self, question: Question[Any, T], finish: Callable[[], T]) -> None:
        tell: Callable[[], None] | None = None
        if not question.dropped:
            try:
                tell = partial(question.answer.set_result, finish())
            except Exception as error:
                tell = partial(question.answer.set_exception, error)
        with self._changed:
            self._answering.remove(question)
            if tell is not None:
                _settle(question, tell)


def _asked(batch: Sequence[Question[A, Any]]) -> A:
    """One call for several questions, which goes on as long as anybody waits for any of them."""

    def over() -> bool:
        return not any(question.awaited for question in batch)

    if len(batch) == 1:
        return batch[0].ask(batch[0].rows, over)
    return batch[0].ask(pd.concat([question.rows for question in batch], ignore_index=True), over)


def _settle(question: Question[Any, Any], tell: Callable[[], None]) -> None:
    """Tell what became of a question, unless nobody waits for it or it has been told."""
    if not question.dropped and not question.answer.done():
        tell()


def _raise(error: Exception) -> NoReturn:
    raise error
