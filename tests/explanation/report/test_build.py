import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from counterpath.explanation import Explanation
from counterpath.explanation.report.build import MEASURES as SHOWN
from counterpath.explanation.report.build import MOST_LISTED
from counterpath.explanation.result import MOST_PAGES
from counterpath.explanation.wording import MEANINGS, NOTICE, ROW_MEANINGS
from counterpath.fitting.diagnostics import Diagnostics
from counterpath.models.calibration import Calibration
from counterpath.models.surrogate import Agreement
from counterpath.search.measures import MEASURES
from counterpath.utils.errors import InputError
from tests.browsing import chromium, opened
from tests.explanation.conftest import LABELS, across, bound, lists, make, make_plans
from tests.explanation.markup import EVIL, Balance, evil

SHEET = '<article class="sheet"'


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def check(text: str) -> None:
    """Every tag is closed, headings go down one level at a time, and every link leads to an anchor in the page."""
    checker = Balance()
    checker.feed(text)
    assert checker.open == []
    assert checker.levels[0] == 1
    assert checker.levels.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(checker.levels, checker.levels[1:], strict=False))
    assert len(set(checker.anchors)) == len(checker.anchors)
    assert {link.removeprefix("#") for link in checker.links} <= set(checker.anchors)


def test_the_first_page_has_the_headline_the_notice_key_numbers_what_changes_and_links_to_everything(
    explanation: Explanation, tmp_path: Path
) -> None:
    text = text_of(explanation.to_html(tmp_path / "a.html", tables={"My table": pd.DataFrame({"l1": [1.23456]})}))
    first = text[: text.index("</nav>")]
    assert NOTICE in first
    assert "Explanation of 5 rows: 2 found, 1 already" in first
    assert "<b>67 %</b><span>of them found</span>" in first
    assert '<th scope="row">hours-per-week</th>' in first
    headings = re.findall(r'<h2 id="(.*?)">(.*?)</h2>', text)
    assert [f'<a href="#{anchor}">{words}</a>' in first for anchor, words in headings] == [True] * 7
    assert "My table" in dict(headings).values()
    assert '<th scope="row">1.235</th>' in text
    assert "σ-share 0.3" in text
    check(text)
    assert list(tmp_path.iterdir()) == [tmp_path / "a.html"]


def test_what_changes_most_is_shown_in_its_own_units_and_direction(explanation: Explanation, tmp_path: Path) -> None:
    text = text_of(explanation.to_html(tmp_path / "a.html"))
    assert "Non-Married → Married (1 of 1)" in text
    assert '<td class="t">+2.4</td>' in text
    assert '<b class="up" style="width:50%"></b><b class="down" style="width:50%"></b>' in text
    nothing = text_of(explanation.select(["dee"]).to_html(tmp_path / "b.html"))
    assert "No counterfactual was found, so nothing changes" in nothing


def test_baselines_stand_beside_the_method_over_own_and_over_common_rows(tmp_path: Path) -> None:
    other = make(status=make().status.assign(status=["found", "already", "not_found", "not_found", "unknown_category"]))
    text = text_of(make().to_html(tmp_path / "a.html", baselines={"nearest": other}))
    assert "Each method over the rows that it found (n = 1 to 2)." in text
    assert "All methods over the rows that all of them found (n = 1)." in text
    assert '<tr class="own"><th scope="row">rsgd-c</th><td>2</td><td>67 %</td>' in text
    assert '<tr><th scope="row">nearest</th><td>1</td><td>33 %</td>' in text
    alone = text_of(make().to_html(tmp_path / "b.html"))
    assert "All methods over" not in alone
    assert "No other method was given" in alone


def test_baselines_of_other_rows_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not of the same rows: 'nearest' has 1 rows, and 'rsgd-c' 5"):
        make().to_html(tmp_path / "a.html", baselines={"nearest": make().select(["ann"])})
    assert not list(tmp_path.iterdir())


