"""Ray as it is, started once for all of these tests, and once more by a command that is killed."""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Thread
from typing import Any

import pandas as pd
import pytest

from counterpath.batch import ray, run
from counterpath.batch.engine import TRIES, Engine, Job, ShardFailure, Task, outcome_from_json
from counterpath.batch.ray import SPARE, CheckedWorker, Cluster, Ray
from counterpath.batch.sources import find_files, inspect_files, shards_of
from counterpath.explainer.explainer import Explainer
from counterpath.utils.errors import BatchError, CounterpathWarning, InputError, MissingExtraError
from counterpath.utils.importing import import_object
from tests.tables import small

from .conftest import REQUEST
from .inline import Inline, content, results
from .processes import Process, addresses, family, left, title

pytestmark = [
    pytest.mark.slow,
    pytest.mark.whole,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),  # pipes to the processes that Ray starts
]
WORKERS, GPUS = 2, 2
"""GPUs are a number to Ray: nothing here computes on them."""
ONCE, FATAL, ASLEEP = 300, 600, 900
"""Ages that the model cannot stand: it dies the first time, every time, or falls asleep."""
AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""They try to report the death of the others for a minute, and then end, too."""
OWN = f"""
import os, signal, time
from pathlib import Path

from torch import manual_seed, nn

HERE = Path(__file__).parent


class Watch(nn.Module):
    def forward(self, rows):
        age = 18 + 61 * float(rows[:, 0].max()) if len(rows) else 0
        if (HERE / "mercy").exists():
            return rows
        if abs(age - {FATAL}) < 20 or (abs(age - {ONCE}) < 20 and not (HERE / "died").exists()):
            (HERE / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if abs(age - {ASLEEP}) < 20:
            (HERE / f"asleep-{{os.getpid()}}").touch()
            time.sleep(600)
        return rows


manual_seed(0)
score = nn.Sequential(Watch(), nn.Linear(2, 4), nn.Linear(4, 1), nn.Sigmoid())
"""


@dataclass(frozen=True)
class Lending:
    """A model of somebody's own, with rows that are too much for it.

    Attributes:
        folder: Where it is: the module, and the model directory.
        explainer: What was fitted to it.
        people: Rows without a label.
    """

    folder: Path
    explainer: Explainer
    people: pd.DataFrame

    def rows(self, name: str, ages: dict[int, int]) -> Path:
        """A folder of 20 rows in two files, in which some rows have a certain age."""
        frame = self.people[:20].assign(id=[f"{row:03d}" for row in range(20)])
        for row, age in ages.items():
            frame.loc[row, "age"] = age
        path = self.folder / name
        path.mkdir()
        frame[:12].to_parquet(path / "part-1.parquet", row_group_size=7)
        frame[12:].to_csv(path / "part-2.csv", index=False)
        return path

    def run(self, rows: Path, out: str, engine: Engine, **options: Any) -> dict[str, Any]:
        """Explain rows."""
        given = {"user_model": "lending:score", "ids": ["id"], "shard_rows": 4, "explainer": self.explainer, **options}
        return run(self.folder / "model", rows, self.folder / out, engine, REQUEST, **given)

    def run_here(self, rows: Path, out: str, **options: Any) -> dict[str, bytes]:
        """The results of the same in this process, with mercy."""
        mercy = self.folder / "mercy"
        mercy.touch()
        try:
            self.run(rows, out, Inline(), **options)
        finally:
            mercy.unlink()
        return content(self.folder / out)

    def task(self, rows: Path) -> Task:
        """What a worker has to know for that."""
        model, request = self.folder / "model", self.explainer.repeat(REQUEST, self.people[:0]).request
        job = Job.of(model, request, user_model="lending:score", shard_rows=4, device="cpu")
        sources = inspect_files(find_files(str(rows)), self.explainer.schema_.names, 4)
        return Task(str(model), str(self.folder), job, tuple(sources), str(self.folder), "cpu")


@pytest.fixture(scope="module")
def lending(loans: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lending]:
    folder = tmp_path_factory.mktemp("lending")
    (folder / "lending.py").write_text(OWN)
    people = loans[["age", "income"]]
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", CounterpathWarning)  # it need not be a good one
        patch.syspath_prepend(folder)
        patch.chdir(folder)  # from where workers import it
        explainer = small(epochs=2, max_steps=5).fit(people, loans["loan"], model=import_object("lending:score"))
        explainer.save(folder / "model")
        yield Lending(folder, explainer, people)
        del sys.modules["lending"]


@pytest.fixture(scope="module")
def driver(lending: Lending) -> Iterator["subprocess.Popen[str]"]:
    """A command that has a Ray of its own, and whose only worker falls asleep over the last shard."""
    rows, out = lending.rows("killed", {19: ASLEEP}), lending.folder / "killed-out"
    command = [sys.executable, "-m", "counterpath.cli", "batch", lending.folder / "model", rows, out, "--id", "id"]
    options = ["--target-class", "yes", "--method", "nearest", "--model", "lending:score", "--shard-rows", "7"]
    engine = ["--engine", "ray", "--workers", "1", "--device", "cpu"]
    found = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, *options, *engine], env=found, **pipes) as process:
        yield process
        process.kill()


@pytest.fixture(scope="module")
def cluster(driver: "subprocess.Popen[str]") -> Iterator[Cluster]:
    """A Ray that this process has started, and that engines find; the command starts its own meanwhile."""
    before = _ours(driver)  # other tests may have left helpers that live as long as this process
    cluster = ray.start(WORKERS, GPUS)
    started = _ours(driver)
    yield cluster
    started |= _ours(driver)
    cluster.leave()
    gc.collect()
    assert not left(started - before, 20)


def _ours(driver: "subprocess.Popen[str]") -> set[Process]:
    """The processes of the Ray that this process has started."""
    theirs = {number for number, _ in family(driver.pid)} | {driver.pid}
    return {process for process in family(os.getpid()) if process[0] not in theirs}


def _at_work(driver: "subprocess.Popen[str]") -> set[Process]:
    """Those that do a job, or have it done."""
    return {process for process in _ours(driver) if title(process[0]).startswith(("ray::RayDriver", "ray::MapWorker"))}


def _wait(seconds: float) -> Iterator[None]:
    """As long as something may take, for as long as it is waited for."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield
        time.sleep(0.1)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"--engine ray needs the library 'ray': .*counterpath\[ray\]"):
        Ray(None, 1, "cpu")


