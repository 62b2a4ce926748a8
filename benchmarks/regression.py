"""Numbers as targets: are predictions in the asked range, and how close are the answers, beside DiCE and neighbours?

    python benchmarks/regression.py [--data concrete,diabetes,houses] [--models mlp,boosting] [--rows 30] [--out FILE]

Concrete's strength, scikit-learn's diabetes, and synthetic houses like those of California. A multilayer perceptron and
gradient boosting of scikit-learn are trained on 80 % of the rows. Of the others, those that are predicted below the
median of the training rows are to be predicted in its third fifth to fourth fifth, from the 60 % to the 80 % quantile.

Compared are `geodesic`, the nearest training row that is predicted in the range, and DiCE's regression mode (random
search, the same features may change). In range is the share of all rows for which the answer, as returned, is
predicted in the range by the model itself; L1 and LD² as `counterpath.search.measures` has them; LOF is scikit-learn's
local outlier factor of the answers among the training rows, 1 for as dense as its neighbours.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.neighbors import LocalOutlierFactor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import counterpath as cp
from counterpath.data.schema import Feature, Schema

LABEL = "number"


def concrete() -> pd.DataFrame:
    """Mixtures of concrete, and their strength."""
    data = cp.datasets.load("concrete")
    whole = pd.concat([data.train, data.test])
    return whole[list(data.schema.names)].assign(**{LABEL: whole[data.target].to_numpy(float)})


def diabetes() -> pd.DataFrame:
    """Patients, and how their disease goes on."""
    frame = load_diabetes(as_frame=True, scaled=False).frame
    return frame.rename(columns={"target": LABEL}).drop(columns="sex")


def houses(count: int = 2000) -> pd.DataFrame:
    """Blocks of houses like those of California: income, age, rooms, people, place and price."""
    random = np.random.default_rng(0)
    income = random.gamma(4, 1, count)
    age = random.integers(1, 53, count)
    rooms = (3 + 0.5 * income + random.normal(0, 0.8, count)).clip(1, 12)
    people = random.gamma(9, 1 / 3, count)
    coast = random.random(count)
    price = 0.45 * income + 0.6 * (1 - coast) * income**0.5 + 0.01 * age - 0.1 * people + random.normal(0, 0.3, count)
    return pd.DataFrame(
        {
            "income": income.round(4),
            "age": age,
            "rooms": rooms.round(3),
            "people": people.round(3),
            "coast": coast.round(4),
            LABEL: price,
        }
    )


DATA = {"concrete": concrete, "diabetes": diabetes, "houses": houses}
MODELS: dict[str, Any] = {
    "mlp": lambda: make_pipeline(
        StandardScaler(), MLPRegressor(hidden_layer_sizes=(64, 64), max_iter=600, random_state=0)
    ),
    "boosting": lambda: GradientBoostingRegressor(random_state=0),
}


def dice(model: Any, train: pd.DataFrame, rows: pd.DataFrame, low: float, high: float) -> tuple[pd.DataFrame, Any]:
    """DiCE's answers, and for which rows there is one."""
    import dice_ml

    names = [name for name in train.columns if name != LABEL]
    floats = dict.fromkeys(names, float)
    data = dice_ml.Data(dataframe=train.astype(floats), continuous_features=names, outcome_name=LABEL)
    asked = dice_ml.Dice(data, dice_ml.Model(model=model, backend="sklearn", model_type="regressor"), method="random")
    found, there = [], []
    for number in range(len(rows)):
        row = rows.iloc[[number]].astype(floats)
        try:
            made = asked.generate_counterfactuals(
                row, total_CFs=1, desired_range=[low, high], random_seed=0, verbose=False
            )
            table = made.cf_examples_list[0].final_cfs_df
        except Exception:  # it raises what it likes where it finds nothing
            table = None
        there.append(table is not None and len(table) > 0)
        found.append(table[names].iloc[0] if there[-1] else row.iloc[0])
    return pd.DataFrame(found).astype(float).set_axis(rows.index), np.array(there)


def measured(
    explainer: cp.Explainer, model: Any, rows: pd.DataFrame, ends: pd.DataFrame, there: Any, low: float, high: float
) -> dict[str, float]:
    """How good answers are: in range of all, and distances of those that are."""
    encoder, models = explainer.encoder_, explainer.models_
    said = model.predict(ends[list(rows.columns)])
    inside = there & (said >= low) & (said <= high)
    x, y = encoder.encode(rows[inside]), encoder.encode(ends[inside][list(rows.columns)].astype(float))
    weights = encoder.weights
    factor = LocalOutlierFactor(n_neighbors=20, novelty=True).fit((models.rows * weights).numpy())
    return {
        "answered": float(there.mean()),
        "in range": float(inside.mean()),
        "in range of answered": float(inside[there].mean()) if there.any() else float("nan"),
        "l1": float(((x - y).abs() * weights.square()).sum(-1).mean()),
        "l0": float((ends[inside][list(rows.columns)].to_numpy(float) != rows[inside].to_numpy(float)).sum(1).mean()),
        "ld_sq": float(models.neighbours.nearest(y)[0][:, 0].square().mean()),
        "lof": float(-factor.score_samples((y * weights).numpy()).mean()),
    }


def measure(name: str, kind: str, rows: int, epochs: Any) -> dict[str, Any]:
    """One table and model."""
    frame = DATA[name]().astype(float).sample(frac=1, random_state=0).reset_index(drop=True)
    names = [column for column in frame.columns if column != LABEL]
    cut = int(0.8 * len(frame))
    train, test = frame.iloc[:cut], frame.iloc[cut:]
    model = MODELS[kind]().fit(train[names], train[LABEL])
    said = model.predict(train[names])
    low, high = (float(np.quantile(said, share)) for share in (0.6, 0.8))
    rejected = test[names][model.predict(test[names]) < np.median(said)].head(rows)
    schema = Schema(tuple(Feature(column, "continuous") for column in names))  # DiCE knows no other numbers
    explainer = cp.Explainer(seed=0, progress=False, epochs=epochs).fit(train[names], model=model, schema=schema)
    lines = {}
    for method in ("geodesic", "nearest"):
        started = time.perf_counter()
        result = explainer.explain(rejected, target_range=(low, high), method=method, paths="end")
        seconds = time.perf_counter() - started
        there = result.status["status"].isin(("found", "crosses_gap", "implausible")).to_numpy()
        lines[method] = measured(explainer, model, rejected, result.counterfactuals, there, low, high) | {
            "seconds": seconds
        }
    started = time.perf_counter()
    ends, there = dice(model, train, rejected, low, high)
    lines["dice"] = measured(explainer, model, rejected, ends, there, low, high) | {
        "seconds": time.perf_counter() - started
    }
    r2 = model.score(test[names], test[LABEL])
    return {"data": name, "model": kind, "rows": len(rejected), "range": [low, high], "r2": r2, **lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument("--epochs", default="auto")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    epochs = given.epochs if given.epochs == "auto" else int(given.epochs)
    lines = [
        measure(name, kind, given.rows, epochs) for name in given.data.split(",") for kind in given.models.split(",")
    ]
    text = json.dumps(lines, indent=2)
    if given.out is not None:
        given.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
