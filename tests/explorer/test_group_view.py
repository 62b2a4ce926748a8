"""The tab of many rows: which rows it takes, and all of it in a real browser, with names that look like markup."""

import json
import re
from io import BytesIO
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import BrowserContext, Page, expect

from counterpath.explanation import Explanation
from counterpath.explorer.figures import FEW
from counterpath.explorer.group_view import sample
from tests.explorer.conftest import NASTY, opened
from tests.explorer.test_work import violations

pytestmark = pytest.mark.slow

GO = "Explain these people"
WATCH = """() => {
    window.seen = [];
    new MutationObserver(() => {
        const bar = document.querySelector('[role=progressbar]').offsetParent ? ', with a bar' : '';
        window.seen.push(document.querySelector('#group .cp-busy').innerText.trim() + bar);
    }).observe(document.querySelector('#group'), {subtree: true, childList: true, characterData: true});
}"""
"""Records what is said while rows are explained, however short that is."""


def test_a_sample_is_the_same_every_time_and_no_larger_than_its_limit() -> None:
    positions = list(range(50))
    few = sample(positions, 10)
    assert few == sample(positions, 10) == sorted(few)
    assert len(set(few)) == 10
    assert few != sample(positions, 10, seed=1)
    assert sample(positions[:5], 10) == positions[:5]


@pytest.fixture
def group(context: BrowserContext, address: str) -> Page:
    page = opened(context, address)
    page.get_by_role("tab", name="Many people").click()
    page.get_by_role("button", name=GO).wait_for()
    page.get_by_label("How many, at most").fill("20")
    return page


def explain(page: Page) -> None:
    page.get_by_role("button", name=GO).click()
    expect(page.get_by_text("people explained.")).to_be_visible(timeout=30_000)
    page.locator("#group-measures .js-plotly-plot .main-svg").first.wait_for()


def choose(page: Page, label: str, option: str) -> None:
    page.get_by_label(label, exact=True).click()
    page.get_by_role("option", name=option, exact=True).click()


def test_many_rows_are_explained_with_progress_and_shown_by_group(group: Page, pictures: Path) -> None:
    expect(group.get_by_text("299 of 300 people fit; 20 of them are drawn at random.")).to_be_visible()
    group.evaluate(WATCH)
    group.get_by_role("button", name=GO).click()
    expect(group.get_by_text("20 people explained.")).to_be_visible(timeout=30_000)
    assert "0 of 20 people …, with a bar" in group.evaluate("window.seen"), "busy, and visibly so"
    numbers = group.locator("#group-numbers")
    expect(numbers.get_by_text("counterfactual found")).to_be_visible()
    expect(numbers.locator("dd").first).to_have_text("20")
    expect(group.locator("#group-measures").get_by_text(f"Fewer than {FEW} people are in")).to_be_visible()
    table = group.get_by_role("region", name="Measures by sex")
    expect(table.get_by_role("rowheader", name=NASTY)).to_be_visible()
    assert sum(int(row.locator("td").first.inner_text()) for row in table.locator("tbody tr").all()) == 20
    for part in ("group-changes", "group-measures"):
        group.locator(f"#{part} .js-plotly-plot .main-svg").first.wait_for()
    assert NASTY in group.locator("#group-measures").inner_text()
    assert group.locator("img").count() == 0
    group.screenshot(path=pictures / "group-1280.png", full_page=True)

    figure = group.locator("#group-changes [role=img]").first
    everybody = figure.get_attribute("aria-label") or ""
    choose(group, "Changes of", "Female")
    expect(figure).not_to_have_attribute("aria-label", everybody)
    choose(group, "Group by", "size")
    expect(group.get_by_role("region", name="Measures by size")).to_be_visible()
    expect(figure).to_have_attribute("aria-label", everybody)


def test_rows_are_listed_by_page_opened_and_downloaded(group: Page) -> None:
    explain(group)
    people = group.locator("#group-people")
    expect(people.get_by_text("1 to 15 of 20")).to_be_visible()
    first = people.get_by_role("rowheader").first.inner_text()
    group.get_by_role("button", name="Next people").click()
    expect(people.get_by_text("16 to 20 of 20")).to_be_visible()
    second = people.get_by_role("rowheader").first.inner_text()
    assert first != second
    people.get_by_role("button", name=f"Open person {second} alone").click()
    own = f"Person {second}, one of 300 people in the table."
    expect(group.get_by_text(f"{own} Opened from a group.")).to_be_visible()
    expect(group.get_by_text("The model predicts").first).to_be_visible()
    expect(
        group.get_by_text(re.compile("plan was found in the group|plan that was found in the group"))
    ).to_be_visible()
    assert group.get_by_role("article", name=re.compile("^(Plan 1|No plan)$")).count() == 1
    expect(group.get_by_text("Out of date").first).to_be_hidden()
    alone = group.context.new_page()
    alone.goto(group.url)
    expect(alone.get_by_text(own)).to_be_visible()
    alone.close()
    group.get_by_role("tab", name="Many people").click()
    expect(people.get_by_text("16 to 20 of 20")).to_be_visible()
    files = {}
    for suffix in ("json", "csv", "html"):
        with group.expect_download() as download:
            group.get_by_role("button", name=f"Download the group as {suffix.upper()}").click()
        files[suffix] = download.value.path().read_text(encoding="utf-8")
    assert len(Explanation.from_json(files["json"])) == 20
    assert json.loads(files["json"])["request"]["paths"] == "milestones"
    assert len(pd.read_csv(BytesIO(files["csv"].encode()))) == 20
    assert "<!doctype html>" in files["html"]
    assert "By sex" in files["html"], "the table that is on the page"
    assert NASTY not in files["html"]


