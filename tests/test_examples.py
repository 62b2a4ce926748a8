"""Every example, run as a user runs it."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from counterpath.models import own, surrogate

pytestmark = pytest.mark.whole
ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


SAYS = {
    "own_dataframe": "A loaded explainer gives the same answers: True",
    "own_torch_model": "Representation: the output of the layer 'features'",
    "xgboost_model": "counterfactuals the probability 0.6 or more.",
    "own_generator": "Our uncertainty tells data from empty space: AUC 0.9",
    "spark": "Other batches give the same results: True",
    "own_method": "towards-accepted  found",
    "rules_and_numbers": "It would predict at least 40 MPa",
    "lasting_answers": "of 50 retrained models.",
    "new_metric": "mean distance that features move, of their range",
    "sklearn_pipeline": "The pipeline itself decides '>50K' for ",
    "lightgbm_model": "Dtypes are as they were: True",
    "categories": "with these unlocked",
    "regression": "The regressor predicts 40 to 50 MPa for ",
    "shared_plans": "Three plans serve ",
    "digits": "threes became an eight for the model.",
}
"""Part of what each example prints."""
AS_A_PROCESS = "own_dataframe"
"""The example that is run at its full size, in a process, also where the others are not."""
QUICK = ("own_method", "rules_and_numbers", "xgboost_model")
"""Examples that `make test` tries at a smaller size; `make test-slow` runs all."""


def run(name: str) -> str:
    """Run an example in a process of its own; its networks are small, so that more than one thread slows it down."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        capture_output=True,
        encoding="utf-8",
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name != AS_A_PROCESS else []) for name in sorted(SAYS)]
)
def test_the_example_runs_and_says_what_it_promises(name: str) -> None:
    _check(name, run(name))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # as where a user runs it
@pytest.mark.parametrize("name", QUICK)
def test_it_does_so_with_a_classifier_and_a_surrogate_that_learn_for_less_long(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(surrogate, "STEPS", 300)
    monkeypatch.setattr(own, "_EPOCHS", 10)
    path = str(EXAMPLES / f"{name}.py")
    monkeypatch.setattr(sys, "argv", [path])
    runpy.run_path(path, run_name="__main__")
    _check(name, capsys.readouterr().out)


def _check(name: str, said: str) -> None:
    assert SAYS[name] in said
    CHECKS.get(name, lambda text: None)(said)


def _check_own_torch_model(said: str) -> None:
    least = float(said.split("probabilities from ")[1].split()[0])
    assert least >= 0.6, "a counterfactual is not one for the network itself"


def _check_xgboost_model(said: str) -> None:
    reached, of, found = said.split("XGBoost gives ")[1].split()[:3]
    assert of == "of"
    assert reached == found != "0"


def _check_new_metric(said: str) -> None:
    rows = {line.split()[0]: [float(word) for word in line.split()[2:4]] for line in said.splitlines()[1:]}
    assert rows["effort"][0] < rows["rsgd"][0], "features that are hard to change do not move less"


def _check_all_of(said: str, before: str) -> None:
    """That a sentence with "… 5 of 5 …" after `before` names as many as there are."""
    reached, of, found = said.split(before)[1].split()[:3]
    assert of == "of"
    assert reached == found != "0"


def _check_categories(said: str) -> None:
    cost, less = (float(part.split(".")[0] + "." + part.split(".")[1][:2]) for part in _numbers(said))
    assert less <= cost, "what may change more costs more"


def _numbers(said: str) -> list[str]:
    before, after = said.split("Mean L1 of the answers: ")[1].split("; with these unlocked ")
    return [before, after]


def _check_digits(said: str) -> None:
    assert int(said.split(" of ")[0].split()[-1]) >= 3, "hardly any three became an eight"


CHECKS = {
    "sklearn_pipeline": lambda said: _check_all_of(said, "The pipeline itself decides '>50K' for "),
    "lightgbm_model": lambda said: _check_all_of(said, "LightGBM gives "),
    "regression": lambda said: _check_all_of(said, "The regressor predicts 40 to 50 MPa for "),
    "categories": _check_categories,
    "digits": _check_digits,
    "own_torch_model": _check_own_torch_model,
    "xgboost_model": _check_xgboost_model,
    "new_metric": _check_new_metric,
}
"""What must be true of the numbers that an example prints."""
