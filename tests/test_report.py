from pathlib import Path

import pandas as pd

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
