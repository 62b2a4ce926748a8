"""What `geodesic` costs, and how that grows with the training rows.

    python benchmarks/roads.py --rows 10000,100000,1000000

A model is fitted to Adult once, without immutable features; then its network is laid on more and more training rows,
Adult's own resampled with a little noise, and the same people are explained. All times are wall-clock seconds of one
run on `--threads` cores: laying the graph; explaining without refinement, which is everything up to the returned rows
and paths as tensors; and what refinement and the final pass add.
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
from counterpath.fitting.fitted import FittedModels
from counterpath.fitting.train import with_roads
from counterpath.search.feasible import FeasibleSet
from counterpath.search.methods import METHODS
from counterpath.search.objective import Target
from counterpath.search.problem import SearchOptions
from counterpath.utils.files import write_json

NOISE = 0.01


def more_rows(rows: Tensor, count: int, encoder: Any, seed: int) -> Tensor:
    """Rows drawn with replacement, their numbers moved a little, and legal again."""
    generator = torch.Generator().manual_seed(seed)
    drawn = rows[torch.randint(len(rows), (count,), generator=generator)]
    legal: Tensor = encoder.round(drawn + NOISE * torch.randn(drawn.shape, generator=generator))
    return legal


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    return work(), time.perf_counter() - started


def measure(models: FittedModels, people: Tensor, count: int, seed: int) -> dict[str, float]:
    """Lay the network on so many training rows, and explain the people."""
    rows = more_rows(models.rows.cpu(), count, models.encoder, seed).to(models.rows)
    answers = models.explained.predict_proba(rows)
    held_out = torch.zeros(count, dtype=torch.bool, device=rows.device)
    bare = replace(models, rows=rows, probabilities=answers, held_out=held_out, landmarks=None, graph=None)
    laid, laying = timed(lambda: with_roads(bare, seed))
    assert laid.graph is not None
    assert laid.landmarks is not None
    _, opening = timed(lambda: (laid.network, laid.data.distance(people[:1])))
    scope, wanted, method = FeasibleSet.of(laid.encoder, people), Target(1), METHODS["geodesic"](laid.parts)
    plain = laid.quest(SearchOptions(refine=False, sparsify=False))
    whole = laid.quest(SearchOptions())
    _, first = timed(lambda: plain.pursue(method, scope, wanted))
    _, second = timed(lambda: whole.pursue(method, scope, wanted))
    return {
        "training rows": count,
        "nodes": len(laid.landmarks.z),
        "edges": len(laid.graph.ends),
        "bridges": int(laid.graph.bridge.sum()),
        "graph": laying,
        "opening": opening,
        "people": len(people),
        "unrefined": first,
        "refinement adds": second - first,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="10000,100000,1000000")
    parser.add_argument("--people", type=int, default=8000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--model", type=Path, help="a model directory to use, or to write if it is not there")
    parser.add_argument("--out", type=Path, help="a JSON file")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    data = cp.datasets.load("adult")
    if given.model is not None and given.model.exists():
        explainer = cp.load(given.model, device=given.device)
    else:
        schema = data.schema
        for name in schema.immutable:
            schema = schema.replace(name, immutable=False)
        explainer = cp.Explainer(seed=given.seed, device=given.device).fit(data.train, data.target, schema=schema)
        if given.model is not None:
            explainer.save(given.model)
    rejected = data.test[(data.test[data.target] == 0) & (explainer.predict(data.test) == 0)].head(given.people)
    models = explainer.models_
    people = models.encoder.encode(rejected[list(models.encoder.schema.names)]).to(models.rows)
    lines = []
    for count in map(int, given.rows.split(",")):
        lines.append(measure(models, people, count, given.seed))
        print(pd.DataFrame(lines[-1:]).round(2).to_string(index=False, header=len(lines) == 1), flush=True)
    if given.out:
        write_json(given.out, lines)


if __name__ == "__main__":
    main()
