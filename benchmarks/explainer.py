"""How good the Explainer's answers are with its default settings: Adult and GMC, and models that can only be asked.

    python benchmarks/explainer.py adult gmc --seeds 0,1,2
    python benchmarks/explainer.py adult --model xgboost --seeds 0
    python benchmarks/explainer.py adult --model forest --seeds 0

Every correctly rejected test row is explained at confidence 0.5, with no constraints unless --immutable. Distances are
means over each method's valid rows, then over seeds. `local` is the share that the search itself finds, without being
led anywhere.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import counterpath as cp
from counterpath.answering import LED
from counterpath.data.datasets import Dataset
from counterpath.errors import require
from counterpath.files import write_json

METHODS = ("rsgd", "rsgd-c", "sgd", "nearest")
MEASURES = ("ld_sq", "ld", "l0", "l1", "l2_sq", "linf", "violation", "confidence", "steps")
CLASS_WEIGHTS = {"adult": None, "gmc": "balanced"}


def foreign(name: str, data: Dataset, seed: int) -> Any:
    """A model of somebody else's, trained on the table as it is."""
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    table, labels = data.train.drop(columns=data.target), data.train[data.target]
    text = [column for column in table if table[column].dtype.kind not in "if"]
    encoded = make_column_transformer((OneHotEncoder(sparse_output=False), text), remainder="passthrough")
    if name == "forest":
        return make_pipeline(encoded, RandomForestClassifier(random_state=seed, n_jobs=-1)).fit(table, labels)
    xgboost = require("xgboost", "dev", "this benchmark")
    return make_pipeline(encoded, xgboost.XGBClassifier(random_state=seed, n_jobs=-1)).fit(table, labels)


def run(dataset: str, model: str, seed: int, device: str, rows: int | None, held: bool) -> list[dict[str, Any]]:
    data = cp.datasets.load(dataset)
    asked = None if model == "own" else foreign(model, data, seed)
    started = time.perf_counter()
    explainer = cp.Explainer(class_weight=CLASS_WEIGHTS[dataset], seed=seed, device=device)
    schema = data.schema
    for name in () if held else schema.immutable:
        schema = schema.replace(name, immutable=False)
    explainer.fit(data.train, target=data.target, schema=schema, model=asked)
    fitting = time.perf_counter() - started
    predicted, label = explainer.predict(data.test), data.test[data.target]
    accuracy = np.mean([(predicted[label == value] == value).mean() for value in (0, 1)])
    rejected = data.test[(label == 0) & (predicted == 0)].head(rows)
    agreement = explainer.diagnostics().agreement
    lines = []
    for method in METHODS:
        started = time.perf_counter()
        result = explainer.explain(rejected, target_class=1, method=method, keep_paths=False)
        seconds = time.perf_counter() - started
        valid, measures = result.valid, result.measures()
        real = explainer.predict_proba(result.counterfactuals)[1] if asked is None else _real(asked, result)
        led = result.status["reason"] == LED
        lines.append(
            {
                "dataset": dataset,
                "model": model,
                "method": method,
                "seed": seed,
                "n": len(rejected),
                "balanced_accuracy": float(accuracy),
                "flip_ratio": float(((real >= 0.5) & valid).mean()),
                "local": float((valid & ~led).mean()),
                **{name: float(measures.loc[valid, name].mean()) for name in MEASURES},
                "agreement_held_out": agreement and agreement.held_out,
                "agreement_visited": agreement and agreement.visited,
                "seconds_fit": fitting,
                "seconds_explain": seconds,
            }
        )
        print(pd.DataFrame(lines[-1:]).round(4).to_string(index=False, header=len(lines) == 1), flush=True)
    return lines


def _real(model: Any, result: cp.Explanation) -> pd.Series:
    """What the model itself says about the rows as they were returned."""
    return pd.Series(model.predict_proba(result.counterfactuals)[:, 1], index=result.counterfactuals.index)


def markdown(table: pd.DataFrame) -> str:
    """The means over seeds, for people."""
    heads = {
        "flip_ratio": "flip ratio",
        "local": "found locally",
        "ld_sq": "LD²",
        "l0": "L0",
        "l1": "L1",
        "l2_sq": "L2²",
    }
    lines = [f"| data | model | method | rows | {' | '.join(heads.values())} |", "|" + "---|" * (4 + len(heads))]
    for names, group in table.groupby(["dataset", "model", "method"], sort=False):
        cells = [f"{group[name].mean():.3f} ± {group[name].std(ddof=0):.3f}" for name in heads]
        lines.append(f"| {' | '.join(map(str, names))} | {group['n'].mean():.0f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+", choices=CLASS_WEIGHTS)
    parser.add_argument("--model", choices=("own", "xgboost", "forest"), default="own")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--immutable", action="store_true", help="hold the data set's immutable features")
    parser.add_argument("--rows", type=int, help="at most so many rows")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="a JSON file")
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    settings = (given.device, given.rows, given.immutable)
    lines = [line for name in given.datasets for seed in seeds for line in run(name, given.model, seed, *settings)]
    table = pd.DataFrame(lines)
    means = table.drop(columns="seed").groupby(["dataset", "model", "method"], sort=False).mean(numeric_only=True)
    print(means.round(3).to_string(), markdown(table), sep="\n\n")
    if given.out:
        write_json(given.out, table.astype(object).where(table.notna(), None).to_dict("records"))


if __name__ == "__main__":
    main()
