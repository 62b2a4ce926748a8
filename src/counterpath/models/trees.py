"""Ensembles of trees asked together: all trees of all models of a family are walked down at once.

A model of a user's is asked by a call of its own, which takes milliseconds for a single row as for a hundred; a family
of 128 then takes a second for every question of a search. Trees are arrays, and those of all models can be walked down
by a few operations on the nodes where each row stands in each tree.

What a model does to a table before its trees see it, as a one-hot encoding, is found by asking it: every column that
the trees see must be a number of the table as it is, or depend on one category alone. Whatever is not so, or does not
give the model's own probabilities on training rows, is asked by calls as before.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from counterpath.data.encoding import Encoder
from counterpath.models.classifier import PredictProba

CHECKED_ROWS = 200
"""Training rows on which the trees must say what the models say: enough to visit most of their leaves."""
_TOLERANCE = 1e-5  # of probabilities: XGBoost adds up in float32
_AT_ONCE = 1 << 19  # nodes where rows stand: they fit the cache of a CPU
_MOST_NODES = 30_000_000  # of all trees together: beyond that they would take half a gigabyte beside the models

Columns = tuple[str, bytes | None]
"""What trees see: a number of the table by its name, or by its categories the values that stand for them."""


@dataclass(frozen=True)
class _Trees:
    """The trees of one model: nodes one after the other, a leaf its own child."""

    roots: NDArray[np.int64]
    column: NDArray[np.int64]
    threshold: NDArray[np.float32]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    default_left: NDArray[np.bool_]
    value: NDArray[np.float64]
    depth: int


@dataclass(frozen=True)
class Forest:
    """The trees of m models, and what they see of a table.

    Attributes:
        encoder: Tables from encoded rows.
        tables: The columns that trees see: a feature, and the value that stands for each of its categories; None for
            the number itself.
        roots: The first node of every tree, `(t,)`.
        first: Where the trees of each model begin, and after the last one where they end.
        column: Of every node, which column decides.
        threshold: Up to which value the way is left.
        children: Of every node the left one and the right one; of a leaf itself.
        value: Of every leaf, for each class.
        depth: Of the deepest tree.
        start: What the sum of a model's trees is added to, for each class.
        link: From these sums to probabilities.
        order: Of the classes, as they are wanted.
    """

    encoder: Encoder
    tables: tuple[tuple[str, NDArray[np.float32] | None], ...]
    roots: Int[Tensor, "t"]
    first: tuple[int, ...]
    column: Int[Tensor, "v"]
    threshold: Float[Tensor, "v"]
    children: Int[Tensor, "w"]
    value: Float[Tensor, "v K"]
    depth: int
    start: Float[Tensor, "m K"]
    link: str
    order: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.first) - 1

    def take(self, models: Sequence[int]) -> "Forest":
        """Some of the models, in that order; the nodes of all are kept."""
        trees = [torch.arange(self.first[each], self.first[each + 1]) for each in models]
        first = np.cumsum([0, *map(len, trees)]).tolist()
        return replace(self, roots=self.roots[torch.cat(trees)], first=tuple(first), start=self.start[list(models)])

    def predict_proba(self, x: Float[Tensor, "n D"], models: slice) -> Float[Tensor, "m n K"]:
        """What some of the models say about legal encoded rows."""
        begin, end, _ = models.indices(len(self))
        said = torch.zeros(max(end - begin, 0), len(x), self.value.shape[1], dtype=torch.float64)
        if end > begin and len(x):
            seen = self._seen(x)
            count = self.first[end] - self.first[begin]
            owner = torch.repeat_interleave(torch.tensor(self.first[begin : end + 1]).diff())
            for some in torch.arange(len(x)).split(max(1, _AT_ONCE // count)):
                leaves = self._leaves(seen[some], self.roots[self.first[begin] : self.first[end]])
                said[:, some] = said[:, some].index_add(0, owner, self.value[leaves].transpose(0, 1))
            said = said + self.start[begin:end, None]
        return _LINKS[self.link](said)[..., list(self.order)].to(x.device)

    def _leaves(self, seen: Float[Tensor, "n c"], roots: Int[Tensor, "t"]) -> Int[Tensor, "n t"]:
        node = roots.expand(len(seen), -1)
        for _ in range(self.depth):
            right = seen.gather(1, self.column[node]) > self.threshold[node]
            node = self.children[2 * node + right]
        return node

    def _seen(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n c"]:
        """The columns that trees see; no table is made of the rows, which would take most of the time."""
        numbers = self.encoder.numbers(x)
        columns = [
            numbers[name].astype(np.float32) if values is None else values[numbers[name].astype(np.int64)]
            for name, values in self.tables
        ]
        return torch.from_numpy(np.stack(columns, 1))


def _codes(column: pd.Series, encoder: Encoder) -> NDArray[np.int64]:
    """Which category of the schema each value is; for few rows a dictionary is faster than pandas."""
    categories = next(feature.categories for feature in encoder.schema.features if feature.name == column.name)
    index = {category: code for code, category in enumerate(categories)}
    return np.array([index[value] for value in column.tolist()], dtype=np.int64)


_LINKS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda said: said,
    "sigmoid": lambda said: torch.cat([-said, said], -1).sigmoid(),
    "softmax": lambda said: said.softmax(-1),
}


def forest_of(
    models: Sequence[Any], asked: Sequence[PredictProba], encoder: Encoder, rows: Float[Tensor, "n D"]
) -> Forest | None:
    """The trees of models together; None if these are no ensembles of trees that can be read.

    Args:
        models: XGBoost's or forests of scikit-learn, alone or at the end of a pipeline.
        asked: The same as they are asked one by one.
        encoder: Tables to tensors and back.
        rows: Training rows, to compare what both say.
    """
    rows = rows[:CHECKED_ROWS].cpu()
    if len(rows) == 0 or encoder.gaps or any(_read_kind(model) is None for model in models):
        return None  # where a gap leads differs from model to model, and the rows that are compared may have none
    frame = encoder.decode(rows)
    probe = _Probe.of(encoder, frame)
    known: dict[Columns, int] = {}
    tables: list[tuple[str, NDArray[np.float32] | None]] = []
    parts, starts, links, first, offset = [], [], set(), [0], 0
    for model in models:
        read, columns = _read(model), probe.columns(model)
        if read is None or columns is None:
            return None
        trees, start, link = read
        offset += len(trees.column)
        if offset > _MOST_NODES:
            return None
        parts.append((trees, _numbered(trees, columns, known, tables)))
        starts.append(start)
        links.add(link)
        first.append(first[-1] + len(trees.roots))
    if len(links) != 1:
        return None
    offsets = np.cumsum([0, *(len(trees.column) for trees, _ in parts)])[:-1]
    each = list(zip(parts, offsets, strict=True))
    children = [np.stack([trees.left, trees.right], 1).ravel() + at for (trees, _), at in each]
    found = Forest(
        encoder,
        tuple(tables),
        torch.from_numpy(np.concatenate([trees.roots + at for (trees, _), at in each])),
        tuple(first),
        torch.from_numpy(np.concatenate([column for _, column in parts])),
        torch.from_numpy(np.concatenate([trees.threshold for trees, _ in parts])),
        torch.from_numpy(np.concatenate(children)),
        torch.from_numpy(np.concatenate([trees.value for trees, _ in parts])),
        max(trees.depth for trees, _ in parts),
        torch.from_numpy(np.stack(starts)),
        links.pop(),
        tuple(range(asked[0](rows[:1]).shape[-1])),
    )
    return _checked(found, asked, rows)


def _checked(forest: Forest, asked: Sequence[PredictProba], rows: Tensor) -> Forest | None:
    """The forest with the classes in the order of the models', if it says what they say."""
    said = forest.predict_proba(rows, slice(None))
    wanted = torch.stack([model(rows).cpu().double() for model in asked])
    if said.shape == wanted.shape:
        for order in (forest.order, forest.order[::-1]):
            if bool(((said[..., list(order)] - wanted).abs() <= _TOLERANCE).all()):
                return replace(forest, order=order)
    return None


