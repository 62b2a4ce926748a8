import pytest
import torch

from counterpath.data.surface import Surface
from counterpath.errors import InputError, NotFittedError, choose
from counterpath.methods import METHODS, Parts
from counterpath.models.flow import fit_flow
from counterpath.models.training import Run
from counterpath.search.objective import Objective
from counterpath.search.traverse import traverse


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("target", [0, 1])
def test_every_method_lowers_the_loss_for_either_class(name: str, target: int, parts: Parts, surface: Surface) -> None:
    if name == "flow":
        flow = fit_flow(surface.x, transforms=1, hidden=(16,), epochs=5, batch_size=64, run=Run(seed=0))
        parts = Parts(parts.classifier, parts.vae, flow).folded()
    method = METHODS[name](parts)
    x = surface.x[surface.y == 1 - target][:40]
    found = traverse(method.model, method.metric, Objective(parts.classifier, target), x, steps=20, block_size=64)
    assert found.loss[-1].mean() < found.loss[0].mean()
    assert found.probability[-1].mean() > found.probability[0].mean() + 0.05
    assert found.x.isfinite().all()


@pytest.mark.parametrize("name", ["sgd", "rsgd", "rsgd-c", "flow"])
def test_a_method_without_its_model_says_what_to_fit(name: str, parts: Parts) -> None:
    with pytest.raises(NotFittedError, match="fit one first"):
        METHODS[name](Parts(parts.classifier))


def test_an_unknown_method_lists_the_valid_ones() -> None:
    with pytest.raises(InputError, match=r"unknown method 'rsdg' \(did you mean 'rsgd'\?\); choose one of: wachter, "):
        choose("method", "rsdg", METHODS)


def test_riemannian_methods_stay_closer_to_the_data(parts: Parts, surface: Surface) -> None:
    from counterpath.measures import distance_to_data

    x = surface.x[surface.y == 0]
    far = {}
    for name in ("sgd", "rsgd", "rsgd-c"):
        method = METHODS[name](parts)
        end = traverse(method.model, method.metric, Objective(parts.classifier), x, steps=100).end
        far[name] = float(distance_to_data(end, surface.x).square().mean())
    assert far["rsgd"] < 0.7 * far["sgd"]
    assert far["rsgd-c"] < 0.7 * far["sgd"]
    assert torch.tensor(list(far.values())).isfinite().all()
