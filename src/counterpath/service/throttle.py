"""How often a client may do something: a bucket of tokens for each, which fills at a steady rate."""

import time
from collections import OrderedDict
from collections.abc import Callable

from counterpath.data.schema import Number

_MOST_CLIENTS = 10_000
"""Clients that are remembered, those seen last: a megabyte or two, and more than a service like this one has."""


class Throttle:
    """Counts what clients do.

    Args:
        rate: How often a second, in the long run.
        burst: How often at once.
        clock: The time in seconds.
    """

    def __init__(self, rate: Number, burst: Number, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Do it once more: 0 if that may be, else in how many seconds it may."""
        left = self._now(client)
        if left < 1:
            return (1 - left) / self._rate
        self._set(client, left - 1)
        return 0.0

    def wait(self, client: str) -> float:
        """In how many seconds it may be done; 0 for now. It is not counted."""
        return max(0.0, (1 - self._now(client)) / self._rate)

    def _now(self, client: str) -> float:
        left, then = self._left.get(client, (float(self._burst), self._clock()))
        return min(self._burst, left + self._rate * (self._clock() - then))

    def _set(self, client: str, left: float) -> None:
        self._left[client] = left, self._clock()
        self._left.move_to_end(client)
        while len(self._left) > _MOST_CLIENTS:
            self._left.popitem(last=False)
