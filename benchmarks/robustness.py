# ruff: noqa: E501  # the sentences of a page are as long as they are
"""How long answers last: how many retrained models still accept them, what it costs to ask for that, and a simpler cure.

    python benchmarks/robustness.py --data german --model own --seeds 0,1
    python benchmarks/robustness.py --data adult --model forest --train 5000 --time-limit 420
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

Rows are explained in blocks, all parts of one block before the next, until there are `--rows` of them or the time is up;
so all parts are over the same rows. A run that was cut off goes on where it was, as long as `--work` is there. With
`--train N` all models are fitted to so many training rows, drawn by the seed. Settings were chosen on validation rows of
seeds from 100 on.
"""

import argparse
import itertools
import json
import math
import pickle
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from cases import MODELS

import counterpath as cp
from counterpath.explanation.tables import END
from counterpath.models.classifier import blockwise_proba
from counterpath.models.family import Family, GivenMembers, given_members, models_needed, predictor
from counterpath.models.own import fit_own
from counterpath.models.training import Run
from counterpath.search.objective import Target
from counterpath.search.stability import share_of
from counterpath.utils.files import write_text

METHODS = ("geodesic", "rsgd", "sgd", "nearest", "face")
SHARES = (0.8, 0.9, 0.95)
CONFIDENCES = (0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
RESULTS = Path(__file__).parent.parent / "docs" / "results" / "robustness"
_SHIFTED = 0.1  # of the rows that are replaced
_BLOCK = 25  # rows that are explained at once: fewer take longer a row, and of more the last ones may not be in time


def user_model(kind: str, table: pd.DataFrame, labels: pd.Series, seed: int) -> Any:
    """A model as users have them, fitted to a table; None for our own.

    Leaves of forests have five rows or more, since 178 of them must fit into the memory.
    """
    if kind == "own":
        return None
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    text = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)  # forests are slow on sparse columns
    columns = make_column_transformer((encoder, text), remainder="passthrough")
    if kind == "forest":
        model: Any = RandomForestClassifier(100, min_samples_leaf=5, random_state=seed, n_jobs=1)
    else:
        from xgboost import XGBClassifier

        model = XGBClassifier(n_estimators=100, max_depth=4, random_state=seed, n_jobs=1)
        labels = labels.astype("category").cat.codes
    return make_pipeline(columns, model).fit(table, labels)


