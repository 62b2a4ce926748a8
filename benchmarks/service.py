"""The service under load: clients that each send one row at a time, as fast as they are answered.

    python benchmarks/service.py                     64 clients, two minutes, the Adult model
    python benchmarks/service.py --seconds 10        the same in short

A real `counterpath serve` process answers; the clients are a second process, and a third one checks its health all the
while. Then the same clients load a service that computes every request alone (`--batch 1`), and one client alone loads
the first one. Throughput with batches against throughput without is what computing requests together gains.
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
"""How long clients send requests before anything is measured, as a share of the time for which it is: by then batches
have their usual size."""
PING_EVERY = 0.05
"""Seconds between health checks: thousands in two minutes, enough for a 99th percentile, and hardly any load."""
CACHED_ROWS = 250
"""Rows in a request that fills the caches: some seconds of work, far below the longest time limit."""


@contextlib.contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[str, int]]:
    """A `counterpath serve` process: its address, and its process id."""
    command = [sys.executable, "-m", "counterpath.cli", "serve", f"{NAME}={folder}", "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            announced = next((line for line in process.stderr if "serving" in line), "")
            found = re.search(r"http://\S+", announced)
            if found is None:
                raise RuntimeError(f"the service did not start: {announced}")
            reader = threading.Thread(target=process.stderr.read)  # a full pipe would hold it up
            reader.start()
            yield found[0], process.pid
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, "the service did not stop in an orderly way"
            reader.join()
        finally:
            process.kill()


def fill_caches(address: str, rows: list[Any]) -> None:
    """Have every row explained once: what a service computes when it first needs it is not what is measured."""
    for first in range(0, len(rows), CACHED_ROWS):
        body = {"rows": rows[first : first + CACHED_ROWS], "paths": "end", "time_limit": 300}
        httpx.post(f"{address}/v1/models/{NAME}:explain", json=body, timeout=300).raise_for_status()


async def one_client(client: httpx.AsyncClient, path: str, rows: list[Any], deadline: float, seen: list[Any]) -> None:
    """Send one row after another; wait as long as a busy service says."""
    while time.monotonic() < deadline:
        body = {"rows": [random.choice(rows)], "paths": "milestones"}
        started = time.monotonic()
        response = await client.post(path, json=body)
        seen.append((started, time.monotonic() - started, response.status_code))
        if response.status_code == 503:
            await asyncio.sleep(float(response.headers["Retry-After"]))


async def all_clients(address: str, rows: list[Any], count: int, seconds: float) -> list[Any]:
    seen: list[Any] = []
    deadline = time.monotonic() + seconds
    limits = httpx.Limits(max_connections=count, max_keepalive_connections=count)
    async with httpx.AsyncClient(base_url=address, timeout=120, limits=limits) as client:
        path = f"/v1/models/{NAME}:explain"
        await asyncio.gather(*(one_client(client, path, rows, deadline, seen) for _ in range(count)))
    return seen


def ping(address: str, seconds: float) -> list[float]:
    """How long `/healthz` takes, again and again, by a client that does nothing else."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    taken, deadline = [], time.monotonic() + seconds
    while time.monotonic() < deadline:
        started = time.monotonic()
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        response.read()
        assert response.status == 200
        taken.append(time.monotonic() - started)
        time.sleep(PING_EVERY)
    return taken


def start(role: str, address: str, rows: Path, clients: int, seconds: float) -> "subprocess.Popen[bytes]":
    """A process that plays one role of the benchmark, and writes what it measured beside the rows: see `measured`."""
    arguments = ["--role", role, "--address", address, "--rows", str(rows), "--clients", str(clients)]
    return subprocess.Popen([sys.executable, __file__, *arguments, "--seconds", str(seconds)])


def measured(role: str, rows: Path) -> Path:
    """Where a process writes what it measured; in a pipe that nobody reads meanwhile it would get stuck."""
    return rows.with_name(f"{role}.json")


