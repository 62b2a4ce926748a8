"""A job of many rows on one machine, from Parquet to Parquet, beside the same call in memory."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import counterpath as cp

from . import bare
from .jobs import BatchCommand
from .material import ID

ROWS_PER_FILE = 1_000_000  # some tens of megabytes of Adult as Parquet
TARGET = "1"


def rows_in(folder: Path, rows: int) -> Path:
    """So many rows of Adult, drawn with replacement, in files of a million."""
    data = cp.datasets.load("adult-carla")
    rows_of_adult = pd.concat([data.train, data.test]).drop(columns=data.target)
    table = pa.Table.from_pandas(rows_of_adult, preserve_index=False)
    folder.mkdir(parents=True, exist_ok=True)

    def write(first: int) -> None:
        count = min(ROWS_PER_FILE, rows - first)
        drawn = table.take(pa.array(np.random.default_rng(first).integers(0, len(table), count)))
        named = drawn.add_column(0, ID, pa.array(np.arange(first, first + count)))
        pq.write_table(
            named, folder / f"part-{first // ROWS_PER_FILE}.parquet", compression="zstd", row_group_size=100_000
        )

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(0, rows, ROWS_PER_FILE)))
    return folder


def measure(model: Path, method: str, rows: int, device: str, more: Sequence[str], scratch: Path) -> dict[str, Any]:
    """The rates of a job and of one `explain` of one file's rows, in one process, both on the same device."""
    files = rows_in(scratch / "rows", rows)
    options = ("--target-class", TARGET, "--method", method, "--id", ID, "--device", device, *more)
    ended = BatchCommand(model, files, options).run(scratch / "out")
    if ended.code:
        raise RuntimeError(ended.messages)
    summary = json.loads(ended.output)
    command = [sys.executable, bare.__file__, str(model), str(files / "part-0.parquet"), TARGET, method, "1", device]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    alone = json.loads(done.stdout.splitlines()[-1])
    some = min(rows, ROWS_PER_FILE)
    parts = list((scratch / "out" / "counterfactuals").iterdir())
    return {
        "method": method,
        "rows": rows,
        "device": device,
        "cores": len(os.sched_getaffinity(0)),
        "workers": summary["workers"],
        "seconds": ended.seconds,
        "busy_seconds": summary["busy_seconds"],
        "rows_per_second": rows / ended.seconds,
        "flip_ratio": summary["flip_ratio"],
        "bytes_a_row": {
            "in": sum(path.stat().st_size for path in files.iterdir()) / rows,
            "out": sum(path.stat().st_size for path in parts) / rows,
        },
        "one_process": {"rows": some, "rows_per_second": some / alone["all"], **alone},
        "held": summary["rows"] == rows and not summary["quarantine"],
    }
