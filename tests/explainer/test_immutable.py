"""Immutable features are held exactly: at the end, and at every step of the path."""

from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn

import counterpath as cp
from counterpath.fitting import train
from counterpath.utils.errors import InputError
from tests.explainer.conftest import shorten_surrogate
from tests.tables import LABEL, mixed, small

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


def test_they_may_be_named_when_the_schema_is_inferred_or_beside_one(
    holding: cp.Explainer, people: pd.DataFrame
) -> None:
    assert small().fit(people, LABEL, immutable=IMMUTABLE).schema_ == holding.schema_
    schema = cp.Schema.infer(people, target=LABEL, immutable=["sex"])
    assert small().fit(people, LABEL, schema=schema, immutable=("children",)).schema_ == holding.schema_
    with pytest.raises(InputError, match=r"expected a list of features: immutable=\['sex'\]"):
        small().fit(people, LABEL, immutable="sex")
    with pytest.raises(InputError, match="the encoder has a schema"):
        small().fit(people, LABEL, encoder=holding.encoder_, immutable=["sex"])


def test_a_model_that_can_only_be_asked(people: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_surrogate(monkeypatch, 100, rows=40)
    two = people.assign(**{LABEL: people["score"] > people["score"].median()})
    schema = cp.Schema.infer(two, target=LABEL, immutable=["city"])
    asked = small().fit(two, LABEL, schema=schema, model=lambda frame: (frame["score"] > two["score"].median()) * 0.8)
    result = asked.explain(two.head(20))
    assert not result.changed["city"].any()


class Linear(nn.Module):
    """A user's generator: principal components."""

    def __init__(self, rows: torch.Tensor) -> None:
        super().__init__()
        self.center = rows.mean(0)
        self.axes = torch.linalg.svd(rows - self.center, full_matrices=False)[2][:5]

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self.center) @ self.axes.T

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        return z @ self.axes + self.center


def test_a_model_that_cannot_be_told_holds_them_too(people: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "schedule", lambda rows, steps: (rows // 8, 40))  # a flow takes long to learn
    numbers = people[["children", "debt", "score", LABEL]]
    schema = cp.Schema.infer(numbers, target=LABEL, immutable=["children"])
    encoder = cp.Encoder.fit(numbers.drop(columns=LABEL), schema)
    own = Linear(encoder.encode(numbers.drop(columns=LABEL)))
    for explainer in (
        small().fit(numbers, LABEL, encoder=encoder, generator=own),
        small(method="flow").fit(numbers, LABEL, schema=schema),
    ):
        result = explainer.explain(numbers.head(12))
        assert result.valid.mean() > 0.5
        assert (result.paths.groupby("row")["children"].nunique() == 1).all()


def test_if_nothing_may_change_nothing_is_learned(people: pd.DataFrame) -> None:
    schema = cp.Schema.infer(people, target=LABEL, immutable=["city"])
    with pytest.raises(InputError, match="all features are immutable"):
        small().fit(mixed(30), LABEL, schema=schema.with_immutable(*schema.names))
