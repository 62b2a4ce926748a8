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
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

import counterpath as cp
from counterpath.batch.folder import Journal, Manifest, intact
from counterpath.batch.job import Job
from counterpath.batch.shards import Receipt, Totals, to_json
from counterpath.batch.sources import Shard, Source, find, shards_of, survey
from counterpath.batch.worker import Errand, Worker, write_part
from counterpath.cli.demo import TARGET, fitted
from counterpath.search.measures import MEASURES
from counterpath.utils.errors import require

ID = "applicant"
SUMS = dict.fromkeys((*MEASURES, "steps"), (2914, 1807.300717651844, 1156.4054945701853))
RECEIPT = Receipt(
    "00000-000000",
    "rejections/2025-01.parquet",
    0,
    5000,
    "0d8b55aed28c3c3b123cb3d37bac2a2b309532d953e15004245dbb40f472405c",
    {"counterfactuals/00000-000000.parquet": 177435},
    {"found": 2914, "not_found": 393, "already": 693},
    {"immutable: age": 393, "immutable: race": 268, "immutable: sex": 234},
    SUMS,
    4.628,
)
"""What a shard of Adult leaves in the journal."""
ASKED = (
    ("nearest", "end", 10**9),
    ("nearest", "milestones", 10**9),
    ("rsgd", "end", 10**9),
    ("rsgd", "milestones", 10**9),
    ("geodesic", "end", 2000),
)
"""Methods, how much of paths is kept, and how many rows at most."""
Figures = dict[str, Any]


def rows(place: Path, count: int) -> Figures:
    """Rows a CPU second and bytes a row, by method, without and with milestones."""
    data = cp.datasets.load("adult")
    people = pd.concat([data.train, data.test]).drop(columns=data.target)
    people = people.sample(count, replace=True, random_state=0, ignore_index=True)
    people.insert(0, ID, [f"a{number:07d}" for number in range(count)])
    people.to_parquet(place / "rows.parquet", index=False)
    people.to_csv(place / "rows.csv", index=False)
    figures: Figures = {f"bytes a row, {kind}": _size(place / f"rows.{kind}") / count for kind in ("parquet", "csv")}
    figures["MB a second to find rows of CSV"] = (
        _size(place / "rows.csv") / 1e6 / best(lambda: survey(find(str(place / "rows.csv")), people.columns, 5000))
    )
    model = fitted(data, "cpu").save(place / "model")
    for method, keep, most in ASKED:
        request = {"method": method, "target_class": TARGET, "keep": keep}
        job = Job.of(model, request, ids=[ID], shard_rows=5000, device="cpu")
        sources = survey(find(str(place / "rows.parquet")), people.columns, job.shard_rows)
        worker = Worker(Errand(str(model), str(place), job, tuple(sources), str(place / f"{method}-{keep}"), "cpu"))
        worker.do(Shard(0, 0, 0, min(count, 500)))  # what is made once
        started = time.process_time()
        told = [worker.do(shard) for shard in shards_of([replace(sources[0], rows=min(count, most))], job.shard_rows)]
        seconds = time.process_time() - started
        done = sum(one.rows for one in told)
        assert all(isinstance(one, Receipt) for one in told), told
        written: dict[str, float] = {}
        for name, size in (pair for one in told for pair in one.files.items()):
            written[name.split("/")[0]] = written.get(name.split("/")[0], 0) + size / done
        figures[f"{method}, {keep}"] = {"rows a CPU second": done / seconds, "bytes a row": written}
    return figures


def journal(place: Path, count: int) -> Figures:
    """What the journal of a long job takes to read when it goes on."""
    here = [Source(RECEIPT.source, "", 0, 0, RECEIPT.input, 0)]
    figures: Figures = {}
    for lines in (10_000, 200_000):
        path = place / f"{lines}.jsonl"
        names = [f"00000-{number:06d}" for number in range(lines)]
        made = (replace(RECEIPT, shard=name, files={f"counterfactuals/{name}.parquet": 177435}) for name in names)
        path.write_text("".join(json.dumps(to_json(receipt)) + "\n" for receipt in made), encoding="utf-8")
        before = _resident()
        done = Journal(path).read()
        figures[f"{lines:,} lines"] = {
            "bytes a line in memory": (_resident() - before) / lines,
            "bytes a line": _size(path) / lines,
            "seconds to read": best(Journal(path).read),
            "seconds to add up": best(lambda done=done: _added(done)),
            "seconds to look for their files, which are not there": best(lambda done=done: intact(place, done, here)),
        }
    return figures


