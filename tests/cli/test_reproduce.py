"""`counterpath reproduce`."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.processes import command

pytestmark = pytest.mark.whole


@pytest.mark.slow
def test_ctrl_c_leaves_no_half_written_file(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("reproduce", "surface", "--out", tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    checkpoints = tmp_path / "checkpoints" / "quick" / "seed-0"
    deadline = time.monotonic() + 60
    while not list(checkpoints.glob("*.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert errors == "stopped\n"
    assert not [path.name for path in tmp_path.rglob(".*")]
    assert not (tmp_path / "results.json").exists()