def test_rows_without_a_counterfactual_are_counted_by_reason(group: Page) -> None:
    choose(group, "Wanted decision", "low")
    group.get_by_label("Minimum probability").fill("99.9999")
    choose(group, "Method", "rsgd")
    explain(group)
    missing = group.locator("#group-missing")
    expect(missing.get_by_role("region", name="Reasons")).to_be_visible()
    counts = [int(text) for text in missing.get_by_role("region", name="Reasons").locator("td").all_inner_texts()]
    assert 0 < sum(counts) <= 20


def test_cohorts_have_several_conditions_and_are_remembered(group: Page) -> None:
    everybody = group.get_by_text("of 300 people fit").inner_text()
    choose(group, "Add a condition on", "sex")
    choose(group, "Values of sex", "Female")
    group.keyboard.press("Escape")
    expect(group.get_by_text("of 300 people fit")).not_to_have_text(everybody)
    women = group.get_by_text("of 300 people fit").inner_text()
    choose(group, "Add a condition on", "children")
    group.get_by_label("children from").fill("5")
    group.get_by_label("children to").fill("2")
    expect(group.get_by_text("A condition has its minimum above its maximum.")).to_be_visible()
    group.get_by_label("children to").fill("7")
    expect(group.get_by_text("of 300 people fit")).not_to_have_text(women)
    few = group.get_by_text("of 300 people fit").inner_text()
    group.get_by_role("button", name="Save cohort").click()
    expect(group.get_by_text("Give the cohort a name first.")).to_be_visible()
    group.get_by_label("Name of this cohort").fill("Mothers <b>")
    group.get_by_label("Name of this cohort").press("Enter")
    expect(group.get_by_role("button", name="Mothers <b>: use")).to_be_visible()
    group.reload()
    group.get_by_role("tab", name="Many people").click()
    expect(group.get_by_text("of 300 people fit")).to_have_text(everybody.replace("20 of", "100 of"))
    group.get_by_label("How many, at most").fill("20")
    group.get_by_role("button", name="Mothers <b>: use").click()
    expect(group.get_by_text("of 300 people fit")).to_have_text(few)
    group.get_by_role("button", name="Remove the condition on children").click()
    expect(group.get_by_text("of 300 people fit")).to_have_text(women)
    group.get_by_role("button", name="Delete Mothers <b>").click()
    expect(group.get_by_role("button", name="Mothers <b>: use")).to_have_count(0)
    group.get_by_label("How many, at most").fill("0")
    expect(group.get_by_text("Enter a whole number from 1 to 1,000.").first).to_be_visible()


def test_two_cohorts_are_compared_with_intervals_under_limits(group: Page, pictures: Path) -> None:
    choose(group, "Add a condition on", "sex")
    choose(group, "Values of sex", "Female")
    group.keyboard.press("Escape")
    group.get_by_label("Name of this cohort").fill("Women")
    group.get_by_label("How many, at most").fill("40")
    choose(group, "Compare with", "everybody else")
    choose(group, "Add a limit on", "children")
    choose(group, "Direction: children", "only down")
    group.get_by_label("At most: children").fill("6")
    group.get_by_role("button", name=GO).click()
    expect(group.get_by_text("80 people explained.")).to_be_visible(timeout=60_000)
    table = group.get_by_role("table", name="Two cohorts side by side")
    assert table.get_by_role("columnheader").all_inner_texts()[1:3] == ["Women", "everybody else"]
    found = table.get_by_role("row", name=re.compile("^found"))
    expect(found).to_contain_text(re.compile(r"% \(.*% to .*%\), \d+ people"))
    expect(found).to_contain_text("points")
    measures = group.get_by_role("table", name="Measures by sex")
    expect(measures).to_contain_text(re.compile(r"\(\d+ %–\d+ %\)"))
    group.screenshot(path=pictures / "cohorts-1280.png", full_page=True)
    with group.expect_download() as download:
        group.get_by_role("button", name="Download the group as JSON").click()
    result = Explanation.from_json(download.value.path().read_text(encoding="utf-8"))
    assert result.request["directions"] == {"children": "down"}
    assert set(result.factuals["sex"]) == {"Female"}


