"""`counterpath demo`."""

from dataclasses import replace
from pathlib import Path

import pytest

from counterpath import Explanation
from counterpath.cli import demo, main
from counterpath.data import datasets
from counterpath.models import own

pytestmark = pytest.mark.whole


@pytest.mark.slow
def test_demo_fits_once_and_repairs_a_damaged_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = datasets.load("adult")
    small = replace(whole, train=whole.train.head(600), test=whole.train.head(300))
    monkeypatch.setattr(datasets, "load", lambda name: small)
    monkeypatch.setattr(own, "_EPOCHS", 2)
    monkeypatch.setattr(demo, "PARAMETERS", {"method": "rsgd", "hidden": (32, 16), "epochs": 3, "seed": 0})
    monkeypatch.setattr(demo, "COMPARED", ("nearest",))
    monkeypatch.setattr(demo, "PLANS", 2)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    arguments = ["demo", "--rows", "2", "--out", str(tmp_path / "out"), "--device", "cpu"]
    assert main(arguments) == 0
    first = capsys.readouterr()
    assert "fitting a model to 600 people" in first.err
    for name in ("report.html", "explanation.json", "counterfactuals.csv"):
        assert (tmp_path / "out" / name).stat().st_size > 0
    assert demo.TITLE in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "The model predicts ≤50K" in first.out
    result = Explanation.from_json(tmp_path / "out" / "explanation.json")
    assert len(result) == 2 * 2
    assert result.request["directions"] == {"age": "up", "education": "up"}
    assert main(arguments) == 0
    assert "using the model in" in capsys.readouterr().err
    weights = next((tmp_path / "cache").rglob("weights.safetensors"))
    weights.write_bytes(b"damaged")
    assert main(arguments) == 0
    assert "cannot be used, and is fitted again" in capsys.readouterr().err
    assert main(arguments) == 0
    assert "using the model in" in capsys.readouterr().err
