"""What is asked for: one type for every caller, as it is recorded with the answer, and asked again."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Any

from counterpath.data.constraints import CONSTRAINTS, Constraints, parse_count
from counterpath.data.schema import Number, Schema
from counterpath.explanation import Explanation
from counterpath.explanation.tables import ALL, PLAN, check_keep
from counterpath.search.method import Method
from counterpath.search.methods import resolve_method
from counterpath.utils.errors import InputError, choose

OTHER = "other"
"""The target class of a request for any class but the one that a row is in now."""
SEARCH_SETTINGS = (
    "max_steps",
    "step_size",
    "damping",
    "sparsify",
    "keep_residual",
    "fallback",
    "fidelity",
    "refine",
    "allow_copies",
    "avoid_unseen",
    "staged",
    "tf32",
)
"""The parameters of an Explainer on which the answers of every method depend."""
_METHOD_SETTINGS = ("representation_layer", "ambient_metric", "uncertainty_cost")
_SETTINGS = (*SEARCH_SETTINGS, "seed", "model", "threshold", *_METHOD_SETTINGS)


@dataclass(frozen=True)
class Request:
    """What is asked about some rows: the arguments of `Explainer.explain`, which says what each of them means.

    Example:
        >>> Request(target_class=">50K", confidence=0.7, lock=("age",)).to_json()["lock"]
        ['age']
    """

    target_class: Any = OTHER
    confidence: float | None = None
    method: str | Method | None = None
    paths: str = ALL
    plans: int = 1
    lock: Iterable[str] = ()
    unlock: Iterable[str] = ()
    directions: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, Any] = field(default_factory=dict)
    stay_within: Mapping[str, Any] = field(default_factory=dict)
    max_changes: int | None = None
    feature_costs: Mapping[str, Number] = field(default_factory=dict)
    time_limit: float | int | None = None

    def __post_init__(self) -> None:
        for name in ("lock", "unlock"):
            names = getattr(self, name) or ()
            object.__setattr__(self, name, (names,) if isinstance(names, str) else tuple(names))  # one alone will do
        for name, empty in vars(Constraints()).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, empty)
        if self.method is not None:
            resolve_method(self.method)
        check_keep(self.paths)
        parse_count("plans", self.plans)
        given = self.confidence
        if given is not None and (not isinstance(given, Real) or not 0 < given < 1):
            raise InputError(f"a confidence lies between 0 and 1; given {self.confidence!r}, try 0.5")
        if self.time_limit is not None and not self.time_limit > 0:
            raise InputError(f"the time limit must be a positive number of seconds; given {self.time_limit!r}")

    def constraints(self, schema: Schema) -> Constraints:
        """What may change, checked against what the features are.

        Raises:
            InputError: A constraint cannot be used; the message names it and the feature.
        """
        return Constraints.of(schema, **{name: getattr(self, name) for name in CONSTRAINTS})

    def to_json(self) -> dict[str, Any]:
        """As values of JSON, from which `from_json` makes an equal request; a method of the user's own by its name."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        method = self.method.name if isinstance(self.method, Method) else self.method
        return values | {
            "method": method,
            "lock": list(self.lock),
            "unlock": list(self.unlock),
            "ranges": _plain_ranges(self.ranges),
            "stay_within": _plain_ranges(self.stay_within),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Request":
        """The request in values of JSON; what is not there has its default.

        Raises:
            InputError: There is something that is no part of a request, or not what it should be.
        """
        names = [each.name for each in fields(cls)]
        for name in value:
            choose("part of a request", str(name), dict.fromkeys(names))
        constraints = Constraints.from_json({name: value[name] for name in CONSTRAINTS if name in value})
        return cls(**dict(value) | vars(constraints))

    @property
    def key(self) -> str:
        """Equal for requests that can be searched for together. It tells 1 from True and from 1.0."""
        return json.dumps(self.to_json() | {"method": repr(self.method)}, sort_keys=True, default=repr)


def record(request: Request, constraints: Constraints, method: Method, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A request as it is kept with its answer: what was asked for, and the settings on which the answer depends."""
    plain = request.to_json()
    asked = {name: plain[name] for name in ("target_class", "confidence", "time_limit", "plans", "paths")}
    matters = [name for name in _SETTINGS if name not in _METHOD_SETTINGS or name in method.settings]
    return {"method": method.name, **asked, **constraints.to_json(), **{name: settings[name] for name in matters}}


def recorded_request(
    asked: Explanation | Mapping[str, Any], table: Any, settings: Mapping[str, Any]
) -> tuple[Any, Request, int | None]:
    """The rows, the request that asks for the same about them, and which plan was taken, if any.

    Args:
        asked: An explanation, or the request of one.
        table: The rows; None for those of the explanation.
        settings: Those of the explainer that is asked.

    Raises:
        InputError: This is no request, or it was made with other settings; the message names them.
    """
    if table is None and not isinstance(asked, Explanation):
        raise InputError("a request has no rows of its own; give them too: repeat(request, table)")
    recorded = asked.request if isinstance(asked, Explanation) else asked
    if not isinstance(recorded, Mapping):
        raise InputError(f"{recorded!r} is no request; expected an Explanation, its request, or a mapping like that")
    names = (*(each.name for each in fields(Request)), *_SETTINGS, PLAN)
    for name in recorded:
        choose("part of a request", str(name), dict.fromkeys(names))
    other = [name for name in _SETTINGS if name in recorded and recorded[name] != settings[name]]
    if other:
        then, now = (", ".join(f"{name}={given[name]!r}" for name in other) for given in (recorded, settings))
        raise InputError(
            f"the request was made with {then}, and this explainer has {now}; repeat it with the explainer that made it"
        )
    request = Request.from_json({name: recorded[name] for name in recorded if name not in (*_SETTINGS, PLAN)})
    if table is None:
        assert isinstance(asked, Explanation)
        table = (asked.plan(1) if asked.plans > 1 else asked).pandas.factuals
    return table, request, recorded.get(PLAN)


def _plain_ranges(ranges: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple | set | frozenset) else value for name, value in ranges.items()
    }
