"""What an engine is: something that has shards done, here or elsewhere."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from counterpath.batch.shards import Failure, Told
from counterpath.batch.sources import Shard
from counterpath.batch.worker import Errand

Tell: TypeAlias = Callable[[Told], None]
"""Takes what a worker says of a shard; may be called from any thread."""

TRIES = 3
"""How often a shard is tried if the process that works on it dies."""


@runtime_checkable
class Engine(Protocol):
    """Has shards done by workers, and tells of each of them once."""

    name: str

    @property
    def workers(self) -> int:
        """How many there are."""
        ...

    def start(self, errand: Errand, shards: Sequence[Shard], tell: Tell) -> None:
        """Begin, and return at once."""
        ...

    def stop(self) -> None:
        """End everything that is still under way; does no harm when all is done."""
        ...


def failure(errand: Errand, shard: Shard, problem: str, *, fatal: bool = False) -> Failure:
    """What an engine says of a shard of which no worker says anything."""
    source = errand.sources[shard.source]
    return Failure(shard.name, source.name, shard.first, shard.rows, problem, fatal=fatal)
