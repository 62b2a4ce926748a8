"""Digits: what is measured, and that the whole experiment writes what it promises."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from counterpath.cli.reproduce import EXPERIMENTS
from counterpath.experiments import digits
from counterpath.experiments.digits import Digits, Judges, Preset
from counterpath.utils.errors import InputError


def test_the_images_are_split_by_the_seed_and_scaled() -> None:
    first, second = Digits.load(0), Digits.load(1)
    assert len(first.train) + len(first.test) == 1797
    assert not first.test.equals(second.test)
    pd.testing.assert_frame_equal(first.test, Digits.load(0).test)
    x = digits.scaled(first.train)
    assert x.shape == (len(first.train), 64)
    assert (float(x.min()), float(x.max())) == (0.0, 1.0)
    assert set(first.test["digit"]) == set(range(10))


def test_judges_know_digits_from_noise() -> None:
    images = Digits.load(0)
    judges = Judges.fit(images.train, 0)
    real = judges.measure(images.test, images.test["digit"].tolist())
    assert real["judged"] > 0.95
    noise = images.test.copy()
    noise[list(digits.pixels())] = np.random.default_rng(0).uniform(0, 16, (len(noise), 64))
    made_up = judges.measure(noise, noise["digit"].tolist())
    assert made_up["judged"] < 0.3
    assert made_up["ld"] > 1.5 * real["ld"]
    assert made_up["lof"] > real["lof"] + 0.2
    assert judges.measure(images.train, images.train["digit"].tolist())["ld"] == 0


@pytest.mark.whole
@pytest.mark.filterwarnings(
    "ignore:The generative model keeps less than half:counterpath.utils.errors.CounterpathWarning"
)
@pytest.mark.slow
def test_the_experiment_writes_what_it_promises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(digits.PRESETS, "tiny", Preset((2,), ("rbf",), 2, 1, 3, 2, 2))
    results = digits.reproduce(preset="tiny", seeds=[0], device="cpu", out=tmp_path, progress=False)
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8")) == results
    assert [row["method"] for row in results["table"]] == list(digits.METHODS)
    nearest = results["table"][-1]
    assert nearest["flip_ratio"] == 1.0
    assert nearest["ld"] == pytest.approx(0, abs=1e-6)
    assert nearest["judged"] == 1.0  # a training image, which the forest has learned
    assert set(results["stability"]) == {"rbf", "ensemble"}
    assert results["stability"]["rbf"]["retrainings"] == 2
    assert "| nearest |" in (tmp_path / "table.md").read_text(encoding="utf-8")
    assert {path.name for path in (tmp_path / "figures").glob("*.png")} == {"paths.png", "latent-size.png"}


def test_the_command_knows_the_experiment_and_refuses_an_unknown_preset(tmp_path: Path) -> None:
    assert "digits" in EXPERIMENTS
    with pytest.raises(InputError, match="preset"):
        digits.reproduce(preset="slow", out=tmp_path)
    assert torch.equal(digits.scaled(Digits.load(0).train), digits.scaled(Digits.load(0).train))
