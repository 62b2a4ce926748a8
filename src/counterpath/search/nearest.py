"""The baseline to beat: the nearest training row that the classifier accepts."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from counterpath.geometry.neighbours import nearest


def nearest_accepted(
    factual: Float[Tensor, "n D"], train: Float[Tensor, "m D"], accepted: Bool[Tensor, "m"]
) -> Float[Tensor, "n D"]:
    """The accepted training row closest to each factual: on the data by construction, and somebody's own record."""
    candidates = train[accepted]
    return candidates[nearest(factual, candidates)[1]]


def straight_path(start: Float[Tensor, "n D"], end: Float[Tensor, "n D"], steps: int) -> Float[Tensor, "t n D"]:
    """Points on the straight line between rows, ends included."""
    times = torch.linspace(0, 1, steps + 1, dtype=start.dtype, device=start.device)[:, None, None]
    return start * (1 - times) + end * times
