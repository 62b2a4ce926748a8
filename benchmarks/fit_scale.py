"""How time, memory and quality of a fit grow with the rows of a table.

    python benchmarks/fit_scale.py [--data gmc] [--rows 500000,5000000] [--out FILE]
    python benchmarks/fit_scale.py --data adult --rows 500000 --epochs 1      memory alone, which no epoch changes

A data set is resampled to so many rows, numbers with noise, and written as Parquet, piece by piece. Then each file is
fitted as `counterpath fit FILE` does, in a process of its own: measured are its seconds and its peak of resident
memory, from the reading of the file to the written model. `times_encoded` is what the peak is above the memory after
all imports, over the encoded table (float32); `times_added` what it is above that of a fit to 100,000 rows, which holds
what the models and samples of bounded size take whatever the table, over what the encoded table is larger by.
Quality is measured on rows that are resampled from the test rows of the data set, with noise likewise: AUC and log loss
of the classifier, and how much of the numbers' variance the generative model keeps.
"""

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sklearn.metrics import log_loss, roc_auc_score

import counterpath as cp

PIECE = 100_000  # rows that are made at once
NOISE = 0.05  # of a number's standard deviation: enough to make rows differ, and little beside what they say
SMALL = 100_000  # rows of the fit whose memory is taken as that of the program: samples of a table have no more
MEASURED = 50_000  # rows that quality is measured on
MIB = 1024  # getrusage counts in KiB


def resampled(table: pd.DataFrame, target: str, count: int, seed: int) -> pd.DataFrame:
    """Rows drawn with replacement, their numbers with noise and within the range."""
    random = np.random.default_rng(seed)
    rows = table.iloc[random.integers(len(table), size=count)].reset_index(drop=True)
    for name in rows.columns:
        if name == target or not pd.api.types.is_numeric_dtype(table[name]) or table[name].nunique() < 10:
            continue
        noisy = rows[name] + random.normal(0, NOISE * table[name].std(), count)
        noisy = noisy.clip(table[name].min(), table[name].max())
        whole = bool((table[name] == table[name].round()).all())
        rows[name] = noisy.round().astype(table[name].dtype) if whole else noisy.round(2)
    return rows


def write(table: pd.DataFrame, target: str, count: int, file: Path) -> None:
    """So many rows as Parquet."""
    writer = None
    for first in range(0, count, PIECE):
        made = resampled(table, target, min(PIECE, count - first), seed=first)
        piece = pa.Table.from_pandas(made, preserve_index=False)
        writer = writer or pq.ParquetWriter(file, piece.schema)
        writer.write_table(piece)
    assert writer is not None
    writer.close()


def fit(file: Path, target: str, schema: Path, folder: Path, epochs: int | None) -> dict[str, float]:
    """Fit to a file as the command line does; wall and processor seconds, and the peak of memory in MiB."""
    command = [sys.executable, str(Path(__file__).resolve()), "--child", str(file), target, str(schema), str(folder)]
    command += [] if epochs is None else [str(epochs)]
    begun = time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    measured = json.loads(done.stdout.splitlines()[-1])
    return {"seconds": time.perf_counter() - begun, **measured}


def child(file: str, target: str, schema: str, folder: str, *epochs: str) -> None:
    """What the process does that is measured."""
    for name in ("torch._dynamo", "scipy.spatial", "scipy.stats", "sklearn.cluster", "sklearn.neighbors"):
        importlib.import_module(name)  # what a fit imports
    from counterpath.cli import main as command

    pages = int(Path("/proc/self/statm").read_text().split()[1])
    imports = pages * os.sysconf("SC_PAGE_SIZE") / MIB**2
    options = ["--schema", schema, "--out", folder, "--device", "cpu", *(["--epochs", *epochs] if epochs else [])]
    if command(["fit", file, "--target", target, *options]):
        raise SystemExit(1)
    used = resource.getrusage(resource.RUSAGE_SELF)
    measured = {"cpu_seconds": used.ru_utime + used.ru_stime, "imports_mib": imports, "peak_mib": used.ru_maxrss / MIB}
    print(json.dumps(measured))


def quality(folder: Path, test: pd.DataFrame, target: str) -> dict[str, float]:
    """How well the models of a directory do on rows that they have not seen."""
    explainer = cp.Explainer.load(folder, device="cpu")
    labels = [explainer.classes_.index(label) for label in test[target].tolist()]
    proba = explainer.predict_proba(test).to_numpy()
    models = explainer.models_
    x = models.encoder.encode(test.drop(columns=target))
    with torch.no_grad():
        z = models.latent.encode(x)
        decoded = models.latent.decode(z, models.generator.context(x))  # type: ignore[operator, union-attr]
    kept = 1 - (decoded - x).square().sum(0) / (x - x.mean(0)).square().sum(0).clamp_min(1e-9)
    return {
        "auc": float(roc_auc_score(labels, proba[:, 1])),
        "log_loss": float(log_loss(labels, proba / proba.sum(1, keepdims=True))),
        "kept": float(kept[models.encoder.numeric].mean() if hasattr(models.encoder, "numeric") else kept.mean()),
        "encoded_mib": models.rows.numel() * models.rows.element_size() / MIB**2,
        "rows_fitted": len(models.rows),
    }


def main() -> None:
    """Run the benchmark."""
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="gmc", help="the data set that is resampled")
    parser.add_argument("--rows", default="500000,5000000", help="numbers of rows, with commas between them")
    parser.add_argument("--epochs", type=int, help="of the generative model; by default as many as a fit takes")
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    given = parser.parse_args()
    data = cp.datasets.load(given.data)
    test = resampled(data.test, data.target, MEASURED, seed=1)
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data.schema.save(folder / "schema.json")
        for rows in (SMALL, *map(int, given.rows.split(","))):
            file = folder / f"{rows}.parquet"
            write(data.train, data.target, rows, file)
            found: dict[str, Any] = {
                "data": given.data,
                "rows": rows,
                "threads": os.environ.get("OMP_NUM_THREADS", "all"),
            }
            found |= fit(file, data.target, folder / "schema.json", folder / f"model-{rows}", given.epochs)
            found |= quality(folder / f"model-{rows}", test, data.target)
            found["times_encoded"] = (found["peak_mib"] - found["imports_mib"]) / found["encoded_mib"]
            if results:
                beside = {key: found[key] - results[0][key] for key in ("peak_mib", "encoded_mib")}
                found["times_added"] = beside["peak_mib"] / beside["encoded_mib"]
            results.append(found)
            print(json.dumps(found), flush=True)
            file.unlink()
    if given.out is not None:
        given.out.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
