"""The model under explanation: ours, a torch module, or a black box that gives probabilities."""

import copy
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from counterpath.data.encoding import Encoder
from counterpath.data.schema import Schema
from counterpath.models.classifier import Differentiable, PredictProba, Thresholds
from counterpath.models.surrogate import Agreement
from counterpath.utils.errors import CounterpathWarning, InputError, choose

_PROBE = 64  # rows on which the order of the layers is observed: few, and enough for any that need a batch
_EDGE = 1e-7
"""Probabilities are kept this far from 0 and 1 before the logarithm: about the least step of float32 below 1."""


class TorchClassifier(nn.Module):
    """A torch module on encoded rows, and the layer of it that is taken as the representation h.

    The module returns logits: one number a row (the log odds of the second class) or one a class; log probabilities are
    logits, too. A module that ends in Sigmoid or Softmax, or whose K outputs sum to 1, is taken to return probabilities
    and turned back into logits. It is copied, frozen and used in evaluation mode.

    Args:
        module: The user's module.
        rows: Some encoded rows, to see what it returns.
        layer: Name of the layer, as in `named_modules`, whose output is the representation; by default what goes into
            the last linear layer.
        numbers: It is a regressor: its one output a row is what it predicts.

    Attributes:
        layer: In words, which representation is used.
        layer_name: The layer that the user named; None for none.
        classes: How many classes it has.
    """

    def __init__(self, module: nn.Module, rows: Tensor, layer: str | None = None, *, numbers: bool = False) -> None:
        super().__init__()
        self.module = copy.deepcopy(module).to(rows).eval().requires_grad_(False)
        layers = _layers_in_order(self.module, rows[:_PROBE])
        with torch.no_grad():
            outputs = _check_outputs(self.module(rows), rows)
        if numbers and outputs.ndim != 1:
            raise InputError(
                f"the torch model has {outputs.shape[-1]} outputs a row, and a regressor has one; if these are "
                "classes, leave task='regression' out"
            )
        self.kind = "numbers" if numbers else _kind(outputs, layers[-1] if layers else None)
        self.layer_name = layer
        self.classes = 2 if outputs.ndim == 1 else outputs.shape[-1]
        self.representation, self.layer = _representation(self.module, layers, layer)

    def forward(self, x: Tensor) -> Tensor:
        """The log odds of the second class `(n,)`, or one logit a class `(n, K)`."""
        out = _flat(self.module(x))
        if self.kind in ("logits", "numbers"):
            return out
        return torch.logit(out, _EDGE) if out.ndim == 1 else out.clamp_min(_EDGE).log()


def _check_outputs(out: Any, rows: Tensor) -> Tensor:
    if not isinstance(out, Tensor) or out.ndim not in (1, 2) or len(out) != len(rows):
        shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise InputError(
            f"the torch model maps rows {tuple(rows.shape)} to {shape}; expected one logit a row, or one for each class"
        )
    if not out.isfinite().all():
        raise InputError("the torch model returns values that are not finite on the training rows")
    return _flat(out)


def _flat(out: Tensor) -> Tensor:
    return out[:, 0] if out.ndim == 2 and out.shape[-1] == 1 else out


class _Captured(nn.Module):
    """What goes into a layer, or comes out of it, when the module runs."""

    def __init__(self, module: nn.Module, layer: nn.Module, *, before: bool) -> None:
        super().__init__()
        self.module, self.layer, self.before = module, layer, before

    def forward(self, x: Tensor) -> Tensor:
        captured: list[Tensor] = []
        hook = self.layer.register_forward_hook(lambda _, args, out: captured.append(args[0] if self.before else out))
        try:
            self.module(x)
        finally:
            hook.remove()
        return captured[-1].flatten(1)


