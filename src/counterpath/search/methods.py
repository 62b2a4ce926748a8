"""The methods by name: built in, or registered by other packages; and the one way in which they are run.

A package registers a method of its own as an entry point of the group `counterpath.methods`.
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points

import torch

from counterpath.geometry.metric import Metric
from counterpath.models.latent import LatentModel
from counterpath.search.descent import Descent
from counterpath.search.face import Face
from counterpath.search.geodesic import Geodesic
from counterpath.search.literature.cchvae import CCHVAE
from counterpath.search.literature.clue import Clue
from counterpath.search.literature.cruds import Cruds
from counterpath.search.literature.dice import Dice
from counterpath.search.literature.growing_spheres import GrowingSpheres
from counterpath.search.literature.mcce import Mcce
from counterpath.search.literature.nice import Nice
from counterpath.search.literature.ppcef import Ppcef
from counterpath.search.literature.revise import Revise
from counterpath.search.method import AnyModels, Method, Problem
from counterpath.search.nearest import Nearest
from counterpath.search.paths import Paths, merge
from counterpath.search.refine import refined
from counterpath.search.validity import check_paths
from counterpath.utils.errors import InputError, MethodError, choose

GROUP = "counterpath.methods"
"""The group of entry points under which packages register methods."""
NEAREST = "nearest"
"""The trivial baseline, which stands in every comparison."""
ROWS_AT_ONCE = {"cpu": 1 << 14, "cuda": 1 << 18}
"""How many rows are searched for at once, by device. A GPU takes as long for ten thousand rows as for a hundred
thousand, because launching its kernels takes longer than running them; see `rows_at_once` for its memory."""
_PATH_POINTS, _MEMORY_SHARE = 151, 8
"""Points of a path that a local search keeps of every row, and of which share of a GPU's memory all of them may take:
an eighth, because what is made of them takes a few times as much."""


_BUILT_IN = (
    Descent("wachter", "plain descent on the values themselves; ignores the data", space="data", metric="euclidean"),
    Descent("ambient", "descent on the values, as the classifier sees them", space="data", metric="guided"),
    Descent("sgd", "plain descent in the latent space; may leave the data", space="vae", metric="euclidean"),
    Descent("rsgd", "downhill in the latent space; leaving the data is expensive", space="vae", metric="pullback"),
    Descent("rsgd-c", "the same, in the terms in which the classifier sees rows", space="vae", metric="guided"),
    Descent("flow", "plain descent in the latent space of a normalizing flow", space="flow", metric="euclidean"),
    Geodesic(),
    Face(),
    Nearest(),
)
_LITERATURE = (Revise(), CCHVAE(), Clue(), Cruds(), GrowingSpheres(), Nice(), Dice(), Ppcef(), Mcce())
LITERATURE = tuple(method.name for method in _LITERATURE)
"""The names of what is built in for comparison alone, each from its paper: see `search.literature`."""
METHODS: dict[str, Method] = {method.name: method for method in (*_BUILT_IN, *_LITERATURE)}
"""The built-in methods.

References:
    `wachter`: Wachter, Mittelstadt and Russell, 2017 (the paper's equation 1). `ambient`: the paper's equation 4.
    `sgd`: Joshi et al., REVISE, 2019. `rsgd`: the paper's equations 2 and 3. `rsgd-c`: its equations 3 and 6.
    `flow`: Dombrowski et al., 2021. `face`: Poyiadzi et al., 2020.
"""


def rows_at_once(device: torch.device, width: int) -> int:
    """How many rows of so many encoded columns are searched for at once on a device."""
    rows = ROWS_AT_ONCE[device.type]
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory // _MEMORY_SHARE
        rows = min(rows, max(memory // (_PATH_POINTS * width * torch.float32.itemsize), 1))
    return rows


def search(method: Method, problem: Problem) -> Paths:
    """Search for all rows of a problem, not too many at once.

    Raises:
        MethodError: A method that is not built in returned what is no answer.
    """
    factual = problem.feasible.factual
    rows = torch.arange(len(problem), device=factual.device).split(rows_at_once(factual.device, factual.shape[1]))
    return merge([(some, _search(method, problem.at(some))) for some in rows])


def _search(method: Method, problem: Problem) -> Paths:
    paths = method.search(problem)
    if problem.options.refine and not method.refines:
        paths = refined(problem, paths)
    if type(method).__module__.startswith("counterpath."):  # the tests of all methods check the built-in ones
        return paths
    if not isinstance(paths, Paths):
        raise MethodError(f"method {method.name!r} returned {type(paths).__name__}; expected Paths: see Problem.paths")
    check_paths(method.name, problem.validator, problem.feasible, paths)
    return paths


def resolve_method(method: str | Method) -> Method:
    """The method of a name, built in or registered by a package; an object is returned as it is.

    Raises:
        InputError: There is no such method, or two packages registered one under the same name.
    """
    if isinstance(method, Method):
        if not getattr(method, "name", ""):
            raise InputError(f"{method!r} has no name; give the class an attribute `name`, a text")
        return method
    if not isinstance(method, str):
        raise InputError(
            f"method is {method!r}; expected a name, for instance 'geodesic', or an object of a Method class"
        )
    registered = _registered()
    if method in registered:
        return _load(registered[method])
    choose("method", method, dict.fromkeys(method_names()))
    return METHODS[method]


def geometry_of(method: str, models: AnyModels) -> tuple[LatentModel, Metric]:
    """The space that a local method searches in, and its metric; see `Descent.geometry`.

    Raises:
        InputError: It is no local method, or unknown.
    """
    found = resolve_method(method)
    if not isinstance(found, Descent):
        raise InputError(f"method {method!r} does not step downhill: it has no geometry of its own")
    return found.geometry(models)


def method_names() -> tuple[str, ...]:
    """The names of all methods, the built-in ones first."""
    return (*METHODS, *_registered())


@cache
def _registered() -> dict[str, EntryPoint]:
    """The entry points of other packages by name."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        first = "counterpath" if point.name in METHODS else found.get(point.name)
        if first is not None:
            one = first if isinstance(first, str) else _package(first)
            raise InputError(
                f"two packages have a method {point.name!r}: {one} and {_package(point)}; uninstall one of them"
            )
        found[point.name] = point
    return found


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def _load(point: EntryPoint) -> Method:
    found = point.load()
    method = found() if isinstance(found, type) else found
    if not isinstance(method, Method) or getattr(method, "name", "") != point.name:  # by which requests are repeated
        wanted = f"expected a Method whose name is {point.name!r}"
        raise InputError(f"the method {point.name!r} of {_package(point)} is {method!r}; {wanted}")
    return method
