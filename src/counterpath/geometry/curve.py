"""Curves in a space with a metric: length, energy, and the geodesic between two points.

A curve is a polyline of points `(p, t, d)`, p curves at a time. A field gives the metric at any point, `(n, d) ->
(n, d, d)`; `metric_field` makes one from a latent model and a metric.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.geometry.metric import DAMPING, Linearization, Metric, damped
from counterpath.utils.errors import GeometryError, InputError

MetricField = Callable[[Tensor], Tensor]

_SUFFICIENT_DECREASE = 1e-4  # the usual constant of Armijo's rule (Nocedal and Wright, "Numerical Optimization")
_HALVINGS = 20  # to a millionth of the step; a curve that no such step shortens has converged


@dataclass(frozen=True)
class Geodesic:
    """Curves of least energy between fixed ends.

    Attributes:
        points: The curves, ends included.
        length: Their Riemannian length.
        converged: Which of them stopped because no step could lower the energy by more than the tolerance.
    """

    points: Float[Tensor, "p t d"]
    length: Float[Tensor, "p"]
    converged: Bool[Tensor, "p"]


def metric_field(linearize: Callable[[Tensor], Linearization], metric: Metric, damping: float = DAMPING) -> MetricField:
    """The field z ↦ M(z) + δI of a latent model's linearisation."""
    return lambda z: damped(metric(linearize(z)), damping)


def length(points: Float[Tensor, "p t d"], field: MetricField) -> Float[Tensor, "p"]:
    """∫ √(żᵀMż) dt, with M at the middle of each segment."""
    return _squared_lengths(points, field)[0].clamp_min(0).sqrt().sum(-1)


def segment_lengths(points: Float[Tensor, "p t d"], field: MetricField) -> Float[Tensor, "p s"]:
    """The Riemannian length of every segment."""
    return _squared_lengths(points, field)[0].clamp_min(0).sqrt()


def energy(points: Float[Tensor, "p t d"], field: MetricField) -> Float[Tensor, "p"]:
    """½ ∫ żᵀMż dt over unit time. Its minimisers are the geodesics, run through at constant speed."""
    segments = points.shape[1] - 1
    return 0.5 * segments * _squared_lengths(points, field)[0].sum(-1)


def geodesic(
    start: Float[Tensor, "p d"],
    end: Float[Tensor, "p d"],
    field: MetricField,
    *,
    segments: int = 32,
    steps: int = 100,
    tolerance: float = 1e-8,
    initial: Float[Tensor, "p t d"] | None = None,
) -> Geodesic:
    """The geodesic between pairs of points, by minimising the energy with the ends fixed.

    Every iteration solves for the curve of least energy with the metric frozen where the curve is now (a Gauss–Newton
    step: the Hessian without the metric's own derivative) and shortens that step until the true energy falls. Pairs
    are independent of each other. The result is a local minimum, the one that `initial` leads to.

    Args:
        start: Where the curves begin.
        end: Where they end.
        field: The metric, differentiable in its argument.
        segments: Into how many segments a curve is divided.
        steps: The most iterations.
        tolerance: A pair has converged when an iteration lowers its energy by less than this share.
        initial: Curves to begin with, ends included; straight lines by default.

    Raises:
        InputError: If there are too few segments.
        GeometryError: If the metric is not finite along the initial curve.
    """
    if segments < 2:
        raise InputError(f"a geodesic needs at least 2 segments to bend; given {segments}")
    times = torch.linspace(0, 1, segments + 1, dtype=start.dtype, device=start.device)[None, :, None]
    points = start[:, None] * (1 - times) + end[:, None] * times if initial is None else initial.clone()
    points[:, 0], points[:, -1] = start, end
    converged = torch.zeros(len(points), dtype=torch.bool, device=points.device)
    for _ in range(steps):
        value, gradient, hessian = _quadratic_model(points, field)
        if not bool(value.isfinite().all()):
            raise GeometryError("the metric is not finite along a curve; start from another curve or raise the damping")
        direction = (
            -torch.linalg.solve(hessian, gradient.to(hessian.dtype).flatten(1)).view_as(gradient).to(points.dtype)
        )
        slope = (gradient * direction).sum((1, 2))
        moved, after = _line_search(points, direction, value, slope, lambda trial: energy(trial, field), _HALVINGS)
        points = torch.where(converged[:, None, None], points, moved)
        converged = converged | (value - after <= tolerance * value.abs())
        if bool(converged.all()):
            break
    with torch.no_grad():
        return Geodesic(points, length(points, field), converged)


def resample(points: Float[Tensor, "p t d"], segments: int) -> Float[Tensor, "p s d"]:
    """The same polylines through points at equal distances along them, in coordinates; the ends stay."""
    if points.shape[1] == 1:
        return points.expand(-1, segments + 1, -1).clone()
    before = torch.cat([torch.zeros_like(points[:, :1, 0]), (points[:, 1:] - points[:, :-1]).norm(dim=-1)], 1).cumsum(1)
    total = before[:, -1:]
    targets = total * torch.linspace(0, 1, segments + 1, dtype=points.dtype, device=points.device)
    after = torch.searchsorted(before, targets, right=True).clamp(1, points.shape[1] - 1)
    first, last = before.gather(1, after - 1), before.gather(1, after)
    weight = torch.where(last > first, (targets - first) / (last - first), 1.0)[..., None]
    index = after[..., None].expand(-1, -1, points.shape[-1])
    found = torch.lerp(points.gather(1, index - 1), points.gather(1, index), weight)
    found[:, 0], found[:, -1] = points[:, 0], points[:, -1]
    return found


