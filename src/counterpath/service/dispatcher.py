"""Runs models for all requests, without holding up the event loop."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pandas as pd

from counterpath.data.schema import Number
from counterpath.data.tables import cast_if_lossless, restore, to_pandas
from counterpath.explainer.explainer import Explainer
from counterpath.explainer.request import Request
from counterpath.explanation import Explanation, plan_index
from counterpath.explanation.tables import PATH_BACK, PATH_FRONT, feature_columns
from counterpath.service.queue import BatchQueue, BatchStats, Job, StoppingError
from counterpath.service.schemas import BatchResult
from counterpath.service.settings import Settings
from counterpath.utils.errors import choose
from counterpath.utils.progress import ShouldStop

T = TypeVar("T")
EXPLAIN, PREDICT = "explain", "predict"
_MAX_PREDICTED_ROWS = 4096
"""Rows that are predicted together: enough to keep the model busy, few enough that none of them waits for long."""
_POLL_SECONDS = 0.05
"""Between checks whether all jobs are done when the service stops: too short to notice, and hardly any work."""


class Dispatcher:
    """Runs models on threads of its own: equal requests together, predictions feature_columns explanations.

    Args:
        models: The fitted explainers by their names. One may be added later.
        settings: How much to take on.
    """

    def __init__(self, models: Mapping[str, Explainer], settings: Settings | None = None) -> None:
        settings = settings or Settings()
        self.models = dict(models)
        self.stopping = False
        self._listeners: list[Callable[[str, BatchStats], None]] = []
        # One thread, because many would take the time from the event loop.
        self._checker = ThreadPoolExecutor(1, thread_name_prefix="checking")
        self._queues = {
            name: BatchQueue(name, max_waiting=settings.queue, max_rows=rows, on_batch=partial(self._on_batch, name))
            for name, rows in ((EXPLAIN, settings.batch), (PREDICT, _MAX_PREDICTED_ROWS))
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
        explainer = choose("model", model, self.models)
        select = partial(select_rows, index=rows.index, explainer=explainer, time_limit=request.time_limit)
        return await self._explain(model, rows, request, lambda result, *part: select(result.explanation, *part))

    async def explain_json(self, model: str, rows: pd.DataFrame, request: Request) -> list[str]:
        """The same as JSON text, one `RowExplanation` a row."""
        return await self._explain(model, rows, request, lambda result, first, last: result.row_texts[first:last])

    async def predict(self, model: str, rows: pd.DataFrame, *, time_limit: Number | None = None) -> pd.DataFrame:
        """The probabilities that the model under explanation gives, one column a class.

        On a GPU predictions wait for explanations: what a search records there must not be disturbed.
        """
        explainer, deadline = choose("model", model, self.models), _deadline(time_limit)
        frame = await self._check(explainer, rows)
        job = Job(
            key=(PREDICT, model, tuple(frame.dtypes)),
            rows=frame,
            compute=lambda table, _: explainer.predict_proba(table),
            extract=lambda result, first, last: result.iloc[first:last].set_axis(rows.index),
            deadline=deadline,
        )
        return await self._queues[_prediction_queue(explainer)].submit(job)

    async def run(self, model: str, rows: pd.DataFrame, function: Callable[[Explainer, pd.DataFrame], T]) -> T:
        """What a function returns for a model and rows, on the thread on which `predict` runs.

        Calls with the same function object may be computed as one.
        """
        explainer = choose("model", model, self.models)
        self._refuse_if_stopping()
        job = Job(
            key=function,
            rows=rows,
            compute=lambda table, _: function(explainer, table),
            extract=lambda result, first, last: result,
        )
        return await self._queues[_prediction_queue(explainer)].submit(job)

    def listen(self, listener: Callable[[str, BatchStats], None]) -> None:
        """Have a function called after every batch, with "explain" or "predict" and its figures."""
        self._listeners.append(listener)

    @property
    def waiting(self) -> dict[str, int]:
        """How many jobs wait, to explain and to predict."""
        return {name: len(queue) for name, queue in self._queues.items()}

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return not self.stopping and bool(self.models)

    @property
    def busy(self) -> bool:
        """Whether any job waits or is being computed."""
        return any(queue.busy for queue in self._queues.values())

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

    async def _explain(
        self, model: str, rows: pd.DataFrame, request: Request, extract: Callable[[BatchResult, int, int], T]
    ) -> T:
        explainer, deadline = choose("model", model, self.models), _deadline(request.time_limit)
        frame = await self._check(explainer, rows, request)
        untimed = replace(request, time_limit=None)  # the deadlines of the jobs of a batch count instead
        job = Job(
            key=(EXPLAIN, model, untimed.key, tuple(frame.dtypes)),
            rows=frame,
            compute=lambda table, should_stop: _explain(explainer, table, untimed, should_stop),
            extract=extract,
            deadline=deadline,
        )
        return await self._queues[EXPLAIN].submit(job)

    async def _check(self, explainer: Explainer, rows: pd.DataFrame, request: Request | None = None) -> pd.DataFrame:
        self._refuse_if_stopping()
        return await asyncio.get_running_loop().run_in_executor(self._checker, check, explainer, rows, request)

    def _refuse_if_stopping(self) -> None:
        if self.stopping:
            raise StoppingError

    def _on_batch(self, name: str, stats: BatchStats) -> None:
        for listener in self._listeners:
            listener(name, stats)


def check(explainer: Explainer, rows: pd.DataFrame, request: Request | None) -> pd.DataFrame:
    """Rows in the columns and, where that changes no value, in the dtypes of the training table.

    So rows of several requests make one table, and no row's values are changed because of the others'.

    Args:
        explainer: The model.
        rows: The rows, as they were sent.
        request: What is asked for them; None for predictions, for which all categories must be known.

    Raises:
        InputError: The rows, or what is asked for them, cannot be used: said before they wait with others.
    """
    encoder = explainer.encoder_
    filled, _ = explainer.prepare(rows)
    if request is None:
        encoder.encode(filled)
    else:
        known = filled[encoder.known(filled).to_numpy()]
        request.constraints(explainer.schema_).bounds(encoder, known, encoder.encode(known))
    return encoder.align(to_pandas(rows))


def select_rows(
    batch: Explanation, first: int, last: int, *, index: pd.Index, explainer: Explainer, time_limit: Number | None
) -> Explanation:
    """The explanation of some of the rows, exactly as if they had been explained alone.

    Args:
        batch: The explanation of more rows, numbered from 0.
        first: The first row.
        last: Before which row to stop.
        index: The labels of the rows.
        explainer: That made the explanation.
        time_limit: That of the request for these rows.
    """
    positions = list(range(first * batch.plans, last * batch.plans))
    part = batch._take(positions, plan_index(index, batch.plans), batch.request | {"time_limit": time_limit})
    dtypes = {name: restore(kind) for name, kind in explainer.encoder_.dtypes.items()}
    in_paths = feature_columns(batch.schema.names, PATH_FRONT + PATH_BACK)
    return replace(
        part,
        counterfactuals=_narrow(part.counterfactuals, dtypes),
        paths=_narrow(part.paths, {in_paths[name]: dtype for name, dtype in dtypes.items()}),
        compute_measures=batch.measures().iloc[positions],
    )


def _narrow(frame: pd.DataFrame, dtypes: Mapping[str, Any]) -> pd.DataFrame:
    """The table with the dtypes of training in columns where only other requests' rows had fractions."""
    columns = {
        name: cast_if_lossless(frame[name], dtype) for name, dtype in dtypes.items() if frame[name].dtype != dtype
    }
    return frame.assign(**{name: column for name, column in columns.items() if column.dtype != frame[name].dtype})


def _explain(explainer: Explainer, rows: pd.DataFrame, request: Request, should_stop: ShouldStop) -> BatchResult:
    """The explanation with its measures: they need the models, and so the thread that may use them."""
    result = explainer.solve(rows, request, should_stop=should_stop)
    return BatchResult(replace(result, compute_measures=result.measures()))


def _prediction_queue(explainer: Explainer) -> str:
    """Which queue takes what may run feature_columns explanations: on a GPU nothing may."""
    return PREDICT if explainer.models_.rows.device.type == "cpu" else EXPLAIN


def _deadline(time_limit: Number | None) -> Number:
    return math.inf if time_limit is None else time.monotonic() + time_limit
