"""An explanation as the service answers it: one JSON text a person.

The people of many questions are told at once: what they have in common, tables and wording, is then worked out once.
Values are written so that they do not depend on who else was asked about: a whole number of a column that has fractions
is written like one of a column that has none.
"""

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from counterpath.data.schema import Schema
from counterpath.explanation import Explanation
from counterpath.explanation.columns import CHANGES, PATH_BACK, PATH_FRONT, beside
from counterpath.explanation.keeping import ALL, MILESTONES
from counterpath.explanation.milestones import list_milestones
from counterpath.explanation.telling import amounts, changed_places

_EXACT = 2**53
"""Up to here a float tells neighbouring whole numbers apart."""


@dataclass(frozen=True)
class Answer:
    """What was found for the people of one or more questions."""

    explanation: Explanation

    @cached_property
    def texts(self) -> list[str]:
        """One JSON text a person, in their order."""
        return [json.dumps(person, allow_nan=False, ensure_ascii=False) for person in told(self.explanation)]


def told(explanation: Explanation) -> list[dict[str, Any]]:
    """The people in their order, each with the decision today and the plans, fit for JSON."""
    plans = _plans(explanation)
    outcome = explanation.outcome.to_dict("list")
    imputed = explanation.status["imputed"].tolist()
    each = explanation.plans
    return [
        {
            "class_before": plain(outcome["class_before"][first]),
            "probability_before": plain(outcome["probability_before"][first]),
            "imputed": [name for name in str(imputed[first]).split(", ") if name],
            "plans": plans[first : first + each],
        }
        for first in range(0, len(plans), each)
    ]


def plain(value: Any) -> Any:
    """A value as JSON has it: None for none, a whole number without a fraction."""
    own = value.item() if isinstance(value, np.generic) else value
    if own is None or own is pd.NA:
        return None
    if not isinstance(own, float):
        return own if isinstance(own, bool | int | str) else str(own)
    if not math.isfinite(own):
        return None
    return int(own) if own.is_integer() and abs(own) < _EXACT else own


def _plans(explanation: Explanation) -> list[dict[str, Any]]:
    """One a row of the explanation's tables."""
    told = pd.concat([explanation.status, explanation.outcome], axis=1).to_dict("records")
    counterfactuals = records(explanation.counterfactuals[list(explanation.schema.names)])
    changes, sentences = _changes(explanation), explanation.sentences.tolist()
    measures, ways = records(explanation.measures()), _ways(explanation)
    return [
        {
            "status": str(told[place]["status"]),
            "reason": told[place]["reason"],
            "binding": [part for part in told[place]["binding"].split("; ") if part],
            "class_after": plain(told[place]["class_after"]),
            "probability_after": plain(told[place]["probability_after"]),
            "counterfactual": counterfactuals[place],
            "changes": changes[place],
            "sentence": sentences[place],
            "measures": measures[place],
            **({} if ways is None else {_way_name(explanation): ways[place]}),
        }
        for place in range(len(explanation))
    ]


def _way_name(explanation: Explanation) -> str:
    """Under which name a plan has its way."""
    return "path" if explanation.keep == ALL else "milestones"


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table, fit for JSON."""
    columns = {str(name): [plain(value) for value in frame[name].tolist()] for name in frame.columns}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _changes(explanation: Explanation) -> dict[int, list[dict[str, Any]]]:
    """By row what changed."""
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    places = changed_places(explanation.changed, explanation.schema.names)
    for (row, _), change in zip(places, explanation.changes.to_dict("records"), strict=True):
        difference = None if change["change"] == "" else plain(change["change"])
        ends = {"feature": change["feature"], "from": plain(change["from"]), "to": plain(change["to"])}
        found[row].append({**ends, "difference": difference})
    return found


def _ways(explanation: Explanation) -> dict[int, list[dict[str, Any]]] | None:
    """By row its path, or the milestones of it; None if neither was to be kept."""
    if explanation.keep not in (ALL, MILESTONES):
        return None
    schema, numbers = explanation.schema, amounts(explanation.schema, explanation.factuals)
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row, path in explanation.paths.groupby("row", sort=False):
        if explanation.keep == ALL:
            found[int(str(row))] = _points(path, schema, PATH_FRONT + PATH_BACK)
        else:
            stops = list_milestones(path, schema, numbers, most=max(len(path), 2), chosen=True)
            texts = stops[CHANGES].tolist()
            points = _points(stops, schema, (*PATH_FRONT, *PATH_BACK, CHANGES))
            found[int(str(row))] = [{**point, CHANGES: text} for point, text in zip(points, texts, strict=True)]
    return found


def _points(path: pd.DataFrame, schema: Schema, reserved: tuple[str, ...]) -> list[dict[str, Any]]:
    columns = beside(schema.names, reserved)
    features = records(path[list(columns.values())].set_axis(list(columns), axis=1))
    rest = records(path[["step", *PATH_BACK]])
    return [{**point, "features": row} for point, row in zip(rest, features, strict=True)]
