"""The foreman: an actor of Ray that has shards done by Ray Data.

Ray Data runs there and not in the process that waits for the shards, so that all of it can be ended at once: with the
foreman ends what it has started. This module is sent to Ray as it stands, not imported there (see `Ray.start`), and so
imports nothing but what every Python has: the foreman is there in a second, and only the workers load the libraries.

Only text goes from one process to the other. Rows and models never do: workers read them from where they are, and
write results to where they belong.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, no_type_check

SHARD, TOLD = "shard", "told"
"""The columns of the data set, before and after."""


@no_type_check  # at run time, that is: what checks types then cannot be sent
class Foreman:
    """Runs the data set whose items are shards.

    Args:
        errand: What workers have to know, as JSON.
        shards: The shards, as JSON each.
        workers: How many workers.
        resources: What Ray sets aside for each of them: `num_cpus`, `num_gpus`.
    """

    def __init__(self, errand: str, shards: Sequence[str], workers: int, resources: Mapping[str, float]) -> None:
        self._begun: Counter[str] = Counter()
        self._told = self._carried_out(errand, shards, workers, resources)

    def more(self) -> str | None:
        """What came of one more shard, as JSON, as soon as it is known; None if there are no more."""
        return next(self._told, None)

    def begun(self, shard: str) -> int:
        """Take down that a worker begins with a shard; returns how often that was so before, and nothing came of it."""
        self._begun[shard] += 1
        return self._begun[shard] - 1

    def _carried_out(
        self, errand: str, shards: Sequence[str], workers: int, resources: Mapping[str, Any]
    ) -> Iterator[str]:
        ray, data = import_module("ray"), import_module("ray.data")
        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        context.execution_no_progress_timeout_s = -1  # whoever gave out the work watches over it
        items = data.from_items([{SHARD: shard} for shard in shards], override_num_blocks=len(shards))
        done = items.map_batches(
            Hand,
            fn_constructor_args=(errand, ray.get_runtime_context().current_actor),
            batch_size=1,
            batch_format="numpy",
            # Ray Data replaces workers that die, and tries their shards again without end: see `begun`.
            compute=data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=1),
            **resources,
        )
        for batch in done.iter_batches(batch_size=None, batch_format="numpy", prefetch_batches=0):
            yield from map(str, batch[TOLD])


@no_type_check
class Hand:
    """A worker as Ray Data wants it: a class to be called with batches.

    Args:
        errand: What to know, as JSON.
        foreman: Who counts how often a shard is begun.
    """

    def __init__(self, errand: str, foreman: Any) -> None:
        from counterpath.batch.ray_worker import Doing

        self._doing, self._foreman, self._get = Doing(errand), foreman, import_module("ray").get

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[str]]:
        """Do the shards of a batch."""
        return {TOLD: [self._do(str(shard)) for shard in batch[SHARD]]}

    def _do(self, shard: str) -> str:
        return self._doing.do(shard, tried=self._get(self._foreman.begun.remote(shard)))
