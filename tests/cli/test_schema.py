"""`counterpath schema`."""

import json
from pathlib import Path

import pandas as pd
import pytest

from counterpath import Schema
from counterpath.cli import main
from counterpath.explainer.explainer import Explainer
from tests.conftest import SMALL_FIT

pytestmark = pytest.mark.whole


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
