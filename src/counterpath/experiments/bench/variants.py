"""Models and rows, and how a step and a search of them can be done: ours, by eager `torch.func`, and as in the paper.

For the paper's implementation, as its authors would write it, decoder, uncertainty and classifier are made of
stochman's modules, with the weights of ours and BatchNorm as it is. Those give the Jacobians by `jacobian=True`; the
gradient of the objective comes from autograd through the decoder, and the metric is inverted in the precision of the
model:

    M = JμᵀJμ + JσᵀJσ + δI,   or JμᵀM_XJμ + JσᵀM_XJσ + δI with M_X = J_hᵀJ_h
    r = M⁻¹∇f,   z ← z − η r/‖r‖

The Jacobians are taken without recording for autograd: a recorded one would save the gradient's own forward pass, and
takes as long.

References:
    Detlefsen et al., "StochMan – Geometry and stochastic machine learning made easy", 2021.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from counterpath.data.datasets import load
from counterpath.experiments.bench.timing import Task
from counterpath.experiments.tables import OPTIMIZERS
from counterpath.experiments.tabular import (
    FIDELITY,
    PRESETS,
    SETTINGS,
    EncodedData,
    Models,
    fit_models,
    local_search,
    vae_of,
)
from counterpath.geometry.metric import DAMPING, Metric, jacobian_autodiff
from counterpath.models.classifier import Classifier
from counterpath.models.latent import LatentModel
from counterpath.models.layers import RBFPrecision, update_batch_norm
from counterpath.models.training import Run, seeded
from counterpath.models.vae import VAE
from counterpath.search.method import SearchModels
from counterpath.search.methods import geometry_of
from counterpath.search.objective import Objective
from counterpath.search.step import euclidean_length, slope
from counterpath.search.traverse import CHUNK, Trajectory, sweep
from counterpath.utils.devices import block_size_for, keep_freed_memory, map_blocks
from counterpath.utils.errors import InputError, choose, require
from counterpath.utils.replay import Replayed

_ROWS_PER_CENTER = 8
"""Rows that random models see for each RBF centre: enough to place the centres and to set BatchNorm's statistics."""


@dataclass(frozen=True)
class Sizes:
    """How large rows and models are; by default as on Adult.

    Attributes:
        rows: Rows that take a step together.
        features: Width of a row.
        latent: Width of a code.
        hidden: Widths of the encoder's hidden layers, which the decoder mirrors.
        centers: RBF centres.
        width: Size of the classifier's representation.
    """

    rows: int = 1024
    features: int = 13
    latent: int = 5
    hidden: tuple[int, ...] = (512, 256)
    centers: int = 500
    width: int = 24


@dataclass(frozen=True)
class Workload:
    """Models and rows.

    Attributes:
        fitted: The models with their BatchNorm layers, as training leaves them.
        factual: Rows to start from.
        damping: Added to the diagonal of every metric.
    """

    fitted: Models
    factual: Float[Tensor, "n D"]
    damping: float

    @cached_property
    def folded(self) -> Models:
        """The models as Counterpath searches them."""
        return self.fitted.folded()

    @cached_property
    def codes(self) -> Float[Tensor, "n d"]:
        """The codes of the rows."""
        with torch.no_grad():
            return map_blocks(vae_of(self.folded).encode, self.factual)

    @property
    def sizes(self) -> Sizes:
        """How large all of it is."""
        vae = vae_of(self.fitted)
        hidden = tuple(layer.out_features for layer in vae.encoder if isinstance(layer, torch.nn.Linear))[:-1]
        width = self.fitted.classifier.head.in_features
        rows, features = self.factual.shape
        return Sizes(rows, features, vae.latent, hidden, len(vae.precision.centers), width)

    def with_rows(self, rows: int) -> "Workload":
        """The same with so many rows; if there are fewer, they are repeated."""
        index = torch.arange(rows, device=self.factual.device) % len(self.factual)
        return replace(self, factual=self.factual[index])


