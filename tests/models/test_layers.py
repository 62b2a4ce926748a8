import pytest
import torch
from torch import nn

from counterpath.errors import InputError, NotFittedError
from counterpath.geometry.linearize import jacobian
from counterpath.models.layers import RBFPrecision, TableOutput, fold, mlp
from counterpath.models.training import seeded

from ..conftest import random_classifier, random_vae


def test_an_mlp_has_batch_norm_and_tanh_between_linear_layers() -> None:
    kinds = [type(layer) for layer in mlp([3, 8, 4, 2], final=nn.Sigmoid())]
    block = [nn.Linear, nn.BatchNorm1d, nn.Tanh]
    assert kinds == [*block, *block, nn.Linear, nn.Sigmoid]


def test_folding_keeps_every_function_and_leaves_the_original_alone() -> None:
    vae, classifier = random_vae(), random_classifier()
    x, z = torch.rand(10, 6, dtype=torch.float64), torch.randn(10, 3, dtype=torch.float64)
    folded, folded_classifier = fold(vae), fold(classifier)
    assert not any(isinstance(m, nn.BatchNorm1d) for m in [*folded.modules(), *folded_classifier.modules()])
    assert any(isinstance(m, nn.BatchNorm1d) for m in vae.modules())
    torch.testing.assert_close(folded.encode(x), vae.encode(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(folded.linearize(z).mean_jac, vae.linearize(z).mean_jac, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(folded_classifier(x), classifier(x), rtol=1e-12, atol=1e-12)


def test_folding_refuses_statistics_that_are_not_there() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False))
    with pytest.raises(InputError, match="running statistics"):
        fold(network)


def _placed(codes: torch.Tensor, centers: int = 5, **options: object) -> RBFPrecision:
    layer = RBFPrecision(codes.shape[1], 2, centers).to(codes)
    layer.place(codes, 0.1 * torch.ones(2).to(codes), **options)  # type: ignore[arg-type]
    return layer


@pytest.mark.parametrize("tied", [True, False])
def test_the_precision_is_the_formula(tied: bool) -> None:
    codes = torch.randn(50, 3, dtype=torch.float64)
    layer = RBFPrecision(3, 2, 5, tied=tied).to(codes)
    layer.place(codes, torch.tensor([0.1, 0.2]).to(codes))
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


def test_a_table_output_is_a_softmax_for_each_category_and_the_number_s_layer_elsewhere() -> None:
    layer = TableOutput(8, [(1, 4), (4, 6)], nn.Sigmoid())
    x = torch.randn(5, 8, dtype=torch.float64)
    out = layer(x)
    for columns in ([0], [6, 7]):
        torch.testing.assert_close(out[:, columns], x[:, columns].sigmoid())
    for columns in (slice(1, 4), slice(4, 6)):
        torch.testing.assert_close(out[:, columns], x[:, columns].softmax(-1))
    jac = jacobian(layer, x)[1]
    for rows, others in (([0], [*range(1, 8)]), ([1, 2, 3], [0, 4, 5, 6, 7]), ([7], [*range(7)])):
        assert (jac[:, rows][:, :, others] == 0).all()
    torch.testing.assert_close(jac[:, 1:4].sum(1), torch.zeros(5, 8).double())


@pytest.mark.parametrize("blocks", [[(0, 3)], [(0, 1), (1, 3)], [(2, 3)], [(0, 2)]])
def test_the_pieces_of_a_table_output_cover_every_column_once(blocks: list[tuple[int, int]]) -> None:
    pieces = TableOutput(3, blocks, nn.Identity()).pieces
    assert [column for part, _ in pieces for column in range(part.start, part.stop)] == [0, 1, 2]
    assert [(part.start, part.stop) for part, category in pieces if category] == blocks
