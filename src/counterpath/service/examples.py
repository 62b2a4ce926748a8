"""Failures as the service has returned them, for its description; `tests/service/test_examples.py` provokes each."""

import json
from importlib.resources import files
from typing import Any

EXAMPLES: dict[str, dict[str, Any]] = json.loads(
    files("counterpath.service").joinpath("examples.json").read_text(encoding="utf-8")
)
"""By their codes."""
