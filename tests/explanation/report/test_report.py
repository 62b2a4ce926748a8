from pathlib import Path

import pandas as pd
from markupsafe import Markup

from counterpath.explanation.plots.style import figure
from counterpath.explanation.report.build import Table, render, write_report
from tests.explanation.markup import Balance

EVIL = "<img src=x onerror=alert(1)>"


def page_of(table: Table) -> str:
    """A page with nothing but a table, from the title on."""
    page = render("page.html.j2", title="Title", lead="", has_images=False, drawings=[], tables={"Heading": table})
    return page[page.index("<h1>") :]


def test_a_report_is_one_page_without_a_network_and_shows_names_as_text(tmp_path: Path) -> None:
    with figure(tmp_path / "drawing", 2.0, 2.0) as fig:
        fig.subplots().plot([0, 1], [0, 1])
    path = write_report(
        tmp_path / "report.html", EVIL, {EVIL: pd.DataFrame({EVIL: [EVIL]})}, [tmp_path / "drawing.svg"], lead=EVIL
    )
    page = path.read_text(encoding="utf-8")
    assert "<img" not in page
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") == 6
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\"" in page
    assert page.count("<svg") == 1
    assert '<figure><svg role="img" aria-label="drawing" ' in page
    assert "<script" not in page
    assert 'src="http' not in page
    assert 'href="http' not in page


def test_the_name_of_a_figure_is_a_label_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / 'a"><b>.svg'
    path.write_text("<?xml?><svg></svg>", encoding="utf-8")
    page = write_report(tmp_path / "a.html", "Title", {}, [path]).read_text(encoding="utf-8")
    assert '<figure><svg role="img" aria-label="a&#34;&gt;&lt;b&gt;"></svg></figure>' in page


def test_parts_of_a_page_stay_in_order_and_a_lead_is_left_out_if_there_is_none() -> None:
    page = page_of(Table(["a", "b"], [["first", "1"], ["second", "2"]], caption="Above"))
    positions = [page.index(text) for text in ("<h1>Title", "<h2>Heading", "<caption>Above", ">first", ">second")]
    assert positions == sorted(positions)
    assert 'class="lead"' not in page
    checker = Balance()
    checker.feed(page.removesuffix("</body></html>"))
    assert checker.open == []


def test_numbers_stand_at_the_right_words_at_the_left_and_names_of_rows_are_headers() -> None:
    frame = pd.DataFrame({"name": ["a", "b"], "n": ["12 %", "–"], "note": ["1", "yes"]})
    page = page_of(Table.from_frame(frame, own="b", css="wide"))
    assert '<table class="wide">' in page
    assert '<th scope="col">n</th><th scope="col" class="t">note</th>' in page
    assert '<tr class="own"><th scope="row">b</th><td>–</td><td class="t">yes</td></tr>' in page


def test_markup_stands_as_it_is_and_text_does_not() -> None:
    page = page_of(Table(("a", "b"), [("<i>", Markup('<a href="#y">{}</a>').format("<b>"))]))
    assert '<th scope="row">&lt;i&gt;</th><td class="t"><a href="#y">&lt;b&gt;</a></td>' in page


def test_images_are_allowed_only_where_a_drawing_holds_one(tmp_path: Path) -> None:
    (tmp_path / "image.svg").write_text('<svg><image href="data:image/png;base64,AA"/></svg>', encoding="utf-8")
    page = write_report(tmp_path / "a.html", "Title", {}, [tmp_path / "image.svg"]).read_text(encoding="utf-8")
    assert "form-action 'none'; img-src data:\">" in page
    assert "img-src" not in write_report(tmp_path / "b.html", "data:image/", {}, []).read_text(encoding="utf-8")
