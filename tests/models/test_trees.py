"""Trees of many models walked down at once: what they say is what the models say, or they are asked as they are."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from counterpath.data import Encoder, Schema
from counterpath.models.explained import black_box_proba
from counterpath.models.family import GivenMembers, TreeMembers, given_members
from counterpath.models.trees import CHECKED_ROWS, forest_of

RANDOM = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "age": RANDOM.integers(18, 70, 300),
        "rate": RANDOM.normal(size=300).round(3),
        "job": RANDOM.choice(list("abcdefgh"), 300, p=[0.3, 0.3, 0.2, 0.1, 0.04, 0.03, 0.02, 0.01]),
        "home": RANDOM.choice(["rent", "own"], 300),
    }
)
LABELS = pd.Series(((TABLE["age"] / 50 + TABLE["rate"] + (TABLE["job"] == "c")) > 1).astype(int))
ENCODER = Encoder.fit(TABLE, Schema.infer(TABLE))
ROWS = ENCODER.encode(TABLE)


def _pipelines(kind: str, *, sparse: bool = False, scaled: bool = False, classes: int = 2) -> list[Any]:
    labels = LABELS if classes == 2 else pd.Series(pd.cut(TABLE["rate"], 3, labels=False))
    found = []
    for seed in range(3):
        drawn = np.random.default_rng(seed).integers(len(TABLE), size=len(TABLE))  # rare jobs are out of some
        encode = OneHotEncoder(handle_unknown="ignore"), ["job", "home"]
        numbers = (StandardScaler() if scaled else "passthrough"), ["age", "rate"]
        columns = make_column_transformer(encode, numbers, sparse_threshold=1.0 if sparse else 0.0)
        if kind == "forest":
            model: Any = RandomForestClassifier(7, min_samples_leaf=2, random_state=seed)
        else:
            model = pytest.importorskip("xgboost").XGBClassifier(
                n_estimators=9, max_depth=3, random_state=seed, n_jobs=1
            )
        found.append(make_pipeline(columns, model).fit(TABLE.iloc[drawn], labels.iloc[drawn]))
    return found


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", ["forest", "xgboost"])
def test_trees_say_what_the_models_say(kind: str, sparse: bool, classes: int) -> None:
    models = _pipelines(kind, sparse=sparse, classes=classes)
    asked = [black_box_proba(model, ENCODER) for model in models]
    members = given_members(models, asked, ENCODER, ROWS[:100])
    assert isinstance(members, TreeMembers)
    wanted = torch.stack([each(ROWS) for each in asked])
    assert torch.allclose(members.predict_proba(ROWS), wanted, atol=1e-6)
    some = members.take(torch.tensor([2, 0]))
    assert torch.allclose(some.predict_proba(ROWS[5:9]), wanted[[2, 0], 5:9], atol=1e-6)
    assert torch.allclose(some.predict_proba(ROWS[5:9], slice(1, 2)), wanted[:1, 5:9], atol=1e-6)
    assert some.predict_proba(ROWS[:3], slice(2, 4)).shape == (0, 3, classes)


def test_classes_in_another_order_are_turned_round() -> None:
    models = _pipelines("forest")

    def turned(model: Any) -> Any:
        ask = black_box_proba(model, ENCODER)
        return lambda x: ask(x).flip(-1)

    asked = [turned(model) for model in models]
    members = given_members(models, asked, ENCODER, ROWS)
    assert isinstance(members, TreeMembers)
    assert torch.allclose(members.predict_proba(ROWS[:9])[1], asked[1](ROWS[:9]), atol=1e-6)


def test_what_cannot_be_read_is_asked_as_it_is() -> None:
    scaled, other = _pipelines("forest", scaled=True), [LogisticRegression().fit(TABLE[["age", "rate"]], LABELS)]
    for models in (scaled, other):
        asked = [black_box_proba(model, ENCODER) for model in models]
        assert isinstance(given_members(models, asked, ENCODER, ROWS), GivenMembers)
    models = _pipelines("forest")
    wrong = [lambda x: torch.full((len(x), 2), 0.5)] * 3  # a model that does something after its trees
    assert forest_of(models, wrong, ENCODER, ROWS) is None


@pytest.mark.parametrize("name", ["rate", "job"])
@pytest.mark.parametrize("kind", ["forest", "xgboost"])
def test_gaps_are_asked_about_as_the_models_do_also_where_the_first_rows_have_none(kind: str, name: str) -> None:
    table = TABLE.copy()
    table.loc[CHECKED_ROWS + 5 :: 3, name] = None if name == "job" else np.nan
    encoder = Encoder.fit(table, Schema.infer(table).replace(name, missing=True))
    rows = encoder.encode(table)
    models = _pipelines(kind)
    asked = [black_box_proba(model, encoder) for model in models]
    members = given_members(models, asked, encoder, rows)
    wanted = np.stack([model.predict_proba(table) for model in models])
    assert np.allclose(members.predict_proba(rows).numpy(), wanted, atol=1e-5)


@pytest.mark.parametrize("kind", ["forest", "xgboost"])
def test_trees_are_asked_about_categories_and_numbers_without_a_table(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = _pipelines(kind)
    members = given_members(models, [black_box_proba(model, ENCODER) for model in models], ENCODER, ROWS)
    assert isinstance(members, TreeMembers)
    jobs = pd.concat([TABLE.head(30).assign(job=job, age=age) for job in "abcdefgh" for age in (18, 44, 69)])
    wanted = np.stack([model.predict_proba(jobs) for model in models])
    x = ENCODER.encode(jobs.reset_index(drop=True))

    def refuse(*_: object) -> None:
        raise AssertionError("a table was made")

    monkeypatch.setattr(Encoder, "decode", refuse)
    assert np.allclose(members.predict_proba(x).numpy(), wanted, atol=1e-5)
