import json
import re
from pathlib import Path

import pytest
import torch

from counterpath.cli import main

QUICK = ("bench", "--quick", "--rows", "32", "--device", "cpu")


def test_bench_prints_tables_and_writes_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, before = tmp_path / "figures.json", torch.get_num_threads()
    assert main([*QUICK, "--what", "step,search", "--threads", "1", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    for text in ("One step", "(c) floor", "rsgd-c", "A search of all rows", "1 threads"):
        assert text in printed.out
    results = json.loads(out.read_text(encoding="utf-8"))
    assert results["settings"]["rows"] == 32
    assert {row["method"] for row in results["step"]} == {"rsgd", "rsgd-c", "sgd"}
    measured = {row["variant"] for row in results["step"]}
    # What cannot be measured is said, and is no error.
    assert ("paper" in measured) != bool(results["not_measured"])
    assert ("not measured: " in printed.out) == bool(results["not_measured"])
    assert "wrote" in printed.err
    assert torch.get_num_threads() == before


def test_bench_writes_markdown(tmp_path: Path) -> None:
    out = tmp_path / "tables.md"
    assert main([*QUICK, "--what", "growth", "--out", str(out)]) == 0
    assert "### One RSGD step as sizes grow" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--what", "duration"), "unknown part of the benchmark 'duration'; choose one of: step, growth, search, runs"),
        (("--what", ","), "names nothing to measure"),
        (("--rows", "0"), "--rows must be a positive number"),
        (("--threads", "0"), "--threads must be a positive number"),
        (("--out", "figures.csv"), "neither .json nor .md"),
        (("--models", "nowhere"), "--models nowhere is not a folder"),
        (("--what", "fit,pears"), "unknown part of the benchmark 'pears' (did you mean 'peers'?); choose one of: step"),
        (("--device", "abacus"), "unknown device 'abacus'"),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == 2
    assert problem in re.sub(r"\s+", " ", capsys.readouterr().err)
