"""What is asked for: one type for every caller, as it is recorded with the answer, and asked again."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any

from counterpath.data.constraints import CONSTRAINTS, Constraints, parse_count
from counterpath.data.row_constraints import OWN_TARGETS, merged
from counterpath.data.rules.kinds import Rule
from counterpath.data.schema import Number, Schema
from counterpath.explanation import Explanation
from counterpath.explanation.tables import ALL, PLAN, check_keep
from counterpath.models.explained import ExplainedModel
from counterpath.search.candidates import COSTS
from counterpath.search.method import Method
from counterpath.search.methods import resolve_method
from counterpath.search.objective import parse_number_range
from counterpath.utils.errors import InputError, RowsError, choose

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
_ASKED = ("target_class", "confidence", "time_limit", "plans", "paths", "plausibility", "closeness")
_METHOD_SETTINGS = ("representation_layer", "ambient_metric", "uncertainty_cost")
_SETTINGS = (*SEARCH_SETTINGS, "seed", "model", "threshold", *_METHOD_SETTINGS)


@dataclass(frozen=True)
class Request:
    """What is asked about some rows: the arguments of `Explainer.explain`, which says what each of them means.

    Its table of constraints is here as `row_constraints`: one mapping a row, as `data.row_constraints` parses them. A
    row may ask for fewer `plans` than all of them there, and for less of its `paths`.

    Example:
        >>> Request(target_class=">50K", confidence=0.7, lock=("age",)).to_json()["lock"]
        ['age']
    """

    target_class: Any = OTHER
    confidence: float | tuple[float | None, float | None] | None = None
    target_range: tuple[float | None, float | None] | None = None
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
    rules: Iterable[Any] = ()
    causes: Any = ()
    row_constraints: Sequence[Mapping[str, Any]] = ()
    time_limit: float | int | None = None
    plausibility: float = 0.95
    closeness: str = "l1"
    robust: float | None = None
    noise: float | None = None

    def __post_init__(self) -> None:
        for name in ("lock", "unlock"):
            names = getattr(self, name) or ()
            object.__setattr__(self, name, (names,) if isinstance(names, str) else tuple(names))  # one alone will do
        rules = (self.rules,) if isinstance(self.rules, str | Rule) else self.rules or ()
        object.__setattr__(self, "rules", tuple(str(each) if isinstance(each, Rule) else each for each in rules))
        object.__setattr__(self, "row_constraints", tuple(self.row_constraints))
        for name, empty in vars(Constraints()).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, empty)
        if self.method is not None:
            resolve_method(self.method)
        check_keep(self.paths)
        parse_count("plans", self.plans)
        given = self.confidence
        if isinstance(given, list | tuple):
            object.__setattr__(self, "confidence", parse_number_range("confidence", given, probability=True))
        elif given is not None and (not isinstance(given, Real) or not 0 < given < 1):
            is_percent = isinstance(given, Real) and 10 <= given < 100  # below, it is rather a slip
            better = f"{given / 100:g}" if is_percent else "0.5"
            raise InputError(f"a confidence lies between 0 and 1; given {given!r}, try {better}")
        if self.target_range is not None:
            object.__setattr__(self, "target_range", parse_number_range("target_range", self.target_range))
        share = self.plausibility
        if not isinstance(share, Real) or not 0 < share <= 1:
            raise InputError(f"plausibility is a share of real rows, above 0 and up to 1; given {share!r}, try 0.95")
        choose("closeness", self.closeness, COSTS)
        _check_share("robust", self.robust, "models", below_one=True)
        _check_share("noise", self.noise, "deviations", below_one=False)
        if self.time_limit is not None and not self.time_limit > 0:
            raise InputError(f"the time limit must be a positive number of seconds; given {self.time_limit!r}")

    def of_row(self, name: str, row: int) -> Any:
        """What is asked for about one of the rows: what is asked for it alone, or else about all of them."""
        together = getattr(self, name)
        return self.row_constraints[row].get(name, together) if self.row_constraints else together

    def constraints(self, schema: Schema) -> Constraints:
        """What may change, checked against what the features are.

        Raises:
            InputError: A constraint cannot be used; the message names it and the feature.
        """
        return Constraints.of(schema, **{name: getattr(self, name) for name in CONSTRAINTS})

    def check_target(self, explained: ExplainedModel) -> None:
        """Raise an error unless what is wanted is something that a model predicts."""
        if explained.numbers:
            if self.target_range is None and not all("target_range" in row for row in self.row_constraints or ({},)):
                raise InputError(
                    f"{explained.name} is a regressor: say which numbers are wanted, target_range=(low, high), either "
                    "of them None for an open end"
                )
            if self.confidence is not None:
                raise InputError(
                    f"confidence is {self.confidence!r}, and {explained.name} is a regressor, which has no "
                    "probabilities; leave it out, and give target_range=(low, high)"
                )
        elif self.target_range is not None:
            raise InputError(
                f"target_range is {self.target_range!r}, and {explained.name} predicts classes; for a range of a "
                "probability give confidence=(low, high), for a regressor fit with task='regression'"
            )
        if self.target_class != OTHER:
            explained.class_index(self.target_class)

    def check_rows(self, schema: Schema, explained: ExplainedModel, index: Collection[Any]) -> None:
        """Check the constraints of each row's own.

        Args:
            schema: Of the rows.
            explained: The model that they are asked of.
            index: The labels of the rows.

        Raises:
            InputError: They are not as many as there are rows.
            RowsError: Those of some rows cannot be used; by label.
        """
        if not self.row_constraints:
            return
        if len(self.row_constraints) != len(index):
            raise InputError(
                f"there are constraints of {len(self.row_constraints)} rows for {len(index)} rows; expected one each"
            )
        together = self.constraints(schema)
        problems: dict[str, str] = {}  # equal ones are looked at once
        reasons: dict[Any, str] = {}
        for label, row in zip(index, self.row_constraints, strict=True):
            if (key := repr(row)) not in problems:
                problems[key] = ""
                try:
                    merged(together, row, schema)
                    own = {name: row[name] for name in OWN_TARGETS if name in row}
                    replace(self, row_constraints=(), **own).check_target(explained)
                except InputError as error:
                    problems[key] = str(error)
            if problems[key]:
                reasons.setdefault(label, f"the constraints of row {label!r}: {problems[key]}")
        if reasons:
            raise RowsError(reasons)

    def to_json(self) -> dict[str, Any]:
        """As values of JSON, from which `from_json` makes an equal request; a method of the user's own by its name."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        method = self.method.name if isinstance(self.method, Method) else self.method
        return values | {
            "method": method,
            "lock": list(self.lock),
            "unlock": list(self.unlock),
            "rules": list(self.rules),
            "causes": self._plain_causes(),
            "row_constraints": [dict(row) for row in self.row_constraints],
            "confidence": list(self.confidence) if isinstance(self.confidence, tuple) else self.confidence,
            "target_range": None if self.target_range is None else list(self.target_range),
            "ranges": _plain_ranges(self.ranges),
            "stay_within": _plain_ranges(self.stay_within),
        }

    def _plain_causes(self) -> Any:
        """The causes as JSON has them: texts and pairs, whatever graph they are."""
        if isinstance(self.causes, Mapping):
            return dict(self.causes)
        given = self.causes.edges if hasattr(self.causes, "edges") else self.causes or ()
        given = given() if callable(given) else given
        return (
            [given] if isinstance(given, str) else [each if isinstance(each, str) else list(each[:2]) for each in given]
        )

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
    asked = {name: plain[name] for name in _ASKED}
    if request.row_constraints:
        asked["row_constraints"] = plain["row_constraints"]
    for name in ("target_range", "robust", "noise"):
        if plain[name] is not None:
            asked[name] = plain[name]
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


def _check_share(name: str, share: Any, of: str, *, below_one: bool) -> None:
    if share is None:
        return
    good = isinstance(share, Real) and not isinstance(share, bool) and 0 < float(share) <= 1
    if not good or (below_one and share == 1):
        reach = "above 0 and below 1" if below_one else "above 0 and up to 1"
        raise InputError(f"{name} is a share of {of}, {reach}; given {share!r}, try 0.9")


def _plain_ranges(ranges: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple | set | frozenset) else value for name, value in ranges.items()
    }
