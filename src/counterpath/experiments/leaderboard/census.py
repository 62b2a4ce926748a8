"""Adult as RecourseBench and its predecessor have it: 45,222 people, 12 features, 51 columns; and their models of it.

The table is made from the shipped census rows: those without a "?", in their order; race and the census weight are
left out, education is there twice, as its number and in ten groups. Numbers are scaled by the least and the most of
all rows, categories are one-hot, so that another category counts 2 in L0 and L1. Age and sex may not change.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from counterpath.data.datasets import Card, read_csv
from counterpath.data.encoding import Encoder
from counterpath.data.schema import Feature, Schema
from counterpath.experiments.leaderboard.arena import Arena, Published, Reproduction
from counterpath.experiments.leaderboard.measures import Array, Columns, Predict
from counterpath.explainer.explainer import Explainer
from counterpath.models.training import seeded

LABEL = "Label"
GROUPS = (1, 1, 1, 1, 2, 2, 2, 2, 3, 4, 8, 9, 5, 6, 10, 7)
"""The group of each level of education, by its number from 1."""
NUMBERS = ("Age", "EducationNumber", "CapitalGain", "CapitalLoss", "HoursPerWeek")
CATEGORIES = ("WorkClass", "EducationLevel", "MaritalStatus", "Occupation", "Relationship")
BINARY = ("Sex", "NativeCountry")
ORDER = (
    "Sex",
    "Age",
    "NativeCountry",
    "WorkClass",
    "EducationNumber",
    "EducationLevel",
    "MaritalStatus",
    "Occupation",
    "Relationship",
    "CapitalGain",
    "CapitalLoss",
    "HoursPerWeek",
)
IMMUTABLE = ("Sex", "Age")


def census() -> pd.DataFrame:
    """Their table: features in their order, and the label."""
    raw = read_csv(Card.of("adult"), None)
    raw = raw[~(raw == "?").any(axis=1)].reset_index(drop=True)
    levels = next(each for each in Card.of("adult").schema["features"] if each["name"] == "education")["categories"]
    number = raw["education"].map({level: place for place, level in enumerate(levels, start=1)}).astype(int)

    def codes(column: str) -> "pd.Series[int]":
        return raw[column].map({value: code for code, value in enumerate(sorted(raw[column].unique()), start=1)})

    frame = pd.DataFrame(
        {
            "Sex": (raw["sex"] != "Male").astype(int),
            "Age": raw["age"],
            "NativeCountry": (raw["native-country"] != "United-States").astype(int),
            "WorkClass": codes("workclass"),
            "EducationNumber": number,
            "EducationLevel": number.map(dict(enumerate(GROUPS, start=1))),
            "MaritalStatus": codes("marital-status"),
            "Occupation": codes("occupation"),
            "Relationship": codes("relationship"),
            "CapitalGain": raw["capital-gain"],
            "CapitalLoss": raw["capital-loss"],
            "HoursPerWeek": raw["hours-per-week"],
        }
    )
    return frame.astype(int).assign(**{LABEL: (raw["income"] == ">50K").astype(int)})


def schema_of(frame: pd.DataFrame) -> Schema:
    """What the features are: whole numbers, categories by their codes, and two that are 0 or 1."""

    def feature(name: str) -> Feature:
        fixed = name in IMMUTABLE
        if name in NUMBERS:
            low, high = float(frame[name].min()), float(frame[name].max())
            number = Feature(name, "integer", immutable=fixed, lower=low, upper=high)
            return replace(number, values="observed") if name.startswith("Capital") else number
        kind = "binary" if name in BINARY else "categorical"
        return Feature(name, kind, categories=tuple(sorted(frame[name].unique().tolist())), immutable=fixed)

    return Schema(tuple(feature(name) for name in ORDER))


def encode(frame: pd.DataFrame, whole: pd.DataFrame) -> Array:
    """Their 51 columns."""
    parts: list[Array] = []
    for name in ORDER:
        values = frame[name].to_numpy(dtype=np.float64)
        if name in NUMBERS:
            low, high = whole[name].min(), whole[name].max()
            parts.append(((values - low) / (high - low))[:, None])
        elif name in BINARY:
            parts.append(values[:, None])
        else:
            parts.append((values[:, None] == np.sort(whole[name].unique())[None]).astype(np.float64))
    return np.concatenate(parts, axis=1)


def columns_of(whole: pd.DataFrame) -> Columns:
    """What these columns are."""
    blocks, binary, immutable, at = [], [], [], 0
    for name in ORDER:
        width = whole[name].nunique() if name in CATEGORIES else 1
        own = tuple(range(at, at + width))
        blocks += [own] if name in CATEGORIES else []
        binary += list(own) if name in BINARY else []
        immutable += list(own) if name in IMMUTABLE else []
        at += width
    return Columns(tuple(blocks), tuple(binary), tuple(immutable))


def split(count: int, share: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Training and test rows: a permutation by NumPy's old generator, whose first part is the test rows."""
    order = np.asarray(np.random.RandomState(seed).permutation(count), dtype=np.int64)  # theirs, so that the rows are
    test = math.ceil(count * share)
    return order[test:], order[:test]


