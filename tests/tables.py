"""Tables that many tests share."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

import counterpath as cp

CITIES = tuple("ABCDEFGHIJKL")
SIZES = ("small", "medium", "large", "huge")
CLASSES = ("high", "low", "mid")
LABEL = "risk"
SMALL: dict[str, Any] = {"hidden": (32, 16), "epochs": 40, "n_centers": 20, "max_steps": 40, "progress": False}
"""An Explainer that is fitted in a second or two."""


def mixed(rows: int = 600, seed: int = 0) -> pd.DataFrame:
    """A table with every kind of column, and three classes with text labels that hang on most of them."""
    random = np.random.default_rng(seed)
    place, wealth, age = random.random((3, rows))  # three things that nobody sees, and that the columns follow

    def near(hidden: np.ndarray, levels: int) -> np.ndarray:
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


def described(schema: cp.Schema) -> cp.Schema:
    """The schema of `mixed` with what people call its features, their values and the classes; a size stays as it is."""
    cities = {city: f"City {city}" for city in CITIES}
    schema = schema.replace("city", label="Home town", phrase="you lived in {new}", category_labels=cities)
    schema = schema.replace("size", label="Size of the flat", actionable=False, category_labels={"huge": "very large"})
    schema = schema.replace("children", unit="children", phrase="you had {new} instead of {old} children", upper=20)
    schema = schema.replace("children", lower=0, description="How many children live in the household.")
    schema = schema.replace("member", category_labels={"True": "yes", "False": "no"}, description="Is it <b>bold</b>?")
    schema = schema.replace("debt", label="Debt", unit="euros")
    return replace(schema, class_labels={"high": "refused", "low": "granted"})


def features(frame: pd.DataFrame) -> pd.DataFrame:
    """A table without its label."""
    return frame.drop(columns=LABEL)


def small(**options: Any) -> cp.Explainer:
    """An Explainer with small models."""
    return cp.Explainer(**{**SMALL, **options})
