"""How an explanation was made, so that it can be made again: when, with what, how fast, and what was asked for."""

import platform
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from importlib.metadata import version
from typing import Any

from counterpath.data.constraints import CONSTRAINTS
from counterpath.explanation import wording

LIBRARIES = ("torch", "numpy", "pandas", "scikit-learn")
"""What answers may depend on, beside Counterpath itself."""

REQUEST_MEANINGS = {
    "method": "how to search",
    "target_class": "the wanted decision; other is any but the present one",
    "confidence": "what its probability must reach",
    "plans": "how many counterfactuals each person may have",
    "plan": "which of them is shown",
    "paths": "how much of each path is kept",
    "time_limit": "how long to search at most",
    **{name: kind.meaning for name, kind in CONSTRAINTS.items()},
    "model": "the model under explanation",
    "seed": "of all randomness",
    "max_steps": "the most steps of a search",
    "step_size": "length of a step in the latent space",
    "damping": "added to the diagonal of the metric",
    "sparsify": "redundant changes are put back",
    "keep_residual": "what the generative model does not reproduce of a row is kept along its path",
    "fallback": "a search that is stuck goes to the nearest point that the model accepts",
    "fidelity": "how much staying close weighs in the search",
    "refine": "a geodesic ends as close to the person as it can",
    "allow_copies": "a counterfactual may be equal to a training row",
    "tf32": "products are rounded while searching on a GPU",
    "representation_layer": "the layer that stands for what the model sees",
    "ambient_metric": "what steps are measured by",
    "uncertainty_cost": "steps cost more where the model is unsure",
}
"""What the parts of a request mean, for people who did not write it."""


def record(started: float) -> dict[str, Any]:
    """The provenance of something that was begun at a time of `time.monotonic`, and is done now."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - started, 3),
        "versions": versions(),
    }


@cache
def versions() -> dict[str, str]:
    """Of Counterpath, of Python, and of what answers may depend on."""
    return {
        "counterpath": import_module("counterpath").__version__,  # is still being imported when this module is
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
    }


def describe(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """When, how fast and with which versions, as far as it is known: names and values."""
    known = [(name, str(provenance[name])) for name in ("date", "seconds") if name in provenance]
    used = ", ".join(f"{name} {number}" for name, number in provenance.get("versions", {}).items())
    return [*known, *([("versions", used)] if used else [])]


def describe_request(request: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What was asked for, and not what was left open: the name, the value and the meaning of each part."""
    asked = {name: value for name, value in request.items() if value is not None and value != [] and value != {}}
    return [(name, _text(value), REQUEST_MEANINGS.get(name, "")) for name, value in asked.items()]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_text(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(wording.value(each) for each in value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else wording.value(value)