def train_torch(
    x: Array, y: Array, layers: tuple[int, ...], *, epochs: int, batch: int, rate: float, seed: int = 0
) -> nn.Sequential:
    """A network of their shape: linear layers with ReLU between them, two outputs, Adam, cross entropy."""
    sizes = (x.shape[1], *layers, 2)
    with seeded(seed):
        parts: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(sizes):
            parts += [nn.Linear(inputs, outputs), nn.ReLU()]
        model = nn.Sequential(*parts[:-1])
        rows, labels = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.long)
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        for _ in range(epochs):
            for some in torch.randperm(len(rows)).split(batch):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(rows[some]), labels[some]).backward()
                optimizer.step()
    return model.eval().requires_grad_(False)


def predictor(model: nn.Module) -> Predict:
    """The probability of class 1, of rows in an array."""

    def predict(rows: Array) -> Array:
        with torch.no_grad():
            found: Array = model(torch.from_numpy(rows).float()).softmax(-1)[:, 1].double().numpy()
        return found

    return predict


def coin_spheres(
    x: Array,
    predict: Predict,
    columns: Columns,
    *,
    by_all: bool,
    put_back: bool,
    seed: int = 0,
    samples: int = 1000,
    width: float = 0.2,
    shells: int = 500,
) -> Array:
    """Growing Spheres as CARLA and RecourseBench run it on one-hot columns.

    Numbers are drawn in shells of growing radius; each column of a category is tossed like a coin, whatever the others
    of its category are. Of the first shell with an accepted row the closest is taken.

    Args:
        x: The rows.
        predict: The model.
        columns: What the columns are.
        by_all: The closest by all columns, as in CARLA; else by the numbers alone, as in RecourseBench.
        put_back: Put back the smallest changes until one is needed, as in RecourseBench.
        seed: Of the draws.
        samples: Of a shell.
        width: Of a shell.
        shells: At most.
    """
    random = np.random.default_rng(seed)
    coins = [c for block in columns.blocks for c in block] + list(columns.binary)
    coins = [c for c in coins if c not in columns.immutable]
    numbers = [c for c in range(x.shape[1]) if c not in coins and c not in columns.immutable]
    found = np.full_like(x, np.nan)
    for row, here in enumerate(x):
        low, high = 0.0, width
        for _ in range(shells):
            drawn = np.tile(here, (samples, 1))
            direction = random.standard_normal((samples, len(numbers)))
            radius = random.random(samples) * (high - low) + low
            drawn[:, numbers] += direction / np.linalg.norm(direction, axis=1, keepdims=True) * radius[:, None]
            drawn[:, coins] = random.integers(0, 2, (samples, len(coins)))
            good = drawn[predict(drawn) >= 0.5]
            if len(good):
                looked = slice(None) if by_all else numbers
                found[row] = good[np.linalg.norm(good[:, looked] - here[looked], axis=1).argmin()]
                break
            low, high = high, high + width
        if put_back and np.isfinite(found[row]).all():
            found[row] = _put_back(here, found[row], predict)
    return found


