"""The service under load: clients that each ask about one person at a time, as fast as they are answered.

    python benchmarks/service.py                     64 clients, two minutes, the Adult model
    python benchmarks/service.py --seconds 10        the same in short

A real `counterpath serve` process answers; the clients are a second process, and a third one asks for health all the
while. Then the same clients ask a service that answers one question a call (`--batch 1`), and one client alone asks the
first one. Throughput together against throughput one at a time is what putting questions together gains.
"""

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

NAME = "adult"
TARGET = 1
WARM_UP = 1 / 3
"""How long clients ask before anything is measured, as a share of the time for which it is."""
PING_EVERY = 0.05
AT_ONCE = 250


@contextlib.contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[str, int]]:
    """A `counterpath serve` process: its address, and its number."""
    command = [sys.executable, "-m", "counterpath.cli", "serve", f"{NAME}={folder}", "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            told = next((line for line in process.stderr if "serving" in line), "")
            found = re.search(r"http://\S+", told)
            if found is None:
                raise RuntimeError(f"the service did not start: {told}")
            reader = threading.Thread(target=process.stderr.read)  # a full pipe would hold it up
            reader.start()
            yield found[0], process.pid
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, "the service did not stop in an orderly way"
            reader.join()
        finally:
            process.kill()


def acquaint(address: str, people: list[Any]) -> None:
    """Ask about everybody once, many at a time, so that what is kept of the roads of people who are alike is there.

    Else the first service that is measured would have time to learn them, and the others would not.
    """
    for first in range(0, len(people), AT_ONCE):
        body = {"rows": people[first : first + AT_ONCE], "paths": "end", "time_limit": 300}
        httpx.post(f"{address}/v1/models/{NAME}:explain", json=body, timeout=300).raise_for_status()


async def one_client(client: httpx.AsyncClient, path: str, people: list[Any], until: float, seen: list[Any]) -> None:
    """Ask about one person after another; wait as long as a busy service says."""
    while time.monotonic() < until:
        body = {"rows": [random.choice(people)], "paths": "milestones"}
        started = time.monotonic()
        answer = await client.post(path, json=body)
        seen.append((started, time.monotonic() - started, answer.status_code))
        if answer.status_code == 503:
            await asyncio.sleep(float(answer.headers["Retry-After"]))


async def all_clients(address: str, people: list[Any], count: int, seconds: float) -> list[Any]:
    seen: list[Any] = []
    until = time.monotonic() + seconds
    limits = httpx.Limits(max_connections=count, max_keepalive_connections=count)
    async with httpx.AsyncClient(base_url=address, timeout=120, limits=limits) as client:
        path = f"/v1/models/{NAME}:explain"
        await asyncio.gather(*(one_client(client, path, people, until, seen) for _ in range(count)))
    return seen


def ping(address: str, seconds: float) -> list[float]:
    """How long `/healthz` takes, again and again, by a client that does nothing else."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    taken, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        started = time.monotonic()
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
        taken.append(time.monotonic() - started)
        time.sleep(PING_EVERY)
    return taken


def part(role: str, address: str, people: Path, clients: int, seconds: float) -> "subprocess.Popen[bytes]":
    """A process that plays one part of the benchmark, and writes what it saw beside the people: see `saw`."""
    arguments = ["--role", role, "--address", address, "--people", str(people), "--clients", str(clients)]
    return subprocess.Popen([sys.executable, __file__, *arguments, "--seconds", str(seconds)])


def saw(role: str, people: Path) -> Path:
    """Where a part writes what it saw; in a pipe that nobody reads meanwhile it would get stuck."""
    return people.with_name(f"{role}.json")


def resident(process: int) -> int:
    """The memory of a process, in bytes."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def load(folder: Path, people: Path, clients: int, seconds: float, *options: str) -> dict[str, Any]:
    """What clients see of a service, and what it takes."""
    with serving(folder, *options) as (address, process):
        acquaint(address, json.loads(people.read_text()))
        assert part("clients", address, people, clients, WARM_UP * seconds).wait() == 0
        before = _batches(address)
        parts = [part("clients", address, people, clients, seconds), part("ping", address, people, 0, seconds)]
        memory = []
        while any(each.poll() is None for each in parts):
            memory.append((time.monotonic(), resident(process)))
            time.sleep(0.2)
        assert not any(each.returncode for each in parts)
        seen, pings = (json.loads(saw(role, people).read_text()) for role in ("clients", "ping"))
        questions, calls = (now - then for now, then in zip(_batches(address), before, strict=True))
    first, last = (_mean_within(memory, *span) for span in ((0.0, 0.1), (0.9, 1.0)))
    statuses = Counter(status for *_, status in seen)
    took = max(at + taken for at, taken, _ in seen) - min(at for at, *_ in seen)
    latency = sorted(taken for _, taken, status in seen if status == 200)
    pings.sort()
    return {
        "clients": clients,
        "seconds": took,
        "options": list(options),
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "per_second": statuses[200] / took,
        "latency_p50": latency[int(0.5 * len(latency))],
        "latency_p99": latency[int(0.99 * len(latency))],
        "health_p50": pings[int(0.5 * len(pings))],
        "health_p99": pings[int(0.99 * len(pings))],
        "health_max": pings[-1],
        "questions_a_call": questions / calls,
        "memory_first": first,
        "memory_last": last,
        "memory_growth": last / first - 1,
    }


def _batches(address: str) -> tuple[float, float]:
    """How many questions for explanations were answered so far, by how many calls."""
    text = httpx.get(f"{address}/metrics").text
    found = {name: re.search(rf'batch_questions_{name}{{kind="explain"}} (\S+)', text) for name in ("sum", "count")}
    questions, calls = (0.0 if each is None else float(each[1]) for each in found.values())
    return questions, calls


def _mean_within(memory: list[tuple[float, int]], first: float, last: float) -> float:
    """The mean size in a part of the time, given as shares of all of it."""
    begin, whole = memory[0][0], max(memory[-1][0] - memory[0][0], 1e-9)
    sizes = [size for at, size in memory if first <= (at - begin) / whole <= last]
    return sum(sizes) / len(sizes)


def verdicts(together: dict[str, Any], alone: dict[str, Any], single: dict[str, Any]) -> dict[str, bool]:
    """What must hold."""
    wrong = [status for status in together["statuses"] if status.startswith("5") and status != "503"]
    return {
        "no 5xx but 503": not wrong,
        "/healthz p99 under 100 ms": together["health_p99"] < 0.1,
        "memory grows under 5 %": together["memory_growth"] < 0.05,
        "at least 5 times the throughput of one question a call": together["per_second"] >= 5 * alone["per_second"],
        "at least 5 times the throughput of one client": together["per_second"] >= 5 * single["per_second"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--out", type=Path, help="a JSON file")
    parser.add_argument("--role", choices=("clients", "ping"), help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--people", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role == "clients":
        people = json.loads(given.people.read_text())
        seen = asyncio.run(all_clients(given.address, people, given.clients, given.seconds))
        saw(given.role, given.people).write_text(json.dumps(seen))
        return
    if given.role == "ping":
        saw(given.role, given.people).write_text(json.dumps(ping(given.address, given.seconds)))
        return
    # Only here: clients are to start quickly, and to leave the processors to the service.
    import counterpath as cp
    from counterpath.cli.demo import fitted
    from counterpath.service.schemas import records
    from counterpath.utils.files import write_json

    data = cp.datasets.load(NAME)
    explainer = fitted(data, "auto")
    rejected = data.test[explainer.predict(data.test) != TARGET].drop(columns=data.target).head(1000)
    short = max(given.seconds / 4, 5)
    with tempfile.TemporaryDirectory() as folder:
        model = explainer.save(Path(folder) / NAME)
        people = write_json(Path(folder) / "people.json", records(rejected))
        del explainer
        together = load(model, people, given.clients, given.seconds)
        alone = load(model, people, given.clients, short, "--batch", "1")
        single = load(model, people, 1, short)
    found = {"together": together, "one question a call": alone, "one client": single}
    for name, figures in found.items():
        print(name)
        for figure, value in figures.items():
            print(f"  {figure:<18} {f'{value:.4g}' if isinstance(value, float) else value}")
    judged = verdicts(together, alone, single)
    for wanted, held in judged.items():
        print(f"{'yes' if held else 'NO ':<4}{wanted}")
    if given.out:
        write_json(given.out, found | {"held": judged})
    sys.exit(0 if all(judged.values()) else 1)


if __name__ == "__main__":
    main()
