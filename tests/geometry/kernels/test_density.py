import pytest
import torch


@pytest.mark.parametrize("extra", [False, True])
@pytest.mark.parametrize(("rows", "centers", "axes"), [(50, 130, 5), (1, 7, 2), (200, 64, 8)])
def test_mass_and_slope(device: torch.device, rows: int, centers: int, axes: int, extra: bool) -> None:
    from counterpath.geometry.kernels.density import density

    generator = torch.Generator().manual_seed(0)
    z, c = (3 + torch.randn(count, axes, generator=generator) for count in (rows, centers))
    rate = 0.2 + torch.rand(centers, generator=generator)
    other = torch.rand(rows, centers, generator=generator) if extra else None
    difference = z[:, None].double() - c.double()
    squared = difference.square().sum(-1) + (0 if other is None else other.double())
    basis = torch.exp(-rate.double() * squared)
    mass, slope = density(*(each.to(device) for each in (z, c, rate)), None if other is None else other.to(device))
    torch.testing.assert_close(mass.double().cpu(), basis.sum(1), rtol=1e-5, atol=1e-6)
    expected = ((basis * rate)[..., None] * difference).sum(1)
    torch.testing.assert_close(slope.double().cpu(), expected, rtol=1e-4, atol=2e-5 * float(basis.sum(1).max()))
