"""Answers that last, in a real browser."""

import copy
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import BrowserContext, Page, expect

import counterpath as cp
from tests.explorer.actions import find, number
from tests.explorer.conftest import opened
from tests.explorer.processes import WAIT, run_explorer
from tests.explorer.test_work import violations

pytestmark = pytest.mark.slow
expect.set_options(timeout=WAIT)


@pytest.fixture(scope="module")
def address(fitted: cp.Explainer, loans: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The explorer of loans, with a family of models that may follow."""
    folder = tmp_path_factory.mktemp("lasting")
    copy.copy(fitted).fit_family(size=60, held_out=20).save(folder / "loans")
    loans[(fitted.predict(loans) == "no").to_numpy()].head(20).to_csv(folder / "people.csv", index=False)
    with run_explorer(folder, str(folder / "loans"), "--rows", "people.csv") as address:
        yield address


@pytest.fixture
def page(context: BrowserContext, address: str) -> Page:
    return opened(context, address)


def test_plans_last_as_asked_and_say_so(page: Page, pictures: Path) -> None:
    number(page, "Number of plans").fill("1")
    find(page)
    plain = page.get_by_text(re.compile(r"Accepted by \d+ of 20 retrained models"))
    expect(plain).to_be_visible()
    before = int(plain.inner_text().split()[2])
    number(page, "Lasts with retrained models").fill("90")
    number(page, "Survives small deviations").fill("80")
    expect(page.get_by_text("Out of date: something has changed since these plans were found.").first).to_be_visible()
    find(page)
    after = int(page.get_by_text(re.compile(r"Accepted by \d+ of 20 retrained models")).inner_text().split()[2])
    assert after >= before
    assert after >= 17
    expect(page).to_have_url(re.compile(r'"robust":90,"noise":80|robust%22:90'))
    assert violations(page, "#plans") == []
    page.locator("#plans").screenshot(path=pictures / "lasting-1280.png")


def test_where_nothing_lasts_no_plan_is_shown(page: Page) -> None:
    number(page, "Number of plans").fill("1")
    number(page, "Lasts with retrained models").fill("93")
    said = page.get_by_role("heading", name="No plan that lasts was found")
    lock = page.get_by_role("switch", name="Lock income", exact=True)
    for _ in range(10):  # of people whose income stays, some have nothing that lasts
        if lock.get_attribute("aria-checked") != "true":
            lock.click()
            expect(lock).to_be_checked()
        find(page)
        if said.count():
            break
        page.get_by_role("button", name="Next rejected").click()
    expect(said).to_be_visible()
    expect(page.get_by_text("none that lasts")).to_be_visible()
    expect(
        page.get_by_text(re.compile("Nothing that lasts was found: what comes nearest is accepted by "))
    ).to_be_visible()


def test_what_does_not_last_is_said(page: Page) -> None:
    number(page, "Number of plans").fill("1")
    number(page, "Lasts with retrained models").fill("99")
    page.get_by_role("button", name="Find plans").click()
    expect(page.get_by_text(re.compile("obust=0.99 asks too much of a family of 60 models"))).to_be_visible()
    number(page, "Lasts with retrained models").fill("900")
    page.get_by_role("button", name="Find plans").click()
    expect(page.get_by_text("Correct what is marked in red first.")).to_be_visible()
