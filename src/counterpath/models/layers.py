"""The layers that the models are built of, each with its tangent rule beside it."""

import copy
import itertools
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from sklearn.cluster import KMeans
from torch import Tensor, nn

from counterpath.errors import InputError, NotFittedError
from counterpath.geometry.linearize import push

M = TypeVar("M", bound=nn.Module)

DEFAULT_ZETA = 1e-6
"""The floor ζ of the precision: off the data σ rises to ζ^(−1/2) = 1000."""

_SMALLEST_RADIUS = 0.25
"""A centre's own radius is at least this share of the median radius (a cluster of one point has radius 0)."""


def mlp(sizes: Sequence[int], *, final: nn.Module | None = None, batch_norm: bool = True) -> nn.Sequential:
    """Linear layers with BatchNorm and Tanh between them.

    Args:
        sizes: Width of the input, the hidden layers and the output.
        final: What follows the last linear layer; nothing by default.
        batch_norm: Normalise before every Tanh.
    """
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes[:-1]):
        layers += [nn.Linear(inputs, outputs), *([nn.BatchNorm1d(outputs)] if batch_norm else []), nn.Tanh()]
    layers += [nn.Linear(sizes[-2], sizes[-1]), *([] if final is None else [final])]
    return nn.Sequential(*layers)


class TableOutput(nn.Module):
    """The last layer of a decoder for tables: softmax for each block of categories, `number` for all other columns.

    Args:
        width: Number of columns.
        blocks: The columns of each category, as (first, last + 1), in order.
        number: Applied to the other columns, element by element.
    """

    def __init__(self, width: int, blocks: Sequence[tuple[int, int]], number: nn.Module) -> None:
        super().__init__()
        self.number, self.softmax = number, nn.Softmax(dim=-1)
        self.pieces = tuple(_pieces(width, blocks))

    def forward(self, value: Float[Tensor, "n D"]) -> Float[Tensor, "n D"]:
        """The decoded row."""
        return torch.cat([layer(value[..., part]) for layer, part in self.parts()], dim=-1)

    def parts(self) -> list[tuple[nn.Module, slice]]:
        """Which layer is applied to which columns."""
        return [(self.softmax if category else self.number, part) for part, category in self.pieces]


