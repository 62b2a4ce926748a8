"""Whether an audit finds a bias that was planted, and nothing where there is none; and what a large one needs.

    python benchmarks/audit.py power [--runs 200] [--pool 2000] [--people 500] [--seed 0] [--population] [--out FILE]
    python benchmarks/audit.py tree [--runs 40] [--out FILE]
    python benchmarks/audit.py parquet [--rows 1000000] [--out FILE]

`power`: people have an income, savings, hours and a group. The model is fitted without bias in the data; then the
income of one group is shifted down by 0, 0.25, 0.5 and 1 standard deviation: of people whom the model rejects, or with
--population of all people, of whom those that the model then rejects are taken. That is harder to see, because those
who are rejected for the shift alone are near the boundary. They are explained, and each run draws so many of either
group from that pool without replacement. An alarm is any difference that is shown at the 5 % level after Holm's
correction over all measures. Runs of one pool share people, so they are not quite independent.

`tree`: the income of those who are of one group and of one region is shifted by one standard deviation; counted is in
how many runs a group that the tree shows as worse off in cost has exactly these two conditions.

`parquet`: results as `counterpath batch` writes them are made up, with a difference, and audited; measured are seconds
and the largest memory of the process above what it had before.
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import counterpath as cp
from counterpath.explanation.audit import audit, burdens

SHIFTS = (0.0, 0.25, 0.5, 1.0)
COUNT = 4000


def people(rng: np.random.Generator, count: int) -> pd.DataFrame:
    """A table without bias: nothing depends on the group or the region."""
    return pd.DataFrame(
        {
            "income": rng.normal(3000, 800, count).round(),
            "savings": rng.normal(10, 4, count).round(1),
            "hours": rng.normal(35, 8, count).round(),
            "group": rng.choice(["a", "b"], count),
            "region": rng.choice(["east", "north", "south", "west"], count),
        }
    )


def fitted(rng: np.random.Generator) -> cp.Explainer:
    """An explainer of a model of such people; group and region cannot be changed."""
    table = people(rng, COUNT)
    score = (table["income"] - 3000) / 800 + (table["savings"] - 10) / 4 + 0.5 * (table["hours"] - 35) / 8
    label = np.where(score + rng.normal(0, 0.5, COUNT) > 0.5, "yes", "no")
    schema = cp.Schema.infer(table).with_immutable("group", "region")
    return cp.Explainer(seed=100, progress=False).fit(table.assign(loan=label), "loan", schema=schema)


def rejected(
    explainer: cp.Explainer, rng: np.random.Generator, count: int, shifted: Any, shift: float, later: bool
) -> cp.Explanation:
    """The explanation of so many rejected people, after the income of some was shifted down."""
    kept: list[pd.DataFrame] = []
    while sum(map(len, kept)) < count:
        table = people(rng, 2 * count)
        if not later:
            table["income"] -= (shift * 800 * shifted(table)).round()
        kept.append(table[(explainer.predict(table) == "no").to_numpy()])
    table = pd.concat(kept, ignore_index=True).head(count)
    if later:
        table["income"] -= (shift * 800 * shifted(table)).round()
    return explainer.explain(table, "yes", paths="end")


def power(arguments: argparse.Namespace) -> dict[str, Any]:
    """The share of runs with an alarm, by the shift."""
    rng = np.random.default_rng(arguments.seed)
    explainer, found = fitted(rng), {}
    for shift in SHIFTS:
        result = rejected(
            explainer, rng, 2 * arguments.pool, lambda table: table["group"] == "b", shift, arguments.later
        )
        burden = burdens(result).reset_index(drop=True)
        factuals = result.factuals.reset_index(drop=True)
        alarms, matched = [], []
        for run in range(arguments.runs):
            draw = np.random.default_rng([arguments.seed, run])
            if shift == 0:  # labels at random: there is nothing to be found
                rows = draw.permutation(len(factuals))[: 2 * arguments.people]
                table = factuals.iloc[rows].reset_index(drop=True)
                table["group"] = np.repeat(["a", "b"], arguments.people)
            else:
                each = [
                    draw.permutation(np.flatnonzero(factuals["group"] == name))[: arguments.people] for name in "ab"
                ]
                rows = np.concatenate(each)
                table = factuals.iloc[rows].reset_index(drop=True)
            some = burden.iloc[rows].reset_index(drop=True)
            got = audit(table, some, ["group"], result.schema, permutations=999, resamples=200, seed=run)
            alarms.append(len(got.shown) > 0)
            cost = got.differences[got.differences["measure"] == "l1"].iloc[0]
            matched.append(bool(cost["matched_p"] < 0.05))
        found[str(shift)] = {
            "alarms": float(np.mean(alarms)),
            "matched cost, p < 0.05 uncorrected": float(np.mean(matched)),
            "mean cost": {name: float(burden["l1"][factuals["group"] == name].mean()) for name in "ab"},
            "pool": factuals["group"].value_counts().to_dict(),
        }
        print(shift, found[str(shift)], flush=True)
    return {
        "runs": arguments.runs,
        "people a group": arguments.people,
        "seed": arguments.seed,
        "shifted later": arguments.later,
        "shifts": found,
    }


def tree(arguments: argparse.Namespace) -> dict[str, Any]:
    """In how many runs the tree finds the subgroup of two conditions."""
    rng = np.random.default_rng(arguments.seed)
    explainer = fitted(rng)
    both = lambda table: (table["group"] == "b") & (table["region"] == "west")  # noqa: E731
    result = rejected(explainer, rng, 2 * arguments.pool, both, 1.0, arguments.later)
    burden, factuals = burdens(result).reset_index(drop=True), result.factuals.reset_index(drop=True)
    hits, wrong = [], []
    for run in range(arguments.runs):
        rows = np.random.default_rng([arguments.seed, run]).permutation(len(factuals))[: 4 * arguments.people]
        table, some = factuals.iloc[rows].reset_index(drop=True), burden.iloc[rows].reset_index(drop=True)
        looked = ["group", "region"]
        got = audit(table, some, [], result.schema, find=looked, permutations=999, resamples=200, seed=run).found
        worse = got[(got["measure"] == "l1") & (got["p_holm"] < 0.05) & (got["difference"] > 0)]
        names = [set(text.split(" and ")) for text in worse["group"]]
        hits.append({"group is b", "region is west"} in names)
        wrong.append(len(names) > 1)
    return {"runs": arguments.runs, "found": float(np.mean(hits)), "others as well": float(np.mean(wrong))}


def parquet(arguments: argparse.Namespace) -> dict[str, Any]:
    """Seconds and memory of an audit of made-up results."""
    from counterpath.batch.audit import audit_folder
    from counterpath.batch.results import MEASURED

    rng, rows = np.random.default_rng(arguments.seed), arguments.rows
    schema = cp.Schema.infer(people(rng, 100)).with_immutable("group", "region")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "counterfactuals").mkdir()
        for shard in range(0, rows, 50_000):
            table = people(rng, min(50_000, rows - shard))
            measures = {measure: rng.random(len(table)) for measure in MEASURED}
            measures["l1"] = rng.gamma(2, 0.4, len(table)) + 0.01 * (table["group"] == "b")
            status = rng.choice(["found", "not_found", "already"], len(table), p=[0.5, 0.05, 0.45])
            whole = table.assign(**measures, status=status)
            pq.write_table(
                pa.Table.from_pandas(whole, preserve_index=False), folder / "counterfactuals" / f"{shard:09d}.parquet"
            )
        _write_manifest(folder, {"lock": [], "unlock": []})
        before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
        got = audit_folder(schema, folder, ["group", "region"], find=["group", "region"])
        seconds = time.perf_counter() - begun
        more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    cost = got.differences[(got.differences["measure"] == "l1") & (got.differences["by"] == "group")].iloc[0]
    return {
        "rows": rows,
        "seconds": round(seconds, 1),
        "MiB more": round(more),
        "planted 0.01": float(cost["difference"]),
        "p": float(cost["p_holm"]),
        "settings": {key: str(value) for key, value in got.settings.items()},
    }


def _write_manifest(folder: Path, request: dict[str, Any]) -> None:
    """A manifest such as a job writes."""
    from counterpath.batch.engine import Job
    from counterpath.batch.folder import Manifest

    Manifest(Job("made up", None, request, (), 50_000, "cpu", {}), {}).write(folder)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("power", "tree", "parquet"))
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--pool", type=int, default=2000)
    parser.add_argument("--people", type=int, default=500)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--population", dest="later", action="store_false", help="Shift before the model rejects.")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = {"power": power, "tree": tree, "parquet": parquet}[arguments.what](arguments)
    print(json.dumps(found, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
