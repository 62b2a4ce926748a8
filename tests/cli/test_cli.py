import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import counterpath
from counterpath import Explanation, Feature, Schema, __version__
from counterpath.cli import EXIT_CODES, demo, main
from counterpath.cli.options import Options
from counterpath.data import datasets
from counterpath.explainer.compare import compare
from counterpath.explainer.explainer import Explainer
from tests.conftest import SMALL_FIT
from tests.explanation.conftest import make, make_plans

pytestmark = pytest.mark.whole


def _command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "counterpath.cli", *map(str, arguments)]


def _run(*arguments: object, stdin: str = "", folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    source = {"PYTHONPATH": str(Path(counterpath.__file__).parents[1])}  # whichever folder it runs in
    return subprocess.run(
        _command(*arguments), capture_output=True, text=True, input=stdin, cwd=folder, env=os.environ | source
    )


@pytest.fixture
def few(loans: pd.DataFrame, tmp_path: Path) -> Path:
    """A file with a few rows, without the label."""
    path = tmp_path / "few.csv"
    loans.drop(columns="loan").head(12).to_csv(path, index=False)
    return path


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("--version").stdout.strip() == __version__
    assert main(["--help"]) == 0
    text = re.sub(r"\s+", " ", capsys.readouterr().out)
    for command in ("demo", "schema", "fit", "explain", "evaluate", "batch", "reproduce", "bench", "serve", "app"):
        assert command in text
    for code, meaning in EXIT_CODES.items():
        assert f"{code}: {meaning}" in text
        assert f"| {code} |" in Path(__file__).parents[2].joinpath("docs", "cli.md").read_text(encoding="utf-8")


MISTAKES = [
    (("reproduce", "moon"), "unknown experiment 'moon'; choose one of: surface, adult, gmc"),
    (("reproduce", "surface", "--preset", "huge"), "unknown preset 'huge'; choose one of: quick, paper"),
    (("reproduce", "surface", "--device", "abacus"), "unknown device 'abacus'"),
    (("reproduce", "surface", "--seeds", "one"), "whole numbers separated by commas"),
    (("fit", "DATA"), "needs --target COLUMN"),
    (("fit", "DATA", "--target", "lone"), "unknown target 'lone' (did you mean 'loan'?)"),
    (("fit", "gone.csv", "--target", "loan"), "gone.csv cannot be read: No such file"),
    (("fit", "DATA", "--target", "loan", "--immutable", "height"), "unknown column 'height'"),
    (("fit", "DATA", "--target", "loan", "--drop", "height"), "unknown column 'height'"),
    (("fit", "DATA", "--target", "loan", "--method", "rgsd"), "did you mean 'rsgd'"),
    (("fit", "gone.csv", "--target", "loan", "--epochs", "0"), "--epochs must be a positive number; given 0"),
    (("fit", "gone.csv", "--target", "loan", "--hidden", "a"), "whole numbers separated by commas"),
    (("fit", "gone.csv", "--target", "loan", "--class-weight", "heavy"), "choose one of: balanced"),
    (("fit", "gone.csv", "--target", "loan", "--missing", "guess"), "choose one of: error, impute"),
    (("fit", "gone.csv", "--target", "loan", "--set", "age=3"), "is not COLUMN.ATTRIBUTE=VALUE"),
    (("fit", "gone.csv", "--target", "loan", "--set", "age.lower=low"), "lower='low'; expected int or float"),
    (("fit", "gone.csv", "--target", "loan", "--model", "scoring"), "is not module:attribute"),
    (("fit", "gone.csv", "--target", "loan", "--model", "no_such:x"), "No module named 'no_such'"),
    (("fit", "DATA", "--target", "loan", "--schema", "gone.json"), "gone.json cannot be read"),
    (("explain", "gone", "gone.csv", "--confidence", "1.5"), "a confidence lies between 0 and 1; given 1.5"),
    (("explain", "gone", "gone.csv", "--time-limit", "0"), "--time-limit must be a positive number"),
    (("explain", "gone", "gone.csv", "--method", "magic"), "unknown method 'magic'"),
    (
        ("explain", "gone", "gone.csv", "--range", "age"),
        "--range 'age' is not FEATURE=LOW:HIGH or FEATURE=A|B, for inst",
    ),
    (
        ("explain", "gone", "gone.csv", "--feature-cost", "age"),
        "--feature-cost 'age' is not FEATURE=NUMBER, for instance",
    ),
    (("explain", "gone", "gone.csv", "--max-changes", "0"), "--max-changes is 0; expected a whole number from 1"),
    (("explain", "gone", "gone.csv", "--max-changes", "1.5"), "Invalid value for '--max-changes'"),
    (("explain", "gone", "gone.csv", "-k", "0"), "--plans is 0; expected a whole number from 1"),
    (("explain", "gone", "gone.csv", "--request", "gone.json"), "--request gone.json cannot be read: No such file"),
    (("explain", "gone", "gone.csv", "--request", "FEW"), "few.csv is not JSON: "),
    (("explain", "gone", "gone.csv", "--request", "gone.json", "--lock", "age"), "leave out --lock, or --request"),
    (
        ("explain", "gone", "gone.csv", "--request", "gone.json", "-k", "1", "--confidence", "0.5"),
        "leave out --confidence, --plans, or --request",
    ),
    (
        ("explain", "gone", "gone.csv", "--paths", "some"),
        "unknown way to keep paths 'some'; choose one of: all, milestones",
    ),
    (("explain", "gone", "gone.csv", "--request", "gone.json", "--paths", "end"), "leave out --paths, or --request"),
    (("explain", "gone", "gone.csv", "--steps"), "--steps prints, and --out writes: leave out one of them"),
    (("explain", "gone", "FEW"), "there is no folder"),
    (("evaluate", "gone", "FEW", "--methods", "magic"), "unknown method 'magic'"),
    (("evaluate", "gone", "FEW", "--rows", "0"), "--rows must be a positive number"),
    (("demo", "--rows", "-1"), "--rows must be a positive number"),
    (("explain",), "Missing argument"),
    (("juggle",), "No such command 'juggle'"),
]


@pytest.mark.parametrize(("arguments", "text"), MISTAKES)
def test_mistakes_are_one_line_and_write_nothing(
    arguments: tuple[str, ...],
    text: str,
    loans_file: Path,
    few: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [{"DATA": str(loans_file), "FEW": str(few)}.get(argument, argument) for argument in arguments]
    out = tmp_path / ("out.csv" if arguments[0] == "explain" else "out")
    options = ["--out", str(out)] if len(arguments) > 1 else []
    assert main([*given, *options]) == 2
    shown = capsys.readouterr()
    assert text in shown.err
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert shown.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["few.csv"]


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
def test_explain_refuses(
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


WISHES = [
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
    (("--range", "age=20:30"), "column 'age', row 0: 70 is outside the range that was asked for, from 20 to 30"),
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


@pytest.mark.parametrize(("arguments", "text"), WISHES)
def test_explain_refuses_wishes_that_cannot_be(
    arguments: tuple[str, ...], text: str, model_folder: Path, few: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(model_folder), str(few), *arguments]) == 2
    shown = capsys.readouterr()
    assert text in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""


ASKED = (
    *("--lock", "job, owner", "--lock", "owner", "--up", "age", "--down", "income", "--max-changes", "2"),
    *("--range", "age = 18:", "--range", "income=:1e6", "--range", "job=boss|clerk | none"),
    *("--range", "owner=True|False", "--feature-cost", "age=3", "--feature-cost", "income=0.5"),
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
    "max_changes": 2,
    "feature_costs": {"age": 3, "income": 0.5},
    "plans": 1,
}


def test_wishes_are_recorded_and_can_be_asked_again(
    model_folder: Path, few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, again, third, request = (tmp_path / f"{name}.json" for name in ("first", "again", "third", "request"))
    explain = ["explain", str(model_folder), str(few)]
    assert main([*explain, "--target-class", "yes", "--confidence", "0.6", *ASKED, "--out", str(first)]) in (0, 3)
    asked = Explanation.from_json(first).request
    assert {name: asked[name] for name in RECORDED} == RECORDED
    assert (asked["target_class"], asked["confidence"]) == ("yes", 0.6)
    assert main([*explain, "--request", str(first), "--out", str(again)]) in (0, 3)
    request.write_text(json.dumps(asked), encoding="utf-8")
    assert main([*explain, "--request", str(request), "--out", str(third)]) in (0, 3)
    answers = [json.loads(path.read_text(encoding="utf-8")) for path in (first, again, third)]
    assert all(answer.pop("made")["versions"] for answer in answers)  # beside when it was made, all is the same
    assert answers[0] == answers[1] == answers[2]
    capsys.readouterr()
    for value, text in (
        ({"max_steps": 3}, "made with max_steps=3"),
        ([1], "holds no request"),
        ({"lokc": []}, "'lokc' (did"),
    ):
        request.write_text(json.dumps(value), encoding="utf-8")
        assert main([*explain, "--request", str(request)]) == 2
        assert text in capsys.readouterr().err


def test_as_much_of_the_paths_is_written_as_is_asked_for(
    model_folder: Path, few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    explain = ["explain", str(model_folder), str(few), "--target-class", "yes"]
    for keep in ("all", "milestones", "end"):
        assert main([*explain, "--paths", keep, "--out", str(tmp_path / f"{keep}.json")]) in (0, 3)
    whole, kept, left = (Explanation.from_json(tmp_path / f"{keep}.json") for keep in ("all", "milestones", "end"))
    assert len(whole.paths) > len(kept.paths) > len(left.paths) == 0
    assert (whole.kept_paths, kept.kept_paths, left.kept_paths) == ("all", "milestones", "end")
    capsys.readouterr()
    shown = []
    for keep in ("all", "milestones"):
        assert main([*explain, "--steps", "--paths", keep]) in (0, 3)
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] == f"{whole.to_text(steps=True)}\n"
    for given in (["--target-class", "yes", "--paths", "end"], ["--request", str(tmp_path / "end.json")]):
        assert main([*explain[:3], "--steps", *given]) == 2
        assert "keep=end keeps none: try keep=milestones" in capsys.readouterr().err


def test_names_may_hold_the_signs_that_separate_them() -> None:
    schema = Schema(
        (
            Feature("a,b", "integer"),
            Feature("c=d", "integer"),
            Feature("c", "categorical", categories=("<=50K", ">50K", "x|y", "x")),
            Feature(" blank", "integer"),
            Feature("at", "ordinal", categories=("10:30", "11:00", "noon")),
        )
    )
    given = Options(
        lock=["a,b,c", " blank"],
        up=["at,a,b"],
        down=[],
        ranges=["c=d=1:2", "c=<=50K|x|y", "at=10:30:11:00", "a,b=-3:", " blank=:2.5"],
        max_changes=None,
        feature_costs=["c=d=2", "c=3"],
        plans=2,
    ).arguments(schema)
    assert given == {
        "lock": ["a,b", "c", " blank"],
        "directions": {"at": "up", "a,b": "up"},
        "ranges": {
            "c=d": [1, 2],
            "c": ["<=50K", "x|y"],
            "at": ["10:30", "11:00"],
            "a,b": [-3, None],
            " blank": [None, 2.5],
        },
        "max_changes": None,
        "feature_costs": {"c=d": 2, "c": 3},
        "plans": 2,
    }


def test_a_real_process_says_in_one_line_that_the_model_is_damaged(
    model_folder: Path, few: Path, tmp_path: Path
) -> None:
    broken = shutil.copytree(model_folder, tmp_path / "broken")
    weights = broken / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    done = _run("explain", broken, few)
    assert done.returncode == 2
    assert re.fullmatch(r"error: .*weights\.safetensors.* damaged.*\n", done.stderr)
    assert done.stdout == ""


def test_rows_from_standard_input_as_csv_on_standard_output(model_folder: Path, few: Path) -> None:
    done = _run("explain", model_folder, "-", "--target-class", "yes", "--out", "-", stdin=few.read_text())
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("row,age,income,job,owner,sex,status,reason,binding,class_before")
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


def test_the_terminal_view_and_the_code_for_rows_without_a_counterfactual(
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
    monkeypatch.setattr(Explainer, "explain", lambda *given, **options: make_plans())
    assert main(arguments) == 3
    shown = capsys.readouterr()
    assert shown.out == f"{make_plans()}\n"
    assert shown.err == "2 of 5 people have no plan (not_found 1, unknown_category 1); their reason is in the result\n"
    some = make_plans().select(["ann", "bob", "cem"])  # of whom cem has two plans of three, and bob needs none
    monkeypatch.setattr(Explainer, "explain", lambda *given, **options: some)
    assert main([*arguments, "--out", str(tmp_path / "plans.csv")]) == 0
    table = pd.read_csv(tmp_path / "plans.csv", index_col=["person", "plan"])
    assert table["status"].value_counts().to_dict() == {"found": 5, "no_other_plan": 3, "already": 1}


def test_the_steps_of_a_path_are_printed_below_its_row(
    model_folder: Path, few: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Explainer, "explain", lambda *given, **options: make_plans())
    assert main(["explain", str(model_folder), str(few), "--target-class", "yes", "--steps"]) == 3
    shown = capsys.readouterr().out
    assert shown == f"{make_plans().to_text(steps=True)}\n"
    assert "1. education-num: 9 → 9.96; hours-per-week: 40 → 42.49 (p 0.31)\n" in shown


def test_a_model_of_the_users_own(loans_file: Path, few: Path, tmp_path: Path) -> None:
    code = (
        "from torch import manual_seed, nn\nmanual_seed(0)\nscore = nn.Sequential(nn.Linear(7, 4), nn.Linear(4, 1))\n"
    )
    (tmp_path / "scoring.py").write_text(code)
    made = ("--model", "scoring:score")
    fit = _run("fit", loans_file, *SMALL_FIT, *made, "--out", "own", folder=tmp_path)
    assert (fit.returncode, fit.stderr) == (0, "")
    assert "Sequential, classes: no, yes" in fit.stdout
    assert _run("explain", "own", few, *made, "--target-class", "yes", folder=tmp_path).returncode in (0, 3)
    without = _run("explain", "own", few, folder=tmp_path)
    assert without.returncode == 2
    assert "Sequential, which is not stored" in without.stderr


def test_fit_says_what_it_made_and_leaves_nothing_else(
    loans_file: Path, model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "again"
    assert main(["fit", str(loans_file), *SMALL_FIT, "--out", str(folder)]) == 0
    shown = capsys.readouterr()
    assert "400 rows, 5 features, immutable: sex" in shown.out
    assert re.search(r"rest on are (good|fair|bad) here", shown.out)
    assert shown.err == ""
    assert [path.name for path in tmp_path.iterdir()] == ["again"]
    for name in ("config.json", "weights.safetensors"):
        assert (folder / name).read_bytes() == (model_folder / name).read_bytes()


def test_fit_refuses_a_folder_with_other_things_before_it_trains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    assert main(["fit", "gone.csv", *SMALL_FIT, "--out", str(tmp_path)]) == 2
    assert "nothing was saved" in capsys.readouterr().err


def test_a_killed_fit_goes_on_and_another_one_starts_over(
    loans_file: Path, model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, training = tmp_path / "model", tmp_path / ".model-training"
    process = subprocess.Popen(_command("fit", loans_file, *SMALL_FIT, "--out", out), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(training.glob("vae*.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert not out.exists()
    left = {path.name: path.read_bytes() for path in training.glob("vae*.safetensors")}
    assert left
    assert main(["fit", str(loans_file), *SMALL_FIT, "--out", str(out)]) == 0
    assert "going on from there" in capsys.readouterr().err
    assert (out / "weights.safetensors").read_bytes() == (model_folder / "weights.safetensors").read_bytes()
    training.mkdir()
    for name, content in left.items():
        (training / name).write_bytes(content)
    assert main(["fit", str(loans_file), *SMALL_FIT, "--seed", "1", "--out", str(out)]) == 0
    assert "belong to another fit" in capsys.readouterr().err
    assert not training.exists()
    assert Explainer.load(out).seed == 1


def test_schema_can_be_edited_and_given_to_fit(
    loans_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written, data = tmp_path / "schema.json", str(loans_file)
    edits = ["--set", "age.upper=90", "--set", "job.kind=ordinal", "--set", 'job.categories=["none","clerk","boss"]']
    assert main(["schema", data, "--target", "loan", *edits, "--immutable", "sex,age", "--out", str(written)]) == 0
    schema = Schema.load(written)
    assert schema.immutable == ("age", "sex")
    assert schema["age"].upper == 90
    assert schema["job"].categories == ("none", "clerk", "boss")
    capsys.readouterr()
    assert main(["schema", data, "--target", "loan", *edits, "--immutable", "sex,age"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(written.read_text(encoding="utf-8"))
    fit = [*SMALL_FIT, "--epochs", "1", "--schema", str(written), "--set", "income.transform=identity"]
    assert main(["fit", data, *fit, "--out", str(tmp_path / "model")]) == 0
    assert Explainer.load(tmp_path / "model").schema_ == schema.replace("income", transform="identity")


def test_an_identifier_can_be_dropped(loans: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ids.csv"
    loans.assign(person=[f"p{i}" for i in range(len(loans))]).to_csv(file, index=False)
    assert main(["schema", str(file)]) == 2
    assert "'person' looks like an identifier" in (message := capsys.readouterr().err)
    assert "--drop COLUMN" in message
    assert main(["schema", str(file), "--drop", "person"]) == 0


def test_evaluate_prints_and_writes_numbers(
    loans_file: Path, model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results.json"
    arguments = ["--target-class", "yes", "--rows", "20", "--methods", "sgd", "--out", str(out)]
    assert main(["evaluate", str(model_folder), str(loans_file), *arguments]) == 0
    shown = capsys.readouterr().out
    results = json.loads(out.read_text(encoding="utf-8"))
    assert f"400 rows: accuracy {results['accuracy']:.3f}" in shown
    assert f"Compared on 20 of {results['explainable']} rows that are rightly not classified as yes" in shown
    assert results["accuracy"] > 0.8
    assert results["explained"] == 20
    assert [row["method"] for row in results["own"]] == ["sgd", "nearest"]
    assert len({row["n"] for row in results["common"]}) == 1
    model = Explainer.load(model_folder)
    table = pd.read_csv(loans_file)
    right = (model.predict(table) == "no") & (table["loan"] == "no")
    assert results["explainable"] == right.sum()


def test_evaluate_needs_labels_that_the_model_knows(
    few: Path, loans: pd.DataFrame, model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(model_folder), str(few)]) == 2
    assert "unknown label column 'loan'" in capsys.readouterr().err
    strange = tmp_path / "strange.csv"
    loans.head(5).assign(loan="maybe").to_csv(strange, index=False)
    assert main(["evaluate", str(model_folder), str(strange)]) == 2
    assert "has the label 'maybe'; the model's classes are: no, yes" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".json"])
@pytest.mark.parametrize("made", [make(), make_plans()], ids=["one plan", "plans"])
def test_evaluate_refuses_what_explain_wrote(
    made: Explanation, suffix: str, model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"rows{suffix}"
    {".csv": made.to_csv, ".parquet": made.to_parquet, ".json": made.to_json}[suffix](file)
    assert main(["evaluate", str(model_folder), str(file)]) == 2
    assert f"rows{suffix} is what explain wrote, and has no labels" in capsys.readouterr().err


def test_demo_fits_once_and_repairs_a_damaged_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = datasets.load("adult")
    small = datasets.Dataset("adult", whole.train.head(600), whole.test.head(300), whole.target, whole.schema)
    monkeypatch.setattr(datasets, "load", lambda name: small)
    monkeypatch.setattr(demo, "PARAMETERS", {"method": "rsgd", "hidden": (32, 16), "epochs": 3, "seed": 0})
    monkeypatch.setattr(demo, "compare", lambda *given: compare(*given, methods=["rsgd"]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    arguments = ["demo", "--rows", "5", "--out", str(tmp_path / "out"), "--device", "cpu"]
    assert main(arguments) == 0
    first = capsys.readouterr()
    assert "fitting a model to 600 people" in first.err
    for name in ("report.html", "explanation.json", "counterfactuals.csv"):
        assert (tmp_path / "out" / name).stat().st_size > 0
    assert demo.TITLE in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert len(Explanation.from_json(tmp_path / "out" / "explanation.json")) == 5
    assert main(arguments) == 0
    assert "using the model in" in capsys.readouterr().err
    weights = next((tmp_path / "cache").rglob("weights.safetensors"))
    weights.write_bytes(b"damaged")
    assert main(arguments) == 0
    assert "cannot be used, and is fitted again" in capsys.readouterr().err
    assert main(arguments) == 0
    assert "using the model in" in capsys.readouterr().err


def test_ctrl_c_leaves_no_half_written_file(tmp_path: Path) -> None:
    process = subprocess.Popen(
        _command("reproduce", "surface", "--out", tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    checkpoints = tmp_path / "checkpoints" / "quick" / "seed-0"
    deadline = time.monotonic() + 60
    while not (checkpoints / "vae-mean.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert errors == "stopped\n"
    assert not [path.name for path in tmp_path.rglob(".*")]
    assert not (tmp_path / "results.json").exists()
