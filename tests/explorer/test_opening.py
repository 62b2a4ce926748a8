"""A model that is still on its way when the page is."""

import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import BrowserContext, expect

import counterpath as cp
from counterpath.explorer.opening import Opening, Stage
from counterpath.service.dispatcher import Dispatcher
from counterpath.utils.errors import InputError
from counterpath.utils.progress import track

from .processes import WAIT, running


def test_the_page_says_how_far_the_model_is_and_then_shows_it(
    context: BrowserContext, model: Path, tmp_path: Path, pictures: Path
) -> None:
    with running(tmp_path, "-m", "tests.explorer.slow_start", str(model), str(tmp_path / "go")) as address:
        page = context.new_page()
        page.goto(address)
        expect(page.get_by_text("training something (3 of 4) almost")).to_be_visible()
        expect(page.get_by_role("progressbar", name="Progress")).to_have_attribute("aria-valuenow", "0.75")
        assert httpx.get(f"{address}/v1/models").json() == {"models": []}
        page.screenshot(path=pictures / "opening.png")
        (tmp_path / "go").touch()
        expect(page.get_by_text("The model says").first).to_be_visible(timeout=WAIT)
        expect(page.get_by_text("one of 600 people")).to_be_visible()
        assert httpx.get(f"{address}/v1/models/slow").json()["name"] == "slow", "over HTTP it is there as well"
        page.close()


def test_a_model_that_cannot_be_had_is_said(context: BrowserContext, model: Path, tmp_path: Path) -> None:
    with running(tmp_path, "-m", "tests.explorer.slow_start", str(model), str(tmp_path / "go"), "fails") as address:
        page = context.new_page()
        page.goto(address)
        (tmp_path / "go").touch()
        expect(page.get_by_role("alert")).to_have_text("The model cannot be opened: the disk is full of <b>sand</b>")
        page.close()


def _opened(load: Any) -> Opening:
    opening = Opening("My model: 1/2", load, Dispatcher({}))
    opening.start()
    opening._thread.join()
    assert not opening.running
    return opening


def test_stages_are_heard_and_the_desk_gets_the_model(explainer: cp.Explainer, people: Any) -> None:
    heard = []

    def load() -> tuple[cp.Explainer, Any]:
        with track("one thing", total=2, shown=False) as advance:
            advance(1, "half")
            heard.append(opening.stage)
        return explainer, people.head(5)

    opening = Opening("My model: 1/2", load, Dispatcher({}))
    opening.start()
    opening._thread.join()
    assert heard == [Stage("one thing", 1, 2, "half")]
    assert heard[0].share == 0.5
    assert "one thing" in opening.past
    assert opening.opened is not None
    assert opening.opened.name == "My-model-1-2"
    assert len(opening.opened.people) == 5


@pytest.mark.parametrize("error", [InputError("no such thing"), RuntimeError("oops")])
def test_what_goes_wrong_is_told_without_a_traceback(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    def load() -> Any:
        raise error

    with caplog.at_level(logging.ERROR):
        opening = _opened(load)
    assert opening.opened is None
    told = "no such thing" if isinstance(error, InputError) else "something unexpected happened (RuntimeError)"
    assert told in opening.problem
    assert "Traceback" not in opening.problem
    assert (caplog.records[0].exc_info is None) == isinstance(error, InputError)
