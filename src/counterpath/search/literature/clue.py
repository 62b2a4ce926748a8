"""CLUE: to where the classifier is certain, in the latent space of a generative model.

CLUE asks what would have to change for a model to be certain. With the entropy H of what the classifier says, it
minimises over codes z

    H(y | μ(z)) + ‖μ(z) − x‖₁/D.

By itself it goes to whichever class is nearer. For a counterfactual of a given class the original code adds the
distance of the prediction from the desired one, here −log p of the target. The classifier is one network and not a
Bayesian one, so that all of H is what the paper calls aleatoric. A regressor says no probabilities: there H is 0.

References:
    Antorán et al., "Getting a CLUE: a method for explaining uncertainty estimates", ICLR 2021.
"""

import torch
from torch import Tensor

from counterpath.search.literature.ends import Best, descend_codes, target_loss
from counterpath.search.method import Method, Problem
from counterpath.search.objective import NumberTarget
from counterpath.search.paths import Paths
from counterpath.search.residual import ResidualDecoder

LEARNING_RATE = 0.1  # of Adam on codes, as for the paper's tables


def entropy(probabilities: Tensor) -> Tensor:
    """H = −Σ p·log p of every row."""
    parts: Tensor = torch.special.entr(probabilities)
    return parts.sum(-1)


class Clue(Method):
    """CLUE, towards the target.

    Args:
        learning_rate: Of Adam.
    """

    name = "clue"
    description = "to where the model is certain, in the latent space (CLUE)"
    chooses_features = False

    def __init__(self, learning_rate: float = LEARNING_RATE) -> None:
        self.learning_rate = learning_rate

    def search(self, problem: Problem) -> Paths:
        """The accepted row of least loss that Adam visits."""
        decoder = ResidualDecoder.of(problem.setup.latent, problem.feasible, generative=True, keep_residual=False)
        toward, best, classifier = target_loss(problem), Best.of(problem), problem.setup.models.classifier
        uncertain = not isinstance(problem.target, NumberTarget)

        def loss(x: Tensor, factual: Tensor) -> Tensor:
            total = toward(x, factual) + (x - factual).abs().mean(-1)
            return total + entropy(problem.target.said(classifier, x)) if uncertain else total

        descend_codes(best, decoder.model, decoder.start, decoder.context, loss, learning_rate=self.learning_rate)
        return best.paths()
