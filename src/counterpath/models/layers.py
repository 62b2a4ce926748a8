"""The layers that the models are built of, each with its tangent rule beside it.

`RBFPrecision` is a decoder's uncertainty: high precision on the data, and a floor away from it.
"""

import copy
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_linear_bn_eval
from torch.optim.swa_utils import update_bn

from counterpath.geometry import kernels
from counterpath.geometry.metric import jacobian, push
from counterpath.utils.devices import kernels_usable
from counterpath.utils.errors import InputError, NotFittedError

M = TypeVar("M", bound=nn.Module)


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

    def forward(self, value: Float[Tensor, "*n D"]) -> Float[Tensor, "*n D"]:
        """The decoded row."""
        return torch.cat([layer(value[..., part]) for layer, part in self.parts()], dim=-1)

    def parts(self) -> list[tuple[nn.Module, slice]]:
        """Which layer is applied to which columns."""
        return [(self.softmax if category else self.number, part) for part, category in self.pieces]


@push.register(TableOutput)
def _(layer: TableOutput, value: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    tangents = tangents.expand(-1, len(value), -1)
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
                if norm.running_mean is None:
                    raise InputError("a BatchNorm layer without running statistics cannot be folded")
                part[index] = fuse_linear_bn_eval(linear, norm)
                del part[index + 1]
    return folded.requires_grad_(False)


def update_batch_norm(module: nn.Module, rows: Float[Tensor, "n D"]) -> None:
    """Set the statistics of every BatchNorm layer to those of all rows, and leave the module in evaluation mode.

    In training they trail behind weights that move, by ten batches or so; on small tables that costs accuracy.
    """
    update_bn([rows], module)
    module.eval()


DEFAULT_ZETA = 1e-6
"""The floor ζ of the precision: off the data σ rises to ζ^(−1/2) = 1000, far above the range of any feature."""

_BASIS_ROWS = 1024  # rows whose basis is computed at once: with 200 centres and 5 axes that takes 4 MB
_SMALLEST_RADIUS = 0.25
"""A centre's own radius is at least this share of the median radius: a cluster of one point has radius 0, so λ = ∞."""

_ROWS_AT_ONCE = 4096  # rows that meet all centres at a time: with 500 centres 8 MB, which stay in the cache
_WIDEST_SEARCH = 30.0  # how far log w is looked for below its bound: a factor of 10¹³, beyond what rows can tell
_LEAST_WANTED = 1e-12  # of an error that vanishes, as with a constant feature: its weight stays a finite number
_BISECTIONS = 50  # of that interval: what is left is far below float32


class RBFPrecision(nn.Module):
    """A precision that is high on the data and falls to a floor away from it.

    γ(z) = W·exp(−λ_k‖z − c_k‖²) + ζ with W > 0, one output a feature; σ(z) = γ(z)^(−1/2). `forward` returns σ.

    A conditioned network takes [z, x∘m, m] (see `models.latent`). Its centres are rows with their codes, and the
    squared distance is ‖z − c_k‖² + ‖m∘(x − x_k)‖²: a code that no row with those columns has is far from all.

    Args:
        inputs: Width of a code.
        outputs: Number of features.
        centers: Number of centres.
        row_width: Width of the rows on columns of which it is conditioned; 0 for a network that sees only codes.
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
        self,
        inputs: int,
        outputs: int,
        centers: int,
        *,
        row_width: int = 0,
        tied: bool = True,
        zeta: float = DEFAULT_ZETA,
    ) -> None:
        super().__init__()
        self.zeta, self.inputs, self.row_width = zeta, inputs, row_width
        self._fitted = False
        self.log_weight = nn.Parameter(torch.full((outputs, 1 if tied else centers), torch.nan))
        self.register_buffer("centers", torch.full((centers, inputs + row_width), torch.nan))
        self.register_buffer("bandwidth", torch.full((centers,), torch.nan))

    @torch.no_grad()
    def fit_centers(
        self,
        codes: Float[Tensor, "n i"],
        spread: Float[Tensor, "o"],
        *,
        bandwidth: float | str = "auto",
        per_center: bool = False,
        rows: Float[Tensor, "n D"] | None = None,
        seed: int = 0,
    ) -> None:
        """Put the centres on the data by k-means, choose λ, and begin with W such that σ on the data is `spread`.

        Args:
            codes: Where the training data lie; with their context, for a conditioned network.
            spread: Standard deviation of what the mean gets wrong there.
            bandwidth: A number is the paper's λ. "auto" is λ = 1/(2r²), where r is the median over the centres of the
                root mean squared distance between a centre and its own codes: the basis functions of neighbours then
                overlap on the data and end where the data do, whatever the scale of the codes.
            per_center: With "auto", give every centre the λ of its own radius, bounded from below by a quarter of the
                median radius, so that a cluster of a single point does no harm.
            rows: The training rows, for a conditioned network.
            seed: Of k-means.
        """
        count = len(self.centers)
        points = codes.detach()[:, : self.inputs + self.row_width].double().cpu().numpy()
        if len(np.unique(points, axis=0)) < count:
            raise InputError(
                f"{count} RBF centres need at least as many different codes; given {len(points)} codes, "
                f"{len(np.unique(points, axis=0))} of them different: use fewer centres"
            )
        from sklearn.cluster import KMeans

        clusters = KMeans(count, n_init=1, random_state=seed).fit(points)
        self.centers.copy_(torch.from_numpy(clusters.cluster_centers_))
        if self.row_width:
            assert rows is not None
            self.centers[:, self.inputs :] = _cluster_means(rows, clusters.labels_, count)
        if bandwidth == "auto":
            self.bandwidth.copy_(torch.from_numpy(_bandwidths(points, clusters, per_center)))
        elif isinstance(bandwidth, str) or not bandwidth > 0:
            raise InputError(f"bandwidth must be a positive number or 'auto'; given {bandwidth!r}")
        else:
            self.bandwidth.fill_(float(bandwidth))
        activity = torch.cat([self._basis(part).sum(-1) for part in codes.split(_BASIS_ROWS)]).mean()
        self.log_weight.copy_((-(spread.square().clamp_min(1e-8) * activity).log())[:, None].expand_as(self.log_weight))
        self._fitted = True

    @torch.no_grad()
    def fit_weights(self, z: Float[Tensor, "n i"], squared_error: Float[Tensor, "n o"]) -> None:
        """The W of the greatest likelihood, where all centres share one weight w a feature.

        With Φ = Σφ the loss mean(e²·(wΦ + ζ) − log(wΦ + ζ)) is convex in w, and its derivative
        mean(e²Φ) − mean(Φ/(wΦ + ζ)) grows with w: its root is found by bisection of log w. Without ζ it would be
        1/mean(e²Φ), so the root is not above that.

        Args:
            z: Codes of training rows, with their context.
            squared_error: What the mean gets wrong there, squared.
        """
        mass = torch.cat([self._density(part)[0] for part in z.split(_ROWS_AT_ONCE)]).double()
        wanted = (squared_error.double() * mass[:, None]).mean(0).clamp_min(_LEAST_WANTED)
        high = -wanted.log()
        low = high - _WIDEST_SEARCH
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            slope = wanted - torch.stack([(mass / (weight * mass + self.zeta)).mean() for weight in middle.exp()])
            low, high = torch.where(slope < 0, middle, low), torch.where(slope < 0, high, middle)
        self.log_weight.copy_((0.5 * (low + high))[:, None])

    def forward(self, z: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        """σ(z)."""
        self._check_fitted()
        if self.tied and not (torch.is_grad_enabled() and (z.requires_grad or self.log_weight.requires_grad)):
            return self.rank_one(z)[0]
        return torch.rsqrt(self.precision(z))

    @property
    def tied(self) -> bool:
        """Whether all centres share one weight a feature."""
        return self.log_weight.shape[-1] == 1

    def rank_one(
        self, z: Float[Tensor, "n i"]
    ) -> tuple[Float[Tensor, "n o"], Float[Tensor, "n o"], Float[Tensor, "n d"]]:
        """σ, and v and g with ∂σ/∂z = vgᵀ: where the weights are tied, all features get uncertain together."""
        self._check_fitted()
        mass, slope = self._density(z)
        weight = self.log_weight[:, 0].exp()
        precision = mass[:, None] * weight + self.zeta
        std = torch.rsqrt(precision)
        return std, weight * std / precision, slope

    def linearize_std(
        self, z: Float[Tensor, "n i"], tangents: Float[Tensor, "d #n i"]
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor] | None]:
        """σ, its Jacobian along tangents, and v and g with that Jacobian vgᵀ where the weights are tied."""
        if not self.tied:
            return *jacobian(self, z, tangents), None
        std, v, g = self.rank_one(z)
        g = (tangents[..., : self.inputs] * g).sum(-1).T  # the context stays
        return std, v[..., None] * g[:, None, :], (v, g)

    def precision(self, z: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        """γ(z)."""
        return F.linear(self._basis(z), self._weight()) + self.zeta

    def _weight(self) -> Tensor:
        return self.log_weight.exp().expand(-1, len(self.centers))

    def _basis(self, z: Tensor) -> Tensor:
        # Differences first: the expanded form loses the digits that matter close to a centre.
        difference = z[..., : self.inputs, None] - self.centers[:, : self.inputs].T
        squared = difference.square().sum(-2)
        return torch.exp(-self.bandwidth * (squared + self._context_distance(z) if self.row_width else squared))

    def _density(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Σφ and Σλφ(z − c), for basis functions φ that all weigh the same."""
        context = self._context_distance(z) if self.row_width else None
        codes, centers = z[:, : self.inputs], self.centers[:, : self.inputs]
        if kernels_usable(z) and z.dtype == torch.float32 and self.inputs <= kernels.MOST_AXES:
            from counterpath.geometry.kernels.density import density

            return density(codes, centers, self.bandwidth, context)
        # One axis at a time, and in place: what a block of rows makes of 500 centres then stays in the cache.
        axes = [code[:, None] - center for code, center in zip(codes.T, centers.T.contiguous(), strict=True)]
        basis = axes[0].square() if context is None else context.addcmul_(axes[0], axes[0])
        for axis in axes[1:]:
            basis.addcmul_(axis, axis)
        basis.mul_(-self.bandwidth).exp_()
        scaled = basis * self.bandwidth
        return basis.sum(-1), torch.stack([torch.linalg.vecdot(scaled, axis) for axis in axes], -1)

    def _context_distance(self, z: Tensor) -> Tensor:
        """‖m∘(x − x_k)‖² over the conditioned columns."""
        values, mask = z[..., self.inputs :].chunk(2, dim=-1)
        rows = self.centers[:, self.inputs :]
        squared = values.square().sum(-1, keepdim=True) - 2 * values @ rows.T + mask @ rows.T.square()
        return squared.clamp_min(0)

    def _check_fitted(self) -> None:
        # Looked up once: weights that were loaded show it by being numbers, and on a GPU every look costs a wait.
        self._fitted = self._fitted or not bool(torch.isnan(self.bandwidth[0]))
        if not self._fitted:
            raise NotFittedError("the decoder's uncertainty has not been fitted: call fit_vae, or `fit_centers`")


@push.register(RBFPrecision)
def _(layer: RBFPrecision, value: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    # With basis functions φ and weights W:  γ = Wφ + ζ,  ∂γ = −2 W λφ(z − c)ᵀż,  ∂σ = −½ γ^(−3/2) ∂γ
    layer._check_fitted()
    weight, moving = layer.log_weight.exp(), tangents[..., : layer.inputs]  # the context stays
    if layer.tied:
        std, v, g = layer.rank_one(value)
        return std, (moving * g).sum(-1)[..., None] * v
    basis = layer._basis(value)
    precision = F.linear(basis, weight) + layer.zeta
    difference = value[:, None, : layer.inputs] - layer.centers[:, : layer.inputs]
    slopes = torch.einsum("ok,nki->noi", weight, (basis * layer.bandwidth)[:, :, None] * difference)
    std = torch.rsqrt(precision)
    return std, torch.einsum("noi,dni->dno", slopes, moving.expand(-1, len(value), -1)) * (std / precision)


def _cluster_means(rows: Tensor, labels: np.ndarray, count: int) -> Tensor:
    """The mean row of each cluster."""
    label = torch.from_numpy(labels.astype(np.int64)).to(rows.device)
    total = torch.zeros(count, rows.shape[1], dtype=torch.float64, device=rows.device)
    total.index_add_(0, label, rows.double())
    return (total / torch.bincount(label, minlength=count)[:, None]).to(rows.dtype)


def _bandwidths(points: np.ndarray, clusters: Any, per_center: bool) -> np.ndarray:
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
