from pathlib import Path

import pandas as pd

from counterpath.explanation.plots.style import figure
from counterpath.explanation.report import html
from counterpath.explanation.report.html import write_report


def test_a_report_is_one_page_without_a_network_and_shows_names_as_text(tmp_path: Path) -> None:
    with figure(tmp_path / "drawing", 2.0, 2.0) as fig:
        fig.subplots().plot([0, 1], [0, 1])
    evil = "<img src=x onerror=alert(1)>"
    path = write_report(
        tmp_path / "report.html", evil, {evil: pd.DataFrame({evil: [evil]})}, [tmp_path / "drawing.svg"], lead=evil
    )
    page = path.read_text(encoding="utf-8")
    assert "<img" not in page
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") == 6
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'" in page
    assert "img-src" not in page
    assert page.count("<svg") == 1
    assert "<script" not in page
    assert 'src="http' not in page
    assert 'href="http' not in page


def test_every_part_of_a_page_escapes_what_it_is_given(tmp_path: Path) -> None:
    evil = '<b>&"'
    parts = [
        html.section(
            evil,
            html.text(evil, "notice"),
            html.entry(evil, evil),
            html.steps(evil, [(evil, evil)]),
            html.verbatim(evil),
            html.numbers({evil: evil}),
        ),
        html.box("alarm", html.heading(evil), html.terms({evil: evil}), html.link(evil, evil)),
        html.contents({evil: evil}),
        html.table(pd.DataFrame({evil: [evil]}), caption=evil),
        html.gallery([html.drawing("<?xml?><svg></svg>", caption=evil, label=evil)]),
    ]
    page = html.write_page(tmp_path / "a.html", evil, parts, lead=evil).read_text(encoding="utf-8")
    assert evil not in page
    assert page.count("&lt;b&gt;&amp;&quot;") == 25
    assert '<figure><svg role="img" aria-label="&lt;b&gt;&amp;&quot;"></svg><figcaption>' in page


def test_parts_of_a_page_stay_in_order_and_a_lead_is_left_out_if_there_is_none(tmp_path: Path) -> None:
    parts = [html.section("One", html.text("first")), html.section("Two", html.text("second"))]
    page = html.write_page(tmp_path / "a.html", "Title", parts).read_text(encoding="utf-8")
    places = [page.index(text) for text in ("<h1>Title", "<h2>One", ">first", "<h2>Two", ">second")]
    assert places == sorted(places)
    assert 'class="lead"' not in page


def test_numbers_stand_at_the_right_words_at_the_left_and_names_of_rows_are_headers() -> None:
    drawn = html.table(pd.DataFrame({"name": ["a", "b"], "n": ["12 %", "–"], "note": ["1", "yes"]}), own="b")
    assert '<th scope="col">n</th><th scope="col" class="t">note</th>' in drawn
    assert '<tr class="own"><th scope="row">b</th><td>–</td><td class="t">yes</td></tr>' in drawn


def test_markup_stands_as_it_is_and_text_does_not() -> None:
    drawn = html.listing(("a", "b"), [("<i>", html.link("x", "y"))])
    assert '<th scope="row">&lt;i&gt;</th><td class="t"><a href="#y">x</a></td>' in drawn


def test_images_are_allowed_only_where_a_drawing_holds_one(tmp_path: Path) -> None:
    image = html.drawing('<svg><image href="data:image/png;base64,AA"/></svg>')
    page = html.write_page(tmp_path / "a.html", "Title", [image]).read_text(encoding="utf-8")
    assert "; img-src data:" in page
