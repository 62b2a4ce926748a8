"""Names and values that look like markup are text, wherever they are shown."""

import re
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, expect

from .actions import card, choose, find, limits, number, plan, press
from .conftest import BOLD, NASTY, opened


def _alien(page: Page) -> list[str]:
    """Elements that only the names could have made."""
    found: list[str] = page.evaluate(
        "() => [...document.querySelectorAll('[onerror], img[src=x], b')].map((one) => one.outerHTML)"
    )
    return found


def test_markup_in_names_and_values_is_shown_as_text(context: BrowserContext, address: str, pictures: Path) -> None:
    page = opened(context, address)
    expect(page.get_by_text("Model: risky <b>")).to_be_visible()
    expect(card(page, NASTY).get_by_role("heading", name=NASTY)).to_be_visible()
    page.get_by_role("textbox", name="Search people by their values").fill(f"city={BOLD}")
    expect(page.get_by_role("listitem").first).to_contain_text(f"city {BOLD}")
    page.get_by_role("listitem").first.click()
    choose(page, "Value of city", "A")
    choose(page, "Value of city", BOLD)
    page.get_by_role("combobox", name="Wanted decision").click()
    expect(page.get_by_role("option", name=NASTY)).to_be_visible()
    page.get_by_role("option", name=NASTY).click()
    limits(page, NASTY)
    number(page, f"Value of {NASTY}").fill("")
    expect(card(page, NASTY).get_by_role("alert")).to_contain_text(NASTY)
    assert _alien(page) == []
    number(page, f"Value of {NASTY}").fill("900")
    choose(limits(page, "city"), "Allowed values", BOLD)
    page.keyboard.press("Escape")
    number(page, "Plans").fill("2")
    find(page)
    expect(plan(page, 1)).to_contain_text(NASTY)
    page.get_by_role("button", name="Bookmark plan 1").click()
    press(page, "Compare methods")
    for drawn in page.locator(".js-plotly-plot").all():
        drawn.locator(".main-svg").first.wait_for()
        box = drawn.bounding_box()
        assert box is not None
        for share in (0.3, 0.5, 0.7):  # hovers, too
            page.mouse.move(box["x"] + share * box["width"], box["y"] + share * box["height"])
            page.wait_for_timeout(60)
    page.get_by_role("button", name="All values at this step").click()
    expect(page.get_by_role("table", name=re.compile("^All values"))).to_contain_text(BOLD)
    assert _alien(page) == []
    page.screenshot(path=pictures / "nasty.png", full_page=True)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the plans as HTML").click()
    report = context.new_page()
    report.set_content(download.value.path().read_text(encoding="utf-8"))
    expect(report.locator("body")).to_contain_text(NASTY)
    assert report.evaluate("() => document.querySelectorAll('[onerror], img[src=x]').length") == 0
