"""Riemannian metrics of a latent space, and the linear algebra they need.

A metric is a function `Linearization -> (n, d, d)`: a sum of FᵀAF over the Jacobian factors F of the model, where A is
the metric of the ambient space X. The metrics of the paper (Pegios et al., "Counterfactual Explanations via Riemannian
Latent Space Traversal", section 3):

| function | formula |
|---|---|
| `euclidean` | I |
| `pullback` | JμᵀJμ + JσᵀJσ (equation 2) |
| `guided` | JμᵀM_X(μ)Jμ + JσᵀM_X(μ)Jσ, with M_X = J_hᵀJ_h (equations 4 and 6, as printed) |
| `guided_diagonal` | JμᵀM_X(μ)Jμ + Jσᵀdiag(M_X(μ))Jσ |
| `guided_draw` | (Jμ + diag(ε)Jσ)ᵀM_X(μ + σ⊙ε)(Jμ + diag(ε)Jσ) (equation 5) |
| `guided_monte_carlo` | the mean of draws, with M_X frozen at μ or moving with the draw |
| `scaled_by_uncertainty` | (1 + σ̄/σ₀)²·M for any of them: empty space is expensive by its height |

The four that are guided take the classifier's representation h, a row-wise module X → H, and return a metric.

Metrics are float64 whatever the model computes in: where the uncertainty is steep one direction costs 10⁸ times
another, more than float32 can hold, and the d×d algebra is a negligible part of the work.

A linearisation is the value of a module and its Jacobian, in one pass. Tangents travel forward beside the value: a
batch of d tangent vectors per row, stored as `(d, n, features)`, so a linear layer is one matrix product for all of
them; `(d, 1, features)` as long as all rows have the same. `push` holds one closed-form rule a layer; a layer without a
rule is pushed through by `torch.func`, so any module works. A new layer registers its rule beside itself:

    >>> @push.register(MyLayer)
    ... def _(layer, value, tangents): ...
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce, singledispatch
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float64
from torch import Tensor, nn

from counterpath.geometry import kernels
from counterpath.geometry.ordered import Ordered
from counterpath.utils.devices import in_float32, kernels_usable
from counterpath.utils.errors import GeometryError, InputError


@dataclass(frozen=True)
class Linearization:
    """What one step needs to know about a latent model at n latent points.

    Attributes:
        mean: The decoded rows μ(z).
        mean_jac: Jμ, the derivative of `mean` by z.
        std: The decoder's uncertainty σ(z), where the model has one.
        std_jac: Jσ, the derivative of `std` by z.
        category: Which columns of `mean` are probabilities of categories; None for none.
        std_rank_one: v and g with Jσ = vgᵀ, for a model whose features get uncertain together; None for others.
        deviations: (J_k − Jμ)/√K of the K members of an ensemble, whose mean Jμ is; None for other models. With them
            JμᵀJμ + Σ_k (J_k − Jμ)ᵀ(J_k − Jμ)/K = E_k[J_kᵀJ_k], the expected pull-back metric of the ensemble.
        ordered: Which columns of `mean` have levels in an order, if they are not to be measured like numbers.
    """

    mean: Float[Tensor, "n D"]
    mean_jac: Float[Tensor, "n D d"]
    std: Float[Tensor, "n D"] | None = None
    std_jac: Float[Tensor, "n D d"] | None = None
    category: Bool[Tensor, "D"] | None = None
    std_rank_one: tuple[Float[Tensor, "n D"], Float[Tensor, "n d"]] | None = None
    deviations: Float[Tensor, "k n D d"] | None = None
    ordered: Ordered | None = None

    @property
    def jacobians(self) -> tuple[Tensor, ...]:
        """Jμ, and Jσ or those of an ensemble's members about Jμ, where there are any."""
        spread = () if self.std_jac is None else (self.std_jac,)
        return (self.mean_jac, *spread, *(() if self.deviations is None else self.deviations))

    @property
    def factors(self) -> tuple[Tensor, ...]:
        """The Jacobian factors F whose Gram matrices FᵀF add up to the pull-back metric.

        They are the `jacobians`, but for the rows of categories in the first one: a probability p is measured by
        Fisher and Rao's 2√p. A decoder that is sure of a category has a Jacobian close to 0 there; under the Euclidean
        metric such a category would cost nothing, and M⁻¹∇f would grow like 1/p(1 − p). Values with levels in an order
        are measured likewise where they are `ordered`.
        """
        speeds = self._speeds
        if speeds is None:
            return self.jacobians
        return (self.mean_jac * speeds[1][..., None], *self.jacobians[1:])

    @property
    def fisher_rao_factor(self) -> Tensor | None:
        """The rows of the first factor that belong to categories and to ordered values, or None."""
        speeds = self._speeds
        return None if speeds is None else self.mean_jac * (speeds[0] * speeds[1])[..., None]

    @property
    def _speeds(self) -> tuple[Bool[Tensor, "D"], Float[Tensor, "n D"]] | None:
        """Which columns are not measured like numbers, and by what the change of each is multiplied: 1/√p, say."""
        if self.category is None and self.ordered is None:
            return None
        chosen = torch.zeros(self.mean.shape[-1], dtype=torch.bool, device=self.mean.device)  # there may be no rows
        speeds = torch.ones_like(self.mean)
        if self.category is not None:
            least = torch.finfo(self.mean.dtype).tiny
            chosen, speeds = self.category, torch.where(self.category, torch.rsqrt(self.mean.clamp_min(least)), speeds)
        if self.ordered is not None:
            chosen = chosen.index_fill(0, self.ordered.columns, True)
            speeds = speeds.index_copy(1, self.ordered.columns, self.ordered.speed(self.mean))
        return chosen, speeds