def _numbered(
    trees: _Trees, columns: list[Columns], known: dict[Columns, int], tables: list[tuple[str, Any]]
) -> NDArray[np.int64]:
    """Of every node the number of its column among those of all models; what is missing goes where the node says.

    A column with values that are missing is there twice: with −∞ for them, for the nodes that then go left, and ∞.
    """
    found = np.zeros((2, len(columns)), dtype=np.int64)
    for number, (name, values) in enumerate(columns):
        for side, stand_in in enumerate((np.inf, -np.inf)):
            table = None if values is None else np.frombuffer(values, dtype=np.float32).copy()
            if table is not None:
                table[np.isnan(table)] = stand_in
            key = name, None if table is None else table.tobytes()
            if key not in known:
                known[key] = len(tables)
                tables.append((name, table))
            found[side, number] = known[key]
    return found[trees.default_left.astype(np.int64), trees.column]


@dataclass(frozen=True)
class _Probe:
    """Rows by which it is found what trees see of a table.

    Attributes:
        encoder: Knows the features.
        frame: Training rows.
        tried: The first of them, and for every feature the same with each of its categories, or with another number.
        first: Where the rows of each feature begin.
        codes: Of the training rows, by the name of the feature which category each has.
    """

    encoder: Encoder
    frame: pd.DataFrame
    tried: pd.DataFrame
    first: tuple[int, ...]
    codes: dict[str, NDArray[np.int64]]

    @classmethod
    def of(cls, encoder: Encoder, frame: pd.DataFrame) -> "_Probe":
        """From training rows."""
        columns: dict[str, list[Any]] = {name: [frame[name].iloc[0]] for name in encoder.schema.names}
        first = []
        for feature in encoder.schema.features:
            first.append(len(columns[feature.name]))
            values = list(feature.categories or ()) or [frame[feature.name].max() + 1]
            for name, column in columns.items():
                column += values if name == feature.name else [column[0]] * len(values)
        tried = pd.DataFrame({name: pd.Series(column).astype(frame[name].dtype) for name, column in columns.items()})
        codes = {each.name: _codes(frame[each.name], encoder) for each in encoder.schema.features if each.categories}
        return cls(encoder, frame, tried, tuple(first), codes)

    def columns(self, model: Any) -> list[Columns] | None:
        """What the trees of a model see, column by column; None if one is no number as it is nor a category's alone."""
        made, whole = _seen_by(model, self.tried), _seen_by(model, self.frame)
        if made is None or whole is None:
            return None
        found: list[Columns | None] = [None] * made.shape[1]
        for feature, start in zip(self.encoder.schema.features, self.first, strict=True):
            part = made[start : start + len(feature.categories or (1,))]
            depends = ~((part == made[0]) | (np.isnan(part) & np.isnan(made[0]))).all(0)
            for column in depends.nonzero()[0]:
                if found[column] is not None:
                    return None
                found[column] = feature.name, part[:, column].tobytes() if feature.categories else None
        columns = [each or self._constant(made[0, number]) for number, each in enumerate(found)]
        told = [None if each is None else self._told(each) for each in columns]
        same = [t is not None and np.array_equal(t, whole[:, n], equal_nan=True) for n, t in enumerate(told)]
        return [each for each in columns if each is not None] if all(same) else None

    def _constant(self, value: np.float32) -> Columns | None:
        """A column that nothing changes, as one of some feature's categories."""
        some = next((feature for feature in self.encoder.schema.features if feature.categories), None)
        return None if some is None else (some.name, np.full(len(some.categories), value, dtype=np.float32).tobytes())

    def _told(self, column: Columns) -> NDArray[np.float32]:
        """The training rows in a column."""
        name, values = column
        if values is None:
            return self.frame[name].to_numpy(dtype=np.float32)
        return np.frombuffer(values, dtype=np.float32)[self.codes[name]]


