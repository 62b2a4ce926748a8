import re

from counterpath.explanation import Explanation
from tests.explanation.conftest import across, bound, make, make_plans
from tests.explanation.markup import Balance, evil


def test_a_notebook_shows_decision_changes_and_status(explanation: Explanation) -> None:
    shown = explanation._repr_html_()
    assert '<span class="chip">education-num: 9 → 11.4</span>' in shown
    assert 'class="status not_found"' in shown
    assert "0 → 1" in shown
    assert "p 0.17 → 0.52" in shown
    assert explanation.status["reason"].iloc[0] in shown
    checker = Balance()
    checker.feed(shown)
    assert checker.open == []


def test_the_style_of_a_notebook_touches_nothing_else(explanation: Explanation) -> None:
    style = re.search(r"<style>(.*?)</style>", explanation._repr_html_(), re.DOTALL)
    assert style is not None
    selectors = re.findall(r"([^{}]+)\{[^{}]*\}", style[1].replace("@media print {", ""))
    assert selectors
    for selector in ",".join(selectors).replace("}", "").split(","):
        assert selector.strip().startswith(".counterpath")


def test_a_notebook_stops_after_twenty_rows(explanation: Explanation) -> None:
    shown = explanation.select(["ann"] * 23)._repr_html_()
    assert shown.count("<tr>") == 21
    assert "… and 3 more" in shown


def test_a_notebook_shows_a_persons_plans_under_one_label(plans: Explanation) -> None:
    shown = plans._repr_html_()
    body = shown.split("<tbody>")[1]
    assert "<th>row</th><th>plan</th><th>decision</th>" in shown
    assert body.count("<tr>") == 3 + 1 + 3 + 1 + 1
    assert '<td rowspan="3">ann</td><td>1</td>' in body
    assert '<td rowspan="1">bob</td><td>–</td>' in body
    assert '<span class="chip">hours-per-week: 40 → 50.2345678</span>' in body
    assert body.count("no other plan</span>") == 1
    checker = Balance()
    checker.feed(shown)
    assert checker.open == []
    many = make_plans(plans=7)._repr_html_()
    assert many.count("rowspan") == 2
    assert "… and 3 more" in many


def test_what_stands_in_the_way_and_a_gap_are_in_the_notebook() -> None:
    made = make(status=bound(make()))
    assert made._repr_html_().count("In the way: age is locked; hours-per-week may only go up") == 1
    assert 'class="status crosses_gap"' in across("cem")._repr_html_()


def test_everything_in_a_notebook_is_escaped() -> None:
    shown = evil()._repr_html_()
    assert "<img" not in shown
    assert "&lt;img src=x" in shown
    assert not re.search(r'title="[^"]*<', shown)
