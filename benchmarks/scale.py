"""The measured numbers of docs/scale.md: what a batch job costs, piece by piece.

    python benchmarks/scale.py                    all of it, on the model of `counterpath demo`
    python benchmarks/scale.py --rows 2000        the same on fewer rows
    python benchmarks/scale.py --only ray         one piece

Rates and bytes of rows are measured on Adult, drawn with replacement (13 features), with one worker in this process, as
engines have many; seconds are those of its CPU, so that others on the machine count for little. The other pieces need
no model; their seconds are those of the clock, the fewest of three times.
"""

import argparse
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

import counterpath as cp
from counterpath.batch.engine import Job, ShardResult, Task
from counterpath.batch.folder import Journal, Manifest, intact, write_table
from counterpath.batch.running import summarize
from counterpath.batch.sources import Shard, Source, find_files, inspect_files, shards_of
from counterpath.batch.worker import Worker
from counterpath.cli.demo import TARGET, fitted
from counterpath.search.measures import MEASURES
from counterpath.utils.errors import require

ID = "applicant"
SHARD = 5000  # rows: the default on a CPU
SUMS = dict.fromkeys((*MEASURES, "steps"), (2914, 1807.300717651844, 1156.4054945701853))
RESULT = ShardResult(
    "00000-000000",
    "rejections/2025-01.parquet",
    0,
    SHARD,
    "0d8b55aed28c3c3b123cb3d37bac2a2b309532d953e15004245dbb40f472405c",
    {"counterfactuals/00000-000000.parquet": 177435},
    {"found": 2914, "not_found": 393, "already": 693},
    {"immutable: age": 393, "immutable: race": 268, "immutable: sex": 234},
    SUMS,
    4.628,
)
"""What a shard of Adult leaves in the journal."""
CASES = (
    ("nearest", "end", 10**9),
    ("nearest", "milestones", 10**9),
    ("rsgd", "end", 10**9),
    ("rsgd", "milestones", 10**9),
    ("geodesic", "end", 2000),
)
"""Methods, how much of paths is kept, and how many rows at most."""
Figures = dict[str, Any]


def rows(folder: Path, count: int) -> Figures:
    """Rows a CPU second and bytes a row, by method, without and with milestones."""
    data = cp.datasets.load("adult-carla")
    people = pd.concat([data.train, data.test]).drop(columns=data.target)
    people = people.sample(count, replace=True, random_state=0, ignore_index=True)
    people.insert(0, ID, [f"a{number:07d}" for number in range(count)])
    people.to_parquet(folder / "rows.parquet", index=False)
    people.to_csv(folder / "rows.csv", index=False)
    figures: Figures = {f"bytes a row, {kind}": _size(folder / f"rows.{kind}") / count for kind in ("parquet", "csv")}
    figures["MB a second to find rows of CSV"] = (
        _size(folder / "rows.csv") / 1e6 / best(lambda: _inspect(folder / "rows.csv", people.columns))
    )
    model = fitted(data, "cpu").save(folder / "model")
    for method, paths, most in CASES:
        request = {"method": method, "target_class": TARGET, "paths": paths}
        job = Job.of(model, request, ids=[ID], shard_rows=SHARD, device="cpu")
        sources = _inspect(folder / "rows.parquet", people.columns)
        worker = Worker(Task(str(model), str(folder), job, tuple(sources), str(folder / f"{method}-{paths}"), "cpu"))
        worker.do(Shard(0, 0, 0, min(count, 500)))  # what is made once
        started = time.process_time()
        outcomes = [
            worker.do(shard) for shard in shards_of([replace(sources[0], rows=min(count, most))], job.shard_rows)
        ]
        seconds = time.process_time() - started
        done = sum(one.rows for one in outcomes)
        assert all(isinstance(one, ShardResult) for one in outcomes), outcomes
        written: dict[str, float] = {}
        for name, size in (pair for one in outcomes for pair in one.files.items()):
            written[name.split("/")[0]] = written.get(name.split("/")[0], 0) + size / done
        figures[f"{method}, {paths}"] = {"rows a CPU second": done / seconds, "bytes a row": written}
    return figures


def journal(folder: Path, count: int) -> Figures:
    """What the journal of a long job takes to read when it goes on."""
    here = [Source(RESULT.source, "", 0, 0, RESULT.sha256, 0)]
    figures: Figures = {}
    for lines in (10_000, 200_000):
        path = folder / f"{lines}.jsonl"
        names = [f"00000-{number:06d}" for number in range(lines)]
        made = (replace(RESULT, shard=name, files={f"counterfactuals/{name}.parquet": 177435}) for name in names)
        path.write_text("".join(json.dumps(asdict(result)) + "\n" for result in made), encoding="utf-8")
        before = _resident()
        done = Journal(path).read()
        figures[f"{lines:,} lines"] = {
            "bytes a line in memory": (_resident() - before) / lines,
            "bytes a line": _size(path) / lines,
            "seconds to read": best(Journal(path).read),
            "seconds to add up": best(lambda done=done: _summary(done)),
            "seconds to look for their files, which are not there": best(lambda done=done: intact(folder, done, here)),
        }
    return figures


