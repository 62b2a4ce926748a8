"""When, with what and how fast something was made, so that it can be made again."""

import platform
import time
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from importlib.metadata import version
from typing import Any

LIBRARIES = ("torch", "numpy", "pandas", "scikit-learn")
"""What answers may depend on, beside Counterpath itself."""


def made_since(started: float) -> dict[str, Any]:
    """What to keep about something that was begun at a time of `time.monotonic`, and is done now."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - started, 3),
        "versions": versions(),
    }


@cache
def versions() -> dict[str, str]:
    """Of Counterpath, of Python, and of what answers may depend on."""
    return {
        "counterpath": import_module("counterpath").__version__,  # is still being imported when this module is
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
    }
