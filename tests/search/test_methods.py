import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from counterpath.data.surface import Surface
from counterpath.fitting.fitted import FittedModels
from counterpath.geometry.metric import DAMPING
from counterpath.models.flow import fit_flow
from counterpath.models.training import Run
from counterpath.search import methods
from counterpath.search.descent import Descent
from counterpath.search.feasible import FeasibleSet
from counterpath.search.method import Method, Problem, SearchModels, SearchOptions
from counterpath.search.methods import METHODS, geometry_of, method_names, resolve_method, search
from counterpath.search.objective import Objective, Target
from counterpath.search.paths import Paths, is_first
from counterpath.search.step import euclidean_length, slope
from counterpath.search.traverse import traverse
from counterpath.search.validity import check_paths
from counterpath.utils.errors import InputError, MethodError, NotFittedError

DESCENTS = [name for name, method in METHODS.items() if isinstance(method, Descent)]


@pytest.mark.parametrize("name", DESCENTS)
@pytest.mark.parametrize("target", [0, 1])
def test_every_descent_lowers_the_loss_for_either_class(
    name: str, target: int, search_models: SearchModels, surface: Surface
) -> None:
    if name == "flow":
        flow = fit_flow(surface.x, transforms=1, hidden=(16,), epochs=5, batch_size=64, run=Run(seed=0))
        search_models = SearchModels(search_models.classifier, search_models.vae, flow).folded()
    model, metric = geometry_of(name, search_models)
    x = surface.x[surface.y == 1 - target][:40]
    found = traverse(model, metric, Objective(search_models.classifier, target), x, steps=20, block_size=64)
    assert found.loss[-1].mean() < found.loss[0].mean()
    assert found.probability[-1].mean() > found.probability[0].mean() + 0.05
    assert found.x.isfinite().all()


@pytest.mark.parametrize("name", ["sgd", "rsgd", "rsgd-c", "flow"])
def test_a_method_without_its_model_says_what_to_fit(name: str, search_models: SearchModels) -> None:
    with pytest.raises(NotFittedError, match="fit one first"):
        geometry_of(name, SearchModels(search_models.classifier))


def test_an_unknown_method_lists_the_valid_ones(search_models: SearchModels) -> None:
    with pytest.raises(InputError, match=r"unknown method 'rsdg' \(did you mean 'rsgd'\?\); choose one of: wachter, "):
        resolve_method("rsdg")
    with pytest.raises(InputError, match="has no geometry"):
        geometry_of("nearest", SearchModels(search_models.classifier))


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if not method.needs])
@pytest.mark.parametrize("lock", [(), ("sex",)])
def test_what_a_method_returns_passes_the_checks_of_a_foreign_one(
    name: str, lock: tuple[str, ...], models: FittedModels
) -> None:
    target = Target(1, confidence=0.6)
    rows = models.rows[~target.is_reached(models.probabilities)][:40]
    fixed = torch.zeros_like(rows, dtype=torch.bool)
    fixed[:, models.encoder.columns(*lock)] = True
    feasible = FeasibleSet.of(models.encoder, rows).fix(fixed)
    problem = models.problem(METHODS[name], feasible, target, SearchOptions(max_steps=20))
    paths = METHODS[name].search(problem)
    check_paths(name, problem.validator, feasible, paths)
    assert paths.found.any()


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_under_its_own_name(name: str) -> None:
    assert METHODS[name].name == name
    assert resolve_method(name) is METHODS[name]
    assert resolve_method(METHODS[name]) is METHODS[name]


class Odd(Method):
    """Returns whatever it is given."""

    name = "odd"

    def __init__(self, change: Callable[[Paths], Paths]) -> None:
        self.change = change

    def search(self, problem: Problem) -> Paths:
        return self.change(METHODS["nearest"].search(problem))


