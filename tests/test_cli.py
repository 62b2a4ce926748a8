import signal
import subprocess
import sys
import time
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


def test_ctrl_c_leaves_no_half_written_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "counterpath.cli", "reproduce", "surface", "--out", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    checkpoints = tmp_path / "checkpoints" / "quick" / "seed-0"
    deadline = time.monotonic() + 60
    while not (checkpoints / "vae-mean.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode not in (0, None)
    assert "Traceback" not in errors
    assert not [path.name for path in tmp_path.rglob(".*")]
    assert not (tmp_path / "results.json").exists()
