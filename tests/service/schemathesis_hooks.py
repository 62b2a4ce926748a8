"""What Schemathesis is told about the service: see `test_schemathesis`."""

from typing import Any

import schemathesis
from schemathesis.generation import GenerationMode

LITTLE = 10
"""Seconds within which not every question is answered."""


@schemathesis.check
def refused_only_for_what_cannot_be(context: Any, response: Any, case: Any) -> None:
    """A question that fits the description and is not answered asks for what cannot be, or has hardly any time."""
    if case.meta is None or case.meta.generation.mode != GenerationMode.POSITIVE:
        return
    if response.status_code == 422:
        assert response.json()["error"]["code"] == "unusable", response.text
    if response.status_code == 504:
        assert case.body["time_limit"] < LITTLE
