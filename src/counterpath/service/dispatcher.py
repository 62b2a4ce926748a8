"""Runs models for all requests, without holding up the event loop.

One row takes a search nearly as long as dozens, because it works on blocks of rows. So while one batch of jobs is
computed, others gather, and the next batch takes as many of them as it can that have the same key. What rows may ask
for by themselves is no part of the key: see `merging`.

A large request is computed in slices, each a job that waits behind all that came before it, on a thread beside that of
the small ones. So nobody waits for longer than for a slice of it, and who asks about one row does not even for that.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import AsyncGenerator, Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Generic, TypeVar

import pandas as pd

from counterpath.data.schema import Number
from counterpath.data.tables import cast_if_lossless, restore, to_pandas
from counterpath.explainer.explainer import Explainer
from counterpath.explainer.request import Request
from counterpath.explanation import Explanation
from counterpath.explanation.tables import PATH_BACK, PATH_FRONT, feature_columns
from counterpath.service.identity import ANSWERED_BY, Identity
from counterpath.service.merging import Own, joined, searches_together, split
from counterpath.service.schemas import BatchResult, rows_as_asked
from counterpath.service.settings import Settings
from counterpath.utils.errors import CounterpathError, choose
from counterpath.utils.progress import ShouldStop

R = TypeVar("R")
T = TypeVar("T")
EXPLAIN, APART, PREDICT, COMPARE = "explain", "explain-apart", "predict", "compare"
_MAX_PREDICTED_ROWS = 4096
"""Rows that are predicted together: enough to keep the model busy, few enough that none of them waits for long."""
_POLL_SECONDS = 0.05
"""Between checks whether all jobs are done when the service stops: too short to notice, and hardly any work."""
GATHER_SECONDS = 0.02
"""How long a batch waits for more jobs if the one before had several, because clients that are answered together also
ask again together. It is short beside the tenths of a second that a batch takes."""
_MAX_RETRY_AFTER = 60
"""Most seconds after which a client is told to try again: a longer estimate would be a guess, and keep clients away."""
_SMOOTHING = 0.3
"""Weight of the last batch in the moving average of how long one takes: the last five make up four fifths of it."""
SLICE_SECONDS = 0.75
"""About how long a slice of a large request may take: who comes after it is to be answered within two seconds."""
_WHOLE_SHARE = 0.25
"""Of a batch, that a request may fill which is not sliced since many wait anyway: whoever waits hardly notices it."""
_FIRST_SLICE = 4
"""Rows of the first slice, before it is known how long a row takes."""
RETRY_WHEN_STOPPED = 5
"""Seconds after which to try again when the service is stopping: about what a restart takes."""
_LOG = logging.getLogger("counterpath.service")


class BusyError(CounterpathError):
    """There is no room for another job; `retry_after` is in how many seconds there may be."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoppingError(BusyError):
    """No jobs are taken any more."""

    def __init__(self) -> None:
        super().__init__("the service is stopping; try again later", RETRY_WHEN_STOPPED)


class TimedOutError(CounterpathError):
    """A job's deadline passed before it was done."""


@dataclass(eq=False)
class Job(Generic[R, T]):
    """Rows to compute something for.

    Attributes:
        key: Jobs with equal keys may be computed together.
        rows: The rows.
        compute: The result for rows, those of other jobs among them, unless it should stop; and given what each asks
            for by itself, if they have that.
        extract: This job's part of a result, from its first row to before its last.
        deadline: When nobody waits for it any more, by the clock `time.monotonic`.
        future: Will hold what `extract` returns.
        cancelled: Whether nobody waits for it any more, for another reason than its deadline.
        own: What each row asks for by itself; None if all of it is in the key.
        accepted: Whether it is a part of something that was taken on already, so that the queue cannot be too full.
    """

    key: Hashable
    rows: pd.DataFrame
    compute: Callable[..., R]
    extract: Callable[[R, int, int], T]
    deadline: Number = math.inf
    future: "Future[T]" = field(default_factory=Future)
    cancelled: bool = False
    own: Own | None = None
    accepted: bool = False

    @property
    def awaited(self) -> bool:
        """Whether anybody still waits for it."""
        return not self.cancelled and time.monotonic() < self.deadline

    def settle(self, set_outcome: Callable[[], None]) -> None:
        """Set the outcome of the future, unless nobody waits for it or it has one."""
        if not self.cancelled and not self.future.done():
            set_outcome()


