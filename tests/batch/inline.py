"""An engine in this process, so that tests of a job need not start others; its worker is the real one."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from counterpath.batch.engine import Report
from counterpath.batch.sources import Shard
from counterpath.batch.worker import Task, Worker


class Inline:
    """Does shards one after the other, in any order; `before` is called with each, and may go wrong."""

    name = "inline"
    workers = 1

    def __init__(
        self,
        order: Callable[[Sequence[Shard]], Sequence[Shard]] = lambda shards: shards,
        before: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._order, self._before = order, before
        self.done: list[str] = []
        self.stopped = False

    def start(self, task: Task, shards: Sequence[Shard], report: Report) -> None:
        """Do all of them, and report each."""
        worker = Worker(task)
        for count, shard in enumerate(self._order(shards)):
            self._before(count)
            self.done.append(shard.name)
            report(worker.do(shard))

    def stop(self) -> None:
        """There is nothing left to end."""
        self.stopped = True


def results(out: Path) -> pd.DataFrame:
    """What was found for all rows, in order."""
    return pd.read_parquet(out / "counterfactuals")


def content(out: Path) -> dict[str, bytes]:
    """All files with results."""
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in sorted(out.rglob("*.parquet"))}
