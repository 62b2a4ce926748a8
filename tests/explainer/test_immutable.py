"""Immutable features are held exactly: at the end, and at every step of the path."""

from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn

import counterpath as cp
from counterpath.errors import InputError

from ..tables import LABEL, mixed, small

IMMUTABLE = ["sex", "children"]


@pytest.fixture(scope="module")
def holding(people: pd.DataFrame) -> cp.Explainer:
    schema = cp.Schema.infer(people, target=LABEL, immutable=IMMUTABLE)
    return small().fit(people, LABEL, schema=schema)


@pytest.mark.parametrize("method", ["rsgd", "rsgd-c", "sgd", "wachter", "nearest"])
def test_they_are_the_same_in_every_row_of_every_path(holding: cp.Explainer, people: pd.DataFrame, method: str) -> None:
    rows = people.drop(columns=LABEL).head(40)
    rows.loc[rows.index[0], "children"] = 2 * people["children"].max()  # further than any training row goes
    result = holding.explain(rows, method=method, confidence=0.6)
    assert result.valid.any()
    assert not result.changed[IMMUTABLE].any(axis=None)
    pd.testing.assert_frame_equal(result.counterfactuals[IMMUTABLE], rows[IMMUTABLE], check_exact=True)
    assert (result.paths.groupby("row")[IMMUTABLE].nunique() == 1).all(axis=None)
    assert (result.measures().loc[result.valid, "violation"] == 0).all()
    predicted = holding.predict_proba(result.counterfactuals[result.valid])
    before = holding.predict(rows)[result.valid]
    assert (predicted.idxmax(axis=1) != before).all()


def test_most_rows_still_find_a_counterfactual(holding: cp.Explainer, people: pd.DataFrame) -> None:
    assert holding.explain(people.head(60)).valid.mean() > 0.8


def test_a_saved_explainer_holds_them_too(holding: cp.Explainer, people: pd.DataFrame, tmp_path: Path) -> None:
    loaded = cp.load(holding.save(tmp_path / "model"), device="cpu")
    one, other = (explainer.explain(people.head(9)) for explainer in (holding, loaded))
    pd.testing.assert_frame_equal(one.paths, other.paths, check_exact=True)


def test_a_model_that_can_only_be_asked(people: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpath.models.surrogate.STEPS", 100)
    monkeypatch.setattr("counterpath.learning._VISITORS", 40)
    two = people.assign(**{LABEL: people["score"] > people["score"].median()})
    schema = cp.Schema.infer(two, target=LABEL, immutable=["city"])
    asked = small().fit(two, LABEL, schema=schema, model=lambda frame: (frame["score"] > two["score"].median()) * 0.8)
    result = asked.explain(two.head(20))
    assert not result.changed["city"].any()


def test_what_cannot_hold_them_is_refused(people: pd.DataFrame) -> None:
    class Own(nn.Module):
        def encode(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, :2]

        def decode(self, z: torch.Tensor) -> torch.Tensor:
            return z

    schema = cp.Schema.infer(people, target=LABEL, immutable=["city"])
    with pytest.raises(InputError, match=r"generator of your own cannot hold immutable features.*city"):
        small().fit(people, LABEL, schema=schema, generator=Own())
    with pytest.raises(InputError, match=r"flow cannot hold immutable features: city"):
        small(method="flow").fit(people, LABEL, schema=schema)
    with pytest.raises(InputError, match="all features are immutable"):
        small().fit(mixed(30), LABEL, schema=schema.with_immutable(*schema.names))
