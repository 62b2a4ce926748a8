from pathlib import Path

import pandas as pd

from counterpath import report
from counterpath.plots import figure
from counterpath.report import write_report


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
    assert page.count("<svg") == 1
    assert "<script" not in page
    assert 'src="http' not in page
    assert 'href="http' not in page


def test_every_part_of_a_page_escapes_what_it_is_given(tmp_path: Path) -> None:
    evil = '<b>&"'
    parts = [
        report.section(
            evil,
            report.text(evil, "notice"),
            report.entry(evil, evil),
            report.steps(evil, [(evil, evil)]),
            report.verbatim(evil),
            report.numbers({evil: evil}),
        ),
        report.cards([report.card(evil, report.table(pd.DataFrame({evil: [evil]})))]),
        report.gallery([report.drawing("<?xml?><svg></svg>", caption=evil)]),
    ]
    page = report.write_page(tmp_path / "a.html", evil, parts, lead=evil).read_text(encoding="utf-8")
    assert evil not in page
    assert page.count("&lt;b&gt;&amp;&quot;") == 17
    assert "<figure><svg></svg><figcaption>" in page
    assert page.count("<article") == page.count("</article>") == 1


def test_parts_of_a_page_stay_in_order_and_a_lead_is_left_out_if_there_is_none(tmp_path: Path) -> None:
    parts = [report.section("One", report.text("first")), report.section("Two", report.text("second"))]
    page = report.write_page(tmp_path / "a.html", "Title", parts).read_text(encoding="utf-8")
    places = [page.index(text) for text in ("<h1>Title", "<h2>One", ">first", "<h2>Two", ">second")]
    assert places == sorted(places)
    assert 'class="lead"' not in page
