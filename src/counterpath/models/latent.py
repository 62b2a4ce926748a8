"""What a search needs of a generative model, the data space as such a model, and how a model is conditioned on columns.

The context of a row x under the mask m is [x∘m, m]: the columns on which the model is conditioned, and 0 for the
others. Conditioned columns are copied through, so that what is decoded has them, exactly.
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from counterpath.geometry.metric import Linearization, jacobian

_UNCONDITIONED_SHARE = 0.5
"""Half: requests that fix nothing and requests that fix something are equally important, so both get equal training."""


@runtime_checkable
class LatentModel(Protocol):
    """Anything whose latent space can be searched.

    `context` is what the model is conditioned on, one line for each row; models without conditions get None.
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


def context_for(model: Any, x: Float[Tensor, "n D"], mask: Bool[Tensor, "n D"] | None = None) -> Tensor | None:
    """The context of rows for a model: see `VAE.context`; None for a model that cannot be conditioned."""
    context = getattr(model, "context", None)
    return None if context is None else context(x, mask)


def make_context(x: Float[Tensor, "n D"], mask: Bool[Tensor, "n D"]) -> Float[Tensor, "n 2*D"]:
    """The context [x∘m, m] of rows under masks."""
    return torch.cat([torch.where(mask, x, 0), mask.to(x.dtype)], dim=-1)


def split_context(context: Float[Tensor, "n c"]) -> tuple[Float[Tensor, "n D"], Bool[Tensor, "n D"]]:
    """The values x∘m and the mask m of a context."""
    values, mask = context.chunk(2, dim=-1)
    return values, mask > 0


def copy_conditioned(decoded: Float[Tensor, "*k n D"], context: Float[Tensor, "n c"]) -> Float[Tensor, "*k n D"]:
    """Decoded rows with the conditioned columns in place."""
    values, mask = split_context(context)
    return torch.where(mask, values, decoded)


def concat_context(z: Float[Tensor, "n d"], context: Float[Tensor, "n c"] | None) -> Float[Tensor, "n i"]:
    """The input of a conditioned network: code and context side by side."""
    return z if context is None else torch.cat([z, context], dim=-1)


def membership(layout: Sequence[slice], width: int) -> Float[Tensor, "f D"]:
    """Row f is 1 in the columns of feature f."""
    member = torch.zeros(len(layout), width)
    for feature, columns in enumerate(layout):
        member[feature, columns] = 1
    return member


def draw_masks(
    count: int, member: Float[Tensor, "f D"], always: Bool[Tensor, "D"], generator: torch.Generator
) -> Bool[Tensor, "n D"]:
    """Random masks: half of them have no columns but `always`, the others one to all but one of the features more.

    Args:
        count: How many masks.
        member: The columns of each feature, as of `membership`.
        always: Columns that every mask has.
        generator: Of the randomness.
    """
    features, device = len(member), member.device
    most = torch.randint(1, max(2, features), (count, 1), generator=generator, device=device)
    order = torch.rand(count, features, generator=generator, device=device).argsort(1).argsort(1)
    more = torch.rand(count, 1, generator=generator, device=device) >= _UNCONDITIONED_SHARE
    return (((order < most) & more).to(member.dtype) @ member > 0) | always