def test_of_several_plans_the_first_is_compared(plans: Explanation, tmp_path: Path) -> None:
    text = text_of(plans.to_html(tmp_path / "a.html", baselines={"nearest": make()}))
    assert "Of each person the first plan counts." in text
    assert "All methods over the rows that all of them found (n = 2)." in text


def test_methods_that_found_nothing_in_common_are_said_to(tmp_path: Path) -> None:
    nothing = make(status=make().status.assign(status="not_found"))
    text = text_of(make().to_html(tmp_path / "a.html", baselines={"nearest": nothing}))
    assert "All methods over the rows" not in text  # it would be a table of dashes
    reason = nothing.status["reason"].iloc[0].partition(". ")[0].rstrip(".")
    assert f"nearest found nothing for anybody: {reason[0].lower()}{reason[1:]}." in text
    other = make(status=make().status.assign(status=["not_found", "already", "not_found", "found", "unknown_category"]))
    text = text_of(make().to_html(tmp_path / "b.html", baselines={"nearest": other}))
    assert "No row was found by all of them, so their costs cannot be compared." in text


def test_subgroups_have_a_table_each_and_small_ones_are_marked(explanation: Explanation, tmp_path: Path) -> None:
    text = text_of(explanation.to_html(tmp_path / "a.html", by=["sex", ["sex", "owner"]]))
    assert "<caption>By sex.</caption>" in text
    assert "<caption>By sex and owner.</caption>" in text
    assert '<th scope="row">Male *</th><td>2</td>' in text
    assert '<th scope="row">Male, False *</th><td>2</td>' in text
    assert "* fewer than 20 were searched" in text
    assert "<caption>By sex.</caption>" in text_of(explanation.to_html(tmp_path / "b.html", by="sex"))
    series = pd.Series(list("xxyyy"), name="branch")
    assert "<caption>By branch.</caption>" in text_of(explanation.to_html(tmp_path / "c.html", by=series))
    with pytest.raises(InputError, match="unknown column 'sexx'"):
        explanation.to_html(tmp_path / "d.html", by="sexx")


def test_a_gap_is_named_on_the_page_and_in_numbers_only_where_there_is_one(
    explanation: Explanation, tmp_path: Path
) -> None:
    text = text_of(across("cem").to_html(tmp_path / "a.html"))
    assert 'Row cem <span class="pill gap">found, across a gap</span>' in text
    assert text.count("But no chain of people leads there: the path crosses a gap in the data.") == 1
    assert "<b>33 %</b><span>of them only across a gap</span>" in text
    assert "only across a gap" not in text_of(explanation.to_html(tmp_path / "b.html"))


def test_everybody_is_listed_and_the_first_have_a_page_of_their_own(explanation: Explanation, tmp_path: Path) -> None:
    text = text_of(explanation.to_html(tmp_path / "a.html", pages=2))
    assert text.count(SHEET) == 2
    assert "The first 2 of 5 rows have a page of their own." in text
    assert '<a href="#person-2">bob</a>' in text
    assert '<th scope="row">cem</th><td class="t">0 → 1</td><td class="t">0.30 → 0.61</td>' in text
    check(text)
    none = text_of(explanation.to_html(tmp_path / "b.html", pages=0))
    assert SHEET not in none
    assert "None of 5 rows have a page of their own." in none
    assert "Row by row" not in none
    check(none)
    with pytest.raises(InputError, match="pages is -1; expected"):
        explanation.to_html(tmp_path / "c.html", pages=-1)


def test_a_page_of_many_is_bounded(explanation: Explanation, tmp_path: Path) -> None:
    many = explanation.select(["bob"] * (MOST_LISTED + 3))
    path = many.to_html(tmp_path / "a.html")
    text = text_of(path)
    assert text.count(SHEET) == MOST_PAGES
    assert "… and 3 more rows, which are not shown here." in text
    assert path.stat().st_size < 3_000_000


@pytest.mark.parametrize("keep", ["all", "milestones", "end"])
def test_pages_are_written_however_much_of_the_paths_was_kept(keep: str, tmp_path: Path) -> None:
    text = text_of(make(keep=keep).to_html(tmp_path / "a.html"))
    assert text.count(SHEET) == 5
    assert ("along the path" in text) == (keep != "end")
    assert ("Step by step" in text) == (keep != "end")
    check(text)


