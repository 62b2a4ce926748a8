"""A worker process: an errand and then shards on standard input, a line of JSON each; what came of them on its output.

It lives no longer than the process that started it: when standard input ends, so does it, in the middle of a shard too.
"""

import json
import os
import sys
from queue import SimpleQueue
from threading import Thread

from counterpath.batch.receipts import to_json
from counterpath.batch.sources import Shard
from counterpath.batch.work import Errand, Worker


def main() -> None:
    """Serve until standard input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a user's model prints is no answer
    lines: SimpleQueue[str] = SimpleQueue()
    Thread(target=_listen, args=(lines,), daemon=True).start()
    worker = Worker(Errand.from_json(json.loads(lines.get())))
    while True:
        told = worker.do(Shard(**json.loads(lines.get())))
        answers.write(json.dumps(to_json(told), allow_nan=False) + "\n")
        answers.flush()


def _listen(lines: "SimpleQueue[str]") -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
