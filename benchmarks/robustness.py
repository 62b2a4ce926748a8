# ruff: noqa: E501  # the sentences of a page are as long as they are
"""How long answers last: how many retrained models still accept them, what it costs to ask for that, and a simpler cure.

    python benchmarks/robustness.py --data german --model own --seeds 0 --rows 100
    python benchmarks/robustness.py --data heloc --model xgboost --seeds 0 --rows 100
    python benchmarks/robustness.py --report      # the page and the figure, from what was measured

Correctly rejected test rows are explained. Judges are models that no search has asked: `--held` ones drawn as the family
is (a bootstrap of the training rows, another seed; for our own classifier also other settings, see
`counterpath.models.ensemble`), and `--shifted` ones fitted from another seed to the training rows with a tenth replaced
by test rows that are not explained (our own by `fit_own`, as `Explainer.fit` does). What is measured, part by part:

| part | what |
|---|---|
| plain:METHOD | today's answers of every method |
| robust:SHARE | `explain(robust=SHARE)`, and the same with `nearest`, which says whether any training row is that robust |
| confidence:P | the simpler cure, `explain(confidence=P)`; that of the lowest P with the same achieved share is compared |

A run that was cut off goes on with the parts that are missing. Settings were chosen on validation rows of seed 100.
"""

import argparse
import itertools
import json
import pickle
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from optimality import GOOD, user_model

import counterpath as cp
from counterpath.explanation.tables import END
from counterpath.models.classifier import blockwise_proba
from counterpath.models.family import Family, GivenMembers, predictor
from counterpath.models.own import fit_own
from counterpath.models.training import Run
from counterpath.search.objective import Target
from counterpath.search.stability import share_of
from counterpath.utils.files import write_json

