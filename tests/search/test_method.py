import pytest

from counterpath.data.surface import Surface
from counterpath.geometry.metric import DAMPING
from counterpath.models.flow import fit_flow
from counterpath.models.training import Run
from counterpath.search.method import METHODS, SearchModels
from counterpath.search.objective import Objective
from counterpath.search.step import euclidean_length, slope
from counterpath.search.traverse import traverse
from counterpath.utils.errors import InputError, NotFittedError, choose


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("target", [0, 1])
def test_every_method_lowers_the_loss_for_either_class(
    name: str, target: int, parts: SearchModels, surface: Surface
) -> None:
    if name == "flow":
        flow = fit_flow(surface.x, transforms=1, hidden=(16,), epochs=5, batch_size=64, run=Run(seed=0))
        parts = SearchModels(parts.classifier, parts.vae, flow).folded()
    method = METHODS[name](parts)
    x = surface.x[surface.y == 1 - target][:40]
    found = traverse(method.model, method.metric, Objective(parts.classifier, target), x, steps=20, block_size=64)
    assert found.loss[-1].mean() < found.loss[0].mean()
    assert found.probability[-1].mean() > found.probability[0].mean() + 0.05
    assert found.x.isfinite().all()


@pytest.mark.parametrize("name", ["sgd", "rsgd", "rsgd-c", "flow"])
def test_a_method_without_its_model_says_what_to_fit(name: str, parts: SearchModels) -> None:
    with pytest.raises(NotFittedError, match="fit one first"):
        METHODS[name](SearchModels(parts.classifier))


def test_an_unknown_method_lists_the_valid_ones() -> None:
    with pytest.raises(InputError, match=r"unknown method 'rsdg' \(did you mean 'rsgd'\?\); choose one of: wachter, "):
        choose("method", "rsdg", METHODS)


@pytest.mark.parametrize("name", ["rsgd", "rsgd-c"])
def test_riemannian_steps_shun_uncertainty(name: str, parts: SearchModels, surface: Surface) -> None:
    """The same gradient, turned by the metric, climbs less of σ than it does as it is."""
    method, vae = METHODS[name](parts), parts.vae
    assert vae is not None
    z = 1.1 * vae.encode(surface.x)
    here = slope(vae, method.metric, Objective(parts.classifier), z, surface.x, None, DAMPING)
    std_jac = vae.linearize(z).std_jac
    assert std_jac is not None
    climbs = [
        (std_jac.double() @ euclidean_length(way.double(), way.double())[..., None]).norm(dim=(1, 2)).mean()
        for way in (here.direction, here.gradient)
    ]
    assert climbs[0] < 0.5 * climbs[1]
