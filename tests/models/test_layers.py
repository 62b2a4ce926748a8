import pytest
import torch
from torch import nn

from counterpath.geometry.metric import jacobian
from counterpath.models.layers import TableOutput, fold, mlp
from counterpath.utils.errors import InputError
from tests.conftest import random_classifier, random_vae


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
