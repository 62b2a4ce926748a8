import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from counterpath.explanation import Explanation
from counterpath.explanation.page import MOST_CARDS, NOTICE
from tests.explanation.conftest import make

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
    page = made.to_html(tmp_path / "a.html").read_text(encoding="utf-8")
    assert page.count("What stands in the way: lock: age; up: hours-per-week.") == 1
    assert made._repr_html_().count("In the way: lock: age; up: hours-per-week") == 1


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
    page = evil().to_html(tmp_path / "a.html", tables={EVIL: pd.DataFrame({EVIL: [EVIL]})}, title=EVIL)
    for shown in (evil()._repr_html_(), page.read_text(encoding="utf-8")):
        assert "<img" not in shown
        assert "&lt;img src=x" in shown
        assert not re.search(r'title="[^"]*<', shown)


def test_a_page_has_numbers_figures_cards_and_the_notice(explanation: Explanation, tmp_path: Path) -> None:
    other = {"Other methods": pd.DataFrame({"method": ["sgd"], "l1": [1.23456]})}
    page = explanation.to_html(tmp_path / "a.html", tables=other).read_text(encoding="utf-8")
    assert NOTICE in page
    assert page.count("<svg") == 2 + 3
    assert page.count('<article class="card">') == 5
    for sentence in explanation.sentences:
        assert sentence.replace("'", "&#x27;") in page
    assert "<td>1.235</td>" in page
    assert "<b>67 %</b>" in page
    assert "σ-share 0.3" in page
    assert "<script" not in page
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert list(tmp_path.iterdir()) == [tmp_path / "a.html"]


def test_a_page_says_how_many_cards_it_leaves_out(explanation: Explanation, tmp_path: Path) -> None:
    many = explanation.select(["bob"] * (MOST_CARDS + 3))
    page = many.to_html(tmp_path / "a.html").read_text(encoding="utf-8")
    assert page.count('<article class="card">') == MOST_CARDS
    assert "… and 3 more rows" in page


@pytest.mark.parametrize("keep_paths", [True, False])
def test_a_page_of_nothing_and_one_without_paths_are_written(
    empty: Explanation, keep_paths: bool, tmp_path: Path
) -> None:
    made = empty if keep_paths else make(keep_paths=False)
    page = made.to_html(tmp_path / "a.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert ("There are no rows." in page) == (len(made) == 0)
    assert "Explanation of" in made._repr_html_()
