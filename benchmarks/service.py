"""The service under load: clients that each send one row at a time, as fast as they are answered.

    python benchmarks/service.py                     64 clients, two minutes, the Adult model
    python benchmarks/service.py --seconds 10        the same in short
    python benchmarks/service.py --mix               requests as people send them, beside identical ones
    python benchmarks/service.py --mix --before DIR  the same, and by the checkout in DIR before
    python benchmarks/service.py --soak 20000        so many mixed requests, and how the memory grows

A real `counterpath serve` process answers; the clients are a second process, and a third one checks its health all the
while. Then the same clients load a service that computes every request alone (`--batch 1`), and one client alone loads
the first one. Throughput with batches against throughput without is what computing requests together gains.

**The mix** (`mixed`): nine of ten requests ask for explanations, one for predictions. Of those for explanations 90 %
have one row, 8 % five and 2 % twenty, drawn from a thousand rejected people; 40 % name the class; half ask for a
confidence of 0.5, 0.6, 0.7 or 0.8; 40 % lock one to three features, 30 % give one or two directions and 20 % a range;
70 % ask for one plan, 20 % for two and 10 % for three; 50 % want the end alone, 40 % milestones and 10 % whole paths;
92 % leave the method as it is, 4 % ask for `nearest` and 4 % for `rsgd`. Each client draws by a seed of its own, the
same requests in every run. **Identical** requests have one row each, and ask for milestones.

Beside the mix, the wait of somebody with one row is measured while a request of 800 rows and 10 plans is computed, and
a service is stopped by SIGTERM under load: what it had accepted must be answered.
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
WARM_UP = 1 / 3
"""How long clients send requests before anything is measured, as a share of the time for which it is: by then batches
have their usual size."""
PING_EVERY = 0.05
"""Seconds between health checks: thousands in two minutes, enough for a 99th percentile, and hardly any load."""
CACHED_ROWS = 250
"""Rows in a request that fills the caches: some seconds of work, far below the longest time limit."""

WARMED_ROWS = 20
"""The same before mixed requests, whose first third is not counted anyway."""


@contextlib.contextmanager
def serving(folder: Path, *options: str, checkout: Path | None = None) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """A `counterpath serve` process, perhaps of another checkout, and its address."""
    command = [sys.executable, "-m", "counterpath.cli", "serve", f"{NAME}={folder}", "--port", "0", *options]
    own = {} if checkout is None else {"PYTHONPATH": str(checkout / "src")}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | own) as process:
        assert process.stderr is not None
        try:
            announced = next((line for line in process.stderr if "serving" in line), "")
            found = re.search(r"http://\S+", announced)
            if found is None:
                raise RuntimeError(f"the service did not start: {announced}")
            reader = threading.Thread(target=process.stderr.read)  # a full pipe would hold it up
            reader.start()
            yield found[0], process
            if process.poll() is None:
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


def identical(draw: random.Random, rows: list[Any]) -> tuple[str, dict[str, Any]]:
    """A request that asks for the same as all others, about one row."""
    return "explain", {"rows": [draw.choice(rows)], "paths": "milestones"}


def mixed(draw: random.Random, rows: list[Any]) -> tuple[str, dict[str, Any]]:
    """A request as people send them: see above."""
    if draw.random() < 0.1:
        return "predict", {"rows": [draw.choice(rows) for _ in range(draw.choice([1, 1, 1, 10]))]}
    count = draw.choices([1, 5, 20], [90, 8, 2])[0]
    body: dict[str, Any] = {"rows": [draw.choice(rows) for _ in range(count)]}
    if draw.random() < 0.4:
        body["target_class"] = CLASS
    if draw.random() < 0.5:
        body["confidence"] = draw.choice([0.5, 0.6, 0.7, 0.8])
    if draw.random() < 0.4:
        body["lock"] = draw.sample(LOCKED, draw.randint(1, 3))
    if draw.random() < 0.3:
        body["directions"] = dict(draw.sample(DIRECTIONS, draw.randint(1, 2)))
    if draw.random() < 0.2:
        feature, bounds = draw.choice(RANGES)
        body["ranges"] = {feature: bounds}
    body["plans"] = draw.choices([1, 2, 3], [70, 20, 10])[0]
    body["paths"] = draw.choices(["end", "milestones", "all"], [50, 40, 10])[0]
    method = draw.choices([None, "nearest", "rsgd"], [92, 4, 4])[0]
    return "explain", body if method is None else body | {"method": method}


REQUESTS = {"identical": identical, "mixed": mixed}
CLASS = ">50K"
LOCKED = ["education", "marital-status", "occupation", "workclass", "relationship", "hours-per-week"]
DIRECTIONS = [("hours-per-week", "up"), ("education", "up"), ("capital-gain", "up")]
RANGES = [("hours-per-week", [None, 60]), ("capital-gain", [None, 20000]), ("hours-per-week", [20, 50])]


async def one_client(
    client: httpx.AsyncClient, kind: str, number: int, rows: list[Any], deadline: float, most: int, seen: list[Any]
) -> None:
    """Send one request after another; wait as long as a busy service says."""
    draw = random.Random(number)
    for _ in range(most):
        if time.monotonic() > deadline:
            break
        action, body = REQUESTS[kind](draw, rows)
        started = time.monotonic()
        try:
            response = await client.post(f"/v1/models/{NAME}:{action}", json=body)
        except httpx.HTTPError as error:
            seen.append((started, time.monotonic() - started, type(error).__name__))
            continue
        seen.append((started, time.monotonic() - started, response.status_code))
        if response.status_code == 503:
            await asyncio.sleep(float(response.headers["Retry-After"]))


async def all_clients(
    address: str, rows: list[Any], count: int, seconds: float, kind: str, most: int = 1 << 30
) -> list[Any]:
    """When each request was sent, how long it took, and its status."""
    seen: list[Any] = []
    deadline = time.monotonic() + seconds
    limits = httpx.Limits(max_connections=count, max_keepalive_connections=count)
    async with httpx.AsyncClient(base_url=address, timeout=120, limits=limits) as client:
        each = (one_client(client, kind, number, rows, deadline, most, seen) for number in range(count))
        await asyncio.gather(*each)
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


def start(
    role: str, address: str, rows: Path, clients: int, seconds: float, kind: str = "identical", most: int = 1 << 30
) -> "subprocess.Popen[bytes]":
    """A process that plays one role of the benchmark, and writes what it measured beside the rows: see `measured`."""
    arguments = ["--role", role, "--address", address, "--rows", str(rows), "--clients", str(clients)]
    arguments += ["--kind", kind, "--most", str(most)]
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
            memory.append((time.monotonic(), resident(process.pid)))
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


def under(folder: Path, rows: Path, clients: int, seconds: float, kind: str, checkout: Path | None) -> dict[str, Any]:
    """The figures of a service under requests of a kind, as clients see it."""
    with serving(folder, checkout=checkout) as (address, _):
        fill_caches(address, json.loads(rows.read_text())[:WARMED_ROWS])
        assert start("clients", address, rows, clients, WARM_UP * seconds, kind).wait() == 0
        assert start("clients", address, rows, clients, seconds, kind).wait() == 0
        return figures(json.loads(measured("clients", rows).read_text()))


def figures(seen: list[Any]) -> dict[str, Any]:
    """Answers a second, and how long they took."""
    statuses = Counter(str(status) for *_, status in seen)
    took = max(at + taken for at, taken, _ in seen) - min(at for at, *_ in seen)
    latency = sorted(taken for _, taken, status in seen if status == 200)
    found = {f"latency_p{share}": latency[int(share / 100 * len(latency))] for share in (50, 95, 99)}
    return {"seconds": took, "statuses": dict(statuses), "per_second": statuses["200"] / took, **found}


def beside_large(folder: Path, rows: Path, checkout: Path | None) -> dict[str, Any]:
    """How long one row waits while a request of 800 rows and 10 plans is computed, again and again."""
    people = json.loads(rows.read_text())
    large = {"rows": people[:LARGE_ROWS], "plans": LARGE_PLANS, "time_limit": 300}
    with serving(folder, checkout=checkout) as (address, _):
        path = f"{address}/v1/models/{NAME}:explain"
        fill_caches(address, people[:WARMED_ROWS])
        others = threading.Thread(target=_post_and_forget, args=(path, large))
        others.start()
        time.sleep(1)
        taken, until = [], time.monotonic() + BESIDE_SECONDS
        while time.monotonic() < until:
            started = time.monotonic()
            httpx.post(path, json={"rows": [people[len(taken)]]}, timeout=300).raise_for_status()
            taken.append(time.monotonic() - started)
            time.sleep(0.2)
    others.join()
    taken.sort()
    return {"answers": len(taken), "median": taken[len(taken) // 2], "longest": taken[-1]}


LARGE_ROWS, LARGE_PLANS, BESIDE_SECONDS = 800, 10, 20.0


def _post_and_forget(path: str, body: Any) -> None:
    with contextlib.suppress(httpx.HTTPError):  # the service is stopped meanwhile
        httpx.post(path, json=body, timeout=300)


def stopped_under_load(folder: Path, rows: Path, clients: int) -> dict[str, Any]:
    """What became of requests when a service was stopped: which were answered, refused, or cut off."""
    with serving(folder, "--grace", "120") as (address, process):
        fill_caches(address, json.loads(rows.read_text())[:WARMED_ROWS])
        load = start("clients", address, rows, clients, 20, "mixed", most=3)
        time.sleep(8)
        accepted = _accepted(address)
        process.send_signal(signal.SIGTERM)
        load.wait()
        process.wait(60)  # a second signal would end it at once
        seen = json.loads(measured("clients", rows).read_text())
    statuses = Counter(str(status) for *_, status in seen)
    return {"computed_when_stopped": accepted, "statuses": dict(statuses)}


def _accepted(address: str) -> float:
    return sum(_batches(address)[:1])


def soak(folder: Path, rows: Path, clients: int, count: int) -> dict[str, Any]:
    """So many mixed requests in one run: their statuses, and the memory after each tenth of them."""
    with serving(folder) as (address, process):
        fill_caches(address, json.loads(rows.read_text())[:WARMED_ROWS])
        load, sizes = start("clients", address, rows, clients, 1e6, "mixed", most=count // clients), []
        while load.poll() is None:
            sizes.append((time.monotonic(), resident(process.pid)))
            time.sleep(1)
        seen = json.loads(measured("clients", rows).read_text())
    tenths = [_mean_within(sizes, tenth / 10, (tenth + 1) / 10) for tenth in range(10)]
    return figures(seen) | {
        "requests": len(seen),
        "memory_by_tenth": tenths,
        "memory_growth": tenths[9] / tenths[1] - 1,
    }


def compare_mixes(given: argparse.Namespace, folder: Path, rows: Path) -> tuple[dict[str, Any], dict[str, bool]]:
    """Mixed and identical requests, of this checkout and of the one before, and what must hold of them."""
    versions = {"now": (folder, None)}
    if given.before:
        versions = {"before": (given.model_before or folder, given.before), **versions}
    found: dict[str, Any] = {}
    for name, (model, checkout) in versions.items():
        for kind in REQUESTS:
            found[f"{kind}, {name}"] = under(model, rows, given.clients, given.seconds, kind, checkout)
            print(f"{kind}, {name}", found[f"{kind}, {name}"], flush=True)
    found["one row beside 800 rows of 10 plans"] = beside_large(folder, rows, None)
    found["stopped under load"] = stopped_under_load(folder, rows, given.clients)
    mix, same = found["mixed, now"], found["identical, now"]
    cut_off = set(found["stopped under load"]["statuses"]) - {"200", "422", "503", "ConnectError"}
    held = {
        "no 504 in the mix": "504" not in mix["statuses"],
        "p95 of the mix at most 3 times that of identical requests": mix["latency_p95"] <= 3 * same["latency_p95"],
        "one row beside 800 rows within 2 seconds": found["one row beside 800 rows of 10 plans"]["longest"] <= 2,
        "nothing that was accepted is lost by SIGTERM": not cut_off,
    }
    if given.before:
        held["at least 9 times as many answers to the mix"] = (
            mix["per_second"] >= 9 * found["mixed, before"]["per_second"]
        )
    return found, held


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
    parser.add_argument("--mix", action="store_true", help="mixed requests beside identical ones")
    parser.add_argument("--soak", type=int, help="so many mixed requests in one run")
    parser.add_argument("--before", type=Path, help="a checkout to compare the mix with")
    parser.add_argument("--model", type=Path, help="the model of the demo, if it was fitted before")
    parser.add_argument("--model-before", type=Path, help="the same, fitted by the checkout to compare with")
    parser.add_argument("--kind", choices=tuple(REQUESTS), default="identical", help=argparse.SUPPRESS)
    parser.add_argument("--most", type=int, default=1 << 30, help=argparse.SUPPRESS)
    parser.add_argument("--role", choices=("clients", "ping"), help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role == "clients":
        rows = json.loads(given.rows.read_text())
        asked = (given.clients, given.seconds, given.kind, given.most)
        seen = asyncio.run(all_clients(given.address, rows, *asked))
        measured(given.role, given.rows).write_text(json.dumps(seen))
        return
    if given.role == "ping":
        measured(given.role, given.rows).write_text(json.dumps(ping(given.address, given.seconds)))
        return
    # Only here: clients are to start quickly, and to leave the processors to the service.
    import counterpath as cp
    from counterpath.cli.demo import DATA, fitted
    from counterpath.service.schemas import json_records
    from counterpath.utils.files import write_json

    data = cp.datasets.load(DATA)
    explainer = cp.load(given.model) if given.model else fitted(data, "auto")
    rejected = data.test[explainer.predict(data.test) != data.desired_class].drop(columns=data.target).head(1000)
    with tempfile.TemporaryDirectory() as folder:
        model = given.model or explainer.save(Path(folder) / NAME)
        rows = write_json(Path(folder) / "rows.json", json_records(rejected))
        del explainer
        if given.mix:
            found, judged = compare_mixes(given, model, rows)
        elif given.soak:
            found = {"soak": soak(model, rows, given.clients, given.soak)}
            judged = {"memory grows under 5 %": found["soak"]["memory_growth"] < 0.05}
        else:
            short = max(given.seconds / 4, 5)
            batched = load(model, rows, given.clients, given.seconds)
            unbatched = load(model, rows, given.clients, short, "--batch", "1")
            single = load(model, rows, 1, short)
            found = {"with batches": batched, "without batches": unbatched, "one client": single}
            judged = verdicts(batched, unbatched, single)
    for name, each in found.items():
        print(name)
        for figure, value in each.items():
            print(f"  {figure:<18} {f'{value:.4g}' if isinstance(value, float) else value}")
    for wanted, held in judged.items():
        print(f"{'yes' if held else 'NO ':<4}{wanted}")
    if given.out:
        write_json(given.out, found | {"held": judged})
    sys.exit(0 if all(judged.values()) else 1)


if __name__ == "__main__":
    main()
