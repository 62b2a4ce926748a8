"""Batch jobs as users start them, and what is wrong with the results that they leave behind."""

import hashlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_TABLES = ("counterfactuals", "milestones")
_OF_A_RUN = ("seconds", "busy_seconds", "engine", "workers")
"""What the summary says of how the work was done, and not of its results."""


@dataclass(frozen=True)
class CommandResult:
    """How a command ended: its exit code, its seconds, and what it wrote."""

    code: int
    seconds: float
    output: str
    messages: str


@dataclass(frozen=True)
class BatchCommand:
    """A `counterpath batch` command without the folder for its results.

    Attributes:
        model: The model directory.
        rows: What is explained: a file or a folder.
        options: All else.
    """

    model: Path
    rows: Path
    options: tuple[str, ...] = ()

    def with_options(self, *options: str) -> "BatchCommand":
        """The same with more options."""
        return replace(self, options=(*self.options, *options))

    def arguments(self, out: Path) -> list[str]:
        """What stands after `counterpath`."""
        return ["batch", str(self.model), str(self.rows), str(out), *self.options]

    def start(self, out: Path) -> "subprocess.Popen[str]":
        """Start it, and return at once; its messages go to a file beside the results, see `messages`."""
        out.parent.mkdir(parents=True, exist_ok=True)
        with messages(out).open("a") as log:
            return subprocess.Popen(self._words(out), stdout=subprocess.DEVNULL, stderr=log, text=True)

    def run(self, out: Path) -> CommandResult:
        """Run it to its end."""
        started = time.monotonic()
        done = subprocess.run(self._words(out), capture_output=True, text=True, check=False)
        return CommandResult(done.returncode, time.monotonic() - started, done.stdout, done.stderr)

    def _words(self, out: Path) -> list[str]:
        return [sys.executable, "-m", "counterpath.cli", *self.arguments(out)]


def messages(out: Path) -> Path:
    """Where `BatchCommand.start` has the messages written; beside the results, of which it is none."""
    return out.with_name(f"{out.name}.log")


def count_done(out: Path) -> int:
    """How many shards are recorded."""
    journal = out / "shards.jsonl"
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def fingerprints(out: Path) -> dict[str, str]:
    """The SHA-256 of every table of results, by its path."""
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for name in _TABLES
        for path in sorted((out / name).glob("*.parquet"))
    }


def half_written(out: Path) -> list[str]:
    """Files under a final name that cannot be read."""
    return [f"{path} cannot be read: {error}" for path, error in _unreadable(out)]


def faults(out: Path, whole: Path) -> list[str]:
    """In what results differ from those of a job that nothing went wrong with; none, if all is well.

    Every table must be there, equal to the byte, and no other; every row exactly once and in order; every shard
    recorded once; the manifest and what was found equal; and nothing left over.
    """
    here, there = fingerprints(out), fingerprints(whole)
    found = [f"{name} is missing" for name in there.keys() - here.keys()]
    found += [f"{name} should not be there" for name in here.keys() - there.keys()]
    found += [f"{name} differs" for name in here.keys() & there.keys() if here[name] != there[name]]
    found += [f"{name} is left over" for name in _leftovers(out)]
    recorded, expected = _recorded(out), _recorded(whole)
    found += [f"shard {name} is recorded {recorded[name]} times" for name in expected if recorded[name] != 1]
    found += [f"shard {name} is recorded and not planned" for name in recorded if name not in expected]
    if not found:
        found += _misplaced(out)
    for name in ("manifest.json", "summary.json"):
        if _without_run(out / name) != _without_run(whole / name):
            found.append(f"{name} differs")
    return found


def _unreadable(out: Path) -> Iterator[tuple[Path, Exception]]:
    for name in _TABLES:
        for path in sorted((out / name).glob("*.parquet")):
            try:
                pq.read_table(path)
            except (OSError, pa.ArrowException) as error:
                yield path, error


def _leftovers(out: Path) -> list[str]:
    """Hidden files but for the lock, which stays, and anything in quarantine."""
    hidden = [path for path in out.rglob(".*") if path.name != ".lock"]
    return sorted(path.relative_to(out).as_posix() for path in [*hidden, *out.glob("quarantine/*")])


def _recorded(out: Path) -> Counter[str]:
    lines = (out / "shards.jsonl").read_text(encoding="utf-8").splitlines() if count_done(out) else []
    return Counter(json.loads(line)["shard"] for line in lines)


def _misplaced(out: Path) -> list[str]:
    """Files of the input whose rows are not there exactly once, one after the other."""
    rows: dict[str, list[int]] = {}
    for path in sorted((out / "counterfactuals").glob("*.parquet")):
        table = pq.read_table(path, columns=["source", "row"])
        for source in table["source"].unique().to_pylist():
            rows.setdefault(source, []).extend(table["row"].to_pylist())
    sources = json.loads((out / "manifest.json").read_text(encoding="utf-8"))["sources"]
    wrong = [one["name"] for one in sources if rows.get(one["name"], []) != list(range(one["rows"]))]
    return [f"rows of {name} are not there exactly once and in order" for name in wrong]


def _without_run(path: Path) -> Any:
    """What a file says, without what differs from run to run."""
    if not path.exists():
        return None
    value = json.loads(path.read_text(encoding="utf-8"))
    return {name: part for name, part in value.items() if name not in _OF_A_RUN}
