"""Steps, observed values and least changes hold in every row of every path, in original units."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import counterpath as cp
from counterpath import Explanation, StatusCode
from counterpath.search.methods import METHODS
from tests.tables import features

pytestmark = pytest.mark.whole

REQUESTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bounded": {"lock": ["member"], "directions": {"children": "down"}, "ranges": {"score": (None, 12.3)}},
}
OURS = [name for name, method in METHODS.items() if not method.returns_training_rows and not method.needs]


@pytest.fixture(scope="module")
def rows(gridded: cp.Explainer, gridded_people: pd.DataFrame) -> pd.DataFrame:
    """People who are refused, some with numbers that no training row has."""
    table = features(gridded_people)
    table = table[(gridded.predict(table) != "low") & (table["score"] < 12)].head(6).copy()
    table.iloc[0, table.columns.get_loc("children")] = 12
    table.iloc[1, table.columns.get_loc("gain")] = 77
    table.iloc[2, table.columns.get_loc("debt")] = 5000.55
    return table


def _assert_legal(found: Explanation, rows: pd.DataFrame, plans: int, train: pd.DataFrame) -> None:
    own = rows.iloc[found.paths["row"] // plans].reset_index(drop=True)
    path = found.paths.reset_index(drop=True)
    moved = {name: (path[name] - own[name])[path[name] != own[name]] for name in ("children", "debt", "score", "gain")}
    values = {name: path[name][path[name] != own[name]] for name in moved}
    assert (values["children"] == values["children"].round()).all()
    assert (moved["children"].abs() >= 2).all()
    np.testing.assert_allclose(moved["debt"] / 50, (moved["debt"] / 50).round(), rtol=0, atol=1e-4)
    assert (values["score"] % 0.5 == 0).all()
    assert (moved["score"].abs() >= 1).all()
    assert values["gain"].isin(train["gain"]).all()
    for name, value in values.items():
        assert value.between(train[name].min(), train[name].max()).all()
    ends = found.paths.groupby("row").tail(1)[list(rows.columns)].reset_index(drop=True)
    returned = found.counterfactuals[list(rows.columns)].reset_index(drop=True)
    pd.testing.assert_frame_equal(ends.astype(object), returned.astype(object), check_exact=True)


@pytest.mark.parametrize("asked", REQUESTS)
@pytest.mark.parametrize("method", OURS)
def test_every_row_of_every_path_is_legal(
    gridded: cp.Explainer, gridded_people: pd.DataFrame, rows: pd.DataFrame, method: str, asked: str
) -> None:
    plans = 2 if method == "geodesic" else 1  # of others it takes long
    found = gridded.explain(rows, "low", method=method, plans=plans, **REQUESTS[asked])
    _assert_legal(found, rows, plans, gridded_people)
    assert (found.status["status"] == StatusCode.FOUND).sum() >= 2
    own = rows.iloc[found.paths["row"] // plans].reset_index(drop=True)
    assert (found.paths["city"] == own["city"]).all(), "not actionable"
    assert (found.paths["sex"] == own["sex"]).all(), "immutable"
    if asked == "bounded":
        assert (found.paths["member"] == own["member"]).all()
        assert (found.paths["children"] <= own["children"]).all()
        assert (found.paths["score"] <= 12.3).all()


@pytest.mark.parametrize("method", ["geodesic", "rsgd"])
def test_the_path_of_the_search_is_legal_before_it_is_staged(
    gridded: cp.Explainer, gridded_people: pd.DataFrame, rows: pd.DataFrame, method: str
) -> None:
    raw = gridded.set_params(staged=False, sparsify=False, avoid_unseen=False).explain(rows, "low", method=method)
    gridded.set_params(staged=True, sparsify=True, avoid_unseen=True)
    _assert_legal(raw, rows, 1, gridded_people)
    assert raw.valid.sum() >= 3


def test_what_is_displayed_decides_as_it_says(gridded: cp.Explainer, rows: pd.DataFrame) -> None:
    """The counterfactuals as text, read back and asked about again."""
    found = gridded.explain(rows, "low")
    written = found.counterfactuals.reset_index(drop=True).to_csv(index=False)
    read = pd.read_csv(pd.io.common.StringIO(written)).astype(rows.dtypes.to_dict())
    assert gridded.predict(read).tolist() == found.outcome["class_after"].tolist()
    low = gridded.predict_proba(read)["low"].to_numpy()
    np.testing.assert_allclose(low, found.outcome["probability_after"], rtol=0, atol=1e-6)


def test_milestones_are_steps_of_these_paths(
    gridded: cp.Explainer, gridded_people: pd.DataFrame, rows: pd.DataFrame
) -> None:
    kept = gridded.explain(rows, "low", paths="milestones")
    _assert_legal(kept, rows, 1, gridded_people)
