"""Figures of explanations, for files."""
