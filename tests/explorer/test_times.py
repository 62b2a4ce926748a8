"""A model with dates: the page shows and takes them as text."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import BrowserContext, Page, expect

import counterpath as cp
from tests.explorer.actions import card, find, plan
from tests.explorer.conftest import opened
from tests.explorer.processes import WAIT, run_explorer
from tests.tables import SMALL

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("context")]
expect.set_options(timeout=WAIT)


@pytest.fixture(scope="module")
def dated_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The explorer of a model of accounts, of which those that were opened early are good."""
    random, folder = np.random.default_rng(0), tmp_path_factory.mktemp("dates")
    days, delay = random.integers(0, 3000, 200), random.integers(0, 60, 200)
    table = pd.DataFrame(
        {
            "opened": pd.Timestamp("2010-01-01") + pd.to_timedelta(days, unit="D"),
            "delay": pd.to_timedelta(delay, unit="D"),
            "good": np.where(days / 3000 + delay / 60 < 1, "yes", "no"),
        }
    )
    schema = cp.Schema.infer(table, target="good", overrides={"opened": {"immutable": False}})
    model = cp.Explainer(**SMALL | {"epochs": 20}).fit(table, "good", schema=schema).save(folder / "dated")
    table.drop(columns="good").head(20).to_csv(folder / "accounts.csv", index=False)
    with run_explorer(folder, str(model), "--rows", "accounts.csv") as address:
        yield address


@pytest.fixture
def dated(context: BrowserContext, dated_address: str) -> Page:
    return opened(context, dated_address)


def test_dates_are_shown_and_taken_as_text(dated: Page) -> None:
    field = dated.get_by_label("Value of opened")
    assert pd.Timestamp(field.input_value()).year >= 2010
    field.fill("soon")
    expect(card(dated, "opened").get_by_role("alert")).to_contain_text("soon is not a date such as 2013-08-14")
    field.fill("2018-01-01")
    dated.get_by_label("Value of delay").fill("50 days")
    expect(dated.get_by_role("alert").filter(visible=True)).to_have_count(0)
    find(dated)
    plan(dated, 1).get_by_text("In words, step by step").click()
    expect(
        dated.get_by_text("instead of 2018-01-01").or_(dated.get_by_text("instead of 50 days")).first
    ).to_be_visible()
