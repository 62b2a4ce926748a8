"""How well a decoder's uncertainty separates data from empty space."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from counterpath.geometry.metric import gram
from counterpath.models.latent import LatentModel, concat_context, context_for
from counterpath.utils.devices import map_blocks
from counterpath.utils.errors import GeometryError

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Calibration:
    """The uncertainty of a decoder, on the data and off them.

    Attributes:
        sigma_share: tr(JσᵀJσ) / tr(M), the mean over held-out codes: how much the uncertainty weighs in the metric. Of
            an ensemble, the part of its members' deviations from their mean.
        sigma_on: Median over held-out codes of σ, averaged over the features.
        sigma_off: The same over latent points off the data: drawn uniformly in the box of the training codes enlarged
            by half, and farther from any training code than 99 % of the held-out codes are.
        auc: Probability that σ at a point off the data exceeds σ at a held-out code.
    """

    sigma_share: float
    sigma_on: float
    sigma_off: float
    auc: float


@dataclass(frozen=True)
class _Points:
    """Codes, and their context."""

    z: Float[Tensor, "n d"]
    context: Float[Tensor, "n c"] | None

    @property
    def array(self) -> Array:
        """Both side by side."""
        return concat_context(self.z, self.context).cpu().numpy()


@torch.no_grad()
def calibrate(
    vae: LatentModel, train: Float[Tensor, "n D"], held_out: Float[Tensor, "m D"], *, seed: int = 0
) -> Calibration:
    """Measure the uncertainty of a model on held-out rows and off the data.

    For a conditional model a point is a code together with its context; points off the data have the context of random
    training rows.
    """
    from sklearn.metrics import roc_auc_score

    on = _Points(map_blocks(vae.encode, held_out), context_for(vae, held_out))
    off = _off_data(_Points(map_blocks(vae.encode, train), context_for(vae, train)), on, seed)
    on_sigma, off_sigma = (
        map_blocks(lambda *where: _sigma(vae, *where), points.z, points.context).cpu().numpy() for points in (on, off)
    )
    is_off = np.concatenate([np.zeros(len(on_sigma)), np.ones(len(off_sigma))])
    return Calibration(
        sigma_share=float(map_blocks(lambda *where: _sigma_share(vae, *where), on.z, on.context).mean()),
        sigma_on=float(np.median(on_sigma)),
        sigma_off=float(np.median(off_sigma)),
        auc=float(roc_auc_score(is_off, np.concatenate([on_sigma, off_sigma]))),
    )


def _sigma(vae: LatentModel, z: Tensor, context: Tensor | None) -> Tensor:
    std = vae.uncertainty(z, context)
    if std is None:
        raise GeometryError("this model has no uncertainty to calibrate")
    return std.mean(-1)


def _sigma_share(vae: LatentModel, z: Tensor, context: Tensor | None) -> Tensor:
    lin = vae.linearize(z, context)
    traces = [gram(factor).diagonal(dim1=-2, dim2=-1).sum(-1) for factor in lin.factors]
    return sum(traces[1:], torch.zeros_like(traces[0])) / sum(traces)


def _off_data(train: _Points, held_out: _Points, seed: int, count: int = 2000) -> _Points:
    from sklearn.neighbors import NearestNeighbors

    nearest = NearestNeighbors(n_neighbors=1).fit(train.array)
    reach = np.quantile(nearest.kneighbors(held_out.array)[0], 0.99)
    codes = train.z.cpu().numpy()
    lower, upper = codes.min(0), codes.max(0)
    margin = 0.25 * (upper - lower)
    generator = np.random.default_rng(seed)
    points = generator.uniform(lower - margin, upper + margin, size=(20 * count, codes.shape[1])).astype(codes.dtype)
    rows = torch.from_numpy(generator.integers(len(codes), size=len(points))).to(train.z.device)
    drawn = _Points(torch.from_numpy(points).to(train.z), None if train.context is None else train.context[rows])
    far = torch.from_numpy(np.flatnonzero(nearest.kneighbors(drawn.array)[0][:, 0] > reach)[:count]).to(rows)
    if len(far) == 0:
        raise GeometryError("the codes fill their whole box: no latent point is off the data, so nothing to calibrate")
    return _Points(drawn.z[far], None if drawn.context is None else drawn.context[far])
