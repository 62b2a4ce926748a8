"""What each part of holding features and staying close to the row buys, on the same rows.

    python benchmarks/constraints.py adult-carla --seeds 0,1,2
    python benchmarks/constraints.py gmc --seeds 0,1,2

Every correctly rejected test row is explained at confidence 0.5 with the data set's immutable features held, by `rsgd`
with all of its parts, and without one of them at a time:

| variant | what differs |
|---|---|
| whole | nothing: the generative model is conditioned on the immutable features from the start |
| locks | it is not; they are locked by the request, and the same model is conditioned on them then |
| no conditioning | a model that cannot be conditioned: the step alone holds them |
| no residual | paths start at the reconstruction, and not at the row |
| no final pass | redundant changes stay |
| no landmarks | a search that gets stuck has no fallback |
| none of them | no conditioning, residual, final pass or fallback |
| nearest | the nearest accepted training row with the same immutable features |

Distances are means over the valid rows of each variant; `common` has them over the rows that all of them solved.
`first step` is how far the first step of a path goes, in encoded units: a path that jumps is none.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import counterpath as cp
from counterpath.data.datasets import Dataset
from counterpath.data.encoding import Encoder
from counterpath.fitting.train import hold_out
from counterpath.models.training import Run
from counterpath.models.vae import VAETraining, fit_vae
from counterpath.utils.devices import resolve_device
from counterpath.utils.files import write_json

CLASS_WEIGHTS = {"adult-carla": None, "gmc-carla": "balanced"}
PARTS = ("keep_residual", "sparsify", "fallback")
"""The parts of the search that are parameters of the Explainer."""
MEASURES = ("ld_sq", "l0", "l1", "l2_sq", "steps", "violation")
COLUMNS = ("flip_ratio", "local", *MEASURES, "first_step")


def unconditioned(data: Dataset, encoder: Encoder, seed: int, device: str) -> torch.nn.Module:
    """The same VAE, trained as long, that is conditioned on nothing."""
    rows = encoder.encode(data.train.drop(columns=data.target)).to(resolve_device(device))
    rows = rows[~hold_out(len(rows), seed, data.train[data.target].to_numpy()).to(rows.device)]
    training = VAETraining(mean_epochs=max(20, round(4000 * 512 / len(rows))), std_epochs=2)
    return fit_vae(rows, 5, blocks=encoder.blocks, training=training, run=Run(seed=seed, progress=False))


def explained(dataset: str, seed: int, device: str, count: int | None) -> dict[str, cp.Explanation]:
    """The rejected rows of a data set, explained by every variant."""
    data = cp.datasets.load(dataset)
    immutable = list(data.schema.immutable)
    free = data.schema
    for name in immutable:
        free = free.replace(name, immutable=False)
    encoder = Encoder.fit(data.train.drop(columns=data.target), data.schema)
    settings: dict[str, Any] = {
        "method": "rsgd",
        "class_weight": CLASS_WEIGHTS[dataset],
        "seed": seed,
        "device": device,
    }

    def fitted(schema: cp.Schema, **parts: Any) -> cp.Explainer:
        features = {"encoder": encoder} if "generator" in parts else {"schema": schema}
        return cp.Explainer(**settings).fit(data.train, target=data.target, **features, **parts)

    whole, unlocked = fitted(data.schema), fitted(free)
    plain = fitted(data.schema, generator=unconditioned(data, encoder, seed, device))
    predicted, label = whole.predict(data.test), data.test[data.target]
    rejected = data.test[(label == 0) & (predicted == 0)].head(count)

    def explain(explainer: cp.Explainer, **options: Any) -> cp.Explanation:
        parts = {name: options.pop(name) for name in PARTS if name in options}
        before = {name: getattr(explainer, name) for name in parts}
        explainer.set_params(**parts)
        result = explainer.explain(rejected, target_class=1, **options)
        explainer.set_params(**before)
        return result

    return {
        "whole": explain(whole),
        "locks": explain(unlocked, lock=immutable),
        "no conditioning": explain(plain),
        "no residual": explain(whole, keep_residual=False),
        "no final pass": explain(whole, sparsify=False),
        "no landmarks": explain(whole, fallback=False),
        "none of them": explain(plain, keep_residual=False, sparsify=False, fallback=False),
        "nearest": explain(whole, method="nearest"),
    }


def _violations(result: cp.Explanation, names: list[str]) -> float:
    """How many immutable features differ from the factual, as the user knows them, on a path; the mean over rows."""
    paths = result.paths
    first = result.factuals[names].iloc[paths["row"]].reset_index(drop=True)
    differ = (paths[names].reset_index(drop=True).astype(object) != first.astype(object)).groupby(paths["row"]).any()
    return float(differ.sum(axis=1).mean())


def _first_step(result: cp.Explanation) -> float:
    return float(result.paths.loc[result.paths["step"] == 1, "length"].mean())


def measure(dataset: str, seed: int, device: str, count: int | None) -> list[dict[str, Any]]:
    results = explained(dataset, seed, device, count)
    immutable = list(cp.datasets.load(dataset).schema.immutable)
    solved = np.logical_and.reduce([result.valid.to_numpy() for result in results.values()])
    table = []
    for name, result in results.items():
        valid, measures = result.valid.to_numpy(), result.measures()
        fallback = result.status["fallback"].to_numpy(bool)
        for subset, rows in (("valid", valid), ("common", solved)):
            table.append(
                {
                    "dataset": dataset,
                    "seed": seed,
                    "variant": name,
                    "subset": subset,
                    "n": int(rows.sum()),
                    "people": len(valid),
                    "flip_ratio": float(valid.mean()),
                    "local": float((valid & ~fallback).mean()),
                    **{measure: float(measures.loc[rows, measure].mean()) for measure in MEASURES},
                    "violation": _violations(result, immutable),
                    "first_step": _first_step(result),
                }
            )
        print(pd.DataFrame(table[-2:]).round(4).to_string(index=False, header=len(table) == 2), flush=True)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+", choices=CLASS_WEIGHTS)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--rows", type=int, help="at most so many rows")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="a JSON file")
    options = parser.parse_args()
    table = [
        line
        for dataset in options.datasets
        for seed in map(int, options.seeds.split(","))
        for line in measure(dataset, seed, options.device, options.rows)
    ]
    means = pd.DataFrame(table).groupby(["dataset", "subset", "variant"], sort=False)[list(COLUMNS)].mean()
    print(means.round(3).to_string())
    if options.out is not None:
        write_json(options.out, table)


if __name__ == "__main__":
    main()
