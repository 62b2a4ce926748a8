"""How long `explain` takes for many rows on one device, by method; no paths are kept.

    python benchmarks/throughput.py --rows 100000 --methods geodesic,rsgd --device cuda --out out/throughput.json
    python benchmarks/throughput.py --rows 8000 --profile geodesic --device cpu

Adult in CARLA's version (age, race, sex immutable), the settings of `counterpath demo`; rejected people of all rows,
drawn with replacement and each with a noise of a few hundred in the census weight, so that no two are alike. A smaller
call of the same method comes first, so that nothing is loaded, compiled or allocated for the first time; then the
fewest seconds of `--rounds` calls count. `--profile` prints where the last call of a method spent its time.
"""

import argparse
import cProfile
import json
import pstats
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import counterpath as cp
from counterpath.cli.demo import PARAMETERS

WARM_UP = 10_000  # rows: more than one block of any device
NOISE = 500  # of the census weight, which is in the hundred thousands


def people(explainer: cp.Explainer, data: Any, rows: int) -> pd.DataFrame:
    """Rejected people, as many as asked for, of whom no two are quite alike."""
    everybody = pd.concat([data.train, data.test]).drop(columns=data.target)
    rejected = everybody[(explainer.predict(everybody) == 0).to_numpy()]
    random = np.random.default_rng(0)
    drawn = rejected.iloc[random.integers(0, len(rejected), rows)].reset_index(drop=True)
    weight = drawn["fnlwgt"] + random.integers(-NOISE, NOISE + 1, rows)
    return drawn.assign(fnlwgt=weight.clip(everybody["fnlwgt"].min(), everybody["fnlwgt"].max()))


def explained(explainer: cp.Explainer, table: pd.DataFrame, method: str) -> tuple[float, Any]:
    """Seconds of one call, and what it found."""
    started = time.perf_counter()
    result = explainer.explain(table, target_class=1, method=method, paths="end")
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--methods", default="geodesic,rsgd")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--profile", default="", help="methods whose time is looked into")
    parser.add_argument("--model", type=Path, help="where the model is, or is to be kept")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    data = cp.datasets.load("adult-carla")
    if given.model is not None and given.model.exists():
        explainer = cp.load(given.model, device=given.device)
    else:
        explainer = cp.Explainer(**PARAMETERS, device=given.device, progress=False)
        explainer.fit(data.train, target=data.target, schema=data.schema)
        if given.model is not None:
            explainer.save(given.model)
    table, found = people(explainer, data, given.rows), []
    for method in given.methods.split(","):
        explained(explainer, table.head(WARM_UP), method)
        times = [explained(explainer, table, method) for _ in range(given.rounds)]
        result = times[-1][1]
        measures = result.measures()[["l0", "l1", "ld_sq"]].mean()
        line = {"method": method, "rows": given.rows, "device": given.device, "seconds": min(one for one, _ in times)}
        line |= {"found": float(result.valid.mean()), **{name: float(value) for name, value in measures.items()}}
        print(json.dumps(line), flush=True)
        found.append(line)
        if method in given.profile.split(","):
            profile = cProfile.Profile()
            profile.runcall(explained, explainer, table, method)
            for order, count in (("tottime", 45), ("cumulative", 110)):
                pstats.Stats(profile).strip_dirs().sort_stats(order).print_stats(count)
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