def random_workload(sizes: Sizes, seed: int, device: torch.device, *, damping: float = DAMPING) -> Workload:
    """Untrained models of any size, with BatchNorm statistics and an uncertainty that fit their random rows."""
    with seeded(seed):
        rows = torch.rand(max(sizes.rows, _ROWS_PER_CENTER * sizes.centers), sizes.features)
        classifier = Classifier(sizes.features, sizes.width)
        vae = VAE(sizes.features, sizes.latent, hidden=sizes.hidden, centers=sizes.centers)
        seen = rows[: _ROWS_PER_CENTER * sizes.centers]
        update_batch_norm(classifier, seen)
        update_batch_norm(vae.encoder, seen)
        with torch.no_grad():
            codes = vae.encode(seen)
            # Codes of spread 1, as a trained encoder has them.
            last = vae.encoder[-1]
            assert isinstance(last, torch.nn.Linear)
            last.weight[: sizes.latent] /= codes.std(0)[:, None]
            last.bias[: sizes.latent] /= codes.std(0)
            codes = vae.encode(seen)
            update_batch_norm(vae.decoder, codes)
            spread = (vae.decode(codes) - seen).square().mean(0).sqrt()
        vae.precision.fit_centers(codes, spread, seed=seed)
    return Workload(_frozen(classifier, vae, device), rows[: sizes.rows].to(device), damping)


def adult_workload(models: Path | None, seed: int, device: torch.device, *, progress: bool | None = None) -> Workload:
    """All rows of Adult that the classifier correctly rejects, and the models of the paper's experiment.

    Args:
        models: A folder with the checkpoints of `counterpath reproduce adult`; None fits those of its quick preset.
        seed: Of the fit.
        device: Where to compute.
        progress: Show bars.
    """
    settings = SETTINGS["adult-carla"]
    rows = EncodedData.of(load("adult-carla"), device)
    if models is None:
        fitted = fit_models(rows, settings, PRESETS["quick"], Run(seed=seed, progress=progress))
    else:
        fitted = read_models(models, device)
        width = vae_of(fitted).always_conditioned.numel()
        if width != rows.train.shape[-1]:
            raise InputError(
                f"the models in {models} are for rows of {width} columns, and Adult's have {rows.train.shape[-1]}: "
                "give checkpoints of `counterpath reproduce adult`"
            )
    return Workload(fitted, rows.correctly_rejected(fitted.folded().classifier), settings.damping)


def read_models(folder: Path, device: torch.device) -> Models:
    """Classifier and VAE from the checkpoints of a training that is done; sizes are read off the weights."""
    classifier_weights, mean, uncertainty = (
        _read_weights(folder / f"{name}.safetensors") for name in ("classifier", "vae-mean", "vae-uncertainty")
    )
    weights = mean | {f"precision.{name}": value for name, value in uncertainty.items()}
    # Only linear layers have matrices for weights: their widths, after that of the input.
    matrices = [value for name, value in weights.items() if name.startswith("encoder.") and value.ndim == 2]
    features, (*hidden, last) = matrices[0].shape[1], (len(matrix) for matrix in matrices)
    centers, tied = len(weights["precision.centers"]), weights["precision.log_weight"].shape[-1] == 1
    vae = VAE(features, last // 2, hidden=tuple(hidden), centers=centers, tied=tied)
    classifier = Classifier(features, classifier_weights["head.weight"].shape[-1])
    vae.load_state_dict(weights)
    classifier.load_state_dict(classifier_weights)
    return _frozen(classifier, vae, device)


def _frozen(classifier: Classifier, vae: VAE, device: torch.device) -> Models:
    return SearchModels(classifier.eval().requires_grad_(False).to(device), vae.eval().requires_grad_(False).to(device))


def _read_weights(path: Path) -> dict[str, Tensor]:
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"{path} cannot be read ({error}); expected a checkpoint of `counterpath reproduce adult`, for instance in "
            "out/adult-paper/checkpoints/paper/seed-0"
        ) from error
    return {name.removeprefix("weights."): value for name, value in tensors.items() if name.startswith("weights.")}


