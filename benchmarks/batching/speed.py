"""How fast a job is, from file to file, beside the search alone on the same rows."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq

import counterpath as cp
from counterpath.batch.folder import write_table
from counterpath.batch.running import SHARD_ROWS
from counterpath.batch.sources import find_files, inspect_files, read_shard, shards_of

from . import bare
from .jobs import BatchCommand
from .material import ID, parquet_file

TARGET = "1"
MOST_TIMES = 1.2
"""How many times as long as the search alone a job may take: what was promised for it."""


def compare(model: Path, method: str, rows: int, repeats: int, scratch: Path) -> dict[str, Any]:
    """A job and the search alone in turns, with as many threads in all as there are cores; medians."""
    cores = len(os.sched_getaffinity(0))
    file = parquet_file(scratch / "rows.parquet", rows)
    few = parquet_file(scratch / "few.parquet", cores)
    command = BatchCommand(model, file, ("--target-class", TARGET, "--method", method, "--id", ID, "--device", "cpu"))
    turns: list[dict[str, float]] = []
    for turn in range(repeats):
        alone = _bare(model, file, method, cores)
        job = _seconds(command, scratch / f"out-{turn}")
        # As little as keeps all workers busy takes as long as it takes to start, and to end.
        starting = _seconds(replace(command, rows=few).with_options("--shard-rows", "1"), scratch / f"few-{turn}")
        turns.append({"job": job, "starting": starting, **{f"bare_{name}": value for name, value in alone.items()}})
    middle = {name: median(turn[name] for turn in turns) for name in turns[0]}
    ratio = middle["job"] / middle["bare_all"]
    return {
        "method": method,
        "rows": rows,
        "cores": cores,
        "seconds": middle,
        "job_rows_per_second": rows / middle["job"],
        "bare_rows_per_second": rows / middle["bare_all"],
        "ratio": ratio,
        "ratio_without_starting": (middle["job"] - middle["starting"]) / middle["bare_all"],
        "turns": turns,
        "files_alone": files_alone(model, file, scratch / "out-0", scratch / "copy"),
        "held": ratio <= MOST_TIMES,
    }


def files_alone(model: Path, rows: Path, out: Path, copy: Path) -> dict[str, float]:
    """Seconds of one core for what a job does to files: inspect them, read every shard, write every table."""
    schema = cp.load(model, device="cpu").schema_
    started = time.monotonic()
    sources = inspect_files(find_files(str(rows)), [ID, *schema.names], SHARD_ROWS["cpu"])
    looked = time.monotonic()
    for shard in shards_of(sources, SHARD_ROWS["cpu"]):
        read_shard(sources[shard.source], shard, schema, (ID,))
    was_read = time.monotonic()
    tables = {path.name: pq.read_table(path) for path in (out / "counterfactuals").glob("*.parquet")}
    writing = time.monotonic()
    for name, table in tables.items():
        write_table(copy / name, table)
    return {"look": looked - started, "read": was_read - looked, "write": time.monotonic() - writing}


def _seconds(command: BatchCommand, out: Path) -> float:
    ended = command.run(out)
    if ended.code:
        raise RuntimeError(ended.messages)
    return ended.seconds


def _bare(model: Path, rows: Path, method: str, threads: int) -> dict[str, float]:
    """The search alone in a process of its own, so that none profits from what another has computed before."""
    command = [sys.executable, bare.__file__, str(model), str(rows), TARGET, method, str(threads)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found
