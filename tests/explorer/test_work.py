"""What people do to work on a case: undo, links, keys, what-if, receipts; and what axe finds in every state of it."""

import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.explorer.actions import card, choose, find, limits, no_plan, number, plan, value, verdict
from tests.explorer.conftest import NASTY
from tests.explorer.processes import WAIT

pytestmark = pytest.mark.usefixtures("context")
expect.set_options(timeout=WAIT)
OUTDATED = "Out of date: something has changed since these plans were found."
_AXE = """(within) => axe.run(within, {
    resultTypes: ['violations'],
    rules: {'label-content-name-mismatch': {enabled: true}},  // an experiment of axe, and a rule of WCAG
})"""


def violations(page: Page, within: str = "html") -> list[str]:
    """What axe finds in a part of the page, by all of its rules and best practices: the rule and the element."""
    page.emulate_media(reduced_motion="reduce")  # what fades in has its colors at once
    page.wait_for_timeout(500)
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate(_AXE, within)["violations"]
    return [
        f"{each['id']}: {node['html'][:120]} {[check['data'] for check in node['any']]}"
        for each in found
        for node in each["nodes"]
    ]


def outdated(page: Page) -> bool:
    return page.locator("#plans").get_by_text(OUTDATED).is_visible()


def test_plans_are_out_of_date_when_anything_changes_and_up_to_date_when_it_is_undone(page: Page) -> None:
    find(page)
    first = plan(page, 1).inner_text()
    edits: dict[str, Callable[[], object]] = {
        "a value": lambda: number(page, "Value of score").fill("7.25"),
        "a lock": lambda: page.get_by_role("switch", name="Lock score").click(),
        "the decision": lambda: choose(page, "Wanted decision", "low"),
        "the probability": lambda: number(page, "Minimum probability").fill("70"),
        "the method": lambda: choose(page, "Method", "nearest"),
        "the number of plans": lambda: number(page, "Number of plans").fill("2"),
        "the changes": lambda: number(page, "Maximum changes").fill("2"),
    }
    message = page.locator("#plans").get_by_text(OUTDATED)
    for what, edit in edits.items():
        edit()
        expect(message, what).to_be_visible()
        expect(page.get_by_role("button", name="Receipt for the person")).to_be_hidden()
        page.get_by_role("button", name="Undo", exact=True).click()
        expect(message, what).to_be_hidden()
    assert plan(page, 1).inner_text() == first
    page.get_by_role("button", name="Redo", exact=True).click()
    expect(message).to_be_visible()
    expect(number(page, "Maximum changes")).to_have_value("2")
    page.get_by_role("button", name="Reset").click()
    expect(number(page, "Maximum changes")).to_have_value("")
    assert page.locator("#path").get_by_text(OUTDATED).is_hidden()


def test_the_first_plan_stays_what_it_was_when_others_arrive(page: Page) -> None:
    number(page, "Number of plans").fill("4")
    page.get_by_role("button", name="Find plans").click()
    first = plan(page, 1).get_by_role("list", name="What changes in plan 1")
    first.wait_for()
    before = first.inner_text()
    first.evaluate("element => element.dataset.mine = 'kept'")
    page.get_by_text(re.compile(r"^\d plans?\.$")).wait_for()
    assert first.inner_text() == before
    assert first.get_attribute("data-mine") == "kept", "not even drawn again, so that focus and selection stay"


def test_where_there_is_no_plan_none_is_shown(page: Page) -> None:
    for name in (NASTY, "score", "size", "city", "member"):
        page.get_by_role("switch", name=f"Lock {name}", exact=True).click()
    number(page, "Minimum probability").fill("95")
    find(page)
    expect(no_plan(page)).to_be_visible()
    expect(plan(page, 1)).to_have_count(0)
    expect(page.get_by_text("The path of a plan appears here.")).to_be_visible()
    assert page.locator("#path .js-plotly-plot, #map .js-plotly-plot").count() == 0
    for hidden in ("Receipt for the person", "Download the plans as CSV"):
        expect(page.get_by_role("button", name=hidden)).to_be_hidden()
    expect(page.get_by_text(re.compile(r"would reach \d+ % if unlocked"))).to_be_visible()


def test_what_cannot_be_is_refused_where_it_is_typed(page: Page) -> None:
    for control, typed, says in (
        ("Number of plans", "0", "Enter a whole number from 1 to 12."),
        ("Number of plans", "2.5", "Enter a whole number from 1 to 12."),
        ("Maximum changes", "99", "Enter a whole number from 1 to 7."),
        ("Minimum probability", "100", "Enter a percentage above 0 and below 100."),
    ):
        number(page, control).fill(typed)
        expect(page.locator("#plans").get_by_text(says)).to_be_visible()
        number(page, control).fill("1")
        expect(page.locator("#plans").get_by_text(says)).to_be_hidden()
    number(page, "Value of score").fill("9999")
    expect(card(page, "score")).to_contain_text("Outside of the training range")


