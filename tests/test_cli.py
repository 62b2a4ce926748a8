import subprocess
import sys
from pathlib import Path

import pytest

from counterpath import __version__


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "counterpath.cli", *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("reproduce", "moon"), "unknown experiment 'moon'; choose one of: surface, adult, gmc"),
        (("reproduce", "surface", "--preset", "huge"), "unknown preset 'huge'; choose one of: quick, paper"),
        (("reproduce", "surface", "--device", "abacus"), "unknown device 'abacus'"),
        (("reproduce", "surface", "--seeds", "one"), "whole numbers separated by commas"),
    ],
)
def test_mistakes_are_one_message_and_write_nothing(arguments: tuple[str, ...], text: str, tmp_path: Path) -> None:
    done = _run(*arguments, "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_version_and_help() -> None:
    assert _run("--version").stdout.strip() == __version__
    assert "reproduce" in _run("--help").stdout
