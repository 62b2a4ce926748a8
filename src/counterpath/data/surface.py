"""The paper's first data set: a sheet in R³ with a hole in its middle.

x = [z, 0.25·sin(z₁)] + ε with z ~ U(0, 2π)² and ε ~ N(0, 0.1²·I). The chart u = z/π − 1 has its corners at ±1; points
with ‖u‖ < 0.2 are left out, and the label is 1 where u₂ > 2.5·u₁². All three axes are centred and divided by one
number, so that the thin direction stays thin.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from counterpath.utils.errors import InputError

NOISE = 0.1  # standard deviation, as in the paper
HOLE_RADIUS = 0.2  # in the chart, as in the paper
ENTERED = 0.19
"""A path enters the hole if it comes within this chart distance of its centre: a little less than the radius, because
noise (0.03 in the chart) moves points of the rim inwards, too."""
_CENTER = torch.tensor([np.pi, np.pi, 0.0])  # the mean of the sheet
SCALE = float(np.pi / np.sqrt(3))
"""Standard deviation of U(0, 2π): what every axis is divided by."""


@dataclass(frozen=True)
class Surface:
    """A sample of the surface.

    Attributes:
        x: Points in R³, centred and scaled.
        y: Labels, 0 or 1.
        chart: The coordinates u in [−1, 1]² that they were made from.
    """

    x: Float[Tensor, "n 3"]
    y: Float[Tensor, "n"]
    chart: Float[Tensor, "n 2"]


def sample_surface(count: int, *, seed: int) -> Surface:
    """Draw `count` points of the surface, none of them in the hole."""
    if count < 1:
        raise InputError(f"a sample needs at least one point; given {count}")
    generator = np.random.default_rng(seed)
    chart = np.empty((0, 2))
    while len(chart) < count:
        drawn = generator.uniform(-1, 1, size=(2 * count, 2))
        chart = np.concatenate([chart, drawn[np.linalg.norm(drawn, axis=1) >= HOLE_RADIUS]])
    chart = chart[:count]
    z = np.pi * (chart + 1)
    points = np.column_stack([z, 0.25 * np.sin(z[:, 0])]) + generator.normal(scale=NOISE, size=(count, 3))
    labels = (chart[:, 1] > 2.5 * chart[:, 0] ** 2).astype(np.float32)
    x = (torch.from_numpy(points).float() - _CENTER) / SCALE
    return Surface(x, torch.from_numpy(labels), torch.from_numpy(chart).float())


def chart_of(x: Float[Tensor, "*rows 3"]) -> Float[Tensor, "*rows 2"]:
    """The chart coordinates above which points of R³ lie."""
    return (x[..., :2] * SCALE + np.pi) / np.pi - 1


def hole_distance(path: Tensor) -> Tensor:
    """How near paths `(t, n, 3)` come to the hole's centre in the chart, segments included."""
    u = chart_of(path)
    start, step = u[:-1], u[1:] - u[:-1]
    squared = step.square().sum(-1)
    along = (-(start * step).sum(-1) / torch.where(squared > 0, squared, 1)).clamp(0, 1)
    closest: Tensor = (start + along[..., None] * step).norm(dim=-1).amin(0)
    return closest


def enters_hole(path: Tensor) -> Tensor:
    """Which paths `(t, n, 3)` come within 0.19 of the hole's centre."""
    return hole_distance(path) < ENTERED
