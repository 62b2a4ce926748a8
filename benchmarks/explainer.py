"""How good counterfactuals are with the Explainer's default settings: Adult and GMC, and black-box models.

    python benchmarks/explainer.py adult-carla gmc-carla --seeds 0,1,2 --confidences 0.5,0.7,0.9
    python benchmarks/explainer.py adult-carla gmc-carla --seeds 0,1,2 --immutable
    python benchmarks/explainer.py adult-carla --model xgboost --seeds 0
    python benchmarks/explainer.py adult-carla --model forest --seeds 0

Every correctly rejected test row is explained, with no constraints unless --immutable. Distances are means over each
method's valid rows and over the rows that all methods solved (`subset`), then over seeds. `local` is the share that the
search itself finds, without its fallback; `gaps` the share reached only across a gap in the data; `copy` the
share equal to a training row; `path_ld_max_sq` the highest squared LD along a path, its ends included.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import counterpath as cp
from counterpath.data.datasets import Dataset
from counterpath.utils.errors import require
from counterpath.utils.files import write_json

METHODS = ("geodesic", "rsgd", "rsgd-c", "sgd", "face", "nearest")
MEASURES = ("ld_sq", "ld", "l0", "l1", "l2_sq", "linf", "copy", "violation", "confidence", "steps")
SHARES = {"flip_ratio": "valid", "local": "local", "gaps": "gap"}
CLASS_WEIGHTS = {"adult-carla": None, "gmc-carla": "balanced"}


def black_box(name: str, data: Dataset, seed: int) -> Any:
    """A model that offers probabilities alone, trained on the table as it is."""
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


def run(
    dataset: str, model: str, seed: int, device: str, rows: int | None, immutable: bool, confidences: list[float]
) -> list[dict[str, Any]]:
    data = cp.datasets.load(dataset)
    explained = None if model == "own" else black_box(model, data, seed)
    started = time.perf_counter()
    explainer = cp.Explainer(class_weight=CLASS_WEIGHTS[dataset], seed=seed, device=device)
    schema = data.schema
    for name in () if immutable else schema.immutable:
        schema = schema.replace(name, immutable=False)
    explainer.fit(data.train, target=data.target, schema=schema, model=explained)
    fitting = time.perf_counter() - started
    predicted, label = explainer.predict(data.test), data.test[data.target]
    accuracy = np.mean([(predicted[label == value] == value).mean() for value in (0, 1)])
    rejected = data.test[(label == 0) & (predicted == 0)].head(rows)
    agreement = explainer.diagnostics().agreement
    shared = {
        "dataset": dataset,
        "model": model,
        "seed": seed,
        "n": len(rejected),
        "balanced_accuracy": float(accuracy),
        "agreement_held_out": agreement and agreement.held_out,
        "agreement_visited": agreement and agreement.visited,
        "seconds_fit": fitting,
    }
    lines = []
    for confidence in confidences:
        results = {name: _explain(explainer, rejected, name, confidence, explained) for name in METHODS}
        common = pd.concat([frame["valid"] for frame, _ in results.values()], axis=1).all(axis=1)
        for method, (frame, seconds) in results.items():
            for subset, mask in (("valid", frame["valid"]), ("common", common)):
                means = {name: float(frame.loc[mask, name].mean()) for name in (*MEASURES, "path_ld_max_sq")}
                shares = {name: float(frame[column].mean()) for name, column in SHARES.items()}
                line = {"confidence_asked": confidence, "method": method, "subset": subset, "over": int(mask.sum())}
                lines.append({**shared, **line, **shares, **means, "seconds_explain": seconds})
        shown = pd.DataFrame(lines[-2 * len(METHODS) :])
        columns = ["dataset", "seed", "confidence_asked", "method", "subset", "over", *SHARES, *MEASURES]
        print(shown[[*columns, "path_ld_max_sq", "seconds_explain"]].round(4).to_string(index=False), flush=True)
    return lines


def _explain(
    explainer: cp.Explainer, rows: pd.DataFrame, method: str, confidence: float, explained: Any
) -> tuple[pd.DataFrame, float]:
    """One line a row: its measures, and whether there is a counterfactual, and how; and the seconds for all of them."""
    started = time.perf_counter()
    result = explainer.explain(rows, target_class=1, method=method, confidence=confidence)
    seconds = time.perf_counter() - started
    probability = (
        explainer.predict_proba(result.counterfactuals)[1] if explained is None else _probability(explained, result)
    )
    frame = result.measures().astype(float)
    frame["valid"] = result.valid & (probability >= max(0.5, confidence))
    frame["local"] = frame["valid"] & ~result.status["fallback"]
    frame["gap"] = result.status["status"] == "crosses_gap"
    names = list(explainer.schema_.names)
    encoded = explainer.encoder_.encode(result.paths[names]).to(explainer.models_.rows.device)
    away = explainer.models_.plausibility.distance(encoded).square().cpu().numpy()
    highest = np.zeros(len(rows))
    np.maximum.at(highest, result.paths["row"].to_numpy(), away)
    frame["path_ld_max_sq"] = highest
    return frame, seconds


def _probability(model: Any, result: cp.Explanation) -> pd.Series:
    """What the model itself says about the rows as they were returned."""
    return pd.Series(model.predict_proba(result.counterfactuals)[:, 1], index=result.counterfactuals.index)


def markdown(table: pd.DataFrame) -> str:
    """The means over seeds, for people."""
    heads = {
        "flip_ratio": "flip ratio",
        "local": "found locally",
        "ld_sq": "LD²",
        "path_ld_max_sq": "max LD² on path",
        "l0": "L0",
        "l1": "L1",
        "l2_sq": "L2²",
        "copy": "copies",
    }
    first = ["data", "model", "confidence", "over", "method", "rows"]
    lines = [f"| {' | '.join([*first, *heads.values()])} |", "|" + "---|" * (len(first) + len(heads))]
    by = ["dataset", "model", "confidence_asked", "subset", "method"]
    for names, group in table.groupby(by, sort=False):
        cells = [f"{group[name].mean():.3f} ± {group[name].std(ddof=0):.3f}" for name in heads]
        lines.append(f"| {' | '.join(map(str, names))} | {group['over'].mean():.0f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+", choices=CLASS_WEIGHTS)
    parser.add_argument("--model", choices=("own", "xgboost", "forest"), default="own")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--immutable", action="store_true", help="hold the data set's immutable features")
    parser.add_argument("--confidences", default="0.5")
    parser.add_argument("--rows", type=int, help="at most so many rows")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="a JSON file")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    confidences = [float(confidence) for confidence in options.confidences.split(",")]
    settings = (options.device, options.rows, options.immutable, confidences)
    lines = [line for name in options.datasets for seed in seeds for line in run(name, options.model, seed, *settings)]
    table = pd.DataFrame(lines)
    print(markdown(table))
    if options.out:
        write_json(options.out, table.astype(object).where(table.notna(), None).to_dict("records"))


if __name__ == "__main__":
    main()
