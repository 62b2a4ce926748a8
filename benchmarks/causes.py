"""Consequences: are effects recovered, and are the actions the cheapest there are?

    python benchmarks/causes.py [--rows 30] [--train 2000] [--seeds 0,1,2] [--models linear,non-linear]
    [--out FILE]

Two synthetic structural models of the causal-recourse literature (Karimi, von Kügelgen, Schölkopf and Valera,
"Algorithmic recourse under imperfect causal knowledge", NeurIPS 2020), whose equations are known:

    linear      x1 = u1;  x2 = -x1 + u2;  x3 = 0.05 x1 + 0.25 x2 + u3
    non-linear  x1 = u1;  x2 = -1 + 3/(1 + exp(-2 x1)) + u2;  x3 = -0.05 x1 + 0.25 x2² + u3

Effects: the equations are fitted to 20,000 rows; of the effect of actions of half a standard deviation to two, the
error is Σ|fitted - true| / Σ|true|. Actions: for rejected rows, the cost of the answer with the true equations, over
that of the cheapest of a fine grid over all sets of up to three actions, asked of the same model; both under the true
equations. Beside it stand the answers by fitted equations: what their actions cost, and whether the model accepts what
truly follows from them. `plausible` compares with the cheapest of those that are as near to training rows as 95 % of
real rows are.
"""

import argparse
import itertools
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import counterpath as cp
from counterpath.data.causes import parse_causes
from counterpath.data.encoding import Encoder
from counterpath.data.schema import Feature, Schema
from counterpath.models.effects import Effects

NAMES = ("x1", "x2", "x3")
EDGES = [("x1", "x2"), ("x1", "x3"), ("x2", "x3")]
MODELS: dict[str, dict[str, Any]] = {
    "linear": {
        "f2": lambda x1: -x1,
        "f3": lambda x1, x2: 0.05 * x1 + 0.25 * x2,
        "equations": ["x2 = -1 * x1", "x3 = 0.05 * x1 + 0.25 * x2"],
        "noise": (1.0, 1.0, 1.0),
    },
    "non-linear": {
        "f2": lambda x1: -1 + 3 / (1 + np.exp(-2 * x1)),
        "f3": lambda x1, x2: -0.05 * x1 + 0.25 * x2**2,
        "equations": ["x2 = 3 * sigmoid(2 * x1) - 1", "x3 = -0.05 * x1 + 0.25 * x2 * x2"],
        "noise": (1.0, 0.5, 1.0),
    },
}
SCHEMA = Schema(tuple(Feature(name, "continuous") for name in NAMES))
GRID = 41  # values of each action in the brute force: steps of 2.5 % of a range, then refined
ROUNDS = 4
NEAR = np.array([0.0005, 0.002, 0.005, 0.01, 0.02, 0.04])  # of a range: further values, next to a person's own


def sample(model: dict[str, Any], count: int, seed: int) -> pd.DataFrame:
    """Rows of a structural model, and a label that all three tell."""
    random = np.random.default_rng(seed)
    u1, u2, u3 = (scale * random.normal(size=count) for scale in model["noise"])
    x1 = u1
    x2 = model["f2"](x1) + u2
    x3 = model["f3"](x1, x2) + u3
    score = x1 + x2 + x3
    chance = 1 / (1 + np.exp(-2.5 * (score - score.mean()) / np.abs(score - score.mean()).mean()))
    frame = pd.DataFrame({"x1": x1, "x2": x2, "x3": x3}).round(6)
    return frame.assign(y=(random.random(count) < chance).astype(int))


