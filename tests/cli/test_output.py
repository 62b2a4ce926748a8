import copy
import html
import re
from pathlib import Path

import pandas as pd
import pytest

import counterpath as cp
from counterpath.cli import main
from counterpath.cli.output import ReportOptions, baseline
from counterpath.utils.errors import InputError


def test_options_of_a_report_need_one() -> None:
    with pytest.raises(InputError, match=r"--by is about a report, and there is none: try --out report\.html"):
        ReportOptions(by="sex").is_written(Path("a.csv"))
    with pytest.raises(InputError, match="--pages is about a report"):
        ReportOptions(pages=3).is_written(None)
    with pytest.raises(InputError, match="--pages must be a whole number from 0; given -1"):
        ReportOptions(pages=-1).is_written(Path("a.html"))
    assert ReportOptions(by="sex, age", pages=0).is_written(Path("a.HTML"))
    assert not ReportOptions().is_written(Path("a.csv"))


@pytest.fixture
def few(loans: pd.DataFrame, tmp_path: Path) -> Path:
    path = tmp_path / "few.csv"
    loans.drop(columns="loan").head(6).to_csv(path, index=False)
    return path


def test_explain_writes_a_report_with_the_baseline_subgroups_pages_and_how_it_was_made(
    model_folder: Path, few: Path, tmp_path: Path
) -> None:
    out = tmp_path / "report.html"
    extra = ["--lock", "age", "-k", "2", "--by", "sex,owner", "--pages", "3"]
    assert main(["explain", str(model_folder), str(few), "--target-class", "yes", *extra, "--out", str(out)]) in (0, 3)
    text = out.read_text(encoding="utf-8")
    assert "All methods over the rows that all of them found" in text
    assert re.search(r'<tr class="own"><th scope="row">geodesic</th>', text)
    assert re.search(r'<tr><th scope="row">nearest</th>', text)
    assert "<caption>By sex.</caption>" in text
    assert "<caption>By owner.</caption>" in text
    assert text.count('<article class="sheet"') == 3
    assert '<span class="mark held">locked</span>' in text
    assert '<th scope="row">model directory</th><td class="t">model</td>' in text
    assert '<th scope="row">rows</th><td class="t">few.csv</td>' in text
    assert f"counterpath {cp.__version__}, python" in text
    assert "The models that explanations rest on are" in text
    assert str(tmp_path) not in text


def test_the_request_in_a_report_asks_for_the_same_again(model_folder: Path, few: Path, tmp_path: Path) -> None:
    out, request_file, again = (tmp_path / name for name in ("report.html", "request.json", "again.html"))
    command = ["explain", str(model_folder), str(few)]
    assert main([*command, "--target-class", "yes", "--up", "income", "--out", str(out)]) in (0, 3)
    (request,) = re.findall("<pre>(.*?)</pre>", out.read_text(encoding="utf-8"))
    request_file.write_text(html.unescape(request), encoding="utf-8")
    assert main([*command, "--request", str(request_file), "--out", str(again)]) in (0, 3)
    first, second = (path.read_text(encoding="utf-8").split("<article")[1:] for path in (out, again))
    assert first == second


def test_the_baseline_is_asked_the_same_and_is_not_run_beside_itself_or_where_copies_are_forbidden(
    fitted: cp.Explainer, few: Path
) -> None:
    table = pd.read_csv(few)
    itself = fitted.explain(table, "yes", method="nearest")
    assert baseline(fitted, itself, table) == {}
    private = copy.copy(fitted).set_params(allow_copies=False)
    assert baseline(private, private.explain(table, "yes"), table) == {}
    beside = baseline(fitted, fitted.explain(table, "yes", ranges={"age": (18, None)}, plans=2).plan(2), table)[
        "nearest"
    ]
    assert beside.request["ranges"] == {"age": [18, None]}
    assert (beside.plans, beside.kept_paths, len(beside)) == (1, "end", 6)


def test_evaluate_writes_a_report_of_what_it_compared(model_folder: Path, loans_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    options = ["--target-class", "yes", "--methods", "rsgd", "--rows", "8", "--by", "sex", "--out", str(out)]
    assert main(["evaluate", str(model_folder), str(loans_file), *options]) == 0
    text = out.read_text(encoding="utf-8")
    assert '<tr class="own"><th scope="row">rsgd</th>' in text
    assert '<tr><th scope="row">nearest</th>' in text
    assert "<caption>By sex.</caption>" in text
    assert text.count('<article class="sheet"') == 8
