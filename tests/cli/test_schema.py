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
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["age", "integer", "up", "to", "90", "no"] in lines
    assert ["income", "continuous", "in", "steps", "of", "0.01", "yes"] in lines
    assert schema["job"].categories == ("none", "clerk", "boss")
    capsys.readouterr()
    assert main(["schema", data, "--target", "loan", *edits, "--immutable", "sex,age"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(written.read_text(encoding="utf-8"))
    fit = [*SMALL_FIT, "--epochs", "1", "--schema", str(written), "--set", "income.transform=identity"]
    assert main(["fit", data, *fit, "--out", str(tmp_path / "model")]) == 0
    assert Explainer.load(tmp_path / "model").schema_ == schema.replace("income", transform="identity")


def test_an_identifier_is_left_out_and_new_rows_may_have_it(
    loans: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, model = tmp_path / "ids.csv", tmp_path / "model"
    people = loans.assign(person=[f"p{i}" for i in range(len(loans))])
    people.to_csv(file, index=False)
    assert main(["fit", str(file), *SMALL_FIT, "--epochs", "1", "--out", str(model)]) == 0
    assert "left out: 'person' (identifies rows: " in capsys.readouterr().err
    for rows in (people.head(2), loans.head(2)):
        rows.to_csv(file, index=False)
        assert main(["explain", str(model), str(file)]) in (0, 3)  # 3: not every row has a counterfactual


def test_a_schema_to_edit_leaves_out_what_cannot_be_a_feature(
    loans: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, written = tmp_path / "lists.json", tmp_path / "schema.json"
    loans.assign(tags=[["a"]] * len(loans)).to_json(file, orient="records")
    assert main(["fit", str(file), "--target", "loan", "--out", str(tmp_path / "model")]) == 2
    assert "1 of 6 columns cannot be features" in (message := capsys.readouterr().err)
    assert "--drop COLUMN" in message
    assert main(["schema", str(file), "--target", "loan", "--out", str(written)]) == 0
    assert Schema.load(written).ignored["tags"].startswith("it has values like ['a']")
    assert "left out: 'tags'" in capsys.readouterr().err
