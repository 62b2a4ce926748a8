"""A generative model that is told some columns of a row, and leaves them as they are."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from counterpath.geometry.linearize import Linearization
from counterpath.models.layers import RBFPrecision
from counterpath.models.vae import VAE


class Held(nn.Module):
    """A VAE conditioned on columns of the row itself, which are copied through: what is decoded has them, exactly.

    The other columns stay plausible given those, and the uncertainty is one of code and condition together: a code that
    no row with these columns has is off the data.

    Args:
        vae: Conditioned on as many columns.
        columns: Which ones.
    """

    columns: Int[Tensor, "c"]

    def __init__(self, vae: VAE, columns: Sequence[int]) -> None:
        super().__init__()
        self.vae, self.latent, self.context = vae, vae.latent, vae.context
        self.register_buffer("columns", torch.tensor(list(columns)), persistent=False)

    @property
    def precision(self) -> RBFPrecision:
        """The RBF network of the uncertainty."""
        return self.vae.precision

    def given(self, x: Float[Tensor, "n D"]) -> Float[Tensor, "n c"]:
        """What the model is told about rows: their columns that are held."""
        return x[:, self.columns]

    def encode(self, x: Float[Tensor, "n D"], context: Tensor | None = None) -> Float[Tensor, "n d"]:
        """m(x), given the held columns of x."""
        return self.vae.encode(x, self.given(x))

    def decode(self, z: Float[Tensor, "n d"], context: Float[Tensor, "n c"] | None = None) -> Float[Tensor, "n D"]:
        """μ(z) with the held columns."""
        return self._holding(self.vae.decode(z, context), context)

    def uncertainty(self, z: Float[Tensor, "n d"], context: Float[Tensor, "n c"] | None = None) -> Float[Tensor, "n D"]:
        """σ(z), given the held columns."""
        return self.vae.uncertainty(z, context)

    def linearize(self, z: Float[Tensor, "n d"], context: Float[Tensor, "n c"] | None = None) -> Linearization:
        """μ(z) and σ(z) with their Jacobians by z; held columns do not move."""
        lin = self.vae.linearize(z, context)
        still = lin.mean_jac.index_fill(1, self.columns, 0.0)
        return replace(lin, mean=self._holding(lin.mean, context), mean_jac=still)

    def _holding(self, x: Tensor, context: Tensor | None) -> Tensor:
        return x if context is None else x.index_copy(-1, self.columns, context)
