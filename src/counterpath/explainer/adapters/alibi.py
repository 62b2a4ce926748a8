"""The call signatures of alibi's counterfactual explainers.

In a script that has `from alibi.explainers import Counterfactual, CounterfactualProto`, write

    from counterpath.explainer.adapters.alibi import Counterfactual, CounterfactualProto

and the rest stays: rows are arrays, the model a function from an array to probabilities, and `explain` returns an
object with `cf`, `all`, `orig_class` and `orig_proba`. There is one difference: training rows are always needed, so
that `fit` must be called with them, for `Counterfactual` too.

References:
    Van Looveren and Klaise: Interpretable Counterfactual Explanations Guided by Prototypes, 2021 (CounterfactualProto);
    Wachter, Mittelstadt, Russell: Counterfactual Explanations without Opening the Black Box, 2018 (Counterfactual).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.data.schema import Feature, Schema
from counterpath.explainer.adapters import warn_unused
from counterpath.explainer.explainer import Explainer
from counterpath.explainer.request import OTHER
from counterpath.explanation import Explanation as Result
from counterpath.utils.errors import InputError, NotFittedError

Array: TypeAlias = NDArray[np.float64]
_OPEN = 1e9
"""From here on alibi's default range, ±1e10, is no range."""


@dataclass(eq=False)
class Explanation:
    """What `explain` returns: every part of `data` is an attribute, too.

    Attributes:
        meta: Name and parameters of the explainer.
        data: `cf`, a mapping with `X`, `class` and `proba`, or None; `all`, by number a list of further ones;
            `orig_class` and `orig_proba`.
        result: The explanation behind it, with status, path, measures and the rest.
    """

    meta: dict[str, Any]
    data: dict[str, Any]
    result: Result

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.data:
            raise AttributeError(name)
        return self.data[name]

    def to_json(self) -> str:
        """Meta and data as JSON text."""
        return json.dumps({"meta": self.meta, "data": self.data}, default=_json)


class _Columns:
    """Arrays as tables: a column a number, and one for each variable with categories, one-hot encoded or not."""

    def __init__(self, shape: Sequence[int], categorical: Mapping[int, int] | None, one_hot: bool) -> None:
        if len(shape) != 2:
            raise InputError(
                f"shape is {tuple(shape)}; expected (1, number of features): images are given as flat rows"
            )
        self.width, self.one_hot = int(shape[1]), one_hot
        self.categorical = dict(categorical or {})
        inside = {column for start, count in self.categorical.items() for column in range(start + 1, start + count)}
        self.starts = [column for column in range(self.width) if not (one_hot and column in inside)]
        self.names = [f"x{start}" for start in self.starts]

    def table(self, rows: Array) -> pd.DataFrame:
        """Rows as a table; categories are whole numbers from 0."""
        values = np.asarray(rows, dtype=float)
        if values.ndim != 2 or values.shape[1] != self.width:
            raise InputError(f"rows have the shape {values.shape}; expected (number of rows, {self.width})")
        columns: dict[str, Any] = {}
        for start, name in zip(self.starts, self.names, strict=True):
            count = self.categorical.get(start)
            if count is None:
                columns[name] = values[:, start]
            elif self.one_hot:
                columns[name] = values[:, start : start + count].argmax(1)
            else:
                columns[name] = values[:, start].round().astype(int)
        return pd.DataFrame(columns)

    def array(self, table: pd.DataFrame) -> Array:
        """A table as rows."""
        rows = np.zeros((len(table), self.width))
        for start, name in zip(self.starts, self.names, strict=True):
            values = table[name].to_numpy(float)
            if start in self.categorical and self.one_hot:
                rows[np.arange(len(rows)), start + values.astype(int)] = 1
            else:
                rows[:, start] = values
        return rows

    def schema(self, table: pd.DataFrame) -> Schema:
        """What the columns are: numbers are continuous, as alibi takes them."""
        features = []
        for start, name in zip(self.starts, self.names, strict=True):
            if start in self.categorical:
                present = tuple(range(self.categorical[start]))
                features.append(Feature(name, "categorical" if len(present) != 2 else "binary", categories=present))
            else:
                features.append(Feature(name, "continuous"))
        return Schema(tuple(features))

    def ranges(self, given: tuple[Any, Any]) -> dict[str, tuple[float | None, float | None]]:
        """The range of every number that has one."""
        low, high = (np.broadcast_to(np.asarray(end, dtype=float).reshape(-1), self.width) for end in given)
        found = {}
        for start, name in zip(self.starts, self.names, strict=True):
            ends = (float(low[start]), float(high[start]))
            if start not in self.categorical and (ends[0] > -_OPEN or ends[1] < _OPEN):
                found[name] = (ends[0] if ends[0] > -_OPEN else None, ends[1] if ends[1] < _OPEN else None)
        return found


