"""The suites: ours, and those of others with their own tables, splits, models, encodings, rows and measures."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd

from counterpath.data import datasets
from counterpath.data.encoding import Encoder
from counterpath.data.schema import Feature, Schema
from counterpath.experiments.leaderboard import census
from counterpath.experiments.leaderboard.arena import Arena, Published, Reproduction, evenly
from counterpath.experiments.leaderboard.measures import Answers, Array, Columns, Predict
from counterpath.explainer.explainer import Explainer
from counterpath.search.methods import METHODS
from counterpath.utils.errors import choose, require


@dataclass(frozen=True)
class Preset:
    """How large a run is.

    Attributes:
        rows: People a cell, at most; a suite with a number of its own keeps that.
        train_rows: Training rows of our own suite, at most; None for all.
        seeds: Of splits and models.
        flow: Whether methods that need a flow are run; its training takes minutes on a CPU.
        data: The data sets of each suite.
        models: The models of our own suite.
        device: Where our models are trained and searched.
    """

    rows: int
    train_rows: int | None
    seeds: tuple[int, ...]
    flow: bool
    data: dict[str, tuple[str, ...]]
    models: tuple[str, ...]
    device: str = "auto"

    @property
    def no_flow(self) -> str:
        """Why there is no flow; empty if there is one."""
        if not self.flow:
            return "needs a flow, which this preset does not fit"
        return "" if find_spec("zuko") else "needs a flow: pip install 'counterpath[flow]'"

    def explainer(self, seed: int) -> Explainer:
        """An explainer that is not fitted; with a flow, if there is to be one."""
        method = "geodesic" if self.no_flow else "ppcef"
        return Explainer(method=method, seed=seed, device=self.device, progress=False)


_OUTSIDE = {"recoursebench": ("adult",), "carla": ("adult",), "cel": ("heloc",), "genre": ("adult",)}
PRESETS = {
    "quick": Preset(40, 4000, (0,), False, {**_OUTSIDE, "ours": ("german", "compas", "heloc")}, ("mlp", "xgboost")),
    "full": Preset(
        500,
        None,
        (0, 1, 2),
        True,
        {**_OUTSIDE, "ours": ("adult", "gmc", "compas", "heloc", "german", "digits")},
        ("mlp", "logistic", "xgboost"),
    ),
}
"""By name. The quick one takes about a quarter of an hour on two cores."""

Make = Callable[[str, str, int, Preset], Arena]
"""Makes the arena of a data set, a model and a seed."""


@dataclass(frozen=True)
class Suite:
    """Whose tables, rows, models and measures are taken.

    Attributes:
        title: Whose it is.
        models: Its models; None for those of the preset.
        make: Makes an arena.
        deterministic: Its own seeds alone are used, once.
    """

    title: str
    models: tuple[str, ...] | None
    make: Make
    deterministic: bool = True


RECOURSEBENCH = (
    Published("arg_ensembling", {"valid": 1, "l0": 4.06, "l1": 1.67, "l2": 0.93, "type_violations": 0.38,
                                 "mutability_violations": 0.96, "knn_5": 0.27, "seconds": 5.9}),
    Published("cols", {"valid": 1, "l0": 2.54, "l1": 1.02, "l2": 0.67, "type_violations": 0.48,
                       "mutability_violations": 0.16, "knn_5": 0.66, "seconds": 92}),
    Published("cvas_proj", {"valid": 0.86, "l0": 1.44, "l1": 0.69, "l2": 0.57, "type_violations": 0,
                            "mutability_violations": 0.37, "knn_5": 0.53, "seconds": 66}),
    Published("dice", {"valid": 1, "l0": 10.72, "l1": 7.41, "l2": 2.48, "type_violations": 0.44,
                       "mutability_violations": 0.82, "knn_5": 1.58, "seconds": 445}),
    Published("diverse_dist", {"valid": 1, "l0": 4.22, "l1": 0.96, "l2": 0.51, "type_violations": 0.64,
                               "mutability_violations": 0.94, "knn_5": 0.42, "seconds": 4.1}),
    Published("gs", {"valid": 1, "l0": 16.82, "l1": 16.15, "l2": 3.91, "type_violations": 0.96,
                     "mutability_violations": 0, "knn_5": 3.17, "seconds": 18}),
    Published("larr", {"valid": 0.1, "l0": 33.4, "l1": 2.14, "l2": 1.36, "type_violations": 1,
                       "mutability_violations": 0, "knn_5": 1.38, "seconds": 5233}),
)  # fmt: skip
"""RecourseBench 0.2.0, Adult, MLP, 50 people; benchmark/results/default_results.csv."""

CARLA = (
    Published("cchvae", {"valid": 1, "l0": 5.5, "l1": 1.71, "l2_squared": 1.53, "violations": 0, "redundancy": 4.05,
                         "ynn": 0.75}),
    Published("dice", {"valid": 1, "l0": 1.95, "l1": 1.74, "l2_squared": 1.68, "violations": 0.15, "redundancy": 1.0,
                       "ynn": 0.16}),
    Published("face_knn", {"valid": 1, "l0": 11.2, "l1": 8.77, "l2_squared": 8.38, "violations": 1.65,
                           "redundancy": 9.95, "ynn": 0.98}),
    Published("cfrl", {"valid": 1, "l0": 7.65, "l1": 6.10, "l2_squared": 6.10, "violations": 0, "redundancy": 10.7,
                       "ynn": 1.0}),
    Published("gs", {"valid": 1, "l0": 18.1, "l1": 14.3, "l2_squared": 14.2, "violations": 0, "redundancy": 16.1,
                     "ynn": 0.41}),
    Published("wachter", {"valid": 1, "l0": 5, "l1": 2.80, "l2_squared": 1.88, "violations": 1, "redundancy": 0.2,
                          "ynn": 0}),
)  # fmt: skip
"""CARLA's successor charmlab/recourse_benchmarks, Adult, linear model, 20 rows; experiments/results.csv."""

