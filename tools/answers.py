"""Show that a change to the code changes not one answer.

    python tools/answers.py CHECKOUT_A CHECKOUT_B           record the answers of both, and compare them
    python tools/answers.py record CHECKOUT DIR             only record
    python tools/answers.py compare DIR_A DIR_B             only compare what was recorded

Each checkout fits its own models and answers the same requests through the public interface, in a process of its own
with one thread. Compared are the rows, the paths, the probabilities, the measures and what became of each row: values
to the bit, and dtypes. Sentences are not. The exit status is 0 if all is the same, 1 if something differs or could not
be recorded, and 2 if nothing was compared.

A case is a function with the decorator `case`: that is the only place to add one. Requests are written in the present
names of parameters; `OLD_NAMES` has what older checkouts call them.
"""

import argparse
import copy
import inspect
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import torch
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from torch import Tensor, nn

# ----------------------------------------------------------------------------------------------------------------------
# What older checkouts call things

OLD_NAMES = {
    "allow_copies": "copies",
    "ambient_metric": "ambient",
    "fallback": "home",
    "feature_costs": "difficulty",
    "keep_residual": "carry",
    "latent_dim": "latent",
    "max_steps": "steps",
    "n_centers": "centers",
    "numeric_output": "number",
    "paths": "keep",
    "representation_layer": "representation",
    "should_stop": "stop",
    "sparsify": "tidy",
    "time_limit": "seconds",
    "uncertainty_cost": "priced",
}
"""The parameters of `Explainer`, `explain` and `compare` that once had another name: the new one to the old one."""

OLD_FALLBACK = "The local search got stuck; this path leads straight through the latent space"
"""How the reason begins of a row that was found by the fallback, where the status has no column that says so."""


