"""How many examples a property is tried on."""

import os

_SHARE, _LEAST = 4, 10


def examples(count: int) -> int:
    """So many in `make test-slow`, which sets COUNTERPATH_PROPERTIES=all; in `make test` a fourth, and at least ten."""
    return count if os.environ.get("COUNTERPATH_PROPERTIES") == "all" else max(_LEAST, count // _SHARE)
