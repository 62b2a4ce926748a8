"""Counterfactual explanations with realistic paths."""

__version__ = "0.1.0.dev0"