def manifest(place: Path, count: int) -> Figures:
    """What a manifest of 10,000 files takes, and what a worker is told at its start."""
    job = Job("0" * 64, None, {"method": "rsgd", "target_class": 1}, (ID,), 5000, "cpu", {})
    sources = tuple(
        Source(
            f"2025/part-{number:05d}.parquet", f"/data/2025/part-{number:05d}.parquet", 10**8, 10**18, "0" * 64, 10**5
        )
        for number in range(10_000)
    )
    whole = Manifest.of(job, sources)
    seconds = best(lambda: whole.write(place))
    errand = Errand("/models/adult", "/home/user", job, sources, "/data/out", "cpu")
    return {
        "bytes a file": _size(place / "manifest.json") / len(sources),
        "seconds to write": seconds,
        "seconds to read": best(lambda: Manifest.read(place)),
        "bytes a file in what a worker is told": len(json.dumps(errand.to_json())) / len(sources),
        "bytes a shard, asked": len(json.dumps(asdict(Shard(0, 0, 0, 5000)))),
        "bytes a shard, answered": len(json.dumps(to_json(RECEIPT))),
    }


def disk(place: Path, count: int) -> Figures:
    """Hashing, looking at a thousand files, and how many small files a second are written, synced and renamed."""
    large = place / "large"
    with large.open("wb") as file:
        for _ in range(64):
            file.write(os.urandom(1 << 22))
    table = pa.table({"a": list(range(100))})
    (place / "in").mkdir()
    for number in range(1000):
        pd.DataFrame({"a": range(100)}).to_parquet(place / "in" / f"part-{number}.parquet")
    written = iter(range(10**6))
    receipts = Journal(place / "shards.jsonl")
    return {
        "hashing, MB a second": _size(large) / 1e6 / best(lambda: _hashed(large)),
        "seconds to find and survey 1,000 files": best(lambda: survey(find(str(place / "in")), ["a"], 5000)),
        "files written, synced and renamed a second": 100
        / best(lambda: [write_part(place / "out" / f"{next(written)}.parquet", table) for _ in range(100)]),
        "lines added to the journal a second": 100 / best(lambda: [receipts.add(RECEIPT) for _ in range(100)]),
    }


def ray(place: Path, count: int) -> Figures:
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
    text, answer = json.dumps(asdict(Shard(0, 0, 0, 5000))), json.dumps(to_json(RECEIPT))
    figures: Figures = {}
    for shards in (1000, 4000):
        free = _free(library)
        started = time.perf_counter()
        items = data.from_items([{"shard": text}] * shards, override_num_blocks=shards)
        seconds = time.perf_counter() - started
        taken = free - _free(library)
        made = time.perf_counter()
        strategy = data.ActorPoolStrategy(size=2, max_tasks_in_flight_per_actor=1)
        idle = items.map_batches(_idle(answer), batch_size=1, batch_format="numpy", compute=strategy)
        told = sum(len(batch["told"]) for batch in idle.iter_batches(batch_size=None, batch_format="numpy"))
        assert told == shards
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


def _idle(answer: str) -> type:
    class Idle:
        """An actor that answers at once."""

        def __call__(self, batch: Any) -> dict[str, list[str]]:
            return {"told": [answer for _ in batch["shard"]]}

    return Idle


def _free(library: Any) -> float:
    """The bytes that are left in the object store, of which Ray tells with some delay."""
    time.sleep(3)
    return float(library.available_resources()["object_store_memory"])


def _added(done: dict[str, Receipt]) -> Totals:
    totals = Totals()
    for receipt in done.values():
        totals = totals.plus(receipt)
    return totals


def _hashed(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _resident() -> int:
    """The memory of this process, as Linux tells."""
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
        with tempfile.TemporaryDirectory(dir=given.folder) as place:
            figures = PIECES[name](Path(place), given.rows)
        print(json.dumps({name: figures}, indent=2, default=float), flush=True)


if __name__ == "__main__":
    main()
