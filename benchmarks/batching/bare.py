"""The search alone, on rows that are in memory: what a batch job is measured against.

    python bare.py MODEL ROWS TARGET METHOD THREADS [DEVICE]

Prints, as JSON, the seconds that it takes to explain all rows with so many threads and to measure what was found.
"""

import json
import sys
import time

import pandas as pd
import torch

import counterpath as cp


def main(model: str, rows: str, target: str, method: str, threads: str, device: str = "cpu") -> None:
    torch.set_num_threads(int(threads))
    explainer = cp.load(model, device=device).set_params(progress=False)
    frame = pd.read_parquet(rows, columns=list(explainer.schema_.names))
    started = time.monotonic()
    result = explainer.explain(frame, target_class=int(target), method=method, paths="end")
    searched = time.monotonic()
    result.measures()
    measured = time.monotonic()
    print(json.dumps({"search": searched - started, "measures": measured - searched, "all": measured - started}))


if __name__ == "__main__":
    main(*sys.argv[1:])
