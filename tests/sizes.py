"""How many examples a property is tried on."""

import os

_SHARE, _LEAST = 4, 10
ALL_EXAMPLES = os.environ.get("COUNTERPATH_PROPERTIES") == "all"
"""Whether this is `make test-slow`."""


def examples(count: int, share: int = _SHARE, least: int = _LEAST) -> int:
    """So many in `make test-slow`, which sets COUNTERPATH_PROPERTIES=all; in `make test` a fourth, and at least ten.

    Args:
        count: How many.
        share: Which part of them is tried in `make test`, where an example takes long.
        least: How many are tried at least, where one takes very long.
    """
    return count if ALL_EXAMPLES else max(least, count // share)