def _moved(paths: Paths, index: Tensor, column: int, value: float) -> Paths:
    x = paths.x.clone()
    x[index, column] = value
    return replace(paths, x=x)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda paths: paths, None),
        (lambda paths: _moved(paths, paths.last, 3, math.nan), "numbers that are not finite"),
        (lambda paths: _moved(paths, paths.last, 0, 5.0), "leaves the feasible set"),
        (lambda paths: _moved(paths, paths.last - 1, 0, 0.5), "neither legal nor the row's own"),
        (lambda paths: _moved(paths, paths.last - 10, 0, 0.0), "starts elsewhere"),
        (lambda paths: paths.points(is_first(paths.row)), "is not valid, and calls it found"),
        (lambda paths: paths.select(torch.arange(3)), "expected one for each of 40"),
        (lambda paths: None, "NoneType; expected Paths"),
    ],
)
def test_a_foreign_method_is_checked_and_named(
    change: Callable[[Paths], Paths], problem: str | None, models: FittedModels
) -> None:
    target, method = Target(1, confidence=0.6), Odd(change)
    rows = models.rows[(~target.is_reached(models.probabilities)) & (models.rows[:, 0] == 1)]
    rows = rows[torch.arange(40) % len(rows)]
    feasible = FeasibleSet.of(models.encoder, rows)
    if problem is None:
        assert search(method, models.problem(method, feasible, target, SearchOptions())).found.all()
        return
    with pytest.raises(MethodError, match=f"method 'odd' returned.*{problem}"):
        search(method, models.problem(method, feasible, target, SearchOptions()))


STRAIGHT, BROKEN = Odd(lambda paths: paths), 7


def _point(name: str, package: str, found: str = "STRAIGHT") -> EntryPoint:
    """An entry point as an installed package has it, to something of this module."""
    return EntryPoint(name, f"{__name__}:{found}", methods.GROUP)._for(SimpleNamespace(name=package))  # type: ignore[attr-defined, no-any-return]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """The entry points that are found."""
    points: list[EntryPoint] = []
    monkeypatch.setattr(methods, "entry_points", lambda group: points if group == methods.GROUP else [])
    methods._registered.cache_clear()
    yield points
    methods._registered.cache_clear()


def test_a_package_registers_a_method_by_an_entry_point(installed: list[EntryPoint]) -> None:
    installed.append(_point("odd", "recourse-plus"))
    assert resolve_method("odd") is STRAIGHT
    assert method_names()[-1] == "odd"
    installed.extend([_point("broken", "recourse-plus", "BROKEN"), _point("straight", "recourse-plus")])
    methods._registered.cache_clear()
    with pytest.raises(InputError, match="the method 'broken' of recourse-plus is 7; expected a Method"):
        resolve_method("broken")
    with pytest.raises(InputError, match=r"is Odd\('odd'\); expected a Method whose name is 'straight'"):
        resolve_method("straight")


@pytest.mark.parametrize(("name", "packages"), [("rsgd", ["counterpath", "one"]), ("straight", ["one", "two"])])
def test_two_methods_of_one_name_are_an_error_that_names_both_packages(
    name: str, packages: list[str], installed: list[EntryPoint]
) -> None:
    installed.extend(_point(name, package) for package in packages if package != "counterpath")
    with pytest.raises(InputError, match=f"two packages have a method '{name}': {packages[0]} and {packages[1]}"):
        resolve_method("sgd")


@pytest.mark.parametrize("name", ["rsgd", "rsgd-c"])
def test_riemannian_steps_shun_uncertainty(name: str, search_models: SearchModels, surface: Surface) -> None:
    """The same gradient, turned by the metric, climbs less of σ than it does as it is."""
    vae, metric = geometry_of(name, search_models)
    z = 1.1 * vae.encode(surface.x)
    here = slope(vae, metric, Objective(search_models.classifier), z, surface.x, None, DAMPING)
    std_jac = vae.linearize(z).std_jac
    assert std_jac is not None
    climbs = [
        (std_jac.double() @ euclidean_length(step.double(), step.double())[..., None]).norm(dim=(1, 2)).mean()
        for step in (here.direction, here.gradient)
    ]
    assert climbs[0] < 0.5 * climbs[1]
