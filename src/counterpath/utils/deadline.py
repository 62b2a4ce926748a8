"""When to give up."""

import time
from collections.abc import Callable

Over = Callable[[], bool]
"""Whether a search that runs is to give up; it is asked between its steps."""


def unlimited() -> bool:
    """Go on until everything is done."""
    return False


def after(seconds: float | int | None, stop: Over | None = None) -> Over:
    """Give up so many seconds from now, and whenever `stop` says so; None is for no limit."""
    until = None if seconds is None else time.monotonic() + seconds
    if until is None and stop is None:
        return unlimited
    return lambda: (until is not None and time.monotonic() > until) or (stop is not None and stop())
