"""What tests of models under explanation share: tables, and shorter trainings."""

import numpy as np
import pandas as pd
import pytest

from counterpath.fitting import train
from counterpath.models import surrogate
from tests.tables import LABEL

from .asking import NUMERIC


@pytest.fixture(scope="module")
def numbers(people: pd.DataFrame) -> pd.DataFrame:
    """Three numbers and a decision between two."""
    return people[NUMERIC].assign(granted=np.where(people[LABEL] == "high", "no", "yes"))


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own classifier, trained for a tenth of the steps: it takes most of a fit, however few epochs the VAE has."""
    shorten_classifier(monkeypatch)


def shorten_classifier(patch: pytest.MonkeyPatch) -> None:
    """Let our own classifier learn for twenty epochs."""
    patch.setattr(train, "schedule", lambda rows, steps: (max(16, rows // 8), 20))


def shorten_surrogate(patch: pytest.MonkeyPatch, steps: int, rows: int) -> None:
    """Let a surrogate learn for so many steps, from short searches that begin at so many rows."""
    patch.setattr(surrogate, "STEPS", steps)
    patch.setattr(train, "_SEARCHED_ROWS", rows)
    patch.setattr(train, "_SEARCH_STEPS", 15)