def named(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options under the names that a function of this checkout has for them."""
    known = inspect.signature(function).parameters
    return {name if name in known else OLD_NAMES.get(name, name): value for name, value in options.items()}


def ask(explainer: Any, rows: Any, target_class: Any = "other", **options: Any) -> Any:
    """Explain rows, with options in their present names."""
    return explainer.explain(rows, target_class, **named(explainer.explain, options))


def with_settings(explainer: Any, **options: Any) -> Any:
    """The same fitted explainer with other settings of the search."""
    changed = copy.copy(explainer)
    return changed.set_params(**named(type(explainer), options))


def compare_function() -> Callable[..., Any]:
    """The function that compares methods, wherever this checkout has it."""
    for name in ("counterpath", "counterpath.explainer.compare", "counterpath.benchmark"):
        try:
            found = getattr(import_module(name), "compare", None)
        except ModuleNotFoundError:
            continue
        if inspect.isfunction(found):
            return found
    raise LookupError("this checkout has no function `compare` where one was looked for")


# ----------------------------------------------------------------------------------------------------------------------
# Tables and models that cases share

METHODS = ("sgd", "rsgd", "rsgd-c", "wachter", "ambient", "geodesic", "face", "nearest")
"""All but "flow", which needs a fit of its own."""

SMALL = {"hidden": (64, 32), "epochs": 10, "n_centers": 50, "device": "cpu", "progress": False}
"""An Explainer of Adult rows that is fitted in seconds."""
TINY = {**SMALL, "hidden": (32, 16), "epochs": 40, "n_centers": 20, "max_steps": 40}
"""One of the mixed table, as `tests/tables.py` has it."""

ADULT_ROWS, FLOW_ROWS = 1500, 200
"""How many training rows of Adult are fitted. A flow makes as many steps of training for few rows as for many."""

CITIES = tuple("ABCDEFGHIJKL")
SIZES = ("small", "medium", "large", "huge")
LABEL = "risk"


def mixed_table(rows: int = 600, seed: int = 0) -> pd.DataFrame:
    """A table with every kind of column, and three classes with text labels: that of `tests/tables.py`."""
    random = np.random.default_rng(seed)
    place, wealth, age = random.random((3, rows))  # three things that nobody sees, and that the columns follow

    def near(hidden: NDArray[np.float64], levels: int) -> NDArray[np.int64]:
        return ((hidden + random.normal(0, 0.02, rows)).clip(0, 0.999) * levels).astype(np.int64)

    debt = np.exp(1 + 7 * (1 - wealth) + random.normal(0, 0.2, rows))
    score = 10 * wealth + 5 * place + random.normal(0, 0.3, rows)
    risk = np.log(debt) - 0.4 * score + 3 * age + random.normal(0, 0.3, rows)
    frame = pd.DataFrame(
        {
            "city": np.array(CITIES)[near(place, len(CITIES))],
            "size": pd.Categorical.from_codes(near(wealth, len(SIZES)), categories=list(SIZES), ordered=True),
            "children": near(age, 8),
            "member": near(age, 2).astype(bool),
            "sex": np.where(near(place, 2) == 1, "Female", "Male"),
            "debt": debt,
            "score": score,
        },
        index=pd.Index([f"p{row}" for row in range(rows)], name="person"),
    )
    return frame.assign(**{LABEL: np.array(["low", "mid", "high"])[np.digitize(risk, np.quantile(risk, [0.4, 0.75]))]})


def with_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """The mixed table with values missing here and there."""
    places = np.arange(len(frame))
    return frame.assign(
        city=frame["city"].mask(places % 7 == 1),
        size=frame["size"].mask(places % 11 == 2),
        children=frame["children"].mask(places % 13 == 3),
        debt=frame["debt"].mask(places % 5 == 4),
        score=frame["score"].mask(places % 10 == 4),
    )


class Autoencoder(nn.Module):
    """A user's own generator."""

    def __init__(self, width: int, latent: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(width, 32), nn.Tanh(), nn.Linear(32, latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 32), nn.Tanh(), nn.Linear(32, width), nn.Sigmoid())

    def encode(self, x: Tensor) -> Tensor:
        """Encoded rows to codes."""
        return self.encoder(x)

    def decode(self, z: Tensor) -> Tensor:
        """Codes to encoded rows."""
        return self.decoder(z)


def train(module: nn.Module, loss: Callable[[], Tensor], steps: int = 200) -> nn.Module:
    """Minimise a loss over the parameters of a module."""
    optimizer = torch.optim.Adam(module.parameters(), lr=5e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    return module.eval()


def owes_little(frame: pd.DataFrame) -> NDArray[np.float64]:
    """A model that is a plain function: the probability that somebody's debt is no burden."""
    odds = (
        0.5 * frame["score"].to_numpy(float) - np.log(frame["debt"].to_numpy(float)) + frame["member"].to_numpy(float)
    )
    return 1 / (1 + np.exp(-odds))


class Fits:
    """Tables and fitted explainers, each made when a case first asks for it.

    Attributes:
        cp: The package `counterpath` of this checkout.
        rows: How many rows the largest requests have; others have a quarter or a tenth of them, as they are slower.
        scratch: A folder for files that are not kept.
    """

    def __init__(self, rows: int, scratch: Path) -> None:
        self.cp: Any = import_module("counterpath")
        self.rows = rows
        self.scratch = scratch

    @property
    def some(self) -> int:
        """A quarter of the rows."""
        return max(self.rows // 4, 1)

    @property
    def few(self) -> int:
        """A tenth of them."""
        return max(self.rows // 10, 1)

    def explainer(self, **options: Any) -> Any:
        """An explainer that is not fitted."""
        return self.cp.Explainer(**named(self.cp.Explainer, options))

    @cached_property
    def adult_data(self) -> Any:
        """Adult as the paper has it."""
        try:
            return self.cp.datasets.load("adult-carla")
        except self.cp.InputError:
            return self.cp.datasets.load("adult")

    def fit_adult(self, rows: int = ADULT_ROWS, **options: Any) -> Any:
        """An explainer of a classifier of Adult rows."""
        data = self.adult_data
        table = data.train.iloc[:rows]
        return self.explainer(**{**SMALL, **options}).fit(table, target=data.target, schema=data.schema)

    @cached_property
    def adult(self) -> Any:
        """The explainer that most cases of Adult ask."""
        return self.fit_adult()

    def rejected(self, explainer: Any, count: int) -> pd.DataFrame:
        """The first test rows of Adult with the label 0 for which the model says so."""
        data = self.adult_data
        negative = data.test[data.test[data.target] == 0].drop(columns=data.target)
        return negative[(explainer.predict(negative) == 0).to_numpy()].head(count)

    @cached_property
    def mixed(self) -> Any:
        """An explainer of a classifier of the mixed table."""
        return self.fit_mixed()

    def fit_mixed(self, **options: Any) -> Any:
        """The same with other settings."""
        return self.explainer(**{**TINY, **options}).fit(mixed_table(), LABEL)

    @cached_property
    def people(self) -> pd.DataFrame:
        """Rows like those of the mixed table, but others."""
        return mixed_table(max(self.rows, 60), seed=1).drop(columns=LABEL)

    @cached_property
    def encoded(self) -> tuple[Any, Tensor]:
        """An encoder of the mixed table, and its rows as it encodes them."""
        features = mixed_table().drop(columns=LABEL)
        encoder = self.cp.Encoder.fit(features, self.cp.Schema.infer(features))
        return encoder, encoder.encode(features)

    @cached_property
    def forest(self) -> Any:
        """A random forest of scikit-learn that tells the classes of the mixed table apart."""
        table = mixed_table()
        words = make_column_transformer((OneHotEncoder(), ["city", "size", "sex"]), remainder="passthrough")
        forest = RandomForestClassifier(n_estimators=20, max_depth=8, random_state=0, n_jobs=1)
        return make_pipeline(words, forest).fit(table.drop(columns=LABEL), table[LABEL])

    @cached_property
    def network(self) -> nn.Module:
        """A torch module that does so on encoded rows, with a layer of its own name as its representation."""
        encoder, rows = self.encoded
        places = torch.from_numpy(np.unique(mixed_table()[LABEL], return_inverse=True)[1])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            features = nn.Sequential(nn.Linear(encoder.width, 32), nn.Tanh(), nn.Linear(32, 8), nn.Tanh())
            network = nn.Sequential(OrderedDict(features=features, head=nn.Linear(8, 3)))
            return train(network, lambda: nn.functional.cross_entropy(network(rows), places))

    @cached_property
    def generator(self) -> nn.Module:
        """An autoencoder of encoded rows of the mixed table."""
        encoder, rows = self.encoded
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            generator = Autoencoder(encoder.width, latent=4)
            return train(generator, lambda: (generator.decode(generator.encode(rows)) - rows).square().sum(1).mean())


# ----------------------------------------------------------------------------------------------------------------------
# Cases

Answers = dict[str, Any]
"""What a case asks for, by name: explanations, or tables."""
Case = Callable[[Fits], Answers]
CASES: dict[str, Case] = {}
"""All cases, in the order in which they are recorded."""
EQUAL: dict[str, list[tuple[str, str]]] = {}
"""By case the pairs of its answers that must be equal in every recording, for instance before and after a save."""


def case(name: str, *equal: tuple[str, str]) -> Callable[[Case], Case]:
    """Make a function a case, of which some answers must be equal."""

    def add(function: Case) -> Case:
        CASES[name], EQUAL[name] = function, list(equal)
        return function

    return add


def by_method(explainer: Any, rows: Any, target_class: Any, methods: Sequence[str], **options: Any) -> Answers:
    """The same request by several methods."""
    return {method: ask(explainer, rows, target_class, method=method, **options) for method in methods}


def adult_by_method(method: str, fits: Fits) -> Answers:
    """All rows of Adult by one method."""
    return {method: ask(fits.adult, fits.rejected(fits.adult, fits.rows), 1, method=method)}


for _method in METHODS:
    case(f"adult-{_method}")(partial(adult_by_method, _method))


@case("adult-flow")
def adult_flow(fits: Fits) -> Answers:
    """Long steps, and few of them: each takes seconds."""
    explainer = fits.fit_adult(FLOW_ROWS, method="flow", max_steps=10, step_size=1.0)
    return {"flow": ask(explainer, fits.rejected(explainer, fits.rows), 1)}


@case("predictions")
def predictions(fits: Fits) -> Answers:
    """What the models themselves say."""
    test = fits.adult_data.test.head(fits.rows)
    return {
        "adult": fits.adult.predict_proba(test),
        "adult-classes": fits.adult.predict(test).to_frame("class"),
        "mixed": fits.mixed.predict_proba(fits.people),
    }


@case("any-rows", ("pandas", "arrow"))
def any_rows(fits: Fits) -> Answers:
    """Test rows as they come, some of which already have the wanted class; also as a table of Arrow."""
    rows = fits.adult_data.test.head(fits.some).reset_index(drop=True)
    return {
        "pandas": ask(fits.adult, rows, 1),
        "arrow": ask(fits.adult, pyarrow.Table.from_pandas(rows, preserve_index=False), 1),
        "other": ask(fits.adult, rows),
    }


@case("confidence")
def confidence(fits: Fits) -> Answers:
    """A higher confidence than 0.5."""
    return by_method(fits.adult, fits.rejected(fits.adult, fits.some), 1, ("geodesic", "rsgd", "sgd"), confidence=0.9)


@case("plans")
def plans(fits: Fits) -> Answers:
    """Three plans for each row."""
    return by_method(fits.adult, fits.rejected(fits.adult, fits.few), 1, ("geodesic", "rsgd"), plans=3)


@case("lock")
def lock(fits: Fits) -> Answers:
    """Features that must not change, beside the immutable ones of the schema."""
    locked = ["marital-status", "fnlwgt"]
    return by_method(fits.adult, fits.rejected(fits.adult, fits.some), 1, ("geodesic", "rsgd"), lock=locked)


@case("ranges")
def ranges(fits: Fits) -> Answers:
    """Features that must stay within a range, numbers and categories."""
    rows = fits.rejected(fits.adult, fits.rows)
    rows = rows[(rows["education-num"] <= 10) & (rows["capital-gain"] <= 1000) & (rows["occupation"] == "Other")]
    within = {"education-num": (None, 10), "capital-gain": (0, 1000), "occupation": ["Other"]}
    return by_method(fits.adult, rows.head(fits.some), 1, ("geodesic", "rsgd"), ranges=within)


@case("directions")
def directions(fits: Fits) -> Answers:
    """Features that may change in one direction only."""
    ways = {"education-num": "up", "hours-per-week": "down", "occupation": "up"}
    return by_method(fits.adult, fits.rejected(fits.adult, fits.some), 1, ("geodesic", "rsgd"), directions=ways)


@case("max-changes")
def max_changes(fits: Fits) -> Answers:
    """At most two changes."""
    return by_method(fits.adult, fits.rejected(fits.adult, fits.few), 1, ("geodesic", "sgd", "nearest"), max_changes=2)


@case("feature-costs")
def feature_costs(fits: Fits) -> Answers:
    """Features that are hard to change, and easy ones."""
    costs = {"marital-status": 10, "hours-per-week": 0.2}
    rows = fits.rejected(fits.adult, fits.few)
    return by_method(fits.adult, rows, 1, ("geodesic", "rsgd", "nearest"), feature_costs=costs)


@case("no-fallback")
def no_fallback(fits: Fits) -> Answers:
    """A local search that gets stuck stays there."""
    explainer = with_settings(fits.adult, fallback=False)
    return by_method(explainer, fits.rejected(explainer, fits.some), 1, ("sgd", "rsgd"))


@case("no-residual")
def no_residual(fits: Fits) -> Answers:
    """Paths start where the generative model reproduces a row."""
    explainer = with_settings(fits.adult, keep_residual=False)
    return by_method(explainer, fits.rejected(explainer, fits.some), 1, ("sgd", "rsgd", "geodesic"))


@case("no-sparsify")
def no_sparsify(fits: Fits) -> Answers:
    """Changes that are not needed stay."""
    explainer = with_settings(fits.adult, sparsify=False)
    return by_method(explainer, fits.rejected(explainer, fits.some), 1, ("wachter", "rsgd", "geodesic"))


@case("no-refine")
def no_refine(fits: Fits) -> Answers:
    """A geodesic ends where the graph does."""
    explainer = with_settings(fits.adult, refine=False)
    return by_method(explainer, fits.rejected(explainer, fits.some), 1, ("geodesic",))


@case("copies")
def copies(fits: Fits) -> Answers:
    """A table with few different rows: counterfactuals that may be equal to a training row, and such that may not."""
    few = ["size", "children", "member", "sex"]
    explainer, rows = fits.explainer(**TINY).fit(mixed_table()[[*few, LABEL]], LABEL), fits.people[few].head(fits.some)
    unlike = with_settings(explainer, allow_copies=False)
    methods = ("geodesic", "rsgd", "wachter")
    refused = by_method(unlike, rows, "low", methods)
    return by_method(explainer, rows, "low", methods) | {f"no-{name}": given for name, given in refused.items()}


@case("fidelity")
def fidelity(fits: Fits) -> Answers:
    """Staying close to the person has a weight."""
    explainer = with_settings(fits.adult, fidelity=0.2)
    return by_method(explainer, fits.rejected(explainer, fits.some), 1, ("sgd", "rsgd", "wachter"))


@case("steps")
def steps(fits: Fits) -> Answers:
    """Few and long steps, with much damping."""
    explainer = with_settings(fits.adult, max_steps=20, step_size=0.3, damping=0.05)
    return by_method(explainer, fits.rejected(explainer, fits.some), 1, ("rsgd", "rsgd-c", "ambient"))


@case("paths-kept")
def paths_kept(fits: Fits) -> Answers:
    """Only the milestones of paths, or nothing but their ends."""
    rows = fits.rejected(fits.adult, fits.some)
    return {kept: ask(fits.adult, rows, 1, method="rsgd", paths=kept) for kept in ("milestones", "end")}


@case("classifier-metric")
def classifier_metric(fits: Fits) -> Answers:
    """Steps of a geodesic measured by what the classifier makes of rows."""
    explainer = fits.fit_adult(ambient_metric="classifier")
    return by_method(explainer, fits.rejected(explainer, fits.some), 1, ("geodesic",))


@case("no-uncertainty-cost")
def no_uncertainty_cost(fits: Fits) -> Answers:
    """Steps of a geodesic cost their length alone."""
    explainer = fits.fit_adult(uncertainty_cost=False)
    return by_method(explainer, fits.rejected(explainer, fits.some), 1, ("geodesic",))


@case("time-limit")
def time_limit(fits: Fits) -> Answers:
    """No time at all, more than enough, and nobody who waits."""
    rows = fits.rejected(fits.adult, fits.few)
    answers = {"none": ask(fits.adult, rows, 1, time_limit=1e-9), "much": ask(fits.adult, rows, 1, time_limit=86_400)}
    for method in ("rsgd", "geodesic"):
        answers[f"stopped-{method}"] = ask(fits.adult, rows, 1, method=method, should_stop=lambda: True)
    return answers


@case("mixed-methods")
def mixed_methods(fits: Fits) -> Answers:
    """Three classes with text labels, every kind of column, every method."""
    return by_method(fits.mixed, fits.people.head(fits.some), "low", METHODS)


@case("mixed-classes")
def mixed_classes(fits: Fits) -> Answers:
    """Each class by its name, and any other one, with two confidences."""
    rows = fits.people.head(fits.some)
    return {
        f"{wanted}-{confidence}": ask(fits.mixed, rows, wanted, confidence=confidence)
        for wanted in ("low", "mid", "high", "other")
        for confidence in (0.5, 0.9)
    }


@case("mixed-constraints")
def mixed_constraints(fits: Fits) -> Answers:
    """Every kind of constraint on every kind of column."""
    rows = fits.people.query("debt <= 2000 and city != 'A' and size != 'huge'").head(fits.some)
    wishes: dict[str, Any] = {
        "lock": ["sex"],
        "directions": {"children": "up", "size": "up", "member": "up"},
        "ranges": {"debt": (1, 2000), "city": list(CITIES[1:]), "size": ("small", "large")},
        "max_changes": 3,
        "feature_costs": {"score": 5, "city": 0.5},
    }
    answers = by_method(fits.mixed, rows.head(fits.few), "low", ("geodesic", "rsgd", "nearest", "face"), **wishes)
    for name, wish in wishes.items():
        some = rows.head(fits.few if name == "max_changes" else fits.some)
        answers[name] = ask(fits.mixed, some, "low", method="rsgd", **{name: wish})
    return answers


@case("infeasible")
def infeasible(fits: Fits) -> Answers:
    """Constraints under which there is nothing to be found, of each kind that can bind."""
    rows, people = fits.rejected(fits.adult, fits.some), fits.people.query("debt > 20").head(fits.few)
    locked = [name for name in rows.columns if name != "hours-per-week"]
    held: dict[str, Any] = {
        "confidence": 0.95,
        "ranges": {"score": (None, 100), "debt": (20, None)},
        "directions": {"size": "down", "member": "down", "children": "up", "score": "down"},
    }
    return {
        "lock": ask(fits.adult, rows, 1, method="sgd", lock=locked),
        "lock-nearest": ask(fits.adult, rows, 1, method="nearest", lock=locked),
        "down": ask(fits.adult, rows, 1, directions=dict.fromkeys(("education-num", "capital-gain"), "down")),
        "max-changes": ask(fits.mixed, people, "low", method="sgd", confidence=0.95, max_changes=1),
        "held": ask(fits.mixed, people, "low", method="rsgd", **held),
        "held-geodesic": ask(fits.mixed, people, "low", **held),
    }


@case("unknown-category")
def unknown_category(fits: Fits) -> Answers:
    """Rows with a category that no training row has."""
    rows = fits.people.head(fits.few).assign(city=lambda frame: frame["city"].where(np.arange(len(frame)) % 3 > 0, "Z"))
    return {"one": ask(fits.mixed, rows, "low"), "plans": ask(fits.mixed, rows, "low", plans=2, method="sgd")}


@case("missing")
def missing(fits: Fits) -> Answers:
    """Values that are missing, in the training rows and in those asked about."""
    table, rows = with_gaps(mixed_table()), with_gaps(fits.people).head(fits.some)
    explainer = fits.explainer(**TINY, missing="impute").fit(table, LABEL)
    return by_method(explainer, rows, "low", ("geodesic", "rsgd", "nearest"))


@case("fit-settings")
def fit_settings(fits: Fits) -> Answers:
    """Other models: their sizes, what they decode numbers to, how classes weigh, and the seed."""
    rows = fits.people.head(fits.some)
    others: dict[str, dict[str, Any]] = {
        "sizes": {"latent_dim": 3, "n_centers": "auto", "hidden": (24,), "numeric_output": "linear", "seed": 1},
        "weights": {"class_weight": "balanced", "seed": 2, "method": "rsgd"},
    }
    return {name: ask(fits.fit_mixed(**options), rows, "low") for name, options in others.items()}


@case("forest", ("rsgd", "loaded"))
def forest(fits: Fits) -> Answers:
    """A model of scikit-learn, that can only be asked; also given to an explainer that was saved without it."""
    explainer = fits.explainer(**TINY).fit(mixed_table(), LABEL, model=fits.forest)
    folder = explainer.save(fits.scratch / "forest-explainer")
    loaded = fits.cp.Explainer.load(folder, model=fits.forest, device="cpu")
    rows = fits.people.head(fits.some)
    answers = by_method(explainer, rows, "low", ("geodesic", "rsgd", "sgd", "face", "nearest"))
    return answers | {"loaded": ask(loaded, rows, "low", method="rsgd")}


@case("function")
def function(fits: Fits) -> Answers:
    """A model that is a plain function, without labels."""
    explainer = fits.explainer(**TINY).fit(mixed_table().drop(columns=LABEL), model=owes_little)
    return by_method(explainer, fits.people.head(fits.some), 1, ("geodesic", "rsgd-c", "nearest"))


@case("torch-module")
def torch_module(fits: Fits) -> Answers:
    """A torch module, along a layer of it that is named."""
    encoder, _ = fits.encoded
    settings = {"representation_layer": "features", "ambient_metric": "classifier"}
    explainer = fits.explainer(**TINY, **settings).fit(mixed_table(), LABEL, encoder=encoder, model=fits.network)
    return by_method(explainer, fits.people.head(fits.some), "low", ("geodesic", "rsgd-c", "ambient", "wachter"))


@case("own-generator")
def own_generator(fits: Fits) -> Answers:
    """A torch module in whose latent space is searched."""
    encoder, _ = fits.encoded
    explainer = fits.explainer(**TINY).fit(mixed_table(), LABEL, encoder=encoder, generator=fits.generator)
    return by_method(explainer, fits.people.head(fits.some), "low", ("geodesic", "rsgd", "rsgd-c", "sgd"))


@case("save-load", ("saved", "loaded"), ("saved-rsgd", "loaded-rsgd"))
def save_load(fits: Fits) -> Answers:
    """An explainer that was written to a folder and read again answers as before."""
    loaded = fits.cp.Explainer.load(fits.adult.save(fits.scratch / "adult-explainer"), device="cpu")
    rows = fits.rejected(fits.adult, fits.few)
    return {
        "saved": ask(fits.adult, rows, 1),
        "loaded": ask(loaded, rows, 1),
        "saved-rsgd": ask(fits.adult, rows, 1, method="rsgd"),
        "loaded-rsgd": ask(loaded, rows, 1, method="rsgd"),
    }


@case("repeat", ("asked", "repeated"), ("asked", "request"), ("asked", "json"), ("second-plan", "second-repeated"))
def repeat(fits: Fits) -> Answers:
    """A request that is asked again, by its answer and by its record; and an answer that went through JSON."""
    rows = fits.people.head(fits.few)
    asked = ask(fits.mixed, rows, "low", confidence=0.6, method="rsgd", lock=["sex"], feature_costs={"score": 2})
    second = ask(fits.mixed, rows, "low", method="sgd", plans=2).plan(2)
    return {
        "asked": asked,
        "repeated": fits.mixed.repeat(asked),
        "request": fits.mixed.repeat(asked.request, rows),
        "json": type(asked).from_json(asked.to_json()),
        "second-plan": second,
        "second-repeated": fits.mixed.repeat(second),
    }


@case("compare")
def compare_methods(fits: Fits) -> Answers:
    """Several methods side by side. How long they took is no answer."""
    function = compare_function()
    comparison = function(fits.mixed, fits.people.head(fits.some), "low", **named(function, {"paths": "milestones"}))
    tables = {name: comparison.table(common=common) for name, common in (("table", False), ("table-common", True))}
    timeless = {name: table.drop(columns="seconds", errors="ignore") for name, table in tables.items()}
    return {**comparison.results, **timeless}


# ----------------------------------------------------------------------------------------------------------------------
# Answers as tables of plain columns, in the same form for every checkout

TABLES = ("factuals", "counterfactuals", "outcome", "changed", "paths", "landscape")
"""The tables of an explanation that are compared as they are, beside its measures and its status."""
FOUND = ("found", "crosses_gap")
"""The codes of rows with a counterfactual; a fallback counts only there."""


def tables_of(answer: Any) -> dict[str, pd.DataFrame]:
    """What is compared of an answer."""
    if isinstance(answer, pd.DataFrame):
        return {"table": answer}
    frames = {name: getattr(answer, name) for name in TABLES}
    return {**frames, "measures": answer.measures(), "status": normal_status(answer.status)}


def normal_status(status: pd.DataFrame) -> pd.DataFrame:
    """The status without sentences, in one form for checkouts that have text there and those that have lists."""
    codes = [str(getattr(code, "value", code)) for code in status["status"]]
    if "fallback" in status:
        fallback = [bool(used) for used in status["fallback"]]
    else:
        fallback = [str(reason).startswith(OLD_FALLBACK) for reason in status["reason"]]
    return pd.DataFrame(
        {
            "status": codes,
            "fallback": [used and code in FOUND for used, code in zip(fallback, codes, strict=True)],
            "imputed": pd.Series([normal_imputed(names) for names in status["imputed"]], status.index, object),
            "binding": pd.Series([normal_binding(given) for given in status["binding"]], status.index, object),
        },
        index=status.index,
    )


def normal_imputed(names: Any) -> list[str]:
    """The columns that were filled in, from a text `a, b` or a list."""
    given = names.split(", ") if isinstance(names, str) else _listed(names)
    return [str(name) for name in given if str(name)]


def normal_binding(given: Any) -> list[tuple[str, str]]:
    """The constraints that bind, each with its feature, from a text `kind: feature; kind: feature` or a list.

    The limit on how many features may change has no feature.
    """
    parts = [part.split(": ", 1) for part in given.split("; ") if part] if isinstance(given, str) else _listed(given)
    pairs = [_kind_and_feature(part) for part in parts]
    return [(kind, "" if kind == "max_changes" else feature) for kind, feature in pairs]


def _listed(given: Any) -> list[Any]:
    missing = given is None or (isinstance(given, float) and np.isnan(given))
    return [] if missing else list(given)


def _kind_and_feature(part: Any) -> tuple[str, str]:
    if isinstance(part, Mapping):
        kind, feature = part["kind"], part.get("feature", part.get("name"))
    elif isinstance(part, list | tuple | np.ndarray):
        kind, feature = part[0], part[1]
    else:
        kind, feature = part.kind, getattr(part, "feature", getattr(part, "name", None))
    return str(getattr(kind, "value", kind)), "" if feature is None else str(feature)


# ----------------------------------------------------------------------------------------------------------------------
# Recordings: a folder for each case, and in it for each answer its arrays (npz) and what they are (JSON)

MANIFEST = "manifest.json"
FAILED = "failed.txt"
"""In the folder of a case: why it could not be recorded."""
LIBRARIES = ("torch", "numpy", "pandas", "scikit-learn")
"""What bits depend on, too."""


class Refusal(Exception):  # noqa: N818  # it is no error, but an answer
    """Why nothing can be recorded or compared."""


@dataclass(frozen=True)
class Column:
    """A column of a recorded table.

    Attributes:
        name: What it is called.
        dtype: Its dtype, in words; with the categories, if it has any.
        values: Its numbers as they are, everything else as Python writes it.
    """

    name: str
    dtype: str
    values: NDArray[Any]

    @classmethod
    def of(cls, name: Any, column: pd.Series) -> "Column":
        """A column of pandas."""
        dtype = column.dtype
        if isinstance(dtype, np.dtype) and dtype.kind in "fiub":
            return cls(str(name), str(dtype), column.to_numpy())
        described = str(dtype)
        if isinstance(dtype, pd.CategoricalDtype):
            described = f"category of {dtype.categories.tolist()}{', ordered' if dtype.ordered else ''}"
        return cls(str(name), described, np.array([repr(value) for value in column.tolist()], dtype=str))


@dataclass(frozen=True)
class Table:
    """A recorded table.

    Attributes:
        index: What its index is, in words.
        labels: The labels of its rows, as Python writes them.
        columns: Its columns, in order.
    """

    index: str
    labels: NDArray[Any]
    columns: tuple[Column, ...]

    @classmethod
    def of(cls, frame: pd.DataFrame) -> "Table":
        """A table of pandas."""
        index = frame.index
        dtypes = index.dtypes.tolist() if isinstance(index, pd.MultiIndex) else [index.dtype]
        columns = tuple(Column.of(name, frame.iloc[:, place]) for place, name in enumerate(frame.columns))
        labels = np.array([repr(label) for label in index.tolist()], dtype=str)
        return cls(", ".join(f"{n!s}: {d!s}" for n, d in zip(index.names, dtypes, strict=True)), labels, columns)

    def __len__(self) -> int:
        return len(self.labels)

    def label(self, place: int) -> str:
        """A row in words; a point of a path by its row and step."""
        own = {column.name: column.values for column in self.columns if column.name in ("row", "step")}
        if len(own) == 2:
            return f"row {own['row'][place]}, step {own['step'][place]}"
        return str(self.labels[place])


def write_answer(folder: Path, name: str, tables: Mapping[str, Table]) -> None:
    """Write the tables of one answer."""
    arrays = {
        f"{title}/{place}": values
        for title, table in tables.items()
        for place, values in enumerate([table.labels, *(column.values for column in table.columns)])
    }
    layout = {
        title: {"index": table.index, "columns": [[column.name, column.dtype] for column in table.columns]}
        for title, table in tables.items()
    }
    np.savez_compressed(folder / f"{name}.npz", **arrays)
    (folder / f"{name}.json").write_text(json.dumps(layout, indent=1) + "\n", encoding="utf-8")


def read_answer(folder: Path, name: str) -> dict[str, Table]:
    """Read what `write_answer` wrote."""
    layout = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    with np.load(folder / f"{name}.npz", allow_pickle=False) as arrays:
        return {
            title: Table(
                kept["index"],
                arrays[f"{title}/0"],
                tuple(
                    Column(column, dtype, arrays[f"{title}/{place}"])
                    for place, (column, dtype) in enumerate(kept["columns"], start=1)
                ),
            )
            for title, kept in layout.items()
        }


def record(checkout: Path, folder: Path, rows: int, only: Sequence[str]) -> int:
    """Record the answers of a checkout, in a process of its own, and return its exit status."""
    source = checkout.resolve() / "src"
    if not (source / "counterpath").is_dir():
        raise Refusal(f"{checkout} is no checkout: it has no src/counterpath")
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LOKY_MAX_CPU_COUNT"), "1")
    rest = {"PYTHONPATH": str(source), "PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, __file__, RECORD_HERE, str(checkout), str(folder), "--rows", str(rows)]
    command += ["--only", ",".join(only)] if only else []
    return subprocess.run(command, env={**os.environ, **threads, **rest}, check=False).returncode


def record_here(checkout: Path, folder: Path, rows: int, only: Sequence[str]) -> int:
    """Record the answers of the checkout whose package this process imports."""
    package = Path(import_module("counterpath").__file__ or "").resolve()
    if not package.is_relative_to(checkout.resolve() / "src"):
        raise Refusal(f"counterpath comes from {package}, and not from {checkout}")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    _clear(folder)
    names, failed, begun = list(only or CASES), [], time.monotonic()
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        fits = Fits(rows, Path(scratch))
        for name in names:
            started = time.process_time()
            (folder / name).mkdir(parents=True)
            try:
                for answer, given in CASES[name](fits).items():
                    tables = {title: Table.of(frame) for title, frame in tables_of(given).items()}
                    write_answer(folder / name, answer, tables)
            except Exception:  # whatever a checkout does, the other cases are recorded
                (folder / name / FAILED).write_text(traceback.format_exc(), encoding="utf-8")
                failed.append(name)
            seconds[name] = round(time.process_time() - started, 2)
            _write_manifest(folder, checkout, rows, seconds)
            say(f"  {name:22} {seconds[name]:7.1f} s{'   FAILED' if name in failed else ''}")
    say(f"recorded {len(names)} cases of {checkout} in {time.monotonic() - begun:.0f} s: {folder}")
    for name in failed:
        say(f"\n{name} failed:\n{(folder / name / FAILED).read_text(encoding='utf-8')}")
    return 1 if failed else 0


def _clear(folder: Path) -> None:
    """Make room for a recording: a folder that holds something else is left alone."""
    if folder.exists() and any(folder.iterdir()):
        for name in read_manifest(folder)["cases"]:
            shutil.rmtree(folder / name, ignore_errors=True)
        (folder / MANIFEST).unlink()
    folder.mkdir(parents=True, exist_ok=True)


def _write_manifest(folder: Path, checkout: Path, rows: int, seconds: Mapping[str, float]) -> None:
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    manifest = {
        "checkout": str(checkout.resolve()),
        "commit": commit,
        "rows": rows,
        "versions": {name: version(name) for name in LIBRARIES},
        "cases": dict(seconds),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    """What is known about a recording: its checkout, how many rows, and the seconds of each case."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refusal(f"{folder} is no recording: it has no {MANIFEST}") from None
    return manifest


# ----------------------------------------------------------------------------------------------------------------------
# Comparison


@dataclass(frozen=True)
class Finding:
    """Something that differs.

    Attributes:
        where: The case, the answer, the table and the column, as far as it is known.
        count: How many values of the column differ.
        examples: The first of them: the row, and the value in either recording.
    """

    where: tuple[str, ...]
    count: int
    examples: tuple[tuple[str, str, str], ...]


@dataclass
class Tally:
    """What came of one case.

    Attributes:
        answers: How many answers were compared.
        rows: How many rows these have: people and plans, not points of paths.
        values: How many values.
        findings: What differs.
    """

    answers: int = 0
    rows: int = 0
    values: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def differences(self) -> int:
        """How many values differ; a table or a column that only one recording has counts as one."""
        return sum(finding.count for finding in self.findings)


def same_bits(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values of two arrays are the same, to the bit; one NaN is as good as another."""
    if a.dtype.kind == "f" and a.dtype == b.dtype:
        bits = f"i{a.dtype.itemsize}"
        same: NDArray[np.bool_] = (a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b))
        return same
    if "U" in (a.dtype.kind, b.dtype.kind):
        a, b = (
            values if values.dtype.kind == "U" else np.array([repr(v) for v in values.tolist()]) for values in (a, b)
        )
    return np.asarray(a == b)


def compare_tables(where: tuple[str, ...], a: Table, b: Table, most: int) -> Iterator[Finding]:
    """What differs between two tables, column by column.

    Args:
        where: The case, the answer and the name of the table.
        a: One table.
        b: The other.
        most: How many examples to give of each column.
    """
    if a.index != b.index:
        yield Finding((*where, "(kind of index)"), 1, (("", a.index, b.index),))
    names = [[column.name for column in table.columns] for table in (a, b)]
    if names[0] != names[1]:
        yield Finding((*where, "(columns)"), 1, (("", ", ".join(names[0]), ", ".join(names[1])),))
    if len(a) != len(b):
        yield Finding((*where, "(number of rows)"), 1, (("", str(len(a)), str(len(b))),))
        return
    others = {column.name: column for column in b.columns}
    pairs = [(column, others[column.name]) for column in a.columns if column.name in others]
    for own, other in pairs:
        if own.dtype != other.dtype:
            yield Finding((*where, own.name, "(dtype)"), 1, (("", own.dtype, other.dtype),))
    arrays = [("(index)", a.labels, b.labels), *((own.name, own.values, other.values) for own, other in pairs)]
    for name, before, after in arrays:
        places = np.flatnonzero(~same_bits(before, after))
        if len(places):
            examples = tuple((a.label(i), _shown(before[i]), _shown(after[i])) for i in places[:most].tolist())
            yield Finding((*where, name), len(places), examples)


def _shown(value: Any) -> str:
    """A value with all of its digits."""
    return repr(value.item() if isinstance(value, np.number | np.bool_) else str(value)).strip('"')


def compare_answers(
    where: tuple[str, ...], tally: Tally, a: Path, b: Path, answers: tuple[str, str], most: int
) -> None:
    """Compare two recorded answers, and add what comes of it to the tally of their case.

    Args:
        where: The case, and what to call the answer.
        tally: Of the case.
        a: The folder of the case that holds the first answer.
        b: That of the second.
        answers: The names of both.
        most: How many examples to give of each column.
    """
    one, two = read_answer(a, answers[0]), read_answer(b, answers[1])
    for title in sorted(one.keys() ^ two.keys()):
        tally.findings.append(Finding((*where, title), 1, (("", _there(title in one), _there(title in two)),)))
    for title in [title for title in one if title in two]:
        tally.findings.extend(compare_tables((*where, title), one[title], two[title], most))
        tally.values += sum(column.values.size for column in one[title].columns)
    tally.answers += 1
    tally.rows += len(one.get("counterfactuals") or next(iter(one.values())))


def _there(is_there: bool) -> str:
    return "is there" if is_there else "is not there"


def compare_case(name: str, a: Path, b: Path, most: int) -> Tally:
    """Compare all answers of a case: of one recording with the other, and those that must be equal in each."""
    tally, folders = Tally(), (a / name, b / name)
    for folder in folders:
        if (folder / FAILED).exists():
            reason = (folder / FAILED).read_text(encoding="utf-8").strip().splitlines()[-1]
            tally.findings.append(Finding((name, f"failed in {folder.parent}"), 1, (("", reason, ""),)))
    one, two = ({path.stem for path in folder.glob("*.npz")} for folder in folders)
    for answer in sorted(one ^ two):
        tally.findings.append(Finding((name, answer), 1, (("", _there(answer in one), _there(answer in two)),)))
    for answer in sorted(one & two):
        compare_answers((name, answer), tally, *folders, (answer, answer), most)
    for pair in EQUAL.get(name, ()):
        for folder, answers in zip(folders, (one, two), strict=True):
            if answers.issuperset(pair):
                inside = Tally()
                compare_answers((name, f"{pair[0]} = {pair[1]} in {folder.parent}"), inside, folder, folder, pair, most)
                tally.findings.extend(inside.findings)
    return tally


def compare(a: Path, b: Path, only: Sequence[str], most: int) -> int:
    """Compare two recordings, print what differs and a table of the cases, and return the exit status."""
    manifests = read_manifest(a), read_manifest(b)
    for what in ("rows", "versions"):
        if manifests[0][what] != manifests[1][what]:
            given = " and ".join(str(manifest[what]) for manifest in manifests)
            raise Refusal(f"the recordings were not made alike, so nothing was compared: {what} {given}")
    recorded = [[name for name in manifest["cases"] if name in (only or manifest["cases"])] for manifest in manifests]
    shared = [name for name in recorded[0] if name in recorded[1]]
    tallies = {name: compare_case(name, a, b, most) for name in shared}
    if not any(tally.rows for tally in tallies.values()):
        raise Refusal(f"nothing was compared: {a} and {b} have no answer in common")
    for name in sorted(set(recorded[0]) ^ set(recorded[1])):
        there = (_there(name in recorded[0]), _there(name in recorded[1]))
        tallies[name] = Tally(findings=[Finding((name,), 1, (("", *there),))])
    print(f"A: {a} ({manifests[0]['commit'] or 'no commit'})\nB: {b} ({manifests[1]['commit'] or 'no commit'})\n")
    for finding in (finding for tally in tallies.values() for finding in tally.findings):
        print_finding(finding)
    return print_tallies(tallies)


def print_finding(finding: Finding) -> None:
    """Print what differs, and the first values that do."""
    print(f"{' / '.join(finding.where)}: {finding.count} {'differs' if finding.count == 1 else 'differ'}")
    for row, before, after in finding.examples:
        print(f"    {f'{row}: ' if row else ''}{before} | {after}")
    if finding.count > len(finding.examples):
        print(f"    … and {finding.count - len(finding.examples)} more")


def print_tallies(tallies: Mapping[str, Tally]) -> int:
    """Print a table of the cases, and return the exit status."""
    total = Tally(
        answers=sum(tally.answers for tally in tallies.values()),
        rows=sum(tally.rows for tally in tallies.values()),
        values=sum(tally.values for tally in tallies.values()),
        findings=[finding for tally in tallies.values() for finding in tally.findings],
    )
    print(f"\n{'case':22} {'answers':>8} {'rows':>8} {'values':>10} {'differences':>12}")
    for name, tally in [*tallies.items(), ("all", total)]:
        print(f"{name:22} {tally.answers:8} {tally.rows:8} {tally.values:10} {tally.differences:12}")
    print("\nNot one answer differs." if not total.findings else f"\n{total.differences} differences.")
    return 1 if total.findings else 0


# ----------------------------------------------------------------------------------------------------------------------
# Command line

RECORD, COMPARE, RECORD_HERE = "record", "compare", "record-here"
"""The subcommands; the last one is what `record` starts in a process of its own."""


def main(arguments: Sequence[str]) -> int:
    """Do what the command line asks for, and return the exit status."""
    given = _parse(arguments)
    try:
        if given.command == RECORD:
            return record(given.checkout, given.folder, given.rows, given.only)
        if given.command == RECORD_HERE:
            return record_here(given.checkout, given.folder, given.rows, given.only)
        if given.command == COMPARE:
            return compare(given.a, given.b, given.only, given.most)
        return record_and_compare(given.a, given.b, given.rows, given.only, given.out, given.most)
    except Refusal as refusal:
        say(str(refusal))
        return 2


def record_and_compare(a: Path, b: Path, rows: int, only: Sequence[str], out: Path | None, most: int) -> int:
    """Record two checkouts, into folders that are kept if `out` is given, and compare them."""
    with tempfile.TemporaryDirectory() as scratch:
        folders = [(out or Path(scratch)) / name for name in ("a", "b")]
        for checkout, folder in zip((a, b), folders, strict=True):
            if record(checkout, folder, rows, only) not in (0, 1):
                raise Refusal(f"{checkout} could not be recorded, so nothing was compared")
        return compare(folders[0], folders[1], only, most)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    command = arguments[0] if arguments and arguments[0] in (RECORD, COMPARE, RECORD_HERE) else ""
    parser = argparse.ArgumentParser(
        prog=f"answers.py {command}".strip(), description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if command in (RECORD, RECORD_HERE):
        parser.add_argument("checkout", type=Path, help="a folder with src/counterpath")
        parser.add_argument("folder", type=Path, help="where to record: a new folder, or an earlier recording")
    else:
        what = "recording" if command == COMPARE else "checkout"
        parser.add_argument("a", type=Path, metavar=f"{what}_a", help=f"one {what}")
        parser.add_argument("b", type=Path, metavar=f"{what}_b", help="the other")
        parser.add_argument("--most", type=_count, default=5, help="how many differences to list of each column")
    if command != COMPARE:
        parser.add_argument("--rows", type=_count, default=200, help="how many rows the largest requests have")
    if not command:
        parser.add_argument("--out", type=Path, help="keep the recordings in the folders a and b of this one")
    parser.add_argument("--only", type=_cases, default=(), metavar="CASE,…", help=f"some of: {', '.join(CASES)}")
    given = parser.parse_args(arguments[1:] if command else arguments)
    given.command = command
    return given


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, not {text!r}")
    return int(text)


def _cases(text: str) -> tuple[str, ...]:
    names = [name for name in text.split(",") if name]
    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no case {unknown[0]!r}; choose from: {', '.join(CASES)}")
    return tuple(name for name in CASES if name in names)


def say(text: str) -> None:
    """Tell how it goes, beside what is printed."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
