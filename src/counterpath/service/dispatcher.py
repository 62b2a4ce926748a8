"""Where all questions to models are answered, without holding up the event loop."""

import asyncio
import math
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pandas as pd

from counterpath.data.constraints import Constraints
from counterpath.data.schema import Number
from counterpath.data.tables import cast_if_lossless, restore, to_pandas
from counterpath.explainer.explainer import Explainer
from counterpath.explanation import Explanation, plan_index
from counterpath.explanation.tables import PATH_BACK, PATH_FRONT, feature_columns
from counterpath.fitting.prepare import prepare_rows
from counterpath.service.queue import STOPPING, BusyError, Call, LateError, Line, Question
from counterpath.service.schemas import Answer, Asked
from counterpath.service.settings import Settings
from counterpath.utils.deadline import ShouldStop
from counterpath.utils.errors import choose


def checked(explainer: Explainer, rows: pd.DataFrame, asked: Asked) -> pd.DataFrame:
    """Rows in the columns and, where that changes no value, in the dtypes of the training table.

    So rows of different questions make one table, and nobody's values are told otherwise because of the others'.

    Raises:
        InputError: The rows, or what is asked about them, cannot be used: said before they wait with others.
    """
    encoder = explainer.encoder_
    filled, _ = prepare_rows(rows, explainer.schema_, explainer.target_, explainer.imputer_)
    constraints = Constraints.of(
        explainer.schema_,
        lock=asked.lock,
        directions=asked.directions,
        ranges=asked.ranges,
        max_changes=asked.max_changes,
        feature_costs=asked.feature_costs,
    )
    known = filled[encoder.known(filled).to_numpy()]
    constraints.bounds(encoder, known, encoder.encode(known))
    return encoder.align(to_pandas(rows))


def checked_rows(explainer: Explainer, rows: pd.DataFrame) -> pd.DataFrame:
    """The same for rows about which nothing is asked but what the model predicts: it must know all their categories."""
    filled, _ = prepare_rows(rows, explainer.schema_, explainer.target_, explainer.imputer_)
    explainer.encoder_.encode(filled)
    return explainer.encoder_.align(to_pandas(rows))


def alike_key(rows: pd.DataFrame) -> Hashable:
    """Equal for tables that can be one table without a change of dtypes."""
    return tuple(rows.dtypes)


def part_of(
    whole: Explanation,
    first: int,
    last: int,
    *,
    index: pd.Index,
    explainer: Explainer,
    time_limit: Number | None,
) -> Explanation:
    """The explanation of some of the people, exactly as if they had been asked about alone.

    Args:
        whole: The explanation of more people, numbered from 0.
        first: The first person.
        last: Before whom to stop.
        index: Their own labels.
        explainer: Whose explanation it is.
        time_limit: What their question said about time.
    """
    positions = list(range(first * whole.plans, last * whole.plans))
    part = whole._take(positions, plan_index(index, whole.plans), whole.request | {"time_limit": time_limit})
    kinds = {name: restore(kind) for name, kind in explainer.encoder_.dtypes.items()}
    in_paths = feature_columns(whole.schema.names, PATH_FRONT + PATH_BACK)
    return replace(
        part,
        counterfactuals=part.counterfactuals.assign(**_narrowed(part.counterfactuals, kinds)),
        paths=part.paths.assign(**_narrowed(part.paths, {in_paths[name]: kind for name, kind in kinds.items()})),
        compute_measures=whole.measures().iloc[positions],
    )


def _narrowed(frame: pd.DataFrame, kinds: dict[str, Any]) -> dict[str, pd.Series]:
    """Columns that hold somebody else's fractions no longer."""
    columns = {name: cast_if_lossless(frame[name], kind) for name, kind in kinds.items() if frame[name].dtype != kind}
    return {name: column for name, column in columns.items() if column.dtype != frame[name].dtype}


__all__ = ["BusyError", "Desk", "LateError"]

T = TypeVar("T")
EXPLAIN, PREDICT = "explain", "predict"
_PREDICTED_TOGETHER = 4096


