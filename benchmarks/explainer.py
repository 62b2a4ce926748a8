"""What the Explainer finds with its default settings, and how close it is beside what other methods find.

    python benchmarks/explainer.py adult-carla --immutable --confidences 0.5,0.9 --rows 200
    python benchmarks/explainer.py german --model forest --immutable
    python benchmarks/explainer.py --report      # the page and the README's table, from what was measured

Rightly rejected test rows are explained by every method, by default for three seeds that no setting was chosen on. Of
each method are measured flip ratio, distances and plausibility, over its own valid rows and over those that all methods
solved, `common`, where those that solved none are left out. An answer is as plausible as real rows if it is no farther
from the training rows than 95 % of held-out rows are, or than the person is.

`ratio` is L1 of `geodesic` over that of another method:

| column | over which rows |
|---|---|
| ratio | both have an answer that is as plausible as real rows |
| ratio of any | `common`, however implausible the other method's answers are |

`missed` counts rows, at confidence 0.5, 0.8 and 0.9, that `geodesic` has no answer for although a training row, with
the person's fixed features put in, is accepted and as plausible as real rows.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from cases import MODELS, fitted, rejected_rows

import counterpath as cp
from counterpath.explainer.request import Request
from counterpath.search.candidates import Admissible
from counterpath.search.feasible import FeasibleSet
from counterpath.search.method import Problem, SearchOptions
from counterpath.search.objective import Target
from counterpath.utils.files import write_json

METHODS = ("geodesic", "rsgd", "sgd", "nearest")
MEASURES = ("ld_sq", "l0", "l1", "l2_sq", "copy", "path_ld_sq")
LEVELS = (0.5, 0.8, 0.9)  # confidences at which rows that are not found are counted
ROUNDING = 1e-6  # of a distance: what is at the limit is within it
Arrays = dict[str, np.ndarray[Any, Any]]


def run(
    name: str, kind: str, seed: int, immutable: bool, confidences: list[float], rows: int, **how: Any
) -> list[dict[str, Any]]:
    """All that is measured for one data set, model and seed: a line a confidence."""
    data, started = cp.datasets.load(name), time.process_time()
    explainer, model = fitted(data, kind, seed, immutable=immutable, **how)
    taken = time.process_time() - started
    people, wanted = rejected_rows(explainer, data, rows)
    shared = {"data": name, "model": kind, "immutable": immutable, "seed": seed, "train_rows": how["train_rows"]}
    shared |= {"epochs": how["epochs"]}
    shared |= {"people": len(people), "fit_seconds": taken, "missed": missed(explainer, people, wanted)}
    lines = []
    for confidence in confidences:
        measured = {}
        for method in METHODS:
            measured[method] = measure(explainer, model, people, wanted, method, confidence)
        lines.append(shared | {"confidence": confidence} | compared(measured, explainer, people))
        print(json.dumps({key: value for key, value in lines[-1].items() if key != "methods"}), flush=True)
        print(pd.DataFrame(lines[-1]["methods"]).T.round(4).to_string(), flush=True)
    return lines


def measure(
    explainer: cp.Explainer, model: Any, people: pd.DataFrame, wanted: Any, method: str, confidence: float
) -> Arrays:
    """Of every row what its answer by a method is like."""
    started = time.process_time()
    result = explainer.explain(people, target_class=wanted, method=method, confidence=confidence)
    seconds = time.process_time() - started
    found = result.measures()[["ld", *(each for each in MEASURES if not each.startswith("path"))]]
    table = {column: found[column].to_numpy(float) for column in found}
    # What the model itself says of the rows as they were returned.
    asked = explainer if model is None else model
    says = np.asarray(asked.predict_proba(result.counterfactuals))[:, explainer.classes_.index(wanted)]
    table["valid"] = result.valid.to_numpy() & (says >= np.float32(max(0.5, confidence)))  # as the model's own numbers
    models, paths = explainer.models_, result.paths
    points = models.encoder.encode(paths[list(models.encoder.schema.names)]).to(models.rows.device)
    away = pd.Series(models.plausibility.distance(points).square().cpu().numpy()).groupby(paths["row"].to_numpy())
    table["path_ld_sq"] = away.max().reindex(range(len(people))).to_numpy()
    return table | {"seconds": np.full(len(people), seconds / len(people))}


def compared(measured: dict[str, Arrays], explainer: cp.Explainer, people: pd.DataFrame) -> dict[str, Any]:
    """What the answers of all methods are like, and how much closer the default's are."""
    models, default = explainer.models_, measured[METHODS[0]]
    plausibility = models.plausibility
    own = plausibility.distance(models.encoder.encode(people).to(models.rows.device)).cpu().numpy()
    reach = np.maximum(own, plausibility.limit) + ROUNDING
    near = {method: table["valid"] & (table["ld"] <= reach) for method, table in measured.items()}
    common = np.all([table["valid"] for table in measured.values() if table["valid"].any()], axis=0)
    of_methods, ratios = {}, {}
    for method, table in measured.items():
        both, valid = near[METHODS[0]] & near[method], table["valid"]
        line = {"found": valid.mean(), "plausible": near[method].mean(), "over": int(both.sum())}
        line |= {each: _mean(table[each], valid) for each in (*MEASURES, "seconds")}
        line["common_l1"] = _mean(table["l1"], common & valid.any())
        line["ratio"] = _mean(default["l1"], both) / _mean(table["l1"], both)
        of_methods[method] = {each: float(value) for each, value in line.items()}
        if method != METHODS[0]:
            ratios[method] = line["ratio"]
    closest = np.nanmin([of_methods[method]["common_l1"] for method in ratios])  # one may have solved none of them
    return {
        "methods": of_methods,
        "common": int(common.sum()),
        "ratio": float(np.nanmax([*ratios.values(), -np.inf])),
        "ratio_of_any": of_methods[METHODS[0]]["common_l1"] / closest,
        "real_ld_sq": plausibility.typical**2,
        "limit_sq": plausibility.limit**2,
    }


