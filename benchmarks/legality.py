"""What legal answers cost: counterfactuals for people who are rejected, with legal numbers and with continuous ones.

    python benchmarks/legality.py [--data adult,german,gmc] [--people 500] [--plans 3] [--workers 2] [--out FILE]

For each data set, our own classifier and a gradient-boosted one, the same people get plans twice: under the schema of
the data set, and as numbers were treated before: continuous, at any distance, in any combination, with paths as they
are searched. Counted are values that are not legal, decisions that are others when the displayed values are typed in,
pairs of values that nobody has, features that go back and forth between milestones, and steps in which more than two
features change; measured are found, L0, L1 and LD², over everybody and over the rows that both ways found.
"""

import argparse
import io
import json
import multiprocessing
import os
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

import counterpath as cp
from counterpath.data.encoding import Encoder
from counterpath.data.schema import KINDS, Schema

MEASURES = ("l0", "l1", "ld_sq")
SEED = 0


def continuous(schema: Schema) -> Schema:
    """The schema as it was before numbers had a grid: they are continuous, and every one of them is legal."""
    features = [
        replace(feature, kind="continuous", step=None, values="any", min_change=0)
        if not feature.categories
        else feature
        for feature in schema
    ]
    return replace(schema, features=tuple(features))


def boosted(train: pd.DataFrame, target: str, schema: Schema) -> Any:
    """A gradient-boosted model of the table as it is."""
    text = [feature.name for feature in schema if feature.categories]
    encode = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    columns = make_column_transformer((encode, text), remainder="passthrough")
    model = make_pipeline(columns, HistGradientBoostingClassifier(random_state=SEED))
    return model.fit(train.drop(columns=target), train[target])


def explain_part(folder: str, model: Any, rows: pd.DataFrame, plans: int, legal: bool) -> tuple[bytes, float]:
    """The explanation of some of the people, in a process of its own."""
    torch.set_num_threads(1)
    explainer = cp.Explainer.load(folder, model=model, device="cpu")
    explainer.set_params(avoid_unseen=legal, staged=legal, progress=False)
    begun = time.process_time()
    result = explainer.explain(rows, plans=plans)
    return json.dumps(result.to_json()).encode(), time.process_time() - begun


def off_grid(table: pd.DataFrame, factuals: pd.DataFrame, encoder: Encoder) -> int:
    """How many values are neither legal nor the person's own."""
    count = 0
    for index, feature in enumerate(encoder.schema):
        if feature.categories:
            continue
        values, own = table[feature.name].to_numpy(float), factuals[feature.name].to_numpy(float)
        good = values == own
        if KINDS[feature.kind].whole:
            good |= values == np.rint(values)
        if feature.step is not None:
            steps = values / feature.step
            good |= np.abs(steps - np.rint(steps)) < 1e-6
        if encoder.values[index]:
            good |= np.isin(values, encoder.values[index])
        elif not KINDS[feature.kind].whole and feature.step is None:
            good[:] = True
        count += int((~good).sum())
    return count