def test_a_link_holds_what_was_entered_and_survives_reload(page: Page) -> None:
    page.get_by_role("button", name="Next rejected").click()
    number(page, "Value of score").fill("5.5")
    number(page, "Value of score").press("Tab")
    page.get_by_role("switch", name="Lock city").click()
    choose(limits(page, "children"), "Direction", "only down")
    number(page, "Number of plans").fill("2")
    field = page.locator("#rules").get_by_label("Rule between features")
    field.fill("score <= 1000")
    field.press("Enter")
    find(page)
    expect(page).to_have_url(re.compile("plans%22:true"))
    url, shown = page.url, plan(page, 1).get_by_role("list").inner_text()
    assert "token" not in url
    other = page.context.new_page()
    for opened, go in ((page, page.reload), (other, lambda: other.goto(url))):
        go()
        expect(number(opened, "Value of score")).to_have_value("5.5")
        expect(opened.get_by_role("switch", name="Lock city")).to_be_checked()
        expect(card(opened, "children").get_by_text("Limits: only down")).to_be_visible()
        expect(opened.get_by_role("button", name="Remove the rule score <= 1000")).to_be_visible()
        expect(plan(opened, 1).get_by_role("list")).to_have_text(shown, use_inner_text=True)
    other.goto(url.partition("#")[0] + "#{%22row%22:1,%22values%22:{%22nothing%22:1}}")
    other.reload()
    expect(other.get_by_text("This link cannot be read: this model has no nothing.")).to_be_visible()
    expect(other.get_by_text("The model predicts").first).to_be_visible()


def test_keys_do_what_people_expect_and_the_focus_stays(page: Page) -> None:
    search = page.get_by_role("textbox", name="Search people by their values")
    search.fill("row=21 ")
    search.press("Enter")
    expect(page.get_by_text("Person 21, one of")).to_be_visible()
    field = number(page, "Value of score")
    field.focus()
    field.press("Enter")
    expect(plan(page, 1).or_(no_plan(page))).to_be_visible()
    page.get_by_text(re.compile(r"^(\d plans?|No plan)\.$")).wait_for()
    expect(field).to_be_focused()
    button = page.get_by_role("button", name="Find plans")
    button.focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Stop", disabled=False).wait_for()
    page.get_by_text(re.compile(r"^(\d plans?|No plan)\.$")).wait_for()
    expect(button).to_be_focused()
    slider = page.get_by_role("slider", name="Largest value that score may become")
    slider.focus()
    for _ in range(3):
        slider.press("ArrowLeft")
    expect(card(page, "score").get_by_text("Limits: at most")).to_be_visible()
    expect(slider).to_be_focused()
    expect(slider).to_have_attribute("aria-valuetext", re.compile(r"\d"))
    page.get_by_role("link", name="What if").press("Enter")
    expect(page.locator("#what-if-title")).to_be_focused()
    assert "#{" in page.url, "the address still holds what was entered"


def test_what_if_shows_the_answer_for_each_value(page: Page) -> None:
    section = page.locator("#what-if")
    figure = section.locator(".cp-figure[role=img]")
    figure.locator(".plotly").first.wait_for()
    choose(page, "Feature", "score")
    expect(figure).to_have_accessible_name(re.compile("With score alone, the probability of"))
    section.get_by_role("button", name="As a table").click()
    table = section.get_by_role("table", name="What if score were another")
    expect(table.get_by_role("row").nth(30)).to_be_attached()
    own = table.get_by_role("row", name=re.compile(r"\(now\)"))
    expect(own).to_have_count(1)
    number(page, "Value of score").fill("3")
    expect(own.get_by_role("rowheader")).to_have_text("3 (now)")
    choose(page, "Feature", "city")
    expect(figure).to_have_accessible_name(re.compile("city"))