CEL = (
    Published("PPCEF", {"valid": 1, "plausible": 1, "log_density": 38.9, "lof": 1.09, "isolation_forest": 0.08,
                        "l2": 0.24, "seconds": 143}),
    Published("CCHVAE", {"valid": 1, "plausible": 0.99, "log_density": 39.9, "lof": 1.8e6, "isolation_forest": 0.12,
                         "l2": 0.50, "seconds": 6.8}),
    Published("SACE", {"valid": 1, "plausible": 0.22, "log_density": 36.3, "lof": 1.04, "isolation_forest": 0.07,
                       "l2": 0.70, "seconds": 3.3}),
    Published("DiCE", {"valid": 0.94, "plausible": 0.01, "log_density": -159, "lof": 2.12, "isolation_forest": 0.04,
                       "l2": 0.68, "seconds": 43}),
    Published("Wachter", {"valid": 1, "plausible": 0.17, "log_density": 22.4, "lof": 1.20, "isolation_forest": 0.04,
                          "l2": 0.19, "seconds": 0.08}),
)  # fmt: skip
"""CEL, HELOC, MLP, five folds; manuscript/tables."""

GENRE = (Published("GenRe", {"valid": 0.95, "lof_inlier": 0.94, "cost": 0.70, "score": 1.875}, "middle of its bands"),)
"""GenRe, Adult, judged by a random forest: the middle of the bands that RecourseBench accepts for it."""


def _recoursebench(data: str, model: str, seed: int, preset: Preset) -> Arena:
    choose("data set of RecourseBench", data, {"adult": None})
    gs = next(each for each in RECOURSEBENCH if each.method == "gs")
    tenth = {name: abs(value) / 10 for name, value in gs.values.items() if name in ("l0", "l1", "l2", "knn_5")}
    tolerances = {**tenth, "valid": 0.0, "type_violations": 0.04, "mutability_violations": 0.0}
    return census.arena(
        "recoursebench",
        model,
        rows=50,
        seed=seed,
        train_rows=None if preset.train_rows is None else 2 * preset.train_rows,
        published=RECOURSEBENCH,
        reproduced=(gs, tolerances, {"by_all": False, "put_back": True}),
        share=0.2,
        choose=lambda rejected: rejected.sample(50, random_state=0),
        epochs=50,
        explainer=preset.explainer(seed),
    )


