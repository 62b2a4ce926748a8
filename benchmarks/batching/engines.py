"""The same job on the local engine and on Ray."""

from pathlib import Path
from typing import Any

from .jobs import BatchCommand, faults


def compare(command: BatchCommand, rows: int, scratch: Path) -> dict[str, Any]:
    """Run a job on both engines: the tables must be equal to the byte, and hold every row exactly once."""
    ended = {name: command.with_options("--engine", name).run(scratch / name) for name in ("local", "ray")}
    found = [f"{name}: exit code {one.code}: {one.messages.strip()[-500:]}" for name, one in ended.items() if one.code]
    found = found or [
        *faults(scratch / "local", scratch / "local"),  # whether each row is there once is seen without the other
        *faults(scratch / "ray", scratch / "local"),
    ]
    return {
        "rows": rows,
        "seconds": {name: one.seconds for name, one in ended.items()},
        "rows_per_second": {name: rows / one.seconds for name, one in ended.items()},
        "faults": found,
        "held": not found,
    }
