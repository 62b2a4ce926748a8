"""How fast two checkouts explain the same rows, measured side by side: in turns, so that other work hits both alike.

    python tools/speed.py CHECKOUT_A CHECKOUT_B [--rows 500] [--rounds 3] [--device cpu]

Each checkout fits its own model to a sample of Adult, in a process of its own that stays alive; then they take turns in
explaining. Printed are the medians of the seconds and their ratio, for each method.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

METHODS = ("geodesic", "rsgd", "rsgd-c", "sgd", "face", "nearest")
TRAINING_ROWS = 4000  # enough for a roadmap of some size, few enough to fit in a minute


def serve(rows: int, device: str) -> None:
    """Fit, and then explain by each method whose name comes in; the seconds go out."""
    import counterpath as cp

    try:
        data = cp.datasets.load("adult-carla")
    except cp.InputError:  # an older checkout, which knows it by its old name
        data = cp.datasets.load("adult")
    train = data.train.sample(TRAINING_ROWS, random_state=0)
    started = time.perf_counter()
    explainer = cp.Explainer(hidden=(128, 64), epochs=15, seed=0, device=device, progress=False)
    explainer.fit(train, target=data.target, schema=data.schema)
    print(json.dumps(time.perf_counter() - started), flush=True)
    people = data.test[explainer.predict(data.test) == 0].head(rows)
    for line in sys.stdin:
        started = time.perf_counter()
        explainer.explain(people, 1, method=line.strip())
        print(json.dumps(time.perf_counter() - started), flush=True)


def main() -> None:
    """Let two checkouts take turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs=2, type=Path)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    servers = []
    for checkout in given.checkouts:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(checkout / "src"), os.environ.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, __file__, "--serve", str(given.rows), given.device]
        servers.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        )
    fits = [json.loads(server.stdout.readline()) for server in servers]
    print(f"{'':10} {'A':>8} {'B':>8} {'B/A':>6}   median of {given.rounds} turns, {given.rows} rows, in seconds")
    print(f"{'fit':10} {fits[0]:8.2f} {fits[1]:8.2f} {fits[1] / fits[0]:6.2f}   (once, both at the same time)")
    for method in METHODS:
        seconds: list[list[float]] = [[], []]
        for turn in range(given.rounds + 1):
            for which, server in enumerate(servers):
                server.stdin.write(f"{method}\n")
                server.stdin.flush()
                took = json.loads(server.stdout.readline())
                if turn:  # the first turn warms up
                    seconds[which].append(took)
        one, other = (statistics.median(each) for each in seconds)
        print(f"{method:10} {one:8.2f} {other:8.2f} {other / one:6.2f}")
    for server in servers:
        server.stdin.close()
        server.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]), sys.argv[3])
    else:
        main()