def manifest(folder: Path, count: int) -> Figures:
    """What a manifest of 10,000 files takes, and what a worker is sent at its start."""
    job = Job("0" * 64, None, {"method": "rsgd", "target_class": 1}, (ID,), SHARD, "cpu", {})
    sources = tuple(
        Source(
            f"2025/part-{number:05d}.parquet", f"/data/2025/part-{number:05d}.parquet", 10**8, 10**18, "0" * 64, 10**5
        )
        for number in range(10_000)
    )
    whole = Manifest.of(job, sources)
    seconds = best(lambda: whole.write(folder))
    task = Task("/models/adult", "/home/user", job, sources, "/data/out", "cpu")
    return {
        "bytes a file": _size(folder / "manifest.json") / len(sources),
        "seconds to write": seconds,
        "seconds to read": best(lambda: Manifest.read(folder)),
        "bytes a file in the task of a worker": len(json.dumps(asdict(task))) / len(sources),
        "bytes a shard": len(json.dumps(asdict(Shard(0, 0, 0, SHARD)))),
        "bytes a result": len(json.dumps(asdict(RESULT))),
    }


def disk(folder: Path, count: int) -> Figures:
    """Hashing, looking at a thousand files, and how many small files a second are written, synced and renamed."""
    large = folder / "large"
    with large.open("wb") as file:
        for _ in range(64):
            file.write(os.urandom(1 << 22))
    table = pa.table({"a": list(range(100))})
    (folder / "in").mkdir()
    for number in range(1000):
        pd.DataFrame({"a": range(100)}).to_parquet(folder / "in" / f"part-{number}.parquet")
    written = iter(range(10**6))
    journal = Journal(folder / "shards.jsonl")
    return {
        "hashing, MB a second": _size(large) / 1e6 / best(lambda: _hashed(large)),
        "seconds to find and inspect 1,000 files": best(
            lambda: inspect_files(find_files(str(folder / "in")), ["a"], SHARD)
        ),
        "files written, synced and renamed a second": 100
        / best(lambda: [write_table(folder / "out" / f"{next(written)}.parquet", table) for _ in range(100)]),
        "lines added to the journal a second": 100 / best(lambda: [journal.add(RESULT) for _ in range(100)]),
    }


def ray(folder: Path, count: int) -> Figures:
    """How many shards a second Ray Data hands out if there is nothing to do, to two actors on this machine."""
    library = require("ray", "ray", "this benchmark")
    data = require("ray.data", "ray", "this benchmark")
    library.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        object_store_memory=80 << 20,
        _node_ip_address="127.0.0.1",
        log_to_driver=False,
    )
    data.DataContext.get_current().enable_progress_bars = False
    text, outcome = json.dumps(asdict(Shard(0, 0, 0, SHARD))), json.dumps(asdict(RESULT))
    figures: Figures = {}
    for shards in (1000, 4000):
        free = _free(library)
        started = time.perf_counter()
        items = data.from_items([{"shard": text}] * shards, override_num_blocks=shards)
        seconds = time.perf_counter() - started
        taken = free - _free(library)
        made = time.perf_counter()
        strategy = data.ActorPoolStrategy(size=2, max_tasks_in_flight_per_actor=1)
        idle = items.map_batches(_idle(outcome), batch_size=1, batch_format="numpy", compute=strategy)
        count_done = sum(len(batch["outcome"]) for batch in idle.iter_batches(batch_size=None, batch_format="numpy"))
        assert count_done == shards
        figures[f"{shards:,} shards"] = {
            "seconds to make the data set": seconds,
            "bytes a shard in the object store": taken / shards,
            "shards a second": shards / (time.perf_counter() - made),
        }
    library.shutdown()
    return figures


def best(work: Callable[[], Any]) -> float:
    """The fewest seconds of three times."""
    times = []
    for _ in range(3):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def _idle(outcome: str) -> type:
    class Idle:
        """An actor that returns at once."""

        def __call__(self, batch: Any) -> dict[str, list[str]]:
            return {"outcome": [outcome for _ in batch["shard"]]}

    return Idle


def _free(library: Any) -> float:
    """The bytes that are left in the object store, which Ray reports with some delay."""
    time.sleep(3)
    return float(library.available_resources()["object_store_memory"])


def _summary(done: dict[str, ShardResult]) -> Figures:
    job = Job("0" * 64, None, {}, (), SHARD, "cpu", {})
    return summarize(job, done.values(), [], engine="local", workers=1, seconds=0.0)


def _inspect(path: Path, columns: Iterable[str]) -> list[Source]:
    return inspect_files(find_files(str(path)), list(columns), SHARD)


def _hashed(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _resident() -> int:
    """The memory of this process, as Linux has it."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _size(path: Path) -> int:
    return path.stat().st_size


PIECES: dict[str, Callable[[Path, int], Figures]] = {
    "rows": rows,
    "journal": journal,
    "manifest": manifest,
    "disk": disk,
    "ray": ray,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--only", choices=PIECES, action="append")
    parser.add_argument("--folder", type=Path, help="where to write meanwhile: on the disk that is meant")
    given = parser.parse_args()
    for name in given.only or PIECES:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            figures = PIECES[name](Path(folder), given.rows)
        print(json.dumps({name: figures}, indent=2, default=float), flush=True)


if __name__ == "__main__":
    main()
