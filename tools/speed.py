"""How fast checkouts do the same work, measured side by side: in turns, so that other work hits all of them alike.

    python tools/speed.py CHECKOUT_A CHECKOUT_B [...] [--what explain,single,batch,service,fit] [--rows 500]

Each checkout works in a process of its own that stays alive. Printed are the medians of the processor's seconds and of
those on the clock, and their ratios to the first checkout; the first of several turns warms up and is not counted.

| what | is timed |
|---|---|
| explain | `explain` by each method, with a model of its own of a sample of Adult |
| batch | `counterpath batch`, local engine, from a Parquet file to files: `rsgd` for all rows, `geodesic` for a tenth |
| service | `counterpath serve`: 32 clients that send the same request, one after another |
| single | from a stored model: the first request of a new process, and the median of the next 50, a row each |
| fit | `fit` with a user's gradient boosting on German Credit, a seed (100, 101, …) a turn; and the L1 of its answers |
"""

import argparse
import json
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

METHODS = ("geodesic", "rsgd", "rsgd-c", "sgd", "face", "nearest")
TRAINING_ROWS = 4000  # enough for a roadmap of some size, few enough to fit in a minute
SINGLE = 50  # people who are explained alone
SLOWER = {"geodesic": 10}  # by how much fewer rows a batch has for a method that takes longer
CLIENTS, REQUESTS = 32, 10  # at once, and how many each sends: some seconds of work
PEOPLE = 40  # validation rows whose answers' L1 is measured
FIRST_SEED = 100  # seeds below are for reported results


