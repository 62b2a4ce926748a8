"""Rules between features: how many answers break them without, and what keeping to them costs.

    python benchmarks/rules.py [--data heloc,german,adult] [--rows 200] [--seeds 0] [--out FILE]

For each table an explainer is fitted to its training rows, and rejected test rows are explained without rules and with
them. Broken is the share of answers, and of the points of all paths, that break a rule that the row itself keeps to, as
displayed. Found is the share of rows with a counterfactual; L1 and the time are compared over the rows that both found.
HELOC is read from COUNTERPATH_DATA, as `counterpath datasets` says.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import counterpath as cp
from counterpath.data.rule_checks import FrameValues
from counterpath.data.rule_language import parse_rules
from counterpath.data.rules import BoundRule, Moves, Transition

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
FOUND = ("found", "crosses_gap")


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


def measure(name: str, rows: int, seed: int, epochs: int | str) -> dict[str, Any]:
    """One table: without rules, and with them."""
    data = cp.datasets.load(name)
    texts = list(RULES[name])
    suggested = [each.rule for each in data.schema.suggest_rules(data.train[list(data.schema.names)])]
    texts += [text for text in suggested if text not in texts]
    explainer = cp.Explainer(seed=seed, progress=False, epochs=epochs).fit(
        data.train, target=data.target, schema=data.schema
    )
    wanted = data.desired_class
    rejected = data.test[(explainer.predict(data.test) != wanted).to_numpy()].head(rows)
    rules, asked = bound(explainer.schema_, texts), {"target_class": wanted}
    results, times = {}, {"without": [], "with": []}
    for _ in range(2):  # in turn, so that what else the machine does is the same for both
        for key, given in (("without", []), ("with", texts)):
            started = time.perf_counter()
            results[key] = explainer.explain(rejected, **asked, rules=given)
            times[key].append(time.perf_counter() - started)
    found = {key: each.status["status"].isin(FOUND).to_numpy() for key, each in results.items()}
    both = found["without"] & found["with"]
    l1 = {key: float(each.measures()["l1"][both].mean()) for key, each in results.items()}
    seconds = {key: min(each) for key, each in times.items()}
    return {
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
        "seconds": seconds,
        "time ratio": seconds["with"] / seconds["without"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=",".join(RULES))
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--epochs", default="auto")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    epochs = given.epochs if given.epochs == "auto" else int(given.epochs)
    lines = [
        measure(name, given.rows, seed, epochs)
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