@dataclass(frozen=True)
class Decoded:
    """What a latent model decodes n codes to: rows, and their uncertainty where it has one."""

    mean: Float[Tensor, "n D"]
    std: Float[Tensor, "n D"] | None = None

    def __getitem__(self, rows: Tensor) -> "Decoded":
        return Decoded(self.mean[rows], None if self.std is None else self.std[rows])

    @property
    def spread(self) -> Float[Tensor, "n"]:
        """σ̄, the uncertainty averaged over the features; 0 for a model that has none."""
        return torch.zeros_like(self.mean[:, 0]) if self.std is None else self.std.mean(-1)


def secant(
    before: Decoded, after: Decoded, category: Bool[Tensor, "D"] | None = None, ordered: Ordered | None = None
) -> Linearization:
    """Segments as their own linearisations: one column that holds differences instead of derivatives.

    So any metric gives the squared length of the segments, `(n, 1, 1)`, with the ambient metric at their middle, for
    the price of decoding their ends: ‖μ(b) − μ(a)‖² + ‖σ(b) − σ(a)‖² for the pull-back metric.
    """
    mean, mean_jac = 0.5 * (before.mean + after.mean), (after.mean - before.mean)[..., None]
    if before.std is None or after.std is None:
        return Linearization(mean, mean_jac, category=category, ordered=ordered)
    std, std_jac = 0.5 * (before.std + after.std), (after.std - before.std)[..., None]
    return Linearization(mean, mean_jac, std, std_jac, category, ordered=ordered)


def jacobian(
    module: Callable[[Tensor], Tensor], value: Float[Tensor, "n i"], tangents: Float[Tensor, "d #n i"] | None = None
) -> tuple[Float[Tensor, "n o"], Float[Tensor, "n o d"]]:
    """Value and Jacobian of a row-wise `module` by the closed-form rules of `push`.

    Args:
        module: A module, or any row-wise function.
        value: Where to linearise.
        tangents: Directions to differentiate along; by default the d = i coordinate axes.
    """
    return _rows_first(*push(module, value, axes(value) if tangents is None else tangents))


def jacobian_autodiff(
    function: Callable[[Tensor], Tensor], value: Float[Tensor, "n i"], tangents: Float[Tensor, "d #n i"] | None = None
) -> tuple[Float[Tensor, "n o"], Float[Tensor, "n o d"]]:
    """The same as `jacobian`, for any row-wise function, by `torch.func`."""
    return _rows_first(*push_autodiff(function, value, axes(value) if tangents is None else tangents))


def axes(value: Float[Tensor, "n i"], first: int | None = None) -> Float[Tensor, "d 1 i"]:
    """Tangents along the first `first` coordinate axes (by default all of them), the same for every row of `value`."""
    return torch.eye(value.shape[-1], dtype=value.dtype, device=value.device)[:first, None, :]


