"""How uncertain a decoder is about what it makes of a code: estimates that can be exchanged for one another.

| name | what the spread of a decoded row comes from | in the metric |
|---|---|---|
| `rbf` | a precision that is high near the codes of training rows (`RBFPrecision`; the paper's) | JσᵀJσ |
| `ensemble` | several decoders of one encoder, which disagree off the data (`Ensemble`) | E_k[(J_k − Jμ)ᵀ(J_k − Jμ)] |
| `laplace` | the posterior of the last layer's weights, given the training rows (`LastLayerLaplace`) | JσᵀJσ |

Each is a module that a VAE keeps beside its decoder. It says what codes are decoded as (the mean, which for an ensemble
is that of its members), how uncertain that is, and how both change: one `Linearization`, so that every metric and every
method works with each of them. `fit_uncertainty` in `models.vae` fits them all.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from counterpath.geometry.metric import Linearization, jacobian, push, push_autodiff
from counterpath.models.layers import RBFPrecision, TableOutput
from counterpath.utils.errors import InputError, NotFittedError, choose

MEMBERS = 5
"""Decoders of an ensemble, the VAE's own among them. A step costs as many times as much; of five members the spread is
known to a third of itself, and the gain beyond is small (Lakshminarayanan, Pritzel and Blundell, NeurIPS 2017)."""
_PRIORS = torch.logspace(-4, 6, 101, dtype=torch.float64)
"""Prior precisions τ of the last layer's weights among which the marginal likelihood chooses: a tenth of a decade
apart, from weights of a hundred to weights of a thousandth."""


@runtime_checkable
class Uncertainty(Protocol):
    """What a VAE needs of an estimate of its decoder's uncertainty; `point` is a code, with its context behind it."""

    def decode(self, decoder: nn.Sequential, point: Tensor) -> Tensor:
        """What codes are decoded as."""
        ...

    def std(self, decoder: nn.Sequential, point: Tensor) -> Tensor:
        """σ of every feature."""
        ...

    def linearize(self, decoder: nn.Sequential, point: Tensor, tangents: Tensor) -> Linearization:
        """Both, and how they change along tangents."""
        ...


class RBF(RBFPrecision):
    """The paper's: σ = γ^(−1/2) with γ high near the codes of training rows, and the decoder's own mean."""

    def decode(self, decoder: nn.Sequential, point: Float[Tensor, "n i"]) -> Float[Tensor, "n D"]:
        """μ."""
        return decoder(point)  # type: ignore[no-any-return]

    def std(self, decoder: nn.Sequential, point: Float[Tensor, "n i"]) -> Float[Tensor, "n D"]:
        """σ."""
        return self(point)  # type: ignore[no-any-return]

    def linearize(
        self, decoder: nn.Sequential, point: Float[Tensor, "n i"], tangents: Float[Tensor, "d #n i"]
    ) -> Linearization:
        """μ and σ with their Jacobians."""
        std, std_jac, rank_one = self.linearize_std(point, tangents)
        return Linearization(*jacobian(decoder, point, tangents), std, std_jac, std_rank_one=rank_one)


