"""What all commands have in common: help, exit codes, and mistakes."""

import re
from pathlib import Path

import pytest

from counterpath import __version__
from counterpath.cli import EXIT_CODES, main
from tests.cli.processes import run

pytestmark = pytest.mark.whole


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version").stdout.strip() == __version__
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
    (("reproduce", "surface", "--methods", "rsgd,teleport"), "unknown method 'teleport'"),
    (("reproduce", "adult", "--methods", "rsgd"), "--methods is for surface"),
    (("fit", "DATA"), "needs --target COLUMN"),
    (("fit", "DATA", "--target", "lone"), "unknown target 'lone' (did you mean 'loan'?)"),
    (("fit", "gone.csv", "--target", "loan"), "gone.csv cannot be read: No such file"),
    (("fit", "DATA", "--target", "loan", "--immutable", "height"), "unknown column 'height'"),
    (("fit", "DATA", "--target", "loan", "--drop", "height"), "unknown column 'height'"),
    (("fit", "DATA", "--target", "loan", "--method", "rgsd"), "did you mean 'rsgd'"),
    (("fit", "gone.csv", "--target", "loan", "--epochs", "0"), "--epochs must be a positive number; given 0"),
    (("fit", "gone.csv", "--target", "loan", "--hidden", "a"), "whole numbers separated by commas"),
    (("fit", "gone.csv", "--target", "loan", "--class-weight", "heavy"), "choose one of: balanced"),
    (("fit", "gone.csv", "--target", "loan", "--missing", "guess"), "choose one of: auto, keep, impute, error"),
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
