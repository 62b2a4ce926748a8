"""Our own check for Schemathesis: see `test_schemathesis`."""

from typing import Any

import schemathesis
from schemathesis.generation import GenerationMode

SHORT = 10
"""Seconds within which not every request is answered: on a busy machine some take longer."""


@schemathesis.check
def refused_only_for_what_cannot_be(context: Any, response: Any, case: Any) -> None:
    """A request that fits the description and fails asks for what cannot be, or has hardly any time."""
    if case.meta is None or case.meta.generation.mode != GenerationMode.POSITIVE:
        return
    if response.status_code == 422:
        assert response.json()["code"] == "unusable", response.text
    if response.status_code == 504:
        assert case.body["time_limit"] < SHORT