class Ensemble(nn.Module):
    """Several decoders of one encoder: where they were not trained on the same rows, they disagree.

    The mean is that of the members f_k, σ their standard deviation, and the metric is the expected pull-back metric
    E_k[J_kᵀJ_k] = JμᵀJμ + E_k[(J_k − Jμ)ᵀ(J_k − Jμ)]. Its second part sees more than the slope of σ: where all members
    go their own ways at one distance from each other, σ is level, and the metric is large all the same.

    Args:
        decoder: The VAE's own, the first member.
        members: How many members there are.

    References:
        Syrota, Moreno-Muñoz and Hauberg, "Decoder ensembling for learned latent geometries", 2024.
    """

    def __init__(self, decoder: nn.Sequential, members: int = MEMBERS) -> None:
        super().__init__()
        if members < 2:
            raise InputError(f"an ensemble needs at least two members to disagree; given {members}")
        self.others = nn.ModuleList(copy.deepcopy(decoder) for _ in range(members - 1))
        for layer in self.others.modules():
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()

    def members(self, decoder: nn.Sequential) -> list[nn.Module]:
        """All members, the VAE's own decoder first."""
        return [decoder, *self.others]

    def decode(self, decoder: nn.Sequential, point: Float[Tensor, "n i"]) -> Float[Tensor, "n D"]:
        """The mean of what the members make of a code."""
        return self._values(decoder, point).mean(0)

    def std(self, decoder: nn.Sequential, point: Float[Tensor, "n i"]) -> Float[Tensor, "n D"]:
        """The standard deviation of what the members make of a code."""
        return _spread(self._values(decoder, point))

    def linearize(
        self, decoder: nn.Sequential, point: Float[Tensor, "n i"], tangents: Float[Tensor, "d #n i"]
    ) -> Linearization:
        """Mean and standard deviation of the members, and their Jacobians about their mean."""
        values, jacobians = zip(*(jacobian(member, point, tangents) for member in self.members(decoder)), strict=True)
        value, jac = torch.stack(values), torch.stack(jacobians)
        mean_jac = jac.mean(0)
        deviations = (jac - mean_jac) * len(jac) ** -0.5
        return Linearization(value.mean(0), mean_jac, _spread(value), deviations=deviations)

    def _values(self, decoder: nn.Sequential, point: Tensor) -> Float[Tensor, "k n D"]:
        return torch.stack([member(point) for member in self.members(decoder)])


def _spread(values: Float[Tensor, "k n D"]) -> Float[Tensor, "n D"]:
    """The standard deviation over the first dimension, with a derivative where all are equal."""
    return (values - values.mean(0)).square().mean(0).clamp_min(torch.finfo(values.dtype).tiny).sqrt()


class LastLayerLaplace(nn.Module):
    """The Laplace approximation of the decoder's last linear layer.

    The weights of output j, bias included, have the posterior N(w_j, (g_j A + τI)⁻¹) with A = Σφφᵀ over training rows,
    φ what the layer sees of a code, g_j how much a row tells about them, and the prior precision τ from the marginal
    likelihood. With A = QΛQᵀ the variance of an output before its activation s is Σ_i (qᵢᵀφ)²/(g_jλ_i + τ), and
    σ_j = s'·√variance: what a linearised activation makes of it.

    Args:
        width: What the last linear layer sees, without the bias.
        outputs: Number of features.

    References:
        Daxberger et al., "Laplace redux: effortless Bayesian deep learning", NeurIPS 2021.
    """

    directions: Tensor
    curvature: Tensor
    gain: Tensor
    prior: Tensor

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("directions", torch.full((width + 1, width + 1), torch.nan))
        self.register_buffer("curvature", torch.full((width + 1,), torch.nan))
        self.register_buffer("gain", torch.full((outputs,), torch.nan))
        self.register_buffer("prior", torch.full((), torch.nan))
        self._fitted = False

    @torch.no_grad()
    def fit(
        self, decoder: nn.Sequential, point: Float[Tensor, "n i"], noise: Float[Tensor, "D"], category: Any
    ) -> None:
        """Fit the posterior.

        Args:
            decoder: The decoder.
            point: Codes of training rows, with their context.
            noise: Standard deviation of what it gets wrong, by feature.
            category: Which columns are probabilities of categories, with Fisher information p(1 − p); None for none.
        """
        body, last, output = split_decoder(decoder)
        seen = _with_bias(body(point))
        curvature, directions = torch.linalg.eigh((seen.double().mT @ seen.double()).cpu())
        activation = last(body(point))
        slope = _slope(output, activation)
        gain = (slope.square() / noise.square()).double().mean(0)
        if category is not None:
            probability = decoder(point)
            gain = torch.where(category, (probability * (1 - probability)).double().mean(0), gain)
        weights = torch.cat([last.weight, last.bias[:, None]], -1).double()
        self.directions.copy_(directions)
        self.curvature.copy_(curvature.clamp_min(0))
        self.gain.copy_(gain.clamp_min(torch.finfo(gain.dtype).tiny))
        self.prior.copy_(best_prior(self.curvature.double(), self.gain.double(), weights.square().sum()))

    def decode(self, decoder: nn.Sequential, point: Float[Tensor, "n i"]) -> Float[Tensor, "n D"]:
        """μ."""
        return decoder(point)  # type: ignore[no-any-return]

    def std(self, decoder: nn.Sequential, point: Float[Tensor, "n i"]) -> Float[Tensor, "n D"]:
        """σ."""
        body, last, output = split_decoder(decoder)
        return self._std(last, output, body(point))

    def linearize(
        self, decoder: nn.Sequential, point: Float[Tensor, "n i"], tangents: Float[Tensor, "d #n i"]
    ) -> Linearization:
        """μ and σ with their Jacobians."""
        body, last, output = split_decoder(decoder)
        seen, moved = push(body, point, tangents)
        mean, mean_tangents = push(nn.Sequential(last, output), seen, moved)
        std, std_tangents = push_autodiff(lambda value: self._std(last, output, value), seen, moved)
        rows_first = [each.expand(-1, len(point), -1).permute(1, 2, 0) for each in (mean_tangents, std_tangents)]
        return Linearization(mean, rows_first[0], std, rows_first[1])

    def _std(self, last: nn.Linear, output: nn.Module, seen: Tensor) -> Tensor:
        # Looked up once: weights that were loaded show it by being numbers, and on a GPU every look costs a wait.
        self._fitted = self._fitted or not bool(self.prior.isnan())
        if not self._fitted:
            raise NotFittedError("the decoder's uncertainty has not been fitted: call fit_vae, or `fit_uncertainty`")
        along = (_with_bias(seen) @ self.directions).square()
        variance = along @ (1 / (self.gain * self.curvature[:, None] + self.prior))
        spread = _output_variance(output, last(seen), variance)
        return spread.clamp_min(torch.finfo(spread.dtype).tiny).sqrt()


