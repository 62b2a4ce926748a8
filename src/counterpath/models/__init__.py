"""Generative models and classifiers, and the one loop that trains them."""
