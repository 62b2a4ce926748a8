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


@pytest.mark.filterwarnings("ignore::counterpath.utils.errors.CounterpathWarning")  # the generator is hardly trained
@pytest.mark.parametrize("plans", [1, 2])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_answer_that_the_model_takes_back_as_it_is_returned_is_searched_for_again(sign: int, plans: int) -> None:
    """Whoever is above a split that lies within the eighth digit must lower `burden`, and not only raise `score`."""
    table = _table()
    encoder = small(epochs=1).fit(table.assign(loan=table["score"] > 5), "loan", schema=SCHEMA).encoder_
    decoded = encoder.decode(encoder.encode(table.query("burden == @MEAN").head(1)))["burden"].iloc[0]
    assert decoded != MEAN
    split, side = (decoded + MEAN) / 2, np.sign(decoded - MEAN)

    def model(frame: pd.DataFrame) -> np.ndarray:
        burden, score = frame["burden"].to_numpy(), frame["score"].to_numpy()
        accepts = (score > 6) & (sign * side * (burden - split) > 0)
        return np.where(accepts, 0.9, 0.1)

    explainer = small(epochs=2).fit(
        table.assign(loan=np.where(model(table) > 0.5, "yes", "no")), "loan", schema=SCHEMA, model=model
    )
    rejected = table[(table["burden"] == MEAN) & (table["score"] < 6)].head(10)
    result = explainer.explain(rejected, target_class="yes", plans=plans)
    first = result.plan(1) if plans > 1 else result
    assert first.status["status"].isin(["found", "implausible", "crosses_gap"]).all()
    assert (model(first.counterfactuals) > 0.5).all()
    if sign > 0:
        assert (first.counterfactuals["burden"] != MEAN).all()
    assert not result.status["reason"].str.contains("eighth digit").any()
