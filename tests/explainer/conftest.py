"""What tests of models under explanation share: tables, and shorter trainings."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import counterpath as cp
from counterpath.fitting import train
from counterpath.models import own, surrogate
from tests.conftest import Once
from tests.tables import LABEL, small

from .asking import NUMERIC


@pytest.fixture(scope="module")
def numbers(people: pd.DataFrame) -> pd.DataFrame:
    """Three numbers and a decision between two."""
    return people[NUMERIC].assign(granted=np.where(people[LABEL] == "high", "no", "yes"))


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own classifier, trained for a few epochs: it takes most of a fit, however few epochs the VAE has."""
    shorten_classifier(monkeypatch)


def shorten_classifier(patch: pytest.MonkeyPatch) -> None:
    """Let our own classifier learn for three epochs."""
    patch.setattr(own, "_EPOCHS", 3)


def shorten_surrogate(patch: pytest.MonkeyPatch, steps: int, rows: int) -> None:
    """Let a surrogate learn for so many steps, from short searches that begin at so many rows."""
    patch.setattr(surrogate, "STEPS", steps)
    patch.setattr(train, "_SEARCHED_ROWS", rows)
    patch.setattr(train, "_SEARCH_STEPS", 15)


@pytest.fixture(scope="module")
def gridded_people(people: pd.DataFrame) -> pd.DataFrame:
    """The same people, with money to the cent and a gain that most of them do not have."""
    random = np.random.default_rng(5)
    gain = np.where(people["score"] > people["score"].quantile(0.6), random.choice([1000, 2500, 7000], len(people)), 0)
    return people.assign(debt=people["debt"].round(2), score=people["score"].round(2), gain=gain)


@pytest.fixture(scope="module")
def gridded(gridded_people: pd.DataFrame, once: Once) -> cp.Explainer:
    """An explainer of people whose numbers are legal by every rule, and who cannot change their city."""
    overrides: dict[str, dict[str, Any]] = {
        "city": {"actionable": False},
        "children": {"min_change": 2},
        "debt": {"step": 50, "step_from": "own"},
        "score": {"step": 0.5, "min_change": 1},
    }
    schema = cp.Schema.infer(gridded_people, target=LABEL, immutable=["sex"], overrides=overrides)
    assert schema["gain"].values == "observed"
    return once("gridded", lambda: small().fit(gridded_people, LABEL, schema=schema), cp.Explainer.save, cp.load)