def test_a_page_of_nothing_is_written(empty: Explanation, tmp_path: Path) -> None:
    text = text_of(empty.to_html(tmp_path / "a.html"))
    assert "There are no rows." in text
    check(text)
    check(text_of(make_plans().select(["eva"]).to_html(tmp_path / "b.html")))


def test_everything_on_a_page_is_text(tmp_path: Path) -> None:
    tables = {EVIL: pd.DataFrame({EVIL: [EVIL]})}
    path = evil().to_html(
        tmp_path / "a.html", tables, EVIL, baselines={EVIL: evil()}, by=["sex", EVIL], about={EVIL: EVIL}
    )
    text = text_of(path)
    assert "<img" not in text
    assert text.count("&lt;img src=x") > 30
    check(text)


SMUGGLE = """() => {
  const script = document.createElement("script"), image = new Image();
  script.textContent = "window.ran = 1"; image.src = "http://127.0.0.1:9/a.png"; document.body.append(script, image);
  return window.ran ?? null;
}"""


def smuggled(browser: Any, path: Path) -> tuple[int | None, str]:
    """What comes of a script and an image that somebody gets into the page: whether it ran, and why it was not had."""
    page = browser.new_page()
    page.goto(path.as_uri())
    with page.expect_event("requestfailed") as failed:
        ran = page.evaluate(SMUGGLE)
    page.close()
    return ran, failed.value.failure


def test_in_a_browser_a_page_asks_for_nothing_runs_nothing_and_fits_a_telephone(tmp_path: Path) -> None:
    tables = {EVIL: pd.DataFrame({EVIL: [EVIL]})}
    first = evil().to_html(tmp_path / "evil.html", tables, EVIL, baselines={EVIL: evil()}, by="sex", about={EVIL: EVIL})
    second = make_plans().to_html(tmp_path / "plans.html", baselines={"nearest": make()}, by=["sex", "age"])
    with chromium() as browser:
        for path in (first, second):
            for width in (1280, 390):
                with opened(browser, path, width) as page:
                    page.add_style_tag(
                        content=".sheet { content-visibility: visible !important; }"
                    )  # nothing is cut off
                    assert page.evaluate("document.documentElement.scrollWidth") <= width
                    assert page.locator("img").count() == 0
                    assert page.locator(".sheet").first.is_visible()
        with opened(browser, first, 1280) as page:
            assert page.title() == EVIL
            assert page.locator(".sheet h3").first.text_content().startswith(f"Row {EVIL}")
        with opened(browser, second, 1280) as page:
            page.get_by_role("link", name="dee").click()
            assert page.locator("#person-4").bounding_box()["y"] < 50
            page.locator("#person-4").get_by_role("link", name="← Previous").click()
            assert page.url.endswith("#person-3")
            paper = page.pdf(prefer_css_page_size=True)
        assert smuggled(browser, second) == (None, "csp")
        # A first page, at least one of tables, one with everybody, and one a person (three plans may take two).
        assert len(re.findall(rb"/Type /Page\b", paper)) >= 3 + 5


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
    status = make().status.assign(imputed=lists(["owner", "sex"], [], [], [], [], index=LABELS))
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
    assert 'class="gain" style="left:17%;width:35%"' in ann
    assert 'class="then" style="left:52%"' in ann
    assert 'class="gain" style="left:83%;width:0%"' in sheets[1]
    assert 'class="gauge"' not in sheets[4]
    for sentence, sheet in zip(make().sentences, sheets, strict=True):
        assert sentence.replace("'", "&#39;") in sheet
    named = re.findall(r'<tr(?: class="first")?><th scope="row">([^<]*)</th><td>([^<]*)</td><td class="path">', ann)
    assert named == [
        ("probability of 1, 0.5 asked", "0.17"),
        ("uncertainty", "0.1"),
        ("education-num", "9"),
        ("hours-per-week", "40"),
        ("marital-status", "Non-Married"),
    ]
    assert ann.count('class="stop"') == ann.count("<li>") == 3
    assert '<td class="t">46.2345678</td>' in ann