class Study:
    """One data set, model and seed: what is fitted, and the rows that are explained."""

    def __init__(self, arguments: argparse.Namespace, seed: int, work: Path) -> None:
        self.kind, self.seed, self.data = arguments.model, seed, arguments.data
        kind, held, device = arguments.model, arguments.held, arguments.device
        loaded = cp.datasets.load(self.data)
        self.train, self.test, self.target = loaded.train, loaded.test, loaded.target
        if arguments.train is not None and arguments.train < len(self.train):
            self.train = self.train.sample(arguments.train, random_state=seed).reset_index(drop=True)
        features, labels = self.train.drop(columns=self.target), self.train[self.target]
        work.mkdir(parents=True, exist_ok=True)
        saved, extra, grown = work / "model", work / "fit.pickle", work / "family.pickle"
        if extra.exists():
            self.model, self.times = pickle.loads(extra.read_bytes())
            self.explainer = cp.load(saved, model=self.model, device=device)
        else:
            self.model = user_model(kind, features, labels, seed)
            self.explainer = cp.Explainer(seed=seed, device=device, progress=False)
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
            if kind != "forest":  # these would take gigabytes
                grown.write_bytes(pickle.dumps((models, took)))
        self.times["family_seconds"] = took
        wanted = loaded.desired_class
        self.good = wanted if wanted in self.explainer.classes_ else self.explainer.classes_[-1]
        known = self.explainer.models_.encoder.known(self.test.drop(columns=self.target)).to_numpy()
        self.test = self.test[known]  # a sample of the training rows may lack a category
        rejected = (self.explainer.predict(self.test).to_numpy() != self.good) & (
            self.test[self.target].to_numpy() != self.good
        )
        self.rows = self.test[rejected].head(arguments.rows).drop(columns=self.target)
        self.wanted = Target(self.explainer.classes_.index(self.good), confidence=None)
        self.judges = self.explainer.models_.family.held_out
        shifted = self._shifted_models(arguments.shifted, work)
        asked = [self._asked(each) for each in shifted]
        fitted = self.explainer.models_
        self.shifted = (
            GivenMembers(tuple(asked)) if kind == "own" else given_members(shifted, asked, fitted.encoder, fitted.rows)
        )
        self.warm: set[str] = set()

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
        members = given_members(models[:-held], asked[:-held], encoder, self.explainer.models_.rows)
        judges = given_members(models[-held:], asked[-held:], encoder, self.explainer.models_.rows)
        family = Family(members, judges, "as it was fitted")
        self.explainer.models_ = replace(self.explainer.models_, family=family)

    def _shifted_models(self, count: int, work: Path) -> list[Any]:
        """Models that are fitted to the training rows with a tenth replaced by rows that are not explained."""
        fresh, found = self.test.drop(index=self.rows.index), []
        for number in range(count):
            kept = work / f"shifted-{number}.pickle"
            if not kept.exists():
                draw = np.random.default_rng(10_000 + 100 * self.seed + number)
                out = draw.choice(len(self.train), int(_SHIFTED * len(self.train)), replace=False)
                put = fresh.iloc[draw.choice(len(fresh), len(out), replace=len(out) > len(fresh))]
                table = pd.concat([self.train.drop(index=self.train.index[out]), put], ignore_index=True)
                found.append(self._fitted(table, 20_000 + number))
                if self.kind != "forest":
                    kept.write_bytes(pickle.dumps(found[-1]))
                continue
            found.append(pickle.loads(kept.read_bytes()))
        return found

    def _fitted(self, table: pd.DataFrame, seed: int) -> Any:
        """A model as the explained one is fitted, to another table."""
        features, labels = table.drop(columns=self.target), table[self.target]
        if self.kind != "own":
            return user_model(self.kind, features, labels, seed)
        classes = self.explainer.classes_
        y = torch.tensor([classes.index(label) for label in labels])
        x = self.explainer.encoder_.encode(features)
        device = self.explainer.models_.rows.device
        return fit_own(x.to(device), y.to(device), len(classes), run=Run(seed=seed, progress=False))

    def _asked(self, model: Any) -> Any:
        models = self.explainer.models_
        return (
            blockwise_proba(model) if self.kind == "own" else predictor(model, models.explained, models.encoder, "it")
        )

    def part(self, name: str, rows: pd.DataFrame) -> dict[str, Any]:
        """What is measured for one part: one number a row, and the CPU seconds of all."""
        kind, _, value = name.partition(":")
        options: dict[str, dict[str, Any]] = {
            "plain": {"method": value},
            "robust": {"robust": value},
            "anybody": {"robust": value, "method": "nearest"},
            "confidence": {"confidence": value},
        }
        asked = {each: option if each == "method" else float(option) for each, option in options[kind].items()}
        asked |= {"target_class": self.good, "paths": END}
        if name not in self.warm:
            self.explainer.explain(rows.head(2), **asked)  # what is fitted, or asked of training rows, once
            self.warm.add(name)
        started = time.process_time()
        result = self.explainer.explain(rows, **asked)
        seconds = time.process_time() - started
        measured, status = result.measures(), result.status
        x = self.explainer.models_.encoder.encode(result.counterfactuals).to(self.explainer.models_.rows.device)
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


PARTS = (
    *(f"plain:{method}" for method in METHODS),
    *(f"{kind}:{share}" for share in SHARES for kind in ("robust", "anybody")),
    *(f"confidence:{each}" for each in CONFIDENCES),
)


