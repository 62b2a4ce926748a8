import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpath.geometry.curve import (
    MetricField,
    energy,
    geodesic,
    length,
    metric_field,
    relax,
    resample,
    segment_lengths,
)
from counterpath.geometry.metric import pullback
from counterpath.models.training import seeded
from counterpath.models.vae import VAE
from counterpath.utils.errors import GeometryError, InputError
from tests.sizes import examples


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


# Resampling


def _place_on(polyline: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """How far along a polyline the nearest point of it is, and how far away, for every point."""
    first, step = polyline[:-1], polyline.diff(dim=0)
    size = step.norm(dim=-1)
    share = ((points[:, None] - first) * step).sum(-1) / size.square().clamp_min(1e-300)
    share = share.clamp(0, 1)
    away = (points[:, None] - first - share[..., None] * step).norm(dim=-1)
    segment = away.argmin(1)
    behind = size.cumsum(0) - size
    return behind[segment] + share.gather(1, segment[:, None])[:, 0] * size[segment], away.amin(1)


@given(st.integers(2, 12), st.integers(1, 20), st.integers(0, 10_000))
@settings(max_examples=examples(40), deadline=None)
def test_resampled_points_lie_on_the_curve_at_equal_distances_along_it(count: int, segments: int, seed: int) -> None:
    with seeded(seed):
        # always forward in the first coordinate: no point is passed twice
        steps = torch.cat([torch.rand(3, count, 1) + 0.1, torch.randn(3, count, 2)], -1).double()
    curves = steps.cumsum(1)
    found = resample(curves, segments)
    assert found.shape == (3, segments + 1, 3)
    assert torch.equal(found[:, 0], curves[:, 0])
    assert torch.equal(found[:, -1], curves[:, -1])
    for curve, points in zip(curves, found, strict=True):
        along, away = _place_on(curve, points)
        total = curve.diff(dim=0).norm(dim=-1).sum()
        assert away.max() < 1e-12
        torch.testing.assert_close(along, total * torch.linspace(0, 1, segments + 1).double(), rtol=0, atol=1e-6)


@given(st.integers(1, 20), st.integers(0, 10_000))
@settings(max_examples=examples(20), deadline=None)
def test_resampling_again_changes_nothing_on_a_straight_line(segments: int, seed: int) -> None:
    with seeded(seed):
        share = torch.rand(2, 9, dtype=torch.float64).sort(1).values
        start, end = torch.randn(2, 2, 1, 4, dtype=torch.float64)
    once = resample(torch.lerp(start, end, share[..., None]), segments)
    torch.testing.assert_close(resample(once, segments), once, rtol=0, atol=1e-12)
    size = once.diff(dim=1).norm(dim=-1)
    torch.testing.assert_close(size, size[:, :1].expand_as(size), rtol=0, atol=1e-12)


def test_repeated_points_change_nothing() -> None:
    with seeded(0):
        curves = torch.randn(5, 6, 2, dtype=torch.float64)
    waits = curves[:, [0, 0, 0, 1, 2, 2, 3, 4, 5, 5, 5, 5]]
    torch.testing.assert_close(resample(waits, 10), resample(curves, 10), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_curve_of_one_point_stays(dtype: torch.dtype) -> None:
    still = torch.tensor([[0.3, -2.0]], dtype=dtype).expand(1, 4, 2)
    both = torch.cat([still, torch.arange(8, dtype=dtype).view(1, 4, 2)])
    found = resample(both, 6)
    assert found.dtype == dtype
    assert torch.equal(found[0], still[0, :1].expand(7, 2))
    assert found[1].isfinite().all()
    assert torch.equal(resample(both[:, :2], 1), both[:, :2])
    assert torch.equal(resample(both[:, :1], 3), both[:, :1].expand(-1, 4, -1))


# Relaxing


def bump(z: Tensor) -> Tensor:
    """A conformal metric that makes the middle expensive."""
    factor = (1 + 4 * torch.exp(-4 * z.square().sum(-1))).square()
    return factor[:, None, None] * torch.eye(2, dtype=z.dtype)


def polar(z: Tensor) -> Tensor:
    """The plane in polar coordinates (r, θ): dr² + r²dθ²."""
    return torch.diag_embed(torch.stack([torch.ones_like(z[:, 0]), z[:, 0].square()], -1))


def _squares(field: MetricField) -> MetricField:
    def squares(points: Tensor) -> Tensor:
        step, middle = points.diff(dim=1), 0.5 * (points[:, 1:] + points[:, :-1])
        metric = field(middle.flatten(0, 1)).unflatten(0, middle.shape[:2])
        return torch.einsum("pti,ptij,ptj->pt", step, metric, step)

    return squares


FIELDS: dict[str, tuple[MetricField, Tensor, Tensor]] = {
    "bump": (bump, torch.tensor([[-1.5, 0.1], [-1, 0.6]]), torch.tensor([[1.5, 0.2], [0.8, -1.5]])),
    "polar": (polar, torch.tensor([[1.0, 0], [0.5, 1]]), torch.tensor([[1.0, 2], [2, -0.5]])),
    "sphere": (sphere, START[:2].float(), END[:2].float()),
}


@pytest.mark.parametrize("name", FIELDS)
def test_curves_relax_to_geodesics(name: str) -> None:
    field, start, end = FIELDS[name]
    start, end = start.double(), end.double()
    straight = _straight(start, end, 16)
    found = geodesic(start, end, field, segments=16, initial=straight)
    scale, last = field(0.5 * (start + end)), straight
    for _ in range(4):
        relaxed = relax(last, _squares(field), scale, steps=3)
        assert (energy(relaxed, field) <= energy(last, field)).all()
        assert torch.equal(relaxed[:, [0, -1]], straight[:, [0, -1]])
        last = relaxed
    gained = (energy(straight, field) - energy(last, field)) / (energy(straight, field) - energy(found.points, field))
    assert (gained > 0.5).all(), "twelve steps gain most of it"
    close = relax(straight, _squares(field), scale, steps=300)
    torch.testing.assert_close(energy(close, field), energy(found.points, field), rtol=1e-3, atol=0)
    torch.testing.assert_close(length(close, field), found.length, rtol=1e-3, atol=0)


def test_relaxed_curves_in_polar_coordinates_are_chords() -> None:
    start, end = (FIELDS["polar"][index].double() for index in (1, 2))
    relaxed = relax(_straight(start, end), _squares(polar), polar(0.5 * (start + end)), steps=300)
    chord = (start[:, 0] * start[:, 0] + end[:, 0] * end[:, 0]) - 2 * start[:, 0] * end[:, 0] * (
        end[:, 1] - start[:, 1]
    ).cos()
    torch.testing.assert_close(length(relaxed, polar), chord.sqrt(), rtol=1e-3, atol=0)


@given(st.integers(1, 12), st.integers(0, 8), st.integers(0, 10_000), st.floats(-3, 3))
@settings(max_examples=examples(30), deadline=None)
def test_relaxing_never_raises_the_energy(segments: int, steps: int, seed: int, exponent: float) -> None:
    with seeded(seed):
        curves = torch.randn(3, segments + 1, 2, dtype=torch.float64)
        factor = torch.randn(3, 4, 2, dtype=torch.float64)
    scale = 10**exponent * (factor.mT @ factor)  # whatever it is: a wrong scale makes it slow, not wrong
    relaxed = relax(curves, _squares(bump), scale, steps=steps)
    assert (energy(relaxed, bump) <= energy(curves, bump)).all()
    assert torch.equal(relaxed[:, [0, -1]], curves[:, [0, -1]])
    alone = relax(curves[1:2], _squares(bump), scale[1:2], steps=steps)
    torch.testing.assert_close(alone[0], relaxed[1], rtol=0, atol=1e-9)


def test_one_metric_everywhere_takes_one_step() -> None:
    metric = torch.tensor([[2.0, 0.5], [0.5, 1.0]]).double()
    field = lambda z: metric.expand(len(z), 2, 2)  # noqa: E731
    with seeded(0):
        curves = torch.randn(4, 9, 2, dtype=torch.float64)
    relaxed = relax(curves, _squares(field), metric.expand(4, 2, 2), steps=1)
    torch.testing.assert_close(relaxed, _straight(curves[:, 0], curves[:, -1], 8), rtol=0, atol=1e-12)


def _straight(start: Tensor, end: Tensor, segments: int = 64) -> Tensor:
    times = torch.linspace(0, 1, segments + 1, dtype=start.dtype)[None, :, None]
    return start[:, None] * (1 - times) + end[:, None] * times