METHODS = ("geodesic", "rsgd", "sgd", "nearest", "face")
SHARES = (0.8, 0.9, 0.95)
CONFIDENCES = (0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
RESULTS = Path(__file__).parent.parent / "docs" / "results" / "robustness"
_SHIFTED = 0.1  # of the rows that are replaced


class Study:
    """One data set, model and seed: what is fitted, and the rows that are explained."""

    def __init__(self, data: str, kind: str, seed: int, people: int, held: int, shifted: int, work: Path) -> None:
        self.kind, self.seed, self.data = kind, seed, data
        loaded = cp.datasets.load(data)
        self.train, self.test, self.target = loaded.train, loaded.test, loaded.target
        features, labels = self.train.drop(columns=self.target), self.train[self.target]
        work.mkdir(parents=True, exist_ok=True)
        saved, extra, grown = work / "model", work / "fit.pickle", work / "family.pickle"
        if extra.exists():
            self.model, self.times = pickle.loads(extra.read_bytes())
            self.explainer = cp.load(saved, model=self.model, device="cpu")
        else:
            self.model = user_model(kind, features, labels, seed)
            self.explainer = cp.Explainer(seed=seed, device="cpu", progress=False)
            started = time.process_time()
            self.explainer.fit(self.train, target=self.target, schema=loaded.schema, model=self.model)
            self.times = {"fit": time.process_time() - started}
            self.explainer.save(saved)
            extra.write_bytes(pickle.dumps((self.model, self.times)))
        self.explainer.progress = False
        if grown.exists():
            models, took = pickle.loads(grown.read_bytes())
            if kind != "own":
                self._set_family(models, held)
        else:
            started = time.process_time()
            models = self._fit_family(held)
            took = time.process_time() - started
            self.explainer.save(saved)
            grown.write_bytes(pickle.dumps((models, took)))
        self.times["family_seconds"] = took
        self.good = GOOD.get(data, self.explainer.classes_[-1])
        rejected = (self.explainer.predict(self.test).to_numpy() != self.good) & (
            self.test[self.target].to_numpy() != self.good
        )
        self.rows = self.test[rejected].head(people).drop(columns=self.target)
        self.wanted = Target(self.explainer.classes_.index(self.good), confidence=None)
        self.judges = self.explainer.models_.family.held_out
        self.shifted = GivenMembers(tuple(self._asked(each) for each in self._shifted_models(shifted, work)))

    def _fit_family(self, held: int) -> list[Any]:
        """The family; of a user's model the models themselves, to be kept."""
        if self.kind == "own":
            self.explainer.fit_family(held_out=held)
            return []
        models: list[Any] = []

        def retrain(table: pd.DataFrame, labels: pd.Series, seed: int) -> Any:
            models.append(user_model(self.kind, table, labels, seed))
            return models[-1]

        self.explainer.fit_family(retrain=retrain, held_out=held)
        return models

    def _set_family(self, models: list[Any], held: int) -> None:
        explained, encoder = self.explainer.models_.explained, self.explainer.models_.encoder
        asked = [predictor(each, explained, encoder, "model") for each in models]
        family = Family(GivenMembers(tuple(asked[:-held])), GivenMembers(tuple(asked[-held:])), "as it was fitted")
        self.explainer.models_ = replace(self.explainer.models_, family=family)

    def _shifted_models(self, count: int, work: Path) -> list[Any]:
        """Models that are fitted to the training rows with a tenth replaced by rows that are not explained."""
        fresh, found = self.test.drop(index=self.rows.index), []
        encoder = self.explainer.models_.encoder
        fresh = fresh[encoder.known(fresh.drop(columns=self.target)).to_numpy()]
        for number in range(count):
            kept = work / f"shifted-{number}.pickle"
            if not kept.exists():
                draw = np.random.default_rng(10_000 + 100 * self.seed + number)
                out = draw.choice(len(self.train), int(_SHIFTED * len(self.train)), replace=False)
                put = fresh.iloc[draw.choice(len(fresh), len(out), replace=len(out) > len(fresh))]
                table = pd.concat([self.train.drop(index=self.train.index[out]), put], ignore_index=True)
                kept.write_bytes(pickle.dumps(self._fitted(table, 20_000 + number)))
            found.append(pickle.loads(kept.read_bytes()))
        return found

    def _fitted(self, table: pd.DataFrame, seed: int) -> Any:
        """A model as the explained one is fitted, to another table."""
        features, labels = table.drop(columns=self.target), table[self.target]
        if self.kind != "own":
            return user_model(self.kind, features, labels, seed)
        classes = self.explainer.classes_
        y = torch.tensor([classes.index(label) for label in labels])
        return fit_own(self.explainer.encoder_.encode(features), y, len(classes), run=Run(seed=seed, progress=False))

    def _asked(self, model: Any) -> Any:
        models = self.explainer.models_
        return (
            blockwise_proba(model) if self.kind == "own" else predictor(model, models.explained, models.encoder, "it")
        )

    def part(self, name: str) -> dict[str, Any]:
        """What is measured for one part: one number a row, and the CPU seconds of all."""
        kind, _, value = name.partition(":")
        asked: dict[str, Any] = {"target_class": self.good, "paths": END}
        asked |= {
            "plain": {"method": value},
            "robust": {"robust": float(value or 0)} if kind == "robust" else {},
            "anybody": {"robust": float(value or 0), "method": "nearest"} if kind == "anybody" else {},
            "confidence": {"confidence": float(value or 0)} if kind == "confidence" else {},
        }[kind]
        self.explainer.explain(self.rows.head(2), **asked)  # what is fitted, or asked of training rows, once
        started = time.process_time()
        result = self.explainer.explain(self.rows, **asked)
        seconds = time.process_time() - started
        measured, status = result.measures(), result.status
        x = self.explainer.models_.encoder.encode(result.counterfactuals)
        return {
            "seconds": seconds,
            "status": status["status"].tolist(),
            "family": _plain(status["share"]),
            "after": share_of(self.judges, x, self.wanted).tolist(),
            "shifted": share_of(self.shifted, x, self.wanted).tolist(),
            **{each: _plain(measured[each]) for each in ("l1", "l0", "ld_sq", "confidence", "valid_noise")},
        }


def _plain(column: pd.Series) -> list[float | None]:
    return [None if value != value else float(value) for value in column]


def parts() -> list[str]:
    """All parts, those first without which the others say little."""
    first = ["plain:geodesic", *(f"{kind}:{share}" for share in SHARES for kind in ("robust", "anybody"))]
    return [*first, *(f"confidence:{each}" for each in CONFIDENCES), *(f"plain:{each}" for each in METHODS[1:])]


def measure(arguments: argparse.Namespace, seed: int) -> None:
    """Measure what is missing of one data set, model and seed."""
    name = f"{arguments.data}-{arguments.model}-{seed}"
    file = RESULTS / f"{name}.json"
    known = json.loads(file.read_text()) if file.exists() else {"parts": {}}
    missing = [part for part in parts() if part not in known["parts"]]
    if not missing:
        return
    sizes = arguments.rows, arguments.held, arguments.shifted
    study = Study(arguments.data, arguments.model, seed, *sizes, arguments.work / name)
    family = study.explainer.models_.family
    known |= {"data": arguments.data, "model": arguments.model, "seed": seed, "rows": len(study.rows)}
    known |= {"family": len(family), "held": len(family.held_out), "shifted": len(study.shifted), **study.times}
    for part in missing:
        known["parts"][part] = study.part(part)
        RESULTS.mkdir(parents=True, exist_ok=True)
        write_json(file, known)
        print(name, part, summary(known["parts"][part]), flush=True)


_ROUNDING = 1e-6  # of shares in float32: 45 of 50 are 0.9
FOUND = ("found", "crosses_gap", "implausible")


def column(part: dict[str, Any], name: str) -> np.ndarray[Any, Any]:
    """A column as numbers, for all rows."""
    return np.array([np.nan if value is None else value for value in part[name]], dtype=float)


def found(part: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Which rows have an answer."""
    return np.isin(part["status"], FOUND)


def summary(part: dict[str, Any], rows: np.ndarray[Any, Any] | None = None) -> dict[str, float]:
    """The means of a part over the rows that it found, or some of them."""
    rows = found(part) if rows is None else rows
    after = column(part, "after")[rows]
    if not len(after):
        return {"found": 0.0}
    return {
        "found": float(found(part).mean()),
        **{name: float(np.nanmean(column(part, name)[rows])) for name in ("l1", "l0", "ld_sq", "after", "shifted")},
        **{f"q{100 * q:g}": float(np.quantile(after, q)) for q in (0.1, 0.5)},
        "seconds": part["seconds"],
    }


def keeps(part: dict[str, Any], share: float) -> float:
    """For which share of the found rows at least a share of the judges accepts the answer."""
    rows = found(part)
    return float((column(part, "after")[rows] >= share - _ROUNDING).mean()) if rows.any() else float("nan")


def same_share(known: dict[str, Any], share: float) -> str | None:
    """The lowest confidence whose answers last as long: as high a mean, and as often as long as was asked for."""
    robust = known["parts"][f"robust:{share}"]
    for confidence in CONFIDENCES:
        tried = known["parts"].get(f"confidence:{confidence}")
        if tried is None or not found(tried).any():
            continue
        enough = summary(tried)["after"] >= summary(robust)["after"] and keeps(tried, share) >= keeps(robust, share)
        if enough:
            return f"confidence:{confidence}"
    return None


def at_same_mean(known: dict[str, Any], share: float) -> tuple[float, float, float, int] | None:
    """L1 and LD² of the simpler cure at exactly the mean achieved share of `robust`, on common rows.

    Between two confidences, what they cost is interpolated by the achieved share.
    """
    robust = known["parts"][f"robust:{share}"]
    points = []
    for confidence in CONFIDENCES:
        tried = known["parts"].get(f"confidence:{confidence}")
        if tried is None:
            continue
        rows = found(tried) & found(robust)
        if rows.sum() < 0.5 * found(robust).sum():
            continue
        ours, theirs = summary(robust, rows), summary(tried, rows)
        points.append((theirs["after"] - ours["after"], theirs["l1"], theirs["ld_sq"], ours["l1"], ours["ld_sq"], rows))
    for before, after in itertools.pairwise(points):
        if before[0] <= 0 <= after[0]:
            weight = -before[0] / (after[0] - before[0]) if after[0] > before[0] else 1.0
            costs = [(1 - weight) * before[i] + weight * after[i] for i in (1, 2, 3, 4)]
            return costs[0], costs[1], costs[2], costs[3]  # type: ignore[return-value]
    return None


def report() -> None:
    """Write the page and the figure."""
    every = [json.loads(file.read_text()) for file in sorted(RESULTS.glob("*.json"))]
    lines = [
        "# How long answers last",
        "",
        *_intro(every),
        *_fragile(every),
        *_robust(every),
        *_cure(every),
        *_cost(every),
    ]
    lines += [*_published(every), *_said()]
    (RESULTS / "README.md").write_text("\n".join(lines) + "\n")
    _figure(every)


def _named(known: dict[str, Any]) -> str:
    return f"{known['data']} · {known['model']} · {known['seed']}"


def _intro(every: list[dict[str, Any]]) -> list[str]:
    run = [f"| {_named(one)} | {one['rows']} | {one['family']} | {one['held']} | {one['shifted']} |" for one in every]
    return [
        "Correctly rejected test rows; judges are models that no search has asked: `held` of them drawn as the family is, "
        "`shifted` ones fitted to rows of which a tenth is replaced. `benchmarks/robustness.py` says more, and made this "
        "page: `python benchmarks/robustness.py --data D --model M --seeds S --rows N`, then `--report`. What was run:",
        "",
        "| data · model · seed | rows | family | held | shifted |",
        "|---|---|---|---|---|",
        *run,
        "",
    ]


def _fragile(every: list[dict[str, Any]]) -> list[str]:
    lines = [
        "## How fragile plain answers are",
        "",
        "`valid_after`: the share of judges that accept an answer, its mean, lowest tenth and median over the rows found.",
        "",
        "| data · model · seed | method | found | L1 | LD² | valid after | lowest tenth | median | after a shift |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in every:
        for method in METHODS:
            part = one["parts"].get(f"plain:{method}")
            if part is None or not found(part).any():
                continue
            s = summary(part)
            lines.append(
                f"| {_named(one)} | `{method}` | {s['found']:.2f} | {s['l1']:.2f} | {s['ld_sq']:.3f} | {s['after']:.2f} | "
                f"{s['q10']:.2f} | {s['q50']:.2f} | {s['shifted']:.2f} |"
            )
    return [*lines, ""]


def _robust(every: list[dict[str, Any]]) -> list[str]:
    lines = [
        "## Asked to last",
        "",
        "`kept`: for which share of the rows found at least the asked share of the judges accepts. `coverage`: found, of "
        "the rows for which `nearest` finds a training row that is as robust, within what they may change.",
        "",
        "| data · model · seed | asked | found | fragile | coverage | valid after | kept | after a shift | L1 | LD² | L0 |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in every:
        for share in SHARES:
            part, anybody = (one["parts"].get(f"{kind}:{share}") for kind in ("robust", "anybody"))
            if part is None or not found(part).any():
                continue
            s, fragile = summary(part), np.mean(np.array(part["status"]) == "fragile")
            there = found(anybody) if anybody is not None else np.zeros(len(part["status"]), bool)
            coverage = f"{found(part)[there].mean():.2f} of {there.sum()}" if there.any() else "–"
            lines.append(
                f"| {_named(one)} | {share} | {s['found']:.2f} | {fragile:.2f} | {coverage} | {s['after']:.3f} | "
                f"{keeps(part, share):.2f} | {s['shifted']:.2f} | {s['l1']:.2f} | {s['ld_sq']:.3f} | {s['l0']:.1f} |"
            )
    return [*lines, ""]


def _cure(every: list[dict[str, Any]]) -> list[str]:
    lines = [
        "## Against a higher confidence",
        "",
        "Left: the lowest confidence of the grid that achieves at least as much, in the mean and in `kept`, on common rows. "
        "Right: both at the same mean achieved share, the costs of two neighbouring confidences interpolated.",
        "",
        "| data · model · seed | asked | that confidence | common rows | L1, robust | L1, confidence | LD², robust | LD², confidence "
        "| same mean: L1, robust | L1, confidence |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in every:
        for share in SHARES:
            part = one["parts"].get(f"robust:{share}")
            if part is None or not found(part).any():
                continue
            name = same_share(one, share)
            mean = at_same_mean(one, share)
            right = "– | –" if mean is None else f"{mean[2]:.2f} | {mean[0]:.2f}"
            if name is None:
                lines.append(f"| {_named(one)} | {share} | none does | – | – | – | – | – | {right} |")
                continue
            other = one["parts"][name]
            rows = found(part) & found(other)
            a, b = summary(part, rows), summary(other, rows)
            lines.append(
                f"| {_named(one)} | {share} | {name.split(':')[1]} | {rows.sum()} | {a['l1']:.2f} | {b['l1']:.2f} | "
                f"{a['ld_sq']:.3f} | {b['ld_sq']:.3f} | {right} |"
            )
    picture = (
        "![The share of retrained models that accept, against L1: robust answers, higher confidences, plain answers]"
        "(achieved.png)"
    )
    rows = "The figure is over the rows that are found at 0.8 and 0.9 both: L1 of plain answers is lower there than over all."
    return [*lines, "", picture, "", rows, ""]


def _cost(every: list[dict[str, Any]]) -> list[str]:
    lines = [
        "## Time",
        "",
        "CPU seconds of one core: of `fit`, of the family, and a row of the plain search and of the robust one.",
        "",
        "| data · model · seed | fit | family | plain | robust 0.8 | 0.9 | 0.95 | times |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in every:
        plain = one["parts"]["plain:geodesic"]["seconds"] / one["rows"]
        robust = [one["parts"].get(f"robust:{share}") for share in SHARES]
        each = ["–" if part is None else f"{part['seconds'] / one['rows']:.3f}" for part in robust]
        times = ["–" if part is None else f"{part['seconds'] / one['rows'] / plain:.1f}" for part in robust]
        lines.append(
            f"| {_named(one)} | {one['fit']:.0f} | {one['family_seconds']:.0f} | {plain:.3f} | {' | '.join(each)} | "
            f"{', '.join(times)} |"
        )
    return [*lines, ""]


def _published(every: list[dict[str, Any]]) -> list[str]:
    ours = [one for one in every if one["data"] == "german" and one["model"] == "own"]
    lines = ["## Beside published figures, German", "", "| | valid after | L1 |", "|---|---|---|"]
    for one in ours:
        for name, label in (("plain:geodesic", "`geodesic`"), *((f"robust:{s}", f"`robust={s}`") for s in SHARES)):
            part = one["parts"].get(name)
            if part is not None and found(part).any():
                s = summary(part)
                lines.append(f"| {label}, seed {one['seed']}, held out | {s['after']:.2f} | {s['l1']:.2f} |")
                lines.append(f"| {label}, seed {one['seed']}, after a shift | {s['shifted']:.2f} | {s['l1']:.2f} |")
    return [
        *lines,
        "| ROAR, MLP (RecourseBench 0.2.0) | 0.68 | 2.90 |",
        "| PROBE, linear model (the same) | 0.76 | 0.83 |",
        "| T-Rex, linear model (the same) | 1.00 | 1.19 |",
        "",
        "The protocols differ: there a change of category counts 2 in L1 and here 1; the models are others, two of the "
        "three linear, which change less from one training to the next than a network does; and which later model judges "
        "is theirs. So the lines say in which region figures lie, and not who is better.",
        "",
    ]


def _said() -> list[str]:
    """What to take from it, written by hand; it holds for the runs of the first table."""
    return [
        "## What this says, and what it does not",
        "",
        "- Plain answers are fragile, those of `geodesic` most: of models drawn as the family is, 0.38 and 0.69 of them (two "
        "seeds) accept an answer of our classifier on German.",
        "- The asked share is kept for 0.96 to 1.00 of the rows found: at 0.9 one of 23 rows misses it on each seed, by one "
        "model of 50.",
        "- Against a higher confidence it depends on what is compared. At the same **mean** share it is no better on seed 0 "
        "(L1 1.57 against 1.57, 1.90 against 1.85, 2.51 against 2.42) and better on seed 1. For the same **promise**, the "
        "asked share for as many rows, the confidences of the grid (steps of 0.05) cost 8 to 41 % more L1, part of which is the "
        "grid. So whoever wants a longer life on average may raise the confidence; `explainer.lasting_confidence(0.9)` says to "
        "how much. Which one, per row, is what `robust` finds.",
        "- It takes more time than was aimed at (4 times the plain search, twice the fit): 5 to 16 times with our classifier "
        "on these small batches, a part of it for the one to three rows that nothing serves; the family took 0.8 and 2.3 times "
        "as long as `fit`. With XGBoost 75 times: every model is a call of its own, for few rows each.",
        "- Hardly a training row of German keeps what people cannot change, so that `nearest` says little about coverage.",
        "- Not run: HELOC, Adult, random forests, XGBoost beyond the parts above, 500 rows (German has 24 to 39 that are "
        "correctly rejected), more than ten models after a shift.",
        "",
    ]


def _figure(every: list[dict[str, Any]]) -> None:
    """Achieved share against L1, for plain answers, robust ones and higher confidences."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    shown = [one for one in every if "robust:0.9" in one["parts"]]
    figure, axes = plt.subplots(1, max(1, len(shown)), figsize=(3.4 * max(1, len(shown)), 3.2), squeeze=False)
    for axis, one in zip(axes[0], shown, strict=False):
        every_row = np.all([found(one["parts"][f"robust:{s}"]) for s in SHARES[:2]], axis=0)
        for prefix, values, label in (
            ("robust", SHARES, "robust="),
            ("confidence", CONFIDENCES, "confidence="),
        ):
            line = []
            for value in values:
                part = one["parts"].get(f"{prefix}:{value}")
                if part is None:
                    continue
                rows = found(part) & every_row
                if rows.sum() >= 0.8 * max(1, every_row.sum()):
                    s = summary(part, rows)
                    line.append((s["l1"], s["after"]))
            if line:
                axis.plot(*zip(*line, strict=True), marker="o", markersize=3, label=label)
        s = summary(one["parts"]["plain:geodesic"], found(one["parts"]["plain:geodesic"]) & every_row)
        axis.plot([s["l1"]], [s["after"]], "k*", label="plain")
        axis.set_title(_named(one), fontsize=9)
        axis.set_xlabel("L1")
        axis.set_ylim(0, 1.02)
    axes[0][0].set_ylabel("share of retrained models that accept")
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(RESULTS / "achieved.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="german")
    parser.add_argument("--model", default="own", choices=("own", "xgboost", "forest"))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--held", type=int, default=50)
    parser.add_argument("--shifted", type=int, default=20)
    parser.add_argument("--work", type=Path, default=Path("build/robustness"), help="Where models are kept meanwhile.")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if arguments.report:
        report()
        return
    for seed in map(int, arguments.seeds.split(",")):
        measure(arguments, seed)


if __name__ == "__main__":
    main()
