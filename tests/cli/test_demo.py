"""`counterpath demo`."""

import sys
from pathlib import Path

import pytest

from counterpath import Explanation
from counterpath.cli import demo, main
from counterpath.data import datasets
from counterpath.explainer.compare import compare
from counterpath.fitting import train

pytestmark = pytest.mark.whole


def test_demo_fits_once_and_repairs_a_damaged_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = datasets.load("adult-carla")
    small = datasets.Dataset("adult-carla", whole.train.head(600), whole.test.head(300), whole.target, whole.schema)
    monkeypatch.setattr(datasets, "load", lambda name: small)
    monkeypatch.setattr(train, "_CLASSIFIER_STEPS", 100)
    monkeypatch.setattr(demo, "PARAMETERS", {"method": "rsgd", "hidden": (32, 16), "epochs": 3, "seed": 0})
    monkeypatch.setattr(sys.modules[compare.__module__], "compare", lambda *given: compare(*given, methods=["rsgd"]))
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