def _seen_by(model: Any, table: pd.DataFrame) -> NDArray[np.float32] | None:
    """What the trees of a model see of a table: what the steps before make of it; None if that cannot be told."""
    try:
        made: Any = model[:-1].transform(table) if hasattr(model, "steps") else table
        if not hasattr(made, "toarray"):
            return np.asarray(made, dtype=np.float32)
    except Exception:  # whatever it is: then the model is asked as it is
        return None
    made = made.tocsr()  # what a sparse matrix leaves out is missing for XGBoost, and 0 for scikit-learn
    whole = np.full(made.shape, np.nan if _is_xgboost(model) else 0.0, dtype=np.float32)
    whole[np.repeat(np.arange(made.shape[0]), np.diff(made.indptr)), made.indices] = made.data
    return whole


def _last(model: Any) -> Any:
    steps = getattr(model, "steps", None)
    return model if steps is None else steps[-1][1]


def _is_xgboost(model: Any) -> bool:
    return type(_last(model)).__module__.startswith("xgboost")


def _read_kind(model: Any) -> Callable[[Any], Any] | None:
    """What reads the trees of such a model; None for what is not known."""
    last = _last(model)
    if _is_xgboost(model) and hasattr(last, "get_booster"):
        return _read_xgboost
    if type(last).__module__.startswith("sklearn.ensemble._forest") and hasattr(last, "classes_"):
        return _read_forest
    return None


