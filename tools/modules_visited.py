"""List the modules of Counterpath whose code runs while one request is answered.

    python tools/modules_visited.py [--most N]

A small explainer is fitted to a small table first; that does not count. Modules are listed in the order in which they
are first entered, by any thread. With `--most` the exit status is 1 if there are more of them.
"""

import argparse
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pandas as pd

import counterpath as cp

PACKAGE = Path(cp.__file__).resolve().parent
ROWS, ASKED = 300, 8
"""How many rows are fitted, and how many are asked about."""


def people(rows: int = ROWS) -> pd.DataFrame:
    """A small table with numbers, categories and a label that most of them tell."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": random.integers(18, 80, rows),
            "income": np.exp(random.normal(8, 1, rows)).round(2),
            "job": random.choice(["boss", "clerk", "none"], rows),
            "owner": random.random(rows) < 0.4,
        }
    )
    score = (frame["age"] - 45) / 20 + np.log(frame["income"]) - 8 + 1.5 * (frame["job"] == "boss")
    return frame.assign(loan=np.where(score + random.normal(0, 0.3, rows) > 0.6, "yes", "no"))


def fitted(table: pd.DataFrame) -> Any:
    """A small explainer of the table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cp.Explainer(hidden=(16,), epochs=5, device="cpu", progress=False).fit(table, "loan")


@contextmanager
def noted(entered: dict[str, None]) -> Iterator[None]:
    """Note every file of the package whose code is entered within the block, in this thread and in new ones."""
    known: dict[CodeType, bool] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code in known:
            return
        file = Path(code.co_filename).resolve()
        known[code] = file.is_relative_to(PACKAGE)
        if known[code]:
            entered.setdefault(str(file.relative_to(PACKAGE)))

    _set_profile(note)
    try:
        yield
    finally:
        _set_profile(None)


def _set_profile(function: Callable[[FrameType, str, Any], None] | None) -> None:
    threading.setprofile(function)
    sys.setprofile(function)


def modules_visited(method: str) -> list[str]:
    """The modules that one request enters, in the order of first entry."""
    table = people()
    explainer = fitted(table)
    entered: dict[str, None] = {}
    with noted(entered):
        explainer.explain(table.head(ASKED), method=method)
    return list(entered)


def main() -> int:
    """Print the modules and their number, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="geodesic", help="how to search (default: geodesic)")
    parser.add_argument("--most", type=int, metavar="N", help="exit with 1 if there are more modules than this")
    given = parser.parse_args()
    modules = modules_visited(given.method)
    for number, module in enumerate(modules, start=1):
        print(f"{number:3} {module}")
    too_many = given.most is not None and len(modules) > given.most
    print(f"{len(modules)} modules{f', more than {given.most}' if too_many else ''}")
    return 1 if too_many else 0


if __name__ == "__main__":
    sys.exit(main())
