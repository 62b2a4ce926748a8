import pytest
import torch

from counterpath.geometry.metric import axes, jacobian_autodiff
from counterpath.models.layers import RBFPrecision
from counterpath.models.training import seeded
from counterpath.utils.errors import InputError, NotFittedError


def _placed(codes: torch.Tensor, centers: int = 5, **options: object) -> RBFPrecision:
    layer = RBFPrecision(codes.shape[1], 2, centers).to(codes)
    layer.fit_centers(codes, 0.1 * torch.ones(2).to(codes), **options)  # type: ignore[arg-type]
    return layer


@pytest.mark.parametrize("tied", [True, False])
def test_the_precision_is_the_formula(tied: bool) -> None:
    codes = torch.randn(50, 3, dtype=torch.float64)
    layer = RBFPrecision(3, 2, 5, tied=tied).to(codes)
    layer.fit_centers(codes, torch.tensor([0.1, 0.2]).to(codes))
    assert layer.log_weight.shape == (2, 1 if tied else 5)
    z = torch.randn(4, 3, dtype=torch.float64)
    bumps = torch.exp(-layer.bandwidth * torch.cdist(z, layer.centers) ** 2)
    precision = bumps @ layer.log_weight.exp().expand(2, 5).T + layer.zeta
    torch.testing.assert_close(layer.precision(z), precision)
    torch.testing.assert_close(layer(z), precision**-0.5)


def test_uncertainty_starts_at_the_residuals_and_rises_to_the_floor_of_the_precision() -> None:
    with seeded(0):
        codes = torch.randn(500, 2, dtype=torch.float64)
    layer = _placed(codes, centers=40)
    assert layer(codes).median().item() == pytest.approx(0.1, rel=0.25)
    far = layer(torch.tensor([[1e3, 1e3], [1e8, 0.0]], dtype=torch.float64))
    torch.testing.assert_close(far, torch.full_like(far, layer.zeta**-0.5))


def test_the_automatic_bandwidth_follows_the_scale_of_the_codes() -> None:
    with seeded(0):
        codes = torch.randn(500, 2, dtype=torch.float64)
    one, ten = _placed(codes, centers=20), _placed(10 * codes, centers=20)
    torch.testing.assert_close(one.bandwidth, 100 * ten.bandwidth, rtol=1e-3, atol=0)
    assert (one.bandwidth == one.bandwidth[0]).all()
    assert len(_placed(codes, centers=20, per_center=True).bandwidth.unique()) > 10
    torch.testing.assert_close(one(codes), ten(10 * codes), rtol=1e-3, atol=0)


@pytest.mark.parametrize("per_center", [False, True])
def test_clusters_of_one_point_give_a_finite_bandwidth(per_center: bool) -> None:
    codes = torch.cat([torch.randn(50, 2), torch.tensor([[50.0, 0], [0, 50], [-50, 0]])]).double()
    layer = _placed(codes, centers=8, per_center=per_center)
    assert layer.bandwidth.isfinite().all()
    assert layer(codes).isfinite().all()
    every = torch.randn(6, 2).double()
    assert _placed(every, centers=6, per_center=per_center).bandwidth.isfinite().all()


def test_a_number_is_the_paper_s_bandwidth() -> None:
    assert (_placed(torch.randn(50, 3), bandwidth=0.01).bandwidth == 0.01).all()
    for bad in (0.0, -1.0, float("nan"), "wide"):
        with pytest.raises(InputError, match="positive number or 'auto'"):
            _placed(torch.randn(50, 3), bandwidth=bad)


def test_more_centres_than_different_codes_are_refused() -> None:
    with pytest.raises(InputError, match="use fewer centres"):
        _placed(torch.randn(4, 3))
    with pytest.raises(InputError, match="1 of them different"):
        _placed(torch.ones(50, 3))


def test_an_unfitted_uncertainty_says_so_and_loaded_weights_count_as_fitted() -> None:
    layer = RBFPrecision(3, 2, 5)
    with pytest.raises(NotFittedError, match="has not been fitted"):
        layer(torch.randn(2, 3))
    layer.load_state_dict(_placed(torch.randn(50, 3)).state_dict())
    assert layer(torch.randn(2, 3)).isfinite().all()


@pytest.mark.parametrize("row_width", [0, 4])
def test_where_weights_are_tied_the_jacobian_is_a_product_of_two_vectors(row_width: int) -> None:
    codes, rows = torch.randn(40, 3, dtype=torch.float64), torch.rand(40, 4, dtype=torch.float64)
    layer = RBFPrecision(3, 2, 5, row_width=row_width).double()
    points = torch.cat([codes, rows, torch.ones_like(rows)], -1) if row_width else codes
    layer.fit_centers(points, torch.rand(2, dtype=torch.float64), rows=rows if row_width else None)
    std, jac, rise = layer.linearize_std(points, axes(points, 3))
    assert rise is not None
    torch.testing.assert_close(rise[0][..., None] * rise[1][:, None], jac)
    expected = jacobian_autodiff(layer, points, axes(points, 3))
    torch.testing.assert_close((std, jac), expected, rtol=1e-10, atol=1e-12)


def test_untied_weights_have_a_jacobian_of_any_rank() -> None:
    codes = torch.randn(40, 3, dtype=torch.float64)
    layer = RBFPrecision(3, 2, 5, tied=False).double()
    layer.fit_centers(codes, torch.rand(2, dtype=torch.float64))
    layer.log_weight.data += torch.randn_like(layer.log_weight)
    std, jac, rise = layer.linearize_std(codes, axes(codes))
    assert rise is None
    torch.testing.assert_close((std, jac), jacobian_autodiff(layer, codes), rtol=1e-10, atol=1e-12)