def typed_in(result: cp.Explanation) -> pd.DataFrame:
    """The counterfactuals as somebody reads them off the CSV file and types them in."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.csv"
        result.to_csv(file)
        text = pd.read_csv(io.StringIO(file.read_text(encoding="utf-8")), dtype=str, keep_default_na=False)
    names = list(result.counterfactuals.columns)
    typed = text[names].set_axis(result.counterfactuals.index)
    return typed.astype(dict(result.counterfactuals.dtypes.items()))


def back_and_forth(result: cp.Explanation) -> tuple[int, int, int, float]:
    """Milestone paths that go back in a feature, crowded steps, all steps, and the mean share of the last step."""
    back = crowded = steps = 0
    last_share = []
    names = [feature.name for feature in result.schema]
    for position in np.flatnonzero(result.status["status"].isin(["found", "crosses_gap"])).tolist():
        label = result.status.index[position]
        stops = result.milestones(label)
        columns = stops[[name for name in stops.columns if name in names or name.startswith("feature_")]]
        went_back = False
        for name in columns:
            values = columns[name].tolist()
            runs = [value for number, value in enumerate(values) if number == 0 or value != values[number - 1]]
            if len(set(map(str, runs))) < len(runs):
                went_back = True
            elif all(isinstance(value, int | float | np.number) for value in runs):
                moves = np.sign(np.diff(np.array(runs, dtype=float)))
                went_back |= len(set(moves.tolist())) > 1
        back += went_back
        for before, after in pairwise(columns.to_dict("records")):
            steps += 1
            crowded += sum(before[name] != after[name] for name in before) > 2
        path = result.path(label)
        length = path["length"].to_numpy(float)
        last_share.append(1.0 if len(length) < 2 or length[-1] == 0 else (length[-1] - length[-2]) / length[-1])
    return back, crowded, steps, float(np.mean(last_share)) if last_share else float("nan")


def one_case(
    name: str, kind: str, legal: bool, people: int, plans: int, workers: int, rows: int | None
) -> tuple[dict[str, Any], Any]:
    """One data set, one model, one way to treat numbers."""
    data = cp.datasets.load(name)
    train = data.train if rows is None else data.train.sample(min(rows, len(data.train)), random_state=SEED)
    schema = data.schema if legal else continuous(data.schema)
    model = boosted(train, data.target, data.schema) if kind == "boosted" else None
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        begun = time.perf_counter()
        explainer = cp.Explainer(seed=SEED, progress=False)
        explainer.fit(train, data.target, schema=schema, **({} if model is None else {"model": model}))
        fitted = time.perf_counter() - begun
        explainer.save(folder)
        test = data.test.drop(columns=data.target)
        test = test[explainer.encoder_.known(test)]
        rejected = test[explainer.predict(test).to_numpy() != data.desired_class].head(people)
        parts = np.array_split(np.arange(len(rejected)), workers)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            jobs = [
                pool.submit(explain_part, folder, model, rejected.iloc[part], plans, legal)
                for part in parts
                if len(part)
            ]
            answers = [job.result() for job in jobs]
    legally = Encoder.fit(train.drop(columns=data.target), data.schema)
    tables, counts = [], dict.fromkeys(("off_grid", "differ", "unseen", "unnamed", "back", "crowded", "steps"), 0)
    last = []
    for text, _ in answers:
        result = cp.Explanation.from_json(json.loads(text))
        found = result.status["status"].isin(["found", "crosses_gap"])
        encoder, factuals = legally, result.factuals
        counts["off_grid"] += off_grid(result.counterfactuals[found], factuals[found], encoder)
        paths = result.paths
        own = factuals.iloc[paths["row"].to_numpy(int)].reset_index(drop=True)
        counts["off_grid"] += off_grid(paths.reset_index(drop=True), own, encoder)
        typed = typed_in(result)[found]
        wanted = result.outcome["class_after"][found].tolist()
        counts["differ"] += sum(a != b for a, b in zip(explainer.predict(typed).tolist(), wanted, strict=True))
        measures = result.measures()
        unseen = (measures["unseen_pairs"] > 0) & found
        counts["unseen"] += int(unseen.sum())
        counts["unnamed"] += int((unseen & (result.status["unseen"].map(len) == 0)).sum())
        back, crowded, steps, share = back_and_forth(result)
        counts["back"] += back
        counts["crowded"] += crowded
        counts["steps"] += steps
        last.append(share)
        tables.append(measures.assign(found=found, plan=result.status.index.get_level_values(-1)))
    table = pd.concat(tables)
    first = table[table["plan"] == 1]
    row = {
        "data": name,
        "model": kind,
        "numbers": "legal" if legal else "continuous",
        "people": len(rejected),
        "found": float(first["found"].mean()),
        "plans_found": int(table["found"].sum()),
        **{measure: float(first.loc[first["found"], measure].mean()) for measure in MEASURES},
        **counts,
        "last_step": float(np.nanmean(last)),
        "fit_s": fitted,
        "cpu_s_per_person": sum(seconds for _, seconds in answers) / len(rejected),
    }
    print(json.dumps(row), flush=True)
    return row, first


def main() -> None:
    """Run all cases, and write them as JSON."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", default="adult,german,gmc")
    options.add_argument("--models", default="own,boosted")
    options.add_argument("--people", type=int, default=500)
    options.add_argument("--train", type=int, help="fit to so many training rows; by default to all")
    options.add_argument("--plans", type=int, default=3)
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    rows = []
    for name in given.data.split(","):
        for kind in given.models.split(","):
            sizes = given.people, given.plans, given.workers, given.train
            cases = [one_case(name, kind, legal, *sizes) for legal in (True, False)]
            both = cases[0][1]["found"].to_numpy() & cases[1][1]["found"].to_numpy()
            for row, first in cases:
                row["common"] = int(both.sum())
                row |= {f"{measure}_common": float(first[measure].to_numpy()[both].mean()) for measure in MEASURES}
                rows.append(row)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
