"""What a worker on Ray does with a shard, on whatever machine it is."""

import json
import socket
from pathlib import Path

from counterpath.batch.engine import TRIES, failure
from counterpath.batch.shards import Told, to_json
from counterpath.batch.sources import Shard
from counterpath.batch.worker import Errand, Worker
from counterpath.explanation.provenance import versions
from counterpath.utils.errors import BatchError


class Doing:
    """Does shards, if this machine is like the one that asks for them.

    Args:
        errand: What to know, as JSON.
    """

    def __init__(self, errand: str) -> None:
        self._errand = Errand.from_json(json.loads(errand))
        self._worker: Worker | None = None

    def do(self, shard: str, tried: int) -> str:
        """Do a shard, at which `tried` workers have died, and say what came of it; both are JSON."""
        return json.dumps(to_json(self._told(Shard(**json.loads(shard)), tried)), allow_nan=False)

    def _told(self, shard: Shard, tried: int) -> Told:
        if tried >= TRIES:
            problem = f"the worker died {tried} times over this shard; it may need more memory"
            return failure(self._errand, shard, f"{problem}: try fewer workers, or fewer rows in a shard")
        if self._worker is None:
            try:
                insist_on_the_same(self._errand)
            except BatchError as error:
                return failure(self._errand, shard, str(error), fatal=True)
            self._worker = Worker(self._errand)
        return self._worker.do(shard)


def insist_on_the_same(errand: Errand) -> None:
    """Raise an error if this machine does not see the same files, or would compute otherwise.

    Raises:
        BatchError: It does not.
    """
    here = f"the Ray worker on {socket.gethostname()}"
    for what, path in (("model", errand.model), ("folder of results", errand.out)):
        if not Path(path).is_dir():
            raise BatchError(
                f"{here} does not see the {what} {path}: model, input and results must be on a file system that all "
                "machines of the cluster share, under the same path"
            )
    mine, wanted = versions(), errand.job.versions
    others = [f"{name} {mine.get(name)} instead of {wanted[name]}" for name in wanted if mine.get(name) != wanted[name]]
    if others:
        raise BatchError(f"{here} has {', '.join(others)}: install the same versions on all machines of the cluster")