def test_another_table_can_be_uploaded_and_a_wrong_one_is_named(
    group: Page, nasty: pd.DataFrame, tmp_path: Path
) -> None:
    right, wrong = tmp_path / "mine.csv", tmp_path / "wrong.csv"
    nasty.tail(7).to_csv(right, index=False)
    nasty.tail(7).drop(columns="score").to_csv(wrong, index=False)
    for file, says in ((wrong, "score"), (right, "7 people are in mine.csv.")):
        with group.expect_file_chooser() as chooser:
            group.get_by_role("button", name="Upload a CSV of people").click()
        chooser.value.set_files(file)
        expect(group.get_by_text(says)).to_be_visible()
    expect(group.get_by_text("7 of 7 people fit; all of them are explained.")).to_be_visible()
    group.get_by_role("button", name="Back to this page's table").click()
    expect(group.get_by_text("300 people are in the table of this page.")).to_be_visible()


def test_a_search_can_be_stopped(group: Page) -> None:
    group.get_by_label("How many, at most").fill("300")
    group.get_by_role("button", name=GO).click()
    expect(group.get_by_text("of 299 people …")).to_be_visible()
    group.get_by_role("button", name="Stop explaining").click()
    expect(group.get_by_text("Stopped.")).to_be_visible()
    expect(group.get_by_role("button", name=GO)).to_be_enabled()
    assert group.locator("#group-numbers").count() == 0


def test_it_fits_a_phone_and_every_control_has_a_name(group: Page, pictures: Path) -> None:
    group.set_viewport_size({"width": 390, "height": 844})
    explain(group)
    assert group.evaluate("document.documentElement.scrollWidth") <= 390
    nameless = group.evaluate(
        """() => [...document.querySelectorAll('button, input, select, textarea, [role=switch], [role=progressbar]')]
            .filter(it => it.offsetParent && !it.closest('[aria-hidden=true]'))
            .filter(it => !(it.ariaLabel || it.textContent.trim() || (it.labels && it.labels.length)
                || it.closest('[aria-label]') || it.getAttribute('aria-labelledby')))
            .map(it => it.outerHTML.slice(0, 200))"""
    )
    assert nameless == []
    group.screenshot(path=pictures / "group-390.png", full_page=True)
    figure = group.locator("#group-measures .main-svg").first
    narrow = figure.get_attribute("width") or ""
    group.set_viewport_size({"width": 800, "height": 844})
    expect(figure).not_to_have_attribute("width", narrow)


def test_groups_are_audited_and_get_plans_that_they_share(group: Page, pictures: Path) -> None:
    group.get_by_label("How many, at most").fill("200")
    explain(group)
    group.get_by_role("button", name="Audit these people").click()
    audit = group.locator("#group-audit")
    expect(audit.get_by_text("Audited.")).to_be_visible(timeout=60_000)
    expect(audit.get_by_text(re.compile(r"1 comparison by \d+ measures: "))).to_be_visible()
    assert audit.get_by_role("list", name="Findings").get_by_role("listitem").count() > 0
    table = audit.get_by_role("region", name="Every difference that was tested")
    assert NASTY in table.inner_text()
    assert "cost" in table.locator("td").all_inner_texts()
    expect(audit.locator("[role=img]").first).to_have_attribute("aria-label", re.compile("^By sex: the share of each"))

    group.get_by_label("How many plans").fill("2")
    group.get_by_role("button", name="Find shared plans").click()
    shared = group.locator("#group-shared")
    expect(shared.get_by_text("Done.")).to_be_visible(timeout=60_000)
    expect(shared.get_by_text(re.compile("2 shared plans together give"))).to_be_visible()
    assert shared.get_by_role("region", name="The plans").locator("tbody tr").count() == 2
    by_group = shared.get_by_role("region", name="Whom they serve, by group")
    assert by_group.locator("tbody tr").count() == 2
    assert group.locator("img").count() == 0
    assert violations(group, "#group-audit") == []
    assert violations(group, "#group-shared") == []
    for part in ("audit", "shared"):
        group.locator(f"#group-{part}").screenshot(path=pictures / f"group-{part}-1280.png")
    group.set_viewport_size({"width": 390, "height": 844})
    group.wait_for_timeout(500)
    assert group.evaluate("document.documentElement.scrollWidth") <= 390
    for part in ("audit", "shared"):
        group.locator(f"#group-{part}").screenshot(path=pictures / f"group-{part}-390.png")

    with group.expect_download() as download:
        group.get_by_role("button", name="Download the audit and the shared plans as HTML").click()
    report = download.value.path().read_text(encoding="utf-8")
    assert "Plans that many people share" in report
    assert "Equal effort" in report
    assert NASTY not in report


def test_what_cannot_be_audited_is_said(group: Page) -> None:
    group.get_by_label("How many, at most").fill("8")
    explain(group)
    group.get_by_role("button", name="Audit these people").click()
    expect(group.locator("#group-audit").get_by_text("nothing was compared")).to_be_visible(timeout=30_000)
    choose(group, "Compare the groups of", "sex")
    group.keyboard.press("Escape")
    group.get_by_role("button", name="Audit these people").click()
    expect(group.locator("#group-audit").get_by_text("No groups are chosen")).to_be_visible()
    group.get_by_label("How many plans").fill("0")
    group.get_by_role("button", name="Find shared plans").click()
    expect(group.get_by_text("How many plans: enter a whole number from 1 to 10.")).to_be_visible()
