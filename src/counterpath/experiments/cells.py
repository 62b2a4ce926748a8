"""From one number a row to the cells of tables: means with their spreads, and paired differences."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

DRAWS = 1000

Parts = Mapping[str, Mapping[str, Tensor]]
"""What was measured: by run, and within a run by measure and step, one number a row."""


def cell(values: Sequence[Tensor], masks: Sequence[Tensor]) -> dict[str, float | None]:
    """Mean and standard deviation over rows, each averaged over the seeds, and the spread of the means over seeds."""
    picked = [value[mask].double() for value, mask in zip(values, masks, strict=True) if bool(mask.any())]
    if not picked:
        return {"mean": None, "std": None, "seed_std": None}
    means = [float(value.mean()) for value in picked]
    spreads = [float(value.std(correction=0)) for value in picked]
    return {"mean": float(np.mean(means)), "std": float(np.mean(spreads)), "seed_std": float(np.std(means))}


def difference(gaps: Sequence[Tensor], generator: np.random.Generator) -> dict[str, float] | None:
    """The mean of paired differences, with a bootstrap interval (95 %, rows resampled in each seed).

    Args:
        gaps: For each seed the differences, of the rows that both solved.
        generator: Of the draws.

    Returns:
        `mean`, `low` and `high`; None if there is no row in any seed.
    """
    draws = []
    for gap in (gap.double().numpy() for gap in gaps if len(gap)):
        picks = generator.integers(0, len(gap), size=(DRAWS, len(gap)), dtype=np.int32)
        draws.append(np.concatenate([[gap.mean()], gap[picks].mean(1)]))
    if not draws:
        return None
    mean = np.mean(draws, axis=0)
    low, high = np.quantile(mean[1:], [0.025, 0.975])
    return {"mean": float(mean[0]), "low": float(low), "high": float(high)}


def everywhere(masks: Sequence[Tensor]) -> Tensor:
    """The rows that are in all of them."""
    return torch.stack(list(masks)).all(0)