def _mean(values: np.ndarray[Any, Any], which: np.ndarray[Any, Any]) -> float:
    return float(values[which].mean()) if which.any() else float("nan")


def missed(explainer: cp.Explainer, people: pd.DataFrame, wanted: Any) -> dict[str, list[int]]:
    """At each confidence how many rows have no answer, and how many of them a training row is one for.

    It is one if it is admissible with the columns of the person put in that cannot change.
    """
    models, counts = explainer.models_, {}
    x = models.encoder.encode(people).to(models.rows.device)
    constraints = Request().constraints(models.encoder.schema)  # what is not actionable is locked in every request
    feasible = FeasibleSet.of(models.encoder, x, constraints.bounds(models.encoder, people, x))
    for level in LEVELS:
        result = explainer.explain(people, target_class=wanted, confidence=level, paths="end")
        target, found = Target(explainer.classes_.index(wanted), confidence=level), 0
        admissible = Admissible.of(Problem(models.setup, feasible, target, SearchOptions()))
        for row in np.flatnonzero(~result.valid.to_numpy()).tolist():
            which = torch.full((len(models.rows),), row, device=models.rows.device)
            pasted = torch.where(feasible.fixed[row], feasible.factual[row], models.rows)
            found += bool(admissible(feasible.legal(pasted, which), which)[0].any())
        counts[str(level)] = [int((~result.valid).sum()), found]
    return counts


_INTRODUCTION = """# What the Explainer finds

Rightly rejected test rows, explained with default settings; means over seeds that no setting was chosen on. Made by
`benchmarks/explainer.py`, whose text says what is measured; {rows}.
LD² is the squared distance to the nearest training row; *as real rows* says what it is for held-out rows.

"""
_CLOSE = """## How close

L1 is over the rows that all methods solved but those that solved none, whatever the plausibility of their answers,
`over` says how many;
`ratio of any` is that of `geodesic` over the least of the others. `ratio` is L1 of `geodesic` over that of the method
which comes closest to it,
over the rows for which both have an answer that is as plausible as real rows: below 1, `geodesic` is closer than all.

"""
_MISSED = """
## Found whenever there is one

How many rows `geodesic` finds no answer for; and for how many of these a training row, with the person's fixed features
put in, is accepted and as plausible as real rows.

"""
_METHODS = """
## Each method over its own answers

*Plausible* is the share of all rows with an answer that is as plausible as real rows, *ratio* L1 of `geodesic` over
that of the method where both have one; *copies* the share of answers that are equal to a training row; seconds are
those of a CPU core, a row.

"""


def title(line: dict[str, Any]) -> str:
    """What a case is called in tables."""
    held = cp.datasets.load(line["data"]).schema.immutable if line["immutable"] else ()
    names = ", ".join(held)
    names = names if len(names) < 20 else f"{len(held)} features"  # a table has little room
    model = "" if line["model"] == "own" else f", {line['model']}"
    return f"`{line['data']}`{model}" + (f"; {names} immutable" if held else "")