def measure(arguments: argparse.Namespace, seed: int) -> None:
    """Measure one data set, model and seed: block after block of rows, until the time is up."""
    started = time.monotonic()
    name = f"{arguments.data}-{arguments.model}-{seed}"
    file = arguments.out / f"{name}.json"
    known = json.loads(file.read_text()) if file.exists() else {"rows": 0, "parts": {}}
    study = Study(arguments, seed, arguments.work / name)
    family = study.explainer.models_.family
    known |= {"data": arguments.data, "model": arguments.model, "seed": seed, "train": len(study.train)}
    known |= {"family": len(family), "held": len(family.held_out), "shifted": len(study.shifted), **study.times}
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(name, "fitted", round(time.monotonic() - started), "seconds", flush=True)
    longest = 0.0
    while known["rows"] < len(study.rows) and time.monotonic() - started + longest < arguments.time_limit:
        begun = time.monotonic()
        rows = study.rows.iloc[known["rows"] :].head(arguments.block)
        for part in PARTS:
            measured = study.part(part, rows)
            joined(known["parts"].setdefault(part, {}), measured)
            print(name, part, round(measured["seconds"] / len(rows), 3), "seconds a row", flush=True)
        known["rows"] += len(rows)
        longest = max(longest, time.monotonic() - begun)
        write_text(file, json.dumps(known))
        print(name, known["rows"], "rows", round(time.monotonic() - started), "seconds", flush=True)


def joined(known: dict[str, Any], more: dict[str, Any]) -> None:
    """Add what was measured of more rows to what is known of a part."""
    for name, value in more.items():
        known[name] = known[name] + value if name in known else value


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


Cell = dict[str, Any]
"""What was measured of one data set, model and seed."""


def report(folder: Path) -> None:
    """Write the page and the figure."""
    every = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    sections = (_asked, _intro, _fragile, _robust, _cure, _cost, _published, _said)
    lines = ["# How long answers last", "", *(line for section in sections for line in (*section(every), ""))]
    (folder / "README.md").write_text("\n".join(lines))
    _figure(every, folder)


def together(every: list[Cell]) -> list[list[Cell]]:
    """The cells of one data set and model, whatever the seed."""
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in every:
        found.setdefault((cell["data"], cell["model"]), []).append(cell)
    return list(found.values())


def _named(cells: list[Cell]) -> str:
    return f"{cells[0]['data']} · {cells[0]['model']}"


def span(values: Iterable[float], digits: int = 2) -> str:
    """From where to where; or the one number that there is."""
    ends = sorted(values)
    texts = [f"{each:.{digits}f}" for each in (ends[:1] + ends[-1:])]
    return " to ".join(dict.fromkeys(texts)) or "–"


def seeds(values: Iterable[float | None], digits: int = 2) -> str:
    """The mean over seeds, and between which numbers they are."""
    known = [value for value in values if value is not None and value == value]
    if not known:
        return "–"
    mean, ends = f"{np.mean(known):.{digits}f}", span(known, digits)
    return mean if ends == mean else f"{mean} ({ends})"


def found_parts(every: list[Cell], prefix: str, values: Sequence[Any]) -> Iterator[tuple[Cell, Any, dict[str, Any]]]:
    """The parts of every cell that found anything, in order: the cell, the value and the part."""
    for cell in every:
        for value in values:
            part = cell["parts"].get(f"{prefix}:{value}")
            if part is not None and found(part).any():
                yield cell, value, part


def _parts(cells: list[Cell], name: str) -> list[tuple[Cell, dict[str, Any]]]:
    """A part of the cells that found anything by it."""
    return [(one, one["parts"][name]) for one in cells if name in one["parts"] and found(one["parts"][name]).any()]


def _table(header: str, lines: Iterable[str]) -> list[str]:
    """A table whose first column names the data set and the model."""
    header = f"| data · model | {header} |"
    return [header, "|---" * (header.count("|") - 1) + "|", *(f"| {line} |" for line in lines)]


