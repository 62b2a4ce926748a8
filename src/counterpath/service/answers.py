"""What a model answers to the example of its description: computed before anybody asks, which warms the model up."""

import json
from typing import Any

import pandas as pd

from counterpath.explainer.explainer import Explainer
from counterpath.explainer.request import Request
from counterpath.explanation.tables import MILESTONES
from counterpath.service import schemas
from counterpath.service.schemas import BatchResult


def example_answers(name: str, explainer: Explainer) -> dict[str, Any]:
    """By what is asked the content of the response; of a regressor only of a prediction, since nobody says what for."""
    row = schemas.example_row(explainer)
    rows = pd.DataFrame([row], columns=list(explainer.schema_.names))
    probabilities = explainer.probabilities(rows)
    numbers = explainer.models_.explained.numbers
    found: dict[str, Any] = {"predict": schemas.prediction(name, explainer, probabilities, [""])}
    if not numbers:
        result = BatchResult(explainer.solve(rows, Request(paths=MILESTONES)))
        found["explain"] = {"model": name, "rows": [json.loads(text) for text in result.row_texts]}
    return found