Step = Callable[[Tensor, Tensor], Tensor]
"""Maps codes `(n, d)` and their factual rows `(n, D)` to the codes after one step."""
Linear = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Gives a value and its Jacobian."""
BuildStep = Callable[[Workload, str], Step]
"""Makes the step of a method ready for a workload."""

TIMED_METHODS = ("rsgd", "rsgd-c", "sgd")
"""The methods whose steps are timed: the paper's three, the one that everything is measured against first."""
STEP_SIZE = 0.1
"""η of the paper's tables."""


def our_step(workload: Workload, method: str) -> Step:
    """One whole step: decode, evaluate, metric, solve, move; in blocks, and on a GPU replayed, as the search has it."""
    (model, metric), objective = _geometry(workload, method), Objective(workload.folded.classifier)

    def move(z: Tensor, factual: Tensor) -> Tensor:
        with torch.no_grad():
            here = slope(model, metric, objective, z, factual, None, workload.damping)
            return z - STEP_SIZE * euclidean_length(here.direction, here.gradient).to(z.dtype)

    def step(z: Tensor, factual: Tensor) -> Tensor:
        size = block_size_for(z.device, many=True)
        return torch.cat([move(*part) for part in zip(z.split(size), factual.split(size), strict=True)])

    keep_freed_memory()
    return _replaying(move) if workload.factual.is_cuda else step


def _replaying(move: Step) -> Step:
    """The same step of tensors that stay where they are, recorded when it is first taken."""
    held: list[tuple[Tensor, Tensor, Replayed[Tensor]]] = []

    def step(z: Tensor, factual: Tensor) -> Tensor:
        if not held or held[0][0].shape != z.shape:
            own = z.clone(), factual.clone()
            held[:] = [(*own, Replayed(lambda: move(*own), z.device))]
        held_z, held_factual, again = held[0]
        held_z.copy_(z)
        held_factual.copy_(factual)
        again()
        return again.result

    return step


def our_search(workload: Workload, method: str, **options: Any) -> Trajectory:
    """The search of all rows; `options` are those of `local_search`."""
    options = {"step_size": STEP_SIZE, "damping": workload.damping, **options}
    return local_search(workload.folded, method, workload.factual, **options)


def our_sweep(workload: Workload, method: str, rows: int, steps: int) -> int:
    """All steps for many rows, those of the workload again and again: made on the host, and the ends brought back.

    Returns:
        How many rows came back.
    """
    (model, metric), device, given = _geometry(workload, method), workload.factual.device, workload.factual.cpu()
    chunks = (given[numbers % len(given)] for numbers in torch.arange(rows).split(CHUNK[device.type]))
    ends = sweep(
        model,
        metric,
        Objective(workload.folded.classifier),
        chunks,
        device=device,
        steps=steps,
        step_size=STEP_SIZE,
        damping=workload.damping,
    )
    return sum(len(chunk.end) for chunk in ends)


def our_runs(workload: Workload, steps: int) -> dict[str, Callable[[], Trajectory]]:
    """The runs of the paper's table, by name: every optimiser without and with the fidelity term, all paths kept."""
    return {
        f"{method}{' with fidelity' if fidelity else ''}": partial(
            our_search, workload, method, fidelity=fidelity, steps=steps
        )
        for method in OPTIMIZERS
        for fidelity in (0.0, FIDELITY)
    }


def _geometry(workload: Workload, method: str) -> tuple[LatentModel, Metric]:
    choose("method to time", method, dict.fromkeys(TIMED_METHODS))
    return geometry_of(method, workload.folded)


def eager_step(workload: Workload, method: str) -> Step:
    """One whole step: Jacobians by batched forward mode, the gradient by reverse mode, `torch.linalg.solve`.

    The models are folded: what differs from our own step is how it is differentiated and solved.
    """
    choose("method to time", method, dict.fromkeys(TIMED_METHODS))
    classifier, vae = workload.folded.classifier, vae_of(workload.folded)
    objective = Objective(classifier)

    def total(z: Tensor, factual: Tensor) -> Tensor:
        return objective.loss(vae.decode(z), factual)[0].sum()

    parts = (partial(jacobian_autodiff, part) for part in (vae.decoder, vae.precision, classifier.representation))
    return _descend(torch.func.grad(total), method, parts, torch.linalg.solve, workload.damping)