def _asked(every: list[Cell]) -> list[str]:
    """What was aimed at, and what was measured."""
    robust = list(found_parts(every, "robust", SHARES))
    kept = [keeps(part, share) for _, share, part in robust]
    rows = sum(int(found(part).sum()) for _, _, part in robust)
    covered = [(each, count) for each, count in (coverage(one, share) for one, share, _ in robust) if count]
    there = sum(count for _, count in covered)
    promises, took = _promises(every), _times(every)
    lower = sum(l1 < 1 for l1, _ in promises)
    near = sum(l1 < 1 and ld_sq <= 1 for l1, ld_sq in promises)
    means = [mean for mean in (at_same_mean(one, share) for one, share, _ in robust) if mean is not None]
    fits = [1 + one["family_seconds"] / one["fit"] for one in every]
    plain = [summary(part)["after"] for _, _, part in found_parts(every, "plain", METHODS[:1])]
    lines = [
        f"how fragile plain answers are | of models drawn as the family is, {span(plain)} accept those of `geodesic` (mean of "
        "a cell)",
        f"the asked share kept for ≥ 0.95 of the rows found | {sum(each >= 0.95 for each in kept)} of {len(kept)} lines; "
        f"{span(kept)}; of all {rows:,} answers together "
        f"{sum(keeps(part, share) * found(part).sum() for _, share, part in robust) / max(1, rows):.3f}",
        f"found for ≥ 0.9 of the rows for which a training row is that robust | {sum(each >= 0.9 for each, _ in covered)} of "
        f"{len(covered)} lines; of {there} such rows together "
        f"{sum(each * count for each, count in covered) / max(1, there):.2f}",
        f"lower L1 than a higher confidence that keeps as much, at no higher LD² | L1 lower in {lower} of {len(promises)} lines "
        f"where a confidence does ({span(l1 for l1, _ in promises)} of its L1), in {near} of them at no higher LD²; in "
        f"{len(robust) - len(promises)} of {len(robust)} lines no confidence up to {max(CONFIDENCES):g} does",
        f"the same at the same mean share alone | L1 lower in {sum(mean[2] < mean[0] for mean in means)} of {len(means)} lines "
        f"({span(mean[2] / mean[0] for mean in means)})",
        f"≤ 4 × the time of the plain search | {sum(each <= 4 for each in took)} of {len(took)} lines; {span(took, 1)} ×",
        f"`fit` with a family ≤ 2 × | {sum(each <= 2 for each in fits)} of {len(fits)} cells; {span(fits, 1)} ×",
        f"500 rows, {span((one['held'] for one in every), 0)} held-out and {span((one['shifted'] for one in every), 0)} shifted "
        f"models a cell | {span((one['rows'] for one in every), 0)} rows a cell, in {len(every)} cells",
    ]
    return [
        "A cell is a data set, a model and a seed; a line is one of these and a share that was asked for. Where seeds are "
        "folded into one line of a table, their mean is given and, in brackets, between which numbers they are.",
        "",
        "| asked | measured |",
        "|---|---|",
        *(f"| {line} |" for line in lines),
    ]


def _promises(every: list[Cell]) -> list[tuple[float, float]]:
    """L1 and LD² of robust answers, over those of the confidence that keeps as much, on common rows; where one does."""
    ratios = []
    for one, share, part in found_parts(every, "robust", SHARES):
        name = same_share(one, share)
        if name is not None:
            rows = found(part) & found(one["parts"][name])
            a, b = summary(part, rows), summary(one["parts"][name], rows)
            if "l1" in a:
                ratios.append((a["l1"] / b["l1"], a["ld_sq"] / b["ld_sq"]))
    return ratios


def _times(every: list[Cell]) -> list[float]:
    names = [(one, f"robust:{share}") for one in every for share in SHARES]
    return [times(one, one["parts"][name]) for one, name in names if name in one["parts"]]


def _intro(every: list[Cell]) -> list[str]:
    run = [
        f"{_named(cells)} | {', '.join(str(one['seed']) for one in cells)} | {cells[0]['train']:,} | "
        f"{', '.join(str(one['rows']) for one in cells)} | {cells[0]['family']} | {cells[0]['held']} | {cells[0]['shifted']}"
        for cells in together(every)
    ]
    return [
        "## What was run",
        "",
        "Correctly rejected test rows; judges are models that no search has asked: `held` of them drawn as the family is, "
        "`shifted` ones fitted to rows of which a tenth is replaced. `benchmarks/robustness.py` says more, and made this "
        "page: `python benchmarks/robustness.py --data D --model M --seeds S --rows N [--train N] [--time-limit SECONDS]`, "
        "then `--report`. As many rows as the time allowed:",
        "",
        *_table("seeds | training rows | rows | family | held | shifted", run),
    ]


