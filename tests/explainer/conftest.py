"""Tables that tests of models under explanation share."""

import numpy as np
import pandas as pd
import pytest

from tests.tables import LABEL

from .asking import NUMERIC


@pytest.fixture(scope="module")
def numbers(people: pd.DataFrame) -> pd.DataFrame:
    """Three numbers and a decision between two."""
    return people[NUMERIC].assign(granted=np.where(people[LABEL] == "high", "no", "yes"))
