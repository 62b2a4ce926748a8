"""`counterpath fit`."""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from counterpath.cli import main
from counterpath.explainer.explainer import Explainer
from counterpath.models import own
from tests.cli.processes import command, run
from tests.conftest import SMALL_FIT

pytestmark = pytest.mark.whole


@pytest.mark.slow
def test_a_model_of_the_users_own(
    loans_file: Path, few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = (
        "from torch import manual_seed, nn\nmanual_seed(0)\nscore = nn.Sequential(nn.Linear(7, 4), nn.Linear(4, 1))\n"
    )
    (tmp_path / "scoring.py").write_text(code)
    model = ("--model", "scoring:score")
    fit = run("fit", loans_file, *SMALL_FIT, *model, "--out", "own", folder=tmp_path)
    assert (fit.returncode, fit.stderr) == (0, "")
    assert "Sequential, classes: no, yes" in fit.stdout
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as `python -m` does
    assert main(["explain", "own", str(few), *model, "--target-class", "yes"]) in (0, 3)
    monkeypatch.delitem(sys.modules, "scoring")
    assert main(["explain", "own", str(few)]) == 2
    assert "Sequential, which is not stored" in capsys.readouterr().err


def test_fit_says_what_it_made_and_leaves_nothing_else(
    loans_file: Path, model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "again"
    assert main(["fit", str(loans_file), *SMALL_FIT, "--out", str(folder)]) == 0
    shown = capsys.readouterr()
    assert "400 rows, 5 features, immutable: sex" in shown.out
    assert re.search(r"rest on are (good|fair|bad) here", shown.out)
    assert shown.err == ""
    assert [path.name for path in tmp_path.iterdir()] == ["again"]
    for name in ("config.json", "weights.safetensors"):
        assert (folder / name).read_bytes() == (model_folder / name).read_bytes()


def test_fit_replaces_a_model_only_if_it_is_told_to(
    loans_file: Path, model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    before = (folder / "weights.safetensors").read_bytes()
    again = ["fit", str(loans_file), *SMALL_FIT, "--seed", "1", "--out", str(folder)]
    assert main(again) == 2
    said = capsys.readouterr().err
    assert "holds a model already" in said
    assert "add --force to replace it, or give another --out" in said
    assert (folder / "weights.safetensors").read_bytes() == before
    assert main([*again, "--force", "--threshold", "yes=0.2"]) == 0
    assert (folder / "weights.safetensors").read_bytes() != before
    assert Explainer.load(folder).threshold == {"yes": 0.2}


@pytest.mark.parametrize(
    ("threshold", "said"),
    [
        ("1.5", "the threshold of class 'yes' is 1.5; expected a number between 0 and 1"),
        ("maybe=0.2", "threshold has the class 'maybe', which does not exist"),
        ("low", "--threshold 'low': 'low' is no number"),
    ],
)
def test_a_threshold_that_cannot_be_is_refused(
    loans_file: Path, tmp_path: Path, threshold: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--threshold", threshold, "--out", str(tmp_path / "model"))
    assert main(["fit", str(loans_file), *SMALL_FIT, *arguments]) == 2
    assert said in capsys.readouterr().err


def test_fit_refuses_a_folder_with_other_things_before_it_trains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    assert main(["fit", "gone.csv", *SMALL_FIT, "--out", str(tmp_path)]) == 2
    assert "nothing was saved" in capsys.readouterr().err


@pytest.mark.slow
def test_a_killed_fit_goes_on_and_another_one_starts_over(
    loans_file: Path,
    model_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, training = tmp_path / "model", tmp_path / ".model-training"
    process = subprocess.Popen(command("fit", loans_file, *SMALL_FIT, "--out", out), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(training.glob("vae*.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert not out.exists()
    left = {path.name: path.read_bytes() for path in training.glob("vae*.safetensors")}
    assert left
    assert main(["fit", str(loans_file), *SMALL_FIT, "--out", str(out)]) == 0
    assert "going on from there" in capsys.readouterr().err
    assert (out / "weights.safetensors").read_bytes() == (model_folder / "weights.safetensors").read_bytes()
    monkeypatch.setattr(own, "_EPOCHS", 2)  # how good the other one is, is not looked at
    training.mkdir()
    for name, content in left.items():
        (training / name).write_bytes(content)
    assert main(["fit", str(loans_file), *SMALL_FIT, "--seed", "1", "--force", "--out", str(out)]) == 0
    assert "belong to another fit" in capsys.readouterr().err
    assert not training.exists()
    assert Explainer.load(out).seed == 1
