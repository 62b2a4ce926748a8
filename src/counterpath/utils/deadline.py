"""When a search is to stop early."""

import time
from collections.abc import Callable

ShouldStop = Callable[[], bool]
"""Whether a search that is running is to stop; called between its steps."""


def never_stop() -> bool:
    """Run until everything is done."""
    return False


def stop_after(seconds: float | int | None, should_stop: ShouldStop | None = None) -> ShouldStop:
    """Stop so many seconds from now, and whenever `should_stop` is true; None is for no time limit."""
    deadline = None if seconds is None else time.monotonic() + seconds
    if deadline is None and should_stop is None:
        return never_stop
    return lambda: (deadline is not None and time.monotonic() > deadline) or (should_stop is not None and should_stop())
