"""Measures that are not ours, each a plain function of encoded rows, in the conventions of the suites that use them.

`x` are factual rows, `y` counterfactuals, `reference` training rows: arrays of encoded columns, as the suite encodes
them. Where scikit-learn has a measure, it is scikit-learn's. Conventions differ, and are half of a figure:

| | one-hot category in L0 and L1 | L2 | which rows |
|---|---|---|---|
| CARLA | binary columns only: 1 | squared | those with an answer |
| RecourseBench | 2 | plain | those with an answer |
| CEL | 2 | plain | valid ones |
| GenRe | 1 | none: L1 over the number of features | all |
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Predict = Callable[[Array], Array]
"""Rows to the probability of the wanted class."""

TOLERANCE = 1e-6  # by which RecourseBench allows a column of a category to miss 0 or 1
ISCLOSE = 1e-8  # by which a difference is none, as torch.isclose and numpy.isclose have it next to 0
LOF_NEIGHBOURS = {"cel": 20, "genre": 5, "ours": 20}
"""scikit-learn's default, which CEL takes; GenRe looks at 5."""
TREES, FOREST_SEED = 100, 42
"""Of an isolation forest: CEL's."""
NEIGHBOURS = 5  # of yNN in CARLA, and of knn in RecourseBench
_BOX = 0.5  # a class is predicted from here on


def _array(values: Any) -> Array:
    return np.asarray(values, dtype=np.float64)


def l0(x: Array, y: Array) -> Array:
    """How many columns differ."""
    return _array((np.abs(y - x) > ISCLOSE).sum(1))


def l1(x: Array, y: Array) -> Array:
    """Σ |y − x| over columns."""
    return _array(np.abs(y - x).sum(1))


def l2(x: Array, y: Array) -> Array:
    """‖y − x‖₂."""
    return _array(np.linalg.norm(y - x, axis=1))


def l2_squared(x: Array, y: Array) -> Array:
    """‖y − x‖₂², what CARLA calls its distance 3."""
    return _array(np.square(y - x).sum(1))


def linf(x: Array, y: Array) -> Array:
    """max |y − x|."""
    return _array(np.abs(y - x).max(1))


Fitted = dict[tuple[Any, ...], Any]
"""What was made of reference rows, by what it is: of a large table that takes longer than the search of a method."""


