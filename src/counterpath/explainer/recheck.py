"""Which given answers still hold for another model: what was true of the model that was explained expires with it."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from counterpath.data.status import StatusCode
from counterpath.explainer.request import OTHER
from counterpath.fitting.fitted import FittedModels
from counterpath.models.classifier import Thresholds, decide
from counterpath.models.family import predictor
from counterpath.search.objective import NumberTarget, Target
from counterpath.utils.errors import InputError

if TYPE_CHECKING:
    from counterpath.explainer.explainer import Explainer

HOLDS, EXPIRED, NONE = "holds", "expired", "no answer"
"""What may have become of an answer: the other model decides as asked, it does not, or there was none."""
COLUMNS = ("answer", "then", "now", "decided", "lacks")
"""Of the table: what became of it, what the model said of the wanted outcome then and says now, what it decides now,
and how much is lacking to what was asked for; 0 where it holds."""


def recheck_rows(
    models: FittedModels,
    thresholds: Thresholds | None,
    answers: pd.DataFrame,
    status: Sequence[str],
    outcome: pd.DataFrame,
    request: Mapping[str, Any],
    own: Sequence[Mapping[str, Any]] | None = None,
    model: Any = None,
) -> pd.DataFrame:
    """One line for each answer: whether it holds for a model.

    Args:
        models: The fitted models; the one that they explain is asked unless another is given.
        thresholds: How a model decides.
        answers: The rows that were returned, in original units.
        status: What became of each then.
        outcome: `class_before` and `probability_after` of each.
        request: What was asked for.
        own: What was asked for each row alone.
        model: The model to ask; an `Explainer` stands for the model that it explains.

    Raises:
        InputError: The model cannot be asked, or has other classes.
    """
    said = _said(models, answers, model)
    codes = [StatusCode(each) if each in list(StatusCode) else StatusCode.NOT_FOUND for each in status]
    given = np.array([code.valid for code in codes], dtype=bool)
    columns: dict[str, Any] = {
        "answer": np.where(given, EXPIRED, NONE).astype(object),
        "then": outcome["probability_after"].to_numpy(float, na_value=np.nan),
        "now": np.full(len(answers), np.nan),
        "decided": np.full(len(answers), None, dtype=object),
        "lacks": np.full(len(answers), np.nan),
    }
    requests = [request] * len(answers) if own is None else [{**request, **each} for each in own]
    groups: dict[Target, list[int]] = {}
    for row in np.flatnonzero(given).tolist():
        target = _target(models, thresholds, requests[row], outcome["class_before"].iloc[row])
        groups.setdefault(target, []).append(row)
    for target, rows in groups.items():
        there = said[torch.tensor(rows)]
        holds = target.is_reached(there).numpy()
        columns["answer"][np.array(rows)[holds]] = HOLDS
        columns["now"][rows] = target.probability(there).double().numpy()
        columns["lacks"][rows] = np.where(holds, 0.0, _lacks(target, there))
        columns["decided"][rows] = _decided(models, target, there)
    return pd.DataFrame(columns, index=answers.index)[list(COLUMNS)]


def _said(models: FittedModels, answers: pd.DataFrame, model: Any) -> torch.Tensor:
    """What a model says about rows as they were returned."""
    encoder, explained = models.encoder, models.explained
    if len(answers) == 0:
        return torch.zeros(0, max(1, len(explained.classes)), dtype=torch.float64)
    if model is None:
        x = encoder.encode(answers).to(models.rows.device)
        return explained.predict_proba_table(answers, x).double().cpu()
    if callable(getattr(model, "probabilities", None)) and hasattr(model, "models_"):
        explainer: Explainer = model
        if set(explainer.classes_) != set(explained.classes):
            raise InputError(
                f"the other explainer has the classes {list(explainer.classes_)!r}, and this one has "
                f"{list(explained.classes)!r}; expected the same"
            )
        probabilities = explainer.probabilities(answers)
        ordered = probabilities if explained.numbers else probabilities[list(explained.classes)]
        return torch.tensor(ordered.to_numpy(dtype=float))
    x = encoder.encode(answers)
    return predictor(model, explained, encoder, "the model")(x).double().cpu()


def _target(models: FittedModels, thresholds: Thresholds | None, request: Mapping[str, Any], before: Any) -> Target:
    """What was asked for a row."""
    if models.explained.numbers:
        low, high = request["target_range"]
        ends = -math.inf if low is None else float(low), math.inf if high is None else float(high)
        return NumberTarget(low=ends[0], high=ends[1], spread=models.spread)
    wanted, confidence = request.get("target_class", OTHER), request.get("confidence")
    confidence = tuple(confidence) if isinstance(confidence, list) else confidence
    other = wanted == OTHER and OTHER not in models.explained.classes
    index = models.explained.class_index(before if other else wanted)
    return Target(index, other=other, confidence=confidence, thresholds=thresholds)


def _lacks(target: Target, said: torch.Tensor) -> NDArray[np.float64]:
    """How much of the wanted probability is lacking, or how far a number is from where it must lie."""
    if isinstance(target, NumberTarget):
        return target.distance(said[:, 0]).double().numpy()
    if target.interval is not None:
        return (1 - target.score(said)).double().numpy()
    return (target.level - target.probability(said)).clamp_min(0).double().numpy()


def _decided(models: FittedModels, target: Target, said: torch.Tensor) -> list[Any]:
    if models.explained.numbers:
        return said[:, 0].tolist()
    return [models.explained.classes[index] for index in decide(said, target.thresholds).tolist()]
