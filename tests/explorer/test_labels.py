"""A model whose features, values and classes have names for people, and a feature that people cannot change."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

import counterpath as cp
from counterpath.data.schema import Schema
from counterpath.explanation.wording import NOT_ACTIONABLE
from counterpath.explorer.forms import INVALID
from tests.explorer.actions import card, choose, find, limits, number, plan, value, verdict
from tests.explorer.conftest import opened
from tests.explorer.processes import WAIT, run_explorer
from tests.tables import LABEL, SMALL, described, features, mixed

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("context")]
expect.set_options(timeout=WAIT)


@pytest.fixture(scope="module")
def named_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The explorer of a model with labels."""
    table, folder = mixed(300), tmp_path_factory.mktemp("labels")
    schema = described(Schema.infer(table, target=LABEL, immutable=["sex"]))
    model = cp.Explainer(**SMALL | {"epochs": 10}).fit(table, LABEL, schema=schema).save(folder / "named")
    features(table).head(40).to_csv(folder / "people.csv", index=False)
    with run_explorer(folder, str(model), "--rows", "people.csv") as address:
        yield address


@pytest.fixture
def named(context: BrowserContext, named_address: str) -> Page:
    return opened(context, named_address)


def test_the_form_has_labels_units_meanings_and_what_is_legal(named: Page) -> None:
    children = card(named, "children")
    expect(children.get_by_text("0–20")).to_be_visible()
    expect(children.locator(".cp-unit")).to_have_text("children")
    expect(children.get_by_role("heading")).to_have_attribute("title", "How many children live in the household.")
    assert card(named, "member").get_by_role("heading").get_attribute("title") == "Is it <b>bold</b>?"
    expect(card(named, "Debt").get_by_text(re.compile(r"^Training range [\d,]+–[\d,]+$"))).to_be_visible()
    assert value(named, "Home town").startswith("City ")
    choose(named, "Value of member", "yes")
    choose(named, "Wanted decision", "granted")
    assert verdict(named).startswith("The model predicts ")


def test_a_number_that_cannot_be_is_refused_with_a_sentence(named: Page) -> None:
    number(named, "Value of children").fill("500")
    expect(card(named, "children").get_by_role("alert")).to_contain_text("Invalid value: 500 is not from 0 to 20.")
    expect(named.get_by_text("No decision")).to_be_visible()
    named.get_by_role("button", name="Find plans").click()
    expect(named.get_by_text(INVALID)).to_be_visible()
    number(named, "Value of children").fill("2")
    expect(named.get_by_role("alert").filter(visible=True)).to_have_count(0)


def test_what_people_cannot_change_is_locked_until_it_is_allowed(named: Page) -> None:
    size = card(named, "Size of the flat")
    lock = size.get_by_role("switch", name="Lock Size of the flat")
    limits(named, "Size of the flat")
    expect(size.get_by_text(NOT_ACTIONABLE)).to_be_visible()
    expect(named.get_by_role("region", name="Cannot change")).to_contain_text("Size of the flat")
    expect(lock).to_be_checked()
    expect(lock).to_be_enabled()
    for other in ("Home town", "children", "member", "Debt", "score"):
        named.get_by_role("switch", name=f"Lock {other}").click()
    named.get_by_role("button", name="Find plans").click()
    expect(named.get_by_text("Nothing is left that could change: unlock a feature.").first).to_be_visible()
    lock.click()
    expect(size.get_by_text("Limits", exact=True)).to_be_visible()
    find(named)
    shown = plan(named, 1)
    if shown.get_by_role("list").count():
        assert set(shown.locator(".cp-feature").all_inner_texts()) == {"Size of the flat"}


def test_plans_read_as_people_say_them(named: Page) -> None:
    number(named, "Number of plans").fill("1")
    find(named)
    plan(named, 1).get_by_text("In words, step by step").click()
    text = plan(named, 1).inner_text()
    assert "The model predicts" in text
    assert "size" not in text.split("In words")[0].lower(), "it is locked"
    named.get_by_text("All values at this step", exact=True).click()
    expect(named.get_by_role("rowheader", name="Home town", exact=True)).to_be_visible()
    named.get_by_role("tab", name="Many people").click()
    choose(named, "May change, too", "Size of the flat")
