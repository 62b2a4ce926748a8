"""Our own classifier beside logistic regression and gradient boosting, on six tables.

    python benchmarks/classifier.py [--data german,digits] [--seeds 5] [--validate] [--out FOLDER]

Every seed trains on another four fifths of the training rows, and is measured on another half of the test rows: so the
standard error covers both. `--validate` is for choosing settings: it leaves the test rows alone, and measures on the
fifth of the training rows that is left; its seeds begin at 100. All models see the same encoded rows; logistic
regression has them standardised. Measured are accuracy, AUC (of each class against the rest, for ten classes), log loss
and expected calibration error (of the predicted class, ten bins); predicting the shares of the classes is the baseline.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_digits
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import counterpath as cp
from counterpath.data.encoding import Encoder
from counterpath.models.classifier import blockwise_proba
from counterpath.models.explained import encode_labels
from counterpath.models.own import fit_own
from counterpath.models.training import Run
from counterpath.utils.devices import resolve_device

Rows = tuple[np.ndarray, np.ndarray]
"""Encoded rows, and the index of every row's class."""
DATA = ("adult", "german", "heloc", "compas", "gmc", "digits")
MEASURES = ("accuracy", "auc", "log_loss", "ece", "seconds")
VALIDATION_SEED = 100  # settings are chosen with seeds from here on, results made with those below
BINS = 10  # of the calibration error, as is usual


def load(name: str) -> tuple[Rows, Rows]:
    """Training and test rows of a data set, encoded as the Explainer encodes them."""
    if name == "digits":
        x, y = load_digits(return_X_y=True)
        table = pd.DataFrame(x, columns=[f"p{column}" for column in range(x.shape[1])])
        table["label"] = y
        train, test = train_test_split(table, test_size=0.25, random_state=42)
        target, schema = "label", cp.Schema.infer(train, target="label")
    else:
        data = cp.datasets.load(name)
        train, test, target, schema = data.train, data.test, data.target, data.schema
    encoder = Encoder.fit(train.drop(columns=target), schema)
    classes, labels = encode_labels(train[target])
    place = {label: index for index, label in enumerate(classes)}
    test_labels = np.array([place[label] for label in test[target].tolist()])
    return (
        (encoder.encode(train.drop(columns=target)).numpy(), labels),
        (encoder.encode(test.drop(columns=target)).numpy(), test_labels),
    )


def split(train: Rows, test: Rows, seed: int, validate: bool) -> tuple[Rows, Rows]:
    """The rows that a seed trains on, and those that it is measured on."""
    x, y = train
    kept, left = train_test_split(np.arange(len(y)), test_size=0.2, random_state=seed, stratify=y)
    if validate:
        return (x[kept], y[kept]), (x[left], y[left])
    half = train_test_split(np.arange(len(test[1])), train_size=0.5, random_state=seed, stratify=test[1])[0]
    return (x[kept], y[kept]), (test[0][half], test[1][half])


def own(x: np.ndarray, y: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Our classifier, on the device that `fit` would take."""
    device = resolve_device("auto")
    rows, labels = torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)
    predict = blockwise_proba(fit_own(rows, labels, int(y.max()) + 1, run=Run(seed=seed, progress=False)))
    return lambda new: predict(torch.from_numpy(new).to(device)).double().cpu().numpy()


def scikit(make: Callable[[int], Any]) -> Callable[[np.ndarray, np.ndarray, int], Callable[[np.ndarray], np.ndarray]]:
    """A classifier of scikit-learn's, made for a seed."""
    return lambda x, y, seed: make(seed).fit(x, y).predict_proba


MODELS = {
    "own": own,
    "logistic": scikit(lambda seed: make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))),
    "boosted": scikit(lambda seed: HistGradientBoostingClassifier(random_state=seed)),
    "shares of classes": scikit(lambda seed: DummyClassifier(strategy="prior")),
}


def measure(y: np.ndarray, proba: np.ndarray) -> dict[str, float]:
    """What is measured of probabilities, except time."""
    proba = proba / proba.sum(1, keepdims=True)
    predicted, confidence = proba.argmax(1), proba.max(1)
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs((predicted == y)[bins == b].mean() - confidence[bins == b].mean()) * (bins == b).mean()
            for b in np.unique(bins)]  # fmt: skip
    score = proba[:, 1] if proba.shape[1] == 2 else proba
    return {
        "accuracy": float(accuracy_score(y, predicted)),
        "auc": float(roc_auc_score(y, score, multi_class="ovr", labels=range(proba.shape[1]))),
        "log_loss": float(log_loss(y, proba, labels=range(proba.shape[1]))),
        "ece": float(sum(gaps)),
    }


def one(name: str, seeds: range, validate: bool) -> dict[str, Any]:
    """All models on one data set: by model and measure the value of every seed."""
    train, test = load(name)
    found: dict[str, dict[str, list[float]]] = {model: {key: [] for key in MEASURES} for model in MODELS}
    for seed in seeds:
        (x, y), (new, truth) = split(train, test, seed, validate)
        for model, fit in MODELS.items():
            begun = time.perf_counter()
            predict = fit(x, y, seed)
            seconds = time.perf_counter() - begun
            for key, value in (measure(truth, predict(new)) | {"seconds": seconds}).items():
                found[model][key].append(value)
    return {"rows": len(y), "measured": len(truth), "models": found}


def verdict(models: dict[str, dict[str, list[float]]], key: str, sign: int) -> str:
    """Whether ours is better than logistic regression, by the mean of the differences and its standard error."""
    gain = sign * (np.array(models["own"][key]) - np.array(models["logistic"][key]))
    error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.nan
    word = "better" if gain.mean() > error else "within one standard error" if gain.mean() >= -error else "worse"
    return f"{word} ({sign * gain.mean():+.4f} ± {error:.4f})"


def table(results: dict[str, Any]) -> str:
    """The results as Markdown: mean ± standard error, and the verdicts."""
    lines = [
        "| data | model | accuracy | AUC | log loss | calibration error | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        for model, measured in result["models"].items():
            cells = []
            for key in MEASURES:
                values = np.array(measured[key])
                error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
                cells.append(f"{values.mean():.1f}" if key == "seconds" else f"{values.mean():.4f} ± {error:.4f}")
            lines.append(f"| {name} ({result['rows']:,} rows) | {model} | {' | '.join(cells)} |")
    lines += ["", "| data | AUC, own beside logistic | log loss, own beside logistic |", "|---|---|---|"]
    for name, result in results.items():
        auc, loss = verdict(result["models"], "auc", 1), verdict(result["models"], "log_loss", -1)
        lines.append(f"| {name} | {auc} | {loss} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(DATA), help="which tables, with commas between them")
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds")
    parser.add_argument("--validate", action="store_true", help="measure on training rows, to choose settings")
    parser.add_argument("--out", type=Path, help="a folder for classifier.json and classifier.md")
    given = parser.parse_args()
    first = VALIDATION_SEED if given.validate else 0
    results = {}
    for name in given.data.split(","):
        results[name] = one(name, range(first, first + given.seeds), given.validate)
        print(table({name: results[name]}), flush=True)
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        facts = {"validate": given.validate, "seeds": given.seeds, "torch": torch.__version__, "results": results}
        (given.out / "classifier.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
        (given.out / "classifier.md").write_text(table(results), encoding="utf-8")


if __name__ == "__main__":
    main()