class _Explainer:
    """What both explainers share."""

    def __init__(
        self,
        predict: Callable[[Array], Array],
        shape: Sequence[int],
        feature_range: tuple[Any, Any],
        categorical: Mapping[int, int] | None,
        one_hot: bool,
        params: dict[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        if not callable(predict):
            raise InputError(
                f"the model is {type(predict).__name__}; expected a function from an array to probabilities"
            )
        self.shape, self._predict = tuple(shape), predict
        self._columns = _Columns(shape, categorical, one_hot)
        self._ranges = self._columns.ranges(feature_range)
        self._options = {"progress": False} | dict(options)
        self.meta = {"name": type(self).__name__, "type": ["blackbox"], "explanations": ["local"], "params": params}
        self.explainer: Explainer | None = None

    def _fit(self, rows: Array | None) -> None:
        if rows is None:
            raise InputError("there are no training rows; give them to fit: what rows look like is learned from them")
        table = self._columns.table(rows)
        self.explainer = Explainer(**self._options).fit(table, schema=self._columns.schema(table), model=self._ask)

    def _ask(self, table: pd.DataFrame) -> Array:
        return np.asarray(self._predict(self._columns.array(table)), dtype=float)

    def _explain(self, rows: Array, wanted: Any, confidence: Any) -> Explanation:
        if self.explainer is None:
            raise NotFittedError(f"this {type(self).__name__} has not seen training rows: call fit(train_data) first")
        if len(rows) != 1:
            raise InputError(f"X has {len(rows)} rows; expected one, as (1, {self._columns.width})")
        table = self._columns.table(rows)
        before = np.asarray(self._predict(np.asarray(rows)), dtype=float)
        result = self.explainer.explain(table, target_class=wanted, confidence=confidence, ranges=self._ranges)
        data: dict[str, Any] = {"cf": None, "all": {0: []}, "orig_class": int(before.argmax()), "orig_proba": before}
        if bool(result.valid.iloc[0]):
            point = self._columns.array(result.counterfactuals)
            after = np.asarray(self._predict(point), dtype=float)
            data["cf"] = {"X": point.astype(np.asarray(rows).dtype), "class": int(after.argmax()), "proba": after}
            data["cf"]["distance"] = float(np.abs(point - rows).sum())
            # Points of the path that have the class already: alibi lists what it met on its way, too.
            along = self._columns.array(result.path(0))
            same = np.asarray(self._predict(along), dtype=float).argmax(1) == data["cf"]["class"]
            data["all"] = {0: [along[[point]] for point in np.flatnonzero(same)]}
        return Explanation(dict(self.meta), data, result)


class CounterfactualProto(_Explainer):
    """Called as `alibi.explainers.CounterfactualProto` is.

    Args:
        predict: The model: from an array of rows to probabilities.
        shape: (1, number of features).
        feature_range: The smallest and the largest value, a number for all features or an array.
        cat_vars: By column how many categories it has; with `ohe` the column at which they begin.
        ohe: Whether they are one-hot encoded.
        **tuning: What tunes alibi's own search, which a warning names; or arguments of `Explainer`.
    """

    def __init__(
        self,
        predict: Callable[[Array], Array],
        shape: Sequence[int],
        *,
        feature_range: tuple[Any, Any] = (-1e10, 1e10),
        cat_vars: Mapping[int, int] | None = None,
        ohe: bool = False,
        **tuning: Any,
    ) -> None:
        its: tuple[str, ...] = ("kappa", "beta", "gamma", "theta", "ae_model", "enc_model", "use_kdtree")
        its += (
            "learning_rate_init",
            "max_iterations",
            "c_init",
            "c_steps",
            "eps",
            "clip",
            "update_num_grad",
            "write_dir",
            "sess",
        )
        warn_unused({name: tuning[name] for name in tuning if name in its}, "alibi")
        params = {"shape": list(shape), "cat_vars": cat_vars, "ohe": ohe}
        options = {name: value for name, value in tuning.items() if name not in its}
        super().__init__(predict, shape, feature_range, cat_vars, ohe, params, options)

    def fit(self, train_data: Array | None = None, **tuning: Any) -> "CounterfactualProto":
        """Learn what rows look like; the other arguments are about alibi's prototypes."""
        warn_unused(tuning, "alibi")
        self._fit(train_data)
        return self

    def explain(self, X: Array, Y: Array | None = None, target_class: Any = None, **tuning: Any) -> Explanation:
        """Find a counterfactual of one row.

        Args:
            X: The row, (1, number of features).
            Y: Not looked at: the model is asked.
            target_class: A list with the class to reach; by default any but the present one.
            **tuning: What tunes alibi's own search, which a warning names.
        """
        warn_unused(tuning if Y is None else tuning | {"Y": Y}, "alibi")
        wanted = OTHER if target_class is None else target_class
        if isinstance(wanted, Sequence) and not isinstance(wanted, str):
            if len(wanted) != 1:
                raise InputError(f"target_class is {list(wanted)}; expected one class, or None for any other")
            wanted = wanted[0]
        return self._explain(X, wanted, None)


class Counterfactual(_Explainer):
    """Called as `alibi.explainers.Counterfactual` is.

    Args:
        predict_fn: The model: from an array of rows to probabilities.
        shape: (1, number of features).
        target_proba: What the probability of the class is to be.
        target_class: A class, or "other" for any but the present one.
        tol: How far from `target_proba` it may be.
        feature_range: The smallest and the largest value, a number for all features or an array.
        **tuning: What tunes alibi's own search, which a warning names; or arguments of `Explainer`.
    """

    def __init__(
        self,
        predict_fn: Callable[[Array], Array],
        shape: Sequence[int],
        *,
        target_proba: float = 1.0,
        target_class: str | int = "other",
        tol: float = 0.05,
        feature_range: tuple[Any, Any] = (-1e10, 1e10),
        **tuning: Any,
    ) -> None:
        its: tuple[str, ...] = (
            "distance_fn",
            "max_iter",
            "early_stop",
            "lam_init",
            "max_lam_steps",
            "learning_rate_init",
            "eps",
        )
        its += ("init", "decay", "write_dir", "debug", "sess")
        warn_unused({name: tuning[name] for name in tuning if name in its}, "alibi")
        if target_class == "same":
            raise InputError(
                "target_class is 'same'; expected a class or 'other': for the same one nothing has to change"
            )
        self.target_class = OTHER if target_class == "other" else target_class
        low, high = target_proba - tol, target_proba + tol
        if not 0 < low < 1:
            raise InputError(f"target_proba is {target_proba} and tol {tol}; expected 0 < target_proba - tol < 1")
        self._confidence: Any = low if high >= 1 else (low, high)
        params = {"shape": list(shape), "target_proba": target_proba, "target_class": target_class, "tol": tol}
        options = {name: value for name, value in tuning.items() if name not in its}
        super().__init__(predict_fn, shape, feature_range, None, False, params, options)

    def fit(self, X: Array | None = None, y: Any = None) -> "Counterfactual":
        """Learn what rows look like; alibi's own does nothing here."""
        self._fit(X)
        return self

    def explain(self, X: Array) -> Explanation:
        """Find a counterfactual of one row, (1, number of features)."""
        found = self._explain(X, self.target_class, self._confidence)
        found.data["success"] = found.data["cf"] is not None
        return found


CounterFactualProto, CounterFactual = CounterfactualProto, Counterfactual
"""As alibi wrote them earlier."""


def _json(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)
