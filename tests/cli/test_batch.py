import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from counterpath.cli import main
from counterpath.explainer.explainer import Explainer


@pytest.fixture
def rows(loans: pd.DataFrame, tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    people = loans.head(24).assign(person=[f"p{row}" for row in range(24)])
    people[:12].to_parquet(folder / "1.parquet")
    people[12:].to_csv(folder / "2.csv", index=False)
    return folder


@pytest.mark.slow
def test_a_batch_is_explained_by_processes_and_summed_up_in_json(
    model_folder: Path,
    rows: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    fitted: Explainer,
    loans: pd.DataFrame,
) -> None:
    out = tmp_path / "out"
    (rows / "3.parquet").write_bytes((rows / "1.parquet").read_bytes()[:100])
    options = ["--target-class", "yes", "--method", "nearest", "--lock", "job", "--id", "person", "--milestones"]
    command = ["batch", model_folder, rows, out, *options, "--shard-rows", "5", "--workers", "2", "--device", "cpu"]
    assert main([str(part) for part in command]) == 4
    shown = capfd.readouterr()
    summary = json.loads(shown.out)
    assert summary == json.loads((out / "summary.json").read_text())
    assert (summary["rows"], summary["workers"], summary["engine"]) == (24, 2, "local")
    assert summary["request"]["lock"] == ["job"]
    assert "shard 00002 (3.parquet) is in quarantine" in shown.err
    found = pd.read_parquet(out / "counterfactuals")
    assert found["person"].tolist() == [f"p{row}" for row in range(24)]
    expected = fitted.explain(loans.head(24), "yes", method="nearest", lock=["job"], paths="milestones")
    assert found["status"].tolist() == expected.status["status"].tolist()
    assert pq.read_table(out / "milestones").num_rows == len(expected.paths)
    (rows / "3.parquet").unlink()
    assert main([str(part) for part in command]) == 2
    assert "the input 3.parquet is gone" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--engine", "spark"], "unknown engine 'spark'; choose one of: local, ray"),
        (["--address", "auto"], "--address is where a Ray cluster is; add --engine ray"),
        (["--workers", "0"], "--workers must be a positive number"),
        (["--shard-rows", "-1"], "--shard-rows must be a positive number"),
        (["--confidence", "7"], "a confidence lies between 0 and 1"),
        (["--method", "magic"], "unknown method 'magic'"),
        (["--target-class", "maybe"], "unknown target class 'maybe'"),
        (["--lock", "shoes"], "shoes"),
        (["--id", "shoes"], "it has no column shoes"),
    ],
)
def test_wrong_options_are_one_line_and_nothing_is_written(
    model_folder: Path, rows: Path, tmp_path: Path, options: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["batch", str(model_folder), str(rows), str(tmp_path / "out"), "--device", "cpu", *options])
    shown = capsys.readouterr()
    assert (code, shown.out) == (2, "")
    assert problem in shown.err
    assert not (tmp_path / "out" / "counterfactuals").exists()
