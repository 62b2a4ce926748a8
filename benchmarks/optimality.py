"""The price of a heuristic: how much farther from the person every method ends than an exhaustive search does.

    python benchmarks/optimality.py --data adult-carla --model own --seeds 0,1,2 --limit-sq 0.02
    python benchmarks/optimality.py --data heloc-carla --model forest --seeds 0,1,2 --people 50 --seconds 20
    python benchmarks/optimality.py --report      # the page and the figure, from what was measured

Correctly rejected test rows are explained by every method, and by the exhaustive search of `exhaustive.py`: all sets of
at most three features, on a grid of all observed values up to 50, else 50 quantiles. An answer counts where it is no
farther from the training rows than 95 % of held-out rows are, or than the person is; with `--limit-sq`, where its
squared LD is at most that, for all methods and the exhaustive search alike. Columns:

| column | meaning |
|---|---|
| found | share of the people with a valid answer |
| plausible | share with one that is no farther from the data than that |
| l1, l0, ld_sq, path_ld_sq | means over plausible answers; the last is the greatest along the path |
| common l1 | L1 over the people whom all methods served, plausible or not |
| ratio | L1 over that of the exhaustive search, on the people for whom both have a plausible answer |
| default over it | L1 of the default, `geodesic`, over that of the method, on the people whom both serve plausibly |
| seconds | CPU seconds a person |

Who the exhaustive search is not done with within `--seconds` counts as somebody whom it does not serve: `ratio` leaves
them out, and `ratio over` says over how many it is.

`limits` compares `max_changes` 1 and 2 with exhaustive searches of that size, `promises` counts what must not happen.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from cases import MODELS, fitted, rejected_rows
from exhaustive import exhaustive

import counterpath as cp
from counterpath.explainer.request import Request
from counterpath.search.candidates import MOST_VALUES, Admissible, feature_values
from counterpath.search.feasible import FeasibleSet
from counterpath.search.method import Problem, SearchOptions
from counterpath.search.objective import Target

METHODS = ("geodesic", "rsgd", "sgd", "nearest", "face")


def cost_of(result: cp.Explanation) -> pd.Series:
    """L1 of valid answers, NaN for the others."""
    return result.measures()["l1"].where(result.valid.to_numpy())


def share_within(explainer: cp.Explainer, limit_sq: float | None) -> float:
    """The greatest share of real rows, as `explain(plausibility=…)` takes it, whose squared LD is at most a limit."""
    low, high = 0.0, 1.0
    if limit_sq is None:
        return SearchOptions().plausibility
    for _ in range(30):  # until the share is known to nine digits
        middle = (low + high) / 2
        low, high = (middle, high) if explainer.models_.plausibility.at(middle) ** 2 <= limit_sq else (low, middle)
    return low


def study(
    data: str,
    kind: str,
    seed: int,
    people: int,
    confidence: float,
    device: str,
    limit_sq: float | None,
    seconds: float,
    how: dict[str, Any],
) -> dict[str, Any]:
    """All that is measured for one data set, model and seed."""
    loaded = cp.datasets.load(data)
    explainer, _ = fitted(loaded, kind, seed, device=device, **how)
    rows, good = rejected_rows(explainer, loaded, people)
    models = explainer.models_
    x = models.encoder.encode(rows).to(models.rows.device)
    target = Target(explainer.classes_.index(good), confidence=confidence)
    constraints = Request().constraints(models.encoder.schema)  # what is not actionable is locked in every request
    feasible = FeasibleSet.of(models.encoder, x, constraints.bounds(models.encoder, rows, x))
    share = share_within(explainer, limit_sq)
    admissible = Admissible.of(Problem(models.setup, feasible, target, SearchOptions(plausibility=share)))
    grid = feature_values(models.encoder, models.rows, MOST_VALUES)
    best = {size: [exhaustive(admissible, row, grid, size, seconds) for row in range(len(x))] for size in (1, 2, 3)}
    reference = np.array([np.nan if each is None else each[1] for each in best[3]])
    asked: dict[str, Any] = {"target_class": good, "confidence": confidence, "plausibility": share}
    table, answers = [], {}
    for method in METHODS:
        explainer.explain(rows.head(2), method=method, **asked)  # what is fitted at the first request
        started = time.process_time()
        answers[method] = explainer.explain(rows, method=method, **asked)
        seconds = (time.process_time() - started) / len(rows)
        table.append({"method": method, "seconds": seconds})
    every = np.all([cost_of(each).notna().to_numpy() for each in answers.values()], axis=0)
    reach, default = admissible.reach.cpu().numpy(), answers[METHODS[0]].measures()["l1"].to_numpy()
    for line in table:
        result = answers[line["method"]]
        measured, valid = result.measures(), result.valid.to_numpy()
        near = valid & (measured["ld"].to_numpy() <= reach + 1e-6)
        ours = near if line is table[0] else ours
        line |= {"found": valid.mean(), "plausible": near.mean()}
        line |= {name: measured.loc[near, name].mean() for name in ("l1", "l0", "ld_sq")}
        line["path_ld_sq"] = path_distance(explainer, result)[near].mean()
        line["common l1"] = measured.loc[every, "l1"].mean()
        both = near & ~np.isnan(reference)
        line["ratio"] = measured.loc[both, "l1"].mean() / reference[both].mean()
        line["ratio over"] = int(both.sum())
        line["default over it"] = default[ours & near].mean() / measured.loc[ours & near, "l1"].mean()
    table.append({"method": "exhaustive", "plausible": np.mean(~np.isnan(reference)), "l1": np.nanmean(reference)})
    shared = {"n": len(rows), "common": int(every.sum()), "limit_sq": models.plausibility.at(share) ** 2}
    return {
        "data": data,
        "model": kind,
        "seed": seed,
        **shared,
        "table": table,
        "limits": limits(explainer, rows, asked, best, table[0]["seconds"], admissible),
        "promises": promises(explainer, rows, asked, feasible),
    }


def path_distance(explainer: cp.Explainer, result: cp.Explanation) -> np.ndarray[Any, Any]:
    """The greatest squared LD along the path of each row."""
    models, paths = explainer.models_, result.paths
    points = models.encoder.encode(paths[list(models.encoder.schema.names)]).to(models.rows.device)
    squared = models.neighbours.nearest(points)[0][:, 0].square().cpu().numpy()
    worst = pd.Series(squared).groupby(paths["row"].to_numpy()).max()
    return worst.reindex(range(len(result.counterfactuals))).to_numpy()


def limits(
    explainer: cp.Explainer,
    rows: pd.DataFrame,
    asked: dict[str, Any],
    best: dict[int, list[Any]],
    seconds: float,
    admissible: Admissible,
) -> list[dict[str, Any]]:
    """Of what an exhaustive search solves under a limit on changes, how much is found, and how long that takes."""
    found = []
    for size in (1, 2):
        started = time.process_time()
        result = explainer.explain(rows, max_changes=size, **asked)
        taken = (time.process_time() - started) / len(rows)
        near = result.valid.to_numpy() & (result.measures()["ld"].to_numpy() <= admissible.reach.cpu().numpy() + 1e-6)
        solved = np.array([each is not None for each in best[size]])
        share = (near & solved).sum() / max(1, solved.sum())
        found.append({"max_changes": size, "solved": int(solved.sum()), "share found": share, "time": taken / seconds})
    return found


def with_training_row(
    explainer: cp.Explainer, feasible: FeasibleSet, lost: np.ndarray[Any, Any], target: Target
) -> int:
    """For how many rows a training row is valid and plausible that has their fixed columns put in."""
    models, count = explainer.models_, 0
    admissible = Admissible.of(Problem(models.setup, feasible, target, SearchOptions()))
    for row in np.flatnonzero(lost).tolist():
        which = torch.full((len(models.rows),), row, device=models.rows.device)
        x = torch.where(feasible.fixed[row], feasible.factual[row], models.rows)
        count += bool(admissible(feasible.legal(x, which), which)[0].any())
    return count


def promises(
    explainer: cp.Explainer, rows: pd.DataFrame, asked: dict[str, Any], feasible: FeasibleSet
) -> dict[str, int]:
    """How often something happens that must not."""
    costs = {level: cost_of(explainer.explain(rows, **asked | {"confidence": level})) for level in (0.5, 0.8, 0.9)}
    lost = sum(int((costs[low].isna() & costs[high].notna()).sum()) for low, high in ((0.5, 0.8), (0.8, 0.9)))
    first = explainer.explain(rows, plans=3, **asked).plan(1)
    dearer = int((cost_of(explainer.explain(rows, **asked)) > cost_of(first) + 1e-6).sum())
    missing = {f"not found at {level}": int(each.isna().sum()) for level, each in costs.items()}
    good = explainer.classes_.index(asked["target_class"])
    missing["not found though a training row with the fixed columns put in is plausible"] = sum(
        with_training_row(explainer, feasible, each.isna().to_numpy(), Target(good, confidence=level))
        for level, each in costs.items()
    )
    return {
        "found at a higher confidence only": lost,
        "only plan costs more than the first of three": dearer,
        **missing,
    }


_INTRODUCTION = """# The price of a heuristic

