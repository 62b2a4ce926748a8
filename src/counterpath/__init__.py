"""Counterfactual explanations with realistic paths."""

import counterpath.waiting  # noqa: F401  # isort: skip: it comes before torch
from counterpath.data import Encoder, Feature, Schema, datasets
from counterpath.errors import CounterpathError, CounterpathWarning, InputError
from counterpath.explainer import Explainer
from counterpath.explanation import Explanation, Status

__version__ = "0.1.0.dev0"
load = Explainer.load

__all__ = [
    "CounterpathError",
    "CounterpathWarning",
    "Encoder",
    "Explainer",
    "Explanation",
    "Feature",
    "InputError",
    "Schema",
    "Status",
    "__version__",
    "datasets",
    "load",
]
