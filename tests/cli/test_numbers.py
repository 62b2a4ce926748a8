"""Numbers as targets on the command line: fit, explain, report, batch, audit."""

from pathlib import Path

import pandas as pd
import pytest

import counterpath as cp
from counterpath import Explanation
from counterpath.cli import main

pytestmark = pytest.mark.whole
LEAST = 90


@pytest.fixture(scope="module")
def folder(priced: cp.Explainer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return priced.save(tmp_path_factory.mktemp("numbers") / "prices")


@pytest.fixture
def cheap(priced: cp.Explainer, houses: pd.DataFrame, tmp_path: Path) -> Path:
    """A file of houses for which less is predicted."""
    path = tmp_path / "cheap.csv"
    rows = houses.drop(columns="price")[(priced.predict(houses) < 60).to_numpy()]
    rows.head(40).to_csv(path, index_label="house")
    return path


def test_answers_lie_in_the_range_in_files_and_in_words(
    folder: Path, cheap: Path, priced: cp.Explainer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["explain", str(folder), str(cheap), "--drop", "house", "--target-range", f"{LEAST}:"]
    assert main([*asked, "--out", str(tmp_path / "x.json")]) == 0
    capsys.readouterr()
    result = Explanation.from_json((tmp_path / "x.json").read_text())
    found = result.status["status"].isin(["found", "implausible"]).to_numpy()
    assert found.mean() > 0.9
    assert (priced.predict(result.counterfactuals[found]) >= LEAST).all()
    assert result.request["target_range"] == [LEAST, None]
    assert main([*asked, "--out", str(tmp_path / "x.html")]) == 0
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "at least 90 k€" in page
    assert "It would predict" in page


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ((), "is a regressor: say which numbers are wanted"),
        (("--target-range", "90:80"), "90"),
        (("--target-range", "many"), "--target-range 'many'"),
        (("--target-range", "90:", "--confidence", "0.8"), "confidence"),
        (("--target-class", "rich"), "target"),
    ],
)
def test_what_cannot_be_asked_of_a_regressor_is_said(
    options: tuple[str, ...], text: str, folder: Path, cheap: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(folder), str(cheap), "--drop", "house", *options]) == 2
    assert text in capsys.readouterr().err


def test_a_batch_takes_a_range_for_all_and_one_for_each(
    folder: Path, cheap: Path, priced: cp.Explainer, tmp_path: Path
) -> None:
    rows = pd.read_csv(cheap)
    out = tmp_path / "all"
    batch = ["batch", str(folder), "--device", "cpu", "--id", "house", "--workers", "1"]
    assert main([*batch, str(cheap), str(out), "--target-range", f"{LEAST}:110"]) == 0
    found = pd.read_parquet(out / "counterfactuals")
    good = found["status"].isin(["found", "implausible"])
    assert good.mean() > 0.9
    assert priced.predict(found[good][list(priced.schema_.names)]).between(LEAST, 110).all()
    own = rows.assign(target_low=80.0, target_high=90.0)
    own.loc[0, ["target_low", "target_high"]] = None, 20.0
    own.to_parquet(tmp_path / "own.parquet")
    out = tmp_path / "own"
    own_ranges = ["--constraints", "target_low,target_high", "--target-range", f"{LEAST}:"]
    assert main([*batch, str(tmp_path / "own.parquet"), str(out), *own_ranges]) == 0
    found = pd.read_parquet(out / "counterfactuals")
    said = priced.predict(found[list(priced.schema_.names)])
    good = found["status"].isin(["found", "implausible"]).to_numpy()
    assert good[1:].mean() > 0.9
    assert said[1:][good[1:]].between(80, 90).all()
    assert not good[0] or said.iloc[0] <= 20


def test_groups_are_audited(folder: Path, cheap: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["audit", str(folder), str(cheap), "--drop", "house", "--by", "rooms", "--target-range", f"{LEAST}:"]
    assert main([*asked, "--shared", "2"]) == 0
    said = capsys.readouterr().out
    assert "shared plans together give" in said
