import numpy as np
import pytest
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor

from counterpath.experiments.leaderboard import measures as m

X = np.array([[0.0, 1.0, 0.0, 0.2], [0.0, 0.0, 1.0, 0.5]])
Y = np.array([[0.0, 0.0, 1.0, 0.6], [1.0, 0.0, 1.0, 0.5]])
COLUMNS = m.Columns(blocks=((1, 2),), binary=(0,), immutable=(0,))


@pytest.fixture(scope="module")
def reference() -> np.ndarray:
    return np.random.default_rng(0).random((60, 4))


def _predict(rows: np.ndarray) -> np.ndarray:
    return rows[:, 2]  # what the third column says


def test_distances_by_hand_another_category_counts_two_columns() -> None:
    assert m.l0(X, Y).tolist() == [3, 1]
    assert m.l1(X, Y) == pytest.approx([2.4, 1])
    assert m.l2_squared(X, Y) == pytest.approx([2.16, 1])
    assert m.l2(X, Y) == pytest.approx([2.16**0.5, 1])
    assert m.linf(X, Y) == pytest.approx([1, 1])


def test_scikit_learn_says_the_same(reference: np.ndarray) -> None:
    lof = LocalOutlierFactor(n_neighbors=20, novelty=True).fit(reference)
    assert m.local_outlier_factor(Y, reference) == pytest.approx(-lof.score_samples(Y))
    five = LocalOutlierFactor(n_neighbors=5, novelty=True).fit(reference)
    assert m.is_inlier(Y, reference).tolist() == (five.predict(Y) == 1).astype(float).tolist()
    forest = IsolationForest(n_estimators=100, random_state=42).fit(reference)
    assert m.isolation_forest(Y, reference) == pytest.approx(forest.decision_function(Y))


def test_neighbours_by_hand(reference: np.ndarray) -> None:
    apart = np.sort(np.linalg.norm(Y[:, None] - reference[None], axis=-1), axis=1)[:, :5]
    assert m.knn_distance(Y, reference) == pytest.approx(apart.mean(1))
    near = np.linalg.norm(Y[:, None] - reference[None], axis=-1).argsort(1)[:, :5]
    share = (_predict(reference)[near] >= 0.5).mean(1)  # both are accepted
    assert m.ynn(Y, reference, _predict) == pytest.approx(share)


def test_violations_by_hand() -> None:
    bad = np.array([[0.5, 1.0, 0.0, 0.1], [0.0, 1.0, 1.0, 0.1], [1.0, 0.0, 0.0, 0.1], [1.0, 0.0, 1.0, 0.1]])
    assert m.type_violations(bad, COLUMNS.blocks, COLUMNS.binary).tolist() == [1, 1, 1, 0]
    assert m.mutability_violations(X, Y, COLUMNS.immutable).tolist() == [0, 1]


def test_redundancy_counts_what_could_be_put_back_alone() -> None:
    assert m.redundancy(X[:1], Y[:1], _predict).tolist() == [2], "all but the column that decides"


def test_paths_and_plans_by_hand() -> None:
    path = np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 5.0]])
    assert m.path_length(path) == pytest.approx(6)
    assert m.path_energy(path) == pytest.approx(2 * 26)
    assert m.path_energy(path) >= m.path_length(path) ** 2
    assert m.diversity(path) == pytest.approx((5 + 34**0.5 + 1) / 3)
    assert m.diversity(path[:1]) == 0


@pytest.mark.parametrize("convention", m.CONVENTIONS)
def test_every_convention_measures_what_has_an_answer(convention: str, reference: np.ndarray) -> None:
    y = np.vstack([Y, np.full((1, 4), np.nan)])
    answers = m.Answers(np.vstack([X, X[:1]]), y, reference, COLUMNS, _predict, _predict, lambda rows: rows[:, 3], 0.55)
    found = answers.measure(convention)
    assert found["found"].tolist() == [1, 1, 0]
    for name, values in found.items():
        assert np.isfinite(values[:2]).all(), name
    assert name == "found" or np.isnan(values[2])
    if convention == "cel":
        assert found["plausible"][:2].tolist() == [1, 0]
    if convention == "genre":
        assert found["score"][:2] == pytest.approx(1 + found["lof_inlier"][:2] - found["cost"][:2] / 4)
    nothing = m.Answers(X, np.full_like(X, np.nan), reference, COLUMNS, _predict).measure(convention)
    assert list(nothing) == ["found"]
