"""Commands in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import counterpath


def command(*arguments: object) -> list[str]:
    """The words of a command."""
    return [sys.executable, "-m", "counterpath.cli", *map(str, arguments)]


def run(*arguments: object, stdin: str = "", folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What a command prints and returns."""
    source = {"PYTHONPATH": str(Path(counterpath.__file__).parents[1])}  # whichever folder it runs in
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, input=stdin, cwd=folder, env=os.environ | source
    )
