"""A variational autoencoder whose decoder knows where it has seen data."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from counterpath.errors import InputError, choose
from counterpath.geometry.linearize import Linearization, axes, jacobian
from counterpath.models.latent import join
from counterpath.models.layers import TableOutput, mlp
from counterpath.models.precision import DEFAULT_ZETA, RBFPrecision
from counterpath.models.told import copied, heard, tell

OUTPUTS: dict[str, type[nn.Module]] = {"sigmoid": nn.Sigmoid, "linear": nn.Identity}


class VAE(nn.Module):
    """Gaussian VAE: z ~ N(m(x), s(x)²), x = μ(z) + σ(z)⊙ε, with σ from an RBF network.

    Args:
        features: D, the width of a row.
        latent: d, the width of a code.
        hidden: Widths of the encoder's hidden layers; the decoder mirrors them.
        told: Whether mean and uncertainty are told some columns of the row, which are copied through (see `told`).
            The others stay plausible given those, and the uncertainty is one of code and told columns together: a code
            that no row with these columns has is off the data. The code itself does not depend on what is told.
        held: Columns that a model is always told.
        output: "sigmoid" for rows in [0, 1], "linear" for rows without bounds.
        blocks: The columns of each one-hot category, as (first, last + 1); their probabilities come from a softmax.
        centers: RBF centres of the uncertainty.
        tied: Whether all centres share one weight a feature (see `RBFPrecision`).
        zeta: Floor ζ of the precision.

    References:
        Kingma and Welling, "Auto-encoding variational Bayes", ICLR 2014.
    """

    def __init__(
        self,
        features: int,
        latent: int,
        *,
        hidden: tuple[int, ...] = (512, 256),
        told: bool = False,
        held: Sequence[int] = (),
        output: str = "sigmoid",
        blocks: Sequence[tuple[int, int]] = (),
        centers: int = 200,
        tied: bool = True,
        zeta: float = DEFAULT_ZETA,
    ) -> None:
        super().__init__()
        if len(held) and not told:
            raise InputError("a VAE holds columns by being told them: give told=True")
        self.latent, self.told, self.output = latent, told, output
        number = choose("output", output, OUTPUTS)()
        final = TableOutput(features, blocks, number) if blocks else number
        context = 2 * features if told else 0
        self.encoder = mlp([features, *hidden, 2 * latent])
        self.decoder = mlp([latent + context, *reversed(hidden), features], final=final)
        self.register_buffer("category", category_columns(features, blocks), persistent=False)
        always = torch.zeros(features, dtype=torch.bool)
        always[list(held)] = True
        self.register_buffer("held", always, persistent=False)
        self.precision = RBFPrecision(latent, features, centers, told=features if told else 0, tied=tied, zeta=zeta)

    category: Tensor | None
    held: Tensor

    def given(self, x: Float[Tensor, "n D"], mask: Bool[Tensor, "n D"] | None = None) -> Float[Tensor, "n 2*D"] | None:
        """What the model is told about rows: their held columns, and those of the mask."""
        if not self.told:
            return None
        return tell(x, self.held.expand_as(x) if mask is None else mask | self.held)

    def posterior(
        self, x: Float[Tensor, "n D"], context: Float[Tensor, "n c"] | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]:
        """Mean m(x) and standard deviation s(x) of the approximate posterior."""
        mean, log_variance = self.encoder(x).chunk(2, dim=-1)
        return mean, torch.exp(0.5 * log_variance)

    def encode(self, x: Float[Tensor, "n D"], context: Float[Tensor, "n c"] | None = None) -> Float[Tensor, "n d"]:
        """m(x)."""
        return self.posterior(x)[0]

    def decode(self, z: Float[Tensor, "n d"], context: Float[Tensor, "n c"] | None = None) -> Float[Tensor, "n D"]:
        """μ(z), with the columns that were told."""
        mean = self.decoder(join(z, self._checked(context)))
        return mean if context is None else copied(mean, context)

    def uncertainty(self, z: Float[Tensor, "n d"], context: Float[Tensor, "n c"] | None = None) -> Float[Tensor, "n D"]:
        """σ(z), given the columns that were told."""
        return self.precision(join(z, self._checked(context)))  # type: ignore[no-any-return]

    def linearize(self, z: Float[Tensor, "n d"], context: Float[Tensor, "n c"] | None = None) -> Linearization:
        """μ(z) and σ(z) with their Jacobians by z; columns that were told do not move."""
        point = join(z, self._checked(context))
        tangents = axes(point, self.latent)
        mean, mean_jac = jacobian(self.decoder, point, tangents)
        std, std_jac, rise = self.precision.linearize(point, tangents)
        if context is not None:
            mean = copied(mean, context)
            mean_jac = torch.where(heard(context)[1][..., None], 0, mean_jac)
        return Linearization(mean, mean_jac, std, std_jac, self.category, rise)

    def _checked(self, context: Tensor | None) -> Tensor | None:
        if self.told != (context is not None):
            told = "is told columns of the row: give it the context of `given`" if self.told else "is told nothing"
            raise InputError(f"this VAE {told}; the context given is {'missing' if context is None else 'too much'}")
        return context


def category_columns(width: int, blocks: Sequence[tuple[int, int]]) -> Bool[Tensor, "D"] | None:
    """Which of `width` columns belong to a category; None if none does."""
    if not blocks:
        return None
    mask = torch.zeros(width, dtype=torch.bool)
    for first, end in blocks:
        mask[first:end] = True
    return mask
