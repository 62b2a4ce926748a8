"""Numbers as targets in a real browser: of one person, and of many."""

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import BrowserContext, Page, expect

import counterpath as cp
from tests.explorer.conftest import opened
from tests.explorer.processes import WAIT, run_explorer

pytestmark = pytest.mark.slow
expect.set_options(timeout=WAIT)


@pytest.fixture(scope="module")
def address(priced: cp.Explainer, houses: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The explorer of prices, and of houses for which less than 60 is predicted."""
    folder = tmp_path_factory.mktemp("prices")
    priced.save(folder / "prices")
    houses[(priced.predict(houses) < 60).to_numpy()].head(60).to_csv(folder / "houses.csv", index=False)
    with run_explorer(folder, str(folder / "prices"), "--rows", "houses.csv") as address:
        yield address


@pytest.fixture
def page(context: BrowserContext, address: str) -> Page:
    return opened(context, address)


def test_a_house_gets_a_plan_within_the_range(page: Page, pictures: Path) -> None:
    expect(page.get_by_text(re.compile(r"The model predicts [\d.]+ k€")).first).to_be_visible()
    page.get_by_role("button", name="Find plans").click()
    expect(page.get_by_text("Enter the least or the most that is to be predicted.")).to_be_visible()
    page.get_by_label("Predicted at least, k€").first.fill("90")
    page.get_by_role("button", name="Find plans").click()
    plan = page.get_by_role("article", name="Plan 1")
    expect(plan).to_be_visible()
    said = plan.get_by_text(re.compile(r"Prediction: [\d.]+ k€ → [\d.]+ k€")).inner_text()
    assert float(said.split("→")[1].split()[0]) >= 90
    expect(page.locator("#path .js-plotly-plot .main-svg").first).to_be_visible()
    page.screenshot(path=pictures / "numbers-1280.png", full_page=True)


def test_many_houses_are_explained_audited_and_get_shared_plans(page: Page, pictures: Path) -> None:
    page.get_by_role("tab", name="Many people").click()
    page.get_by_role("button", name="Explain these people").wait_for()
    page.locator("#group").get_by_label("Predicted at least, k€").fill("90")
    page.get_by_role("button", name="Explain these people").click()
    expect(page.get_by_text("60 people explained.")).to_be_visible()
    page.get_by_role("button", name="Find shared plans").click()
    expect(page.get_by_text(re.compile("shared plans together give"))).to_be_visible()
    page.get_by_role("button", name="Audit these people").click()
    expect(page.locator("#group-audit").get_by_text("Audited.")).to_be_visible()
    page.screenshot(path=pictures / "numbers-group-1280.png", full_page=True)