def _fragile(every: list[Cell]) -> list[str]:
    lines = []
    for cells in together(every):
        methods: dict[str, list[str]] = {}
        for method in METHODS:
            all_of = [summary(part) for _, part in _parts(cells, f"plain:{method}")]
            if not all_of:
                methods.setdefault("0.00" + " | –" * 6, []).append(f"`{method}`")
                continue
            columns = (("found", 2), ("l1", 2), ("ld_sq", 3), ("after", 2), ("q10", 2), ("q50", 2), ("shifted", 2))
            figures = " | ".join(seeds([s[name] for s in all_of], digits) for name, digits in columns)
            methods.setdefault(figures, []).append(f"`{method}`")
        lines += [f"{_named(cells)} | {', '.join(names)} | {figures}" for figures, names in methods.items()]
    return [
        "## How fragile plain answers are",
        "",
        "`valid_after`: the share of judges that accept an answer, its mean, lowest tenth and median over the rows found. "
        "Methods whose figures are the same share a line.",
        "",
        *_table("method | found | L1 | LD² | valid after | lowest tenth | median | after a shift", lines),
    ]


def coverage(cell: Cell, share: float) -> tuple[float, int]:
    """Found, of the rows for which some training row is as robust, within what they may change; and how many those are."""
    part, anybody = (cell["parts"].get(f"{kind}:{share}") for kind in ("robust", "anybody"))
    there = found(anybody) if anybody is not None else np.zeros(len(part["status"]), bool)
    return (float(found(part)[there].mean()) if there.any() else float("nan")), int(there.sum())


def _robust(every: list[Cell]) -> list[str]:
    lines = []
    for cells, share in itertools.product(together(every), SHARES):
        parts = _parts(cells, f"robust:{share}")
        if not parts:
            continue
        all_of = [summary(part) for _, part in parts]
        fragile = [float(np.mean(np.array(part["status"]) == "fragile")) for _, part in parts]
        covered = [each for each in (coverage(one, share) for one, _ in parts) if each[1]]
        rows = sum(count for _, count in covered)
        got = sum(round(each * count) for each, count in covered)

        def column(name: str, digits: int, all_of: list[dict[str, float]] = all_of) -> str:
            return seeds([s[name] for s in all_of], digits)

        lines.append(
            f"{_named(cells)} | {share} | {column('found', 2)} | {seeds(fragile)} | {f'{got} of {rows}' if rows else '–'} | "
            f"{column('after', 3)} | {seeds([keeps(part, share) for _, part in parts])} | {column('shifted', 2)} | "
            f"{column('l1', 2)} | {column('ld_sq', 3)} | {column('l0', 1)}"
        )
    return [
        "## Asked to last",
        "",
        "`kept`: for which share of the rows found at least the asked share of the judges accepts. `coverage`: found, of "
        "the rows for which `nearest` finds a training row that is as robust, within what they may change.",
        "",
        *_table("asked | found | fragile | coverage | valid after | kept | after a shift | L1 | LD² | L0", lines),
    ]


def _cure(every: list[Cell]) -> list[str]:
    lines = []
    for cells, share in itertools.product(together(every), SHARES):
        parts = _parts(cells, f"robust:{share}")
        if not parts:
            continue
        pairs, names, common = [], [], []
        for one, part in parts:
            name = same_share(one, share)
            rows = found(part) & found(one["parts"][name]) if name is not None else np.zeros(0, bool)
            if name is not None and rows.any():
                a, b = summary(part, rows), summary(one["parts"][name], rows)
                pairs.append((a["l1"], b["l1"], a["ld_sq"], b["ld_sq"]))
                names.append(float(name.split(":")[1]))
                common.append(int(rows.sum()))
        means = [(m[2], m[0], m[3], m[1]) for m in (at_same_mean(one, share) for one, _ in parts) if m is not None]
        which = span(names) if len(names) == len(parts) else f"{span(names)} ({len(names)} of {len(parts)})"
        left = f"{which} | {', '.join(map(str, common))} | {_costs(pairs)}" if pairs else "none does" + " | –" * 4
        lines.append(f"{_named(cells)} | {share} | {left} | {_costs(means) if means else _NOTHING}")
    columns = "L1 | of its L1 | LD²"
    return [
        "## Against a higher confidence",
        "",
        "Left: the lowest confidence of the grid that achieves at least as much, in the mean and in `kept`, on common rows; "
        "in brackets for how many of the seeds there is one. Right: both at the same mean achieved share, the costs of two "
        "neighbouring confidences interpolated. Of L1 and LD² that of robust answers stands first and then that of the "
        "confidence, in the mean of the seeds; `of its L1` is the first over the second.",
        "",
        *_table(f"asked | that confidence | common rows | {columns} | same mean: {columns}", lines),
        "",
        "![The share of retrained models that accept, against L1: robust answers, higher confidences, plain answers]"
        "(achieved.png)",
        "",
        "A line of the figure is one seed, over the rows that are found at 0.8 and 0.9 both: L1 of plain answers is lower "
        "there than over all. A point for which fewer than 0.8 of these rows are found is left out.",
    ]