def push_autodiff(function: Callable[[Tensor], Tensor], value: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    """Push value and tangents through any row-wise function by batched forward-mode differentiation."""

    def along(tangent: Tensor) -> tuple[Tensor, Tensor]:
        out, pushed = torch.func.jvp(function, (value,), (tangent,))  # type: ignore[misc]
        return out, pushed

    each = tangents.expand(-1, len(value), -1)
    out, pushed = torch.func.vmap(along, out_dims=(None, 0))(each)  # type: ignore[arg-type]
    return out, pushed


@singledispatch
def push(layer: Any, value: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    """Push a value `(n, i)` and its tangents, `(d, n, i)` or `(d, 1, i)`, through a layer."""
    return push_autodiff(layer, value, tangents)


@push.register(nn.Sequential)
def _(layers: nn.Sequential, value: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    rest, linear = list(layers), _two_hidden_layers(layers)
    if linear and tangents.shape[1] == 1 < len(value) and _kernel_usable(linear, value):
        from counterpath.geometry.kernels import tangents as fused

        weights, biases = [layer.weight for layer in linear], [layer.bias for layer in linear]
        value, tangents = fused.push(weights, biases, value, tangents[:, 0], exact=in_float32())
        rest = rest[5:]
    for layer in rest:
        value, tangents = push(layer, value, tangents)
    return value, tangents


def _two_hidden_layers(layers: nn.Sequential) -> list[nn.Linear]:
    """The linear layers of a network that begins with two hidden layers of Tanh; none if it is another one."""
    first = list(layers)[:5]
    if [type(layer) for layer in first] != [nn.Linear, nn.Tanh, nn.Linear, nn.Tanh, nn.Linear]:
        return []
    return [layer for layer in first if isinstance(layer, nn.Linear)]


def _kernel_usable(linear: list[nn.Linear], value: Tensor) -> bool:
    """Whether a GPU can push through these layers at once."""
    return (
        value.dtype == torch.float32
        and linear[2].out_features <= kernels.WIDEST
        and all(layer.bias is not None for layer in linear)
        and kernels_usable(value, *(layer.weight for layer in linear))
    )


@push.register(nn.Identity)
def _(layer: nn.Identity, value: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    return value, tangents


@push.register(nn.Linear)
def _(layer: nn.Linear, value: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    return layer(value), F.linear(tangents, layer.weight)


@push.register(nn.BatchNorm1d)
def _(layer: nn.BatchNorm1d, value: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    if layer.training or layer.running_var is None:
        raise InputError("a BatchNorm layer in training mode mixes rows and has no row-wise Jacobian: call .eval()")
    scale = torch.rsqrt(layer.running_var + layer.eps)
    return layer(value), tangents * (scale if layer.weight is None else scale * layer.weight)


@push.register(nn.Tanh)
def _(layer: nn.Tanh, value: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    out = torch.tanh(value)
    return out, tangents * (1 - out * out)


@push.register(nn.Sigmoid)
def _(layer: nn.Sigmoid, value: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    out = torch.sigmoid(value)
    return out, tangents * (out * (1 - out))


@push.register(nn.Softplus)
def _(layer: nn.Softplus, value: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    return layer(value), tangents * torch.sigmoid(layer.beta * value)


@push.register(nn.Softmax)
def _(layer: nn.Softmax, value: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    if layer.dim not in (-1, 1):
        raise InputError(f"a row-wise Softmax works along the last dimension; given dim={layer.dim}, try dim=-1")
    out = torch.softmax(value, dim=-1)
    return out, out * (tangents - (out * tangents).sum(-1, keepdim=True))


def _rows_first(value: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    return value, tangents.expand(-1, len(value), -1).permute(1, 2, 0)


VJP = Callable[[Tensor], Tensor]
"""A vector-Jacobian product: maps a cotangent of a layer's output to one of its input."""


@singledispatch
def pull(layer: Any, value: Tensor) -> tuple[Tensor, VJP]:
    """The output of a row-wise layer, and its vector-Jacobian product: the transpose of `push`.

    Layers with closed-form rules take half the time of autograd, which does the same for all others.
    """
    with torch.enable_grad():
        value = value.detach().requires_grad_()
        out = layer(value)
    return out.detach(), lambda cotangent: torch.autograd.grad(out, value, cotangent)[0]


@pull.register(nn.Sequential)
def _(layers: nn.Sequential, value: Tensor) -> tuple[Tensor, VJP]:
    vjps = []
    for layer in layers:
        value, vjp = pull(layer, value)
        vjps.append(vjp)
    return value, lambda cotangent: reduce(lambda each, vjp: vjp(each), reversed(vjps), cotangent)


@pull.register(nn.Linear)
def _(layer: nn.Linear, value: Tensor) -> tuple[Tensor, VJP]:
    return layer(value), lambda cotangent: cotangent @ layer.weight


@pull.register(nn.Tanh)
def _(layer: nn.Tanh, value: Tensor) -> tuple[Tensor, VJP]:
    out = torch.tanh(value)
    return out, lambda cotangent: torch.addcmul(cotangent, cotangent * out, out, value=-1)


Metric = Callable[[Linearization], Tensor]
Representation = Callable[[Tensor], Tensor]

DAMPING = 1e-6
"""Added to the diagonal of every metric before it is inverted. An absolute number, relative to nothing: well below the
smallest eigenvalues that metrics of fitted models have (1 % of them are below 2e-5), so that it changes few steps."""

_UNROLLED_UP_TO = 8  # d²/2 operations on whole batches: beyond this size more than a library needs
_ELIMINATED_UP_TO = 32  # the widest latent spaces in use are half as wide; a row at a time it gets slow beyond


def capturable(size: int) -> bool:
    """Whether a CUDA graph can capture systems with metrics of this size; larger ones go to a library that waits."""
    return size <= _ELIMINATED_UP_TO


def euclidean(lin: Linearization) -> Float[Tensor, "n d d"]:
    """M = I: no geometry."""
    n, _, d = lin.mean_jac.shape
    return torch.eye(d, dtype=torch.float64, device=lin.mean.device).expand(n, d, d)


def pullback(lin: Linearization) -> Float[Tensor, "n d d"]:
    """M(z) = JμᵀJμ + JσᵀJσ: the expected pull-back of the Euclidean metric by a stochastic decoder."""
    return _sum(gram(factor) for factor in lin.factors)


def guided(h: Representation) -> Metric:
    """M̂(z) = JμᵀM_X(μ)Jμ + JσᵀM_X(μ)Jσ, the classifier-guided metric as the paper prints it.

    Where the model has categories or ordered values, their Fisher–Rao term is added: see `Linearization.factors`.
    """

    def metric(lin: Linearization) -> Float[Tensor, "n d d"]:
        parts = [factor.permute(2, 0, 1) for factor in lin.jacobians]
        if lin.std_rank_one is not None:
            parts[1] = lin.std_rank_one[0][None]  # Jσ = vgᵀ: one direction v instead of d of them
        pushed = push(h, lin.mean, torch.cat(parts))[1].permute(1, 2, 0)
        grams = [gram(part) for part in pushed.split([len(part) for part in parts], dim=-1)]
        if lin.std_rank_one is not None:
            g = lin.std_rank_one[1].double()
            grams[1] = grams[1] * g[:, :, None] * g[:, None, :]
        return _sum([*grams, *_fisher_rao(lin)])

    return metric


def guided_diagonal(h: Representation) -> Metric:
    """JμᵀM_X(μ)Jμ + Jσᵀdiag(M_X(μ))Jσ, the exact expectation for M_X frozen at μ.

    The noise of the features is independent, so E[diag(ε) M_X diag(ε)] = diag(M_X). The members of an ensemble
    deviate in all features together, so their part has the whole M_X.
    """

    def metric(lin: Linearization) -> Float[Tensor, "n d d"]:
        h_jac = jacobian(h, lin.mean)[1]
        weights = h_jac.square().sum(1).sqrt()
        noise = [] if lin.std_jac is None else [gram(weights[..., None] * lin.std_jac)]
        members = [] if lin.deviations is None else [gram(h_jac @ deviation) for deviation in lin.deviations]
        return _sum([gram(h_jac @ lin.mean_jac), *noise, *members, *_fisher_rao(lin)])

    return metric


def guided_draw(h: Representation, epsilon: Float[Tensor, "D"], *, frozen: bool = False) -> Metric:
    """The stochastic metric for one draw ε of the decoder's noise, the same for all rows.

    Args:
        h: The classifier's representation.
        epsilon: The draw; with one for a whole path, the path is on one sample of the random manifold.
        frozen: Evaluate M_X at μ rather than at μ + σ⊙ε.
    """

    def metric(lin: Linearization) -> Float[Tensor, "n d d"]:
        if lin.std is None or lin.std_jac is None:
            raise GeometryError(
                "a stochastic metric needs a model with an uncertainty σ(z); this one has none: use `guided`"
            )
        jac = lin.mean_jac + epsilon[:, None] * lin.std_jac
        x = lin.mean if frozen else lin.mean + epsilon * lin.std
        return _sum([gram(push(h, x, jac.permute(2, 0, 1))[1].permute(1, 2, 0)), *_fisher_rao(lin)])

    return metric


def guided_monte_carlo(h: Representation, epsilons: Float[Tensor, "k D"], *, frozen: bool = False) -> Metric:
    """The mean of `guided_draw` over k draws of ε."""
    draws = [guided_draw(h, epsilon, frozen=frozen) for epsilon in epsilons]
    return lambda lin: _sum(draw(lin) for draw in draws) / len(draws)


def scaled_by_uncertainty(metric: Metric, level: float) -> Metric:
    """(1 + σ̄(z)/σ₀)²·M(z), with σ̄ the mean of σ over the features: the metric of ∫√(żᵀMż)·(1 + σ̄/σ₀) dt.

    JσᵀJσ alone sees the slope of the uncertainty and not its height: a plateau of uncertainty costs nothing, however
    high it lies. Here a step costs twice as much where σ̄ = σ₀, and as much more as σ̄ is higher.

    Args:
        metric: Of a model with or without an uncertainty; without one nothing changes.
        level: σ₀, the uncertainty on the data.
    """

    def conformal(lin: Linearization) -> Float[Tensor, "n d d"]:
        if lin.std is None:
            return metric(lin)
        return (1 + lin.std.double().mean(-1) / level).square()[:, None, None] * metric(lin)

    return conformal


METRICS: dict[str, Callable[[Representation], Metric]] = {
    "euclidean": lambda h: euclidean,
    "pullback": lambda h: pullback,
    "guided": guided,
    "guided-diagonal": guided_diagonal,
}
"""The deterministic metrics by name, each built from the classifier's representation h."""


def gram(factor: Float[Tensor, "n D d"]) -> Float64[Tensor, "n d d"]:
    """FᵀF, accumulated in float64."""
    if kernels_usable(factor) and factor.shape[-1] <= kernels.MOST_AXES:
        from counterpath.geometry.kernels import small

        return small.gram(factor)
    wide = factor.double()
    return wide.mT @ wide


def damped(metric: Float[Tensor, "n d d"], damping: float = DAMPING) -> Float[Tensor, "n d d"]:
    """M + δI, positive definite for every positive semi-definite M."""
    return metric + damping * torch.eye(metric.shape[-1], dtype=metric.dtype, device=metric.device)


def volume(metric: Float[Tensor, "n d d"], floor: float = 0.0) -> Float[Tensor, "n"]:
    """The volume element √det M: how much space a unit of latent space holds. For `floor` see `cholesky`."""
    lower, positive = cholesky(metric, floor)
    _check_valid(positive)
    return torch.diagonal(lower, dim1=-2, dim2=-1).prod(-1)


def solve(metric: Float[Tensor, "n d d"], vector: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """M⁻¹v for every row; raises where M is not positive definite, and never returns NaN.

    Raises:
        GeometryError: If any metric is not positive definite or any number is not finite.
    """
    solution, valid = try_solve(metric, vector)
    _check_valid(valid)
    return solution


def try_solve(
    metric: Float[Tensor, "n d d"], vector: Float[Tensor, "n d"], floor: float = 0.0
) -> tuple[Float[Tensor, "n d"], Bool[Tensor, "n"]]:
    """M⁻¹v for every row, in the metric's precision, and for which rows it is valid. Invalid rows hold zeros."""
    if kernels_usable(metric, vector) and metric.dtype == torch.float64 and metric.shape[-1] <= kernels.MOST_AXES:
        from counterpath.geometry.kernels import small

        return small.solve(metric, vector, floor)
    vector = vector.to(metric.dtype)
    if metric.is_cuda and capturable(metric.shape[-1]):
        solution, valid = _eliminate(metric, vector, floor)
    else:
        solution, valid = _factorise(metric, vector, floor)
    valid = valid & solution.isfinite().all(-1)
    return torch.where(valid[:, None], solution, 0), valid


def _factorise(metric: Tensor, vector: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Solve Mr = v by LAPACK's factorisation, and where it fails, or a pivot is too small, by elimination."""
    lower, info = torch.linalg.cholesky_ex(metric)
    pivots = torch.diagonal(lower, dim1=-2, dim2=-1).square()
    good = (info == 0) & (pivots >= floor).all(-1)
    solution = torch.cholesky_solve(vector[..., None], lower)[..., 0]
    if bool(good.all()):
        return solution, good
    careful, valid = _eliminate(metric, vector, floor)
    return torch.where(good[:, None], solution, careful), good | valid


def cholesky(metric: Float[Tensor, "n d d"], floor: float = 0.0) -> tuple[Float[Tensor, "n d d"], Bool[Tensor, "n"]]:
    """The lower Cholesky factor, and for which rows the metric is positive definite.

    Small matrices are factorised by unrolled element-wise arithmetic: the batch is the vector dimension, nothing is
    synchronised with the host, and a GPU can capture it.

    Args:
        metric: Symmetric matrices.
        floor: A lower bound of every pivot that the caller knows of. Those of M + δI are at least δ for any positive
            semi-definite M, so a smaller one is a rounding error, and δ is closer to the truth.
    """
    if metric.shape[-1] > _UNROLLED_UP_TO:
        lower, info = torch.linalg.cholesky_ex(metric)
        return lower, (info == 0) & lower.isfinite().all((-2, -1))
    size = metric.shape[-1]
    rows: list[list[Tensor]] = []
    valid = torch.ones(len(metric), dtype=torch.bool, device=metric.device)
    for i in range(size):
        row: list[Tensor] = []
        for j in range(i):
            row.append((metric[:, i, j] - _dot(row, rows[j], j)) / rows[j][j])
        pivot = metric[:, i, i] - _dot(row, row, i)
        pivot = torch.where(pivot < floor, floor, pivot)
        valid = valid & (pivot > 0) & pivot.isfinite()
        rows.append([*row, torch.where(pivot > 0, pivot, 1).sqrt()])
    zero = torch.zeros_like(metric[:, 0, 0])
    return torch.stack([torch.stack([*row, *[zero] * (size - len(row))], -1) for row in rows], -2), valid


def _eliminate(metric: Tensor, vector: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Solve Mr = v by Gaussian elimination, and say where all pivots were positive.

    Pivots are those of Cholesky's factorisation, squared, and a positive definite matrix needs no others. The rows of
    the batch are the last dimension, so that every operation runs over many numbers that lie side by side.
    """
    size = metric.shape[-1]
    system = torch.cat([metric, vector[..., None]], dim=-1).permute(1, 2, 0).contiguous()
    valid = torch.ones_like(vector[:, 0], dtype=torch.bool)
    for i in range(size):
        pivot = torch.where(system[i, i] < floor, floor, system[i, i])
        valid = valid & (pivot > 0) & pivot.isfinite()
        system[i, i] = torch.where(pivot > 0, pivot, 1)
        ratio = system[i + 1 :, i] / system[i, i]
        system[i + 1 :, i + 1 :] -= ratio[:, None] * system[i, i + 1 :]
    for i in reversed(range(size)):
        known = (system[i, i + 1 : size] * system[i + 1 :, size]).sum(0)
        system[i, size] = (system[i, size] - known) / system[i, i]
    return system[:, size].T, valid


def _dot(left: list[Tensor], right: list[Tensor], count: int) -> Tensor | float:
    total: Tensor | float = 0.0
    for index in range(count):
        total = total + left[index] * right[index]
    return total


def _sum(parts: Iterable[Tensor]) -> Tensor:
    return reduce(torch.add, parts)


def _fisher_rao(lin: Linearization) -> list[Tensor]:
    factor = lin.fisher_rao_factor
    return [] if factor is None else [gram(factor)]


def _check_valid(valid: Tensor) -> None:
    if not bool(valid.all()):
        bad = (~valid).nonzero()[:, 0].tolist()
        raise GeometryError(
            f"the metric is not positive definite or not finite in {len(bad)} of {len(valid)} rows "
            f"(first: row {bad[0]}); add damping, for instance damped(metric, {DAMPING:g}), or a larger one"
        )
