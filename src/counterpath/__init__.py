"""Counterfactual explanations with realistic paths."""

from counterpath.data import datasets

__version__ = "0.1.0.dev0"
__all__ = ["__version__", "datasets"]