def resident(process: int) -> int:
    """The memory of a process, in bytes."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def load(folder: Path, rows: Path, clients: int, seconds: float, *options: str) -> dict[str, Any]:
    """The figures of a service under load, as clients see it and as it uses memory."""
    with serving(folder, *options) as (address, process):
        fill_caches(address, json.loads(rows.read_text()))
        assert start("clients", address, rows, clients, WARM_UP * seconds).wait() == 0
        before = _batches(address)
        processes = [start("clients", address, rows, clients, seconds), start("ping", address, rows, 0, seconds)]
        memory = []
        while any(each.poll() is None for each in processes):
            memory.append((time.monotonic(), resident(process)))
            time.sleep(0.2)
        assert not any(each.returncode for each in processes)
        seen, pings = (json.loads(measured(role, rows).read_text()) for role in ("clients", "ping"))
        requests, batches = (now - then for now, then in zip(_batches(address), before, strict=True))
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
        "requests_per_batch": requests / batches,
        "memory_first": first,
        "memory_last": last,
        "memory_growth": last / first - 1,
    }


def _batches(address: str) -> tuple[float, float]:
    """How many requests for explanations were computed so far, in how many batches."""
    text = httpx.get(f"{address}/metrics").text
    found = {name: re.search(rf'batch_requests_{name}{{kind="explain"}} (\S+)', text) for name in ("sum", "count")}
    requests, batches = (0.0 if each is None else float(each[1]) for each in found.values())
    return requests, batches


def _mean_within(memory: list[tuple[float, int]], first: float, last: float) -> float:
    """The mean size in a part of the time, given as shares of all of it."""
    begin, whole = memory[0][0], max(memory[-1][0] - memory[0][0], 1e-9)
    sizes = [size for at, size in memory if first <= (at - begin) / whole <= last]
    return sum(sizes) / len(sizes)


def verdicts(batched: dict[str, Any], unbatched: dict[str, Any], single: dict[str, Any]) -> dict[str, bool]:
    """What must hold."""
    wrong = [status for status in batched["statuses"] if status.startswith("5") and status != "503"]
    return {
        "no 5xx but 503": not wrong,
        "/healthz p99 under 100 ms": batched["health_p99"] < 0.1,
        "memory grows under 5 %": batched["memory_growth"] < 0.05,
        "at least 5 times the throughput without batches": batched["per_second"] >= 5 * unbatched["per_second"],
        "at least 5 times the throughput of one client": batched["per_second"] >= 5 * single["per_second"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--out", type=Path, help="a JSON file")
    parser.add_argument("--role", choices=("clients", "ping"), help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role == "clients":
        rows = json.loads(given.rows.read_text())
        seen = asyncio.run(all_clients(given.address, rows, given.clients, given.seconds))
        measured(given.role, given.rows).write_text(json.dumps(seen))
        return
    if given.role == "ping":
        measured(given.role, given.rows).write_text(json.dumps(ping(given.address, given.seconds)))
        return
    # Only here: clients are to start quickly, and to leave the processors to the service.
    import counterpath as cp
    from counterpath.cli.demo import fitted
    from counterpath.service.schemas import json_records
    from counterpath.utils.files import write_json

    data = cp.datasets.load("adult-carla")
    explainer = fitted(data, "auto")
    rejected = data.test[explainer.predict(data.test) != TARGET].drop(columns=data.target).head(1000)
    short = max(given.seconds / 4, 5)
    with tempfile.TemporaryDirectory() as folder:
        model = explainer.save(Path(folder) / NAME)
        rows = write_json(Path(folder) / "rows.json", json_records(rejected))
        del explainer
        batched = load(model, rows, given.clients, given.seconds)
        unbatched = load(model, rows, given.clients, short, "--batch", "1")
        single = load(model, rows, 1, short)
    found = {"with batches": batched, "without batches": unbatched, "one client": single}
    for name, figures in found.items():
        print(name)
        for figure, value in figures.items():
            print(f"  {figure:<18} {f'{value:.4g}' if isinstance(value, float) else value}")
    judged = verdicts(batched, unbatched, single)
    for wanted, held in judged.items():
        print(f"{'yes' if held else 'NO ':<4}{wanted}")
    if given.out:
        write_json(given.out, found | {"held": judged})
    sys.exit(0 if all(judged.values()) else 1)


if __name__ == "__main__":
    main()
