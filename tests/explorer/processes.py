"""An explorer in a process of its own."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import counterpath as cp

ROOT = Path(__file__).parents[2]
WAIT = 60_000
"""Milliseconds that anything on the page may take on a busy machine."""


@contextmanager
def run_python(folder: Path, *command: str) -> Iterator[str]:
    """Run Python in a folder while the block runs, and give the address that it writes among its messages."""
    source = str(Path(cp.__file__).parents[1])
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([source, str(ROOT), *sys.path[1:]]),
    }
    log = folder / "messages.txt"
    with log.open("w") as messages:
        process = subprocess.Popen([sys.executable, *command], stderr=messages, env=environment, cwd=folder)
    try:
        yield _address(process, log)
        process.terminate()
        process.wait(timeout=WAIT / 1000)
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in log.read_text(), log.read_text()
    assert not list(folder.glob(".nicegui*")), "the explorer kept something on the disk"


def _address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        if found := re.search(r"http://[\w.:]+", log.read_text()):
            return found.group()
        time.sleep(0.05)
    raise AssertionError(f"no page: {log.read_text()}")


def run_explorer(folder: Path, *arguments: str) -> AbstractContextManager[str]:
    """The explorer, as the command line starts it in a folder."""
    return run_python(folder, "-m", "counterpath.cli", "app", *arguments, "--no-open", "--port", "0")
