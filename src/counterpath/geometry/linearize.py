"""The value of a module and its Jacobian, in one pass.

Tangents travel forward beside the value: a batch of d tangent vectors per row, stored as `(d, n, features)`, so that a
linear layer is one matrix product for all of them; `(d, 1, features)` as long as all rows have the same. `push` holds
one closed-form rule a layer; a layer without a rule is pushed through by `torch.func`, so any module works. A new layer
registers its rule beside itself:

    >>> @push.register(MyLayer)
    ... def _(layer, value, tangents): ...
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce, singledispatch
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from counterpath.geometry import kernels
from counterpath.utils.errors import InputError


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
    """

    mean: Float[Tensor, "n D"]
    mean_jac: Float[Tensor, "n D d"]
    std: Float[Tensor, "n D"] | None = None
    std_jac: Float[Tensor, "n D d"] | None = None
    category: Bool[Tensor, "D"] | None = None
    std_rank_one: tuple[Float[Tensor, "n D"], Float[Tensor, "n d"]] | None = None

    @property
    def jacobians(self) -> tuple[Tensor, ...]:
        """Jμ, and Jσ where there is one."""
        return (self.mean_jac,) if self.std_jac is None else (self.mean_jac, self.std_jac)

    @property
    def factors(self) -> tuple[Tensor, ...]:
        """The Jacobian factors F whose Gram matrices FᵀF add up to the pull-back metric.

        They are the `jacobians`, but for the rows of categories in the first one: a probability p is measured by
        Fisher and Rao's 2√p. A decoder that is sure of a category has a Jacobian close to 0 there; under the Euclidean
        metric such a category would cost nothing, and M⁻¹∇f would grow like 1/p(1 − p).
        """
        if self.category is None:
            return self.jacobians
        return (torch.where(self.category[:, None], self._fisher_rao, self.mean_jac), *self.jacobians[1:])

    @property
    def category_factor(self) -> Tensor | None:
        """The rows of the first factor that belong to categories, or None."""
        return None if self.category is None else self._fisher_rao * self.category[:, None]

    @property
    def _fisher_rao(self) -> Tensor:
        """∂(2√p)/∂z = Jμ/√p."""
        return self.mean_jac * torch.rsqrt(self.mean.clamp_min(torch.finfo(self.mean.dtype).tiny))[..., None]


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


def secant(before: Decoded, after: Decoded, category: Bool[Tensor, "D"] | None = None) -> Linearization:
    """Segments as their own linearisations: one column that holds differences instead of derivatives.

    So any metric gives the squared length of the segments, `(n, 1, 1)`, with the ambient metric at their middle, for
    the price of decoding their ends: ‖μ(b) − μ(a)‖² + ‖σ(b) − σ(a)‖² for the pull-back metric.
    """
    mean, mean_jac = 0.5 * (before.mean + after.mean), (after.mean - before.mean)[..., None]
    if before.std is None or after.std is None:
        return Linearization(mean, mean_jac, category=category)
    std, std_jac = 0.5 * (before.std + after.std), (after.std - before.std)[..., None]
    return Linearization(mean, mean_jac, std, std_jac, category)


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
        value, tangents = fused.push(weights, biases, value, tangents[:, 0], exact=kernels.in_float32())
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
        and kernels.usable(value, *(layer.weight for layer in linear))
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