def effect_error(model: dict[str, Any], seed: int) -> dict[str, float]:
    """How far effects by fitted equations are from the true ones."""
    table = sample(model, 20_000, seed + 1)[list(NAMES)]
    encoder = Encoder.fit(table, SCHEMA)
    fitted = Effects.fit(encoder, encoder.encode(table), parse_causes(encoder.schema, EDGES))
    rows = sample(model, 400, seed)[list(NAMES)]
    inside = ((rows >= [*encoder.low]) & (rows <= [*encoder.high])).all(axis=1)
    rows = rows[inside]
    errors = {}
    for action in ("x1", "x2"):
        off, size = 0.0, 0.0
        for step in (-2, -1, -0.5, 0.5, 1, 2):
            acted = rows.assign(**{action: rows[action] + step * rows[action].std()})
            lo, hi = encoder.low[NAMES.index(action)], encoder.high[NAMES.index(action)]
            kept = acted[action].between(lo, hi)
            origin, x = encoder.encode(rows[kept]), encoder.encode(acted[kept])
            got = encoder.decode(fitted.propagate(x, origin))
            x2 = (
                acted["x2"][kept]
                if action == "x2"
                else rows["x2"][kept] + model["f2"](acted["x1"][kept]) - model["f2"](rows["x1"][kept])
            )
            x3 = rows["x3"][kept] + model["f3"](acted["x1"][kept], x2) - model["f3"](rows["x1"][kept], rows["x2"][kept])
            for name, true in (("x2", x2), ("x3", x3)):
                low, high = encoder.low[NAMES.index(name)], encoder.high[NAMES.index(name)]
                within = true.between(low, high).to_numpy()
                off += float(np.abs(got[name].to_numpy() - true.to_numpy())[within].sum())
                size += float(np.abs(true.to_numpy() - rows[name][kept].to_numpy())[within].sum())
        errors[action] = off / size
    return errors


def around(own: float, low: float, high: float, span: float, count: int) -> np.ndarray:
    """Values from low to high, more of them next to a person's own: somebody may be next to the decision."""
    near = np.concatenate([-NEAR, NEAR]) * span + own
    return np.unique(np.concatenate([np.linspace(low, high, count), near[(near >= low) & (near <= high)]]))


def brute_force(model: dict[str, Any], explainer: cp.Explainer, row: pd.Series, plausible: bool) -> float:
    """The cost of the cheapest actions that the model accepts, over all sets of actions."""
    encoder, models = explainer.encoder_, explainer.models_
    low, high = np.array(encoder.low), np.array(encoder.high)
    span = high - low
    own = row[list(NAMES)].to_numpy(float)
    best = np.inf
    for _, size in itertools.product(range(2), (1, 2, 3)):  # at last only within what costs no more than the best
        for chosen in itertools.combinations(range(3), size):
            ends = [(max(low[i], own[i] - best * span[i]), min(high[i], own[i] + best * span[i])) for i in chosen]
            for _ in range(ROUNDS):
                count = GRID if size < 3 else 21
                each = [around(own[i], *end, span[i], count) for i, end in zip(chosen, ends, strict=True)]
                grids = np.meshgrid(*each)
                acts = np.stack([grid.ravel() for grid in grids], 1)
                x = np.tile(own, (len(acts), 1))
                x[:, list(chosen)] = acts
                if 1 not in chosen:
                    x[:, 1] = own[1] + model["f2"](x[:, 0]) - model["f2"](own[0])
                if 2 not in chosen:
                    x[:, 2] = own[2] + model["f3"](x[:, 0], x[:, 1]) - model["f3"](own[0], own[1])
                x = x.clip(low, high)
                cost = (np.abs(acts - own[list(chosen)]) / span[list(chosen)]).sum(1)
                order = np.flatnonzero(cost < best)
                if len(order) == 0:
                    break
                encoded = torch.tensor((x[order] - low) / span, dtype=torch.float32)
                good = (models.explained.predict_proba(encoded)[:, 1] >= 0.5).numpy()
                if plausible:
                    good &= (models.plausibility.distance(encoded) <= models.plausibility.limit).numpy()
                order = order[good]
                if len(order) == 0:
                    break
                top = order[cost[order].argmin()]
                best = float(cost[top])
                ends = [
                    (
                        max(low[i], acts[top, k] - (end[1] - end[0]) / 8),
                        min(high[i], acts[top, k] + (end[1] - end[0]) / 8),
                    )
                    for k, (i, end) in enumerate(zip(chosen, ends, strict=True))
                ]
    return best


