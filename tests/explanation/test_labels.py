"""What people call features, values and classes is what they read; files for machines keep columns and categories."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from counterpath.explainer.compare import Comparison
from counterpath.explanation import Explanation
from tests.explanation.conftest import SCHEMA, bound, make, make_plans
from tests.explanation.markup import EVIL, svg

HOURS, YEARS = "hours-per-week", "education-num"
NAMED = replace(
    SCHEMA.replace(HOURS, label="Working hours", unit="h", description="Hours of work in a week.")
    .replace(YEARS, label="Schooling", unit="years", phrase="you had {new} years of schooling")
    .replace("marital-status", label="Marital status", category_labels={"Non-Married": "single", "Married": "married"})
    .replace("owner", category_labels={"True": "a home of your own", "False": "no home"}, phrase="you had {new}")
    .replace("sex", label="Sex", category_labels={"Female": "woman", "Male": "man"}),
    class_labels={"0": "refused", "1": "granted"},
)
READABLE: dict[str, Callable[[Explanation, Path], str]] = {
    "terminal": lambda made, folder: made.to_text(steps=True),
    "notebook": lambda made, folder: made._repr_html_(),
    "report": lambda made, folder: made.to_html(folder / "a.html", by=["sex"]).read_text(encoding="utf-8"),
    "path": lambda made, folder: svg(made.plot_path("ann")),
    "changes": lambda made, folder: svg(made.plot_changes()),
}


@pytest.fixture
def named() -> Explanation:
    coverage = {"coverage": {"class": [0, 1], "share": [0.5, 0.5]}}
    return make(schema=NAMED, status=bound(make()), quality=coverage)


def test_sentences_say_it_in_the_words_of_people(named: Explanation) -> None:
    found, already, owner, missed, _ = named.sentences
    assert found == (
        "The model predicts refused (83 %). It would predict granted (52 %) if you had 11.4 years of schooling, "
        "working hours were 46.2345678 instead of 40 h, and marital status were married instead of single."
    )
    assert already == "The model already predicts granted (83 %): nothing has to change."
    assert owner.endswith("if working hours were 36 instead of 40 h and you had a home of your own.")
    assert missed.endswith("What stands in the way: age is locked; working hours may only go up.")


@pytest.mark.parametrize("form", READABLE)
def test_people_read_labels_units_and_classes(named: Explanation, form: str, tmp_path: Path) -> None:
    text = READABLE[form](named, tmp_path)
    assert "Working hours" in text
    assert "Schooling" in text
    assert "single" in text
    assert "Non-Married" not in text
    if form != "report":  # which says once which column a label stands for
        assert HOURS not in text
    if form not in ("changes",):  # whose amounts are shares
        assert "46.2345678 h" in text
        assert "granted" in text


def test_milestones_and_tables_of_changes(named: Explanation) -> None:
    assert named.milestones("ann", most=2)["changes"].iloc[-1] == (
        "Schooling: 9 → 11.4 years; Working hours: 40 → 46.2345678 h; Marital status: single → married"
    )
    assert set(named.changes["feature"]) <= set(SCHEMA.names), "a table for programs"
    assert named.summary()["changes most"].iloc[0].startswith("Working hours 100 %")


def test_a_map_and_methods_side_by_side_name_classes_and_features(named: Explanation) -> None:
    assert "predicted granted" in svg(named.plot_map())
    text = svg(Comparison({"rsgd-c": named}, {"rsgd-c": 1.0}).plot("ann"))
    for words in ("predicted granted", "Working hours", "40 h", "46.2345678", "of granted", "single"):
        assert words in text


def test_a_report_groups_by_labels_and_says_what_features_are(named: Explanation, tmp_path: Path) -> None:
    text = READABLE["report"](named, tmp_path)
    assert "By Sex." in text
    assert ">woman *<" in text
    assert '<td class="t">Hours of work in a week.</td>' in text
    assert '<th scope="row" title="Hours of work in a week.">Working hours</th>' in text
    assert "wanted granted" in text
    plain = READABLE["report"](make(), tmp_path)
    assert "What the features are" not in plain


def test_what_people_cannot_change_is_marked_unless_it_was_unlocked(tmp_path: Path) -> None:
    schema = SCHEMA.replace("owner", actionable=False)
    marked = READABLE["report"](make(schema=schema), tmp_path)
    assert "people cannot usually change it" in marked
    free = make(schema=schema, request=make().request | {"unlock": ["owner"]})
    assert "people cannot usually change it" not in READABLE["report"](free, tmp_path)


def test_files_for_machines_keep_columns_and_categories(named: Explanation, tmp_path: Path) -> None:
    plain = make(status=bound(make()))
    columns = [name for name in plain.to_frame() if name != "reason"]
    pd.testing.assert_frame_equal(named.to_frame()[columns], plain.to_frame()[columns])
    assert named.to_csv(tmp_path / "a.csv").read_text() == plain.to_csv(tmp_path / "b.csv").read_text()
    again = Explanation.from_json(named.to_json())
    assert again.schema == NAMED
    assert again.sentences.tolist() == named.sentences.tolist()


def test_plans_have_their_units_side_by_side(tmp_path: Path) -> None:
    text = READABLE["report"](make_plans(schema=NAMED), tmp_path)
    row = re.search(r'<th scope="row">Working hours</th>(<td[^>]*>40<.*?)</tr>', text)
    assert row is not None
    assert re.findall(">([^<]+)<", row[1]) == ["40", "46.2345678 h", "48.2345678 h", "50.2345678 h"]


@pytest.mark.parametrize("form", ["notebook", "report", "path", "changes"])
def test_labels_are_text_and_never_markup(form: str, tmp_path: Path) -> None:
    evil = replace(
        NAMED.replace(HOURS, label=EVIL, unit=EVIL, description=EVIL, phrase=EVIL)
        .replace("owner", category_labels={"True": EVIL})
        .replace("marital-status", category_labels={"Married": EVIL}),
        class_labels={"0": EVIL, "1": EVIL},
    )
    text = READABLE[form](make(schema=evil), tmp_path)
    assert "<img" not in text
    assert "&lt;img" in text
