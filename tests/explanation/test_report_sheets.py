import re
from pathlib import Path

import pytest

from counterpath.explanation import Explanation
from counterpath.explanation.report.meanings import MEANINGS, SINGLE
from counterpath.explanation.report.sheets import MEASURES as SHOWN
from counterpath.search.measures import MEASURES
from tests.explanation.conftest import make, make_plans


@pytest.fixture
def sheets(tmp_path: Path) -> list[str]:
    return pages(make(), tmp_path)


def pages(made: Explanation, folder: Path) -> list[str]:
    text = made.to_html(folder / "a.html").read_text(encoding="utf-8")
    return text.split('<article class="sheet"')[1:]


def cells(sheet: str, name: str) -> list[str]:
    """The first row of a table with this name."""
    row = re.search(rf'<th scope="row">{name}</th>(.*?)</tr>', sheet)
    assert row is not None
    return re.findall("<td[^>]*>(.*?)</td>", row[1])


def test_a_person_has_who_they_are_with_what_is_held_marked(tmp_path: Path) -> None:
    request = make().request | {"lock": ["owner"], "directions": {"hours-per-week": "up"}}
    request["ranges"] = {"education-num": [9, None]}
    status = make().status.assign(imputed=["owner, sex", "", "", "", ""])
    ann, bob, *_ = pages(make(request=request, status=status), tmp_path)
    assert '39 <span class="mark held">immutable</span>' in ann
    assert 'False <span class="mark held">locked</span> <span class="mark">filled in</span>' in ann
    assert '40 <span class="mark held">may only rise</span> <span class="mark">changes</span>' in ann
    assert '9 <span class="mark held">at least 9</span>' in ann
    assert "filled in" not in bob


def test_a_person_has_the_decision_the_sentence_and_every_change_along_the_path(sheets: list[str]) -> None:
    ann = sheets[0]
    assert "<b>0</b> → <b>1</b>" in ann
    assert 'aria-label="Probability of 1: 0.17 now, 0.52 at the end, 0.5 asked"' in ann
    for sentence, sheet in zip(make().sentences, sheets, strict=True):
        assert sentence.replace("'", "&#x27;") in sheet
    named = re.findall(r'<tr(?: class="first")?><th scope="row">([^<]*)</th><td>([^<]*)</td><td class="path">', ann)
    assert named == [
        ("probability of 1, 0.5 asked", "0.17"),
        ("uncertainty", "0.1"),
        ("education-num", "9"),
        ("hours-per-week", "40"),
        ("marital-status", "Non-Married"),
    ]
    assert ann.count('class="stop"') == ann.count("<li>") == 3
    assert '<td class="t">46.23</td>' in ann


def test_who_was_not_found_is_told_why_what_binds_and_how_near_it_came(tmp_path: Path) -> None:
    made = make(status=make().status.assign(binding=["", "", "", "lock: age; up: hours-per-week", ""]))
    _, bob, _, dee, eva = pages(made, tmp_path)
    assert "What stands in the way: lock: age; up: hours-per-week." in dee
    assert "The closest that was reached" in dee
    assert "try more steps, a lower confidence or another method" in dee
    assert '<span class="mark">changes</span>' not in dee
    assert '<td class="path">' not in bob + eva
    assert "What it costs" not in bob + eva
    assert "never seen in training" in eva


def test_pages_link_to_the_one_before_and_the_one_after(sheets: list[str]) -> None:
    links = [re.findall(r'<a href="#(.*?)">', sheet) for sheet in sheets]
    assert links[0] == ["contents", "person-2"]
    assert links[2] == ["contents", "person-2", "person-4"]
    assert links[4] == ["contents", "person-4"]


def test_several_plans_are_compared_and_each_has_its_way(plans: Explanation, tmp_path: Path) -> None:
    ann, _, cem, dee, _ = pages(plans, tmp_path)
    assert '<span class="pill yes">3 plans found</span>' in ann
    assert ann.count("The model says 0 (probability of 1: 0.17).") == 1
    assert "<p><b>Plan 2 of 3:</b> It would say 1 (0.52) if education-num rose" in ann
    assert cells(ann, "hours-per-week") == ["40", "46.23", "48.23", "50.23"]
    assert re.findall("<h4>(Step by step.*?)</h4>", ann) == [f"Step by step, plan {n}" for n in (1, 2, 3)]
    assert "Plan 3 of 3: No further plan that differs from the ones before was found." in cem
    assert cem.count('class="walk"') == 2
    assert dee.count("What stands in the way: lock: age; up: hours-per-week.") == 1


def test_many_plans_are_compared_a_few_at_a_time(tmp_path: Path) -> None:
    ann = pages(make_plans(plans=8), tmp_path)[0]
    heads = [re.findall(r"<th scope=\"col\"[^>]*>(.*?)</th>", head) for head in re.findall("<thead>.*?</thead>", ann)]
    assert heads[2] == ["feature", "now", "plan 7", "plan 8"]


def test_a_plan_that_leaves_a_feature_alone_says_nothing_and_reasons_say_whose_they_are(
    plans: Explanation, tmp_path: Path
) -> None:
    changed = plans.changed.copy()
    changed.loc[("cem", 2), "owner"] = False
    status = plans.status.copy()
    status.loc[("ann", 2), "reason"] = "By a detour."
    ann, _, cem, *_ = pages(make_plans(changed=changed, status=status), tmp_path)
    assert cells(cem, "owner") == ["False", "True", ""]
    assert '<p class="soft">Plans 1 and 3 of 3: The model decides as asked' in ann
    assert '<p class="soft">Plan 2 of 3: By a detour.</p>' in ann


def test_a_feature_that_ends_as_it_was_is_drawn_faintly(tmp_path: Path) -> None:
    made = make()
    age = made.paths["age"].where(made.paths["step"] != 2, made.paths["age"] + 5)
    ann = pages(make(paths=made.paths.assign(age=age)), tmp_path)[0]
    assert 'class="v back"' in ann


def test_every_measure_has_a_meaning() -> None:
    assert set(MEASURES) <= set(MEANINGS)
    assert set(SHOWN) <= set(SINGLE)