How much farther from the person every method ends than an exhaustive search does, at equal plausibility: made by
`benchmarks/optimality.py`, whose text says what is measured. Means over seeds; `ratio` is L1 over that of the
exhaustive search, over the people for whom both have a plausible answer; `default over it` is the L1 of `geodesic`
over that of the method, on the people whom both serve plausibly; `l1` is over each method's own plausible
answers, `common l1` over the people whom all methods served. The grid was fixed beforehand: all observed values of a
feature up to 50, else 50 quantiles; between its points an answer may be closer than the exhaustive one. Where it was
given a limit of time, those are left out whom it was not done with. An answer
is plausible if it is no farther from the data than the squared LD in the title says, or than the person is.

![L1 over that of the exhaustive search, by data set, model and method](ratio.png)
"""


def report(results: list[dict[str, Any]], folder: Path) -> None:
    """A page with tables, and a figure."""
    import matplotlib.pyplot as plt

    text, ratios = [_INTRODUCTION], {}
    for case in dict.fromkeys((each["data"], each["model"]) for each in results):
        runs = [each for each in results if (each["data"], each["model"]) == case]
        tables = pd.concat([pd.DataFrame(each["table"]) for each in runs])
        means = tables.groupby("method", sort=False).mean()
        ratios[" ".join(case)] = means["ratio"].drop("exhaustive")
        seeds, people = ", ".join(str(each["seed"]) for each in runs), sum(each["n"] for each in runs)
        limits = ", ".join(f"{each['limit_sq']:.3g}" for each in runs)
        text.append(f"\n## {case[0]}, {case[1]}: seeds {seeds}, {people} people, LD² at most {limits}\n")
        each = ", ".join(
            f"{line['ratio']:.3f}" for run in runs for line in run["table"] if line["method"] == METHODS[0]
        )
        text.append(f"\n{_table(means)}\n\nThe ratio of {METHODS[0]} by seed: {each}.\n")
        limited = pd.concat([pd.DataFrame(each["limits"]) for each in runs]).groupby("max_changes").mean()
        text.append(
            "\nUnder a limit on changes, of what the exhaustive search of that size solves:\n\n" + _table(limited)
        )
        kept = pd.DataFrame([each["promises"] for each in runs]).sum()
        text.append(
            "\n\nHow often what must not be: " + "; ".join(f"{name}: {int(n)}" for name, n in kept.items()) + ".\n"
        )
    (folder / "README.md").write_text("".join(text))
    figure, axes = plt.subplots(figsize=(8, 0.9 + 0.9 * len(ratios)), layout="constrained")
    height = 0.8 / len(METHODS)
    for number, method in enumerate(METHODS):
        where = np.arange(len(ratios)) + number * height
        axes.barh(where, [float(each.get(method, np.nan)) for each in ratios.values()], height, label=method)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(np.arange(len(ratios)) + 0.4 - height / 2, list(ratios))
    axes.invert_yaxis()
    axes.set_xlabel("L1 over that of an exhaustive search (1 is the best there is on the grid)")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    figure.savefig(folder / "ratio.png", dpi=150)


def _table(frame: pd.DataFrame) -> str:
    """A table in Markdown."""
    rows = [[str(frame.index.name), *map(str, frame.columns)], ["---"] * (1 + len(frame.columns))]
    rows += [[str(name), *("–" if pd.isna(v) else f"{v:.3g}" for v in values)] for name, *values in frame.itertuples()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> None:
    """Run the study, and add it to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="adult-carla")
    parser.add_argument("--model", default="own", choices=MODELS)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--people", type=int, default=50)
    parser.add_argument("--confidence", type=float, default=0.5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--limit-sq", type=float, help="the greatest squared LD, instead of that of 95 %% of real rows")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of exhaustive search, a person and size")
    parser.add_argument("--train-rows", type=int, help="fit to so many training rows; by default to all")
    parser.add_argument("--epochs", type=int, help="of the generator, in which the other methods walk")
    parser.add_argument("--keep", type=Path, help="a folder in which fitted explainers are kept for another run")
    parser.add_argument("--out", type=Path, default=Path("docs/results/optimality/results.json"))
    parser.add_argument("--report", action="store_true", help="write the page and the figure, and measure nothing")
    given = parser.parse_args()
    if given.report:
        report(json.loads(given.out.read_text()), given.out.parent)
        return
    for seed in map(int, given.seeds.split(",")):
        torch.manual_seed(seed)
        asked = given.people, given.confidence, given.device, given.limit_sq, given.seconds
        how = {"train_rows": given.train_rows, "epochs": given.epochs or "auto", "keep": given.keep}
        found = study(given.data, given.model, seed, *asked, how)
        whole = json.loads(given.out.read_text()) if given.out.exists() else []
        key = ("data", "model", "seed")
        whole = [each for each in whole if [each[part] for part in key] != [found[part] for part in key]]
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps([*whole, found], indent=1, default=float) + "\n")
        print(given.data, given.model, seed, json.dumps(found["promises"]), json.dumps(found["limits"], default=float))
        print(pd.DataFrame(found["table"]).round(4).to_string(index=False), flush=True)


if __name__ == "__main__":
    main()