def split_decoder(decoder: nn.Sequential) -> tuple[nn.Sequential, nn.Linear, nn.Module]:
    """What comes before the last linear layer, that layer, and the activation behind it."""
    layers = list(decoder)
    index = max(place for place, layer in enumerate(layers) if isinstance(layer, nn.Linear))
    last = layers[index]
    assert isinstance(last, nn.Linear)
    return nn.Sequential(*layers[:index]), last, nn.Sequential(*layers[index + 1 :])


def best_prior(curvature: Float[Tensor, "p"], gain: Float[Tensor, "D"], squared_weight: Tensor) -> Tensor:
    """The prior precision τ of the greatest marginal likelihood, by its logarithm up to what does not depend on τ.

    2·log p(rows | τ) = Dp·log τ − τ‖W‖² − Σ log(g_jλ_i + τ) + …, for D outputs with p weights each.
    """
    priors = _PRIORS.to(curvature)
    modes = (gain[:, None] * curvature).flatten()
    evidence = [modes.numel() * prior.log() - prior * squared_weight - (modes + prior).log().sum() for prior in priors]
    return priors[torch.stack(evidence).argmax()]


def _with_bias(seen: Tensor) -> Tensor:
    return torch.cat([seen, torch.ones_like(seen[..., :1])], -1)


def _slope(output: nn.Module, activation: Tensor) -> Tensor:
    """The derivative of an activation that works on every column by itself; of a softmax, ∂p_j/∂a_j."""
    variance = torch.ones_like(activation)
    return _output_variance(output, activation, variance).sqrt()


def _output_variance(output: nn.Module, activation: Tensor, variance: Tensor) -> Tensor:
    """The variance of linearised outputs, whose activations have these variances: Σ_i (∂x_j/∂a_i)²·variance_i."""
    pieces: Sequence[tuple[nn.Module, slice]] = [
        part for layer in output.modules() for part in (layer.parts() if isinstance(layer, TableOutput) else [])
    ] or [(output, slice(None))]
    parts = []
    for layer, columns in pieces:
        a, v = activation[..., columns], variance[..., columns]
        if isinstance(layer, nn.Softmax):
            p = layer(a)
            own = (1 - 2 * p) * v  # (δ_ij − p_i)² summed over i: (1 − p_j)²v_j + Σ_{i≠j} p_i²v_i
            parts.append(p.square() * (own + (p.square() * v).sum(-1, keepdim=True)))
        else:
            slope = torch.func.jvp(layer, (a,), (torch.ones_like(a),))[1]
            parts.append(slope.square() * v)
    return torch.cat(parts, -1)


