"""`counterpath doctor`."""

import json
import sys
from importlib.metadata import version
from typing import Any

import pytest

from counterpath.cli import doctor, main
from counterpath.explainer.explainer import Explainer


@pytest.fixture(autouse=True)
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray takes seconds to import, and writes to the terminal."""
    monkeypatch.setattr(doctor, "EXTRAS", {name: extra for name, extra in doctor.EXTRAS.items() if name == "flow"})


def test_it_says_what_is_there_and_tries_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", "--device", "cpu"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["ok"]
    assert said["self_test"]["steps"] == dict.fromkeys(("found", "valid", "same after saving"), True)
    assert {"torch", "pandas", "scikit-learn"} <= set(said["libraries"])
    assert all(said["libraries"].values())
    assert said["extras"] == {"flow": f"zuko {version('zuko')}"}
    assert said["device"].startswith("cpu")


def test_an_extra_that_is_missing_is_named_and_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "zuko", None)
    assert main(["doctor", "--no-test"]) == 0
    out = capsys.readouterr().out
    assert "not installed (zuko is missing)" in out
    assert "left out" in out


def test_what_breaks_is_said_and_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(self: Any, *_: Any, **__: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Explainer, "fit", broken)
    assert main(["doctor"]) == 1
    assert "OSError: no space left on device" in capsys.readouterr().out


def test_a_device_that_is_not_there_is_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--device", "cuda:99"]) == 1
    assert "torch sees" in capsys.readouterr().out


def test_a_library_that_is_needed_and_missing_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        doctor.metadata,
        "requires",
        lambda _: ["torch>=2.6", "no-such-library>=1; extra == 'x'", "nothing-of-the-kind>=1"],
    )
    assert main(["doctor", "--no-test"]) == 1
    out = capsys.readouterr().out
    assert "nothing-of-the-kind" in out
    assert "no-such-library" not in out
