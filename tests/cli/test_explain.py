"""`counterpath explain`."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from counterpath import Explanation
from counterpath.cli import main
from counterpath.explainer.explainer import Explainer
from tests.cli.processes import run
from tests.explanation.conftest import make_plans

pytestmark = pytest.mark.whole


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--target-class", "maybe"), "unknown target class 'maybe'; choose one of: no, yes, other"),
        (("--out", "rows.xlsx"), "unknown kind of file (the end of 'rows.xlsx') '.xlsx'"),
        (("--out", "FOLDER.csv"), "is a folder; expected a file"),
        (("--model", "json:loads"), "fitted without a model of yours"),
        (("--drop", "age"), "columns that are missing: age"),
    ],
)
def test_explain_refuses_what_the_model_or_the_table_does_not_allow(
    arguments: tuple[str, str],
    text: str,
    model_folder: Path,
    few: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "FOLDER.csv").mkdir()
    option, value = arguments
    given = str(tmp_path / value) if option == "--out" else value
    assert main(["explain", str(model_folder), str(few), option, given]) == 2
    assert text in capsys.readouterr().err


CONSTRAINTS = [
    (("--lock", "age,agee"), "unknown feature in lock: 'agee' (did you mean 'age'?); choose one of: age, income, job"),
    (("--lock", "age,income,job,owner"), "leaves nothing that could change, and these are immutable: sex"),
    (("--up", "age", "--down", "income,age"), "feature 'age' is in --up and in --down"),
    (("--up", "job"), "'job' (kind 'categorical'), whose categories have no order"),
    (("--range", "aeg=20:60"), "unknown feature in --range 'aeg=20:60': 'aeg' (did you mean 'age'?)"),
    (("--range", "age=20"), "--range 'age=20' is not FEATURE=LOW:HIGH or FEATURE=A|B"),
    (("--range", "age=20:sixty"), "--range 'age=20:sixty': 'sixty' is no number"),
    (("--range", "age=20:60:80"), "'60:80' is no number"),
    (("--range", "age=60:20"), "the range of feature 'age' has low=60 above high=20; swap them?"),
    (("--range", "age=1:nan"), "expected a pair (low, high) of finite numbers"),
    (("--stay-within", "age=30:20"), "the range of feature 'age' has low=30 above high=20; swap them?"),
    (("--range", "age=20:", "--range", "age=:90"), "--range is there twice for feature 'age'"),
    (("--range", "job=boss|bos"), "unknown category in the range of feature 'job': 'bos' (did you mean 'boss'?)"),
    (("--range", "job="), "is []; expected the allowed ones of: 'boss', 'clerk', 'none'"),
    (
        ("--feature-cost", "age=hard"),
        "--feature-cost 'age=hard' is not FEATURE=NUMBER, for instance education=3: 'hard'",
    ),
    (("--feature-cost", "age=0"), "feature_costs has 0 for feature 'age'; expected a positive number"),
    (("--feature-cost", "shoe=2"), "unknown feature in --feature-cost 'shoe=2': 'shoe'"),
]


@pytest.mark.parametrize(("arguments", "text"), CONSTRAINTS)
def test_explain_refuses_constraints_that_cannot_be_used(
    arguments: tuple[str, ...], text: str, model_folder: Path, few: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(model_folder), str(few), *arguments]) == 2
    shown = capsys.readouterr()
    assert text in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""


OPTIONS = (
    *("--lock", "job, owner", "--lock", "owner", "--up", "age", "--down", "income", "--max-changes", "2"),
    *("--range", "age = 18:", "--range", "income=:1e6", "--range", "job=boss|clerk | none"),
    *(
        "--range",
        "owner=True|False",
        "--stay-within",
        "age=0:120",
        "--feature-cost",
        "age=3",
        "--feature-cost",
        "income=0.5",
    ),
)


RECORDED = {
    "lock": ["job", "owner"],
    "directions": {"age": "up", "income": "down"},
    "ranges": {
        "age": [18, None],
        "income": [None, 1e6],
        "job": ["boss", "clerk", "none"],
        "owner": [False, True],
    },
    "stay_within": {"age": [0, 120]},
    "max_changes": 2,
    "feature_costs": {"age": 3, "income": 0.5},
    "plans": 1,
}


def test_a_request_is_recorded_and_can_be_repeated(
    model_folder: Path, few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, again, third, request = (tmp_path / f"{name}.json" for name in ("first", "again", "third", "request"))
    explain = ["explain", str(model_folder), str(few)]
    assert main([*explain, "--target-class", "yes", "--confidence", "0.6", *OPTIONS, "--out", str(first)]) in (0, 3)
    recorded = Explanation.from_json(first).request
    assert {name: recorded[name] for name in RECORDED} == RECORDED
    assert (recorded["target_class"], recorded["confidence"]) == ("yes", 0.6)
    assert main([*explain, "--request", str(first), "--out", str(again)]) in (0, 3)
    request.write_text(json.dumps(recorded), encoding="utf-8")
    assert main([*explain, "--request", str(request), "--out", str(third)]) in (0, 3)
    results = [json.loads(path.read_text(encoding="utf-8")) for path in (first, again, third)]
    assert all(result.pop("provenance")["versions"] for result in results)  # beside when it was, all is the same
    assert results[0] == results[1] == results[2]
    capsys.readouterr()
    for value, text in (
        ({"max_steps": 3}, "made with max_steps=3"),
        ([1], "holds no request"),
        ({"lokc": []}, "'lokc' (did"),
    ):
        request.write_text(json.dumps(value), encoding="utf-8")
        assert main([*explain, "--request", str(request)]) == 2
        assert text in capsys.readouterr().err


def test_paths_are_written_as_far_as_the_option_says(
    model_folder: Path, few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    explain = ["explain", str(model_folder), str(few), "--target-class", "yes"]
    for paths in ("all", "milestones", "end"):
        assert main([*explain, "--paths", paths, "--out", str(tmp_path / f"{paths}.json")]) in (0, 3)
    whole, kept, left = (Explanation.from_json(tmp_path / f"{paths}.json") for paths in ("all", "milestones", "end"))
    assert len(whole.paths) > len(kept.paths) > len(left.paths) == 0
    assert (whole.kept_paths, kept.kept_paths, left.kept_paths) == ("all", "milestones", "end")
    capsys.readouterr()
    shown = []
    for paths in ("all", "milestones"):
        assert main([*explain, "--steps", "--paths", paths]) in (0, 3)
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] == f"{whole.to_text(steps=True)}\n"
    for given in (["--target-class", "yes", "--paths", "end"], ["--request", str(tmp_path / "end.json")]):
        assert main([*explain[:3], "--steps", *given]) == 2
        assert "--paths end keeps none: try --paths milestones" in capsys.readouterr().err


def test_a_real_process_says_in_one_line_that_the_model_is_damaged(
    model_folder: Path, few: Path, tmp_path: Path
) -> None:
    broken = shutil.copytree(model_folder, tmp_path / "broken")
    weights = broken / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    done = run("explain", broken, few)
    assert done.returncode == 2
    assert re.fullmatch(r"error: .*weights\.safetensors.* damaged.*\n", done.stderr)
    assert done.stdout == ""


def test_rows_from_standard_input_as_csv_on_standard_output(model_folder: Path, few: Path) -> None:
    done = run("explain", model_folder, "-", "--target-class", "yes", "--out", "-", stdin=few.read_text())
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("row,age,income,job,owner,sex,status,reason,fallback,binding,class_before")
    assert len(lines) == 13
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".json", ".html"])
def test_every_kind_of_output_replaces_what_was_there(
    suffix: str, model_folder: Path, few: Path, tmp_path: Path
) -> None:
    out = tmp_path / f"rows{suffix}"
    out.write_text("old")
    assert main(["explain", str(model_folder), str(few), "--target-class", "yes", "--out", str(out)]) == 0
    if suffix == ".html":
        assert "<h1>" in out.read_text(encoding="utf-8")
        return
    read = {".csv": lambda: pd.read_csv(out, index_col="row"), ".parquet": lambda: pd.read_parquet(out)}
    table = Explanation.from_json(out).to_frame() if suffix == ".json" else read[suffix]()
    assert set(table["status"]) == {"found", "already"}
    assert (table["class_after"] == "yes").all()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["few.csv", out.name]


def test_what_is_printed_and_the_exit_code_for_rows_without_a_counterfactual(
    model_folder: Path, loans: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = loans.head(4).copy()  # with the label, which is not looked at
    rows.loc[1, "job"] = "astronaut"
    rows.to_parquet(tmp_path / "rows.parquet")
    assert main(["explain", str(model_folder), str(tmp_path / "rows.parquet"), "--target-class", "yes"]) == 3
    shown = capsys.readouterr()
    assert shown.out.startswith("Explanation of 4 rows: ")
    assert "unknown_category" in shown.out
    assert shown.err == "1 of 4 rows have no counterfactual (unknown_category 1); their reason is in the result\n"


def test_plans_are_counted_by_people_and_only_a_missing_first_plan_is_incomplete(
    model_folder: Path, few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["explain", str(model_folder), str(few), "--target-class", "yes"]
    monkeypatch.setattr(Explainer, "solve", lambda *given, **options: make_plans())
    assert main(arguments) == 3
    shown = capsys.readouterr()
    assert shown.out == f"{make_plans()}\n"
    assert shown.err == "2 of 5 people have no plan (not_found 1, unknown_category 1); their reason is in the result\n"
    some = make_plans().select(["ann", "bob", "cem"])  # of whom cem has two plans of three, and bob needs none
    monkeypatch.setattr(Explainer, "solve", lambda *given, **options: some)
    assert main([*arguments, "--out", str(tmp_path / "plans.csv")]) == 0
    table = pd.read_csv(tmp_path / "plans.csv", index_col=["person", "plan"])
    assert table["status"].value_counts().to_dict() == {"found": 5, "no_other_plan": 3, "already": 1}


def test_the_steps_of_a_path_are_printed_below_its_row(
    model_folder: Path, few: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Explainer, "solve", lambda *given, **options: make_plans())
    assert main(["explain", str(model_folder), str(few), "--target-class", "yes", "--steps"]) == 3
    shown = capsys.readouterr().out
    assert shown == f"{make_plans().to_text(steps=True)}\n"
    assert "1. education-num: 9 → 9.96; hours-per-week: 40 → 42.49382712 (p 0.31)\n" in shown


def test_rejected_rows_come_first_and_may_stand_alone(
    model_folder: Path, fitted: Explainer, loans: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = loans.drop(columns="loan")
    decided = fitted.predict(rows)
    granted, refused = rows[decided == "yes"].head(12), rows[decided == "no"].head(1)
    pd.concat([granted, refused]).to_csv(tmp_path / "rows.csv", index=False)
    asked = ["explain", str(model_folder), str(tmp_path / "rows.csv"), "--target-class", "yes"]
    assert main(asked) == 0
    first = capsys.readouterr().out.splitlines()
    assert first[0].startswith("Explanation of 13 rows: 1 found, 12 already")
    assert first[1].startswith("12: found")
    assert main([*asked, "--rejected-only"]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["Explanation of 1 row", "12"]
    assert main([*asked, "--rejected-only", "--out", str(tmp_path / "out.csv")]) == 0
    assert pd.read_csv(tmp_path / "out.csv")["status"].tolist() == ["found"]
    assert main([*asked, "--rejected-only", "--out", str(tmp_path / "out.html")]) == 0
    report = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "nearest" in report  # the baseline, of the same people


def test_a_column_names_the_rows_of_the_answers(
    model_folder: Path, loans: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, out = tmp_path / "rows.csv", tmp_path / "answers.csv"
    people = loans.drop(columns="loan").head(3)
    people.assign(number=["K-1", "K-2", "K-3"]).to_csv(rows, index=False)
    asked = ["explain", str(model_folder), str(rows), "--id", "number"]
    assert main([*asked, "--out", str(out)]) in (0, 3)
    assert pd.read_csv(out).iloc[:, 0].tolist() == ["K-1", "K-2", "K-3"]
    assert main([*asked]) in (0, 3)
    assert "\nK-2: " in capsys.readouterr().out
    people.assign(number=["K-1", "K-2", "K-1"]).to_csv(rows, index=False)
    assert main(asked) == 2
    assert "--id number: row 2 has 'K-1', which is missing or names a row before it" in capsys.readouterr().err
    assert main(["explain", str(model_folder), str(rows), "--id", "nummer"]) == 2
    assert "unknown column --id 'nummer' (did you mean 'number'?)" in capsys.readouterr().err
