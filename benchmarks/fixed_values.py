"""Does the time of `explain` depend on how many different values a fixed feature has?

    python benchmarks/fixed_values.py [--rows 8000] [--turns 3] [--out FILE]

Adult (CARLA's version) with one more immutable number, of three values in one table and of as many values as rows in
the other; all else is the same. Both are fitted alike, and the same rejected rows explained in turns, with all
refinement. Printed are the seconds of the processor of each turn, and the ratio of the medians.
"""

import argparse
import json
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import counterpath as cp
from counterpath.data.schema import Feature
from counterpath.utils.files import write_json

SEED = 3


def with_fixed(frame: pd.DataFrame, different: bool) -> pd.DataFrame:
    """The table with a number that follows the age a little: three values, or all of them different."""
    noise = np.random.default_rng(SEED).normal(0, 10, len(frame))
    score = frame["age"].to_numpy(float) + noise
    if different:
        return frame.assign(fixed=score + 1e-3 * np.arange(len(frame)) / len(frame))
    return frame.assign(fixed=np.digitize(score, np.quantile(score, [1 / 3, 2 / 3])).astype(float) + 0.5)


def main() -> None:
    """Measure, and write it as JSON."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=8000)
    options.add_argument("--train-rows", type=int, default=8000)
    options.add_argument("--turns", type=int, default=3)
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    warnings.simplefilter("ignore")
    data = cp.datasets.load("adult-carla")
    train = data.train.sample(given.train_rows, random_state=SEED)
    cases: dict[str, tuple[cp.Explainer, pd.DataFrame]] = {}
    people: pd.Index | None = None
    for name, different in (("three values", False), ("all different", True)):
        schema = cp.Schema([*data.schema.features, Feature("fixed", "continuous", immutable=True)])
        explainer = cp.Explainer(epochs=25, seed=SEED, progress=False)
        explainer.fit(with_fixed(train, different), data.target, schema=schema)
        rows = with_fixed(pd.concat([data.test, data.train]), different).reset_index(drop=True)
        rejected = rows[(explainer.predict(rows) != explainer.classes_[1]).to_numpy()]
        people = rejected.index if people is None else people.intersection(rejected.index)
        cases[name] = explainer, rows
    assert people is not None
    chosen = people[: given.rows]
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    found: dict[str, float] = {}
    for turn in range(given.turns + 1):
        for name, (explainer, rows) in cases.items():
            begun = time.process_time()
            result = explainer.explain(rows.loc[chosen], explainer.classes_[1])
            if turn:  # the first one warms up
                seconds[name].append(time.process_time() - begun)
            found[name] = float(result.status["status"].eq("found").mean())
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    made: dict[str, Any] = {
        "rows": len(chosen),
        "different": {name: int(rows.loc[chosen, "fixed"].nunique()) for name, (_, rows) in cases.items()},
        "found": found,
        "seconds": seconds,
        "ratio": medians["all different"] / medians["three values"],
    }
    print(json.dumps(made, indent=1))
    if given.out:
        write_json(given.out, made)


if __name__ == "__main__":
    main()
