"""What an analyst does on the page, in a browser; with names and values that look like markup."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Download, Page, expect

import counterpath as cp
from counterpath.explanation.wording import NOTICE
from counterpath.explorer.forms import INVALID
from tests.explorer.actions import card, choose, find, first_plan, limits, no_plan, number, plan, press, value, verdict
from tests.explorer.conftest import BOLD, NASTY, opened
from tests.explorer.processes import WAIT

pytestmark = pytest.mark.usefixtures("context")
expect.set_options(timeout=WAIT)
_UNNAMED = """
() => [...document.querySelectorAll("input, button, select, a, [role=switch], [role=slider], [role=combobox]")]
  .filter((one) => one.checkVisibility() && one.tabIndex >= 0)
  .filter((one) => !(one.ariaLabel || one.innerText?.trim() || one.labels?.[0]?.innerText?.trim()))
  .map((one) => one.outerHTML.slice(0, 200))
"""


_STOP_AT_ONCE = """
() => new Promise((done) => {
  const named = (text) => [...document.querySelectorAll("button")].find((one) => one.innerText.trim() === text);
  const watch = new MutationObserver(() => {
    if (named("Stop").getAttribute("aria-disabled") === "true") return;
    watch.disconnect();
    named("Stop").click();
    done();
  });
  watch.observe(document.body, { childList: true, subtree: true, attributes: true });
  named("Compare methods").click();
})
"""
"""Stops as soon as that can be done: a small model is compared while a browser looks for a button."""


def test_it_says_what_it_is_about_and_names_every_control(page: Page) -> None:
    expect(page.get_by_text("Model: risky <b>")).to_be_visible()
    expect(page.get_by_role("note")).to_have_text(NOTICE)
    limits(page, "city")
    limits(page, NASTY)
    limits(page, "size")
    assert page.evaluate(_UNNAMED) == []
    assert page.evaluate("document.documentElement.lang").startswith("en")
    links = page.get_by_role("navigation", name="Parts of the page").get_by_role("link")
    for target in links.evaluate_all("links => links.map(link => link.hash)"):
        assert page.locator(target).count() == 1


def test_people_are_found_by_search_at_random_and_by_rejection(page: Page) -> None:
    search = page.get_by_role("textbox", name="Search people by their values")
    search.fill("row=17 city=")
    page.locator(".cp-matches button").first.click()
    expect(page.get_by_text("Person 17, one of")).to_be_visible()
    seen = value(page, NASTY)
    search.fill("nobody-is-called-that")
    expect(page.get_by_text("Nobody has that")).to_be_visible()
    page.get_by_role("button", name="Next rejected").click()
    expect(page.get_by_text("Person 18, one of")).to_be_visible()
    assert value(page, NASTY) != seen
    page.get_by_role("button", name="Random").click()
    expect(page.get_by_text("Person 18, one of")).to_be_hidden()


def test_the_next_rejected_is_not_decided_as_wanted(page: Page) -> None:
    choose(page, "Wanted decision", "high")
    for _ in range(4):
        page.get_by_role("button", name="Next rejected").click()
        expect(page.get_by_role("status", name="Decision of the model")).not_to_contain_text("predicts high")


def test_the_decision_follows_the_values_while_they_are_edited(page: Page) -> None:
    before = verdict(page)
    number(page, f"Value of {NASTY}").fill("3")
    expect(page.get_by_role("status", name="Decision of the model")).not_to_have_text(before, use_inner_text=True)
    expect(page.get_by_text("With values that you have edited")).to_be_visible()
    choose(page, "Value of city", "C")
    expect(page.get_by_label("Value of city", exact=True)).to_have_value("C")
    page.get_by_role("tab", name="Many people").click()
    page.get_by_role("button", name="Explain these people").wait_for()  # else the answer to one click undoes the next
    page.get_by_role("tab", name="One person").click()
    assert (value(page, "city"), float(value(page, NASTY))) == ("C", 3)


def test_an_edit_sends_no_other_field_again(context: BrowserContext, address: str) -> None:
    """With the value that the server knew a moment ago it would undo what is being typed there."""
    received: list[str] = []
    page = context.new_page()
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: received.append(str(frame))))
    page.goto(address)
    page.get_by_role("button", name="Find plans").wait_for()
    page.get_by_text("The model predicts").first.wait_for()
    expect(page.get_by_role("button", name="Undo", exact=True)).to_have_attribute("aria-disabled", "true")
    received.clear()
    number(page, "Value of score").fill("7.25")
    expect(page.get_by_role("button", name="Undo", exact=True)).to_have_attribute("aria-disabled", "false")
    page.get_by_text("The model predicts").first.wait_for()
    assert received
    assert not [frame for frame in received if '"aria-label":"Value of children"' in frame]


def test_impossible_values_are_named_beside_them_and_nothing_is_lost(page: Page) -> None:
    number(page, "Value of score").fill("7.25")
    number(page, "Value of children").fill("2.5")
    alert = card(page, "children").get_by_role("alert")
    expect(alert).to_contain_text("Invalid value: 2.5 is not a whole number.")
    expect(page.get_by_text("No decision")).to_be_visible()
    number(page, f"Value of {NASTY}").fill("")
    expect(card(page, NASTY).get_by_role("alert")).to_contain_text("Invalid value: enter one")
    page.get_by_role("button", name="Find plans").click()
    expect(page.get_by_text(INVALID)).to_be_visible()
    assert [value(page, name) for name in ("children", NASTY, "score")] == ["2.5", "", "7.25"]
    number(page, "Value of children").fill("3")
    number(page, f"Value of {NASTY}").fill("40")
    expect(page.get_by_text("The model predicts").first).to_be_visible()
    expect(page.get_by_role("alert").filter(visible=True)).to_have_count(0)


def test_limits_are_checked_beside_them(page: Page) -> None:
    score = limits(page, "score")
    number(score, "At least").fill("9")
    number(score, "At most").fill("2")
    expect(score.get_by_role("alert")).to_contain_text("the minimum 9 is above the maximum 2")
    number(score, "At least").fill("")
    number(score, "At most").fill("-100")
    expect(score.get_by_role("alert")).to_contain_text("no value that it may become lies in it")
    number(score, "At most").fill("")
    number(score, "Cost of change").fill("0")
    expect(score.get_by_role("alert")).to_contain_text("Invalid cost: enter a number above 0")


def test_immutable_features_look_so_and_cannot_be_unlocked(page: Page) -> None:
    sex = card(page, "sex")
    expect(sex.get_by_text("fixed")).to_be_visible()
    expect(sex.get_by_role("switch", name="Lock sex")).to_have_count(0)
    expect(sex.get_by_text("Limits")).to_have_count(0)
    expect(card(page, "city").get_by_role("switch", name="Lock city")).to_be_enabled()
    city = limits(page, "city")
    expect(city.get_by_role("combobox", name="Allowed values")).to_be_visible()
    expect(city.get_by_role("combobox", name="Direction")).to_have_count(0)


def test_plans_show_only_what_changes_and_every_limit_is_kept(page: Page) -> None:
    number(page, "Number of plans").fill("2")
    page.get_by_role("switch", name="Lock score").click()
    choose(limits(page, "children"), "Direction", "only down")
    choose(limits(page, "size"), "At least", "small")
    number(page, "Maximum changes").fill("3")
    find(page)
    found = int(page.get_by_text(re.compile(r"^\d plans?\.$")).inner_text()[0])
    for which in range(1, found + 1):
        changes = plan(page, which).get_by_role("list", name=f"What changes in plan {which}")
        names = changes.locator(".cp-feature").all_inner_texts()
        assert 1 <= len(names) <= 3
        assert not {"score", "sex"} & set(names)
        expect(plan(page, which)).to_contain_text("The model predicts")
        shown = plan(page, which).inner_text()
        assert int(re.findall(r"Probability of another outcome: .+ → (\d+) %", shown)[0]) >= 50
    expect(card(page, "score").get_by_text("Limits: locked")).to_be_visible()


def test_method_class_and_confidence_are_requested(page: Page) -> None:
    choose(page, "Method", "nearest")
    expect(page.get_by_text("straight to the nearest training row")).to_be_visible()
    choose(page, "Wanted decision", "low")
    number(page, "Minimum probability").fill("60")
    number(page, "Number of plans").fill("1")
    find(page)
    shown = plan(page, 1).inner_text()
    assert int(re.findall(r"Probability of low: .+ → (?:over )?(\d+) %", shown)[0]) >= 60
    expect(page.get_by_role("heading", name="Plan 1, by nearest")).to_be_visible()
    number(page, "Minimum probability").fill("150")
    page.get_by_role("button", name="Find plans").click()
    expect(page.get_by_text("Enter a percentage above 0 and below 100.")).to_be_visible()
    expect(page.get_by_text(INVALID)).to_be_visible()


def test_a_person_who_has_the_decision_needs_no_plan(page: Page) -> None:
    now = re.findall(r"predicts (.+) \(", verdict(page))[0]
    choose(page, "Wanted decision", now)
    find(page)
    expect(page.get_by_role("heading", name="Nothing has to change")).to_be_visible()


def test_where_nothing_is_found_it_says_why_and_loosens_binding_constraints(page: Page) -> None:
    for name in (NASTY, "score", "size", "city", "member"):
        page.get_by_role("switch", name=f"Lock {name}", exact=True).click()
    number(page, "Minimum probability").fill("90")
    number(page, "Number of plans").fill("1")
    find(page)
    expect(page.get_by_role("heading", name="No plan was found")).to_be_visible()
    expect(no_plan(page)).to_contain_text("Within what may change the search came to a probability of")
    expect(no_plan(page)).to_contain_text(re.compile("In the way: .* is locked .*; .* is locked"))
    unlock = page.get_by_role("button", name="Unlock").first
    for _ in range(5):
        press(page, unlock.inner_text())
        if not unlock.count():
            break
    expect(plan(page, 1).get_by_role("button", name="Bookmark plan 1")).to_be_visible()
    assert page.get_by_role("switch", name=re.compile("Lock "), checked=True).count() < 5


@pytest.mark.parametrize("kind", ["direction", "range"])
def test_a_direction_and_a_range_in_the_way_are_loosened_by_one_click(page: Page, kind: str) -> None:
    for name in ("city", "size", "children", "member", "score"):
        page.get_by_role("switch", name=f"Lock {name}", exact=True).click()
    found = limits(page, NASTY)
    if kind == "direction":
        choose(found, "Direction", "only up")
    else:
        number(found, "At least").fill("2200")  # a little less than it is
    number(page, "Number of plans").fill("1")
    find(page)
    expect(page.get_by_role("heading", name="No plan was found")).to_be_visible()
    press(page, f"Let {NASTY} go down, too" if kind == "direction" else f"Drop the range of {NASTY}")
    expect(plan(page, 1).get_by_role("list", name="What changes in plan 1")).to_contain_text(NASTY)
    expect(found.get_by_text("Limits", exact=True)).to_be_visible()


def test_rules_are_written_refused_in_words_kept_to_and_removed(page: Page) -> None:
    rules = page.get_by_role("region", name="Rules", exact=True)
    field, add = rules.get_by_label("Rule between features"), rules.get_by_role("button", name="Add rule")
    for text, said in (
        ("score <= nothing", "unknown feature in the rule 'score <= nothing'"),
        ("score <=", "score <="),
        ("children > 100", "broken by 100 % of the training rows, so it is no rule of these data"),
    ):
        field.fill(text)
        add.click()
        expect(rules.get_by_role("alert")).to_contain_text(said)
    expect(rules.get_by_role("listitem")).to_have_count(0)
    number(page, "Number of plans").fill("1")
    field.fill("score changes => children changes")
    field.press("Enter")
    expect(rules.get_by_role("listitem")).to_have_count(1)
    expect(rules.get_by_role("alert").filter(visible=True)).to_have_count(0)
    for name in ("city", "size", "member", NASTY):
        page.get_by_role("switch", name=f"Lock {name}", exact=True).click()
    find(page)
    changed = plan(page, 1).locator(".cp-feature").all_inner_texts()
    assert "score" not in changed or "children" in changed
    page.get_by_role("switch", name="Lock children", exact=True).click()
    find(page)
    expect(page.get_by_role("heading", name="No plan was found")).to_be_visible()
    press(page, "Drop the rule score changes => children changes")
    expect(rules.get_by_role("listitem")).to_have_count(0)
    expect(plan(page, 1).locator(".cp-feature")).to_have_text(["score"])
    field.fill("score <= 1000")
    add.click()
    expect(page.get_by_text("Out of date").first).to_be_visible()
    rules.get_by_role("button", name="Remove the rule score <= 1000").click()
    expect(rules.get_by_role("listitem")).to_have_count(0)
    expect(page.get_by_text("Out of date").first).to_be_hidden()  # the plans are those of these rules again


def test_a_limit_of_changes_in_the_way_is_loosened_by_one_click(page: Page) -> None:
    for name in (NASTY, "score"):
        page.get_by_role("switch", name=f"Lock {name}", exact=True).click()
    number(page, "Maximum changes").fill("1")
    number(page, "Minimum probability").fill("90")
    number(page, "Number of plans").fill("1")
    find(page)
    expect(no_plan(page)).to_contain_text("only one feature may change")
    press(page, "Allow more than 1 changes")
    expect(number(page, "Maximum changes")).to_have_value("")
    expect(page.get_by_text("max_changes")).to_have_count(0)


def test_the_slider_moves_along_the_path(page: Page) -> None:
    number(page, "Number of plans").fill("1")
    find(page)
    slider = page.get_by_role("slider", name="Step along the path").locator("[tabindex]")
    expect(page.get_by_text(re.compile(r"^Step (\d+) of \1 · the plan$"))).to_be_visible()
    chart = page.get_by_role("img", name=re.compile("^Path of"))
    chart.locator(".plotly").first.wait_for()
    end = page.get_by_text(re.compile("^Probability of another outcome: .* uncertainty")).inner_text()
    for _ in range(10):
        slider.press("PageDown")
    expect(page.get_by_text(re.compile(r"^Step 0 of \d+ · start$"))).to_be_visible()
    assert page.get_by_text(re.compile("^Probability of another outcome: .* uncertainty")).inner_text() != end
    page.get_by_role("button", name="All values at this step").click()
    rows = page.get_by_role("table", name="All values at this step of the path").get_by_role("row").all()[1:]
    assert all(row.locator("td").first.inner_text() == row.locator("td").last.inner_text() for row in rows)
    slider.press("ArrowRight")
    expect(page.get_by_text(re.compile(r"^Step 1 of \d+"))).to_be_visible()
    for _ in range(10):
        slider.press("PageUp")
    expect(page.locator("tr.cp-moved")).not_to_have_count(0)
    page.get_by_role("button", name="Back to start").click()
    expect(page.get_by_text(re.compile(r"^Step 0 of"))).to_be_visible()
    assert page.locator(".q-slider__marker-labels").first.inner_text().split()[0] == "now"


def test_the_map_shows_the_path_and_says_what_it_shows(page: Page) -> None:
    number(page, "Number of plans").fill("1")
    find(page)
    drawing = page.get_by_role("img", name=re.compile("^Latent map with the paths of geodesic"))
    drawing.locator(".plotly").first.wait_for()
    expect(drawing).to_have_accessible_name(re.compile("latent dimensions|latent space itself"))


@pytest.mark.slow
def test_methods_and_bookmarks_are_compared_side_by_side(page: Page) -> None:
    number(page, "Number of plans").fill("2")
    find(page)
    for which in (1, 2):
        page.get_by_role("button", name=f"Bookmark plan {which}").click()
    kept = page.get_by_role("table", name="Bookmarked plans side by side")
    expect(kept.get_by_role("columnheader")).to_have_count(3)
    expect(kept.get_by_role("row", name=re.compile("^Education|^With the plan"))).to_contain_text("%")
    page.get_by_role("button", name="Compare methods").click()
    table = page.get_by_role("table", name="What each method finds for this person")
    table.wait_for()
    methods = table.get_by_role("rowheader").all_inner_texts()
    assert {"sgd", "rsgd", "geodesic", "face", "nearest"} <= set(methods)
    page.get_by_role("img", name=re.compile("^Latent map with the paths of .*sgd.* nearest")).wait_for()
    page.get_by_role("button", name="Remove 1").click()
    expect(kept.get_by_role("columnheader")).to_have_count(2)
    old = page.get_by_text("Out of date: something has changed since the methods were compared.")
    expect(old).to_be_hidden()
    number(page, "Number of plans").fill("1")
    expect(old).to_be_visible()
    number(page, "Number of plans").fill("2")
    expect(old).to_be_hidden()


def test_a_search_can_be_stopped_and_another_begun(page: Page) -> None:
    page.evaluate(_STOP_AT_ONCE)
    expect(page.get_by_text("Stopped.")).to_be_visible()
    expect(page.get_by_role("button", name="Compare methods", disabled=False)).to_be_visible()
    number(page, "Number of plans").fill("1")
    find(page)
    expect(plan(page, 1)).to_be_visible()
    expect(page.get_by_role("table", name="What each method finds for this person")).to_have_count(0)


def _download(page: Page, suffix: str) -> Download:
    with page.expect_download() as waiting:
        page.get_by_role("button", name=f"Download the plans as {suffix}").click()
    assert waiting.value.suggested_filename == f"explanation.{suffix.lower()}"
    return waiting.value


def test_plans_are_downloaded_as_json_csv_and_html(page: Page, tmp_path: Path) -> None:
    number(page, "Number of plans").fill("2")
    find(page)
    files = {}
    for suffix in ("JSON", "CSV", "HTML"):
        files[suffix] = tmp_path / f"explanation.{suffix.lower()}"
        _download(page, suffix).save_as(files[suffix])
    result = cp.Explanation.from_json(files["JSON"])
    assert result.plans == 2
    assert result.factuals[NASTY].iloc[0] == pytest.approx(float(value(page, NASTY)))
    assert files["CSV"].read_text().count("\n") == 3
    report = files["HTML"].read_text()
    assert NOTICE in report
    assert "<script src" not in report


def test_a_value_that_the_model_does_not_know_is_said(page: Page) -> None:
    page.get_by_role("textbox", name="Search people by their values").fill("city=Atlantis")
    page.locator(".cp-matches button").first.click()
    expect(page.get_by_text("No decision")).to_be_visible()
    expect(page.get_by_role("alert").filter(visible=True).first).to_contain_text("Atlantis")
    find(page)
    expect(no_plan(page)).to_contain_text("never seen in training")


@pytest.mark.slow
def test_tabs_share_nothing(context: BrowserContext, address: str) -> None:
    one, other = opened(context, address), opened(context, address)
    number(one, f"Value of {NASTY}").fill("1234")
    find(one)
    expect(plan(one, 1)).to_be_visible()
    assert value(other, NASTY) != "1234"
    expect(plan(other, 1)).to_have_count(0)


def test_the_first_plan_appears_within_a_second(page: Page) -> None:
    times: list[float] = []
    while len(times) < 8 and min(times, default=1000) >= 1000:  # other tests run beside this one
        page.get_by_role("button", name="Next rejected").click()
        expect(plan(page, 1)).to_have_count(0)
        times.append(first_plan(page))
        page.get_by_role("button", name="Stop", disabled=True).wait_for()
    assert min(times) < 1000, times


@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_a_desk_and_a_phone(page: Page, width: int, pictures: Path) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    number(page, "Number of plans").fill("2")
    limits(page, "score")
    find(page)
    page.get_by_role("button", name="Bookmark plan 1").click()
    page.get_by_role("button", name="Compare methods").click()
    page.get_by_role("table", name="What each method finds for this person").wait_for()
    page.locator("#map .plotly").first.wait_for()
    page.wait_for_timeout(500)  # what is drawn settles
    page.screenshot(path=pictures / f"explorer-{width}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def _injected(page: Page) -> list[str]:
    """Elements that only the names could have made."""
    found: list[str] = page.evaluate(
        "() => [...document.querySelectorAll('[onerror], img[src=x], b')].map((one) => one.outerHTML)"
    )
    return found


@pytest.mark.slow
def test_markup_in_names_and_values_is_shown_as_text(context: BrowserContext, address: str, pictures: Path) -> None:
    page = opened(context, address)
    expect(page.get_by_text("Model: risky <b>")).to_be_visible()
    expect(card(page, NASTY).get_by_role("heading", name=NASTY)).to_be_visible()
    page.get_by_role("textbox", name="Search people by their values").fill(f"city={BOLD}")
    expect(page.locator(".cp-matches button").first).to_contain_text(f"city {BOLD}")
    page.locator(".cp-matches button").first.click()
    choose(page, "Value of city", "A")
    choose(page, "Value of city", BOLD)
    page.get_by_role("combobox", name="Wanted decision").click()
    expect(page.get_by_role("option", name=NASTY)).to_be_visible()
    page.get_by_role("option", name=NASTY).click()
    limits(page, NASTY)
    number(page, f"Value of {NASTY}").fill("")
    expect(card(page, NASTY).get_by_role("alert")).to_contain_text("Invalid value")
    assert _injected(page) == []
    number(page, f"Value of {NASTY}").fill("5000")
    choose(limits(page, "city"), "Allowed values", BOLD)
    page.keyboard.press("Escape")
    number(page, "Number of plans").fill("2")
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
    assert _injected(page) == []
    page.screenshot(path=pictures / "nasty.png", full_page=True)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the plans as HTML").click()
    report = context.new_page()
    report.set_content(download.value.path().read_text(encoding="utf-8"))
    expect(report.locator("body")).to_contain_text(NASTY)
    assert report.evaluate("() => document.querySelectorAll('[onerror], img[src=x]').length") == 0
