"""Explainer: fit it to a table and a model, ask it about rows, keep it in a directory."""

from counterpath.explainer.compare import Comparison, compare
from counterpath.explainer.explainer import Explainer

__all__ = ["Comparison", "Explainer", "compare"]
