"""The same step as a reader of the paper would write it, with the library its authors used.

Decoder, uncertainty and classifier are made of stochman's modules, with the weights of ours and BatchNorm as it is.
Those give the Jacobians by `jacobian=True`; the gradient of the objective comes from autograd through the decoder, and
the metric is inverted in the precision of the model:

    M = JμᵀJμ + JσᵀJσ + δI,   or JμᵀM_XJμ + JσᵀM_XJσ + δI with M_X = J_hᵀJ_h
    r = M⁻¹∇f,   z ← z − η r/‖r‖

The Jacobians are taken without recording for autograd: a recorded one would save the gradient's own forward pass, and
takes as long.

References:
    Detlefsen et al., "StochMan – Geometry and stochastic machine learning made easy", 2021.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from counterpath.bench.ours import STEP_SIZE, STEPPING, Step
from counterpath.bench.workload import Workload, vae_of
from counterpath.errors import InputError, choose, require
from counterpath.models.precision import RBFPrecision


class RadialBasis(nn.Module):
    """φ_k(z) = exp(−λ_k‖z − c_k‖²), with the Jacobian rule that stochman asks of a layer; it has none of its own.

    Args:
        centers: c.
        bandwidth: λ.
    """

    centers: Tensor
    bandwidth: Tensor

    def __init__(self, centers: Float[Tensor, "k d"], bandwidth: Float[Tensor, "k"]) -> None:
        super().__init__()
        self.register_buffer("centers", centers.clone())
        self.register_buffer("bandwidth", bandwidth.clone())

    def forward(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """How close each code is to every centre."""
        return torch.exp(-self.bandwidth * torch.cdist(z, self.centers).square())

    def _jacobian_wrt_input_mult_left_vec(self, x: Tensor, val: Tensor, jac_in: Tensor) -> Tensor:
        slopes = (-2 * self.bandwidth * val)[..., None] * (x[:, None] - self.centers)
        return slopes @ jac_in


@dataclass(frozen=True)
class StochmanModels:
    """Our models, made of stochman's modules.

    Attributes:
        mean: μ.
        std: σ.
        representation: h, of the classifier.
        head: The classifier's last layer.
    """

    mean: nn.Module
    std: nn.Module
    representation: nn.Module
    head: nn.Module


def stochman_models(workload: Workload) -> StochmanModels:
    """Rebuild the models of a workload, with their BatchNorm layers, from stochman's modules.

    Raises:
        MissingExtraError: If stochman is not installed.
        InputError: If a model has a layer that the paper's models do not have.
    """
    nnj = require("stochman", "bench", "the paper's way of taking a step").nnj
    vae, classifier = vae_of(workload.fitted), workload.fitted.classifier
    if vae.told or vae.category is not None:
        raise InputError("the paper's VAE is told nothing and has no categories; give one without told= and blocks=")
    return StochmanModels(
        *(
            module.to(workload.factual).eval().requires_grad_(False)
            for module in (
                _rebuilt(nnj, vae.decoder),
                _rebuilt_precision(nnj, vae.precision),
                _rebuilt(nnj, classifier.representation),
                _rebuilt(nnj, classifier.head),
            )
        )
    )


def paper_step(workload: Workload, method: str) -> Step:
    """One whole step in the paper's way."""
    metric = choose("method to time", method, {name: _METRICS[name] for name in STEPPING})
    models = stochman_models(workload)

    def step(z: Tensor, factual: Tensor) -> Tensor:
        z = z.detach().requires_grad_()
        logits = models.head(models.representation(models.mean(z)))[:, 0]
        loss = F.binary_cross_entropy_with_logits(logits, torch.ones_like(logits), reduction="sum")
        (gradient,) = torch.autograd.grad(loss, z)
        with torch.no_grad():
            z = z.detach()
            direction = gradient
            if metric is not None:
                stiff = metric(models, z)
                stiff = stiff + workload.damping * torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
                direction = (torch.linalg.inv(stiff) @ gradient[..., None])[..., 0]
            moved: Tensor = STEP_SIZE * direction / direction.norm(dim=-1, keepdim=True)
            return z - moved

    return step


def paper_search(workload: Workload, method: str, *, steps: int, block_size: int) -> Float[Tensor, "n d"]:
    """All steps for all rows, block after block: the codes they end at."""
    step = paper_step(workload, method)
    ends = []
    for z, factual in zip(workload.codes.split(block_size), workload.factual.split(block_size), strict=True):
        for _ in range(steps):
            z = step(z, factual)
        ends.append(z)
    return torch.cat(ends)


def _pullback(models: StochmanModels, z: Tensor) -> Tensor:
    _, mean_jac = models.mean(z, jacobian=True)
    _, std_jac = models.std(z, jacobian=True)
    pulled: Tensor = mean_jac.mT @ mean_jac + std_jac.mT @ std_jac
    return pulled


def _guided(models: StochmanModels, z: Tensor) -> Tensor:
    mean, mean_jac = models.mean(z, jacobian=True)
    _, std_jac = models.std(z, jacobian=True)
    _, h_jac = models.representation(mean, jacobian=True)
    ambient = h_jac.mT @ h_jac
    pulled: Tensor = mean_jac.mT @ ambient @ mean_jac + std_jac.mT @ ambient @ std_jac
    return pulled


_METRICS = {"rsgd": _pullback, "rsgd-c": _guided, "sgd": None}


def _rebuilt(nnj: Any, layer: nn.Module) -> nn.Module:
    """A layer of stochman's with the same weights."""
    if isinstance(layer, nn.Sequential):
        return nnj.Sequential(*(_rebuilt(nnj, part) for part in layer))  # type: ignore[no-any-return]
    if isinstance(layer, nn.Linear):
        same = nnj.Linear(layer.in_features, layer.out_features)
    elif isinstance(layer, nn.BatchNorm1d):
        same = nnj.BatchNorm1d(layer.num_features, eps=layer.eps)
    else:
        plain = {nn.Tanh: nnj.Tanh, nn.Sigmoid: nnj.Sigmoid, nn.Identity: nnj.Identity}
        if type(layer) not in plain:
            names = ", ".join(kind.__name__ for kind in (nn.Linear, nn.BatchNorm1d, *plain))
            raise InputError(f"stochman's step is not built for a layer {type(layer).__name__}; it is for: {names}")
        same = plain[type(layer)]()
    same.load_state_dict(layer.state_dict())
    return same  # type: ignore[no-any-return]


def _rebuilt_precision(nnj: Any, precision: RBFPrecision) -> nn.Module:
    """σ = √(1/(softplus(V)·φ(z) + softplus(b))): stochman keeps weights positive by softplus, and we by exp."""
    weight = precision.log_weight.double().exp().expand(-1, len(precision.centers))
    positive = nnj.PosLinear(*reversed(weight.shape)).double()
    positive.weight.data = _inverse_softplus(weight)
    positive.bias.data = _inverse_softplus(torch.full_like(weight[:, 0], precision.zeta))
    basis = RadialBasis(precision.centers, precision.bandwidth)
    return nnj.Sequential(basis, positive, nnj.Reciprocal(), nnj.Sqrt())  # type: ignore[no-any-return]


def _inverse_softplus(value: Tensor) -> Tensor:
    return value + torch.log(-torch.expm1(-value))
