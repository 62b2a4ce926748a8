"""The three estimates of a decoder's uncertainty side by side: on the surface with a hole, and on German Credit.

    python benchmarks/uncertainty.py surface --seeds 0,1,2 --out docs/results/uncertainty/surface.jsonl
    python benchmarks/uncertainty.py german --seeds 0 --out docs/results/uncertainty/german.jsonl

One line of JSON for each estimate and seed: how long the fit took, how well σ tells data from empty space (AUC), its
share of tr(M), and by method the flip ratio, LD², the share of paths through the hole, and milliseconds a row.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import counterpath as cp
from counterpath.experiments import surface
from counterpath.experiments.tabular import timed
from counterpath.models.training import Run
from counterpath.models.uncertainty import UNCERTAINTIES

METHODS = ("sgd", "rsgd", "rsgd-c", "geodesic")
PEOPLE = 60
"""Rejected people of German Credit that are explained: of its 250 test rows about so many are."""


def on_surface(kind: str, seed: int) -> dict[str, Any]:
    """The paper's first experiment, with a decoder of this uncertainty."""
    run = Run(seed=seed, progress=False)
    scene, seconds = timed(
        surface.build, surface.PRESETS["quick"], run, torch.device("cpu"), with_flow=False, uncertainty=kind
    )
    paths, cost = {}, {}
    for method in METHODS:
        paths[method], taken = timed(surface.search, scene, method, damping=1e-6, progress=False)
        cost[method] = 1000 * taken / (2 * len(scene.factual))  # once from the factuals, once from the perturbed ones
    measured = surface.measure(scene, paths, damping=1e-6)
    figures = {
        method: {
            key: measured["methods"][method][key]
            for key in ("flip_ratio", "hole_share", "hole_share_behind", "ld_end_sq", "path_ld_max_sq")
        }
        | {"milliseconds_a_row": cost[method]}
        for method in METHODS
    }
    return {"seconds_fit": seconds, **asdict(scene.calibration), "methods": figures}


def on_german(kind: str, seed: int) -> dict[str, Any]:
    """German Credit through the Explainer, as a user has it; local methods without their fallback."""
    data = cp.datasets.load("german")
    explainer = cp.Explainer(uncertainty=kind, fallback=False, seed=seed, progress=False)
    _, seconds = timed(explainer.fit, data.train, target=data.target, schema=data.schema)
    calibration = explainer.diagnostics_.calibration
    rejected = explainer.predict(data.test) != explainer.predict(data.train).mode()[0]
    people, figures = data.test[rejected.to_numpy()].head(PEOPLE), {}
    for method in METHODS:
        result, taken = timed(explainer.explain, people, method=method)
        measures = result.measures()
        figures[method] = {
            "flip_ratio": float(measures["valid"].mean()),
            "ld_sq": float(measures.loc[measures["valid"] > 0, "ld_sq"].mean()),
            "milliseconds_a_row": 1000 * taken / len(people),
        }
    found = {} if calibration is None else asdict(calibration)
    return {"seconds_fit": seconds, **found, "methods": figures}


EXPERIMENTS: dict[str, Callable[[str, int], dict[str, Any]]] = {"surface": on_surface, "german": on_german}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=tuple(EXPERIMENTS))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    for seed in map(int, asked.seeds.split(",")):
        for kind in UNCERTAINTIES:
            line = {"data": asked.data, "uncertainty": kind, "seed": seed, **EXPERIMENTS[asked.data](kind, seed)}
            with asked.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