@push.register(TableOutput)
def _(layer: TableOutput, value: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    pushed = [push(part, value[..., columns], tangents[..., columns]) for part, columns in layer.parts()]
    return torch.cat([out for out, _ in pushed], dim=-1), torch.cat([tangent for _, tangent in pushed], dim=-1)


def _pieces(width: int, blocks: Sequence[tuple[int, int]]) -> Iterator[tuple[slice, bool]]:
    """Runs of columns, and whether each is the block of a category."""
    done = 0
    for first, end in blocks:
        if first > done:
            yield slice(done, first), False
        yield slice(first, end), True
        done = end
    if done < width:
        yield slice(done, width), False


def fold(module: M) -> M:
    """A copy in evaluation mode in which every BatchNorm that follows a Linear layer is folded into it."""
    folded = copy.deepcopy(module).eval()
    for part in [m for m in folded.modules() if type(m) is nn.Sequential]:
        for index in reversed(range(len(part) - 1)):
            linear, norm = part[index], part[index + 1]
            if isinstance(linear, nn.Linear) and isinstance(norm, nn.BatchNorm1d):
                _fold_into(linear, norm)
                del part[index + 1]
    return folded.requires_grad_(False)


@torch.no_grad()
def settle(module: nn.Module, rows: Float[Tensor, "n D"]) -> None:
    """Set the statistics of every BatchNorm layer to those of all rows, and leave the module in evaluation mode.

    In training they trail behind weights that move, by ten batches or so; on small tables that costs accuracy.
    """
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm1d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over what is seen from now on
    module.train()
    module(rows)
    module.eval()
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


@torch.no_grad()
def _fold_into(linear: nn.Linear, norm: nn.BatchNorm1d) -> None:
    if norm.running_mean is None or norm.running_var is None:
        raise InputError("a BatchNorm layer without running statistics cannot be folded")
    scale = torch.rsqrt(norm.running_var + norm.eps) * norm.weight
    bias = torch.zeros_like(norm.bias) if linear.bias is None else linear.bias
    linear.bias = nn.Parameter((bias - norm.running_mean) * scale + norm.bias)
    linear.weight = nn.Parameter(linear.weight * scale[:, None])


class RBFPrecision(nn.Module):
    """A precision that is high on the data and falls to a floor away from it.

    γ(z) = W·exp(−λ_k‖z − c_k‖²) + ζ with W > 0, one output a feature; σ(z) = γ(z)^(−1/2). `forward` returns σ.

    A network that is told columns takes [z, x∘m, m] (see `told`). Its centres are rows with their codes, and the
    squared distance is ‖z − c_k‖² + ‖m∘(x − x_k)‖²: a code that no row with the told columns has is far from all.

    Args:
        inputs: Width of a code.
        outputs: Number of features.
        centers: Number of centres.
        told: Width of a row of which some columns are told; 0 for a network that sees only codes.
        tied: One weight a feature, shared by all centres, so that σ follows the density of the codes; otherwise one a
            feature and centre, so that σ also follows where the mean errs more, and is rougher.
        zeta: The floor ζ.

    References:
        Que and Belkin, "Back to the future: Radial basis function networks revisited", 2016.
        Arvanitidis, Hansen and Hauberg, "Latent space oddity", ICLR 2018.
    """

    centers: Tensor
    bandwidth: Tensor

    def __init__(
        self, inputs: int, outputs: int, centers: int, *, told: int = 0, tied: bool = True, zeta: float = DEFAULT_ZETA
    ) -> None:
        super().__init__()
        self.zeta, self.inputs, self.told = zeta, inputs, told
        self._placed = False
        self.log_weight = nn.Parameter(torch.full((outputs, 1 if tied else centers), torch.nan))
        self.register_buffer("centers", torch.full((centers, inputs + told), torch.nan))
        self.register_buffer("bandwidth", torch.full((centers,), torch.nan))

    @torch.no_grad()
    def place(
        self,
        codes: Float[Tensor, "n i"],
        spread: Float[Tensor, "o"],
        *,
        bandwidth: float | str = "auto",
        per_center: bool = False,
        rows: Float[Tensor, "n D"] | None = None,
        seed: int = 0,
    ) -> None:
        """Put the centres on the data, choose λ, and begin with W such that σ on the data is `spread`.

        Args:
            codes: Where the training data lie; with what is told about them, for a network that is told columns.
            spread: Standard deviation of what the mean gets wrong there.
            bandwidth: A number is the paper's λ. "auto" is λ = 1/(2r²), where r is the median over the centres of the
                root mean squared distance between a centre and its own codes: the bumps of neighbouring centres then
                overlap on the data and end where the data do, whatever the scale of the codes.
            per_center: With "auto", give every centre the λ of its own radius, bounded from below by a quarter of the
                median radius, so that a cluster of a single point does no harm.
            rows: The training rows, for a network that is told columns.
            seed: Of k-means.
        """
        count = len(self.centers)
        points = codes.detach()[:, : self.inputs + self.told].double().cpu().numpy()
        if len(np.unique(points, axis=0)) < count:
            raise InputError(
                f"{count} RBF centres need at least as many different codes; given {len(points)} codes, "
                f"{len(np.unique(points, axis=0))} of them different: use fewer centres"
            )
        clusters = KMeans(count, n_init=1, random_state=seed).fit(points)
        self.centers.copy_(torch.from_numpy(clusters.cluster_centers_))
        if self.told:
            assert rows is not None
            self.centers[:, self.inputs :] = _cluster_means(rows, clusters.labels_, count)
        if bandwidth == "auto":
            self.bandwidth.copy_(torch.from_numpy(_bandwidths(points, clusters, per_center)))
        elif isinstance(bandwidth, str) or not bandwidth > 0:
            raise InputError(f"bandwidth must be a positive number or 'auto'; given {bandwidth!r}")
        else:
            self.bandwidth.fill_(float(bandwidth))
        activity = self._bumps(codes).sum(-1).mean()
        self.log_weight.copy_((-(spread.square().clamp_min(1e-8) * activity).log())[:, None].expand_as(self.log_weight))
        self._placed = True

    def forward(self, z: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        """σ(z)."""
        self._insist_fitted()
        return torch.rsqrt(self.precision(z))

    def precision(self, z: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        """γ(z)."""
        return F.linear(self._bumps(z), self._weight()) + self.zeta

    def _weight(self) -> Tensor:
        return self.log_weight.exp().expand(-1, len(self.centers))

    def _bumps(self, z: Tensor) -> Tensor:
        return torch.exp(-self.bandwidth * self._squared_distances(z))

    def _squared_distances(self, z: Tensor) -> Tensor:
        # Differences first: the expanded form loses the digits that matter close to a centre.
        near = (z[..., None, : self.inputs] - self.centers[:, : self.inputs]).square().sum(-1)
        if not self.told:
            return near
        values, mask = z[..., self.inputs :].chunk(2, dim=-1)
        rows = self.centers[:, self.inputs :]
        apart = values.square().sum(-1, keepdim=True) - 2 * values @ rows.T + mask @ rows.T.square()
        return near + apart.clamp_min(0)

    def _insist_fitted(self) -> None:
        # Asked once: weights that were loaded show it by being numbers, and on a GPU every look costs a wait.
        self._placed = self._placed or not bool(torch.isnan(self.bandwidth[0]))
        if not self._placed:
            raise NotFittedError("the decoder's uncertainty has not been fitted: call fit_vae, or `place` and train it")


@push.register(RBFPrecision)
def _(layer: RBFPrecision, value: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    # With φ_k the bumps and W' = W·λ_k φ_k:  ∂γ = −2 Σ_k W'_k (z − c_k)ᵀż = −2 (Σ_k W'_k z − Σ_k W'_k c_k)ᵀż
    layer._insist_fitted()
    weight = layer._weight()
    bumps = layer._bumps(value)
    precision = F.linear(bumps, weight) + layer.zeta
    toward = value[:, None, : layer.inputs] - layer.centers[:, : layer.inputs]
    slopes = (bumps * layer.bandwidth)[:, :, None] * toward
    gamma_jac = -2 * torch.einsum("ok,nki->noi", weight, slopes)
    gamma_tangents = torch.einsum("noi,dni->dno", gamma_jac, tangents[..., : layer.inputs])  # what is told stays
    std = torch.rsqrt(precision)
    return std, -0.5 * gamma_tangents * (std / precision)


def _cluster_means(rows: Tensor, labels: np.ndarray, count: int) -> Tensor:
    """The mean row of each cluster."""
    label = torch.from_numpy(labels.astype(np.int64)).to(rows.device)
    total = torch.zeros(count, rows.shape[1], dtype=torch.float64, device=rows.device)
    total.index_add_(0, label, rows.double())
    return (total / torch.bincount(label, minlength=count)[:, None]).to(rows.dtype)


def _bandwidths(points: np.ndarray, clusters: KMeans, per_center: bool) -> np.ndarray:
    squared = np.square(points - clusters.cluster_centers_[clusters.labels_]).sum(1)
    members = np.bincount(clusters.labels_, minlength=clusters.n_clusters)
    radii = np.sqrt(np.bincount(clusters.labels_, weights=squared, minlength=clusters.n_clusters) / members)
    median = float(np.median(radii[members > 1])) if (members > 1).any() else 0.0
    if median == 0.0:
        # Every centre sits on its only code: half the distance to the nearest other centre stands in for a radius.
        gaps = np.linalg.norm(clusters.cluster_centers_[:, None] - clusters.cluster_centers_[None], axis=-1)
        median = 0.5 * float(np.median(gaps[gaps > 0].reshape(len(gaps), -1).min(1)))
    chosen = np.maximum(radii, _SMALLEST_RADIUS * median) if per_center else np.full(len(radii), median)
    return 1 / (2 * np.square(chosen))
