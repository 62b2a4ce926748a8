"""The same kind of table out as in: polars gives polars, Arrow gives Arrow."""

from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import counterpath as cp
from counterpath.explanation.native import Library
from tests.tables import features

KINDS: dict[str, tuple[Any, Any]] = {
    "polars": (pl.from_pandas, pl.DataFrame),
    "Arrow": (pa.Table.from_pandas, pa.Table),
}


@pytest.fixture(scope="module")
def rows(people: pd.DataFrame) -> pd.DataFrame:
    return features(people).head(6).reset_index(drop=True)


def plain(table: Any) -> pd.DataFrame:
    """A table of any library as one of pandas, with plain values."""
    return table.to_pandas().astype(object)


@pytest.mark.parametrize("library", KINDS)
@pytest.mark.parametrize("plans", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_tables_of_an_answer_are_of_the_library_of_the_rows(
    explainer: cp.Explainer, rows: pd.DataFrame, library: str, plans: int
) -> None:
    make, kind = KINDS[library]
    given = make(rows)
    result, expected = explainer.explain(given, "low", plans=plans), explainer.explain(rows, "low", plans=plans)
    assert isinstance(result, cp.Explanation)
    assert len(result) == len(expected)
    labels = (result.factuals.columns if library == "polars" else result.factuals.column_names)[
        : 0 if plans == 1 else 2
    ]
    assert list(labels) == ([] if plans == 1 else ["row", "plan"])
    for name in ("factuals", "counterfactuals", "status", "outcome", "changed", "changes", "paths"):
        table = getattr(result, name)
        assert type(table) is kind, name
        inner = getattr(expected, name)
        assert len(table) == len(inner)
        assert set(inner.columns) <= set(plain(table).columns)
    assert plain(result.changes)["row"].tolist() == expected.changes.index.get_level_values(0).tolist()
    assert type(result.measures()) is type(result.path(0)) is type(result.summary()) is kind
    assert plain(result.path(0)).equals(expected.path(0).astype(object).reset_index(drop=True))
    returned = plain(result.counterfactuals)[list(rows.columns)]
    assert (returned == expected.counterfactuals.reset_index(drop=True).astype(object)).all(axis=None)
    assert repr(result) == repr(expected)
    assert result.pandas.counterfactuals.equals(expected.counterfactuals)
    assert type(result.select([0, 2]).status) is kind
    assert type(explainer.repeat(result).status) is kind
    again = cp.Explanation.from_json(result.to_json())
    assert again.counterfactuals.shape == expected.counterfactuals.shape


@pytest.mark.parametrize("library", KINDS)
def test_predictions_are_of_the_library_of_the_rows(explainer: cp.Explainer, rows: pd.DataFrame, library: str) -> None:
    make, kind = KINDS[library]
    probabilities, predicted = explainer.predict_proba(make(rows)), explainer.predict(make(rows))
    assert type(probabilities) is kind
    assert plain(probabilities).equals(explainer.predict_proba(rows).astype(object))
    assert isinstance(predicted, pl.Series if library == "polars" else pa.ChunkedArray)
    labels = predicted.to_pylist() if library == "Arrow" else predicted.to_list()
    assert labels == explainer.predict(rows).tolist()


def test_columns_have_the_types_that_they_had(explainer: cp.Explainer, rows: pd.DataFrame) -> None:
    given = pl.from_pandas(rows).with_columns(
        pl.col("children").cast(pl.Int8), pl.col("debt").cast(pl.Float32), pl.col("city").cast(pl.Categorical)
    )
    result = explainer.explain(given, "low")
    assert result.factuals.schema == given.schema
    assert result.counterfactuals.schema["children"] == pl.Int8
    assert result.counterfactuals.schema["city"] == given.schema["city"]


def test_an_index_becomes_a_column_and_mixed_values_text() -> None:
    library = Library.of(pl.DataFrame())
    assert library is not None
    mixed = pd.DataFrame({"a": [1, "x", None]}, pd.Index(["p", "q", "r"], name="who"), dtype=object)
    found = library.table(mixed)
    assert found.to_dict(as_series=False) == {"who": ["p", "q", "r"], "a": ["1", "x", None]}
    assert Library.of(mixed) is None