_NOTHING = "– | – | –"


def _costs(pairs: Sequence[tuple[float, float, float, float]]) -> str:
    """L1 of both, their ratio, and LD² of both."""
    l1, others, ld_sq, their_ld_sq = np.mean(pairs, axis=0)
    ratio = seeds([pair[0] / pair[1] for pair in pairs])
    return f"{l1:.2f}, {others:.2f} | {ratio} | {ld_sq:.3f}, {their_ld_sq:.3f}"


def times(cell: Cell, part: dict[str, Any]) -> float:
    """How many times as long as the plain search a part took."""
    return float(part["seconds"] / cell["parts"]["plain:geodesic"]["seconds"])


def _cost(every: list[Cell]) -> list[str]:
    lines = []
    for cells in together(every):
        columns = [
            seeds([one["fit"] for one in cells], 0),
            seeds([one["family_seconds"] for one in cells], 0),
            seeds([1 + one["family_seconds"] / one["fit"] for one in cells], 1),
            seeds([one["parts"]["plain:geodesic"]["seconds"] / one["rows"] for one in cells], 3),
        ]
        for share in SHARES:
            name = f"robust:{share}"
            columns.append(seeds([times(one, one["parts"][name]) for one in cells if name in one["parts"]], 1))
        for share in SHARES:
            names = [(one, same_share(one, share)) for one, _ in _parts(cells, f"robust:{share}")]
            columns.append(seeds([times(one, one["parts"][name]) for one, name in names if name is not None], 1))
        lines.append(f"{_named(cells)} | {' | '.join(columns)}")
    robust, same = (" | ".join(f"{word} {share}" for share in SHARES) for word in ("robust", "as"))
    return [
        "## Time",
        "",
        "CPU seconds of one core: of `fit`, of the family, and a row of the plain search; how many times as long `fit` takes "
        "with the family, and the search with `robust`; and, beside it, with the confidence that achieves as much as that "
        "share (`as`).",
        "",
        *_table(f"fit | family | fit with it, × | plain, a row | {robust} | {same}", lines),
    ]


def _published(every: list[Cell]) -> list[str]:
    ours = [one for one in every if (one["data"], one["model"]) == ("german", "own")]
    lines = []
    for name, label in (("plain:geodesic", "`geodesic`"), *((f"robust:{s}", f"`robust={s}`") for s in SHARES)):
        all_of = [summary(part) for _, part in _parts(ours, name)]
        figures = " | ".join(seeds([s[each] for s in all_of]) for each in ("after", "shifted", "l1"))
        lines.append(f"| {label} | {figures} |")
    return [
        "## Beside published figures, German",
        "",
        "| | valid after | after a shift | L1 |",
        "|---|---|---|---|",
        *lines,
        "| ROAR, MLP (RecourseBench 0.2.0) | 0.68 | | 2.90 |",
        "| PROBE, linear model (the same) | 0.76 | | 0.83 |",
        "| T-Rex, linear model (the same) | 1.00 | | 1.19 |",
        "",
        "The protocols differ: there a change of category counts 2 in L1 and here 1; the models are others, two of the "
        "three linear, which change less from one training to the next than a network does; and which later model judges "
        "is theirs. So the lines say in which region figures lie, and not who is better.",
    ]


