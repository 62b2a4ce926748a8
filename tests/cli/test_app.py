"""`counterpath app`: what it refuses before it serves anything."""

from pathlib import Path

import pytest

from counterpath.cli import main


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nowhere"], "nowhere"),
        (["--host", "0.0.0.0"], "there is no --token"),
        (["--rows", "people.docx"], "kind of table"),
        (["--port", "70000"], "0 to 65535"),
    ],
)
def test_what_cannot_be_served_is_said_at_once(
    arguments: list[str],
    problem: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("nicegui", reason="the extra app is not installed")
    monkeypatch.chdir(tmp_path)
    assert main(["app", *arguments, "--no-open"]) == 2
    assert problem in capsys.readouterr().err