@pytest.mark.parametrize(("workers", "device", "problem"), [(0, "cpu", "at least one"), (1, "cuda:1", "cuda:1")])
def test_what_cannot_be_is_refused_before_ray_is_started(workers: int, device: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        Ray(None, workers, device)


def test_an_address_at_which_nothing_listens_is_refused_at_once(cluster: Cluster) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        started = time.monotonic()
        with pytest.raises(InputError, match=r"leads to no Ray: .*refused.* Run this on a machine of the cluster"):
            ray.join(f"127.0.0.1:{taken.getsockname()[1]}")
    assert time.monotonic() - started < 10


def test_nothing_listens_beyond_loopback(cluster: Cluster, driver: "subprocess.Popen[str]") -> None:
    processes = [number for number, _ in _ours(driver)]
    assert any("gcs_server" in title(number) for number in processes)
    assert {"127.0.0.1"} <= addresses([*processes, os.getpid()]) <= {"127.0.0.1", "::1"}


def test_slots_are_left_free_and_gpus_are_shared(cluster: Cluster) -> None:
    assert (cluster.cpus, cluster.gpus) == (WORKERS + SPARE, GPUS)
    assert Ray(None, None, "cpu").workers == WORKERS
    assert Ray(None, 50, "cpu").workers == WORKERS
    assert Ray(None, 1, "cpu").workers == 1
    assert Ray(None, None, "auto").device == "cuda"
    assert Ray(None, None, "auto").workers == GPUS
    assert Ray(None, 5, "cuda").resources == {"num_gpus": 1 / 3}


@pytest.mark.usefixtures("cluster")
def test_a_cluster_that_is_full_is_refused(lending: Lending, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "FREE_SLOT_TIMEOUT", 0.1)
    groups = ray.ray().util
    others = groups.placement_group([{"CPU": WORKERS + SPARE}])
    assert others.wait(20)
    with pytest.raises(BatchError, match="the Ray cluster has no free CPU: 4 in all"):
        lending.run(lending.rows("full", {}), "full-out", Ray(None, None, "cpu"))
    groups.remove_placement_group(others)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_dead_workers_are_replaced_a_deadly_shard_goes_into_quarantine_and_others_are_done(
    lending: Lending,
) -> None:
    rows = lending.rows("deadly", {0: ONCE, 5: FATAL})
    summary = lending.run(rows, "deadly-out", Ray(None, None, "cpu"))
    assert (lending.folder / "died").exists()
    assert (summary["engine"], summary["workers"], summary["rows"]) == ("ray", WORKERS, 16)
    [aside] = summary["quarantine"]
    assert (aside["shard"], aside["source"], aside["first"]) == ("00000-000001", "part-1.parquet", 4)
    assert f"the worker died {TRIES} times over this shard" in aside["problem"]
    expected = lending.run_here(rows, "deadly-here")
    del expected["counterfactuals/00000-000001.parquet"]
    assert content(lending.folder / "deadly-out") == expected
    assert results(lending.folder / "deadly-out")["id"].tolist() == [f"{row:03d}" for row in (*range(4), *range(8, 20))]


@pytest.mark.usefixtures("cluster")
def test_a_job_that_stalls_is_ended(lending: Lending, driver: "subprocess.Popen[str]") -> None:
    started = time.monotonic()
    with pytest.raises(BatchError, match="stalled: its 2 ray workers finished no shard within 1 seconds"):
        lending.run(lending.rows("stalled", {0: ASLEEP}), "stalled-out", Ray(None, None, "cpu"), stall=1)
    assert time.monotonic() - started < 30
    assert not left(_at_work(driver), 20)


@pytest.mark.usefixtures("cluster")
def test_with_the_driver_end_workers_in_the_middle_of_a_shard_and_so_does_the_job(
    lending: Lending, driver: "subprocess.Popen[str]"
) -> None:
    at_work: set[Process] = set()

    def kill() -> None:
        for _ in _wait(100):
            if any((lending.folder / f"asleep-{number}").exists() for number, _ in _at_work(driver)):
                break
        at_work.update(_at_work(driver))
        os.kill(next(number for number, _ in at_work if "RayDriver" in title(number)), signal.SIGKILL)

    Thread(target=kill, daemon=True).start()
    with pytest.raises(BatchError, match="Ray has ended the job: ActorDiedError"):
        lending.run(lending.rows("orphaned", {0: ASLEEP}), "orphaned-out", Ray(None, 1, "cpu"), stall=110)
    assert len(at_work) == 2
    assert not left(at_work, 20)
    assert ray.ray().is_initialized()  # it was there before, and still is


def test_a_worker_that_cannot_begin_says_why(lending: Lending) -> None:
    task = lending.task(lending.rows("elsewhere", {}))
    versions = {**task.job.versions, "torch": "1.0"}
    wrong = {
        "does not see the model /not/here": replace(task, model="/not/here"),
        "does not see the folder of results /not/here": replace(task, out="/not/here"),
        "instead of 1.0": replace(task, job=replace(task.job, versions=versions)),
        "lending:gone": replace(task, job=replace(task.job, user_model="lending:gone")),
    }
    for problem, given in wrong.items():
        shard = json.dumps(asdict(shards_of(task.sources, 4)[0]))
        outcome = outcome_from_json(json.loads(CheckedWorker(json.dumps(asdict(given))).do(shard, deaths=0)))
        assert isinstance(outcome, ShardFailure)
        assert outcome.fatal
        assert problem in outcome.problem


def test_nothing_survives_a_driver_that_is_killed_and_another_goes_on(
    lending: Lending, driver: "subprocess.Popen[str]"
) -> None:
    rows, journal = lending.folder / "killed", lending.folder / "killed-out" / "shards.jsonl"
    for _ in _wait(100):
        if driver.poll() is not None or (journal.exists() and len(journal.read_text().splitlines()) == 3):
            break
    started = family(driver.pid)
    agents = {one for one in started if title(one[0]).startswith(AGENTS)}
    listening = addresses([driver.pid, *(number for number, _ in started)])
    driver.kill()
    printed, lines = driver.communicate()
    assert printed == ""
    assert all(" rows/s" in line for line in lines.splitlines())
    assert len(started) > 5
    assert {"127.0.0.1"} <= listening <= {"127.0.0.1", "::1"}
    assert not left(started - agents, 20)
    messages: list[str] = []
    found = lending.run_here(rows, "killed-out", shard_rows=7, say=messages.append)
    assert messages == ["3 of 4 shards are done already; going on with the others"]
    assert found == lending.run_here(rows, "killed-here", shard_rows=7)
