"""From the tables of an explanation to rows that can be told."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from counterpath.data.schema import Schema
from counterpath.explanation import wording
from counterpath.explanation.status import Status


def amounts(schema: Schema, frame: pd.DataFrame) -> frozenset[str]:
    """The features that are numbers, so that it makes sense to say by how much they changed."""
    names = (feature.name for feature in schema if not feature.categories)
    return frozenset(name for name in names if is_numeric_dtype(frame[name]) and not is_bool_dtype(frame[name]))


def ranges(old: pd.DataFrame, new: pd.DataFrame, names: Collection[str]) -> dict[str, tuple[float, float]]:
    """From where to where each number goes in the rows as asked and as returned."""
    low, high = (
        {name: [float(getattr(frame[name].astype(float), end)()) for frame in (old, new)] for name in names}
        for end in ("min", "max")
    )
    return {name: (min(low[name]), max(high[name])) for name in sorted(names)}


def headline(statuses: Sequence[str], request: Mapping[str, Any]) -> str:
    """One line about all rows."""
    counts = {kind: statuses.count(kind) for kind in Status}
    shown = {kind: count for kind, count in counts.items() if count or kind is Status.FOUND}
    told = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in shown.items())
    rows = f"{len(statuses)} row{'' if len(statuses) == 1 else 's'}"
    wanted = wording.outcome(wording.value(request["target_class"]))
    asked = f"method {request['method']}, wanted {wanted}, confidence {wording.value(request['confidence'])}"
    return f"Explanation of {rows}: {told} ({asked})"


def changed_places(changed: pd.DataFrame, features: Sequence[str]) -> list[tuple[int, str]]:
    """Which feature changed in which row, by position, row after row."""
    rows, places = np.nonzero(changed[list(features)].to_numpy(bool))
    return [(row, features[place]) for row, place in zip(rows.tolist(), places.tolist(), strict=True)]


def tell(
    frames: dict[str, pd.DataFrame],
    features: Sequence[str],
    amounts: Collection[str],
    wanted: str,
    confidence: float,
) -> list[wording.Row]:
    """Describe rows.

    Args:
        frames: `factuals`, `counterfactuals`, `status`, `outcome` and `changed` of these rows.
        features: The features, in the order in which their changes are told.
        amounts: Those that are numbers and rise or fall; others change.
        wanted: The wanted class as text, or `wording.OTHER`.
        confidence: The probability that was asked for.
    """
    old, new = ({name: frames[key][name].tolist() for name in features} for key in ("factuals", "counterfactuals"))
    changes: dict[int, list[wording.Change]] = defaultdict(list)
    for row, name in changed_places(frames["changed"], features):
        changes[row].append(wording.change(name, old[name][row], new[name][row], ordered=name in amounts))
    told = pd.concat([frames["status"], frames["outcome"]], axis=1).to_dict("records")
    return [
        _row(label, record, tuple(changes[place]), wanted, confidence)
        for place, (label, record) in enumerate(zip(frames["factuals"].index.tolist(), told, strict=True))
    ]


def _row(
    label: Any, told: dict[Any, Any], changes: tuple[wording.Change, ...], wanted: str, confidence: float
) -> wording.Row:
    return wording.Row(
        label=wording.value(label),
        status=Status(told["status"]),
        reason=told["reason"],
        binding=told["binding"],
        before=wording.value(told["class_before"]),
        after=wording.value(told["class_after"]),
        p_before=_float(told["probability_before"]),
        p_after=_float(told["probability_after"]),
        changes=changes,
        wanted=wanted,
        confidence=confidence,
    )


def _float(value: Any) -> float:
    return float("nan") if value is None else float(value)