def test_a_receipt_is_one_page_in_plain_words(page: Page, pictures: Path) -> None:
    # So high that nothing is scrolled: below a dialog the page is moved up instead, which axe does not see.
    page.set_viewport_size({"width": 1280, "height": 1800})
    find(page)
    page.get_by_role("button", name="Receipt for the person").click()
    frame = page.frame_locator("iframe[title='The receipt']")
    expect(frame.get_by_role("heading", name="What could change this decision")).to_be_visible()
    expect(frame.get_by_role("heading", name="What this page is not")).to_be_visible()
    assert violations(page, ".q-dialog") == []  # nobody reaches what is behind it
    page.screenshot(path=pictures / "receipt.png")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the receipt").click()
    html = download.value.path().read_text(encoding="utf-8")
    for code in ("<script", "lock=", "None", "target_class", "geodesic"):
        assert code not in html
    assert "onerror=alert(1)>" not in html.replace("&gt;", "")
    paper = page.context.new_page()
    paper.set_content(html)
    pdf = paper.pdf(prefer_css_page_size=True)
    (pictures / "receipt.pdf").write_bytes(pdf)
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1
    page.get_by_role("button", name="Close the receipt").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_plans_are_compared_side_by_side(page: Page) -> None:
    find(page)
    table = page.get_by_role("table", name="Plans side by side", exact=True)
    found = page.get_by_role("article", name=re.compile(r"^Plan \d$")).count()
    assert table.get_by_role("columnheader").count() == found + 1
    expect(table.get_by_role("row", name=re.compile("^With the plan"))).to_contain_text("%")


def test_decision_and_plans_stay_in_sight_and_a_phone_finds_the_main_button(page: Page) -> None:
    find(page)
    number(page, "Value of score").scroll_into_view_if_needed()
    page.mouse.wheel(0, 300)
    for part in (page.get_by_role("button", name="Find plans"), plan(page, 1).get_by_role("heading")):
        expect(part).to_be_in_viewport()
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(page.url.partition("#")[0])
    page.get_by_text("The model predicts").first.wait_for()
    expect(page.get_by_role("button", name="Find plans")).to_be_in_viewport()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    find(page)
    expect(plan(page, 1).get_by_role("heading")).to_be_in_viewport()


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_nothing_in_any_state(page: Page, scheme: str, pictures: Path) -> None:
    if scheme == "dark":
        page.get_by_role("button", name="Dark colors").click()
        expect(page.get_by_role("button", name="Light colors")).to_be_visible()
        page.reload()
        expect(page.get_by_role("button", name="Light colors")).to_be_visible()
    page.get_by_text("The model predicts").first.wait_for()
    assert violations(page) == [], "at first"
    limits(page, "score")
    limits(page, "city")
    find(page)
    plan(page, 1).get_by_text("In words, step by step").click()
    page.get_by_role("button", name="Bookmark plan 1").click()
    page.get_by_role("button", name="All values at this step").click()
    assert violations(page) == [], "with plans and limits"
    page.screenshot(path=pictures / f"work-{scheme}.png", full_page=True)
    number(page, "Value of children").fill("2.5")
    number(page, "Number of plans").fill("0")
    page.get_by_role("button", name="Find plans").click()
    expect(page.get_by_text("Correct what is marked in red first.")).to_be_visible()
    page.get_by_role("textbox", name="Search people by their values").fill("city=A")
    page.locator(".cp-matches button").first.wait_for()
    assert violations(page) == [], "with errors, out of date"
    page.get_by_role("tab", name="Many people").click()
    page.get_by_label("How many, at most").fill("20")
    choose(page, "Add a condition on", "children")
    choose(page, "Add a limit on", "score")
    choose(page, "Compare with", "everybody else")
    page.get_by_role("button", name="Explain these people").click()
    expect(page.get_by_text(re.compile(r"^\d+ people explained\.|obody in the table is in"))).to_be_visible()
    assert violations(page) == [], "of a group"


@pytest.mark.slow
def test_forced_colors_and_a_zoom_of_two_work(page: Page, pictures: Path) -> None:
    page.emulate_media(forced_colors="active", reduced_motion="reduce")
    find(page)
    page.screenshot(path=pictures / "forced.png")
    assert violations(page) == []
    page.set_viewport_size({"width": 640, "height": 450})  # 1280 × 900 at 200 %
    page.evaluate("scrollTo(0, 600)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 640
    page.screenshot(path=pictures / "zoom.png")


def test_nothing_of_python_is_on_the_page(page: Page) -> None:
    for name in (NASTY, "score", "size", "city", "member", "children"):
        page.get_by_role("switch", name=f"Lock {name}", exact=True).click()
    page.get_by_role("button", name="Find plans").click()
    expect(page.get_by_text("Nothing is left that could change: unlock a feature.")).to_be_visible()
    text = page.locator("body").inner_text()
    assert not re.findall(r"\w+=\[|None\b|max_changes|target_class|stay_within|\bnan\b", text)
    assert verdict(page).startswith("The model predicts")
    assert value(page, "score")