def test_a_row_that_was_not_found_has_the_reason_what_binds_and_how_near_it_came(tmp_path: Path) -> None:
    made = make(status=bound(make()))
    _, bob, _, dee, eva = pages(made, tmp_path)
    assert "What stands in the way: age is locked; hours-per-week may only go up." in dee
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
    assert ann.count("The model predicts 0 (17 % for 1).") == 1
    assert "<p><b>Plan 2 of 3:</b> It would predict 1 (52 %) if education-num were" in ann
    assert cells(ann, "hours-per-week") == ["40", "46.2345678", "48.2345678", "50.2345678"]
    assert re.findall("<h4>(Step by step.*?)</h4>", ann) == [f"Step by step, plan {n}" for n in (1, 2, 3)]
    assert "Plan 3 of 3: No further plan that differs from the ones before was found." in cem
    assert cem.count('class="along"') == 2
    assert dee.count("What stands in the way: age is locked; hours-per-week may only go up.") == 1


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
    assert set(SHOWN) <= set(ROW_MEANINGS)


def diagnostics(kept: float = 0.97, agreement: Agreement | None = None, auc: float = 0.999) -> Diagnostics:
    features = {"feature": ["<b>age", "job"], "kind": ["integer", "binary"], "kept": [kept, 0.99]}
    return Diagnostics(
        pd.DataFrame(features | {"guessing": [0.0, 0.6], "mean error": ["1.896e+04", "–"]}),
        Calibration(0.27, 0.1, 1000.0, auc),
        agreement,
        pd.DataFrame({"class": ["no", "yes"], "share": [0.8, 0.2]}),
        rows=300,
        held_out=True,
        accuracy=0.77,
    )


def page(quality: Diagnostics, folder: Path) -> str:
    made = make(diagnostics=str(quality), quality=quality.summary())
    return made.to_html(folder / "a.html").read_text(encoding="utf-8")


def test_numbers_stand_with_what_they_mean(tmp_path: Path) -> None:
    text = page(diagnostics(agreement=Agreement(0.98, 0.97, 0.96)), tmp_path)
    assert "are good here (measured on 300 held-out rows):" in text
    assert '<th scope="row">balanced accuracy</th><td>77.0 %</td>' in text
    assert '<th scope="row">decided yes</th><td>20.0 %</td>' in text
    assert '<th scope="row">stand-in agrees, visited rows</th><td>96.0 %</td>' in text
    name = '<th scope="row">&lt;b&gt;age</th>'
    assert f'{name}<td class="t">integer</td><td>97.0 %</td><td>0.0 %</td><td>18960</td>' in text
    assert "<pre>The models" not in text


def test_an_alarm_stands_on_the_first_page_and_says_what_to_try(tmp_path: Path) -> None:
    bad = page(diagnostics(kept=0.1, auc=0.5), tmp_path)
    first = bad[: bad.index('id="contents"')]
    assert '<div class="alarm">' in first
    assert "Do not rely on these explanations" in first
    assert "keeps less than half of: &lt;b&gt;age. Try: a larger latent" in first
    assert "alarm" not in page(diagnostics(), tmp_path).split("</style>")[1]


def test_what_is_known_of_the_models_goes_through_a_file(tmp_path: Path) -> None:
    quality = diagnostics().summary()
    provenance = {"date": "2026-01-01T00:00:00+00:00", "seconds": 1.5, "versions": {"torch": "2"}}
    again = Explanation.from_json(make(quality=quality, provenance=provenance).to_json())
    assert again.quality == quality
    assert again.provenance == provenance
    text = again.to_html(tmp_path / "a.html").read_text(encoding="utf-8")
    assert '<th scope="row">date</th><td class="t">2026-01-01T00:00:00+00:00</td>' in text
    assert '<th scope="row">versions</th><td class="t">torch 2</td>' in text