def _descend(
    gradient: Step,
    method: str,
    parts: Iterable[Linear],
    solve: Callable[[Tensor, Tensor], Tensor],
    damping: float,
) -> Step:
    """z ← z − η r/‖r‖ with r = (M + δI)⁻¹∇f; for SGD, which has no metric, r = ∇f. The parts are μ, σ and h."""
    mean, std, representation = parts

    def metric(z: Tensor) -> Tensor:
        (x, mean_jac), (_, std_jac) = mean(z), std(z)
        if method == "rsgd":
            return mean_jac.mT @ mean_jac + std_jac.mT @ std_jac
        _, h_jac = representation(x)
        ambient = h_jac.mT @ h_jac
        return mean_jac.mT @ ambient @ mean_jac + std_jac.mT @ ambient @ std_jac

    def step(z: Tensor, factual: Tensor) -> Tensor:
        direction = gradient(z, factual)
        with torch.no_grad():
            if method != "sgd":
                stiff = metric(z.detach()) + damping * torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
                direction = solve(stiff, direction)
            moved: Tensor = STEP_SIZE * direction / direction.norm(dim=-1, keepdim=True)
            return z.detach() - moved

    return step


def floors(workload: Workload) -> dict[str, Task]:
    """d + 1 plain forward passes of the folded decoder, in one batch and one by one: whichever is faster is the floor.

    A step pushes a value and d tangents through the decoder, so it costs at least as much.
    """
    decoder, z = vae_of(workload.folded).decoder, workload.codes
    passes = z.shape[-1] + 1
    batch = z.repeat(passes, 1)

    def at_once() -> None:
        with torch.inference_mode():
            decoder(batch)

    def one_by_one() -> None:
        with torch.inference_mode():
            for _ in range(passes):
                decoder(z)

    return {"one batch": at_once, "one by one": one_by_one}


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


class StochmanModels(NamedTuple):
    """Our models, made of stochman's modules: μ and σ of the decoder, h of the classifier, and its last layer."""

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
    nnj = require("stochman", "bench", "the paper's implementation of a step").nnj
    vae, classifier = vae_of(workload.fitted), workload.fitted.classifier
    if vae.conditional or vae.category is not None:
        raise InputError(
            "the paper's VAE is not conditional and has no categories; give one without conditional= and blocks="
        )
    mean, representation, head = (
        _rebuilt(nnj, module) for module in (vae.decoder, classifier.representation, classifier.head)
    )
    modules = (mean, _rebuilt_precision(nnj, vae.precision), representation, head)
    return StochmanModels(*(module.to(workload.factual).eval().requires_grad_(False) for module in modules))


def paper_step(workload: Workload, method: str) -> Step:
    """One whole step in the paper's implementation."""
    choose("method to time", method, dict.fromkeys(TIMED_METHODS))
    models = stochman_models(workload)

    def gradient(z: Tensor, factual: Tensor) -> Tensor:
        z = z.detach().requires_grad_()
        logits = models.head(models.representation(models.mean(z)))[:, 0]
        loss = F.binary_cross_entropy_with_logits(logits, torch.ones_like(logits), reduction="sum")
        return torch.autograd.grad(loss, z)[0]

    def solve(stiff: Tensor, direction: Tensor) -> Tensor:
        solved: Tensor = torch.linalg.inv(stiff) @ direction[..., None]
        return solved[..., 0]

    parts = (partial(part, jacobian=True) for part in (models.mean, models.std, models.representation))
    return _descend(gradient, method, parts, solve, workload.damping)


def paper_search(workload: Workload, method: str, *, steps: int, block_size: int) -> Float[Tensor, "n d"]:
    """All steps for all rows, block after block: the codes they end at."""
    step = paper_step(workload, method)
    ends = []
    for z, factual in zip(workload.codes.split(block_size), workload.factual.split(block_size), strict=True):
        for _ in range(steps):
            z = step(z, factual)
        ends.append(z)
    return torch.cat(ends)


VARIANTS: dict[str, BuildStep] = {"ours": our_step, "paper": paper_step, "eager": eager_step}
"""How a step can be taken: ours, the paper's with stochman, and by eager `torch.func`."""


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
