"""What `geodesic` costs, and how that grows with the training rows.

    python benchmarks/roadmap.py --rows 10000,100000,1000000

A model is fitted to Adult once, without immutable features; then its roadmap is built on more and more training rows,
Adult's own resampled with a little noise, and the same rejected rows are explained. All times are of one run on
`--threads` cores, the processor's seconds (on a GPU those on the clock): building the roadmap; opening the table of
neighbours that plausibility is looked up in; searching without refinement, which is everything up to rows and paths as
tensors; and what refinement adds.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

import counterpath as cp
from counterpath.data.encoding import Encoder
from counterpath.fitting.fitted import FittedModels
from counterpath.search.feasible import FeasibleSet
from counterpath.search.method import SearchOptions
from counterpath.search.methods import METHODS, search
from counterpath.search.objective import Target
from counterpath.search.roadmap import Landmarks
from counterpath.utils.files import write_json

NOISE = 0.01
"""Standard deviation in units of a feature's range: makes resampled rows different, and keeps them on the data."""


def more_rows(rows: Tensor, count: int, encoder: Encoder, seed: int) -> Tensor:
    """Rows drawn with replacement, their numbers moved a little, and legal again."""
    generator = torch.Generator().manual_seed(seed)
    drawn = rows[torch.randint(len(rows), (count,), generator=generator)]
    return encoder.round(drawn + NOISE * torch.randn(drawn.shape, generator=generator))


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time  # others may use the cores, too
    started = clock()
    return work(), clock() - started


def build_roadmap(models: FittedModels, seed: int) -> FittedModels:
    """The same models with landmarks and a roadmap on their training rows."""
    landmarks = Landmarks.of(
        models.latent, models.encoder.round, models.rows, models.probabilities, models.predict_proba, seed
    )
    models = replace(models, landmarks=landmarks, states={})
    models.state(METHODS["geodesic"], SearchOptions())
    return models


def measure(models: FittedModels, factual: Tensor, count: int, seed: int) -> dict[str, float]:
    """Build the roadmap on so many training rows, and explain the factuals."""
    method, target = METHODS["geodesic"], Target(1)
    rows = more_rows(models.rows.cpu(), count, models.encoder, seed).to(models.rows)
    probabilities = models.explained.predict_proba(rows)
    held_out = torch.zeros(count, dtype=torch.bool, device=rows.device)
    models = replace(models, rows=rows, probabilities=probabilities, held_out=held_out, seed=seed)
    models, building = timed(lambda: build_roadmap(models, seed))
    roadmap = models.state(method, SearchOptions()).roadmap
    _, opening = timed(lambda: models.plausibility.distance(factual[:1]))
    feasible = FeasibleSet.of(models.encoder, factual)
    unrefined = models.problem(method, feasible, target, SearchOptions(refine=False))
    _, first = timed(lambda: search(method, unrefined))
    _, second = timed(lambda: search(method, models.problem(method, feasible, target, SearchOptions())))
    return {
        "training rows": count,
        "nodes": len(roadmap.landmarks.z),
        "edges": len(roadmap.graph.ends),
        "bridges": int(roadmap.graph.bridge.sum()),
        "graph": building,
        "opening": opening,
        "people": len(factual),
        "unrefined": first,
        "refinement adds": second - first,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="10000,100000,1000000", help="how many training rows")
    parser.add_argument("--factuals", type=int, default=8000, help="at most so many rows are explained")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--model", type=Path, help="a model directory to use, or to write if it is not there")
    parser.add_argument("--out", type=Path, help="a JSON file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data = cp.datasets.load("adult-carla")
    if options.model is not None and options.model.exists():
        explainer = cp.load(options.model, device=options.device)
    else:
        schema = data.schema
        for name in schema.immutable:
            schema = schema.replace(name, immutable=False)
        explainer = cp.Explainer(seed=options.seed, device=options.device).fit(data.train, data.target, schema=schema)
        if options.model is not None:
            explainer.save(options.model)
    models: FittedModels = explainer.models_
    rejected = data.test[(data.test[data.target] == 0) & (explainer.predict(data.test) == 0)].head(options.factuals)
    factual = models.encoder.encode(rejected[list(models.encoder.schema.names)]).to(models.rows)
    lines = []
    for count in map(int, options.rows.split(",")):
        lines.append(measure(models, factual, count, options.seed))
        print(pd.DataFrame(lines[-1:]).round(2).to_string(index=False, header=len(lines) == 1), flush=True)
    if options.out:
        write_json(options.out, lines)


if __name__ == "__main__":
    main()
