"""What a search needs of a generative model, and the model that is none: the data space itself."""

from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from counterpath.geometry.linearize import Linearization, jacobian


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
    """The data space as its own latent space, for methods that search in X."""

    def encode(self, x: Float[Tensor, "n D"], context: Tensor | None = None) -> Float[Tensor, "n D"]:
        """The rows themselves."""
        return x

    def decode(self, z: Float[Tensor, "n D"], context: Tensor | None = None) -> Float[Tensor, "n D"]:
        """The codes themselves."""
        return z

    def uncertainty(self, z: Float[Tensor, "n D"], context: Tensor | None = None) -> None:
        """None: nothing is generated here."""

    def linearize(self, z: Float[Tensor, "n D"], context: Tensor | None = None) -> Linearization:
        """x = z with Jacobian I."""
        return Linearization(*jacobian(nn.Identity(), z))


def given(model: Any, x: Float[Tensor, "n D"], mask: Bool[Tensor, "n D"] | None = None) -> Tensor | None:
    """What a model is told about rows before it decodes: some of their columns, or nothing."""
    told = getattr(model, "given", None)
    return None if told is None else told(x, mask)


def join(z: Float[Tensor, "n d"], context: Float[Tensor, "n c"] | None) -> Float[Tensor, "n i"]:
    """The input of a conditioned network: code and context side by side."""
    return z if context is None else torch.cat([z, context], dim=-1)
