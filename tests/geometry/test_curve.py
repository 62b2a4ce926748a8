import math

import pytest
import torch
from torch import Tensor

from counterpath.errors import GeometryError, InputError
from counterpath.geometry.curve import energy, geodesic, length, metric_field, segment_lengths
from counterpath.geometry.metric import pullback
from counterpath.models.vae import VAE


def poincare(z: Tensor) -> Tensor:
    factor = 4 / (1 - z.square().sum(-1)) ** 2
    return factor[:, None, None] * torch.eye(2, dtype=z.dtype)


def poincare_distance(a: Tensor, b: Tensor) -> Tensor:
    inside = (1 - a.square().sum(-1)) * (1 - b.square().sum(-1))
    return torch.arccosh(1 + 2 * (a - b).square().sum(-1) / inside)


def sphere(z: Tensor) -> Tensor:
    """The unit sphere in stereographic coordinates."""
    factor = 4 / (1 + z.square().sum(-1)) ** 2
    return factor[:, None, None] * torch.eye(2, dtype=z.dtype)


def on_sphere(z: Tensor) -> Tensor:
    square = z.square().sum(-1, keepdim=True)
    return torch.cat([2 * z, square - 1], -1) / (1 + square)


START = torch.tensor([[-0.6, 0.1], [0.0, 0.7], [0.3, 0.3], [0.5, -0.5]], dtype=torch.float64)
END = torch.tensor([[0.5, 0.5], [0.6, -0.4], [0.3, 0.31], [0.5, -0.5]], dtype=torch.float64)


def test_geodesics_of_the_poincare_disk() -> None:
    found = geodesic(START, END, poincare, segments=64)
    torch.testing.assert_close(found.length, poincare_distance(START, END), rtol=1e-3, atol=1e-9)
    assert found.converged.all()
    assert (length(_straight(START, END), poincare)[:2] > 1.01 * found.length[:2]).all()


def test_geodesics_of_the_sphere() -> None:
    angle = (on_sphere(START) * on_sphere(END)).sum(-1).clamp(-1, 1).arccos()
    found = geodesic(START, END, sphere, segments=64)
    torch.testing.assert_close(found.length, angle, rtol=1e-3, atol=1e-7)


def test_the_euclidean_geodesic_is_a_straight_line_at_constant_speed() -> None:
    field = lambda z: torch.eye(2, dtype=z.dtype).expand(len(z), 2, 2)  # noqa: E731
    found = geodesic(START, END, field, segments=10)
    torch.testing.assert_close(found.points, _straight(START, END, 10), rtol=0, atol=1e-12)
    torch.testing.assert_close(energy(found.points, field), 0.5 * found.length**2)


def test_a_geodesic_has_constant_speed_and_fixed_ends() -> None:
    found = geodesic(START[:2], END[:2], poincare, segments=64)
    speed = segment_lengths(found.points, poincare)
    assert (speed.std(1) / speed.mean(1) < 1e-2).all()
    torch.testing.assert_close(found.points[:, 0], START[:2], rtol=0, atol=0)
    torch.testing.assert_close(found.points[:, -1], END[:2], rtol=0, atol=0)


def test_pairs_do_not_influence_each_other() -> None:
    together = geodesic(START, END, poincare)
    for pair in range(len(START)):
        alone = geodesic(START[pair : pair + 1], END[pair : pair + 1], poincare)
        torch.testing.assert_close(alone.points[0], together.points[pair], rtol=0, atol=1e-7)


def test_length_of_a_circle() -> None:
    angle = torch.linspace(0, 2 * math.pi, 2001, dtype=torch.float64)
    circle = 0.5 * torch.stack([angle.cos(), angle.sin()], -1)[None]
    expected = 2 * math.pi * math.sinh(2 * math.atanh(0.5))
    assert float(length(circle, poincare)) == pytest.approx(expected, rel=1e-5)


def test_a_latent_geodesic_is_no_longer_than_the_straight_line(vae: VAE, codes: Tensor) -> None:
    field = metric_field(vae.linearize, pullback)
    found = geodesic(codes[:5], codes[5:10], field, segments=20)
    assert (found.length < length(_straight(codes[:5], codes[5:10], 20), field)).all()


def test_bad_curves_are_refused() -> None:
    with pytest.raises(InputError, match="at least 2 segments"):
        geodesic(START, END, poincare, segments=1)
    with pytest.raises(GeometryError, match="not finite"):
        geodesic(START, END, lambda z: poincare(z) * torch.nan)


def _straight(start: Tensor, end: Tensor, segments: int = 64) -> Tensor:
    times = torch.linspace(0, 1, segments + 1, dtype=start.dtype)[None, :, None]
    return start[:, None] * (1 - times) + end[:, None] * times
