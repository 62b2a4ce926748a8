"""One step of a search: the slope at a point, and how far to go."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.geometry.metric import Metric, damped, euclidean, try_solve
from counterpath.models.latent import LatentModel
from counterpath.search.feasible import StepConstraints
from counterpath.search.objective import Evaluation, Objective

StepRule = Callable[[Tensor, Tensor], Tensor]
"""Scales a direction r `(n, d)`, given ∇f `(n, d)`, to a step of unit size; the search multiplies it by η."""


@dataclass(frozen=True)
class Slope:
    """What is known at n latent points before the step.

    Attributes:
        x: The decoded rows.
        loss: f(z).
        probability: Of the target.
        sigma: The decoder's uncertainty, averaged over the features; 0 for models that have none.
        gradient: ∇f, by z.
        direction: r = M⁻¹∇f, in the metric's precision; zero in rows where it is not valid.
        valid: Where the metric could be inverted and everything is finite.
        step_constraints: What these steps have to respect, if anything.
    """

    x: Float[Tensor, "n D"]
    loss: Float[Tensor, "n"]
    probability: Float[Tensor, "n"]
    sigma: Float[Tensor, "n"]
    gradient: Float[Tensor, "n d"]
    direction: Float[Tensor, "n d"]
    valid: Bool[Tensor, "n"]
    step_constraints: StepConstraints | None = None


def slope(
    model: LatentModel,
    metric: Metric,
    objective: Objective,
    z: Float[Tensor, "n d"],
    factual: Float[Tensor, "n D"],
    context: Float[Tensor, "n c"] | None,
    damping: float,
    constraints: StepConstraints | None = None,
) -> Slope:
    """Decode, evaluate and point downhill, with a single linearisation of the model."""
    if metric is euclidean and (constraints is None or constraints.bounded is None):
        return _plain_slope(model, objective, z, factual, context, constraints)
    lin = model.linearize(z, context)
    if constraints is None:
        x, unclipped, jac = lin.mean, lin.mean, lin.mean_jac
    else:
        unclipped = constraints.add_residual(lin.mean)
        x, jac = constraints.clip(unclipped), constraints.residual_jacobian(lin.mean, unclipped, lin.mean_jac)
    here = objective.evaluate(x, factual)
    pull = here.gradient if constraints is None else constraints.add_change_cost(x, here.gradient)
    gradient = (pull[..., None] * jac).sum(1)
    stiff = damped(metric(lin), damping)
    direction, valid = try_solve(stiff, gradient, floor=damping)
    if constraints is not None:
        direction = constraints.project(direction, stiff, damping, gradient, unclipped, jac)
    return _slope(x, here, lin.std, gradient.to(direction.dtype), direction, valid, constraints)


def _plain_slope(
    model: LatentModel,
    objective: Objective,
    z: Tensor,
    factual: Tensor,
    context: Tensor | None,
    constraints: StepConstraints | None,
) -> Slope:
    """The same for M = I, which needs no Jacobian: one vector–Jacobian product is cheaper."""
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        decoded = model.decode(z, context)
        unclipped = decoded if constraints is None else constraints.add_residual(decoded)
        x = unclipped.detach() if constraints is None else constraints.clip(unclipped.detach())
        here = objective.evaluate(x, factual)
        gradient = torch.autograd.grad(unclipped, z, here.gradient)[0]
    std = model.uncertainty(z.detach(), context)
    return _slope(x, here, std, gradient, gradient, gradient.isfinite().all(-1), constraints)


def _slope(
    x: Tensor,
    here: Evaluation,
    std: Tensor | None,
    gradient: Tensor,
    direction: Tensor,
    valid: Tensor,
    constraints: StepConstraints | None,
) -> Slope:
    sigma = torch.zeros_like(here.loss) if std is None else std.mean(-1)
    valid = valid & here.loss.isfinite() & sigma.isfinite()
    direction = torch.where(valid[:, None], direction, 0)
    return Slope(x, here.loss, here.probability, sigma, gradient, direction, valid, constraints)


def euclidean_length(direction: Float[Tensor, "n d"], gradient: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """r / ‖r‖₂: the paper's step, of unit length in latent coordinates (equation 3)."""
    return _divide(direction, direction.norm(dim=-1))


def riemannian_length(direction: Float[Tensor, "n d"], gradient: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """r / √(rᵀMr): a step of unit length under the metric, the same in any latent coordinates.

    Because Mr = ∇f, the squared length rᵀMr is rᵀ∇f.
    """
    return _divide(direction, (direction * gradient).sum(-1).clamp_min(0).sqrt())


STEP_RULES: dict[str, StepRule] = {"euclidean": euclidean_length, "riemannian": riemannian_length}
"""The step rules by name, as `Descent(step_rule=…)` takes them."""


def _divide(direction: Tensor, size: Tensor) -> Tensor:
    zero = size == 0
    return torch.where(zero[:, None], 0, direction / torch.where(zero, 1, size)[:, None])
