"""The answers of any method made closer, if that is asked for: `Explainer(refine=True)`.

The ends are polished as those of `geodesic` are. Where one moves, the way to it is straight in the latent space.
"""

from dataclasses import replace

import torch

from counterpath.search.candidates import Admissible, Candidates, Sources
from counterpath.search.ends import Ends
from counterpath.search.geodesic import ways
from counterpath.search.method import Problem
from counterpath.search.paths import Paths, merge
from counterpath.search.polish import polish


def refined(problem: Problem, paths: Paths) -> Paths:
    """The same with every counterfactual as close to its row as it can be while it is plausible, or no less so.

    Args:
        problem: The rows, and what they may become.
        paths: What a method found for them.
    """
    rows = paths.found.nonzero()[:, 0]
    if len(rows) == 0:
        return paths
    setup, ends = problem.setup, paths.x[paths.last]
    admissible = Admissible.of(problem)
    if setup.plausibility is not None:
        near = setup.plausibility.distance(ends[rows])
        admissible = replace(
            admissible, reach=admissible.reach.index_copy(0, rows, near.maximum(admissible.reach[rows]))
        )
    found = admissible.admit(ends[rows], rows)
    sources = Sources.of(setup.encoder, setup.rows, setup.probabilities)
    best: Candidates = polish(admissible, found, sources.coarse, should_stop=problem.options.should_stop)
    best = best.at((best.x != ends[best.row]).any(-1))
    if len(best) == 0:
        return paths
    everyone = torch.ones_like(best.row, dtype=torch.bool)
    straight = ways(problem.at(best.row), None, Ends(best.x, everyone, ~everyone, paths.implausible[best.row]))
    straight = replace(straight, fallback=paths.fallback[best.row])
    others = torch.ones_like(paths.found).index_fill(0, best.row, False).nonzero()[:, 0]
    return merge([(others, paths.select(others)), (best.row, straight)]) if len(others) else straight