def _layers_in_order(module: nn.Module, rows: Tensor) -> list[nn.Module]:
    """The layers without parts of their own, in the order in which they run."""
    order: list[nn.Module] = []
    leaves = [part for part in module.modules() if not list(part.children())]
    hooks = [part.register_forward_hook(lambda part, *_: order.append(part)) for part in leaves]
    try:
        with torch.no_grad():
            module(rows)
    except (RuntimeError, TypeError) as error:
        raise InputError(
            f"the torch model cannot be run on encoded rows of {rows.shape[-1]} columns ({error}); "
            "it must take what Encoder.fit(table, schema).encode(table) gives"
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    return order


def _kind(outputs: Tensor, last: nn.Module | None) -> str:
    if isinstance(last, nn.Sigmoid | nn.Softmax):
        return "probabilities"
    inside = bool(((outputs >= 0) & (outputs <= 1)).all())
    if outputs.ndim == 2 and inside and bool(((outputs.sum(-1) - 1).abs() < 1e-4).all()):
        return "probabilities"
    if outputs.ndim == 1 and inside:
        warnings.warn(
            "the torch model's outputs all lie between 0 and 1, and are taken to be log odds; if they are "
            "probabilities, let the module end in torch.nn.Sigmoid",
            CounterpathWarning,
            stacklevel=4,
        )
    return "logits"


def _representation(module: nn.Module, layers: list[nn.Module], layer: str | None) -> tuple[nn.Module, str]:
    if layer is not None:
        parts: dict[str, Any] = dict(module.named_modules())
        if layer not in parts or not layer:
            names = ", ".join(name for name in parts if name)
            raise InputError(f"the torch model has no layer {layer!r}; choose one of: {names}")
        return _Captured(module, parts[layer], before=False), f"the output of the layer {layer!r}"
    linear = [part for part in layers if isinstance(part, nn.Linear)]
    if not linear:
        raise InputError("the torch model has no linear layer to take the representation from: name a layer")
    words = f"the input of the last linear layer, {next(n for n, p in module.named_modules() if p is linear[-1])!r}"
    if isinstance(module, nn.Sequential) and linear[-1] in list(module):
        return module[: list(module).index(linear[-1])], words  # closed-form Jacobians where the layers have them
    return _Captured(module, linear[-1], before=True), words


Labels = tuple[Any, ...]
Labelled = tuple[Labels, NDArray[Any]]
"""The classes, and the index of every row's label among them; for a regressor no classes, and the numbers."""
_MOST_CLASSES = 50
"""More different labels than this are in practice measurements, and a classifier of them would hardly learn."""


@dataclass(frozen=True)
class ExplainedModel:
    """A model under explanation, as the search sees it.

    Attributes:
        kind: "own" (we trained it), "torch" (a user's module) or "black-box" (a user's model that gives nothing but
            probabilities).
        name: What it is, for people and for the model directory.
        classes: The labels, in the order of the probabilities.
        predict_proba: Legal encoded rows to the probability of every class, by the model itself.
        classifier: What the search follows downhill: the model itself, or its surrogate.
        agreement: How well a surrogate agrees with the model.
        table_proba: As `predict_proba`, for a table of rows exactly as they were given; None if the model sees
            encoded rows only.
        numbers: Whether it is a regressor: it has no classes, and instead of probabilities gives one number a row.
    """

    kind: str
    name: str
    classes: Labels
    predict_proba: PredictProba
    classifier: Differentiable
    agreement: Agreement | None = None
    table_proba: Callable[[pd.DataFrame], NDArray[np.float64]] | None = None
    numbers: bool = False

    def predict_proba_table(self, frame: pd.DataFrame, x: Float[Tensor, "n D"]) -> Float[Tensor, "n K"]:
        """The model's own probabilities of rows of a table, which are encoded as `x`.

        Encoding is exact to 6e-8 of a range only, and the trees of a forest split at the very numbers of their rows.
        """
        if self.table_proba is None or not len(frame):
            return self.predict_proba(x)
        return torch.tensor(self.table_proba(frame), device=x.device)  # what a model returns may be read-only

    def class_index(self, label: Any) -> int:
        """The index of a label; text that reads like one of them, as a command line gives it, will do."""
        if self.numbers:
            raise InputError(
                f"the target class {label!r} does not exist: {self.name} is a regressor; ask for a range of what it "
                "predicts, target_range=(low, high)"
            )
        found = _find(label, self.classes)
        if found is None:
            known = ", ".join(repr(name) for name in self.classes)
            raise InputError(f"the target class {label!r} does not exist; choose one of: {known}, or 'other'")
        return found


def _find(label: Any, classes: Labels) -> int | None:
    """The index of a label, or of text that reads like it."""
    if label in classes:
        return classes.index(label)
    names = [str(name) for name in classes]
    return names.index(str(label)) if str(label) in names else None


def parse_threshold(given: Any, classes: Labels) -> Thresholds | None:
    """From which probability on a class is decided, as the threshold of every class; None for the most probable class.

    Args:
        given: One number, that of the second of two classes; or a mapping from classes, of which some may be left out:
            they share what is left to 1.
        classes: The labels.

    Raises:
        InputError: A class does not exist, or a threshold is not between 0 and 1; the message names both.
    """
    if given is None:
        return None
    known = ", ".join(map(repr, classes))
    if not isinstance(given, Mapping):
        if len(classes) != 2 and isinstance(given, Real):
            raise InputError(
                f"threshold is {given!r}, and there are {len(classes)} classes: {known}; expected one for each, "
                f"threshold={{{classes[0]!r}: {given!r}, …}}"
            )
        given = {classes[-1]: given}
    found: dict[int, float] = {}
    for label, number in given.items():
        index = _find(label, classes)
        if index is None:
            raise InputError(f"threshold has the class {label!r}, which does not exist; choose one of: {known}")
        if isinstance(number, bool) or not isinstance(number, Real) or not 0 < float(number) < 1:
            raise InputError(
                f"the threshold of class {classes[index]!r} is {number!r}; expected a number between 0 and 1, for "
                f"instance {1 / len(classes):.2g}"
            )
        found[index] = float(number)
    total, rest = sum(found.values()), len(classes) - len(found)
    if rest and total >= 1:
        raise InputError(f"the thresholds {dict(given)!r} leave nothing to the other classes; name all of: {known}")
    if rest:
        return tuple(found.get(index, (1 - total) / rest) for index in range(len(classes)))
    return tuple(found[index] / total for index in range(len(classes)))


_NAMES = ("feature_names_in_", "feature_name_", "feature_names_", "feature_names")
"""Where scikit-learn, LightGBM, CatBoost and XGBoost keep the names of the columns that a model was trained with."""


def check_ignored(model: Any, schema: Schema) -> None:
    """Raise an error if a model was trained with columns that the schema leaves out, for it would not get them."""
    names = next((names for each in _NAMES if (names := getattr(model, each, None)) is not None), ())
    needed = [name for name in schema.ignored if name in ([] if callable(names) else list(names))]
    if needed:
        kept = ", ".join(f"{name!r}: {{'kind': …, 'immutable': True}}" for name in needed)
        raise InputError(
            f"{qualified_name(model)} was trained with columns that the schema ignores: {', '.join(needed)}; train it "
            f"without them, or declare them as features: Schema.infer(…, overrides={{{kept}}})"
        )


TASKS = ("auto", "classification", "regression")
"""What a model predicts: classes or numbers; or what `is_regression` finds."""
_REGRESSIONS = ("reg:", "regression", "count:", "survival:", "rank:", "poisson", "quantile", "huber", "mape", "gamma")
"""How the objectives of boosters that predict numbers begin."""


def is_regression(task: str, model: Any, labels: pd.Series | None) -> bool:
    """Whether a model predicts numbers, and not classes.

    With "auto": a model that says that it is a regressor, as those of scikit-learn, XGBoost and LightGBM do, or that
    has `predict` and no `predict_proba`; a booster by its objective. All else, no model included, goes by the labels:
    numbers of which there are more than 50 different ones are measurements. Without labels it is classification.

    Args:
        task: One of `TASKS`.
        model: The model; None for ours.
        labels: The target column, if there is one.
    """
    choose("task", task, dict.fromkeys(TASKS))
    if task != "auto":
        return task == "regression"
    if model is not None and not is_torch(model):
        if type(model).__name__ == "Booster":
            return _objective(model).startswith(_REGRESSIONS) and _objective(model) != "reg:logistic"
        if callable(getattr(model, "predict_proba", None)):
            return False
        if callable(getattr(model, "predict", None)):
            return True
    measured = labels is not None and pd.api.types.is_numeric_dtype(labels.dtype)
    return bool(measured) and labels is not None and labels.nunique() > _MOST_CLASSES


def _objective(booster: Any) -> str:
    """What a booster of XGBoost or LightGBM was trained for."""
    if type(booster).__module__.startswith("xgboost"):
        return str(json.loads(booster.save_config())["learner"]["objective"]["name"])
    head = booster.model_to_string(num_iteration=1).split("\ntree_sizes")[0]
    found = next((line.split("=")[1] for line in head.splitlines() if line.startswith("objective=")), "none")
    return found.split()[0]


def predict_numbers(model: Any, frame: pd.DataFrame) -> NDArray[np.float64]:
    """The numbers `(n, 1)` that a regressor predicts for the rows of a table.

    Raises:
        InputError: It cannot be called, or what it returns is not one finite number a row.
    """
    returned = _number_function(model)(frame)
    try:
        numbers = np.asarray(returned, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{qualified_name(model)} answers with what are not numbers ({error})") from error
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if numbers.shape != (len(frame),) or not np.isfinite(numbers).all():
        raise InputError(
            f"{qualified_name(model)} answers {len(frame)} rows with an array of shape {np.shape(returned)}; expected "
            "of a regressor is one finite number for each row; if it gives probabilities, say task='classification'"
        )
    return numbers[:, None]


def _number_function(model: Any) -> Callable[[pd.DataFrame], Any]:
    """The function to call with a table: `predict`, what asks a booster, or the model itself."""
    library = type(model).__module__.split(".")[0]
    if type(model).__name__ == "Booster" and library in _BOOSTERS:
        return _BOOSTERS[library](model, numbers=True)
    method = getattr(model, "predict", None)
    if callable(method) and not isinstance(model, type):
        return method  # type: ignore[no-any-return]
    if callable(model) and not isinstance(model, type):
        return model  # type: ignore[no-any-return]
    raise InputError(
        f"{model!r} cannot be asked for numbers; expected a torch module on encoded rows, an object with "
        "predict(DataFrame), a booster of XGBoost or LightGBM, or a function DataFrame -> numbers"
    )


def ask_table(model: Any, frame: pd.DataFrame, *, numbers: bool) -> NDArray[np.float64]:
    """What a model says about the rows of a table: probabilities, or of a regressor its numbers."""
    return predict_numbers(model, frame) if numbers else predict_proba(model, frame)


def black_box_proba(model: Any, encoder: Encoder, *, numbers: bool = False) -> PredictProba:
    """Legal encoded rows to the probability of every class, or the number, by a model that takes tables."""

    def predict(x: Float[Tensor, "n D"]) -> Float[Tensor, "n K"]:
        rows = x if len(x) else encoder.round(x.new_zeros(1, encoder.width))  # to see how many classes there are
        return torch.tensor(ask_table(model, encoder.decode(rows), numbers=numbers), device=x.device)[: len(x)]

    return predict


def table_proba(
    model: Any, encoder: Encoder, *, numbers: bool = False
) -> Callable[[pd.DataFrame], NDArray[np.float64]]:
    """Rows of a table, exactly as they are, to the probability of every class, or the number."""
    return lambda frame: ask_table(model, encoder.align(frame), numbers=numbers)


def predict_proba(model: Any, frame: pd.DataFrame) -> NDArray[np.float64]:
    """The probabilities `(n, K)` that a model gives the rows of a table; one number a row is that of the second class.

    Raises:
        InputError: It cannot be called, or what it returns are not probabilities.
    """
    returned = probability_function(model)(frame)
    try:
        proba = np.asarray(returned, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{qualified_name(model)} answers with what are not probabilities ({error}): use predict_proba, not predict"
        ) from error
    if proba.ndim == 2 and proba.shape[1] == 1:
        proba = proba[:, 0]
    if proba.ndim == 1:
        proba = np.column_stack([1 - proba, proba])
    if proba.ndim != 2 or len(proba) != len(frame):
        raise InputError(
            f"{qualified_name(model)} answers {len(frame)} rows with an array of shape {np.shape(returned)}; expected "
            "one probability for each row, or one for each row and class"
        )
    if not np.isfinite(proba).all() or proba.min() < -1e-6 or np.abs(proba.sum(1) - 1).max() > 1e-3:
        raise InputError(
            f"{qualified_name(model)} answers with numbers that are not probabilities (from {proba.min():g} to "
            f"{proba.max():g}); expected numbers from 0 to 1 that sum to 1: use predict_proba, not predict"
        )
    return proba


def probability_function(model: Any) -> Callable[[pd.DataFrame], Any]:
    """The function to call with a table: `predict_proba`, the model itself, or what asks a booster."""
    library = type(model).__module__.split(".")[0]
    if type(model).__name__ == "Booster" and library in _BOOSTERS:
        return _BOOSTERS[library](model)
    method = getattr(model, "predict_proba", None)
    if callable(method) and not isinstance(model, type):
        return method  # type: ignore[no-any-return]
    if callable(model) and not isinstance(model, type):
        return model  # type: ignore[no-any-return]
    raise InputError(
        f"{model!r} cannot be asked for probabilities; expected a torch module on encoded rows, an object with "
        "predict_proba(DataFrame), a booster of XGBoost or LightGBM, or a function DataFrame -> probabilities"
    )


def _xgboost(booster: Any, *, numbers: bool = False) -> Callable[[pd.DataFrame], Any]:
    """Asks an `xgboost.Booster`, which says by its objective what it returns: probabilities, classes or margins."""
    import xgboost

    objective = _objective(booster)
    if not numbers and objective not in (
        "binary:logistic",
        "binary:logitraw",
        "reg:logistic",
        "multi:softprob",
        "multi:softmax",
    ):
        raise InputError(
            f"the XGBoost booster has the objective {objective!r}, which gives no probabilities; expected "
            "binary:logistic or multi:softprob: wrap it into a function DataFrame -> probabilities"
        )
    margin = not numbers and objective in ("binary:logitraw", "multi:softmax")

    def predict(frame: pd.DataFrame) -> NDArray[np.float64]:
        rows = _in_its_order(frame, booster.feature_names, booster.num_features(), "XGBoost")
        named = booster.feature_names is not None
        matrix = xgboost.DMatrix(rows if named else rows.to_numpy(dtype=float), enable_categorical=True)
        said = np.asarray(booster.predict(matrix, output_margin=margin), dtype=np.float64)
        if not margin:
            return said
        return 1 / (1 + np.exp(-said)) if said.ndim == 1 else np.asarray(torch.from_numpy(said).softmax(-1))

    return predict


def _lightgbm(booster: Any, *, numbers: bool = False) -> Callable[[pd.DataFrame], Any]:
    """Asks a `lightgbm.Booster`, which gives probabilities unless its objective is not one of classes."""
    objective = _objective(booster)
    if not numbers and objective not in ("binary", "multiclass", "cross_entropy"):
        raise InputError(
            f"the LightGBM booster has the objective {objective!r}, which gives no probabilities; expected "
            "binary or multiclass: wrap it into a function DataFrame -> probabilities"
        )
    names = booster.feature_name()
    plain = names == [f"Column_{number}" for number in range(len(names))]

    def predict(frame: pd.DataFrame) -> Any:
        # LightGBM writes spaces in names as underscores.
        own = {str(name).replace(" ", "_"): name for name in frame.columns}
        rows = _in_its_order(frame, None if plain else [own.get(name, name) for name in names], len(names), "LightGBM")
        return booster.predict(rows.to_numpy(dtype=float) if plain else rows)

    return predict


_BOOSTERS: dict[str, Callable[..., Callable[[pd.DataFrame], Any]]] = {"xgboost": _xgboost, "lightgbm": _lightgbm}
"""What asks the class `Booster` of a library, which has `predict` alone."""


def _in_its_order(frame: pd.DataFrame, names: Sequence[str] | None, count: int, library: str) -> pd.DataFrame:
    """The columns that a booster was trained on, in its order; it takes them by position where it knows no names."""
    missing = [name for name in names or () if name not in frame.columns]
    if missing or (names is None and frame.shape[1] != count):
        lacks = f"lacks {', '.join(map(repr, missing))}" if missing else f"has {frame.shape[1]} columns"
        raise InputError(
            f"the {library} booster was trained on {count} features, and the table {lacks}; expected the columns of "
            "its training table: leave out what it does not know with a schema, or wrap it into a function"
        )
    return frame if names is None else frame[list(names)]


def qualified_name(model: Any) -> str:
    """The full name of a model's type, or of a function."""
    kind = model if hasattr(model, "__qualname__") else type(model)
    return f"{kind.__module__}.{kind.__qualname__}"


def is_torch(model: Any) -> bool:
    """Whether a model takes encoded rows as a tensor."""
    return isinstance(model, nn.Module)


def encode_numbers(column: pd.Series) -> Labelled:
    """No classes, and the numbers of a target column.

    Raises:
        InputError: One is missing or not finite, or all are the same.
    """
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    bad = ~np.isfinite(numbers)
    if bad.any():
        row = int(bad.argmax())
        raise InputError(
            f"target column {column.name!r}, row {column.index[row]}: {column.iloc[row]!r} is no number; drop the row, "
            "or say task='classification'"
        )
    if not len(numbers) or numbers.min() == numbers.max():
        raise InputError(f"target column {column.name!r} has one number only: there is nothing to predict")
    return (), numbers


def encode_labels(column: pd.Series) -> Labelled:
    """The classes in a column of labels, sorted, and the index of every row's label among them.

    Raises:
        InputError: A label is missing, there is only one class, or these are measurements and not labels.
    """
    missing = column.isna().to_numpy()
    if missing.any():
        row = column.index[int(missing.argmax())]
        raise InputError(f"target column {column.name!r}, row {row}: the label is missing; drop the row")
    values = [value.item() if isinstance(value, np.generic) else value for value in column.to_list()]
    strange = [value for value in values if not isinstance(value, str | bool | int | float)]
    if strange:
        raise InputError(
            f"target column {column.name!r} has labels like {strange[0]!r}, which is {type(strange[0]).__name__}; "
            "expected text, numbers or truth values: try .astype(str)"
        )
    classes = sorted(set(values), key=lambda value: (str(type(value)), value))
    if len(classes) < 2:
        raise InputError(
            f"target column {column.name!r} has one class only, {classes[0]!r}: there is no other decision to explain"
            if classes
            else f"target column {column.name!r} has no rows"
        )
    if len(classes) > _MOST_CLASSES:
        raise InputError(
            f"target column {column.name!r} has {len(classes)} different values; expected at most {_MOST_CLASSES} "
            "classes: cut a measurement into classes, for instance with pandas.cut(…, labels=[…])"
        )
    index = {label: i for i, label in enumerate(classes)}
    return tuple(classes), np.array([index[value] for value in values])


def class_labels(model: Any, count: int, labels: Sequence[Any] | None) -> Labels:
    """The labels of a model's `count` probabilities: its own `classes_`, those of the target column, or numbers from 0.

    A model that was trained on numbered classes (as XGBoost wants them) has those of the target column.
    """
    own = [value.item() if isinstance(value, np.generic) else value for value in getattr(model, "classes_", ())]
    numbered = own == list(range(count))
    if labels is not None and len(labels) == count and (not own or numbered or set(own) == set(labels)):
        return tuple(own) if own and set(own) == set(labels) else tuple(labels)
    if own and len(own) == count:
        return tuple(own)
    if labels is not None:
        raise InputError(
            f"{qualified_name(model)} has {count} classes, but the target column has {len(labels)}: "
            f"{', '.join(map(repr, labels))}"
        )
    return tuple(range(count))