class Desk:
    """Answers questions on threads of its own: equal questions together, predictions beside explanations.

    Args:
        models: The fitted explainers by their names. One may be added later.
        settings: How much to take on.
    """

    def __init__(self, models: Mapping[str, Explainer], settings: Settings | None = None) -> None:
        given = settings or Settings()
        self.models = dict(models)
        self.stopping = False
        self._watchers: list[Callable[[str, Call], None]] = []
        self._checker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checking")
        self._lines = {
            name: Line(name, most_waiting=given.queue, most_rows=rows, watch=partial(self._watched, name))
            for name, rows in ((EXPLAIN, given.batch), (PREDICT, _PREDICTED_TOGETHER))
        }

    async def explain(
        self, model: str, rows: pd.DataFrame, asked: Asked, *, time_limit: Number | None = None
    ) -> Explanation:
        """The explanation of the rows by a model, as `Explainer.explain` gives it, with the measures in it.

        Args:
            model: Its name.
            rows: The people, under whatever labels.
            asked: What to ask about them.
            time_limit: How long it may take from now, waiting included.

        Raises:
            InputError: There is no such model, or the question cannot be answered.
            BusyError: Too many questions are waiting, or the service is stopping.
            LateError: The time was up.
        """
        explainer = choose("model", model, self.models)
        own = partial(part_of, index=rows.index, explainer=explainer, time_limit=time_limit)
        return await self._explained(
            explainer, model, rows, asked, time_limit, lambda answer, first, last: own(answer.explanation, first, last)
        )

    async def tell(
        self, model: str, rows: pd.DataFrame, asked: Asked, *, time_limit: Number | None = None
    ) -> list[str]:
        """The same as JSON text, one a person: see `answers`. Those who ask together are told together, too."""
        explainer = choose("model", model, self.models)
        return await self._explained(
            explainer, model, rows, asked, time_limit, lambda answer, first, last: answer.texts[first:last]
        )

    async def predict(self, model: str, rows: pd.DataFrame, *, time_limit: Number | None = None) -> pd.DataFrame:
        """The probabilities that the model under explanation gives, one column a class.

        On a GPU predictions wait for explanations: what a search records there must not be disturbed.
        """
        explainer, deadline = choose("model", model, self.models), _deadline(time_limit)
        self._refuse_if_stopping()
        frame = await self._aside(checked_rows, explainer, rows)
        question = Question(
            key=(PREDICT, model, alike_key(frame)),
            rows=frame,
            ask=lambda people, _: explainer.predict_proba(people),
            finish=lambda answer, first, last: answer.iloc[first:last].set_axis(rows.index),
            deadline=deadline,
        )
        return await self._lines[_beside(explainer)].ask(question)

    async def lend(self, model: str, row: pd.DataFrame, use: Callable[[Explainer, pd.DataFrame], T]) -> T:
        """What a function makes of a model and a row, on the thread on which the model may be used: as `predict`."""
        explainer = choose("model", model, self.models)
        self._refuse_if_stopping()
        question = Question(
            key=use, rows=row, ask=lambda rows, _: use(explainer, rows), finish=lambda made, first, last: made
        )
        return await self._lines[_beside(explainer)].ask(question)

    def watch(self, watcher: Callable[[str, Call], None]) -> None:
        """Have a function told about every call, and whether it was to explain or to predict."""
        self._watchers.append(watcher)

    @property
    def waiting(self) -> dict[str, int]:
        """How many questions wait, by what they ask for."""
        return {name: len(line) for name, line in self._lines.items()}

    @property
    def ready(self) -> bool:
        """Whether questions are taken."""
        return not self.stopping and bool(self.models) and all(line.alive for line in self._lines.values())

    @property
    def busy(self) -> bool:
        """Whether any question waits or is being answered."""
        return any(line.busy for line in self._lines.values())

    async def drain(self, grace: Number) -> bool:
        """Take no further questions, and wait for those that were taken; whether all were answered in time."""
        self.stopping = True
        until = time.monotonic() + grace
        while self.busy and time.monotonic() < until:
            await asyncio.sleep(0.05)
        return not self.busy

    def close(self) -> None:
        """Take no further questions, and give up those that are here."""
        self.stopping = True
        self._checker.shutdown(wait=False, cancel_futures=True)
        for line in self._lines.values():
            line.close()

    async def _explained(
        self,
        explainer: Explainer,
        model: str,
        rows: pd.DataFrame,
        asked: Asked,
        time_limit: Number | None,
        finish: Callable[[Answer, int, int], T],
    ) -> T:
        deadline = _deadline(time_limit)
        self._refuse_if_stopping()
        frame = await self._aside(checked, explainer, rows, asked)
        question = Question(
            key=(EXPLAIN, model, asked.key, alike_key(frame)),
            rows=frame,
            ask=lambda people, over: _explain(explainer, people, asked, over),
            finish=finish,
            deadline=deadline,
        )
        return await self._lines[EXPLAIN].ask(question)

    async def _aside(self, check: Callable[..., T], *arguments: object) -> T:
        """Check rows on a thread for that: one, because many would take the time from the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._checker, check, *arguments)

    def _refuse_if_stopping(self) -> None:
        if self.stopping:
            raise BusyError(STOPPING, retry_after=5)

    def _watched(self, name: str, call: Call) -> None:
        for watcher in self._watchers:
            watcher(name, call)


def _explain(explainer: Explainer, rows: pd.DataFrame, asked: Asked, over: ShouldStop) -> Answer:
    """The explanation with its measures: they need the models, and so the thread that may use them."""
    result = explainer.explain(rows, **vars(asked), should_stop=over)
    return Answer(replace(result, compute_measures=result.measures()))


def _beside(explainer: Explainer) -> str:
    """The line of what may be asked beside explanations: on a GPU there is no such thing."""
    return PREDICT if explainer.models_.rows.device.type == "cpu" else EXPLAIN


def _deadline(time_limit: Number | None) -> Number:
    return math.inf if time_limit is None else time.monotonic() + time_limit
