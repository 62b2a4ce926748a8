"""Requests as they are recorded with their answers, and asked again."""

from collections.abc import Mapping
from typing import Any

from counterpath.data.constraints import Constraints
from counterpath.explanation import Explanation
from counterpath.explanation.milestones import KEEP
from counterpath.explanation.tables import PLAN
from counterpath.utils.errors import InputError, choose

WALK = (
    "max_steps",
    "step_size",
    "damping",
    "sparsify",
    "keep_residual",
    "fallback",
    "fidelity",
    "refine",
    "allow_copies",
    "tf32",
)
"""The parameters of an Explainer that say how to search."""
_OWN = (*WALK, "seed", "model", "representation_layer", "ambient_metric", "uncertainty_cost")
_WISHES = tuple(Constraints().to_json())
_ASKED = ("target_class", "confidence", "method", "time_limit", "plans", KEEP, *_WISHES)
_MATTERS = {
    "representation_layer": ("rsgd-c", "ambient", "geodesic"),
    "ambient_metric": ("geodesic",),
    "uncertainty_cost": ("geodesic",),
}
"""The settings that matter for some methods only."""


def record(settings: Mapping[str, Any], constraints: Constraints, *, method: str, **asked: Any) -> dict[str, Any]:
    """A request as it is told and stored: what was asked for, and the settings that the answer depends on."""
    own = {name: settings[name] for name in _OWN if method in _MATTERS.get(name, (method,))}
    return {"method": method, **asked, **constraints.to_json(), **own}


def asked_again(
    asked: Explanation | Mapping[str, Any], table: Any, settings: Mapping[str, Any]
) -> tuple[Any, dict[str, Any], int | None]:
    """The rows, the arguments of `Explainer.explain` that ask for the same about them, and which plan was taken if any.

    Args:
        asked: An explanation, or the request of one.
        table: The rows; None for those of the explanation.
        settings: Those of the explainer that is asked.

    Raises:
        InputError: This is no request, or it was made with other settings; the message names them.
    """
    if table is None and not isinstance(asked, Explanation):
        raise InputError("a request has no rows of its own; give them too: repeat(request, table)")
    request = asked.request if isinstance(asked, Explanation) else asked
    arguments = _arguments(request, settings)
    if table is None:
        assert isinstance(asked, Explanation)
        table = (asked.plan(1) if asked.plans > 1 else asked).factuals
    return table, arguments, request.get(PLAN)


def _arguments(request: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(request, Mapping):
        raise InputError(f"{request!r} is no request; expected an Explanation, its request, or a mapping like that")
    for name in request:
        choose("part of a request", str(name), dict.fromkeys((*_ASKED, *_OWN, PLAN)))
    other = [name for name in _OWN if name in request and request[name] != settings[name]]
    if other:
        then, now = (", ".join(f"{name}={given[name]!r}" for name in other) for given in (request, settings))
        raise InputError(
            f"the request was made with {then}, and this explainer has {now}; repeat it with the explainer that made it"
        )
    wishes = Constraints.from_json({name: request[name] for name in _WISHES if name in request})
    return {name: request[name] for name in _ASKED if name in request} | {"lock": wishes.lock, "ranges": wishes.ranges}
