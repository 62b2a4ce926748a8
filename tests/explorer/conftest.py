"""A real explorer in a process of its own, and a real browser that may talk to nobody else."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route

import counterpath as cp
from counterpath.data.schema import Schema
from tests.browsing import chromium
from tests.conftest import Once
from tests.explorer.processes import WAIT, run_explorer
from tests.tables import LABEL, SMALL, mixed

NASTY, BOLD = "<img src=x onerror=alert(1)>", "<b>B</b>"
PICTURES = "COUNTERPATH_PICTURES"
"""The environment variable with a folder for screenshots to look at."""


@pytest.fixture(scope="session")
def nasty() -> pd.DataFrame:
    """People with a column, categories and a class that look like markup."""
    frame = mixed().reset_index(drop=True).rename(columns={"debt": NASTY})
    frame = frame.assign(city=frame["city"].replace({"B": BOLD}), sex=frame["sex"].replace({"Male": NASTY}))
    return frame.assign(**{LABEL: frame[LABEL].replace({"mid": NASTY})})


@pytest.fixture(scope="session")
def model(nasty: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory, once: Once) -> Path:
    """A small model of these people, of whom sex cannot change."""
    schema = Schema.infer(nasty, target=LABEL, immutable=["sex"])
    made = cp.Explainer(**SMALL | {"epochs": 10})
    explainer = once("nasty", lambda: made.fit(nasty, LABEL, schema=schema), cp.Explainer.save, cp.load)
    return explainer.save(tmp_path_factory.mktemp("explorer") / "risky <b>")


@pytest.fixture(scope="session")
def address(model: Path, nasty: pd.DataFrame) -> Iterator[str]:
    """The explorer of this model and 300 people, the last of whom has a city that the model does not know."""
    people = nasty.head(300).copy()
    people.loc[299, "city"] = "Atlantis"
    people.to_csv(model.with_name("people.csv"), index=False)
    with run_explorer(model.parent, str(model), "--rows", "people.csv") as address:
        yield address


@pytest.fixture(scope="module")  # not longer: an event loop runs as long as it lives
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser whose every request must stay on the machine, and on whose pages no error may happen."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.set_default_timeout(WAIT)
    problems: list[str] = []

    def check_route(route: Route) -> None:
        if re.match(r"(http|ws)://127\.0\.0\.1:\d+/", route.request.url):
            route.continue_()
        else:
            problems.append(f"a request off the machine: {route.request.url}")
            route.abort()

    context.route(re.compile(r"^(?!data:|blob:)"), check_route)
    context.on(
        "console", lambda message: problems.append(f"console: {message.text}") if message.type == "error" else None
    )
    context.on("weberror", lambda error: problems.append(f"error on the page: {error.error}"))
    context.on("dialog", lambda dialog: (problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    yield context
    context.close()
    assert not problems


@pytest.fixture
def page(context: BrowserContext, address: str) -> Page:
    """The explorer with a row on it, and its prediction."""
    return opened(context, address)


def opened(context: BrowserContext, address: str) -> Page:
    page = context.new_page()
    page.goto(address)
    page.get_by_role("button", name="Find plans").wait_for()
    page.get_by_text("The model predicts").first.wait_for()
    return page


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where screenshots go."""
    folder = Path(os.environ.get(PICTURES, tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
