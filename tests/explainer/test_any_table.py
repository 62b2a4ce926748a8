"""Answers about any table of pandas, polars and Arrow: legal rows, the same dtypes, gaps where they were or as said."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import counterpath as cp
from counterpath.data.schema import KINDS
from counterpath.data.tables import to_pandas
from counterpath.explanation import Explanation
from tests.data.test_tables_as_they_come import ROWS, as_library, tables
from tests.sizes import examples

pytestmark = pytest.mark.filterwarnings("ignore::counterpath.utils.errors.CounterpathWarning")
QUICK: dict[str, Any] = {"hidden": (8,), "epochs": 3, "n_centers": 8, "latent_dim": 2, "max_steps": 15, "seed": 0}
LABEL = "granted"
CODES = (-9, -8)


def _with_decision(drawn: pd.DataFrame, gaps: set[str], random: np.random.Generator) -> pd.DataFrame:
    """The table with an age, a number with codes, and a decision that hangs on both and on what is missing."""
    age = random.integers(18, 80, ROWS)
    count = np.array([0, 1, 2, 3])[np.arange(ROWS) % 4]
    count[-3:] = -9, -9, -8
    score = age / 60 + 0.2 * count + random.normal(0, 0.05, ROWS)
    score = score + sum(0.3 * drawn[name].isna().to_numpy() for name in sorted(gaps))
    granted = np.where(score > np.quantile(score, 0.6), "yes", "no")
    return drawn.assign(age=age, count=count, **{LABEL: granted})


def _assert_legal(rows: pd.DataFrame, own: pd.DataFrame, train: pd.DataFrame, schema: cp.Schema) -> None:
    """Every value is one's own, a gap, or one that training rows could have."""
    for feature in schema:
        new, old, seen = (frame[feature.name] for frame in (rows, own, train))
        same = np.array([a == b for a, b in zip(new, old, strict=True)]) | new.isna().to_numpy()
        if feature.immutable:
            assert same.all(), feature.name
        elif feature.categories:
            assert new.dropna().isin(seen.dropna().unique()).all(), feature.name
        elif not KINDS[feature.kind].times:
            values, known = pd.to_numeric(new).to_numpy(float), pd.to_numeric(seen).to_numpy(float)
            plain = known[~np.isnan(known) & ~np.isin(known, [*feature.codes])]
            inside = (values >= plain.min()) & (values <= plain.max())
            inside &= (values == np.rint(values)) | (not KINDS[feature.kind].whole)
            assert (inside | same | np.isin(values, [*feature.codes])).all(), feature.name


def _assert_gaps_as_said(result: Explanation, schema: cp.Schema) -> None:
    """A gap is where it was; one that is new, or filled, is among the changes."""
    changes = result.changes
    said = set(zip(changes.index, changes["feature"], strict=True))
    before, after = (frame[[*schema.names]].isna() for frame in (result.factuals, result.counterfactuals))
    for row, name in zip(*np.nonzero((before != after).to_numpy()), strict=True):
        assert (before.index[row], schema.names[name]) in said


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
@settings(max_examples=examples(334, share=80, least=4), deadline=None, suppress_health_check=list(HealthCheck))
@given(tables(), st.integers(0, 2**16), st.sampled_from(["geodesic", "rsgd", "nearest"]))
def test_answers_about_any_table_are_legal_and_come_back_as_they_were(
    library: str, drawn: tuple[pd.DataFrame, set[str]], seed: int, method: str
) -> None:
    frame = _with_decision(*drawn, np.random.default_rng(seed))
    explainer = cp.Explainer(**QUICK, progress=False).fit(as_library(frame, library), LABEL)
    schema, pandas = explainer.schema_, to_pandas(as_library(frame, library))
    asked = pandas.drop(columns=LABEL).head(4)
    result = explainer.explain(as_library(asked, library), "yes", method=method)
    assert type(result.counterfactuals) is type(as_library(asked, library))
    found, own = result.pandas.counterfactuals, result.pandas.factuals
    for feature in schema:
        old, new = own[feature.name].dtype, found[feature.name].dtype
        was_object = (
            pd.api.types.is_object_dtype(old) and not feature.categories
        )  # numbers that stood there are numbers afterwards
        # polars drops categories that its rows do not have; an answer may have any of the training table's.
        assert new == old or was_object or new == pandas[feature.name].dtype, feature.name
    _assert_legal(found, own, pandas, schema)
    paths = result.pandas.paths
    _assert_legal(paths, own.iloc[paths["row"].to_numpy()], pandas, schema)
    _assert_gaps_as_said(result.pandas, schema)
    assert result.pandas.valid.equals(explainer.predict(found).astype(str).eq("yes"))