def _put_back(here: Array, end: Array, predict: Predict) -> Array:
    best, current = end, end.copy()
    while predict(current[None])[0] >= 0.5:
        best = current.copy()
        changed = np.flatnonzero(current != here)
        if len(changed) == 0:
            break
        smallest = changed[np.abs(current - here)[changed].argmin()]
        current[smallest] = here[smallest]
    return best


class _Scaled(nn.Module):
    """Their network on our encoded rows: both have the same columns, numbers scaled by other ends."""

    scale: Tensor
    shift: Tensor

    def __init__(self, model: nn.Module, ours: Array, theirs: Array) -> None:
        super().__init__()
        spread = np.ptp(ours, axis=0)
        scale = np.where(spread > 0, np.ptp(theirs, axis=0) / np.where(spread > 0, spread, 1), 1)
        self.model = model
        self.register_buffer("scale", torch.from_numpy(scale).float())
        self.register_buffer("shift", torch.from_numpy(theirs.min(0) - scale * ours.min(0)).float())

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x * self.scale + self.shift)  # type: ignore[no-any-return]


def arena(
    convention: str,
    model: str,
    *,
    rows: int,
    seed: int,
    train_rows: int | None,
    published: tuple[Published, ...],
    reproduced: tuple[Published, dict[str, float], dict[str, bool]],
    share: float,
    choose: Callable[[pd.DataFrame], pd.DataFrame],
    epochs: int,
    explainer: Explainer,
) -> Arena:
    """Their Adult with one of their models.

    Args:
        convention: By which answers are measured.
        model: "mlp" or "linear".
        rows: How many people are explained.
        seed: Of our models; theirs has seed 0.
        train_rows: On how many of the training rows our generative model is fitted; None for all.
        published: Their rows.
        reproduced: The one that is reproduced, how far it may be off, and which version of Growing Spheres it is.
        share: Of test rows.
        choose: So many people of the rejected ones.
        epochs: Of their model.
        explainer: One that is not fitted yet.
    """
    whole = census()
    train, test = (whole.iloc[each] for each in split(len(whole), share, 0))
    encoded = encode(train, whole)
    layers = (64, 32) if model == "mlp" else ()
    network = train_torch(encoded, train[LABEL].to_numpy(), layers, epochs=epochs, batch=32, rate=0.01)
    predict = predictor(network)
    people = choose(test[predict(encode(test, whole)) < 0.5].drop(columns=LABEL)).head(rows)
    schema, columns = schema_of(whole), columns_of(whole)
    ours = train if train_rows is None else train.sample(train_rows, random_state=seed)
    encoder = Encoder.fit(ours[list(ORDER)], schema)
    same = _Scaled(network, encoder.encode(ours[list(ORDER)]).double().numpy(), encode(ours, whole))
    explainer.fit(ours[list(ORDER)], schema=schema, encoder=encoder, model=same)

    def reproduce() -> Reproduction:
        their, tolerances, version = reproduced
        found = coin_spheres(encode(people, whole), predict, columns, **version)
        how = "Growing Spheres that toss the columns of categories, on their encoding, model and rows"
        return Reproduction(their, found, tolerances, how)

    return Arena(
        convention,
        explainer,
        people,
        1,
        lambda frame: encode(frame, whole),
        columns,
        encoded,
        predict,
        request={"feature_costs": dict.fromkeys(CATEGORIES, 2)},
        published=published,
        reproduce=reproduce,
        note="another category counts 2 here, and we are told so by feature_costs",
    )
