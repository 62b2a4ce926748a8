"""Binary, boolean and ordinal features measured like numbers, and by Fisher and Rao: on validation rows.

    python benchmarks/ordered_metric.py german --seeds 100,101,102 --out results.jsonl
    python benchmarks/ordered_metric.py adult --seeds 100 --rows 4000 --epochs 40 --out results.jsonl
    python benchmarks/ordered_metric.py table --out results.jsonl

A quarter of the training rows is explained, the rest trained on, once a seed: only the metric differs between the two
lines that a seed gives, because what a feature is measured by is no part of the training. Test rows are not looked at.
`stalls` is the share of rows that after 150 steps are not valid and whose probability moved by less than 0.01 in the
last 50 of them.
"""

import argparse
import copy
import json
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

import counterpath as cp
from counterpath.experiments.tabular import FIRST_VALIDATION_SEED, timed
from counterpath.fitting.train import ORDERED_METRICS
from counterpath.geometry.ordered import Ordered
from counterpath.models.latent import context_for
from counterpath.search.methods import geometry_of
from counterpath.search.objective import Objective, Target
from counterpath.search.traverse import traverse

LOCAL, METHODS = ("rsgd", "rsgd-c"), ("rsgd", "rsgd-c", "geodesic")
PEOPLE = 80
"""Rejected validation rows that are explained: of German Credit's 187 about so many are."""
STEPS, LAST, MOVED = 150, 50, 0.01
WANTED = {"german": "good", "adult": ">50K"}


def measured_by(explainer: cp.Explainer, kind: str) -> cp.Explainer:
    """The same fitted models, with ordered features measured in another way."""
    models = explainer.models_
    generator = copy.deepcopy(models.generator)
    ordered = Ordered.of(models.encoder.levels if kind == "fisher-rao" else ())
    generator.ordered_columns = ordered.columns
    generator.ordered_thresholds = ordered.thresholds.to(models.rows)
    other = copy.copy(explainer)
    other.models_ = replace(models, generator=generator, states={})
    return other


def descend(explainer: cp.Explainer, people: pd.DataFrame, method: str, wanted: Any) -> float:
    """The share of rows that stall, in the search alone: 150 steps without what the Explainer does around them."""
    models = explainer.models_
    factual, place = (
        models.encoder.encode(people[list(models.encoder.schema.names)]),
        models.explained.classes.index(wanted),
    )
    model, metric = geometry_of(method, models.search_models)
    objective = Objective.of(models.explained.classifier, Target(place), 0.0)
    options = {"steps": STEPS, "damping": explainer.damping, "progress": False}
    path = traverse(model, metric, objective, factual, context=context_for(model, factual), **options)
    moved = (path.probability[-1] - path.probability[-1 - LAST]).abs()
    said = models.explained.predict_proba(models.encoder.round(path.x[-1])).argmax(-1)
    return float(((said != place) & (moved < MOVED)).double().mean())


def measure(data: str, seed: int, rows: int | None, epochs: int | None) -> list[dict[str, Any]]:
    """Both metrics on the models of one seed."""
    if seed < FIRST_VALIDATION_SEED:
        raise SystemExit(f"settings are chosen with seeds from {FIRST_VALIDATION_SEED} on; given {seed}")
    dataset = cp.datasets.load(data)
    table = dataset.train.sample(frac=1, random_state=seed)[:rows]
    validation, train = table[: len(table) // 4], table[len(table) // 4 :]
    options = {"fallback": False, "seed": seed, "progress": False} | ({} if epochs is None else {"epochs": epochs})
    fitted = cp.Explainer(**options)
    _, seconds = timed(fitted.fit, train, target=dataset.target, schema=dataset.schema)
    people = validation[(fitted.predict(validation) != WANTED[data]).to_numpy()][:PEOPLE]
    lines = []
    for kind in ORDERED_METRICS:
        explainer, figures = measured_by(fitted, kind), {}
        for method in METHODS:
            result, taken = timed(explainer.explain, people, target_class=WANTED[data], method=method)
            found = result.measures()
            valid = found["valid"] > 0
            figures[method] = {
                "flip_ratio": float(valid.mean()),
                **{name: float(found.loc[valid, name].mean()) for name in ("ld_sq", "l0", "l1")},
                "milliseconds_a_row": 1000 * taken / len(people),
            }
            if method in LOCAL:
                figures[method]["stalls"] = descend(explainer, people, method, WANTED[data])
        line = {"data": data, "seed": seed, "ordered_metric": kind, "train_rows": len(train), "people": len(people)}
        lines.append(line | {"seconds_fit": seconds, "methods": figures})
    return lines


def table(lines: list[dict[str, Any]]) -> str:
    """Medians over seeds, in Markdown."""
    text = ["| data | seeds | method | measured | flip ratio | stalls | LD² | L1 | changes |", "|" + "---|" * 9]
    for data in dict.fromkeys(line["data"] for line in lines):
        for method in METHODS:
            for kind in ORDERED_METRICS:
                some = [
                    line["methods"][method] for line in lines if (line["data"], line["ordered_metric"]) == (data, kind)
                ]
                cells = [
                    "–" if name not in some[0] else f"{median(each[name] for each in some):.{digits}f}"
                    for name, digits in (("flip_ratio", 3), ("stalls", 3), ("ld_sq", 4), ("l1", 2), ("l0", 2))
                ]
                text.append(f"| {data} | {len(some)} | `{method}` | {kind} | {' | '.join(cells)} |")
    return "\n".join(text)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=(*WANTED, "table"))
    parser.add_argument("--seeds", default="100")
    parser.add_argument("--rows", type=int, help="of the training rows only so many")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    if asked.data == "table":
        print(table([json.loads(line) for line in asked.out.read_text().splitlines()]))
        return
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    for seed in map(int, asked.seeds.split(",")):
        for line in measure(asked.data, seed, asked.rows, asked.epochs):
            with asked.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
