"""Methods of the literature beside their own libraries, on the same rows and the same model.

    PYTHONPATH=FOLDER_WITH_NICEX python benchmarks/literature.py --out out/literature.json

NICE (`pip install --no-deps NICEx`): share of rows with the very same counterfactual, for both rewards. It is
compared on a table of numbers alone, breast cancer of scikit-learn, with a logistic regression: there both libraries
mean the same distance, and there is nothing to be constrained. Neighbours are training rows of the other predicted
class in both.
"""

import argparse
import importlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import counterpath as cp
from counterpath.data.schema import Feature, Schema
from counterpath.search.literature.nice import REWARDS, Nice
from counterpath.utils.files import write_json

ROWS = 30  # people a comparison
SAME = 1e-3  # of a range: what our rounding to displayed digits may move a number by


def compare_nice(seed: int = 0, rows: int = ROWS) -> list[dict[str, Any]]:
    """Ours beside NICEx."""
    library = importlib.import_module("nice").NICE
    loaded = load_breast_cancer()
    names = [f"f{column}" for column in range(loaded.data.shape[1])]
    frame = pd.DataFrame(loaded.data, columns=names)
    train, test, labels, _ = train_test_split(frame, loaded.target, random_state=seed)
    fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(train.to_numpy(), labels)

    class Model:
        classes_ = np.array([0, 1])

        def predict_proba(self, table: pd.DataFrame) -> Any:
            return fitted.predict_proba(table.to_numpy())

    schema = Schema(tuple(Feature(name, "continuous") for name in names))
    explainer = cp.Explainer(seed=seed, epochs=20, hidden=(32, 16), progress=False, avoid_unseen=False)
    explainer.fit(train, schema=schema, model=Model())
    people = test[fitted.predict(test.to_numpy()) == 0].head(rows)
    reach = (train.max() - train.min()).to_numpy()
    found = []
    for reward in REWARDS:
        theirs_of = library(
            fitted.predict_proba,
            train.to_numpy(copy=True),
            cat_feat=[],
            y_train=labels,
            optimization=reward,
            justified_cf=False,
        )
        started = time.monotonic()
        theirs = np.vstack([theirs_of.explain(row[None].copy()) for row in people.to_numpy()])
        their_seconds = time.monotonic() - started
        started = time.monotonic()
        ours = explainer.explain(people, 1, method=Nice(reward), paths="end")
        seconds = time.monotonic() - started
        apart = np.abs(ours.counterfactuals.to_numpy() - theirs) / reach
        both = {"ours": ours.counterfactuals.to_numpy(), "theirs": theirs}
        found.append(
            {
                "method": f"nice ({reward})",
                "rows": len(people),
                "same": float((apart.max(1) < SAME).mean()),
                "valid": {name: float((fitted.predict(x) == 1).mean()) for name, x in both.items()},
                "l1": {name: float((np.abs(x - people.to_numpy()) / reach).sum(1).mean()) for name, x in both.items()},
                "l0": {
                    name: float(((np.abs(x - people.to_numpy()) / reach) > SAME).sum(1).mean())
                    for name, x in both.items()
                },
                "seconds": {"ours": seconds, "theirs": their_seconds},
            }
        )
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/literature.json"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    results = compare_nice(arguments.seed)
    for line in results:
        print(line)
    write_json(arguments.out, results)
