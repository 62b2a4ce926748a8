"""Rules between features: how many answers break them without, and what keeping to them costs.

    python benchmarks/rules.py [--data heloc,german,adult] [--rows 200] [--seeds 0] [--models FOLDER] [--out FILE]

For each table an explainer is fitted to its training rows, and rejected test rows are explained without rules and with
them. Broken is the share of answers, and of the points of all paths, that break a rule that the row itself keeps to, as
displayed. Found is the share of rows with a counterfactual; L1 and the time are compared over the rows that both found.
HELOC is read from COUNTERPATH_DATA, as `counterpath datasets` says; what FICO has in place of a number (−7, −8, −9) is
declared as codes, to which rules about numbers do not apply. `heloc-numbers` has them as numbers, as its card does.
With --exhaustive N the price of the rules is told from that of the search: for N people who keep to them, and N who
break one as they are, with and without rules, whatever is cheaper than the answer is looked for among all sets of at
most three features, on the grid of `exhaustive.py`. The gap is L1 over that of the best that is known then. With
--thorough all people are searched anew with many times the effort: 4 times the finalists, 3 times the rounds, 43,700
sets instead of 700 or 2,300. Seeds of 100 and more are for choosing: a fifth
of the training rows is explained instead of test rows, and not fitted to.
Models are kept in --models, so that they need not be fitted again. Times are seconds of the processor: run it with
OMP_NUM_THREADS=1.
"""

import argparse
import json
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from exhaustive import exhaustive

import counterpath as cp
from counterpath.data.rules.checks import FrameValues
from counterpath.data.rules.kinds import BoundRule, Moves, Transition
from counterpath.data.rules.language import parse_rules
from counterpath.explainer.request import Request
from counterpath.search import polish
from counterpath.search.candidates import MOST_VALUES, Admissible, feature_values
from counterpath.search.combine import EXHAUSTIVE

RULES = {
    "heloc": [
        "NumTrades90Ever2DerogPubRec <= NumTrades60Ever2DerogPubRec",
        "NumInqLast6Mexcl7days <= NumInqLast6M",
        "NumSatisfactoryTrades <= NumTotalTrades",
        "MSinceMostRecentTradeOpen <= MSinceOldestTradeOpen",
        "AverageMInFile <= MSinceOldestTradeOpen",
    ],
    "german": [
        "credit-amount <= 1200 * duration",
        "credit-amount >= 25 * duration",
        "credit-amount up => duration up",
        'telephone: "yes" -> "none" forbidden',
        'housing == "for free" => property == "unknown or none"',
        'savings: * -> "unknown or none" forbidden',
    ],
    "adult": [
        "capital-gain > 0 => capital-loss == 0",
        'education == "Doctorate" => age >= 24',
        'education == "Masters" => age >= 21',
        'occupation == "Armed-Forces" => workclass == "Federal-gov"',
        'occupation == "Priv-house-serv" => workclass == "Private"',
        'workclass: "Federal-gov" -> "Without-pay" forbidden',
    ],
}
RULES["heloc-numbers"] = RULES["heloc"]
CODES = {-7: "none", -8: "no usable record", -9: "no record"}  # of FICO, by its data dictionary
FOUND = ("found", "crosses_gap")
CHOOSING = 100  # seeds from here on never see test rows
REPEATS = 4  # of which the shortest counts: what else the machine does only adds to it


def with_codes(schema: cp.Schema, table: pd.DataFrame) -> cp.Schema:
    """HELOC's schema with its codes declared; what is left are counts, of which all are legal."""
    features = []
    for feature in schema:
        found = {code: label for code, label in CODES.items() if bool((table[feature.name] == code).any())}
        if found and not feature.categories:
            lower = int(table[feature.name][~table[feature.name].isin(list(found))].min())
            feature = replace(feature, codes=found, lower=lower, values="any")
        features.append(feature)
    return replace(schema, features=tuple(features))


def bound(schema: cp.Schema, texts: list[str]) -> list[BoundRule]:
    """The rules, transitions one by one."""
    rules = parse_rules(schema, texts)
    return [Moves.of(schema[rule.feature], [rule]) if isinstance(rule, Transition) else rule for rule in rules]  # type: ignore[misc]


