"""Measures of counterfactuals and of the paths to them, each a plain function."""

import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.geometry.neighbours import nearest


def distance_to_data(x: Float[Tensor, "n D"], train: Float[Tensor, "m D"]) -> Float[Tensor, "n"]:
    """LD(x) = min over training rows t of ‖x − t‖₂: how far from any real row (Pegios et al., section 4.2)."""
    return nearest(x, train)[0]


def path_distance_to_data(path: Float[Tensor, "t n D"], train: Float[Tensor, "m D"]) -> Float[Tensor, "t n"]:
    """LD of every point of every path."""
    return distance_to_data(path.flatten(0, 1), train).view(path.shape[:2])


def turning(path: Float[Tensor, "t n D"]) -> Float[Tensor, "n"]:
    """Σ of the angles, in radians, between one step of the path and the next; steps of no length do not count."""
    step = path[1:] - path[:-1]
    size = step.norm(dim=-1)
    both = (size[1:] > 0) & (size[:-1] > 0)
    product = torch.where(both, size[1:] * size[:-1], 1)
    cosine = (step[1:] * step[:-1]).sum(-1) / product
    return torch.where(both, cosine.clamp(-1, 1).arccos(), 0).sum(0)


def instability(
    end: Float[Tensor, "n D"],
    moved_end: Float[Tensor, "n D"],
    start: Float[Tensor, "n D"],
    moved_start: Float[Tensor, "n D"],
) -> float:
    """How far ends move when starts move: mean ‖Δend‖₂ / mean ‖Δstart‖₂. Below 1 the search contracts."""
    return float((moved_end - end).norm(dim=-1).mean() / (moved_start - start).norm(dim=-1).mean())
