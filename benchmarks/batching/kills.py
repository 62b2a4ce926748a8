"""`kill -9` at random moments: of the process that a user started, and of those that it has at work."""

import shutil
import sys
import time
from pathlib import Path
from random import Random
from subprocess import Popen
from typing import Any

from . import processes
from .jobs import BatchCommand, count_done, faults, messages

WORKERS = {"local": ("counterpath.batch.worker",), "ray": ("ray::MapWorker",)}
"""What the command lines of the workers of an engine have in them."""
DEATHS = 2
"""So many workers of one job may die, whichever shards they have: at the third death a shard is given up."""
_STARTING = 5.0
"""About as many seconds as a worker takes to start."""
_TIMEOUT = 600.0
"""Seconds within which a job of these sizes ends, however busy the machine."""


def kill_starters(
    command: BatchCommand, whole: Path, seconds: float, count: int, seed: int, scratch: Path
) -> dict[str, Any]:
    """Kill what the user started, at moments spread over all of an undisturbed run, and start it again.

    Every other time or so the job is killed again before it may end. Then it must end as if nothing had been. If a run
    ends before its moment, the machine has become faster: later moments are spread over what that run took.

    Args:
        command: What is run.
        whole: The results of a run that nothing happened to.
        seconds: How long that took.
        count: How many kills.
        seed: Of the moments.
        scratch: A folder for the results.
    """
    random, jobs, missed, left = Random(seed), [], 0, count
    while left:
        out, kills = scratch / f"job-{len(jobs)}", []
        again = True
        while left and again:
            moment, again = random.uniform(0, seconds), random.random() < 0.5
            with command.start(out) as process:
                took = _ended(process, moment)
                if took is None:
                    before = count_done(out)
                    processes.kill(process.pid)
            if took is not None:
                missed, again = missed + 1, False
                seconds = seconds if kills else min(seconds, took)  # what goes on takes less time than the whole
                continue
            left -= 1
            kills.append({"second": moment, "shards_done": before, "begun": (out / "manifest.json").exists()})
        if kills:
            jobs.append({"kills": kills, **_finished(command, out, whole)})
        shutil.rmtree(out, ignore_errors=True)
    return {"kills": count, "missed": missed, "jobs": jobs}


def kill_workers(
    command: BatchCommand, whole: Path, count: int, seed: int, scratch: Path, words: tuple[str, ...]
) -> dict[str, Any]:
    """Kill workers while they start and while they work, in any shard: the job goes on by itself.

    Moments are given by how many shards are done, or a third of them by the seconds since there are workers.

    Args:
        command: What is run.
        whole: The results of a run that nothing happened to.
        count: How many kills.
        seed: Of the moments.
        scratch: A folder for the results.
        words: What the command lines of workers have in them.
    """
    random, jobs, missed, left, shards = Random(seed), [], 0, count, count_done(whole)
    while left:
        out, kills = scratch / f"job-{len(jobs)}", []
        with command.start(out) as process:
            for moment in sorted(random.uniform(-0.5, 1.0) for _ in range(min(DEATHS, left))):
                _at_work(process, words)
                if moment < 0:
                    time.sleep(-2 * moment * _STARTING)
                while process.poll() is None and count_done(out) < moment * shards:
                    time.sleep(0.01)
                at_work = _at_work(process, words)
                if not at_work:
                    missed += 1
                    break
                chosen = random.choice(at_work)
                title = processes.command_line(chosen).replace(sys.executable, "python")
                if processes.kill(chosen):
                    kills.append({"shards_done": count_done(out), "process": title})
                    left -= 1
            code = process.wait(_TIMEOUT)
        found = faults(out, whole) if code == 0 else [messages(out).read_text(encoding="utf-8")[-500:]]
        jobs.append({"kills": kills, "exit_code": code, "faults": found})
        shutil.rmtree(out)
    return {"kills": count, "missed": missed, "jobs": jobs}


def survivors(before: set[int], word: str, timeout: float = 30.0) -> list[str]:
    """Processes with a word in their command line that were not there before, and do not end by themselves."""
    until = time.monotonic() + timeout
    while (left := processes.named(word) - before) and time.monotonic() < until:
        time.sleep(0.5)
    return sorted(processes.command_line(process) for process in left)


def _finished(command: BatchCommand, out: Path, whole: Path) -> dict[str, Any]:
    """How the job ends that is started once more, and what is wrong with its results."""
    ended = command.run(out)
    found = faults(out, whole) if ended.code == 0 else [ended.messages.strip()[-500:]]
    return {"exit_code": ended.code, "faults": found}


def _ended(process: "Popen[str]", seconds: float) -> float | None:
    """Wait for a moment; after how many seconds the process ended, if that was before."""
    started = time.monotonic()
    while (passed := time.monotonic() - started) < seconds:
        if process.poll() is not None:
            return passed
        time.sleep(min(0.02, seconds - passed))
    return None


def _at_work(process: "Popen[str]", words: tuple[str, ...]) -> list[int]:
    """The workers, as soon as there are any; none if the job ended before."""
    while process.poll() is None:
        if found := processes.workers(process.pid, words):
            return found
        time.sleep(0.02)
    return []
