"""Objectives, steps, and the one loop that searches."""