class Work:
    """What a checkout can be asked to do; every method returns what it measured beside the seconds."""

    def __init__(self, rows: int, device: str, folder: Path) -> None:
        self.rows, self.device, self.folder = rows, device, folder

    @cache  # noqa: B019  # one object, which lives as long as its process
    def adult(self) -> Any:
        """A model of Adult, and rejected people."""
        import counterpath as cp

        try:
            data = cp.datasets.load("adult-carla")
        except cp.InputError:  # an older checkout, which knows it by its old name
            data = cp.datasets.load("adult")
        train = data.train.sample(TRAINING_ROWS, random_state=0)
        explainer = cp.Explainer(hidden=(128, 64), epochs=15, seed=0, device=self.device, progress=False)
        explainer.fit(train, target=data.target, schema=data.schema)
        explainer.save(self.folder / "model")
        people = data.test[explainer.predict(data.test) == 0].drop(columns=data.target).head(self.rows)
        people.to_parquet(self.folder / "all.parquet", index=False)
        return explainer, people

    def explain(self, method: str) -> dict[str, float]:
        """Explain all rows."""
        explainer, people = self.adult()
        explainer.explain(people, 1, method=method)
        return {}

    def single(self, method: str) -> dict[str, float]:
        """One row a request, in a process that has answered none: the first, and the median of others."""
        _, people = self.adult()
        rows = self.folder / "people.parquet"
        people.iloc[: SINGLE + 1].to_parquet(rows, index=False)
        command = [sys.executable, "-c", _SINGLE, str(self.folder / "model"), str(rows), method, self.device]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        seconds = json.loads(printed.splitlines()[-1])
        return {"median": statistics.median(seconds[1:]), "first": seconds[0]}

    def batch(self, method: str) -> dict[str, float]:
        """From a file to files, by the command."""
        _, people = self.adult()
        rows, out = self.folder / "rows.parquet", self.folder / "out"
        people.head(self.rows // SLOWER.get(method, 1)).to_parquet(rows, index=False)
        shutil.rmtree(out, ignore_errors=True)
        command = ["batch", str(self.folder / "model"), str(rows), str(out), "--target-class", "1"]
        subprocess.run([*CLI, *command, "--method", method, "--device", self.device], check=True, capture_output=True)
        return {}

    def service(self, method: str) -> dict[str, float]:
        """The same request again and again, from many clients; what the service takes to start is not counted."""
        _, people = self.adult()
        body = json.dumps({"rows": [json.loads(people.head(1).to_json(orient="records"))[0]], "method": method})
        command = [*CLI, "serve", f"adult={self.folder / 'model'}", "--port", "0", "--device", self.device]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            announced = next((line for line in process.stderr if "serving" in line), "")
            threading.Thread(target=process.stderr.read, daemon=True).start()  # a full pipe would hold it up
            address = re.search(r"http://\S+", announced)
            assert address is not None, announced
            send = partial(_post, f"{address[0]}/v1/models/adult:explain", body.encode())
            send()
            began, used = time.perf_counter(), _cpu(process.pid)
            with ThreadPoolExecutor(CLIENTS) as clients:
                list(clients.map(lambda _: [send() for _ in range(REQUESTS)], range(CLIENTS)))
            found = {"wall": time.perf_counter() - began, "cpu": _cpu(process.pid) - used}
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        return found

    def fit(self, turn: str) -> dict[str, float]:
        """Fit to a user's boosted model of German Credit, and measure the answers for validation rows."""
        from sklearn.compose import make_column_selector, make_column_transformer
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder

        import counterpath as cp

        seed, data = FIRST_SEED + int(turn), cp.datasets.load("german")
        rows = data.train.sample(frac=1, random_state=seed)
        cut = len(rows) // 5
        validation, train = rows.iloc[:cut].drop(columns=data.target), rows.iloc[cut:]
        words = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        columns = make_column_transformer(
            (words, make_column_selector(dtype_exclude="number")), remainder="passthrough"
        )
        model = make_pipeline(columns, HistGradientBoostingClassifier(random_state=seed))
        model.fit(train.drop(columns=data.target), train[data.target])
        began, used = time.perf_counter(), time.process_time()
        explainer = cp.Explainer(seed=seed, device=self.device, progress=False)
        explainer.fit(train, data.target, schema=data.schema, model=model)
        taken = {"wall": time.perf_counter() - began, "cpu": time.process_time() - used}
        good = str(data.train[data.target].mode()[0])  # most people get the credit
        rejected = validation[explainer.predict(validation).astype(str).to_numpy() != good].head(PEOPLE)
        result = explainer.explain(rejected)
        found = result.status["status"].isin(["found", "crosses_gap"])
        return taken | {"l1": float(result.measures().loc[found, "l1"].mean()), "found": float(found.mean())}


_SINGLE = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import pandas as pd
import counterpath as cp
folder, rows, method, device = sys.argv[1:]
explainer, people, seconds = cp.Explainer.load(folder, device=device), pd.read_parquet(rows), []
for row in range(len(people)):
    began = time.process_time()
    explainer.explain(people.iloc[[row]], 1, method=method)
    seconds.append(time.process_time() - began)
print(json.dumps(seconds))
"""
CLI = [sys.executable, "-m", "counterpath.cli"]
CASES: dict[str, Callable[[int], list[str]]] = {
    "explain": lambda rounds: [method for method in METHODS for _ in range(rounds + 1)],
    "single": lambda rounds: ["geodesic"] * (rounds + 1),
    "batch": lambda rounds: [method for method in ("rsgd", "geodesic") for _ in range(rounds + 1)],
    "service": lambda rounds: ["geodesic"] * (rounds + 1),
    "fit": lambda rounds: [str(turn) for turn in range(rounds)],
}
"""The turns of each kind of work; those of one name are repetitions, of which the first warms up."""


def _post(address: str, body: bytes) -> None:
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        answer.read()


def _cpu(process: int) -> float:
    """The seconds that a process has computed; of the fields after its name the 12th and 13th are clock ticks."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _used() -> float:
    """The processor's seconds of this process and of those that it started and that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


def serve(rows: int, device: str) -> None:
    """Do the work whose name comes in; the seconds go out."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        work = Work(rows, device, Path(folder))
        for line in sys.stdin:
            what, argument = line.split()
            if what != "fit":
                work.adult()
            began, used = time.perf_counter(), _used()
            found = getattr(work, what)(argument)
            print(json.dumps({"wall": time.perf_counter() - began, "cpu": _used() - used} | found), flush=True)


def turns(servers: list[Any], what: str, rounds: int) -> Iterator[tuple[str, list[dict[str, float]]]]:
    """What all servers measured, turn by turn, under the name of the turn."""
    for name in CASES[what](rounds):
        results = []
        for server in servers:
            server.stdin.write(f"{what} {name}\n")
            server.stdin.flush()
            results.append(json.loads(server.stdout.readline()))
        yield name, results


def main() -> None:
    """Let checkouts take turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--what", default="explain", help="with commas between them")
    parser.add_argument("--methods", help="of explain, with commas between them; by default six")
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    if given.methods:
        methods = given.methods.split(",")
        CASES["explain"] = lambda rounds: [method for method in methods for _ in range(rounds + 1)]
    servers = []
    for checkout in given.checkouts:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(checkout.resolve() / "src"), os.environ.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, __file__, "--serve", str(given.rows), given.device]
        servers.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        )
    print(f"{given.rounds} turns, {given.rows} rows; of each checkout the median, and its ratio to the first")
    for what in given.what.split(","):
        measured: dict[str, list[list[dict[str, float]]]] = {}
        for name, results in turns(servers, what, given.rounds):
            measured.setdefault(what if what == "fit" else f"{what} {name}", []).append(results)
        for name, rounds in measured.items():
            counted = rounds if what == "fit" else rounds[1:]
            for key in rounds[0][0]:
                medians = [statistics.median(each[which][key] for each in counted) for which in range(len(servers))]
                ratios = "  ".join(f"{each:9.2f} ({each / medians[0]:.2f})" for each in medians)
                print(f"{name:18} {key:6} {ratios}", flush=True)
    for server in servers:
        server.stdin.close()
        server.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]), sys.argv[3])
    else:
        main()
