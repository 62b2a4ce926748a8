"""The fast path against the plain one, on a GPU."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import counterpath as cp
from counterpath.geometry.metric import jacobian, jacobian_autodiff
from counterpath.search import descent
from counterpath.search.feasible import FeasibleSet
from counterpath.search.method import SearchModels, SearchOptions
from counterpath.search.methods import METHODS, geometry_of, search
from counterpath.search.objective import Objective, Target
from counterpath.search.step import slope
from counterpath.search.traverse import Trajectory, at_confidence, traverse
from counterpath.utils import devices
from tests.conftest import random_classifier, random_vae

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(scope="module")
def models() -> SearchModels:
    return SearchModels(random_classifier().float().cuda(), random_vae().float().cuda()).folded()


@pytest.fixture(scope="module")
def rows() -> torch.Tensor:
    return torch.rand(300, 6, generator=torch.Generator().manual_seed(0)).cuda()


def _walk(models: SearchModels, rows: torch.Tensor, method: str, **options: object) -> Trajectory:
    model, metric = geometry_of(method, models)
    options = {"steps": 20, "block_size": 128} | options
    return traverse(model, metric, Objective(models.classifier), rows, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["rsgd", "rsgd-c"])
def test_a_step_with_kernels_is_one_without(
    models: SearchModels, rows: torch.Tensor, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model, metric), objective = geometry_of(method, models), Objective(models.classifier)
    with torch.no_grad():
        z = model.encode(rows)
        fast = slope(model, metric, objective, z, rows, None, 1e-3)
        monkeypatch.setattr(devices, "_installed", lambda: False)
        plain = slope(model, metric, objective, z, rows, None, 1e-3)
    for name in ("x", "loss", "probability", "sigma", "gradient", "direction"):
        one, other = getattr(fast, name).double(), getattr(plain, name).double()
        assert (one - other).norm() <= 1e-4 * other.norm(), name
    assert torch.equal(fast.valid, plain.valid)


def test_derivatives_by_torch_pass_the_kernels_by(models: SearchModels, rows: torch.Tensor) -> None:
    assert models.vae is not None
    with torch.no_grad():
        z = models.vae.encode(rows)
        for module in (models.vae.decoder, models.vae.precision):
            fast, plain = jacobian(module, z)[1], jacobian_autodiff(module, z)[1]
            assert (fast - plain).norm() <= 1e-4 * plain.norm()
    z.requires_grad_()
    slope_by_z = torch.autograd.grad(models.vae.uncertainty(z).sum(), z)[0]
    torch.testing.assert_close(slope_by_z, jacobian(models.vae.precision, z.detach())[1].sum(1), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("method", ["wachter", "ambient", "sgd", "rsgd", "rsgd-c"])
@pytest.mark.parametrize("stop", [None, 0.6])
def test_a_replayed_search_has_the_bits_of_one_that_is_not(
    models: SearchModels, rows: torch.Tensor, method: str, stop: float | None
) -> None:
    rule = {} if stop is None else {"stop": at_confidence(stop)}
    # A rule that is the user's own is not recorded.
    same = {} if stop is None else {"stop": lambda here: here.probability >= stop}
    if stop is None:
        same = {"stop": lambda here: torch.zeros_like(here.valid)}
    replayed, plain = _walk(models, rows, method, **rule), _walk(models, rows, method, **same)
    for name in ("z", "x", "probability", "steps", "reason", "length"):
        assert torch.equal(getattr(replayed, name), getattr(plain, name)), name
    ends = _walk(models, rows, method, keep="end", **rule)
    assert torch.equal(ends.end, replayed.end)


@pytest.mark.parametrize("features", [12, 40])
def test_metrics_of_any_size_can_be_searched(features: int) -> None:
    """Small ones are recorded, and larger ones, whose systems a library solves, are not."""
    parts, rows = SearchModels(random_classifier(features).float().cuda()), torch.rand(20, features).cuda()
    found = _walk(parts, rows, "ambient", steps=6)
    assert bool(found.end.isfinite().all())
    plain = _walk(parts, rows, "ambient", steps=6, stop=lambda here: torch.zeros_like(here.valid))
    assert torch.equal(found.x, plain.x)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("method", ["sgd", "rsgd", "rsgd-c"])
def test_a_search_for_people_that_is_replayed_has_the_bits_of_one_that_is_not(
    explainer: cp.Explainer, tmp_path: Path, method: str, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = cp.load(explainer.save(tmp_path / "model"), device="cuda").models_
    target = Target(1, confidence=0.6)
    feasible = FeasibleSet.of(models.encoder, models.rows[~target.is_reached(models.probabilities)][:60])
    problem = models.problem(METHODS[method], feasible, target, SearchOptions(max_steps=40))
    problem = replace(problem, setup=replace(problem.setup, exact=exact))
    replayed = search(METHODS[method], problem)
    monkeypatch.setattr(descent, "never_waits", lambda *pieces: False)
    plain = search(METHODS[method], problem)
    for name in ("row", "x", "z", "sigma", "probability", "reason", "fallback"):
        assert torch.equal(getattr(replayed, name), getattr(plain, name)), name


@pytest.mark.parametrize("method", ["sgd", "rsgd", "rsgd-c"])
def test_a_search_on_a_gpu_is_one_on_a_cpu(models: SearchModels, rows: torch.Tensor, method: str) -> None:
    on_cpu = SearchModels(models.classifier.cpu(), models.vae.cpu())
    here = _walk(on_cpu, rows.cpu(), method, steps=3)
    there = _walk(SearchModels(models.classifier.cuda(), models.vae.cuda()), rows, method, steps=3)
    assert (there.z.cpu() - here.z).norm(dim=-1).median() <= 1e-5
    rough = _walk(SearchModels(models.classifier.cuda(), models.vae.cuda()), rows, method, steps=3, tf32=True)
    assert (rough.z.cpu() - here.z).norm(dim=-1).median() <= 2e-2
