import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from counterpath.explanation import Explanation, page
from counterpath.explanation.page import MOST_CARDS, NOTICE
from tests.explanation.conftest import across, make, make_plans

EVIL = "<img src=x onerror=alert('1')>\""


class Balance(HTMLParser):
    """Collects tags that are closed without having been opened, or the other way round."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("br", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def evil() -> Explanation:
    plain = make()
    return make(
        labels=[EVIL, "b", "c", "d", "e"],
        counterfactuals=plain.counterfactuals.set_axis(pd.Index([EVIL, *"bcde"])).assign(sex=EVIL),
        paths=plain.paths.assign(sex=plain.paths["sex"].where(plain.paths["step"] < 3, EVIL)),
        status=plain.status.set_axis(pd.Index([EVIL, *"bcde"])).assign(reason=EVIL, binding=["", "", "", EVIL, EVIL]),
        changed=plain.changed.set_axis(pd.Index([EVIL, *"bcde"])).assign(sex=True),
        request=plain.request | {"method": EVIL},
        outcome=plain.outcome.set_axis(pd.Index([EVIL, *"bcde"])).assign(class_after=EVIL),
        note=EVIL,
        diagnostics=EVIL,
    )


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


def test_what_stands_in_the_way_is_on_the_page_and_in_the_notebook(tmp_path: Path) -> None:
    made = make(status=make().status.assign(binding=["", "", "", "lock: age; up: hours-per-week", ""]))
    text = made.to_html(tmp_path / "a.html").read_text(encoding="utf-8")
    assert text.count("What stands in the way: lock: age; up: hours-per-week.") == 1
    assert made._repr_html_().count("In the way: lock: age; up: hours-per-week") == 1


def test_a_gap_is_named_on_the_card_and_in_numbers_only_where_there_is_one(
    explanation: Explanation, tmp_path: Path
) -> None:
    text = across("cem").to_html(tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<h3>Row cem: found, across a gap</h3>" in text
    assert text.count("But no chain of people leads there: the path crosses a gap in the data.") == 1
    assert "<b>33 %</b><span>of them only across a gap</span>" in text
    assert "only across a gap" not in explanation.to_html(tmp_path / "b.html").read_text(encoding="utf-8")
    assert 'class="status crosses_gap"' in across("cem")._repr_html_()


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


def test_everything_in_a_notebook_and_on_a_page_is_escaped(tmp_path: Path) -> None:
    text = evil().to_html(tmp_path / "a.html", tables={EVIL: pd.DataFrame({EVIL: [EVIL]})}, title=EVIL)
    for shown in (evil()._repr_html_(), text.read_text(encoding="utf-8")):
        assert "<img" not in shown
        assert "&lt;img src=x" in shown
        assert not re.search(r'title="[^"]*<', shown)


def test_a_page_has_numbers_figures_cards_and_the_notice(explanation: Explanation, tmp_path: Path) -> None:
    other = {"Other methods": pd.DataFrame({"method": ["sgd"], "l1": [1.23456]})}
    text = explanation.to_html(tmp_path / "a.html", tables=other).read_text(encoding="utf-8")
    assert NOTICE in text
    assert text.count("<svg") == 2 + 3
    assert text.count('<article class="card">') == 5
    for sentence in explanation.sentences:
        assert sentence.replace("'", "&#x27;") in text
    assert "<td>1.235</td>" in text
    assert "<b>67 %</b>" in text
    assert "σ-share 0.3" in text
    assert "<script" not in text
    assert not re.search(r'(src|href)="(?!#|data:)', text)
    assert list(tmp_path.iterdir()) == [tmp_path / "a.html"]


def test_a_notebook_shows_a_persons_plans_under_one_label(plans: Explanation) -> None:
    shown = plans._repr_html_()
    body = shown.split("<tbody>")[1]
    assert "<th>row</th><th>plan</th><th>decision</th>" in shown
    assert body.count("<tr>") == 3 + 1 + 3 + 1 + 1
    assert '<td rowspan="3">ann</td><td>1</td>' in body
    assert '<td rowspan="1">bob</td><td>–</td>' in body
    assert '<span class="chip">hours-per-week: 40 → 50.23</span>' in body
    assert body.count("no other plan</span>") == 1
    checker = Balance()
    checker.feed(shown)
    assert checker.open == []
    many = make_plans(plans=7)._repr_html_()
    assert many.count("rowspan") == 2
    assert "… and 3 more" in many


def test_a_page_compares_a_persons_plans_on_one_card(plans: Explanation, tmp_path: Path) -> None:
    text = plans.to_html(tmp_path / "a.html").read_text(encoding="utf-8")
    assert text.count('<article class="card">') == 5
    assert "<h3>Row ann: 3 plans found</h3>" in text
    assert "<h3>Row cem: 2 of 3 plans found</h3>" in text
    assert "<h3>Row dee: not found</h3>" in text
    assert text.count("The model says 0 (probability of 1: 0.17).") == 1
    assert "<p><b>Plan 2 of 3:</b> It would say 1 (0.52) if education-num rose" in text
    assert "Plan 3 of 3: No further plan that differs from the ones before was found." in text
    assert "<th>feature</th><th>now</th><th>plan 1</th><th>plan 2</th><th>plan 3</th>" in text
    assert "<td>hours-per-week</td><td>40</td><td>46.23</td><td>48.23</td><td>50.23</td>" in text
    assert text.count("What stands in the way: lock: age; up: hours-per-week.") == 1
    assert "Row ann, plan 2 of 3: the model says 0, and 1 at the end" in text
    assert "<b>5</b><span>people</span>" in text
    assert "<b>67 %</b><span>of them with a plan</span>" in text
    assert "<b>1.7</b><span>plans each, mean</span>" in text
    checker = Balance()
    checker.feed(re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL))
    assert checker.open == []


def test_a_card_has_the_steps_of_a_path_that_takes_several(explanation: Explanation, tmp_path: Path) -> None:
    text = explanation.to_html(tmp_path / "a.html").read_text(encoding="utf-8")
    ann, bob, cem, dee, eva = text.split('<article class="card">')[1:]
    assert "<h4>Step by step</h4><ol><li>education-num: 9 → 9.96; hours-per-week: 40 → 42.49 <span>p 0.31</span>" in ann
    assert [card.count("<li>") for card in (ann, bob, cem, dee, eva)] == [3, 0, 3, 0, 0]
    assert "Step by step" not in make(keep="end").to_html(tmp_path / "b.html").read_text(encoding="utf-8")


def test_a_card_has_the_steps_of_every_plan(plans: Explanation, tmp_path: Path) -> None:
    text = plans.to_html(tmp_path / "a.html").read_text(encoding="utf-8")
    headings = re.findall("<h4>(.*?)</h4>", text)
    assert headings == [f"Step by step, plan {number}" for number in (1, 2, 3, 1, 2)]


def test_many_plans_are_compared_a_few_at_a_time() -> None:
    (ann,) = make_plans(plans=8).select("ann")._people(1)
    card = str(page._card(ann))
    assert card.count("<table>") == 3
    assert "<th>now</th><th>plan 7</th><th>plan 8</th></tr>" in card


def test_a_card_is_silent_where_a_plan_changes_nothing_and_says_whose_reason_it_is(plans: Explanation) -> None:
    changed = plans.changed.copy()
    changed.loc[("cem", 2), "owner"] = False
    status = plans.status.copy()
    status.loc[("ann", 2), "reason"] = "By a detour."
    made = make_plans(changed=changed, status=status)
    ann, _, cem, *_ = (str(page._card(person)) for person in made._people(5))
    assert "<td>owner</td><td>False</td><td>True</td><td></td>" in cem
    assert cem.count('class="soft"') == 2
    assert '<p class="soft">Plans 1 and 3 of 3: The model decides as asked' in ann
    assert '<p class="soft">Plan 2 of 3: By a detour.</p>' in ann


def test_a_page_says_how_many_cards_it_leaves_out(explanation: Explanation, tmp_path: Path) -> None:
    many = explanation.select(["bob"] * (MOST_CARDS + 3))
    text = many.to_html(tmp_path / "a.html").read_text(encoding="utf-8")
    assert text.count('<article class="card">') == MOST_CARDS
    assert "… and 3 more rows" in text


@pytest.mark.parametrize("keep", ["all", "end"])
def test_a_page_of_nothing_and_one_without_paths_are_written(empty: Explanation, keep: str, tmp_path: Path) -> None:
    made = empty if keep == "all" else make(keep="end")
    text = made.to_html(tmp_path / "a.html").read_text(encoding="utf-8")
    assert text.count("<svg") == 2
    assert ("There are no rows." in text) == (len(made) == 0)
    assert "Explanation of" in made._repr_html_()