def action_costs(model: dict[str, Any], explainer: cp.Explainer, rows: pd.DataFrame) -> dict[str, Any]:
    """The costs of the answers beside those of the cheapest actions."""
    started = time.process_time()
    result = explainer.explain(rows, 1, causes=model["equations"], paths="end")
    seconds = time.process_time() - started
    found = result.status["status"].isin(("found", "crosses_gap")).to_numpy()
    span = np.array(explainer.encoder_.high) - np.array(explainer.encoder_.low)
    moved = np.abs(result.counterfactuals[list(NAMES)].to_numpy(float) - result.factuals[list(NAMES)].to_numpy(float))
    acts = np.array([[name not in follows for name in NAMES] for follows in result.status["follows"]])
    cost = (moved / span * acts).sum(1)
    fitted = fitted_costs(model, explainer, rows)
    found_ratios: dict[str, Any] = {}
    for what, plausible in (("cheapest", False), ("cheapest plausible", True)):
        best = np.array([brute_force(model, explainer, row, plausible) for _, row in rows.iterrows()])
        ratio = (cost / best)[found & np.isfinite(best)]
        found_ratios[what] = {
            "mean": float(ratio.mean()),
            "median": float(np.median(ratio)),
            "worst": float(ratio.max()),
        }
        if plausible:
            ratio = fitted[0] / best
            there = np.isfinite(ratio)
            found_ratios["cheapest plausible, by fitted equations"] = {
                "mean": float(ratio[there].mean()),
                "median": float(np.median(ratio[there])),
                "worst": float(ratio[there].max()),
                "valid by the true ones": float(fitted[1][there].mean()),
                "lowest probability": float(fitted[2][there].min()),
            }
    return {"found": float(found.mean()), "seconds": seconds, "cost over": found_ratios}


def fitted_costs(
    model: dict[str, Any], explainer: cp.Explainer, rows: pd.DataFrame
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of answers by fitted equations what the actions cost, NaN without any; and what the true equations make of them.

    That is whether the model accepts what truly follows from the actions, and with which probability.
    """
    result = explainer.explain(rows, 1, causes=EDGES, paths="end")
    low, high = np.array(explainer.encoder_.low), np.array(explainer.encoder_.high)
    found = result.status["status"].isin(("found", "crosses_gap")).to_numpy()
    own, end = (each[list(NAMES)].to_numpy(float) for each in (result.factuals, result.counterfactuals))
    acts = np.array([[name not in follows for name in NAMES] for follows in result.status["follows"]])
    acts &= end != own
    cost = np.where(found, (np.abs(end - own) / (high - low) * acts).sum(1), np.nan)
    x = np.where(acts, end, own)
    x[:, 1] = np.where(acts[:, 1], x[:, 1], own[:, 1] + model["f2"](x[:, 0]) - model["f2"](own[:, 0]))
    change = model["f3"](x[:, 0], x[:, 1]) - model["f3"](own[:, 0], own[:, 1])
    x[:, 2] = np.where(acts[:, 2], x[:, 2], own[:, 2] + change)
    encoded = torch.tensor((x.clip(low, high) - low) / (high - low), dtype=torch.float32)
    probability = explainer.models_.explained.predict_proba(encoded)[:, 1].numpy()
    return cost, probability >= 0.5, probability


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = []
    for name, seed in itertools.product(given.models.split(","), map(int, given.seeds.split(","))):
        model = MODELS[name]
        table = sample(model, given.train, seed)
        explainer = cp.Explainer(seed=seed, progress=False).fit(table, target="y", schema=SCHEMA)
        test = sample(model, 10 * given.rows, seed + 1000)[list(NAMES)]
        inside = ((test >= [*explainer.encoder_.low]) & (test <= [*explainer.encoder_.high])).all(axis=1)
        test = test[inside & (explainer.predict(test) == 0).to_numpy()].head(given.rows)
        line = {"model": name, "seed": seed, "rows": len(test)}
        lines.append(
            line | {"effects": effect_error(model, seed + 2000), "actions": action_costs(model, explainer, test)}
        )
    text = json.dumps(lines, indent=2)
    if given.out is not None:
        given.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
