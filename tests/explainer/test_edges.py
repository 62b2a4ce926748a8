"""Models that split at numbers with more digits than encoded rows have."""

import numpy as np
import pandas as pd
import pytest

from counterpath.data import Feature, Schema
from tests.tables import small

MEAN = 70.2104219767771  # what gaps of `burden` were filled in with: the encoding has 2⁻²³ of 0 to 471
SCHEMA = Schema((Feature("burden", "continuous"), Feature("score", "continuous")))


def _table() -> pd.DataFrame:
    random = np.random.default_rng(3)
    burden = np.where(random.random(300) < 0.3, MEAN, random.uniform(0, 471, 300))
    return pd.DataFrame({"burden": burden, "score": random.uniform(0, 10, 300)})


def _accepts(frame: pd.DataFrame) -> np.ndarray:
    """As a tree that has split right at the filled-in number."""
    yes = (frame["burden"].to_numpy() < MEAN) | (frame["score"].to_numpy() > 6)
    return np.where(yes, 0.9, 0.1)


@pytest.mark.filterwarnings("ignore::counterpath.utils.errors.CounterpathWarning")  # the generator is hardly trained
@pytest.mark.parametrize("sign", [1, -1])
def test_who_stands_on_a_split_gets_an_answer_beyond_it(sign: int) -> None:
    def model(frame: pd.DataFrame) -> np.ndarray:
        mirrored = frame.assign(burden=MEAN + sign * (frame["burden"] - MEAN))
        return np.column_stack([1 - _accepts(mirrored), _accepts(mirrored)])

    table = _table()
    label = np.where(model(table)[:, 1] > 0.5, "yes", "no")
    explainer = small(epochs=2).fit(table.assign(loan=label), "loan", schema=SCHEMA, model=model)
    rejected = table[(table["burden"] == MEAN) & (label == "no")].head(20)
    assert len(rejected) == 20
    decoded = explainer.encoder_.decode(explainer.encoder_.encode(rejected))
    assert (decoded["burden"] != MEAN).all()  # and so for one of the signs the model decides otherwise for it
    result = explainer.explain(rejected, target_class="yes", lock=["burden"])
    assert result.status["status"].eq("found").all()
    assert (result.counterfactuals["burden"] == MEAN).all()
    assert (model(result.counterfactuals)[:, 1] > 0.5).all()