def _read(model: Any) -> tuple[_Trees, NDArray[np.float64], str] | None:
    """The trees of a model, what their sum is added to, and the link."""
    read = _read_kind(model)
    found: tuple[_Trees, NDArray[np.float64], str] | None = None if read is None else read(_last(model))
    return found


def _read_forest(model: Any) -> tuple[_Trees, NDArray[np.float64], str] | None:
    if model.n_outputs_ != 1:
        return None
    parts, roots, offset = [], [], 0
    for estimator in model.estimators_:
        tree = estimator.tree_
        index = np.arange(tree.node_count)
        leaf = tree.children_left < 0
        values = tree.value[:, 0] / tree.value[:, 0].sum(1, keepdims=True) / len(model.estimators_)
        # The trees see float32 and compare with a double: the greatest float32 below it decides the same.
        threshold = tree.threshold.astype(np.float32)
        threshold = np.where(threshold > tree.threshold, np.nextafter(threshold, np.float32(-np.inf)), threshold)
        left, right = (np.where(leaf, index, side) + offset for side in (tree.children_left, tree.children_right))
        parts.append(
            (np.where(leaf, 0, tree.feature), threshold, left, right, np.where(leaf[:, None], values, 0.0), leaf)
        )
        roots.append(offset)
        offset += tree.node_count
    column, threshold, left, right, value, _ = (np.concatenate(each) for each in zip(*parts, strict=True))
    depth = max(estimator.tree_.max_depth for estimator in model.estimators_)
    no = np.zeros(len(column), dtype=bool)
    trees = _Trees(np.array(roots), column.astype(np.int64), threshold, left, right, no, value, depth)
    return trees, np.zeros(value.shape[1]), "mean"


def _read_xgboost(model: Any) -> tuple[_Trees, NDArray[np.float64], str] | None:
    booster = model.get_booster()
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    objective = learner["objective"]["name"]
    if learner["gradient_booster"]["name"] != "gbtree" or objective not in ("binary:logistic", "multi:softprob"):
        return None
    whole, parameters = learner["gradient_booster"]["model"], learner["learner_model_param"]
    classes = max(1, int(parameters["num_class"]))
    base = np.atleast_1d(np.array(json.loads(parameters["base_score"]), dtype=np.float64))
    binary = objective == "binary:logistic"
    start = np.log(base / (1 - base)) if binary else np.broadcast_to(base, classes).copy()
    rounds = model.get_num_boosting_rounds()
    best = getattr(model, "best_iteration", None) if model.get_params().get("early_stopping_rounds") else None
    used = whole["iteration_indptr"][rounds if best is None else best + 1]
    parts, roots, offset, depth = [], [], 0, 0
    for tree, group in zip(whole["trees"][:used], whole["tree_info"][:used], strict=True):
        if any(tree["split_type"]):  # splits by sets of categories
            return None
        left, right = (np.array(tree[side]) for side in ("left_children", "right_children"))
        leaf, index = left < 0, np.arange(len(left))
        condition = np.array(tree["split_conditions"], dtype=np.float32)
        value = np.zeros((len(left), classes))
        value[leaf, group if not binary else 0] = condition[leaf]
        threshold = np.nextafter(condition, np.float32(-np.inf))  # it goes left below the condition, not at it
        default = np.array(tree["default_left"], dtype=bool)
        column = np.where(leaf, 0, np.array(tree["split_indices"]))
        left, right = (np.where(leaf, index, side) + offset for side in (left, right))
        parts.append((column, threshold, left, right, default, value))
        roots.append(offset)
        offset += len(leaf)
        depth = max(depth, _depth(left - roots[-1], right - roots[-1]))
    column, threshold, left, right, default, value = (np.concatenate(each) for each in zip(*parts, strict=True))
    trees = _Trees(np.array(roots), column.astype(np.int64), threshold, left, right, default, value, depth)
    return trees, start, "sigmoid" if binary else "softmax"


def _depth(left: NDArray[Any], right: NDArray[Any]) -> int:
    """Of one tree, from its first node."""
    level, depth = np.array([0]), 0
    while True:
        inner = level[left[level] != level]
        if not len(inner):
            return depth
        level, depth = np.concatenate([left[inner], right[inner]]), depth + 1
