"""Whether batch jobs keep their promises: killed, on a full disk, with damaged files, on Ray; how fast, in what memory.

    python benchmarks/batch.py --what kill                      20 kills of each kind
    python benchmarks/batch.py --what identical --rows 200000   the local engine against Ray
    python benchmarks/batch.py --what large --rows 10000000 --device cuda
    python benchmarks/batch.py --what all --out docs/results/batch/cpu-2-cores.json

| what | is promised |
|---|---|
| kill | `kill -9` at random moments, of the job and of a worker, on both engines: in the end the same files |
| disk | full in each file that is written: a clear error, nothing half-written, and it goes on when there is room |
| truncated | a damaged file among good ones: in quarantine, the rest done; repaired, the same files to the byte |
| identical | Ray and the local engine write the same to the byte |
| throughput | from file to file in at most 1.2 times the time of the search alone |
| large | how many rows a second, from Parquet to Parquet, on one machine; with `--device cuda` on its GPUs |
| memory | the peak of all processes together grows by at most 5 % when the rows are ten times as many |

Kills, disks and damaged files are tried with a small model, so that starting and ending are a good part of the time;
`identical` and `throughput` with the model of `counterpath demo`. A full disk takes root, for it is a small tmpfs.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from batching import damage, disks, engines, kills, large, memory, processes, speed
from batching.jobs import BatchCommand
from batching.material import OPTIONS, folder_of, parquet_file, small_model
from rich.console import Console

import counterpath as cp
from counterpath.cli.demo import fitted
from counterpath.utils.files import write_json

KILLS = 20  # of each kind: the chance that a weak moment of a tenth of a run is never hit is an eighth
ROWS = {
    "kill": 20_000,
    "disk": 900,
    "truncated": 900,
    "identical": 200_000,
    "throughput": 100_000,
    "large": 20_000,
    "memory": 1_000_000,
}
"""How many rows there are by default: enough for the promise to be tested in minutes."""
FILES = 3  # one is damaged: the first of all, or one between others
SLOW = {"rsgd": 5}
"""By how much fewer rows a method is measured that takes longer."""
_console = Console(width=160)


def kill(rows: int, scratch: Path, engine: str, count: int) -> dict[str, Any]:
    command = _small(scratch, rows, rows // 50).with_options("--engine", engine)
    words = kills.WORKERS[engine]
    before = processes.named(words[0])
    undisturbed = command.run(scratch / "whole")
    if undisturbed.code:
        return _with_verdict({"faults": [undisturbed.messages.strip()[-500:]]})
    seconds, whole = undisturbed.seconds, scratch / "whole"
    found = {
        "engine": engine,
        "seconds": seconds,
        "starter": kills.kill_starters(command, whole, seconds, count, 0, scratch / "starter"),
        "worker": kills.kill_workers(command, whole, count, 1, scratch / "worker", words),
        "survivors": kills.survivors(before, words[0]),
    }
    jobs = [*found["starter"]["jobs"], *found["worker"]["jobs"]]
    wrong = [fault for job in jobs for fault in job["faults"]]
    return _with_verdict(found | {"faults": [*wrong, *(f"still there: {title}" for title in found["survivors"])]})


def disk(rows: int, scratch: Path) -> dict[str, Any]:
    command = _small(scratch, rows, rows // 9).with_options("--workers", "1")
    whole = scratch / "whole"
    command.run(whole)
    check = partial(disks.check, command, whole)
    cases = [check(file, free, _fresh(scratch / "case")) for file, free in disks.tight(whole).items()]
    cases.append(check("", 10_000, _fresh(scratch / "case"), inodes=9))  # there may be room, and no names left
    return _with_verdict({"cases": cases, "faults": [fault for case in cases for fault in case["faults"]]})


def truncated(rows: int, scratch: Path) -> dict[str, Any]:
    cases, small = [], _small(scratch, 10, rows // 9)
    for suffix, kinds in ((".parquet", damage.PARQUET), (".csv", damage.CSV)):
        command = BatchCommand(
            small.model, folder_of(scratch / f"all{suffix}", FILES, rows // FILES, suffix), small.options
        )
        whole = scratch / f"whole{suffix}"
        command.run(whole)
        for kind, harm in kinds.items():
            # The first file of all is the hardest: nothing is done yet when it goes wrong.
            for number in (0, 1):
                case = damage.check(command, whole, f"part-{number}{suffix}", harm, _fresh(scratch / "case"))
                cases.append({"damage": kind, **case})
    return _with_verdict({"cases": cases, "faults": [fault for case in cases for fault in case["faults"]]})


def identical(rows: int, scratch: Path) -> dict[str, Any]:
    return engines.compare(
        BatchCommand(_demo(scratch), parquet_file(scratch / "rows.parquet", rows), OPTIONS), rows, scratch
    )


def throughput(rows: int, scratch: Path, repeats: int) -> dict[str, Any]:
    model = _demo(scratch)
    counts = {"nearest": rows, **{method: rows // share for method, share in SLOW.items()}}
    found = [speed.compare(model, method, count, repeats, scratch / method) for method, count in counts.items()]
    return {"methods": found, "held": all(one["held"] for one in found)}


def many(rows: int, scratch: Path, method: str, device: str, model: Path | None) -> dict[str, Any]:
    return large.measure(model or _demo(scratch), method, rows, device, (), scratch)


def peaks(rows: int, scratch: Path) -> dict[str, Any]:
    model = small_model(scratch / "model")
    files = {count: parquet_file(scratch / f"{count}.parquet", count) for count in (rows // 10, rows)}
    return memory.compare({count: BatchCommand(model, file, OPTIONS) for count, file in files.items()}, scratch)


def _small(scratch: Path, rows: int, shard: int) -> BatchCommand:
    """A job with a small model, in shards of so many rows."""
    file = parquet_file(scratch / "rows.parquet", rows)
    return BatchCommand(small_model(scratch / "model"), file, (*OPTIONS, "--shard-rows", str(shard)))


def _demo(scratch: Path) -> Path:
    return fitted(cp.datasets.load("adult-carla"), "auto").save(scratch / "model")


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _with_verdict(found: dict[str, Any]) -> dict[str, Any]:
    return found | {"held": not found["faults"]}


def main(
    what: Annotated[str, typer.Option(help=f"{', '.join(ROWS)}, several with commas, or all.")] = "all",
    rows: Annotated[int | None, typer.Option(help="How many; by default what suits the check.")] = None,
    engine: Annotated[str, typer.Option(help="Where jobs are killed: local, ray, or both with a comma.")] = "local,ray",
    count: Annotated[int, typer.Option("--kills", help="How many kills of each kind.")] = KILLS,
    repeats: Annotated[int, typer.Option(help="How many turns throughput is measured in.")] = 3,
    method: Annotated[str, typer.Option(help="How large jobs search.")] = "rsgd",
    device: Annotated[str, typer.Option(help="Where large jobs compute: cpu or cuda.")] = "cpu",
    model: Annotated[Path | None, typer.Option(help="A model of Adult for large jobs; by default the demo's.")] = None,
    out: Annotated[Path | None, typer.Option(help="A JSON file; what it has of other checks is kept.")] = None,
) -> None:
    checks: dict[str, dict[str, Callable[[int, Path], dict[str, Any]]]] = {
        "kill": {f"kill {name}": partial(kill, engine=name, count=count) for name in engine.split(",")},
        "disk": {"disk": disk},
        "truncated": {"truncated": truncated},
        "identical": {"identical": identical},
        "throughput": {"throughput": partial(throughput, repeats=repeats)},
        "large": {f"large {device}": partial(many, method=method, device=device, model=model)},
        "memory": {"memory": peaks},
    }
    before: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out is not None and out.exists() else {}
    found = before | {"cores": len(os.sched_getaffinity(0))}
    chosen = list(checks) if what == "all" else what.split(",")
    for name, check in [(name, check) for kind in chosen for name, check in checks[kind].items()]:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            found[name] = check(rows or ROWS[name.split()[0]], Path(folder))
        _console.print(name)
        _console.print_json(data=found[name])
        if out is not None:
            write_json(out, found)
    verdicts = {name: one["held"] for name, one in found.items() if isinstance(one, dict)}
    for name, held in verdicts.items():
        _console.print(f"{'yes' if held else 'NO ':<4}{name}")
    sys.exit(0 if all(verdicts.values()) else 1)


if __name__ == "__main__":
    typer.run(main)
