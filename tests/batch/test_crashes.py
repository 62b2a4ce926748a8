"""Jobs that are killed, run out of disk or meet damaged files; `benchmarks/batch.py` does the same at length."""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from threading import Thread

import pandas as pd
import pytest
from benchmarks.batching import damage, disks, processes
from benchmarks.batching.jobs import BatchCommand, count_done, faults, fingerprints, half_written

from counterpath.batch.local import Local
from counterpath.cli import main
from counterpath.utils.errors import BatchError

from .conftest import Runs

pytestmark = [pytest.mark.slow, pytest.mark.whole]

SHARDS, SHARD_ROWS = 12, 10
FEW_ROWS = 50
"""Of a shard, where a few of them will do."""


@pytest.fixture(scope="module")
def command(model_folder: Path, loans: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> BatchCommand:
    """A job for one process."""
    rows = tmp_path_factory.mktemp("crashes") / "rows.parquet"
    loans.sample(SHARDS * SHARD_ROWS, replace=True, random_state=0).to_parquet(rows)
    options = ("--target-class", "yes", "--method", "nearest", "--device", "cpu", "--workers", "1")
    return BatchCommand(model_folder, rows, (*options, "--shard-rows", str(SHARD_ROWS)))


@pytest.fixture
def killed(command: BatchCommand) -> Callable[[Path, Callable[[], bool]], None]:
    """Starts the job as a process, and kills it as soon as it is due."""
    # All processes are copies of one that has imported everything, or that would be most of what they do.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([main.__module__])
    ready = context.Process(target=print)
    ready.start()
    ready.join()

    def run(out: Path, due: Callable[[], bool]) -> None:
        process = context.Process(target=main, args=(command.arguments(out),))
        process.start()
        while not due():
            assert process.is_alive(), "the job ended before it could be killed"
            time.sleep(0.005)
        process.kill()
        process.join()

    return run


@pytest.mark.slow
def test_a_job_that_is_killed_again_and_again_ends_as_if_nothing_had_been(
    explained: Runs, command: BatchCommand, killed: Callable[[Path, Callable[[], bool]], None], tmp_path: Path
) -> None:
    out, random = tmp_path / "out", Random(0)
    shares = sorted(random.sample(range(1, SHARDS - 2), 2))
    starting = time.monotonic() + random.uniform(0.0, 2.0)
    killed(out, lambda: time.monotonic() > starting)
    for share in shares:
        killed(out, lambda share=share: count_done(out) >= share)  # type: ignore[misc]
        assert count_done(out) < SHARDS
        assert half_written(out) == []
    explained(command.rows, out, shard_rows=SHARD_ROWS)
    explained(command.rows, tmp_path / "whole", shard_rows=SHARD_ROWS)
    assert faults(out, tmp_path / "whole") == []


def test_a_job_goes_on_when_its_worker_is_killed_at_work(
    explained: Runs, command: BatchCommand, tmp_path: Path
) -> None:
    out, engine, share = tmp_path / "out", Local(1), Random(1).randrange(1, SHARDS - 2)
    dead: list[int] = []

    def kill() -> None:
        while count_done(out) < share:
            time.sleep(0.005)
        dead.extend(process.pid for process in engine._processes if processes.kill(process.pid))

    thread = Thread(target=kill)
    thread.start()
    explained(command.rows, out, shard_rows=SHARD_ROWS, engine=engine)
    thread.join()
    assert len(dead) == 1
    explained(command.rows, tmp_path / "whole", shard_rows=SHARD_ROWS)
    assert faults(out, tmp_path / "whole") == []


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes a disk with so many free pages, or skips the test where that is not permitted."""
    with ExitStack() as stack:

        def small(free: int) -> Path:
            try:
                return stack.enter_context(disks.small_disk(tmp_path / "disk", free))
            except disks.NotPermittedError as error:
                pytest.skip(str(error))

        yield small


FULL: dict[str, Callable[[int, list[int], int], int]] = {
    "manifest.json": lambda manifest, tables, journal: manifest - 1,
    "counterfactuals/": lambda manifest, tables, journal: manifest + tables[0] + journal,
    "shards.jsonl": lambda manifest, tables, journal: manifest + sum(tables),
    "summary.json": lambda manifest, tables, journal: manifest + sum(tables) + journal,
}
"""How many free pages let the disk be full in a file, if all tables are written before any is recorded."""


@pytest.mark.parametrize("file", FULL)
def test_a_full_disk_is_an_error_that_says_so_and_the_job_goes_on_when_there_is_room(
    explained: Runs, command: BatchCommand, disk: Callable[[int], Path], tmp_path: Path, file: str
) -> None:
    whole = tmp_path / "whole"
    explained(command.rows, whole, shard_rows=FEW_ROWS)
    tables = [disks.pages(path) for path in sorted(whole.glob("counterfactuals/*"))]
    out = disk(FULL[file](disks.pages(whole / "manifest.json"), tables, disks.pages(whole / "shards.jsonl"))) / "out"
    expected = rf"out/{file}.* cannot be written: .*No space left on device\. Make room, .* run the same command again"
    for _ in range(2):  # another try does no harm
        with pytest.raises(BatchError, match=expected):
            explained(command.rows, out, shard_rows=FEW_ROWS)
        assert half_written(out) == []
        assert not list(out.glob("counterfactuals/.*"))
    disks.make_room(out.parent)
    explained(command.rows, out, shard_rows=FEW_ROWS)
    assert faults(out, whole) == []


def test_a_full_disk_ends_the_command_with_one_line(
    command: BatchCommand, disk: Callable[[int], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(command.arguments(disk(0) / "out")) == disks.CANNOT_GO_ON
    shown = capfd.readouterr()
    assert shown.err.startswith("error: ")
    assert "manifest.json cannot be written: No space left on device" in shown.err
    assert len(shown.err.splitlines()) == 1


def test_damaged_files_are_put_into_quarantine_and_done_when_they_are_repaired(
    explained: Runs, loans: pd.DataFrame, tmp_path: Path
) -> None:
    """The first of all has many shards, so that much has gone wrong before anything is done."""
    good, bad, out = tmp_path / "good", tmp_path / "bad", tmp_path / "out"
    harms = {f"{number}.parquet": harm for number, harm in enumerate([damage.scribble, *damage.PARQUET.values()])}
    harms |= {f"{number}.csv": harm for number, harm in enumerate(damage.CSV.values(), len(harms))}
    for folder in (good, bad):
        folder.mkdir()
        for name in harms:
            rows = loans[: FEW_ROWS if name == "0.parquet" else 5]
            rows.to_csv(folder / name, index=False) if name.endswith(".csv") else rows.to_parquet(folder / name)
        loans[:5].to_parquet(folder / "good.parquet")
    for name, harm in harms.items():
        harm(bad / name)
    messages: list[str] = []
    summary = explained(bad, out, shard_rows=7, say=messages.append)
    assert {one["source"] for one in summary["quarantine"]} == set(harms)
    assert all(any(f"({name})" in line for line in messages) for name in harms)
    assert summary["rows"] == 5
    explained(good, tmp_path / "whole", shard_rows=7)
    done_already, everything = fingerprints(out), fingerprints(tmp_path / "whole")
    assert done_already == {name: everything[name] for name in done_already}
    for name in harms:
        (bad / name).write_bytes((good / name).read_bytes())
    assert explained(bad, out, shard_rows=7)["quarantine"] == []
    assert faults(out, tmp_path / "whole") == []


def test_a_file_may_be_repaired_with_fewer_rows_and_leaves_nothing_behind(
    explained: Runs, loans: pd.DataFrame, tmp_path: Path
) -> None:
    rows, out = tmp_path / "rows.csv", tmp_path / "out"
    loans[:15].to_csv(rows, index=False)
    damage.wide_row(rows)
    assert explained(rows, out, shard_rows=3)["shards"] == {"done": 4, "quarantined": 1}
    loans[20:25].to_csv(rows, index=False)
    assert explained(rows, out, shard_rows=3)["rows"] == 5
    explained(rows, tmp_path / "whole", shard_rows=3)
    assert faults(out, tmp_path / "whole") == []
