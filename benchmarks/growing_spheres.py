"""RecourseBench's row of Growing Spheres on Adult, over networks of other seeds: how much a single one says.

    python benchmarks/growing_spheres.py --out docs/results/leaderboard/growing-spheres.json

Theirs is one network and 50 of the people whom it rejects. Ours has their shape, rows and settings, but other weights,
and rejects other people. How far the row moves by that alone is told by other seeds.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from counterpath.experiments.leaderboard import census
from counterpath.experiments.leaderboard.arena import summarize
from counterpath.experiments.leaderboard.measures import Answers
from counterpath.experiments.leaderboard.suites import RECOURSEBENCH
from counterpath.utils.files import write_json

MEASURES = ("l0", "l1", "l2", "knn_5", "type_violations", "mutability_violations")


def over_networks(seeds: list[int]) -> dict[str, Any]:
    """By measure what they have published, ours under each seed, and mean and deviation over seeds."""
    whole = census.census()
    train, test = (whole.iloc[each] for each in census.split(len(whole), 0.2, 0))
    encoded, columns = census.encode(train, whole), census.columns_of(whole)
    rows = []
    for seed in seeds:
        labels = train[census.LABEL].to_numpy()
        network = census.train_torch(encoded, labels, (64, 32), epochs=50, batch=32, rate=0.01, seed=seed)
        predict = census.predictor(network)
        people = test[predict(census.encode(test, whole)) < 0.5].drop(columns=census.LABEL).sample(50, random_state=0)
        x = census.encode(people, whole)
        y = census.coin_spheres(x, predict, columns, by_all=False, put_back=True)
        values = summarize(Answers(x, y, encoded, columns, predict).measure("recoursebench"))
        rows.append({"seed": seed, "valid": values["valid"], **{name: values["means"][name] for name in MEASURES}})
        print(rows[-1], flush=True)
    their = next(each for each in RECOURSEBENCH if each.method == "gs")
    spread = {
        name: {
            "published": their.values[name],
            "mean": float(np.mean([row[name] for row in rows])),
            "deviation": float(np.std([row[name] for row in rows], ddof=1)),
        }
        for name in MEASURES
    }
    return {"rows": rows, "measures": spread}


def main() -> None:
    """Run it and write what is found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=Path("out/growing-spheres.json"))
    options = parser.parse_args()
    write_json(options.out, over_networks(options.seeds))


if __name__ == "__main__":
    main()
