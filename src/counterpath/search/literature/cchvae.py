"""C-CHVAE: growing spheres in the latent space of a conditional generative model.

Around the code of the row, codes are drawn in shells of growing radius; each is decoded, given what is immutable, and
of the first shell in which the model accepts one the closest row is taken:

    min over r of r  such that some z with r ≤ ‖z − z(x)‖ < r + δ has c(μ(z | x_immutable)) ≥ ½.

Nothing is followed downhill, so that any model can be explained. All rows share the directions that are drawn.

References:
    Pawelczyk, Broelemann and Kasneci, "Learning model-agnostic counterfactual explanations for tabular data", WWW 2020.
"""

import torch
from torch import Tensor

from counterpath.search.literature.ends import Best, grow_spheres
from counterpath.search.method import Method, Problem
from counterpath.search.paths import Paths
from counterpath.search.residual import ResidualDecoder

SAMPLES = 100
"""Of a shell. CARLA draws 300; in five latent dimensions a third of that finds an answer in the
same shell or the next."""
STEP = 0.25
"""The width of a shell, in units in which codes have a standard deviation of about 1."""
SHELLS = 30
"""Out to 7.5, beyond all codes of training rows."""


class CCHVAE(Method):
    """C-CHVAE.

    Args:
        samples: Codes of a shell.
        step: δ, the width of a shell.
        shells: How many there are.
    """

    name = "cchvae"
    description = "the nearest accepted row that is decoded near the row's code (C-CHVAE)"
    chooses_features = False

    def __init__(self, samples: int = SAMPLES, step: float = STEP, shells: int = SHELLS) -> None:
        self.samples, self.step, self.shells = samples, step, shells

    def search(self, problem: Problem) -> Paths:
        """The closest accepted row of the first shell that has one."""
        decoder = ResidualDecoder.of(problem.setup.latent, problem.feasible, generative=True, keep_residual=False)
        best = Best.of(problem)

        def candidates(codes: Tensor, row: Tensor) -> Tensor:
            return decoder.decode(codes, row)

        with torch.no_grad():
            grow_spheres(best, decoder.start, candidates, samples=self.samples, radius=self.step, growths=self.shells)
        return best.paths()
