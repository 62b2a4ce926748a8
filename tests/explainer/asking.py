"""What tests of models under explanation share."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import counterpath as cp
from counterpath import Explanation, StatusCode
from tests.tables import small

NUMERIC = ["children", "debt", "score"]


def fit(table: pd.DataFrame, target: Any, model: Any, **options: Any) -> cp.Explainer:
    return small(epochs=5, max_steps=25, **options).fit(table, target, model=model)


def assert_valid(found: Explanation, probability: Callable[[pd.DataFrame], Any], confidence: float) -> None:
    """The status is what the user's own model says; and the search is good for something."""
    given = np.asarray(probability(found.counterfactuals))
    assert (found.valid.to_numpy() == (given >= confidence)).all()
    np.testing.assert_allclose(found.outcome["probability_after"], given, atol=1e-6)
    assert (found.status["status"] == StatusCode.FOUND).sum() >= 5