@dataclass(frozen=True)
class BatchStats:
    """What was computed together: how many jobs and rows, and in how many seconds."""

    jobs: int
    rows: int
    seconds: float


class BatchQueue:
    """Computes jobs batch after batch, on a thread of its own.

    Every job comes with a task for that thread, which computes a batch: the job that has waited longest, and others
    like it. So tasks of jobs that were computed in earlier batches may find nothing left to do.

    Args:
        name: Of the thread.
        max_waiting: How many jobs may wait.
        max_rows: How many rows the jobs of one batch may have together.
        on_batch: Called after every batch, on the thread of the queue.
    """

    def __init__(
        self,
        name: str,
        *,
        max_waiting: int,
        max_rows: int,
        on_batch: Callable[[BatchStats], None] = lambda stats: None,
    ) -> None:
        self._max_waiting, self._max_rows, self._on_batch = max_waiting, max_rows, on_batch
        self._waiting: list[Job[Any, Any]] = []
        self._running: list[Job[Any, Any]] = []
        self._lock = threading.Lock()
        self._closed = False
        self._crowded = False  # whether the last batch had several jobs
        self._batch_seconds = 1.0  # that a batch takes: a moving average
        # Executors, because the interpreter waits for their threads before it exits: a thread that is in torch while
        # the interpreter goes away would crash the process.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=name)
        # Results are delivered by a second thread, so that the next batch need not wait for it.
        self._delivery = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-delivery")

    def __len__(self) -> int:
        """How many jobs wait."""
        return len(self._waiting)

    @property
    def crowded(self) -> bool:
        """Whether several jobs are computed at once, or wait."""
        return self._crowded or len(self._waiting) > 1

    @property
    def busy(self) -> bool:
        """Whether any job waits or is being computed."""
        with self._lock:
            return bool(self._waiting or self._running)

    async def submit(self, job: Job[Any, T]) -> T:
        """The result of a job. If the caller is cancelled, the job is, too.

        Raises:
            BusyError: Too many jobs are waiting, or the queue is closed.
            TimedOutError: The job's deadline has passed.
        """
        self._put(job)
        limit = asyncio.timeout(None if math.isinf(job.deadline) else job.deadline - time.monotonic())
        try:
            async with limit:
                return await asyncio.wrap_future(job.future)
        except TimeoutError:
            if not limit.expired():
                raise  # the model's own
            raise TimedOutError(
                "the time for this request was up before it was answered; try a longer time_limit, fewer rows or plans"
            ) from None
        finally:
            self._cancel(job)

    def close(self) -> None:
        """Take no further jobs, and cancel those that are here: they fail with a `StoppingError`."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for job in [*self._waiting, *self._running]:
                job.settle(partial(job.future.set_exception, StoppingError()))
                job.cancelled = True
            self._waiting.clear()
        self._worker.submit(self._delivery.shutdown, wait=False)  # after the batch that is running
        self._worker.shutdown(wait=False)

    def _put(self, job: Job[Any, Any]) -> None:
        with self._lock:
            if self._closed:
                raise StoppingError
            if len(self._waiting) >= self._max_waiting and not job.accepted:
                raise BusyError(
                    f"{len(self._waiting)} requests are waiting, as many as may; try again later", self._retry_after()
                )
            self._waiting.append(job)
            self._worker.submit(self._run_batch)

    def _retry_after(self) -> int:
        """In how many seconds those that wait now will have been computed, roughly."""
        batches = math.ceil(sum(len(job.rows) for job in self._waiting) / self._max_rows)
        return min(_MAX_RETRY_AFTER, max(1, math.ceil(self._batch_seconds * batches)))

    def _cancel(self, job: Job[Any, Any]) -> None:
        with self._lock:
            job.cancelled = True
            if job in self._waiting:
                self._waiting.remove(job)

    def _run_batch(self) -> None:
        if self._crowded and self._waiting:
            time.sleep(GATHER_SECONDS)
        batch = self._take_batch()
        if not batch:
            return
        started = time.monotonic()
        self._compute(batch)
        seconds = time.monotonic() - started
        self._batch_seconds += _SMOOTHING * (seconds - self._batch_seconds)
        self._crowded = len(batch) > 1
        self._on_batch(BatchStats(len(batch), sum(len(job.rows) for job in batch), seconds))

    def _take_batch(self) -> list[Job[Any, Any]]:
        """Take the job that has waited longest out of the queue, and those that can be computed with it."""
        with self._lock:
            batch: list[Job[Any, Any]] = []
            rows = 0
            left = []
            for job in self._waiting:
                if not job.awaited:
                    continue
                if not batch or (job.key == batch[0].key and rows + len(job.rows) <= self._max_rows):
                    batch.append(job)
                    rows += len(job.rows)
                    job.future.set_running_or_notify_cancel()
                else:
                    left.append(job)
            self._waiting = left
            self._running += batch
            return batch

    def _compute(self, batch: Sequence[Job[Any, Any]]) -> None:
        try:
            rows = batch[0].rows if len(batch) == 1 else pd.concat([job.rows for job in batch], ignore_index=True)
            # As long as anybody waits for any of them.
            own = () if batch[0].own is None else (tuple(chain.from_iterable(job.own or () for job in batch)),)
            result = batch[0].compute(rows, lambda: not any(job.awaited for job in batch), *own)
        except Exception as error:
            if len(batch) == 1:
                self._finish(batch[0], partial(batch[0].future.set_exception, error))
                return
            # One of them may be at fault, and the others must not fail with it.
            _LOG.info("%d jobs cannot be computed together, and are computed one by one: %s", len(batch), error)
            for job in batch:
                self._compute([job])
            return
        last = 0
        for job in batch:
            first, last = last, last + len(job.rows)
            self._delivery.submit(self._deliver, job, result, first, last)

    def _deliver(self, job: Job[R, Any], result: R, first: int, last: int) -> None:
        try:
            set_outcome = partial(job.future.set_result, None if job.cancelled else job.extract(result, first, last))
        except Exception as error:
            set_outcome = partial(job.future.set_exception, error)
        self._finish(job, set_outcome)

    def _finish(self, job: Job[Any, Any], set_outcome: Callable[[], None]) -> None:
        with self._lock:
            self._running.remove(job)
            job.settle(set_outcome)


class Dispatcher:
    """Runs models on threads of its own: equal requests together, predictions beside explanations.

    Args:
        models: The fitted explainers by their names. One may be added later.
        settings: How much to take on.

    Attributes:
        identities: Which models these are, by their names.
        examples: By name of a model, and what it is asked to do, what it answered to the example of the description.
        on_batch: Called after every batch, with "explain" or "predict" and its figures.
    """

    def __init__(self, models: Mapping[str, Explainer], settings: Settings | None = None) -> None:
        settings = settings or Settings()
        self.models = dict(models)
        self.identities: dict[str, Identity] = {}
        self.examples: dict[str, Mapping[str, Any]] = {}
        self.stopping = False
        self._settings = settings
        self._taken = 0  # requests that are being checked, wait or are computed, between two slices, too
        self._row_seconds: dict[Hashable, float] = {}  # how long a row of a slice took: a moving average
        self.on_batch: Callable[[str, BatchStats], None] = lambda name, stats: None
        # One thread, because many would take the time from the event loop.
        self._checker = ThreadPoolExecutor(1, thread_name_prefix="checking")
        self._queues = {
            name: BatchQueue(
                name,
                max_waiting=settings.queue,
                max_rows=rows,
                on_batch=partial(lambda kind, stats: self.on_batch(kind, stats), name),
            )
            for name, rows in (
                (EXPLAIN, settings.batch),
                (APART, settings.batch),
                (PREDICT, _MAX_PREDICTED_ROWS),
                (COMPARE, _MAX_PREDICTED_ROWS),
            )
        }

    async def explain(self, model: str, rows: pd.DataFrame, request: Request) -> Explanation:
        """The explanation of the rows by a model, as `Explainer.explain` gives it, with the measures in it.

        Args:
            model: Its name.
            rows: The rows, under whatever labels.
            request: What is asked for them. Its time limit includes waiting.

        Raises:
            InputError: There is no such model, or the request cannot be fulfilled.
            BusyError: Too many requests are waiting, or the service is stopping.
            TimedOutError: The time was up.
        """
        explainer, deadline = self._choose(model), _deadline(request.time_limit)
        with self._take_on():
            frame, recorded = await self._check(explainer, rows, request)
            select = partial(select_rows, index=rows.index, explainer=explainer, request=recorded)
            job = self._job(model, explainer, frame, request, lambda result, *part: select(result.explanation, *part))
            job.deadline = deadline
            return await self._queues[_explanation_queue(explainer, request)].submit(job)

    async def explain_json(self, model: str, rows: pd.DataFrame, request: Request) -> list[str]:
        """The same as JSON text, one `RowExplanation` a row."""
        async with aclosing(self.slices(model, rows, request)) as slices:
            return [text async for texts in slices for text in texts]

    async def slices(
        self, model: str, rows: pd.DataFrame, request: Request, *, accepted: bool = False
    ) -> AsyncGenerator[list[str], None]:
        """The same, a few rows after the others: as many as take less than a second, and at least one.

        Args:
            model: Its name.
            rows: The rows.
            request: What is asked for them.
            accepted: Whether the request was taken on already, so that the queue cannot be too full for it.
        """
        explainer, deadline = self._choose(model), _deadline(request.time_limit)
        with self._take_on():
            frame, _ = await self._check(explainer, rows, request)
            kind = (model, id(explainer), str(request.method), request.plans, request.paths)
            together = searches_together(request, explainer) and not accepted
            whole = together and self._costs_least_with_others(len(frame))
            is_large, done = accepted or not (whole or len(frame) <= self._slice_size(kind)), 0
            queue = self._queues[_explanation_queue(explainer, request, is_large=is_large)]
            while done < len(frame) or not done:
                size = len(frame) if whole else self._slice_size(kind)
                some = slice(done, done + size)
                own = request.row_constraints and replace(request, row_constraints=request.row_constraints[some])
                job = self._job(model, explainer, frame.iloc[some], own or request, _texts, kind)
                job.deadline, job.accepted = deadline, accepted or done > 0
                yield await queue.submit(job)
                done += size

    def _costs_least_with_others(self, count: int) -> bool:
        """Whether so many rows are not sliced: with others that wait they take a fraction of what they do alone."""
        return count <= _WHOLE_SHARE * self._settings.batch and self._queues[EXPLAIN].crowded

    def _slice_size(self, kind: Hashable) -> int:
        """How many rows of a kind are computed in about the time of a slice."""
        seconds = self._row_seconds.get(kind)
        size = _FIRST_SLICE if seconds is None else int(SLICE_SECONDS / max(seconds, 1e-6))
        return min(max(size, 1), self._settings.batch)

    def _job(
        self,
        model: str,
        explainer: Explainer,
        frame: pd.DataFrame,
        request: Request,
        extract: Callable[[BatchResult, int, int], T],
        kind: Hashable = None,
    ) -> Job[BatchResult, T]:
        """A job that explains some rows, together with those of other requests."""
        common, own = split(request, explainer, len(frame))

        def compute(table: pd.DataFrame, should_stop: ShouldStop, each: Own = ()) -> BatchResult:
            # With its measures: they need the models, and so the thread that may use them.
            started = time.monotonic()
            asked = joined(common, each)
            result = explainer.solve(table, asked, should_stop=should_stop)
            result = replace(result, compute_measures=result.measures())
            if kind is not None:
                seconds = (time.monotonic() - started) / max(len(table), 1)
                known = self._row_seconds.get(kind, seconds)
                self._row_seconds[kind] = known + _SMOOTHING * (seconds - known)
            answers = [(asked.of_row("plans", row), asked.of_row("paths", row)) for row in range(len(table))]
            return BatchResult(result, answers)

        alone = object() if common.row_constraints else None  # which count rows from the first of the request
        key = (EXPLAIN, model, id(explainer), common.key, alone, tuple(frame.dtypes))
        return Job(key=key, rows=frame, compute=compute, extract=extract, own=own)

    async def predict(self, model: str, rows: pd.DataFrame, *, time_limit: Number | None = None) -> pd.DataFrame:
        """The probabilities that the model under explanation gives, one column a class.

        On a GPU predictions wait for explanations: what a search records there must not be disturbed.
        """
        explainer, deadline = self._choose(model), _deadline(time_limit)
        with self._take_on():
            frame, _ = await self._check(explainer, rows)
            job = Job(
                key=(PREDICT, model, id(explainer), tuple(frame.dtypes)),
                rows=frame,
                compute=lambda table, _: explainer.probabilities(table),
                extract=lambda result, first, last: result.iloc[first:last].set_axis(rows.index),
                deadline=deadline,
            )
            return await self._queues[_prediction_queue(explainer)].submit(job)

    async def run(
        self, model: str, rows: pd.DataFrame, function: Callable[[Explainer, pd.DataFrame], T], *, long: bool = False
    ) -> T:
        """What a function returns for a model and rows, on the thread on which `predict` runs.

        Calls with the same function object may be computed as one.

        Args:
            model: Its name.
            rows: The rows.
            function: Of the explainer and the rows.
            long: Whether it takes seconds: then it has a thread of its own, on a GPU that of explanations.
        """
        explainer = choose("model", model, self.models)
        self._refuse_if_stopping()
        job = Job(
            key=function,
            rows=rows,
            compute=lambda table, _: function(explainer, table),
            extract=lambda result, first, last: result,
        )
        return await self._queues[_prediction_queue(explainer, COMPARE if long else PREDICT)].submit(job)

    def check(self, model: str, rows: pd.DataFrame, request: Request) -> None:
        """Raise an error if a request cannot be fulfilled, or none is taken any more."""
        self._refuse_if_stopping()
        check(choose("model", model, self.models), rows, request)

    def identify(self, model: str) -> Identity:
        """Which model has a name."""
        if model not in self.identities:
            self.identities[model] = Identity.of(choose("model", model, self.models))
        return self.identities[model]

    def replace(self, model: str, explainer: Explainer, identity: Identity) -> None:
        """Have another model answer under a name; what was asked before is answered by the one before."""
        self.models[model], self.identities[model] = explainer, identity

    @property
    def waiting(self) -> dict[str, int]:
        """How many jobs wait, by what they are for."""
        return {name: len(queue) for name, queue in self._queues.items()}

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return not self.stopping and bool(self.models)

    @property
    def busy(self) -> bool:
        """Whether any job waits or is being computed."""
        return self._taken > 0 or any(queue.busy for queue in self._queues.values())

    async def drain(self, grace: Number) -> bool:
        """Take no further requests, and wait for those that were taken; whether all were done in time."""
        self.stopping = True
        deadline = time.monotonic() + grace
        while self.busy and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
        return not self.busy

    def close(self) -> None:
        """Take no further requests, and cancel those that are here."""
        self.stopping = True
        self._checker.shutdown(wait=False, cancel_futures=True)
        for queue in self._queues.values():
            queue.close()

    async def _check(
        self, explainer: Explainer, rows: pd.DataFrame, request: Request | None = None
    ) -> tuple[pd.DataFrame, dict[str, Any]]:
        return await asyncio.get_running_loop().run_in_executor(self._checker, check, explainer, rows, request)

    def _choose(self, model: str) -> Explainer:
        """Who answers under a name, which is noted for the response: another one may take its place meanwhile."""
        explainer, answered_by = choose("model", model, self.models), ANSWERED_BY.get()
        if answered_by is not None and model in self.identities:
            answered_by.append(self.identities[model])
        return explainer

    @contextmanager
    def _take_on(self) -> Iterator[None]:
        """A request that is finished before the service stops; none is begun any more when it does."""
        self._refuse_if_stopping()
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1

    def _refuse_if_stopping(self) -> None:
        if self.stopping:
            raise StoppingError


def check(explainer: Explainer, rows: pd.DataFrame, request: Request | None) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Rows in the columns and, where that changes no value, in the dtypes of the training table; and what is asked.

    So rows of several requests make one table, and no row's values are changed because of the others'.

    Args:
        explainer: The model.
        rows: The rows, as they were sent.
        request: What is asked for them; None for predictions.

    Raises:
        InputError: The rows, or what is asked for them, cannot be used: said before they wait with others.
        NotFittedError: A share of a family of models is asked for, and there is none.
    """
    encoder = explainer.encoder_
    filled, _ = explainer.prepare(rows)
    known = filled[encoder.known(filled).to_numpy()]
    encoded = encoder.encode(known)
    recorded: dict[str, Any] = {}
    if request is not None:
        request.check_rows(explainer.schema_, explainer.models_.explained, range(len(rows)))
        request.constraints(explainer.schema_).bounds(encoder, known, encoded)
        explainer.models_.stability(request.robust, request.noise)  # a family that is not there is not trained here
        recorded = explainer.recorded(request)
    return encoder.align(to_pandas(rows)), recorded


