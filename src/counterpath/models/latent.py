"""What a search needs of a generative model, and the model that is none: the data space itself."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from counterpath.geometry.linearize import Linearization, axes


@runtime_checkable
class LatentModel(Protocol):
    """Anything whose latent space can be searched.

    `context` is what the model is conditioned on, one row a person; models without conditions are given None.
    """

    def encode(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """The codes of rows."""
        ...

    def decode(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        """The rows that codes stand for."""
        ...

    def uncertainty(self, z: Tensor, context: Tensor | None = None) -> Tensor | None:
        """σ(z) of every feature, or None for a model that has none."""
        ...

    def linearize(self, z: Tensor, context: Tensor | None = None) -> Linearization:
        """Decoded rows, their uncertainty, and how both change with z."""
        ...


class IdentityModel(nn.Module):
    """The data space as its own latent space, for methods that search in X.

    Args:
        held: Columns that do not move.
    """

    def __init__(self, held: Sequence[int] = ()) -> None:
        super().__init__()
        self.held = list(held)

    def encode(self, x: Float[Tensor, "n D"], context: Tensor | None = None) -> Float[Tensor, "n D"]:
        """The rows themselves."""
        return x

    def decode(self, z: Float[Tensor, "n D"], context: Tensor | None = None) -> Float[Tensor, "n D"]:
        """The codes themselves; gradients by held columns are 0."""
        if not self.held:
            return z
        columns = torch.tensor(self.held, device=z.device)
        return z.index_copy(-1, columns, z.detach()[:, columns])

    def uncertainty(self, z: Float[Tensor, "n D"], context: Tensor | None = None) -> None:
        """None: nothing is generated here."""

    def linearize(self, z: Float[Tensor, "n D"], context: Tensor | None = None) -> Linearization:
        """x = z with Jacobian I."""
        jac = axes(z).permute(1, 2, 0)
        return Linearization(z, jac.index_fill(1, torch.tensor(self.held, device=z.device), 0.0) if self.held else jac)


def given(model: LatentModel, x: Tensor) -> Tensor | None:
    """What a model is told about rows before it decodes: some of their columns, or nothing."""
    told = getattr(model, "given", None)
    return None if told is None else told(x)


def join(z: Float[Tensor, "n d"], context: Float[Tensor, "n c"] | None) -> Float[Tensor, "n i"]:
    """The input of a conditioned network: code and context side by side."""
    return z if context is None else torch.cat([z, context], dim=-1)
