"""How well a decoder knows what it does not know."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from counterpath.blocks import map_blocks
from counterpath.errors import GeometryError
from counterpath.geometry.metric import gram
from counterpath.models.vae import VAE

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Calibration:
    """The uncertainty of a decoder, on the data and off them.

    Attributes:
        sigma_share: tr(JσᵀJσ) / tr(M), the mean over held-out codes: how much the uncertainty weighs in the metric.
        sigma_on: Median over held-out codes of σ, averaged over the features.
        sigma_off: The same over latent points off the data: drawn uniformly in the box of the training codes enlarged
            by half, and farther from any training code than 99 % of the held-out codes are.
        auc: Probability that σ at a point off the data exceeds σ at a held-out code.
    """

    sigma_share: float
    sigma_on: float
    sigma_off: float
    auc: float


@torch.no_grad()
def calibrate(vae: VAE, train: Float[Tensor, "n D"], held_out: Float[Tensor, "m D"], *, seed: int = 0) -> Calibration:
    """Measure the uncertainty of an unconditional VAE on held-out rows and off the data."""
    codes, held_out_codes = map_blocks(vae.encode, train), map_blocks(vae.encode, held_out)
    off = _off_data(codes.cpu().numpy(), held_out_codes.cpu().numpy(), seed)
    on_sigma = map_blocks(vae.uncertainty, held_out_codes).mean(-1).cpu().numpy()
    off_sigma = map_blocks(vae.uncertainty, torch.from_numpy(off).to(codes)).mean(-1).cpu().numpy()
    is_off = np.concatenate([np.zeros(len(on_sigma)), np.ones(len(off_sigma))])
    return Calibration(
        sigma_share=float(map_blocks(lambda z: _share(vae, z), held_out_codes).mean()),
        sigma_on=float(np.median(on_sigma)),
        sigma_off=float(np.median(off_sigma)),
        auc=float(roc_auc_score(is_off, np.concatenate([on_sigma, off_sigma]))),
    )


def _share(vae: VAE, z: Tensor) -> Tensor:
    lin = vae.linearize(z)
    traces = [gram(factor).diagonal(dim1=-2, dim2=-1).sum(-1) for factor in lin.factors]
    return traces[1] / (traces[0] + traces[1])


def _off_data(codes: Array, held_out: Array, seed: int, count: int = 2000) -> Array:
    nearest = NearestNeighbors(n_neighbors=1).fit(codes)
    reach = np.quantile(nearest.kneighbors(held_out)[0], 0.99)
    lower, upper = codes.min(0), codes.max(0)
    margin = 0.25 * (upper - lower)
    generator = np.random.default_rng(seed)
    points = generator.uniform(lower - margin, upper + margin, size=(20 * count, codes.shape[1])).astype(codes.dtype)
    off: Array = points[nearest.kneighbors(points)[0][:, 0] > reach][:count]
    if len(off) == 0:
        raise GeometryError("the codes fill their whole box: no latent point is off the data, so nothing to calibrate")
    return off
