"""Growing Spheres: the closest accepted row, by drawing in shells of growing radius around the row itself.

The ball around x is halved until it holds no accepted row; then shells of that width follow each other outwards until
one holds some, of which the closest is taken. Last, changes are put back, the smallest first, for as long as the row
stays accepted. Nothing is followed downhill, and nothing is known about the data.

What is drawn is the encoded row: a category changes where another of its columns has become the largest.

References:
    Laugel et al., "Comparison-based inverse classification for interpretability in machine learning", IPMU 2018.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.search.feasible import FeasibleSet
from counterpath.search.literature.ends import Best, grow_spheres
from counterpath.search.method import Method, Problem
from counterpath.search.paths import Paths

SAMPLES = 300  # of a shell: the paper draws 10,000, CARLA 1,000; a shell is as wide as the closest row is away
RADIUS = 0.2  # of the first ball, in ranges of a feature, as in CARLA
HALVINGS = 8  # down to a thousandth of a range, below which numbers are rounded
SHELLS = 40  # out to 8 ranges, where any row of up to 64 columns is


class GrowingSpheres(Method):
    """Growing Spheres.

    Args:
        samples: Points of a shell.
        radius: Of the first ball.
        shells: How many shells there are.
    """

    name = "growing-spheres"
    description = "the nearest accepted point of growing spheres around the row (Growing Spheres)"

    def __init__(self, samples: int = SAMPLES, radius: float = RADIUS, shells: int = SHELLS) -> None:
        self.samples, self.radius, self.shells = samples, radius, shells

    def search(self, problem: Problem) -> Paths:
        """The closest accepted row, with the smallest changes put back."""
        feasible, best = problem.feasible, Best.of(problem)

        def candidates(points: Tensor, row: Tensor) -> Tensor:
            return feasible.legal(points.clamp(feasible.lower[row], feasible.upper[row]), row)

        grow_spheres(
            best,
            feasible.factual,
            candidates,
            samples=self.samples,
            radius=self.radius,
            growths=self.shells,
            halvings=HALVINGS,
        )
        found = best.valid.nonzero()[:, 0]
        origin = feasible.origin[found]
        best.x[found] = fewer_changes(
            feasible.at(found), best.x[found], lambda x, row: problem.validator.is_valid(x, origin[row])
        )
        return best.paths()


def fewer_changes(
    feasible: FeasibleSet, end: Float[Tensor, "n D"], is_valid: Callable[[Tensor, Tensor], Tensor]
) -> Float[Tensor, "n D"]:
    """Ends with the smallest changes put back, one after the other, until the next would make a row invalid.

    Args:
        feasible: The rows, and what each may become.
        end: Where they end.
        is_valid: Which rows are valid, given them and to which row each belongs.
    """
    end, rows = end.clone(), torch.arange(len(end), device=end.device)
    going = torch.ones_like(rows, dtype=torch.bool)
    layout = feasible.encoder.layout
    for _ in layout:
        rows = going.nonzero()[:, 0]
        amounts = feasible.amounts(end[rows], rows)
        smallest, feature = torch.where(amounts > 0, amounts, torch.inf).min(1)
        rows, feature = rows[smallest < torch.inf], feature[smallest < torch.inf]
        back = feasible.columns(torch.nn.functional.one_hot(feature, len(layout)).bool())
        tried = feasible.settle(torch.where(back, feasible.factual[rows], end[rows]), rows)
        good = is_valid(tried, rows) & (tried != end[rows]).any(-1)
        end[rows[good]] = tried[good]
        going = torch.zeros_like(going).index_fill(0, rows[good], True)
    return end
