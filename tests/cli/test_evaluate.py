"""`counterpath evaluate`."""

import json
from pathlib import Path

import pandas as pd
import pytest

from counterpath import Explanation
from counterpath.cli import main
from counterpath.explainer.explainer import Explainer
from tests.explanation.conftest import make, make_plans

pytestmark = pytest.mark.whole


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
@pytest.mark.parametrize("explanation", [make(), make_plans()], ids=["one plan", "plans"])
def test_evaluate_refuses_what_explain_wrote(
    explanation: Explanation, suffix: str, model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"rows{suffix}"
    {".csv": explanation.to_csv, ".parquet": explanation.to_parquet, ".json": explanation.to_json}[suffix](file)
    assert main(["evaluate", str(model_folder), str(file)]) == 2
    assert f"rows{suffix} is what explain wrote, and has no labels" in capsys.readouterr().err