def relax(
    points: Float[Tensor, "p t d"],
    squares: Callable[[Tensor], Tensor],
    scale: Float[Tensor, "p d d"],
    *,
    steps: int,
    tries: int = 4,
) -> Float[Tensor, "p t d"]:
    """Curves with the same ends and less energy: a few steps from polylines towards geodesics.

    Where `geodesic` solves with the metric of every segment, this takes gradient steps, preconditioned as if the metric
    were one along the whole curve; a tenth of the work a step, and enough to pull a polyline straight.

    Args:
        points: The curves, ends included.
        squares: The squared length of every segment, `(p, t, d) -> (p, t − 1)`, differentiable.
        scale: A metric for each curve, positive definite.
        steps: How many steps.
        tries: How often a step is halved at most, until the energy falls; a curve for which it does not stays.
    """
    segments = points.shape[1] - 1
    if segments < 2:
        return points
    middle = 2 * torch.eye(segments - 1, dtype=scale.dtype, device=scale.device)
    beside = torch.ones(segments - 2, dtype=scale.dtype, device=scale.device)
    stiffness = middle - torch.diag(beside, 1) - torch.diag(beside, -1)
    inverse = torch.linalg.inv(stiffness) / segments
    for _ in range(steps):
        inner = points[:, 1:-1].detach().requires_grad_()
        with torch.enable_grad():
            value = 0.5 * segments * squares(torch.cat([points[:, :1], inner, points[:, -1:]], 1)).sum(-1)
            gradient = torch.autograd.grad(value.sum(), inner)[0].to(scale.dtype)
        direction = -torch.linalg.solve(scale[:, None], (inverse @ gradient)[..., None])[..., 0]
        slope = (gradient * direction).sum((1, 2))
        points = _line_search(
            points, direction, value.detach(), slope, lambda trial: 0.5 * segments * squares(trial).sum(-1), tries
        )[0]
    return points


def _squared_lengths(points: Tensor, field: MetricField) -> tuple[Tensor, Tensor]:
    """ΔᵀM(middle)Δ of every segment, and M(middle)."""
    difference = points[:, 1:] - points[:, :-1]
    middle = 0.5 * (points[:, 1:] + points[:, :-1])
    metric = field(middle.flatten(0, 1)).unflatten(0, middle.shape[:2])
    difference = difference.to(metric.dtype)
    return (difference[..., None, :] @ metric @ difference[..., None])[..., 0, 0], metric


def _quadratic_model(points: Tensor, field: MetricField) -> tuple[Tensor, Tensor, Tensor]:
    """Energy, its gradient by the inner points, and its Hessian for a frozen metric, as a dense matrix a pair."""
    pairs, count, size = points.shape
    inner = points[:, 1:-1].detach().requires_grad_()
    with torch.enable_grad():
        curve = torch.cat([points[:, :1], inner, points[:, -1:]], 1)
        squared, metric = _squared_lengths(curve, field)
        value = 0.5 * (count - 1) * squared.sum(-1)
        gradient = torch.autograd.grad(value.sum(), inner)[0]
    metric = metric.detach() * (count - 1)
    hessian = metric.new_zeros(pairs, count - 2, size, count - 2, size)
    index = torch.arange(count - 2, device=points.device)
    hessian[:, index, :, index, :] = (metric[:, :-1] + metric[:, 1:]).transpose(0, 1)
    before, after = index[:-1], index[1:]
    hessian[:, before, :, after, :] = -metric[:, 1:-1].transpose(0, 1)
    hessian[:, after, :, before, :] = -metric[:, 1:-1].transpose(0, 1)
    return value.detach(), gradient, hessian.flatten(3, 4).flatten(1, 2)


@torch.no_grad()
def _line_search(
    points: Tensor,
    direction: Tensor,
    value: Tensor,
    slope: Tensor,
    energies: Callable[[Tensor], Tensor],
    tries: int,
) -> tuple[Tensor, Tensor]:
    """Halve the step of every pair until its energy falls enough (Armijo); a pair that never gets there stays."""
    size = torch.ones_like(value)
    best, best_value = points, value
    found = torch.zeros_like(value, dtype=torch.bool)
    for _ in range(tries):
        trial = points.clone()
        trial[:, 1:-1] += size[:, None, None].to(points.dtype) * direction.to(points.dtype)
        trial_value = energies(trial)
        accepted = ~found & (trial_value <= value + _SUFFICIENT_DECREASE * size * slope)
        best = torch.where(accepted[:, None, None], trial, best)
        best_value = torch.where(accepted, trial_value, best_value)
        found = found | accepted
        if bool(found.all()):
            break
        size = torch.where(found, size, size / 2)
    return best, best_value
