import sys

import pytest
import torch

from counterpath.data.surface import Surface
from counterpath.models.flow import FlowModel, fit_flow
from counterpath.models.training import Run
from counterpath.utils.errors import MissingExtraError
from tests.geometry.test_metric_linearize import central_differences


@pytest.fixture(scope="module")
def flow(surface: Surface) -> FlowModel:
    return fit_flow(surface.x, transforms=2, hidden=(16,), epochs=5, batch_size=64, run=Run(seed=0))


def test_a_flow_is_a_latent_model_that_loses_nothing(flow: FlowModel, surface: Surface) -> None:
    torch.testing.assert_close(flow.decode(flow.encode(surface.x)), surface.x, rtol=1e-4, atol=1e-4)
    assert flow.uncertainty(surface.x) is None


def test_its_jacobian(flow: FlowModel) -> None:
    double = flow.double()
    z = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    lin = double.linearize(z)
    torch.testing.assert_close(lin.mean, double.decode(z), rtol=0, atol=1e-10)
    torch.testing.assert_close(lin.mean_jac, central_differences(double.decode, z), rtol=0, atol=1e-6)
    flow.float()


def test_without_zuko_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zuko", None)
    with pytest.raises(MissingExtraError, match=r"counterpath\[flow\]"):
        FlowModel(3)
