"""The Ray driver: an actor of Ray that has shards done by Ray Data.

Ray Data runs there and not in the process that waits for the shards, so that all of it can be ended at once: with the
driver ends what it has started. This module is sent to Ray as it stands, not imported there (see `Ray.start`), and so
imports nothing but what every Python has: the driver is there in a second, and only the workers load the libraries.

Only text goes from one process to the other. Rows and models never do: workers read them from where they are, and
write results to where they belong.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, no_type_check

SHARD, OUTCOME = "shard", "outcome"
"""The columns of the data set, before and after."""


@no_type_check  # at run time, that is: what checks types then cannot be sent
class RayDriver:
    """Runs the data set whose items are shards.

    Args:
        task: What workers have to know, as JSON.
        shards: The shards, as JSON each.
        workers: How many workers.
        resources: What Ray sets aside for each of them: `num_cpus`, `num_gpus`.
    """

    def __init__(self, task: str, shards: Sequence[str], workers: int, resources: Mapping[str, float]) -> None:
        self._begun: Counter[str] = Counter()
        self._outcomes = self._run(task, shards, workers, resources)

    def next_outcome(self) -> str | None:
        """The outcome of one more shard, as JSON, as soon as it is known; None if there are no more."""
        return next(self._outcomes, None)

    def begin(self, shard: str) -> int:
        """Count that a worker begins with a shard; returns how many have begun with it before, and died."""
        self._begun[shard] += 1
        return self._begun[shard] - 1

    def _run(self, task: str, shards: Sequence[str], workers: int, resources: Mapping[str, Any]) -> Iterator[str]:
        ray, data = import_module("ray"), import_module("ray.data")
        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        context.execution_no_progress_timeout_s = -1  # the job itself watches over it
        items = data.from_items([{SHARD: shard} for shard in shards], override_num_blocks=len(shards))
        done = items.map_batches(
            RayWorker,
            fn_constructor_args=(task, ray.get_runtime_context().current_actor),
            batch_size=1,
            batch_format="numpy",
            # Ray Data replaces workers that die, and tries their shards again without end: see `begin`.
            compute=data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=1),
            **resources,
        )
        for batch in done.iter_batches(batch_size=None, batch_format="numpy", prefetch_batches=0):
            yield from map(str, batch[OUTCOME])


@no_type_check
class RayWorker:
    """A worker as Ray Data wants it: a class to be called with batches.

    Args:
        task: What to know, as JSON.
        driver: The actor that counts how often a shard is begun.
    """

    def __init__(self, task: str, driver: Any) -> None:
        from counterpath.batch.ray import CheckedWorker

        self._worker, self._driver, self._get = CheckedWorker(task), driver, import_module("ray").get

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[str]]:
        """Do the shards of a batch."""
        return {OUTCOME: [self._do(str(shard)) for shard in batch[SHARD]]}

    def _do(self, shard: str) -> str:
        return self._worker.do(shard, deaths=self._get(self._driver.begin.remote(shard)))