def select_rows(
    batch: Explanation, first: int, last: int, *, index: pd.Index, explainer: Explainer, request: Mapping[str, Any]
) -> Explanation:
    """The explanation of some of the rows, exactly as if they had been explained alone.

    Args:
        batch: The explanation of more rows, numbered from 0.
        first: The first row.
        last: Before which row to stop.
        index: The labels of the rows.
        explainer: That made the explanation.
        request: What was asked about these rows, as it is recorded.
    """
    part = rows_as_asked(batch, range(first, last), request["plans"], request["paths"], index)
    dtypes = {name: restore(kind) for name, kind in explainer.encoder_.dtypes.items()}
    in_paths = feature_columns(batch.schema.names, PATH_FRONT + PATH_BACK)
    return replace(
        part,
        request=dict(request),
        counterfactuals=_narrow(part.counterfactuals, dtypes),
        paths=_narrow(part.paths, {in_paths[name]: dtype for name, dtype in dtypes.items()}),
    )


def _texts(result: BatchResult, first: int, last: int) -> list[str]:
    return result.row_texts[first:last]


def _narrow(frame: pd.DataFrame, dtypes: Mapping[str, Any]) -> pd.DataFrame:
    """The table with the dtypes of training in columns where only other requests' rows had fractions."""
    columns = {
        name: cast_if_lossless(frame[name], dtype) for name, dtype in dtypes.items() if frame[name].dtype != dtype
    }
    return frame.assign(**{name: column for name, column in columns.items() if column.dtype != frame[name].dtype})


def _explanation_queue(explainer: Explainer, request: Request, *, is_large: bool = False) -> str:
    """Which queue takes an explanation: what is large, or cannot be computed with others, does not hold those up.

    On a GPU there is only one.
    """
    together = searches_together(request, explainer) and not is_large
    return EXPLAIN if together else _prediction_queue(explainer, APART)


def _prediction_queue(explainer: Explainer, beside: str = PREDICT) -> str:
    """Which queue takes what may run beside explanations: on a GPU nothing may."""
    return beside if explainer.models_.rows.device.type == "cpu" else EXPLAIN


def _deadline(time_limit: Number | None) -> Number:
    return math.inf if time_limit is None else time.monotonic() + time_limit