def _carla(data: str, model: str, seed: int, preset: Preset) -> Arena:
    choose("data set of CARLA", data, {"adult": None})
    gs = next(each for each in CARLA if each.method == "gs")
    tolerances = {"valid": 0.0, "l0": 1.8, "l1": 1.45, "l2_squared": 1.45, "violations": 0.0, "redundancy": 2.5,
                  "ynn": 0.2}  # fmt: skip
    return census.arena(
        "carla",
        model,
        rows=20,
        seed=seed,
        train_rows=None if preset.train_rows is None else 2 * preset.train_rows,
        published=CARLA,
        reproduced=(gs, tolerances, {"by_all": True, "put_back": False}),
        share=0.3,
        choose=lambda rejected: rejected.sample(20, random_state=54321),
        epochs=10,
        explainer=preset.explainer(seed),
    )


def _cel(data: str, model: str, seed: int, preset: Preset) -> Arena:
    """HELOC in fold `seed` of five: all numbers, scaled to [0, 1], so that our columns are theirs."""
    choose("data set of CEL", data, {"heloc": None})
    from sklearn.model_selection import StratifiedKFold

    loaded = datasets.load("heloc-carla")
    frame = pd.concat([loaded.train, loaded.test]).sort_index()
    wanted = loaded.desired_class if loaded.desired_class is not None else 1
    labels = (frame[loaded.target] == wanted).astype(int)
    folds = StratifiedKFold(5, shuffle=True, random_state=42).split(frame, labels)
    train, test = list(folds)[seed % 5]
    names = list(loaded.schema.names)
    # CEL knows neither immutable features nor whole numbers, and so must we here.
    plain = Schema(tuple(Feature(name, "continuous") for name in names))
    rows, truth = frame.iloc[train][names].astype(float), labels.iloc[train].to_numpy()
    low, reach = rows.min(), (rows.max() - rows.min()).replace(0, 1)

    def encode(table: pd.DataFrame) -> Array:
        rows: Array = ((table[names].astype(float) - low) / reach).to_numpy(dtype=np.float64)
        return rows

    network = census.train_torch(encode(rows), truth, (32, 32), epochs=20, batch=64, rate=1e-3, seed=seed)
    predict = census.predictor(network)
    explainer = preset.explainer(seed)
    explainer.fit(rows, schema=plain, model=network)
    others = frame.iloc[test][names].astype(float)
    rejected = evenly(others[predict(encode(others)) < 0.5], preset.rows)

    def reproduce() -> Reproduction:
        wachter = next(each for each in CEL if each.method == "Wachter")
        found = explainer.explain(rejected, 1, method="wachter", paths="end")
        y = encode(found.counterfactuals).copy()
        y[~found.valid.to_numpy()] = np.nan
        tolerances = {"valid": 0.02, "lof": 0.15, "isolation_forest": 0.04, "l2": 0.1}
        return Reproduction(wachter, y, tolerances, "our wachter, redundant changes put back")

    note = "CARLA's copy of HELOC (21 features, codes imputed); CEL's has 23 and keeps the codes"
    return Arena(
        "cel",
        explainer,
        rejected,
        1,
        encode,
        Columns(),
        encode(rows),
        predict,
        published=CEL,
        reproduce=reproduce,
        note=note,
    )


_GENRE_MODELS = {
    "mlp": "found by our own classifier, judged by a forest that no search has asked",
    "mlp-sure": "found by our own classifier at a higher confidence, judged by a forest that no search has asked",
    "forest": "the forest that judges is explained itself",
}
_SURE = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Confidences among which one is chosen for GenRe's judge, by a judge and by people of its own."""
_CHOOSING_SEED, _CHOOSING_PEOPLE = 100, 60  # seeds below 10 are for reporting; a share of so many is right to .06


