"""How much memory a job takes, all of its processes together, and whether that grows with the rows."""

import time
from pathlib import Path
from typing import Any

from . import processes
from .jobs import BatchCommand, messages

MOST_GROWTH = 0.05
"""By which share ten times as many rows may take more memory: nothing is to grow with them, and peaks vary a little."""
_POLL_SECONDS = 0.05
"""Between two looks: often enough to see a peak, rarely enough not to slow the job."""


def peak(command: BatchCommand, out: Path) -> dict[str, Any]:
    """The most memory of a job at any time, in bytes, looked at every 50 ms."""
    highest, looks, started = 0, 0, time.monotonic()
    with command.start(out) as process:
        while process.poll() is None:
            highest, looks = max(highest, processes.memory(process.pid)), looks + 1
            time.sleep(_POLL_SECONDS)
    if process.returncode:
        raise RuntimeError(messages(out).read_text(encoding="utf-8"))
    return {"peak_bytes": highest, "seconds": time.monotonic() - started, "looks": looks}


def compare(commands: dict[int, BatchCommand], scratch: Path) -> dict[str, Any]:
    """The peak by number of rows, and by how much that of the most rows is above that of the fewest."""
    peaks = {rows: peak(command, scratch / f"out-{rows}") for rows, command in sorted(commands.items())}
    fewest, most = peaks[min(peaks)]["peak_bytes"], peaks[max(peaks)]["peak_bytes"]
    growth = most / fewest - 1
    return {"by_rows": {str(rows): one for rows, one in peaks.items()}, "growth": growth, "held": growth <= MOST_GROWTH}