def broken(explanation: cp.Explanation, rules: list[BoundRule]) -> dict[str, float]:
    """The shares of answers and of points of paths that break a rule which the row itself keeps to."""
    schema, names = explanation.schema, list(explanation.schema.names)
    found = explanation.status["status"].isin(FOUND).to_numpy()
    factuals = explanation.factuals[names].reset_index(drop=True)
    own = FrameValues(schema, factuals)
    lawful = np.array([rule.holds(own, own).numpy() for rule in rules])
    shares = {}
    for what, frame, rows in (
        ("answers", explanation.counterfactuals, np.flatnonzero(found)),
        ("points", explanation.paths, explanation.paths["row"].to_numpy()),
    ):
        frame = frame.iloc[rows] if what == "answers" else frame
        values = FrameValues(schema, frame[names].reset_index(drop=True))
        origin = FrameValues(schema, factuals.iloc[rows].reset_index(drop=True))
        wrong = np.array([~rule.holds(values, origin).numpy() for rule in rules])
        shares[what] = float((wrong & lawful[:, rows]).any(0).mean())
        shares[f"{what} of all"] = float(wrong.any(0).mean())
    return shares


def fitted(name: str, seed: int, epochs: int | str, models: Path | None) -> tuple[cp.datasets.Dataset, cp.Explainer]:
    """A table and its explainer: fitted, or from the folder of those that were."""
    data = cp.datasets.load(name.removesuffix("-numbers"))
    if seed >= CHOOSING:
        rows = data.train.sample(frac=1, random_state=seed)
        data = replace(data, test=rows.iloc[: len(rows) // 5], train=rows.iloc[len(rows) // 5 :])
    schema = with_codes(data.schema, data.train) if name == "heloc" else data.schema
    folder = None if models is None else models / f"{name}-{seed}"
    if folder is not None and folder.exists():
        return data, cp.load(folder)
    explainer = cp.Explainer(seed=seed, progress=False, epochs=epochs).fit(
        data.train, target=data.target, schema=schema
    )
    if folder is not None:
        explainer.save(folder)
    return data, explainer


def lawful(explanation: cp.Explanation, rules: list[BoundRule]) -> np.ndarray[Any, Any]:
    """Which rows keep to all rules as they are."""
    factuals = explanation.factuals[list(explanation.schema.names)].reset_index(drop=True)
    own = FrameValues(explanation.schema, factuals)
    return np.logical_and.reduce([rule.holds(own, own).numpy() for rule in rules])


def gaps(
    explainer: cp.Explainer,
    results: dict[str, cp.Explanation],
    rules: list[BoundRule],
    texts: list[str],
    count: int,
    *,
    keeping: bool,
) -> dict[str, Any]:
    """What an exhaustive search finds that is cheaper, for some people who are answered twice.

    They are people who keep to the rules as they are, or who do not and have to mend that, too.
    """
    models, names = explainer.models_, list(explainer.schema_.names)
    factuals = results["with"].factuals[names].reset_index(drop=True)
    good = lawful(results["with"], rules) == keeping
    for result in results.values():
        good &= (result.status["status"] == "found").to_numpy()
    chosen = np.flatnonzero(good)[:count]
    if len(chosen) == 0:
        return {"people": 0}
    grid = feature_values(models.encoder, models.rows, MOST_VALUES)
    found: dict[str, Any] = {"people": len(chosen)}
    for key, result in results.items():
        request = Request(target_class=result.request["target_class"], rules=texts if key == "with" else ())
        some = factuals.iloc[chosen]
        cost = result.measures()["l1"].to_numpy()[chosen]
        best, started = cost.copy(), time.process_time()
        for index, problem in explainer.solver(request).problems(some, torch.arange(len(some))):
            admissible = Admissible.of(problem)
            for place, row in enumerate(index.tolist()):
                cheaper = exhaustive(admissible, place, grid, below=float(cost[row]) * (1 - 1e-6))
                best[row] = cost[row] if cheaper is None else cheaper[1]
        found[key] = {
            "l1": float(cost.mean()),
            "best": float(best.mean()),
            "gap": float(cost.mean() / best.mean()),
            "bettered": int((best < cost).sum()),
            "seconds": time.process_time() - started,
        }
    found["l1 ratio"] = found["with"]["l1"] / found["without"]["l1"]
    found["l1 ratio of the best"] = found["with"]["best"] / found["without"]["best"]
    return found


def harder(explainer: cp.Explainer, rejected: pd.DataFrame, asked: dict[str, Any], texts: list[str]) -> dict[str, Any]:
    """The mean L1 with and without rules of a search that tries many times as much for everybody."""
    much = {"_FINALISTS": 8, "_ROUNDS": 3, "QUICK": EXHAUSTIVE, "COUPLED": EXHAUSTIVE}
    with patch.multiple(polish, **much):
        each = {
            key: explainer.explain(rejected, **asked, rules=given) for key, given in (("without", []), ("with", texts))
        }
    costs = {key: result.measures()["l1"].to_numpy() for key, result in each.items()}
    both = ~np.isnan(costs["without"]) & ~np.isnan(costs["with"])
    means = {key: float(cost[both].mean()) for key, cost in costs.items()}
    return means | {"l1 ratio": means["with"] / means["without"]}


def measure(
    name: str,
    rows: int,
    seed: int,
    epochs: int | str,
    models: Path | None,
    searched: int = 0,
    *,
    thorough: bool = False,
) -> dict[str, Any]:
    """One table: without rules, and with them."""
    data, explainer = fitted(name, seed, epochs, models)
    texts, schema = list(RULES[name]), explainer.schema_
    suggested = [each.rule for each in schema.suggest_rules(data.train[list(schema.names)])]
    texts += [text for text in suggested if text not in texts]
    wanted = data.desired_class
    rejected = data.test[(explainer.predict(data.test) != wanted).to_numpy()].head(rows)
    rules, asked = bound(explainer.schema_, texts), {"target_class": wanted}
    results, times = {}, {"without": [], "with": []}
    for _ in range(REPEATS):  # in turn, so that what else the machine does is the same for both
        for key, given in (("without", []), ("with", texts)):
            started = time.process_time()
            results[key] = explainer.explain(rejected, **asked, rules=given)
            times[key].append(time.process_time() - started)
    found = {key: each.status["status"].isin(FOUND).to_numpy() for key, each in results.items()}
    both = found["without"] & found["with"]
    l1 = {key: float(each.measures()["l1"][both].mean()) for key, each in results.items()}
    keep = both & lawful(results["with"], rules)
    own = {key: float(each.measures()["l1"][keep].mean()) for key, each in results.items()}
    seconds = {key: min(each) for key, each in times.items()}
    kinds = {"exhaustive": True, "exhaustive, of those who break a rule": False} if searched else {}
    exact = {key: gaps(explainer, results, rules, texts, searched, keeping=each) for key, each in kinds.items()}
    exact |= {"thorough": harder(explainer, rejected, asked, texts)} if thorough else {}
    return exact | {
        "data": name,
        "seed": seed,
        "rows": len(rejected),
        "rules": texts,
        "broken without": broken(results["without"], rules),
        "broken with": broken(results["with"], rules),
        "found": {key: float(each.mean()) for key, each in found.items()},
        "statuses": results["with"].status["status"].value_counts().to_dict(),
        "l1": l1,
        "l1 ratio": l1["with"] / l1["without"],
        "lawful": int(keep.sum()),
        "l1 ratio of the lawful": own["with"] / own["without"],
        "seconds": seconds,
        "time ratio": seconds["with"] / seconds["without"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="heloc,german,adult")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--epochs", default="auto")
    parser.add_argument("--models", type=Path)
    parser.add_argument("--exhaustive", type=int, default=0, help="for how many people to search exhaustively, too")
    parser.add_argument("--thorough", action="store_true", help="search everybody anew with many times the effort")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    epochs = given.epochs if given.epochs == "auto" else int(given.epochs)
    lines = [
        measure(name, given.rows, seed, epochs, given.models, given.exhaustive, thorough=given.thorough)
        for name in given.data.split(",")
        for seed in map(int, given.seeds.split(","))
    ]
    text = json.dumps(lines, indent=2, default=float)
    if given.out is not None:
        given.out.write_text(text + "\n")
    print(text)
    table = pd.DataFrame(lines)[["data", "seed", "rows", "l1 ratio", "time ratio"]]
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