def _genre(data: str, model: str, seed: int, preset: Preset) -> Arena:
    """Adult as CARLA has it, three quarters of it for training; a random forest judges, and LOF is of its positives."""
    choose("data set of GenRe", data, {"adult": None})
    choose("model of GenRe", model, _GENRE_MODELS)
    loaded = datasets.load("adult-carla")
    train = loaded.train if preset.train_rows is None else loaded.train.sample(2 * preset.train_rows, random_state=seed)
    names, target = list(loaded.schema.names), loaded.target
    encoder = Encoder.fit(train[names], loaded.schema)

    def encode(table: pd.DataFrame) -> Array:
        rows: Array = encoder.encode(table[names]).double().numpy()
        return rows

    judge = _forest(encode(loaded.train), loaded.train[target].to_numpy(), seed)
    explainer = preset.explainer(seed)
    if model == "forest":
        schema = replace(loaded.schema, class_labels={})
        explainer.fit(train[names], schema=schema, encoder=encoder, model=lambda table: judge(encode(table)))
    else:
        explainer.fit(train, target, schema=loaded.schema, encoder=encoder)

    def rejected(table: pd.DataFrame, by: Predict) -> pd.DataFrame:
        no: pd.DataFrame = table.loc[(explainer.predict(table[names]) == 0).to_numpy(), names]
        kept: pd.DataFrame = no[by(encode(no)) < 0.5]
        return kept

    note, request = _GENRE_MODELS[model], {}
    if model == "mlp-sure":
        order = np.random.default_rng(_CHOOSING_SEED).permutation(len(loaded.train))
        known, others = (loaded.train.iloc[some] for some in np.split(order, [3 * len(order) // 4]))
        other = _forest(encode(known), known[target].to_numpy(), _CHOOSING_SEED)
        people, everyone = evenly(rejected(others, other), _CHOOSING_PEOPLE), encode(known)

        def score(confidence: float) -> float:
            found = explainer.explain(people, 1, confidence=confidence, paths="end")
            y = encode(found.counterfactuals)
            y[~found.valid.to_numpy()] = np.nan
            answers = Answers(
                encode(people), y, everyone[other(everyone) >= 0.5], _columns(explainer), _predict(explainer), other
            )
            return float(np.nan_to_num(answers.measure("genre").get("score", np.zeros(1))).mean())

        request = {"confidence": max(_SURE, key=score)}
        note += f"; {request['confidence']:g}, which scores most with another forest on {len(people)} other people"
    everyone = encode(loaded.train)
    return Arena(
        "genre",
        explainer,
        evenly(rejected(loaded.test, judge), preset.rows),
        1,
        encode,
        _columns(explainer),
        everyone[judge(everyone) >= 0.5],
        _predict(explainer),
        judge,
        request=request,
        published=GENRE,
        why_not="the published row is that of GenRe itself, a transformer trained on pairs of rows, which we do not "
        "have; our methods stand beside its bands",
        note=note,
    )


def _forest(rows: Array, labels: Any, seed: int) -> Predict:
    """A random forest: rows to the probability of class 1."""
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(random_state=seed, min_samples_leaf=5).fit(rows, labels)

    def judge(rows: Array) -> Array:
        said: Array = forest.predict_proba(rows)[:, 1] if len(rows) else np.zeros(0)
        return said

    return judge


def _columns(explainer: Explainer) -> Columns:
    """What the columns of an explainer are."""
    encoder = explainer.models_.encoder
    blocks = tuple(tuple(range(*block)) for block in encoder.blocks)
    binary = [
        columns.start
        for feature, columns in zip(encoder.schema, encoder.layout, strict=True)
        if len(feature.categories) == 2 and columns.stop - columns.start == 1
    ]
    return Columns(blocks, tuple(binary), tuple(encoder.columns(*encoder.schema.immutable)))


def _predict(explainer: Explainer, target: int = 1) -> Callable[[Array], Array]:
    """The explained model on encoded rows: the probability of a class."""
    import torch

    def predict(rows: Array) -> Array:
        said = explainer.models_.explained.predict_proba(torch.from_numpy(rows).to(explainer.models_.rows))
        found: Array = said[:, target].double().cpu().numpy()
        return found

    return predict


def _digits() -> tuple[pd.DataFrame, pd.DataFrame, str, Schema, Any]:
    """Fours and nines of scikit-learn's digits: 64 grey values."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    loaded = load_digits()
    kept = np.isin(loaded.target, (4, 9))
    names = [f"p{row}{column}" for row in range(8) for column in range(8)]
    frame = pd.DataFrame(loaded.data[kept], columns=names).assign(digit=np.where(loaded.target[kept] == 9, 1, 0))
    train, test = train_test_split(frame, test_size=0.25, random_state=42)
    schema = Schema(tuple(Feature(name, "continuous", lower=0, upper=16) for name in names))
    return train, test, "digit", schema, 1


def _table(data: str) -> tuple[pd.DataFrame, pd.DataFrame, str, Schema, Any]:
    if data == "digits":
        return _digits()
    loaded = datasets.load({"heloc": "heloc-carla", "gmc": "gmc-carla"}.get(data, data))
    wanted = loaded.desired_class if loaded.desired_class is not None else 1
    return loaded.train, loaded.test, loaded.target, loaded.schema, wanted


def classifier(name: str, schema: Schema, seed: int) -> Any:
    """A classifier of tables; None for our own network."""
    if name == "mlp":
        return None
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    categories = [each.name for each in schema if each.categories]
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    if name == "logistic":
        encode = make_column_transformer((one_hot, categories), remainder=StandardScaler())
        return make_pipeline(encode, LogisticRegression(max_iter=1000))
    xgboost = require("xgboost", "bench", "XGBoost in the leaderboard")
    trees = xgboost.XGBClassifier(n_estimators=100, max_depth=5, random_state=seed, n_jobs=1)
    return make_pipeline(make_column_transformer((one_hot, categories), remainder="passthrough"), trees)


def _ours(data: str, model: str, seed: int, preset: Preset) -> Arena:
    """Our data sets with their schemas: what is immutable stays, values are legal, unseen pairs are avoided."""
    from sklearn.ensemble import RandomForestClassifier

    train, test, target, schema, wanted = _table(data)
    if preset.train_rows is not None and len(train) > preset.train_rows:
        train = train.sample(preset.train_rows, random_state=seed)
    names = list(schema.names)
    explained = classifier(model, schema, seed)
    if explained is not None:
        explained.fit(train[names], (train[target] == wanted).astype(int))
    explainer = preset.explainer(seed)
    if explained is None:
        explainer.fit(train, target, schema=schema)
    else:
        explainer.fit(train[names], schema=replace(schema, class_labels={}), model=explained)
    goal: Any = wanted if explained is None else 1
    fitted = explainer.models_
    weights = fitted.encoder.weights.double().numpy()

    def encode(table: pd.DataFrame) -> Array:
        rows: Array = fitted.encoder.encode(table[names]).double().numpy() * weights
        return rows

    reference = fitted.rows.double().cpu().numpy() * weights
    forest = RandomForestClassifier(random_state=seed, min_samples_leaf=3)
    forest.fit(reference, (train[target] == wanted).astype(int).to_numpy())
    said = _predict(explainer, list(fitted.explained.classes).index(goal))

    def judge(rows: Array) -> Array:
        found: Array = forest.predict_proba(rows)[:, 1]
        return found

    rejected = test[(explainer.predict(test[names]) != goal).to_numpy()][names]
    return Arena(
        "ours",
        explainer,
        evenly(rejected, preset.rows),
        goal,
        encode,
        replace(_columns(explainer), scale=weights),
        reference,
        lambda rows: said(rows / weights),
        judge,
        why_not="this is our own suite",
        note="distances and neighbours with the weights of the encoder: another category counts 1",
    )


SUITES = {
    "ours": Suite("Counterpath", None, _ours, deterministic=False),
    "recoursebench": Suite("RecourseBench 0.2.0", ("mlp",), _recoursebench),
    "carla": Suite("CARLA, by its successor's results", ("linear",), _carla),
    "cel": Suite("CEL (PPCEF)", ("mlp",), _cel),
    "genre": Suite("GenRe", tuple(_GENRE_MODELS), _genre),
}
"""By name."""


def methods_of(preset: Preset) -> tuple[tuple[str, ...], dict[str, str]]:
    """The methods that a preset runs, and why it does not run others."""
    left_out = {name: preset.no_flow for name, method in METHODS.items() if method.needs and preset.no_flow}
    return tuple(name for name in METHODS if name not in left_out), left_out
