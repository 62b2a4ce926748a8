"""Questions that are asked together: their answers are what each would get alone."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

import counterpath as cp
from counterpath.service.dispatcher import BusyError, Desk, LateError
from counterpath.service.schemas import Asked
from counterpath.service.settings import Settings
from counterpath.utils.errors import InputError
from tests.tables import features


@pytest.fixture(scope="module")
def table(people: pd.DataFrame) -> pd.DataFrame:
    return features(people)


def _run(models: dict[str, cp.Explainer], scenario: Callable[[Desk], Awaitable[Any]], **settings: Any) -> Any:
    desk = Desk(models, Settings(**settings))

    async def main() -> Any:
        try:
            return await asyncio.wait_for(scenario(desk), 120)
        finally:
            desk.close()

    return asyncio.run(main())


def _together(explainer: cp.Explainer, questions: list[tuple[pd.DataFrame, Asked]], tell: bool = False) -> list[Any]:
    """The answers to questions of which all but the first are asked by as few calls as can be."""
    calls: list[int] = []

    async def scenario(desk: Desk) -> list[Any]:
        desk.watch(lambda kind, call: calls.append(call.questions))
        ask = desk.tell if tell else desk.explain
        return await asyncio.gather(*(ask("people", rows, asked, time_limit=50) for rows, asked in questions))

    answers: list[Any] = _run({"people": explainer}, scenario)
    assert max(calls) > 1
    return answers


def _undated(answer: cp.Explanation) -> str:
    """All of an explanation but when it was made."""
    return replace(answer, made={}).to_json()


@pytest.mark.parametrize("asked", [Asked("low"), Asked("low", paths="milestones", plans=2), Asked(paths="end")])
def test_who_is_asked_about_with_others_gets_the_same_answer(
    explainer: cp.Explainer, table: pd.DataFrame, asked: Asked
) -> None:
    parts = [table.iloc[0:1], table.iloc[1:4], table.iloc[4:5], table.iloc[5:7]]
    lone = [explainer.explain(part, **vars(asked), time_limit=50) for part in parts]
    together = _together(explainer, [(part, asked) for part in parts])
    assert [_undated(answer) for answer in together] == [_undated(answer) for answer in lone]


def test_what_is_told_does_not_depend_on_others_either(explainer: cp.Explainer, table: pd.DataFrame) -> None:
    asked = Asked("low", paths="milestones")
    parts = [table.iloc[[place]] for place in range(6)]
    lone = [_run({"people": explainer}, lambda desk, rows=part: desk.tell("people", rows, asked)) for part in parts]
    assert _together(explainer, [(part, asked) for part in parts], tell=True) == lone


def test_labels_come_back_as_they_were_given(explainer: cp.Explainer, table: pd.DataFrame) -> None:
    same = table.iloc[[0, 0]]  # the same label twice
    levels = table.iloc[2:4].set_axis(pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["x", "y"]))
    numbers = table.iloc[4:6].set_axis([7.5, -1])
    for given, answer in zip(
        (same, levels, numbers),
        _together(explainer, [(rows, Asked("low", paths="end")) for rows in (same, levels, numbers)]),
        strict=True,
    ):
        pd.testing.assert_index_equal(answer.factuals.index, given.index)
        pd.testing.assert_frame_equal(answer.factuals, given)
        assert len(answer.measures()) == 2


def test_columns_in_another_order_and_a_label_make_no_difference(
    explainer: cp.Explainer, people: pd.DataFrame, table: pd.DataFrame
) -> None:
    turned = people.iloc[:2][people.columns[::-1]]
    asked = [(rows, Asked("low", paths="end")) for rows in (table.iloc[2:3], table.iloc[:2], turned)]
    _, plain, other = _together(explainer, asked)
    pd.testing.assert_frame_equal(plain.counterfactuals, other.counterfactuals)


def test_predictions_are_those_of_the_explainer(explainer: cp.Explainer, table: pd.DataFrame) -> None:
    async def scenario(desk: Desk) -> list[pd.DataFrame]:
        parts = [table.iloc[[0]], table.iloc[1:9], table.iloc[:0]]
        return await asyncio.gather(*(desk.predict("people", part) for part in parts))

    one, several, none = _run({"people": explainer}, scenario)
    pd.testing.assert_frame_equal(one, explainer.predict_proba(table.iloc[[0]]))
    pd.testing.assert_frame_equal(several, explainer.predict_proba(table.iloc[1:9]))
    assert none.shape == (0, 3)


def test_a_prediction_does_not_wait_for_explanations(explainer: cp.Explainer, table: pd.DataFrame) -> None:
    async def scenario(desk: Desk) -> bool:
        long = asyncio.create_task(desk.explain("people", table.head(60), Asked("low", plans=4)))
        while not desk.busy:
            await asyncio.sleep(0.01)
        await desk.predict("people", table.head(1))
        done = long.done()
        long.cancel()
        return done

    assert not _run({"people": explainer}, scenario)


def test_a_question_that_cannot_be_answered_is_refused_before_it_waits(
    explainer: cp.Explainer, table: pd.DataFrame
) -> None:
    async def scenario(desk: Desk) -> None:
        bad = table.head(2).assign(debt=["much", 1.0])
        with pytest.raises(InputError, match="column 'debt', row p0: 'much' is not a number"):
            await desk.explain("people", bad, Asked("low"))
        with pytest.raises(InputError, match="unknown feature in lock: 'age'"):
            await desk.explain("people", table.head(1), Asked("low", lock=("age",)))
        with pytest.raises(InputError, match="p0"):
            await desk.explain("people", table.head(1), Asked("low", ranges={"debt": (-5, -4)}))
        with pytest.raises(InputError, match="unknown model 'person'"):
            await desk.explain("person", table.head(1), Asked("low"))
        assert not desk.busy

    _run({"people": explainer}, scenario)


def test_the_search_ends_when_nobody_has_time_for_it(explainer: cp.Explainer, table: pd.DataFrame) -> None:
    async def scenario(desk: Desk) -> float:
        started = time.monotonic()
        with pytest.raises(LateError):
            await desk.explain("people", table, Asked("low", method="rsgd", plans=9, confidence=0.9), time_limit=0.3)
        answered = time.monotonic() - started
        while desk.busy:
            await asyncio.sleep(0.05)
        assert answered < 5
        return time.monotonic() - started

    assert _run({"people": explainer}, scenario) < 30  # alone it takes minutes


def test_a_desk_that_stops_answers_what_it_has_and_takes_nothing_new(
    explainer: cp.Explainer, table: pd.DataFrame
) -> None:
    async def scenario(desk: Desk) -> None:
        task = asyncio.create_task(desk.explain("people", table.head(2), Asked("low")))
        while not desk.busy:
            await asyncio.sleep(0.01)
        draining = asyncio.create_task(desk.drain(60))
        await asyncio.sleep(0)
        assert not desk.ready
        with pytest.raises(BusyError, match="stopping"):
            await desk.predict("people", table.head(1))
        assert len(await task) == 2
        assert await draining

    _run({"people": explainer}, scenario)


def test_the_event_loop_goes_on_while_models_are_asked(explainer: cp.Explainer, table: pd.DataFrame) -> None:
    names = set()

    async def scenario(desk: Desk) -> None:
        desk.watch(lambda kind, call: names.add(threading.current_thread().name))
        await asyncio.gather(desk.explain("people", table.head(1), Asked("low")), desk.predict("people", table.head(1)))

    _run({"people": explainer}, scenario)
    assert names == {"explain", "predict"}


def test_questions_are_equal_only_if_nothing_tells_them_apart() -> None:
    assert Asked(ranges={"a": (1, 2), "b": (0, 1)}).key == Asked(ranges={"b": (0, 1), "a": (1, 2)}).key
    keys = {Asked(1).key, Asked(True).key, Asked(1.0).key, Asked("1").key, Asked(1, plans=2).key}
    assert len(keys) == 5