def report(lines: list[dict[str, Any]], folder: Path) -> None:
    """The page, and the table of the README."""
    cases: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for line in lines:
        cases.setdefault((title(line), line["confidence"]), []).append(line)
    seeds = sorted({line["seed"] for line in lines})
    rows = f"seeds {', '.join(map(str, seeds))}, up to {max(line['people'] for line in lines)} rows a seed"
    sampled = sorted({(line["train_rows"], line["epochs"]) for line in lines if line["train_rows"]})
    if sampled:
        sizes = " or ".join(
            f"{count:,} training rows drawn by the seed, the generator for {n} epochs" for count, n in sampled
        )
        rows += f"; all but German fitted to {sizes}"
    text = [_INTRODUCTION.format(rows=rows), _CLOSE]
    heads = ["case", "confidence", "seeds", "rows", "found", "LD²", "as real rows", "L0", *(f"L1 {m}" for m in METHODS)]
    heads += ["over", "ratio of any", "ratio", "by seed"]
    table = []
    for (name, confidence), runs in cases.items():
        means = pd.concat([pd.DataFrame(run["methods"]).T.astype(float).assign(seed=run["seed"]) for run in runs])
        means = means.groupby(level=0, sort=False).mean()
        ratio, any_ratio = (float(np.mean([_number(run[each]) for run in runs])) for each in ("ratio", "ratio_of_any"))
        default = means.loc[METHODS[0]]
        cells = [name, f"{confidence:g}", len(runs), sum(run["people"] for run in runs), f"{default['found']:.3f}"]
        cells += [
            f"{default['ld_sq']:.4f}",
            f"{np.mean([run['real_ld_sq'] for run in runs]):.4f}",
            f"{default['l0']:.2f}",
        ]
        cells += [f"{means.loc[each, 'common_l1']:.3f}" for each in METHODS]
        cells += [sum(run["common"] for run in runs), f"{any_ratio:.2f}", f"**{ratio:.2f}**"]
        cells += [", ".join(f"{_number(run['ratio']):.2f}" for run in runs)]
        table.append(cells)
    text.append(_table(heads, table))
    (folder / "readme_table.md").write_text(_table(heads, table))
    text.append(_MISSED)
    counted: dict[str, dict[str, list[list[int]]]] = {}
    for line in {(title(line), line["seed"]): line for line in lines}.values():
        for level, both in line["missed"].items():
            counted.setdefault(title(line), {}).setdefault(level, []).append(both)
    levels = [f"at {level:g}" for level in LEVELS]
    sums = [
        [name, *(f"{sum(a for a, _ in found[str(x)])}, {sum(b for _, b in found[str(x)])}" for x in LEVELS)]
        for name, found in counted.items()
    ]
    text += [_table(["case", *levels], sums), _METHODS]
    columns = {"found": "flip ratio", "plausible": "plausible", "ld_sq": "LD²", "path_ld_sq": "max LD² on path"}
    columns |= {"l0": "L0", "l1": "L1", "l2_sq": "L2²", "copy": "copies", "ratio": "ratio", "seconds": "seconds"}
    table = []
    for (name, confidence), runs in cases.items():
        means = (
            pd.concat([pd.DataFrame(run["methods"]).T.astype(float) for run in runs])
            .groupby(level=0, sort=False)
            .mean()
        )
        for method in METHODS:
            first = [name, f"{confidence:g}"] if method == METHODS[0] else ["", ""]
            table.append([*first, f"`{method}`", *(f"{means.loc[method, each]:.3f}" for each in columns)])
    text.append(_table(["case", "confidence", "method", *columns.values()], table))
    (folder / "README.md").write_text("".join(text))


def _table(heads: list[str], rows: list[list[Any]]) -> str:
    """A table in Markdown."""
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in [heads, ["---"] * len(heads), *rows]) + "\n"


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _without_nan(value: Any) -> Any:
    """What JSON can hold: null for what is of no rows."""
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    return None if isinstance(value, float) and not np.isfinite(value) else value


def main() -> None:
    """Run the study, and add it to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*")
    parser.add_argument("--model", choices=MODELS, default="own")
    parser.add_argument("--seeds", default="3,4,5")
    parser.add_argument("--immutable", action="store_true", help="hold the data set's immutable features")
    parser.add_argument("--confidences", default="0.5")
    parser.add_argument("--rows", type=int, default=200, help="at most so many rows")
    parser.add_argument("--train-rows", type=int, help="fit to so many training rows; by default to all")
    parser.add_argument("--epochs", type=int, help="of the generator, in which the other methods walk")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--keep", type=Path, help="a folder in which fitted explainers are kept for another run")
    parser.add_argument("--out", type=Path, default=Path("docs/results/explainer/results.json"))
    parser.add_argument("--report", action="store_true", help="write the page, and measure nothing")
    given = parser.parse_args()
    if given.report:
        report(json.loads(given.out.read_text()), given.out.parent)
        return
    warnings.simplefilter("ignore")  # what a fit recommends
    confidences = [float(confidence) for confidence in given.confidences.split(",")]
    how = {"train_rows": given.train_rows, "epochs": given.epochs or "auto", "device": given.device, "keep": given.keep}
    for name in given.datasets:
        for seed in map(int, given.seeds.split(",")):
            lines = run(name, given.model, seed, given.immutable, confidences, given.rows, **how)
            whole = json.loads(given.out.read_text()) if given.out.exists() else []
            key = ("data", "model", "immutable", "seed", "confidence")
            new = {tuple(line[part] for part in key) for line in lines}
            kept = [line for line in whole if tuple(line[part] for part in key) not in new]
            write_json(given.out, [*kept, *map(_without_nan, lines)])


if __name__ == "__main__":
    main()
