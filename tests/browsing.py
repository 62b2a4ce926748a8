"""A real browser for tests of pages, where there is one."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless Chromium, that of COUNTERPATH_CHROMIUM or an installed one; without any the test is skipped."""
    found = os.environ.get("COUNTERPATH_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("there is no Chromium; install one, or name it in COUNTERPATH_CHROMIUM")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=list(_QUIET))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Any, path: Path, width: int) -> Iterator[Any]:
    """A page from a file; what it asks for, and what it says to the console, is an error at the end."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: troubles.append(f"request: {request.url}"))
    page.goto(path.as_uri())
    try:
        yield page
    finally:
        page.close()
    assert troubles == [f"request: {path.as_uri()}"]
