"""PPCEF: close to the row, accepted, and no less dense than half of the accepted rows are, under a normalizing flow.

It minimises over x', by Adam from the row x,

    ‖x' − x‖₂ + α( −log p(y' | x') + max(δ − log p(x' | y'), 0) ),

with δ the median log-density of training rows of the target y'. The paper's flow is conditioned on the class; ours is
not, and the density of the target class follows by Bayes, log p(x' | y') = log p(x') + log p(y' | x') − log p(y'),
with what the classifier itself says. Of the feasible rows on the way the best one is returned: valid, then of least
loss.

References:
    Wielopolski et al., "Probabilistically plausible counterfactual explanations with normalizing flows", ECAI 2024.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.models.flow import FlowModel
from counterpath.search.literature.ends import Best, Loss, gradient, target_loss
from counterpath.search.method import Method, Problem
from counterpath.search.paths import Paths
from counterpath.utils.devices import map_blocks
from counterpath.utils.errors import NotFittedError

WEIGHT = 100.0  # α, so that a row is accepted and dense before it is close; the paper's
LEARNING_RATE = 0.01  # of Adam, in ranges: 150 steps cross any row
_ROWS = 2000  # of accepted training rows, evenly spaced, whose median density is known to within a few percent of a nat


def log_density(flow: FlowModel) -> Callable[[Tensor], Tensor]:
    """log p(x) of rows under a flow."""
    return lambda x: flow.flow().log_prob(x)


class Ppcef(Method):
    """PPCEF.

    Args:
        weight: α.
        learning_rate: Of Adam.
    """

    name = "ppcef"
    description = "close to the row, and as dense as accepted rows are (PPCEF)"
    needs = frozenset({"flow"})
    chooses_features = False

    def __init__(self, weight: float = WEIGHT, learning_rate: float = LEARNING_RATE) -> None:
        self.weight, self.learning_rate = weight, learning_rate

    def search(self, problem: Problem) -> Paths:
        """The best feasible row that Adam visits."""
        best, feasible = Best.of(problem), problem.feasible
        loss = self.loss(problem)
        x = feasible.factual.clone().requires_grad_()
        optimizer = torch.optim.Adam([x], lr=self.learning_rate)
        for _ in range(problem.options.max_steps + 1):
            if best.should_stop:
                break
            with torch.no_grad():
                legal = feasible.legal(x.detach())
                best.offer_later(legal, map_blocks(loss, legal, feasible.factual))
            slope = map_blocks(lambda point, factual: gradient(loss, point, factual), x.detach(), feasible.factual)
            x.grad = slope.masked_fill(feasible.fixed, 0).nan_to_num(0.0, 0.0, 0.0)
            optimizer.step()
            x.data.clamp_(feasible.lower, feasible.upper)
        return best.paths()

    def loss(self, problem: Problem) -> Loss:
        """What is minimised.

        Raises:
            NotFittedError: There is no flow.
        """
        flow = problem.setup.models.flow
        if flow is None:
            raise NotFittedError(
                f"method {self.name!r} needs a flow, and none was fitted: fit one first, for instance with "
                f"Explainer(method={self.name!r}).fit(…)"
            )
        density, toward = log_density(flow), target_loss(problem)
        least = self.threshold(problem, density)

        def loss(x: Tensor, factual: Tensor) -> Tensor:
            missing = toward(x, factual)
            sparse = (least - (density(x) - missing)).clamp_min(0)
            away = (x - factual).square().sum(-1)
            # the plain norm has no gradient where the search starts
            near = torch.where(away > 0, torch.where(away > 0, away, 1).sqrt(), 0)
            return near + self.weight * (missing + sparse)

        return loss

    def threshold(self, problem: Problem, density: Callable[[Tensor], Tensor]) -> Float[Tensor, ""]:
        """δ + log p(y'): the median of log p(x) + log p(y' | x) over accepted training rows; −∞ without any."""
        setup = problem.setup
        rows = setup.rows[problem.accepted(setup.rows, setup.probabilities)]
        rows = rows[:: max(1, len(rows) // _ROWS)]
        if len(rows) == 0:
            return setup.rows.new_tensor(-torch.inf)
        toward = target_loss(problem)
        with torch.no_grad():
            return map_blocks(lambda x: density(x) - toward(x, x), rows).median()
