"""Methods of the literature, each from its paper in a file of its own, under the same feasible set as all others."""