def _said(every: list[Cell]) -> list[str]:
    """What to take from it, with the figures of the tables."""
    robust = list(found_parts(every, "robust", SHARES))
    sizes, there = [one["rows"] for one in every], [coverage(one, share)[1] for one, share, _ in robust] or [0]
    names = [(one, same_share(one, share)) for one, share, _ in robust]
    same = [times(one, one["parts"][name]) for one, name in names if name is not None]
    return [
        "## What this says, and what it does not",
        "",
        "- A confidence is the same for all: it gives some a longer life than was asked for and others a shorter one, and a "
        "mean share is no promise to anybody. Whoever wants a longer life on average may raise the confidence; "
        "`explainer.lasting_confidence(0.9)` says to how much.",
        f"- A confidence that keeps as much takes {span(same, 1)} times the plain search: what is asked for is farther away, "
        "and may be looked for in more sources.",
        "- A user's model has a family of 128 models unless another size is asked for, because each is fitted by itself. For "
        f"0.95 it takes {models_needed(0.95)} models for answers that change one feature, {models_needed(0.95, 2)} for two and "
        f"{models_needed(0.95, 3)} for three (`models_needed`); `fit_family(size=256)` is the way to ask for more.",
        f"- A cell has {min(sizes)} to {max(sizes)} rows. A share of 0.95 measured on 25 rows has a standard error of 0.04, on "
        "100 rows of 0.02, on 500 of 0.01.",
        f"- `coverage` is over {min(there)} to {max(there)} rows a line and seed; where these are few, it says little.",
    ]


def _figure(every: list[Cell], folder: Path) -> None:
    """Achieved share against L1, for plain answers, robust ones and higher confidences: a panel a data set and model."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    shown = together([one for one in every if "robust:0.9" in one["parts"]])
    wide = max(1, min(4, len(shown)))
    high = max(1, math.ceil(len(shown) / wide))
    figure, axes = plt.subplots(high, wide, figsize=(3 * wide, 2.9 * high + 0.4), squeeze=False, sharey=True)
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    kinds = (("confidence", CONFIDENCES, "a higher confidence", "C1"), ("robust", SHARES, "robust", "C0"))
    for axis, cells in zip(axes.flat, shown, strict=False):
        for one in cells:
            common = np.all([found(one["parts"][f"robust:{s}"]) for s in SHARES[:2]], axis=0)
            for prefix, values, label, color in kinds:
                line = _line(one, common, prefix, values)
                if line:
                    axis.plot(*zip(*line, strict=True), "o-", color=color, ms=3, lw=1.2, alpha=0.8, label=label)
            rows = found(one["parts"]["plain:geodesic"]) & common
            if rows.any():
                s = summary(one["parts"]["plain:geodesic"], rows)
                axis.plot([s["l1"]], [s["after"]], "k*", label="plain")
        count = f"{len(cells)} seeds" if len(cells) > 1 else f"seed {cells[0]['seed']}"
        axis.set_title(f"{_named(cells)}, {count}", fontsize=10)
        axis.set_xlabel("L1")
        axis.set_ylim(0, 1.03)
        axis.grid(alpha=0.3)
    for row in axes:
        row[0].set_ylabel("share of retrained\nmodels that accept")
    labels = {
        name: handle for axis in axes.flat for handle, name in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(labels.values(), labels.keys(), loc="upper center", ncols=max(1, len(labels)), frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.35 / figure.get_figheight()))
    figure.savefig(folder / "achieved.png", dpi=110)
    plt.close(figure)


def _line(one: Cell, common: np.ndarray[Any, Any], prefix: str, values: Sequence[float]) -> list[tuple[float, float]]:
    """L1 and the achieved share of parts, over common rows of which nearly all are found."""
    line = []
    for value in values:
        part = one["parts"].get(f"{prefix}:{value}")
        rows = found(part) & common if part is not None else common[:0]
        if rows.any() and rows.sum() >= _NEARLY_ALL * common.sum():
            s = summary(part, rows)
            line.append((s["l1"], s["after"]))
    return line


_NEARLY_ALL = 0.8  # of the rows of a panel: with fewer found a point is over other people


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="german")
    parser.add_argument("--model", default="own", choices=MODELS)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--train", type=int, help="Training rows that are used, drawn by the seed; by default all.")
    parser.add_argument("--held", type=int, default=50)
    parser.add_argument("--shifted", type=int, default=20)
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="Seconds of a seed, fits included.")
    parser.add_argument("--block", type=int, default=_BLOCK, help="Rows that are explained at once.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--work", type=Path, default=Path("build/robustness"), help="Where models are kept meanwhile.")
    parser.add_argument("--out", type=Path, default=RESULTS, help="A folder for what is measured, and for the page.")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if arguments.report:
        report(arguments.out)
        return
    for seed in map(int, arguments.seeds.split(",")):
        measure(arguments, seed)


if __name__ == "__main__":
    main()