@dataclass(frozen=True)
class Shape:
    """What an estimate has to fit: the decoder, the width of codes, rows and contexts, and sizes of its own."""

    decoder: nn.Sequential
    latent: int
    features: int
    row_width: int
    centers: int
    tied: bool
    zeta: float


UNCERTAINTIES: dict[str, Callable[[Shape], nn.Module]] = {
    "rbf": lambda shape: RBF(
        shape.latent, shape.features, shape.centers, row_width=shape.row_width, tied=shape.tied, zeta=shape.zeta
    ),
    "ensemble": lambda shape: Ensemble(shape.decoder),
    "laplace": lambda shape: LastLayerLaplace(split_decoder(shape.decoder)[1].in_features, shape.features),
}
"""By name, each made for a decoder."""


def make_uncertainty(kind: str, shape: Shape) -> nn.Module:
    """The estimate of a name, not fitted yet."""
    return choose("uncertainty", kind, UNCERTAINTIES)(shape)


# Training the members of an ensemble side by side.


class StackedLinear(nn.Module):
    """The linear layers of K networks at once: `(K, n, i)` to `(K, n, o)` in one batched product."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([layer.weight.detach().clone() for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach().clone() for layer in layers])[:, None])

    def forward(self, value: Float[Tensor, "k n i"]) -> Float[Tensor, "k n o"]:
        """All outputs."""
        return torch.baddbmm(self.bias, value, self.weight.mT)

    @torch.no_grad()
    def unstack(self, layers: Sequence[nn.Linear]) -> None:
        """Give every network its own weights back."""
        for index, layer in enumerate(layers):
            layer.weight.copy_(self.weight[index])
            layer.bias.copy_(self.bias[index, 0])


class StackedBatchNorm(nn.Module):
    """The BatchNorm layers of K networks at once: each normalises its own features."""

    def __init__(self, layers: Sequence[nn.BatchNorm1d]) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(sum(layer.num_features for layer in layers)).to(layers[0].weight)
        self._copy(layers, back=False)

    def forward(self, value: Float[Tensor, "k n f"]) -> Float[Tensor, "k n f"]:
        """All outputs."""
        count, rows, width = value.shape
        return self.norm(value.transpose(0, 1).reshape(rows, -1)).view(rows, count, width).transpose(0, 1)  # type: ignore[no-any-return]

    def unstack(self, layers: Sequence[nn.BatchNorm1d]) -> None:
        """Give every network its own weights and statistics back."""
        self._copy(layers, back=True)

    @torch.no_grad()
    def _copy(self, layers: Sequence[nn.BatchNorm1d], *, back: bool) -> None:
        for name in ("weight", "bias", "running_mean", "running_var"):
            for own, part in zip(layers, getattr(self.norm, name).chunk(len(layers)), strict=True):
                (getattr(own, name) if back else part).copy_(part if back else getattr(own, name))


def stack(networks: Sequence[nn.Sequential]) -> nn.Sequential:
    """Networks of one shape as one that works on `(K, n, i)`; layers without weights are shared."""
    return nn.Sequential(*(_stack_layers(layers) for layers in zip(*networks, strict=True)))


def _stack_layers(layers: Sequence[Any]) -> nn.Module:
    if isinstance(layers[0], nn.Linear):
        return StackedLinear(layers)
    if isinstance(layers[0], nn.BatchNorm1d):
        return StackedBatchNorm(layers)
    shared: nn.Module = layers[0]
    return shared


def unstack(stacked: nn.Sequential, networks: Sequence[nn.Sequential]) -> None:
    """Give networks the weights that were trained as one."""
    for together, *layers in zip(stacked, *networks, strict=True):
        if isinstance(together, StackedLinear | StackedBatchNorm):
            together.unstack(layers)
