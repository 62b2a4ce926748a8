"""REVISE: downhill in the latent space of a generative model, close to the row.

With the decoder μ, the classifier's probability p of the target and the factual row x, REVISE minimises over codes z

    −log p(μ(z)) + λ‖μ(z) − x‖₁,

by Adam from the code of x, and returns the accepted row of least loss. As CARLA runs it, the rate of Adam is 0.1 and
λ is 0.5. It differs from `sgd` in that: steps of Adam, a price on distance, and the best row of all instead of the
first.

References:
    Joshi et al., "Towards realistic individual recourse and actionable explanations in black-box decision making
    systems", 2019.
"""

from torch import Tensor

from counterpath.search.literature.ends import Best, descend_codes, target_loss
from counterpath.search.method import Method, Problem
from counterpath.search.paths import Paths
from counterpath.search.residual import ResidualDecoder

LEARNING_RATE, DISTANCE_WEIGHT = 0.1, 0.5
"""Those of CARLA's implementation."""


class Revise(Method):
    """REVISE.

    Args:
        learning_rate: Of Adam.
        distance_weight: λ.
    """

    name = "revise"
    description = "downhill in the latent space at a price on distance (REVISE)"
    chooses_features = False

    def __init__(self, learning_rate: float = LEARNING_RATE, distance_weight: float = DISTANCE_WEIGHT) -> None:
        self.learning_rate, self.distance_weight = learning_rate, distance_weight

    def search(self, problem: Problem) -> Paths:
        """The accepted row of least loss that Adam visits."""
        decoder = ResidualDecoder.of(problem.setup.latent, problem.feasible, generative=True, keep_residual=False)
        toward, best = target_loss(problem), Best.of(problem)
        weights = problem.setup.weights.square()

        def loss(x: Tensor, factual: Tensor) -> Tensor:
            return toward(x, factual) + self.distance_weight * (weights * (x - factual).abs()).sum(-1)

        descend_codes(best, decoder.model, decoder.start, decoder.context, loss, learning_rate=self.learning_rate)
        return best.paths()
