from itertools import pairwise

import pytest
import torch
from torch import nn

from counterpath.geometry.metric import axes, push
from counterpath.models.training import seeded

SIZES = [
    pytest.param((3, 40, 70, 5), 3, id="nothing is a whole tile"),
    pytest.param((5, 256, 512, 13), 5, id="Adult"),
    pytest.param((9, 64, 128, 20), 4, id="some inputs are told"),
    pytest.param((2, 16, 16, 1), 1, id="one axis"),
]


def _network(sizes: tuple[int, ...], scale: float = 1.0) -> nn.Sequential:
    with seeded(0):
        linear = [nn.Linear(inputs, outputs) for inputs, outputs in pairwise(sizes)]
    for layer in linear:
        layer.weight.data *= scale
    return nn.Sequential(linear[0], nn.Tanh(), linear[1], nn.Tanh(), linear[2]).requires_grad_(False)


@pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")  # NumPy's, in the interpreter
@pytest.mark.parametrize(("sizes", "latent"), SIZES)
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e-4])
def test_value_and_tangents_are_those_of_the_plain_rules(
    device: torch.device, sizes: tuple[int, ...], latent: int, scale: float
) -> None:
    from counterpath.geometry.kernels import tangents

    roadmap, z = _network(sizes, scale), torch.randn(150, sizes[0])
    value, slopes = push(roadmap.double(), z.double(), axes(z.double(), latent))
    linear = [layer for layer in roadmap.float().to(device) if isinstance(layer, nn.Linear)]
    given = [layer.weight for layer in linear], [layer.bias for layer in linear], z.to(device)
    directions = torch.eye(sizes[0], device=device)[:latent]
    for exact, tolerance in ((True, 2e-5), (False, 5e-3)):
        out, pushed = tangents.push(*given, directions, exact=exact)
        for found, expected in ((out, value), (pushed, slopes)):
            assert (found.double().cpu() - expected).norm() <= tolerance * expected.norm()


def test_any_directions_and_any_rows(device: torch.device) -> None:
    from counterpath.geometry.kernels import tangents

    roadmap = _network((4, 32, 48, 7))
    linear = [layer for layer in roadmap.to(device) if isinstance(layer, nn.Linear)]
    weights, biases = [layer.weight for layer in linear], [layer.bias for layer in linear]
    z, directions = torch.randn(65, 4, device=device), torch.randn(6, 4, device=device)
    whole = tangents.push(weights, biases, z, directions, exact=True)
    expected = push(roadmap.double(), z.double(), directions[:, None].double())
    torch.testing.assert_close(whole[1].double(), expected[1], rtol=1e-4, atol=1e-5)
    few = tangents.push([w.float() for w in weights], [b.float() for b in biases], z[3:20], directions, exact=True)
    assert torch.equal(few[1], whole[1][:, 3:20]), "a row's numbers do not depend on who else is there"