def once(fitted: Fitted | None, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """What was made before under a key, or now; without a place to keep it, it is made anew."""
    if fitted is None:
        return make()
    if key not in fitted:
        fitted[key] = make()
    return fitted[key]


def _nearest(reference: Array, fitted: Fitted | None) -> Any:
    from sklearn.neighbors import NearestNeighbors

    return once(fitted, ("nearest",), lambda: NearestNeighbors().fit(reference))


def knn_distance(y: Array, reference: Array, neighbours: int = NEIGHBOURS, fitted: Fitted | None = None) -> Array:
    """Mean distance to the nearest reference rows."""
    return _array(_nearest(reference, fitted).kneighbors(y, min(neighbours, len(reference)))[0].mean(1))


def ynn(
    y: Array, reference: Array, predict: Predict, neighbours: int = NEIGHBOURS, fitted: Fitted | None = None
) -> Array:
    """Share of the nearest reference rows that the model decides as it decides the counterfactual (CARLA)."""
    near = _nearest(reference, fitted).kneighbors(y, neighbours, return_distance=False)
    decided = once(fitted, ("decided",), lambda: predict(reference) >= _BOX)
    return _array((decided[near] == (predict(y) >= _BOX)[:, None]).mean(1))


def _outliers(reference: Array, neighbours: int, fitted: Fitted | None) -> Any:
    from sklearn.neighbors import LocalOutlierFactor

    def make() -> Any:
        return LocalOutlierFactor(n_neighbors=neighbours, novelty=True).fit(reference)

    return once(fitted, ("lof", neighbours), make)


def local_outlier_factor(
    y: Array, reference: Array, neighbours: int = LOF_NEIGHBOURS["ours"], fitted: Fitted | None = None
) -> Array:
    """LOF with regard to reference rows: about 1 among them, larger where they are denser than here."""
    return _array(-_outliers(reference, neighbours, fitted).score_samples(y))


def is_inlier(
    y: Array, reference: Array, neighbours: int = LOF_NEIGHBOURS["genre"], fitted: Fitted | None = None
) -> Array:
    """1 where LOF calls a row an inlier of the reference rows (GenRe: of those that its judge accepts)."""
    return _array(_outliers(reference, neighbours, fitted).predict(y) == 1)


def isolation_forest(y: Array, reference: Array, fitted: Fitted | None = None) -> Array:
    """The score of an isolation forest: positive for inliers."""
    from sklearn.ensemble import IsolationForest

    def make() -> Any:
        return IsolationForest(n_estimators=TREES, random_state=FOREST_SEED).fit(reference)

    return _array(once(fitted, ("forest",), make).decision_function(y))


def type_violations(y: Array, blocks: Sequence[Sequence[int]], binary: Sequence[int] = ()) -> Array:
    """1 where a category is none: its columns are not one 1 and else 0; or a binary one is neither (RecourseBench)."""
    bad = ~np.isfinite(y).all(1)
    for columns in [list(block) for block in blocks] + [[column] for column in binary]:
        values = y[:, columns]
        whole = np.isclose(values, 0, atol=TOLERANCE) | np.isclose(values, 1, atol=TOLERANCE)
        bad |= ~whole.all(1)
        if len(columns) > 1:
            bad |= np.isclose(values, 1, atol=TOLERANCE).sum(1) != 1
    return _array(bad)


def mutability_violations(x: Array, y: Array, immutable: Sequence[int]) -> Array:
    """1 where any column of an immutable feature differs."""
    columns = list(immutable)
    return _array((~np.isclose(x[:, columns], y[:, columns], atol=TOLERANCE)).any(1))


def redundancy(x: Array, y: Array, predict: Predict) -> Array:
    """How many changed columns could, each alone, be put back without changing the decision (CARLA)."""
    decided, count = predict(y) >= _BOX, np.zeros(len(y))
    for column in range(x.shape[1]):
        changed = np.abs(y[:, column] - x[:, column]) > ISCLOSE
        if changed.any():
            back = y[changed].copy()
            back[:, column] = x[changed, column]
            count[changed] += (predict(back) >= _BOX) == decided[changed]
    return count


def diversity(plans: Array) -> float:
    """Mean distance between two of the plans of one row; 0 for fewer than two."""
    if len(plans) < 2:
        return 0.0
    apart = np.linalg.norm(plans[:, None] - plans[None], axis=-1)
    return float(apart[np.triu_indices(len(plans), 1)].mean())


def path_length(path: Array) -> float:
    """Σ ‖xₜ₊₁ − xₜ‖₂ along one path."""
    return float(np.linalg.norm(np.diff(path, axis=0), axis=1).sum())


def path_energy(path: Array) -> float:
    """T·Σ ‖xₜ₊₁ − xₜ‖₂² of a path of T steps: at least the square of its length, and equal where steps are equal."""
    steps = np.diff(path, axis=0)
    return float(len(steps) * np.square(steps).sum())


@dataclass(frozen=True)
class Columns:
    """What the encoded columns of a suite are.

    Attributes:
        blocks: The columns of each one-hot category.
        binary: Columns that are 0 or 1.
        immutable: Columns of immutable features.
        scale: What columns are multiplied by, so that those of a category count 1 together; None for nothing.
    """

    blocks: tuple[tuple[int, ...], ...] = ()
    binary: tuple[int, ...] = ()
    immutable: tuple[int, ...] = ()
    scale: Array | None = None


@dataclass(frozen=True)
class Answers:
    """Counterfactuals of one method in the encoding of a suite, and what they are measured against.

    Attributes:
        x: Factual rows.
        y: Counterfactuals; where there is none, NaN.
        reference: Training rows.
        columns: What the columns are.
        predict: The explained model.
        judge: An independent classifier that no search has asked; None for none.
        density: The log-density of rows under a flow; None for none.
        threshold: The log-density above which a row is plausible.
        fitted: What was made of the reference rows; whoever has other rows needs another.
    """

    x: Array
    y: Array
    reference: Array
    columns: Columns
    predict: Predict
    judge: Predict | None = None
    density: Predict | None = None
    threshold: float = 0.0
    fitted: Fitted = field(default_factory=dict)

    def measure(self, convention: str) -> dict[str, Array]:
        """The measures of a convention, a key of `CONVENTIONS`, of every row; NaN where there is no answer."""
        found = np.asarray(np.isfinite(self.y).all(1), dtype=bool)
        values: dict[str, Array] = {"found": _array(found)}
        if not found.any():
            return values
        some = replace(self, x=self.x[found], y=self.y[found])
        for name, function in CONVENTIONS[convention].items():
            whole = np.full(len(found), np.nan)
            whole[found] = function(some)
            values[name] = whole
        return values


def _valid(a: Answers) -> Array:
    return (a.predict(a.y) >= _BOX).astype(np.float64)


def _judged(a: Answers) -> Array:
    return np.full(len(a.y), np.nan) if a.judge is None else (a.judge(a.y) >= _BOX).astype(np.float64)


def _log_density(a: Answers) -> Array:
    return np.full(len(a.y), np.nan) if a.density is None else a.density(a.y)


_ALWAYS: dict[str, Callable[[Answers], Array]] = {
    "valid": _valid,
    "l0": lambda a: l0(a.x, a.y),
    "l1": lambda a: l1(a.x, a.y),
    "l2": lambda a: l2(a.x, a.y),
    "linf": lambda a: linf(a.x, a.y),
    "type_violations": lambda a: type_violations(
        a.y if a.columns.scale is None else a.y / a.columns.scale, a.columns.blocks, a.columns.binary
    ),
    "mutability_violations": lambda a: mutability_violations(a.x, a.y, a.columns.immutable),
}
CONVENTIONS: dict[str, dict[str, Callable[[Answers], Array]]] = {
    "recoursebench": {**_ALWAYS, "knn_5": lambda a: knn_distance(a.y, a.reference, fitted=a.fitted)},
    "carla": {
        **{name: _ALWAYS[name] for name in ("valid", "l0", "l1", "linf")},
        "l2_squared": lambda a: l2_squared(a.x, a.y),
        "violations": lambda a: l0(a.x[:, list(a.columns.immutable)], a.y[:, list(a.columns.immutable)]),
        "redundancy": lambda a: redundancy(a.x, a.y, a.predict),
        "ynn": lambda a: ynn(a.y, a.reference, a.predict, fitted=a.fitted),
    },
    "cel": {
        **{name: _ALWAYS[name] for name in ("valid", "l0", "l1", "l2")},
        "lof": lambda a: local_outlier_factor(a.y, a.reference, LOF_NEIGHBOURS["cel"], a.fitted),
        "isolation_forest": lambda a: isolation_forest(a.y, a.reference, a.fitted),
        "log_density": _log_density,
        "plausible": lambda a: np.where(np.isnan(_log_density(a)), np.nan, _log_density(a) > a.threshold),
    },
    "genre": {
        "valid": _judged,
        "valid_model": _valid,
        "lof_inlier": lambda a: is_inlier(a.y, a.reference, fitted=a.fitted),
        "cost": lambda a: l1(a.x, a.y),
        "score": lambda a: _judged(a) + is_inlier(a.y, a.reference, fitted=a.fitted) - l1(a.x, a.y) / a.x.shape[1],
    },
    "ours": {
        **_ALWAYS,
        "knn_5": lambda a: knn_distance(a.y, a.reference, fitted=a.fitted),
        "lof": lambda a: local_outlier_factor(a.y, a.reference, fitted=a.fitted),
        "isolation_forest": lambda a: isolation_forest(a.y, a.reference, a.fitted),
        "ynn": lambda a: ynn(a.y, a.reference, a.predict, fitted=a.fitted),
        "redundancy": lambda a: redundancy(a.x, a.y, a.predict),
        "log_density": _log_density,
        "valid_judge": _judged,
    },
}
"""By suite, what it measures of answers, each a function to one number a row."""
