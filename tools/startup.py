"""How long it takes until something can be done: `counterpath --help`, and `import counterpath` with all it needs.

    python tools/startup.py [--runs 9]

Each is timed beside the libraries that it cannot do without, in fresh processes that take turns, so that a busy
machine is busy for both; medians are compared. Modules are compiled in a round before that is not counted.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

CASES = {
    "counterpath --help": (
        "from counterpath.cli import main; main(['--help'])",
        "import typer, rich",
        3.0,
    ),
    "import counterpath as cp; cp.Explainer; cp.datasets": (
        "import counterpath as cp; cp.Explainer; cp.datasets",
        "import torch, pandas, sklearn.base",
        1.15,
    ),
}
"""What is timed, what it is compared to, and how many times as long it may take at most."""


def main() -> int:
    """Print a line a case; the exit code is 1 if one of them takes longer than it may."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9, help="how often each is timed")
    runs = parser.parse_args().runs
    is_slow = False
    with tempfile.TemporaryDirectory() as cache:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = cache
        for name, (code, reference, limit) in CASES.items():
            for warm_up in (code, reference):
                measure(warm_up, environment)
            rounds = [(measure(code, environment), measure(reference, environment)) for _ in range(runs)]
            ours, theirs = (statistics.median(times) for times in zip(*rounds, strict=True))
            print(f"{name}: {ours:.2f} s; {reference}: {theirs:.2f} s; {ours / theirs:.2f} times, at most {limit:g}")
            is_slow |= ours > limit * theirs
    return int(is_slow)


def measure(code: str, environment: dict[str, str]) -> float:
    """Seconds that a fresh Python takes to run some code."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
