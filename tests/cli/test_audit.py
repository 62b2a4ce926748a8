"""`counterpath audit`, on a table, on what explain wrote, and on what batch wrote."""

import json
from pathlib import Path

import pandas as pd
import pytest

import counterpath as cp
from counterpath.batch.audit import audit_folder
from counterpath.cli import main

ASKED = ("--target-class", "yes", "--paths", "end")


@pytest.fixture(scope="module")
def results(model_folder: Path, loans_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit") / "results"
    assert main(["batch", str(model_folder), str(loans_file), str(folder), *ASKED[:2]]) in (0, 3)
    return folder


def test_a_table_and_its_report(model_folder: Path, loans_file: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "audit.html"
    code = main(
        ["audit", str(model_folder), str(loans_file), *ASKED, "--by", "sex", "--shared", "2", "--out", str(out)]
    )
    assert code == 0
    assert "Holm" in capsys.readouterr().out
    assert "Plans that many people share" in out.read_text(encoding="utf-8")


def test_batch_results_give_the_same_means_whole_and_sampled(
    results: Path, model_folder: Path, fitted: cp.Explainer, loans: pd.DataFrame, tmp_path: Path
) -> None:
    out = tmp_path / "audit.json"
    assert main(["audit", str(model_folder), str(results), "--by", "sex", "--out", str(out)]) == 0
    whole = pd.DataFrame(json.loads(out.read_text(encoding="utf-8"))["differences"]).set_index("measure")
    here = fitted.audit(loans, "sex", find=False, target_class="yes", paths="end").differences.set_index("measure")
    assert whole.loc["l1", "difference"] == pytest.approx(here.loc["l1", "difference"], abs=1e-6)
    few = audit_folder(fitted.schema_, results, ["sex"], sample=300).differences.set_index("measure")
    line, other = few.loc["l1"], here.loc["l1"]  # which of two groups is the smaller one may differ in a sample
    sign = 1 if line["group"] == other["group"] else -1
    assert line["difference"] == pytest.approx(sign * other["difference"], abs=1e-6)
    assert line["n"] + line["n_against"] == other["n"] + other["n_against"]


def test_a_feature_that_may_have_changed_is_no_group_of_a_batch(results: Path, model_folder: Path, capsys) -> None:
    assert main(["audit", str(model_folder), str(results), "--by", "job"]) == 2
    assert "may have changed" in " ".join(capsys.readouterr().err.split())
