"""What a generative model is told about a row: some of its columns, and which.

The context of a row x under the mask m is [x∘m, m]: the columns that the model is told, and 0 for the others. Told
columns are copied through, so that what is decoded has them, exactly.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_NOTHING_MORE = 0.5


def tell(x: Float[Tensor, "n D"], mask: Bool[Tensor, "n D"]) -> Float[Tensor, "n 2*D"]:
    """The context of rows under masks."""
    return torch.cat([torch.where(mask, x, 0), mask.to(x.dtype)], dim=-1)


def heard(context: Float[Tensor, "n c"]) -> tuple[Float[Tensor, "n D"], Bool[Tensor, "n D"]]:
    """The columns that a context tells, and the mask."""
    values, mask = context.chunk(2, dim=-1)
    return values, mask > 0


def copied(decoded: Float[Tensor, "n D"], context: Float[Tensor, "n c"]) -> Float[Tensor, "n D"]:
    """Decoded rows with the columns that were told."""
    values, mask = heard(context)
    return torch.where(mask, values, decoded)


def membership(layout: Sequence[slice], width: int) -> Float[Tensor, "f D"]:
    """Row f is 1 in the columns of feature f."""
    member = torch.zeros(len(layout), width)
    for feature, columns in enumerate(layout):
        member[feature, columns] = 1
    return member


def draw_masks(
    count: int, member: Float[Tensor, "f D"], held: Bool[Tensor, "D"], generator: torch.Generator
) -> Bool[Tensor, "n D"]:
    """Random masks: half of them tell nothing but the held columns, the others from one to all features but one more.

    Args:
        count: How many masks.
        member: The columns of each feature, as of `membership`.
        held: Columns that every mask has.
        generator: Of the randomness.
    """
    features, device = len(member), member.device
    most = torch.randint(1, max(2, features), (count, 1), generator=generator, device=device)
    order = torch.rand(count, features, generator=generator, device=device).argsort(1).argsort(1)
    more = torch.rand(count, 1, generator=generator, device=device) >= _NOTHING_MORE
    return (((order < most) & more).to(member.dtype) @ member > 0) | held
