"""A model that is still being loaded when the page is there."""

import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import BrowserContext, expect

import counterpath as cp
from counterpath.explorer.page import ModelLoader, Stage
from counterpath.service.dispatcher import Dispatcher
from counterpath.utils.errors import InputError
from counterpath.utils.progress import track
from tests.explorer.processes import WAIT, run_python

pytestmark = pytest.mark.slow


def test_the_page_shows_the_progress_of_loading_and_then_the_model(
    context: BrowserContext, model: Path, tmp_path: Path, pictures: Path
) -> None:
    with run_python(tmp_path, "-m", "tests.explorer.slow_model", str(model), str(tmp_path / "go")) as address:
        page = context.new_page()
        page.goto(address)
        expect(page.get_by_text("training something (3 of 4) almost")).to_be_visible()
        expect(page.get_by_role("progressbar", name="Progress")).to_have_attribute("aria-valuenow", "0.75")
        assert httpx.get(f"{address}/v1/models").json() == {"models": []}
        page.screenshot(path=pictures / "opening.png")
        (tmp_path / "go").touch()
        expect(page.get_by_text("The model predicts").first).to_be_visible(timeout=WAIT)
        expect(page.get_by_text("Training record 0, one of 600 people in the model's training data.")).to_be_visible()
        expect(page.get_by_text("training record", exact=True)).to_be_visible()
        assert httpx.get(f"{address}/v1/models/slow").json()["name"] == "slow", "over HTTP it is there as well"
        for nowhere in ("/nowhere", "/_nicegui/nowhere.js", "/v1/nowhere"):
            lost = httpx.get(address + nowhere)  # NiceGUI would make and keep a page for it
            assert (lost.status_code, lost.headers["content-type"]) == (404, "application/problem+json"), nowhere
        page.close()


def test_the_page_says_why_a_model_cannot_be_loaded(context: BrowserContext, model: Path, tmp_path: Path) -> None:
    with run_python(tmp_path, "-m", "tests.explorer.slow_model", str(model), str(tmp_path / "go"), "fails") as address:
        page = context.new_page()
        page.goto(address)
        (tmp_path / "go").touch()
        expect(page.get_by_role("alert")).to_have_text("The model cannot be opened: the disk is full of <b>sand</b>")
        page.close()


def _loaded(load: Any) -> ModelLoader:
    loader = ModelLoader("My model: 1/2", load, Dispatcher({}))
    loader.start()
    loader._thread.join()
    assert not loader.running
    return loader


def test_stages_are_known_and_the_dispatcher_gets_the_model(explainer: cp.Explainer, people: Any) -> None:
    stages = []

    def load() -> tuple[cp.Explainer, Any]:
        with track("one thing", total=2, shown=False) as advance:
            advance(1, "half")
            stages.append(loader.stage)
        return explainer, people.head(5)

    dispatcher = Dispatcher({})
    loader = ModelLoader("My model: 1/2", load, dispatcher)
    loader.start()
    loader._thread.join()
    assert stages == [Stage("one thing", 1, 2, "half")]
    assert stages[0].share == 0.5
    assert "one thing" in loader.past
    assert loader.model is not None
    assert loader.model.name == "My-model-1-2"
    assert dispatcher.models == {"My-model-1-2": explainer}
    assert len(loader.model.rows) == 5


@pytest.mark.parametrize("error", [InputError("no such thing"), RuntimeError("oops")])
def test_errors_of_loading_are_named_without_a_traceback(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    def load() -> Any:
        raise error

    with caplog.at_level(logging.ERROR):
        loader = _loaded(load)
    assert loader.model is None
    expected = "no such thing" if isinstance(error, InputError) else "something unexpected happened (RuntimeError)"
    assert expected in loader.error
    assert "Traceback" not in loader.error
    assert (caplog.records[0].exc_info is None) == isinstance(error, InputError)
