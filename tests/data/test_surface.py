import pytest
import torch

from counterpath.data.surface import HOLE_RADIUS, NOISE, SCALE, chart_of, sample_surface
from counterpath.utils.errors import InputError


def test_the_surface_is_as_the_paper_says() -> None:
    found = sample_surface(20_000, seed=0)
    assert found.chart.norm(dim=-1).min() >= HOLE_RADIUS
    assert found.chart.abs().max() <= 1
    assert torch.equal(found.y > 0, found.chart[:, 1] > 2.5 * found.chart[:, 0] ** 2)
    noise = (chart_of(found.x) - found.chart) * torch.pi
    assert noise.std().item() == pytest.approx(NOISE, rel=0.02)
    height = found.x[:, 2] * SCALE - 0.25 * torch.sin(torch.pi * (found.chart[:, 0] + 1))
    assert height.std().item() == pytest.approx(NOISE, rel=0.02)
    assert 0.15 < found.y.mean() < 0.25


def test_the_axes_are_scaled_alike_and_centred() -> None:
    x = sample_surface(20_000, seed=0).x
    assert x.mean(0).abs().max() < 0.03
    torch.testing.assert_close(x.std(0)[:2], torch.ones(2), rtol=0.05, atol=0)
    assert x[:, 2].std() < 0.15


def test_seeds_decide() -> None:
    assert torch.equal(sample_surface(50, seed=1).x, sample_surface(50, seed=1).x)
    assert not torch.equal(sample_surface(50, seed=1).x, sample_surface(50, seed=2).x)


def test_no_points_are_refused() -> None:
    with pytest.raises(InputError, match="at least one"):
        sample_surface(0, seed=0)
