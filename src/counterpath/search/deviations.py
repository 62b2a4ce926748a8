"""Imperfect following: where people end up who mean to become a row, and miss the numbers that change by a little."""

import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.data.axes import MixedAxes, NumberAxis
from counterpath.data.encoding import Encoder

MOST_STEPS = 2
"""By how many steps a person misses a number at most, up or down, each count as probable as the other."""
DRAWS = 32
"""Deviations that are tried: with 32, a share of 0.9 is known to within 0.05, one standard error."""
SHARE_OF_RANGE = 0.01
"""A step of a number for which the schema has none, and that is not whole: one per cent of its range."""


def deviations(
    encoder: Encoder, x: Float[Tensor, "n D"], factual: Float[Tensor, "n D"], seed: int = 0
) -> Float[Tensor, "n r D"]:
    """Rows as people may end up who mean to become `x`: every number that changed a few steps off, and legal.

    Args:
        encoder: Knows the features and their steps.
        x: Legal rows.
        factual: What each of them was.
        seed: Of the draws, which are the same for all rows.
    """
    generator = torch.Generator().manual_seed(seed)
    count = len(encoder.layout)
    off = torch.randint(-MOST_STEPS, MOST_STEPS + 1, (DRAWS, count), generator=generator).to(x.device)
    found = x[:, None].repeat(1, DRAWS, 1)
    for index, (columns, axis) in enumerate(zip(encoder.layout, encoder.axes, strict=True)):
        numbers, column = axis.value if isinstance(axis, MixedAxes) else axis, columns.start
        if not isinstance(numbers, NumberAxis):
            continue
        moved = x[:, column] != factual[:, column]
        if isinstance(axis, MixedAxes):
            moved &= x[:, column + 1] > 0
        rows = moved.nonzero()[:, 0]
        if len(rows) == 0:
            continue
        feature = encoder.schema.features[index]
        reach = encoder.high[index] - encoder.low[index]
        step = float(feature.step or (1.0 if numbers.whole else SHARE_OF_RANGE * reach))
        there = numbers.numbers(x[rows, column : column + 1])[:, None] + step * off[:, index]
        there = there.clamp(numbers.lower, numbers.upper)
        found[rows, :, column] = numbers.points(there.flatten())[:, 0].view(there.shape).to(x.dtype)
    legal = encoder.round(found.flatten(0, 1)).view(found.shape)
    return torch.where(found == x[:, None], x[:, None], legal)
