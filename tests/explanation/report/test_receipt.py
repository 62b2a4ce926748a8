"""The receipt for one person."""

from datetime import date

import pytest

from counterpath.explanation.report.receipt import WHAT_IT_IS_NOT, receipt
from counterpath.utils.errors import InputError
from tests.explanation.conftest import make, make_plans

DAY = date(2026, 3, 7)


def test_a_receipt_says_the_decision_the_ways_and_what_it_is_not() -> None:
    html = receipt(make_plans().select(["ann"]), model="Loans <2026>", day=DAY)
    assert "Loans &lt;2026&gt;" in html
    for words in ("7 March 2026", "The decision today", "Way 1", "What the model knows about you", "Unchanged: "):
        assert words in html, words
    for line in WHAT_IT_IS_NOT:
        assert line in html
    assert "<script" not in html
    assert "default-src 'none'" in html


def test_one_plan_alone_is_a_way_too() -> None:
    html = receipt(make().select(["ann"]), model="m", day=DAY, person="Ann")
    assert "Person Ann" in html
    assert "A way to" in html


def test_several_people_or_no_plan_have_no_receipt() -> None:
    with pytest.raises(InputError, match="one person"):
        receipt(make(), model="m", day=DAY)
    with pytest.raises(InputError, match="there is a plan"):
        receipt(make().select(["eva"]), model="m", day=DAY)
