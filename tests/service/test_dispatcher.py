"""Requests that are computed together: their results are what each would get alone."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

import counterpath as cp
from counterpath.explainer.request import Request
from counterpath.service import dispatcher as dispatcher_module
from counterpath.service.dispatcher import BusyError, Dispatcher, TimedOutError
from counterpath.service.merging import split
from counterpath.service.settings import Settings
from counterpath.utils.errors import InputError
from tests.tables import features


@pytest.fixture(scope="module")
def table(people: pd.DataFrame) -> pd.DataFrame:
    return features(people)


def _run(models: dict[str, cp.Explainer], scenario: Callable[[Dispatcher], Awaitable[Any]], **settings: Any) -> Any:
    dispatcher = Dispatcher(models, Settings(**settings))

    async def main() -> Any:
        try:
            return await asyncio.wait_for(scenario(dispatcher), 120)
        finally:
            dispatcher.close()

    return asyncio.run(main())


def test_what_takes_long_runs_beside_predictions_and_explanations(explainer: cp.Explainer, table: pd.DataFrame) -> None:
    started, others_done = threading.Event(), threading.Event()

    def slow(explainer: cp.Explainer, rows: pd.DataFrame) -> bool:
        started.set()
        return others_done.wait(60)

    async def scenario(dispatcher: Dispatcher) -> bool:
        long = asyncio.create_task(dispatcher.run("people", table.head(3), slow, long=True))
        await asyncio.to_thread(started.wait, 60)
        await dispatcher.predict("people", table.head(3))
        await dispatcher.explain("people", table.head(1), Request(target_class="low"))
        others_done.set()
        return await long

    assert _run({"people": explainer}, scenario)


def _together(
    explainer: cp.Explainer, requests: list[tuple[pd.DataFrame, Request]], as_json: bool = False
) -> list[Any]:
    """The results of requests of which all but the first are computed in as few batches as can be."""
    jobs: list[int] = []

    async def scenario(dispatcher: Dispatcher) -> list[Any]:
        dispatcher.on_batch = lambda kind, batch: jobs.append(batch.jobs)
        explain = dispatcher.explain_json if as_json else dispatcher.explain
        return await asyncio.gather(*(explain("people", rows, request) for rows, request in requests))

    results: list[Any] = _run({"people": explainer}, scenario)
    assert max(jobs) > 1
    return results


def _undated(result: cp.Explanation) -> str:
    """All of an explanation but when it was made."""
    return replace(result, provenance={}).to_json()


@pytest.mark.parametrize(
    "request_", [Request("low"), Request("low", paths="milestones", plans=2), Request(paths="end")]
)
def test_rows_that_are_explained_with_others_get_the_same_explanation(
    explainer: cp.Explainer, table: pd.DataFrame, request_: Request
) -> None:
    parts = [table.iloc[0:1], table.iloc[1:4], table.iloc[4:5], table.iloc[5:7]]
    requests = [replace(request_, time_limit=500 + number) for number in range(4)]  # which may differ
    alone = [explainer.solve(part, request) for part, request in zip(parts, requests, strict=True)]
    together = _together(explainer, list(zip(parts, requests, strict=True)))
    assert [_undated(result) for result in together] == [_undated(result) for result in alone]


def test_their_json_does_not_depend_on_others_either(explainer: cp.Explainer, table: pd.DataFrame) -> None:
    request = Request("low", paths="milestones")
    parts = [table.iloc[[row]] for row in range(6)]
    alone = [
        _run({"people": explainer}, lambda dispatcher, rows=part: dispatcher.explain_json("people", rows, request))
        for part in parts
    ]
    assert _together(explainer, [(part, request) for part in parts], as_json=True) == alone


def test_labels_come_back_as_they_were_given(explainer: cp.Explainer, table: pd.DataFrame) -> None:
    same = table.iloc[[0, 0]]  # the same label twice
    levels = table.iloc[2:4].set_axis(pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["x", "y"]))
    numbers = table.iloc[4:6].set_axis([7.5, -1])
    for given, result in zip(
        (same, levels, numbers),
        _together(explainer, [(rows, Request("low", paths="end")) for rows in (same, levels, numbers)]),
        strict=True,
    ):
        pd.testing.assert_index_equal(result.factuals.index, given.index)
        pd.testing.assert_frame_equal(result.factuals, given)
        assert len(result.measures()) == 2


def test_columns_in_another_order_and_a_label_make_no_difference(
    explainer: cp.Explainer, people: pd.DataFrame, table: pd.DataFrame
) -> None:
    turned = people.iloc[:2][people.columns[::-1]]
    requests = [(rows, Request("low", paths="end")) for rows in (table.iloc[2:3], table.iloc[:2], turned)]
    _, plain, other = _together(explainer, requests)
    pd.testing.assert_frame_equal(plain.counterfactuals, other.counterfactuals)


def test_predictions_are_those_of_the_explainer(explainer: cp.Explainer, table: pd.DataFrame) -> None:
    async def scenario(dispatcher: Dispatcher) -> list[pd.DataFrame]:
        parts = [table.iloc[[0]], table.iloc[1:9], table.iloc[:0]]
        return await asyncio.gather(*(dispatcher.predict("people", part) for part in parts))

    one, several, none = _run({"people": explainer}, scenario)
    pd.testing.assert_frame_equal(one, explainer.predict_proba(table.iloc[[0]]))
    pd.testing.assert_frame_equal(several, explainer.predict_proba(table.iloc[1:9]))
    assert none.shape == (0, 3)


def test_a_prediction_does_not_wait_for_explanations(explainer: cp.Explainer, table: pd.DataFrame) -> None:
    async def scenario(dispatcher: Dispatcher) -> bool:
        long = asyncio.create_task(dispatcher.explain("people", table.head(60), Request("low", plans=4)))
        while not dispatcher.busy:
            await asyncio.sleep(0.01)
        await dispatcher.predict("people", table.head(1))
        done = long.done()
        long.cancel()
        return done

    assert not _run({"people": explainer}, scenario)


def test_a_request_that_cannot_be_fulfilled_is_refused_before_it_waits(
    explainer: cp.Explainer, table: pd.DataFrame
) -> None:
    async def scenario(dispatcher: Dispatcher) -> None:
        bad = table.head(2).assign(debt=["much", 1.0])
        with pytest.raises(InputError, match="column 'debt', row p0: 'much' is not a number"):
            await dispatcher.explain("people", bad, Request("low"))
        with pytest.raises(InputError, match="unknown feature in lock: 'age'"):
            await dispatcher.explain("people", table.head(1), Request("low", lock=("age",)))
        with pytest.raises(InputError, match="low=-4 above high=-5"):
            await dispatcher.explain("people", table.head(1), Request("low", ranges={"debt": (-4, -5)}))
        with pytest.raises(InputError, match="unknown model 'person'"):
            await dispatcher.explain("person", table.head(1), Request("low"))
        assert not dispatcher.busy

    _run({"people": explainer}, scenario)


def test_the_search_stops_when_nobody_has_time_for_it(explainer: cp.Explainer, table: pd.DataFrame) -> None:
    async def scenario(dispatcher: Dispatcher) -> float:
        started = time.monotonic()
        with pytest.raises(TimedOutError):
            await dispatcher.explain(
                "people", table, Request("low", method="rsgd", plans=9, confidence=0.9, time_limit=0.3)
            )
        answered = time.monotonic() - started
        while dispatcher.busy:
            await asyncio.sleep(0.05)
        assert answered < 5
        return time.monotonic() - started

    assert _run({"people": explainer}, scenario) < 30  # alone it takes minutes


def test_a_dispatcher_that_stops_finishes_what_it_has_and_takes_nothing_new(
    explainer: cp.Explainer, table: pd.DataFrame
) -> None:
    async def scenario(dispatcher: Dispatcher) -> None:
        task = asyncio.create_task(dispatcher.explain("people", table.head(2), Request("low")))
        while not dispatcher.busy:
            await asyncio.sleep(0.01)
        draining = asyncio.create_task(dispatcher.drain(60))
        await asyncio.sleep(0)
        assert not dispatcher.ready
        with pytest.raises(BusyError, match="stopping"):
            await dispatcher.predict("people", table.head(1))
        assert len(await task) == 2
        assert await draining

    _run({"people": explainer}, scenario)


@pytest.mark.parametrize("kind", ["explain", "explain_json", "predict"])
def test_what_is_being_checked_is_finished_before_the_service_stops(
    explainer: cp.Explainer, table: pd.DataFrame, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checking, go_on = threading.Event(), threading.Event()
    check = dispatcher_module.check

    def slow(*given: Any) -> Any:
        checking.set()
        assert go_on.wait(60)
        return check(*given)

    monkeypatch.setattr(dispatcher_module, "check", slow)

    async def scenario(dispatcher: Dispatcher) -> None:
        asked = () if kind == "predict" else (Request("low"),)
        task = asyncio.create_task(getattr(dispatcher, kind)("people", table.head(2), *asked))
        await asyncio.to_thread(checking.wait, 60)
        draining = asyncio.create_task(dispatcher.drain(60))
        await asyncio.sleep(0.1)
        assert not draining.done()
        go_on.set()
        assert len(await task) == 2
        assert await draining

    _run({"people": explainer}, scenario)


def test_models_run_on_threads_of_their_own(explainer: cp.Explainer, table: pd.DataFrame) -> None:
    names = set()

    async def scenario(dispatcher: Dispatcher) -> None:
        dispatcher.on_batch = lambda kind, batch: names.add(threading.current_thread().name)
        explanation = dispatcher.explain("people", table.head(1), Request("low"))
        await asyncio.gather(explanation, dispatcher.predict("people", table.head(1)))

    _run({"people": explainer}, scenario)
    assert names == {"explain_0", "predict_0"}


def test_requests_are_computed_together_only_if_nothing_tells_them_apart() -> None:
    ranges = {"a": (1, 2), "b": (0, 1)}
    assert Request(ranges=ranges).key == Request(ranges=dict(reversed(ranges.items()))).key
    different = (Request(1), Request(True), Request(1.0), Request("1"), Request(1, plans=2))
    assert len({request.key for request in different}) == 5


DIFFERENT: list[dict[str, Any]] = [
    {},
    {"target_class": "low"},
    {"target_class": "low", "confidence": 0.6},
    {"target_class": "low", "confidence": 0.8, "lock": ("score",)},
    {"target_class": "low", "directions": {"debt": "down"}, "confidence": 0.6},
    {"target_class": "low", "ranges": {"children": (None, 3)}},
    {"target_class": "low", "confidence": (0.6, 0.9)},
    {"target_class": "low", "plans": 3, "paths": "end"},
    {"plans": 2, "paths": "all", "lock": ("score",)},
    {"paths": "end", "confidence": 0.7},
    {"target_class": "mid", "lock": ("city",), "row_constraints": ({"lock": ["debt"], "confidence": 0.5},)},
]
"""Requests of people who each ask for something else."""


@pytest.mark.parametrize(
    "common",
    [
        {"paths": "milestones"},
        pytest.param({"paths": "end", "plans": 2}, marks=pytest.mark.slow),
        pytest.param({"closeness": "l2"}, marks=pytest.mark.slow),
    ],
)
def test_requests_that_ask_for_something_else_are_computed_together_and_as_if_alone(
    explainer: cp.Explainer, table: pd.DataFrame, common: dict[str, Any]
) -> None:
    where = [number for number, label in enumerate(explainer.predict(table.head(60))) if label == "high"]
    parts = [table.iloc[[row]] for row in where[: len(DIFFERENT)]]
    requests = [Request(**common | own) for own in DIFFERENT]
    alone = [explainer.solve(part, request) for part, request in zip(parts, requests, strict=True)]
    together = _together(explainer, list(zip(parts, requests, strict=True)))
    assert [_undated(result) for result in together] == [_undated(result) for result in alone]


def test_only_what_rows_cannot_bring_along_keeps_requests_apart(explainer: cp.Explainer) -> None:
    def key(**asked: Any) -> tuple[str, Any]:
        common, own = split(Request(**asked), explainer, 1)
        return common.key, own is None

    apart: list[dict[str, Any]] = [{}, {"max_changes": 2}, {"method": "nearest"}, {"rules": ("debt <= 3",)}]
    assert len({key(**asked) for asked in apart}) == len(apart)
    assert {key(**{name: value for name, value in own.items() if name != "row_constraints"}) for own in DIFFERENT} == {
        key()
    }
    assert key(method="nearest", lock=("debt",)) != key(method="nearest")


def test_a_large_request_lets_others_in_between(explainer: cp.Explainer, table: pd.DataFrame) -> None:
    jobs: list[int] = []

    async def scenario(dispatcher: Dispatcher) -> bool:
        dispatcher.on_batch = lambda kind, batch: jobs.append(batch.rows)
        request = Request("low", paths="end", plans=2)
        large = asyncio.create_task(dispatcher.explain_json("people", table.head(60), request))
        while not jobs:
            await asyncio.sleep(0.01)
        await dispatcher.explain_json("people", table.tail(1), Request("low"))
        done = large.done()
        assert len(await large) == 60
        return done

    assert not _run({"people": explainer}, scenario)
    assert len(jobs) > 3


@pytest.mark.parametrize(("rows", "method"), [(60, None), (1, "rsgd")])
def test_what_is_large_or_goes_with_no_other_does_not_hold_up_who_asks_about_one_row(
    explainer: cp.Explainer, table: pd.DataFrame, rows: int, method: str | None
) -> None:
    started, answered = threading.Event(), threading.Event()

    class Slow(type(explainer)):  # type: ignore[misc]  # it is an Explainer
        def solve(self, frame: pd.DataFrame, request: Request, **more: Any) -> Any:
            if len(frame) > 1 or request.method == "rsgd":
                started.set()
                assert answered.wait(60), "the small request waits for the other one"
            return super().solve(frame, request, **more)

    slow = Slow(**explainer.get_params(deep=False))
    vars(slow).update(vars(explainer))

    async def scenario(dispatcher: Dispatcher) -> tuple[int, int]:
        other = dispatcher.explain_json("people", table.head(rows), Request(target_class="low", method=method))
        task = asyncio.create_task(other)
        await asyncio.to_thread(started.wait, 60)
        small = await dispatcher.explain_json("people", table.head(1), Request(target_class="low"))
        answered.set()
        return len(small), len(await task)

    assert _run({"people": slow}, scenario) == (1, rows)
