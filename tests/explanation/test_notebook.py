import re
from pathlib import Path

from counterpath.explanation import Explanation
from tests.browsing import chromium, opened
from tests.explanation.conftest import across, bound, make, make_plans
from tests.explanation.markup import Balance, evil


def test_a_notebook_shows_decision_changes_and_status(explanation: Explanation) -> None:
    shown = explanation._repr_html_()
    assert '<span class="chip">education-num: 9 → 11.4</span>' in shown
    assert 'class="status not_found"' in shown
    assert "0 → 1" in shown
    assert "p 0.17 → 0.52" in shown
    assert explanation.status["reason"].iloc[0] in shown
    checker = Balance(void=("br", "input"))
    checker.feed(shown)
    assert checker.open == []


def test_the_style_of_a_notebook_touches_nothing_else(plans: Explanation) -> None:
    style = re.search(r"<style>(.*?)</style>", plans._repr_html_(), re.DOTALL)
    assert style is not None
    selectors = re.findall(r"([^{}]+)\{[^{}]*\}", re.sub(r"@media [^{]*\{", "", style[1]))
    assert selectors
    for selector in ",".join(selectors).replace("}", "").split(","):
        assert selector.strip().startswith(".counterpath")


def test_a_notebook_stops_after_twenty_people(explanation: Explanation) -> None:
    shown = explanation.select(["ann"] * 23)._repr_html_()
    assert shown.count('class="who"') == 20
    assert "… and 3 more" in shown


def test_a_notebook_shows_a_persons_plans_as_tabs(plans: Explanation) -> None:
    shown = plans._repr_html_()
    assert shown.count('class="who"') == 5
    assert shown.count('type="radio"') == 3 + 2
    assert shown.count(" checked>") == 2
    assert '<span class="chip">hours-per-week: 40 → 50.2345678</span>' in shown
    assert shown.count("no other plan</span>") == 1
    checker = Balance(void=("br", "input"))
    checker.feed(shown)
    assert checker.open == []
    assert len(set(checker.anchors)) == len(checker.anchors)
    assert not set(checker.anchors) & set(re.findall(r'id="([^"]+)"', plans._repr_html_()))  # a second view of the same
    many = make_plans(plans=7)._repr_html_()
    assert many.count('class="who"') == 2
    assert "… and 3 more" in many


def test_a_path_is_shown_by_its_ends_and_points_between_them(explanation: Explanation) -> None:
    shown = explanation.select(["ann"])._repr_html_()
    rows = re.findall(r"<tr><td>(\d+)</td>.*?</span>([\d.]+)</td><td>([^<]*)</td>", shown)
    assert [row[0] for row in rows] == ["0", "1", "2", "3", "4", "5"]
    assert rows[0] == ("0", "0.17", "9")
    assert rows[-1] == ("5", "0.52", "11.4")
    assert "<details" not in make(keep="end")._repr_html_()
    assert "<details" not in explanation.select(["dee"])._repr_html_()


def test_in_a_browser_tabs_and_slider_work(plans: Explanation, tmp_path: Path) -> None:
    (tmp_path / "view.html").write_text(
        f"<meta charset=utf-8>{plans._repr_html_()}{plans._repr_html_()}", encoding="utf-8"
    )
    with chromium() as browser:
        with opened(browser, tmp_path / "view.html", 900) as page:
            ann = page.locator(".person").first
            assert ann.locator(".plan:visible").count() == 1
            ann.get_by_text("plan 2", exact=True).click()
            assert "48.2345678" in ann.locator(".plan:visible").inner_text()
            page.keyboard.press("ArrowRight")  # as any radio button
            assert "50.2345678" in ann.locator(".plan:visible").inner_text()
            assert page.locator("input[type=range]").count() == 0
            ann.locator("summary:visible").click()
            slider = ann.locator("input[type=range]:visible")
            assert slider.get_attribute("max") == "5"
            rows = ann.locator("tbody tr:visible")
            assert rows.inner_text().split()[0] == "5"
            slider.fill("2")
            assert rows.inner_text().split()[0] == "2"
        bare = browser.new_context(java_script_enabled=False).new_page()
        bare.goto((tmp_path / "view.html").as_uri())
        bob = bare.locator(".person").first
        bob.get_by_text("plan 3", exact=True).click()
        assert "50.2345678" in bob.locator(".plan:visible").inner_text()
        bob.locator("summary:visible").click()
        assert bob.locator("tbody tr:visible").count() == 6


def test_without_style_and_script_all_is_there(plans: Explanation) -> None:
    """As a site that strips both, and what takes input, shows a notebook."""
    shown = re.sub(
        r"<style>.*?</style>|<input[^>]*>| (ontoggle|style|id)=\"[^\"]*\"", "", plans._repr_html_(), flags=re.DOTALL
    )
    text = re.sub(r"<[^>]+>", " ", shown)
    for number in (1, 2, 3):
        assert f"Plan {number} of 3:" in text
    assert "the path in 6 points" in text


def test_what_stands_in_the_way_and_a_gap_are_in_the_notebook() -> None:
    made = make(status=bound(make()))
    assert made._repr_html_().count("In the way: age is locked; hours-per-week may only go up") == 1
    assert 'class="status crosses_gap"' in across("cem")._repr_html_()


def test_everything_in_a_notebook_is_escaped() -> None:
    shown = evil()._repr_html_()
    assert "<img" not in shown
    assert "&lt;img src=x" in shown
    assert not re.search(r'title="[^"]*<', shown)
