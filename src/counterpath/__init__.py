"""Counterfactual explanations with realistic paths."""

import counterpath.utils.threads  # noqa: F401  # isort: skip: it comes before torch
from counterpath.data import Encoder, Feature, Schema, datasets
from counterpath.explainer.explainer import Explainer
from counterpath.explanation import Explanation, StatusCode
from counterpath.utils.errors import CounterpathError, CounterpathWarning, InputError

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
    "StatusCode",
    "__version__",
    "datasets",
    "load",
]
