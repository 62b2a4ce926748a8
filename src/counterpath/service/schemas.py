"""Requests and responses as JSON: types that pydantic checks and OpenAPI shows.

The types of requests are made for each model, of its own features, classes and methods, so that the description of the
service says what to send. A request that fits its type may still be refused, such as one that locks every feature.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, timedelta
from functools import cached_property, reduce
from operator import or_
from typing import Annotated, Any, NotRequired

import numpy as np
import pandas as pd
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, create_model
from typing_extensions import TypedDict

from counterpath.data import constraints
from counterpath.data.row_constraints import OWN_CONSTRAINTS
from counterpath.data.schema import KINDS, TRANSFORMS, Feature, Schema
from counterpath.explainer.explainer import Explainer
from counterpath.explainer.request import OTHER, Request
from counterpath.explanation import Explanation, StatusCode, plan_index, wording
from counterpath.explanation.milestones import list_milestones
from counterpath.explanation.tables import (
    ALL,
    CHANGES,
    END,
    KEEPS,
    MILESTONES,
    PATH_BACK,
    PATH_FRONT,
    ROW_CONSTRAINTS,
    changed_cells,
    feature_columns,
)
from counterpath.search.candidates import COSTS
from counterpath.search.methods import method_names, resolve_method
from counterpath.service.identity import Identity
from counterpath.service.settings import Settings

Value = str | bool | int | float | None
"""A value of a feature, or a class."""


class Response(BaseModel):
    """Base of all responses: they have no fields but those that are described."""

    model_config = ConfigDict(extra="forbid")


class ErrorDetail(Response):
    """One thing that is wrong with a request."""

    location: str = Field(description="Where it is.", examples=["rows[0].age"])
    message: str = Field(description="What is wrong with it.", examples=["Input should be a valid number"])


class Problem(Response):
    """What went wrong, and what to try, as RFC 9457 has it: the response to every request that fails."""

    type: str = Field(description="What kind of problem it is; it does not change.")
    title: str = Field(description="The kind in words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="For people: what is wrong with this request, and what to try.")
    code: str = Field(description="For programs: the last part of the type.")
    errors: list[ErrorDetail] = Field(default=[], description="Everything that is wrong, if there may be several.")
    id: str | None = Field(default=None, description="Under which the service has logged it, if it is its own fault.")


class Change(Response):
    """One feature that would change."""

    feature: str
    from_: Value = Field(alias="from", description="What it is.")
    to: Value = Field(description="What it would have to be.")
    difference: float | None = Field(description="Of numbers, by how much; null for all else.")


class PathPoint(Response):
    """A point of a path."""

    step: int = Field(description="Which step of the whole path it is, from 0.")
    features: dict[str, Value]
    probability: float | None = Field(description="Of the target.")
    uncertainty: float | None = Field(description="Of the generative model: high where there are no data.")
    length: float | None = Field(description="Of the path up to here.")
    map_x: float | None = Field(description="Where it is on the map of the latent space.")
    map_y: float | None


class Milestone(PathPoint):
    """One of the few points that summarize a path."""

    changes: str = Field(description="What is different from the milestone before, in words; empty for the first.")


class Binding(Response):
    """A constraint that stands in the way of a counterfactual."""

    kind: str = Field(
        description="What kind of constraint: immutable, lock, not_actionable, up, down, range, rule or max_changes."
    )
    feature: str = Field(
        description="The feature; for a rule its text, for max_changes how many features may change.", examples=["age"]
    )
    reach: float = Field(description="The probability of the target if that constraint alone is dropped.")


class Plan(Response):
    """One counterfactual, or why there is none."""

    status: StatusCode = Field(description="What became of the search for it.")
    reason: str = Field(description="The same as a sentence that says what to try.")
    fallback: bool = Field(description="Whether it was found by the fallback, because the search itself got stuck.")
    binding: list[Binding] = Field(description="Which constraints stand in the way of a counterfactual.")
    unseen: list[str] = Field(description="Pairs of features whose values no training row has together.")
    follows: list[str] = Field(description="Features that change because others do; all other changes are actions.")
    share: float | None = Field(description="Share of the models that may follow which accept it; null if not asked.")
    retrained: list[int] = Field(description="How many of the retrained models accept it, and of how many; or empty.")
    class_after: Value = Field(description="What the model predicts for the counterfactual.")
    probability_after: float | None = Field(description="The probability of the target then.")
    counterfactual: dict[str, Value] = Field(description="The row as it would have to be, in original units.")
    changes: list[Change] = Field(description="Only what changes.")
    sentence: str = Field(description="The plan in plain language.")
    measures: dict[str, float | None] = Field(description="Distances and more; null where there is nothing to measure.")
    path: list[PathPoint] | None = Field(default=None, description='All points of the path, if paths is "all".')
    milestones: list[Milestone] | None = Field(default=None, description='A summary, if paths is "milestones".')


class RowExplanation(Response):
    """The plans for one row."""

    class_before: Value = Field(description="What the model predicts today; null for a row with an unknown category.")
    probability_before: float | None = Field(description="The probability of the target today.")
    imputed: list[str] = Field(description="Features that were missing, and were filled in.")
    plans: list[Plan] = Field(description="As many as were asked for, the cheapest first.")


class ExplainResponse(Response):
    """Explanations."""

    model: str
    rows: list[RowExplanation] = Field(description="One for each row, in the order of the request.")


class RowPrediction(Response):
    """What the model under explanation predicts for one row."""

    class_: Value = Field(
        alias="class",
        description="What the model decides, by its thresholds, or the number that it predicts; null for a row with an "
        "unknown category.",
    )
    probabilities: list[float] | None = Field(
        description="Of the classes, in the order of `classes`; null for a regressor, or a row that is not predicted."
    )
    reason: str = Field(default="", description="Why a row is not predicted; empty if it is.")


class PredictResponse(Response):
    """Predictions."""

    model: str
    classes: list[Value]
    rows: list[RowPrediction] = Field(description="One for each row, in the order of the request.")


class FeatureCard(Response):
    """A column of the model's table."""

    name: str
    kind: str = Field(description="continuous, integer, binary, boolean, ordinal, categorical, date or duration.")
    lower: float | str | None = Field(description="The smallest legal value; null for that of the training rows.")
    upper: float | str | None
    transform: str
    immutable: bool = Field(description="Whether no plan changes it.")
    categories: list[Value] = Field(description="Its values, if it has categories.")
    actionable: bool = Field(description="Whether people can change it; if not, no plan does unless it is unlocked.")
    step: float | None = Field(description="Plans have multiples of it; null for any number.")
    step_from: str = Field(description="Where these begin: zero, or own for the number that a row has.")
    values: str | list[float] = Field(description="Which numbers plans have: any, observed ones, or these.")
    min_change: float = Field(description="A plan that changes it does so by at least as much.")
    label: str = Field(description="What people call it; empty if by its name.")
    unit: str = Field(description="What its numbers count.", examples=["hours"])
    description: str = Field(description="What it means.")
    phrase: str = Field(description="A change of it in words, with {new} and {old}.")
    category_labels: dict[str, str] = Field(description="What people call its categories.")
    codes: dict[str, str] = Field(description="Numbers that are no measurements, and what each means.")
    missing: bool = Field(description="Whether it may be missing.")
    format: str = Field(description="How dates are written; empty for ISO 8601.", examples=["%Y-%m-%d"])


class ModelCard(Response):
    """Description of a model."""

    name: str
    target: str | None = Field(description="The column that the model predicts.")
    classes: list[Value]
    class_labels: dict[str, str] = Field(description="What people call the classes.")
    method: str = Field(description="The default method.")
    methods: list[str] = Field(description="All methods that can be asked for.")
    features: list[FeatureCard]
    digest: str = Field(description="The SHA-256 that tells this model from every other one.")
    data_digest: str = Field(description="That of the rows that it was fitted to.")
    version: str = Field(description="The version of the service.")
    verdict: str = Field(description="Whether the models behind explanations are good, fair or bad.")
    diagnostics: str = Field(description="The same at length.")


class ModelSummary(Response):
    """A model that is served."""

    name: str
    target: str | None
    features: int = Field(description="How many columns a row has.")


class ModelList(Response):
    """All models that are served."""

    models: list[ModelSummary]


class JobCard(Response):
    """An explanation that is computed while nobody waits."""

    id: str = Field(description="Whoever knows it may see the job, and cancel it; nobody can guess it.")
    model: str
    model_digest: str = Field(description="Of the model that answers.")
    data_digest: str = Field(description="Of the rows that it was fitted to.")
    status: str = Field(description="waiting, running, done or failed.")
    rows: int = Field(description="How many rows it has.")
    done: int = Field(description="How many of them are explained: the first ones.")
    created: str = Field(description="When it was sent.")
    expires: str | None = Field(description="When it is forgotten; null until it has ended.")
    problem: Problem | None = Field(default=None, description="Why it failed, if it did.")


class JobRows(Response):
    """What a job has found so far."""

    job: JobCard
    first: int = Field(description="Which row of the request is the first of these.")
    rows: list[RowExplanation] = Field(description="Those of the rows asked for that are done.")


class Health(Response):
    """Whether the service lives, or takes requests."""

    status: str = Field(examples=["ok"])


def prediction(name: str, explainer: Explainer, probabilities: pd.DataFrame, reasons: Sequence[str]) -> dict[str, Any]:
    """A `PredictResponse` as JSON has it, given what the model says, and why it says nothing of some rows."""
    numbers = explainer.models_.explained.numbers
    labels = [json_value(label) for label in explainer.decide(probabilities)]
    each = zip(labels, probabilities.to_numpy().tolist(), reasons, strict=True)
    rows = [
        {
            "class": label,
            "probabilities": None if label is None or numbers else row,
            "reason": why.removeprefix("(").removesuffix(")") if label is None else "",
        }
        for label, row, why in each
    ]
    return {"model": name, "classes": [json_value(label) for label in explainer.classes_], "rows": rows}


def unknown_values(explainer: Explainer, rows: pd.DataFrame, probabilities: pd.DataFrame) -> list[str]:
    """Why a model says nothing of some rows: which of their values it does not know; empty for all others."""
    if not probabilities.isna().any(axis=None):
        return [""] * len(rows)
    return list(explainer.encoder_.unknown(explainer.prepare(rows)[0])[1])


_MAX_EXACT_INTEGER = 2**53
"""Beyond it a float no longer tells neighboring whole numbers apart, so it is not shown as one."""


@dataclass(frozen=True)
class BatchResult:
    """The explanation of the rows of one or more requests.

    Attributes:
        explanation: Of all rows.
        answers: How many plans each row asks for, and how much of the paths; None where all of them ask for the same.
    """

    explanation: Explanation
    answers: Sequence[tuple[int, str]] | None = None

    @cached_property
    def row_texts(self) -> list[str]:
        """For each row its `RowExplanation` as JSON text, made once for all requests."""
        kinds: dict[tuple[int, str], list[int]] = {}
        for row, answer in enumerate(self.answers or ()):
            kinds.setdefault(answer, []).append(row)
        if len(kinds) < 2:
            return _row_texts(self.explanation)
        texts: dict[int, str] = {}
        for (plans, paths), rows in kinds.items():
            texts |= zip(rows, _row_texts(rows_as_asked(self.explanation, rows, plans, paths)), strict=True)
        return [texts[row] for row in range(len(texts))]


def rows_as_asked(
    batch: Explanation, rows: Sequence[int], plans: int, paths: str, index: pd.Index | None = None
) -> Explanation:
    """The explanation of some rows of a batch, with as many plans and as much of the paths as they ask for.

    Args:
        batch: The explanation of more rows, numbered from 0, with at least as many plans.
        rows: Which rows.
        plans: How many plans each of them asks for.
        paths: How much of the paths.
        index: The labels of the rows; by default they are numbered.
    """
    positions = [row * batch.plans + plan for row in rows for plan in range(plans)]
    labels = plan_index(pd.RangeIndex(len(rows)) if index is None else index, plans)
    common = {name: value for name, value in batch.request.items() if name != ROW_CONSTRAINTS}
    part = batch._take(positions, labels, common | {"plans": plans, "paths": paths})
    return replace(part, compute_measures=batch.measures().iloc[positions])


def _row_texts(result: Explanation) -> list[str]:
    plans, each = _plans(result), result.plans
    before, imputed = json_records(result.outcome[["class_before", "probability_before"]]), result.status["imputed"]
    rows = (
        {**before[first], "imputed": imputed.iloc[first], "plans": plans[first : first + each]}
        for first in range(0, len(plans), each)
    )
    return [json.dumps(row, allow_nan=False, ensure_ascii=False) for row in rows]


def _plans(explanation: Explanation) -> list[dict[str, Any]]:
    """For each row of the explanation's tables a `Plan` as JSON value."""
    statuses = explanation.status.to_dict("records")
    after = json_records(explanation.outcome[["class_after", "probability_after"]])
    counterfactuals = json_records(explanation.counterfactuals[list(explanation.schema.names)])
    changes, sentences = _changes(explanation), explanation.sentences.tolist()
    measures, paths = json_records(explanation.measures()), _paths(explanation)
    return [
        {
            "status": str(status["status"]),
            "reason": status["reason"],
            "fallback": bool(status["fallback"]),
            "binding": status["binding"],
            "unseen": status["unseen"],
            "follows": status["follows"],
            "share": json_value(status["share"]),
            "retrained": status["retrained"],
            **after[row],
            "counterfactual": counterfactuals[row],
            "changes": changes[row],
            "sentence": sentences[row],
            "measures": measures[row],
            **paths[row],
        }
        for row, status in enumerate(statuses)
    ]


def _changes(explanation: Explanation) -> Mapping[int, list[dict[str, Any]]]:
    """By row what changed."""
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    positions = changed_cells(explanation.changed, explanation.schema.names)
    for (row, _), change in zip(positions, explanation.changes.to_dict("records"), strict=True):
        difference = None if change["change"] == "" else json_value(change["change"])
        ends = {"feature": change["feature"], "from": json_value(change["from"]), "to": json_value(change["to"])}
        found[row].append({**ends, "difference": difference})
    return found


def _paths(explanation: Explanation) -> Mapping[int, dict[str, list[dict[str, Any]]]]:
    """By row its `path` or its `milestones`, or neither, as was asked for."""
    found: dict[int, dict[str, list[dict[str, Any]]]] = defaultdict(dict)
    if explanation.kept_paths not in (ALL, MILESTONES):
        return found
    schema, numeric = explanation.schema, explanation._numeric
    for row, path in explanation.paths.groupby("row", sort=False):
        if explanation.kept_paths == ALL:
            found[int(str(row))]["path"] = _points(path, schema, PATH_FRONT + PATH_BACK)
        else:
            table = list_milestones(path, schema, numeric, most=max(len(path), 2), chosen=True)
            points = _points(table, schema, (*PATH_FRONT, *PATH_BACK, CHANGES))
            found[int(str(row))]["milestones"] = [
                {**point, CHANGES: text} for point, text in zip(points, table[CHANGES].tolist(), strict=True)
            ]
    return found


def _points(path: pd.DataFrame, schema: Schema, reserved: tuple[str, ...]) -> list[dict[str, Any]]:
    columns = feature_columns(schema.names, reserved)
    features = json_records(path[list(columns.values())].set_axis(list(columns), axis=1))
    rest = json_records(path[["step", *PATH_BACK]])
    return [{**point, "features": row} for point, row in zip(rest, features, strict=True)]


def json_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as JSON values."""
    columns = {str(name): [json_value(value) for value in frame[name].tolist()] for name in frame.columns}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def json_value(value: Any) -> Any:
    """A value of a table as JSON has it: None for a missing one, a whole number without a fraction."""
    own = value.item() if isinstance(value, np.generic) else value
    if own is None or own is pd.NA or own is pd.NaT:
        return None
    if isinstance(value, date | timedelta | np.datetime64 | np.timedelta64):
        return wording.value(value)
    if not isinstance(own, float):
        return own if isinstance(own, bool | int | str) else str(own)
    if not math.isfinite(own):
        return None
    return int(own) if own.is_integer() and abs(own) < _MAX_EXACT_INTEGER else own


MAX_PLANS = 10
"""More plans for a row than anybody would compare; each takes a search of its own."""
MIN_TIME_LIMIT = 0.1
"""Seconds. In less nothing is found: only waiting for a batch to end takes as long."""
_MAX_INTEGER = 10**15
"""Of whole numbers: floats, which JSON's numbers often become, have all of them up to 9e15."""
_MAX_COST = 1000.0
"""How much harder or easier than usual a change may be: together a factor of a million, the digits of a float32."""
_LONGEST_RULE, _MOST_RULES = 2000, 100
"""Characters of a rule, as its parser takes them, and rules of a request: more than anybody writes for one."""
STRICT = ConfigDict(extra="forbid", strict=True)
"""Nothing is taken that is not described, and nothing for something else."""


def read_request(body: Any) -> Request:
    """What a request to explain, or an extension of one, asks for its rows."""
    known = {field.name for field in fields(Request)}
    asked = {name: getattr(body, name) for name in type(body).model_fields if name in known}
    own = [each or {} for each in asked.pop("row_constraints")]
    return Request(**asked, row_constraints=own if any(own) else ())


def request_types(name: str, explainer: Explainer, settings: Settings) -> tuple[type[BaseModel], type[BaseModel]]:
    """The types of requests to explain and to predict by a model of this name."""
    schema, title, row = explainer.schema_, _title(name), row_type(name, explainer)
    kept = "; ".join(f"{key}: {words}" for key, words in KEEPS.items())
    ordered = [each for each in schema if not KINDS[each.kind].one_hot]
    cost = Annotated[float, Field(ge=1 / _MAX_COST, le=_MAX_COST)]
    types = {
        "lock": _list(one_of(list(schema.names))),
        "unlock": _list(one_of(list(schema.names))),
        "directions": _object(
            f"{title}Directions", {each.name: one_of(["up", "down"]) for each in ordered}, total=False
        ),
        "ranges": _object(f"{title}Ranges", {each.name: _range(each) for each in schema}, total=False),
        "stay_within": _object(f"{title}StayWithin", {each.name: _range(each) for each in schema}, total=False),
        "max_changes": _integer(1, len(schema)) | None,
        "feature_costs": _object(f"{title}FeatureCosts", {each.name: cost for each in schema}, total=False),
        "rules": Annotated[_list(Annotated[str, Field(max_length=_LONGEST_RULE)]), Field(max_length=_MOST_RULES)],
        "causes": Annotated[_list(Annotated[str, Field(max_length=_LONGEST_RULE)]), Field(max_length=_MOST_RULES)],
    }  # of another kind of constraint anything is taken, and checked when it is parsed
    targets = _target_fields(explainer)
    own = {name: types[name] for name in OWN_CONSTRAINTS} | {name: kind for name, (kind, _, _) in targets.items()}
    limit = Field(ge=min(MIN_TIME_LIMIT, settings.longest), le=settings.longest)
    rows = Field(description="In original units, one object each.", examples=[[example_row(explainer)]])
    seconds = "How many seconds the answer may take; then the status is 504."
    shared: dict[str, Any] = {
        "rows": (Annotated[_list(row), Field(max_length=settings.rows)], rows),
        "time_limit": (Annotated[float, limit], Field(settings.time_limit, description=seconds, examples=[30])),
    }
    described: dict[str, tuple[Any, Any, str]] = {
        **targets,
        "method": (
            one_of([*methods(explainer), None]),
            None,
            f"How to search; by default {resolve_method(explainer.method).name}.",
        ),
        "paths": (one_of(list(KEEPS)), END, f"Of the path: {kept}"),
        **{
            kind: (types.get(kind, Any), empty, describe_kind(kind))
            for kind, empty in constraints.Constraints().to_json().items()
        },
        "row_constraints": (
            Annotated[
                _list(_object(f"{title}RowConstraints", own, total=False) | None), Field(max_length=settings.rows)
            ],
            [],
            "Constraints of each row's own, beside those of all rows: one object for each row, in their order, null "
            f"for none. Where both say something, the row's own counts. It has any of: {', '.join(own)}.",
        ),
        "plans": (_integer(1, MAX_PLANS), 1, "How many different plans to find for every row."),
        "plausibility": (
            Annotated[float, Field(gt=0, le=1)],
            0.95,
            "How far from the data a counterfactual may be: as far as this share of real rows.",
        ),
        "closeness": (
            one_of(list(COSTS)),
            "l1",
            "What is made as small as can be: l1, the sum of changes; l2, that of their squares; l0, their number.",
        ),
        "robust": (
            Annotated[float, Field(gt=0, lt=1)] | None,
            None,
            "Which share of the models that may follow must accept it, too (for a model fitted with a family of "
            "them); null for none.",
        ),
        "noise": (
            Annotated[float, Field(gt=0, le=1)] | None,
            None,
            "For which share of small deviations in what changes it must stay valid; null for none.",
        ),
    }
    explain: dict[str, Any] = {
        part: (kind, Field(default, description=words)) for part, (kind, default, words) in described.items()
    }
    return (
        create_model(f"{title}ExplainRequest", __config__=STRICT, **shared, **explain),
        create_model(f"{title}PredictRequest", __config__=STRICT, **shared),
    )


def row_type(name: str, explainer: Explainer, *, total: bool = True) -> Any:
    """The type of a row of a model of this name; or of some of its values."""
    schema = explainer.schema_
    ignored = dict.fromkeys(schema.ignored, NotRequired[Any]) if total else {}
    values = {each.name: _value(each, explainer) for each in schema}
    return _object(f"{_title(name)}{'Row' if total else 'Values'}", values | ignored, total=total)


def _title(name: str) -> str:
    return "".join(part.capitalize() for part in re.split("[._-]", name))


def model_card(name: str, explainer: Explainer, identity: Identity) -> ModelCard:
    """The description of a model of this name."""
    diagnostics = explainer.diagnostics()
    return ModelCard(
        name=name,
        target=explainer.target_,
        classes=[json_value(label) for label in explainer.classes_],
        method=resolve_method(explainer.method).name,
        methods=methods(explainer),
        class_labels=dict(explainer.schema_.class_labels),
        features=[FeatureCard(**feature) for feature in explainer.schema_.to_json()["features"]],
        digest=identity.model,
        data_digest=identity.data,
        version=identity.version,
        verdict=diagnostics.verdict,
        diagnostics=str(diagnostics),
    )


def _target_fields(explainer: Explainer) -> dict[str, tuple[Any, Any, str]]:
    """What says which outcome is wanted: a class and its probability, or of a regressor a range of numbers."""
    pair: Any = Annotated[_list(float | None), Field(min_length=2, max_length=2)]
    if explainer.models_.explained.numbers:
        words = "Where what the model predicts must lie: [low, high], either of them null for an open end."
        return {"target_range": (pair, ..., words)}
    return {
        "target_class": (
            one_of([*(json_value(label) for label in explainer.classes_), OTHER]),
            OTHER,
            'The target class, or "other": any class but the present one.',
        ),
        "confidence": (
            Annotated[float, Field(gt=0, lt=1)] | pair | None,
            None,
            "What the probability of the target must reach, or [low, high] where it must lie; by default no more than "
            "the model's own decision.",
        ),
    }


def describe_kind(name: str) -> str:
    """What a kind of constraint says, with an example."""
    kind = constraints.CONSTRAINTS[name]
    return f"{kind.meaning[0].upper()}{kind.meaning[1:]}; for instance {json.dumps(kind.example)}."


def methods(explainer: Explainer) -> list[str]:
    """The methods that this model can be asked for."""
    return [name for name in method_names() if explainer.can_search(name)]


def example_row(explainer: Explainer) -> dict[str, Any]:
    """The average row, with the most frequent categories. A training row would be somebody's."""
    mean = explainer.models_.rows.mean(0, keepdim=True).cpu()
    row = explainer.encoder_.decode(explainer.encoder_.round(mean))[list(explainer.schema_.names)]
    return json_records(row)[0]


def one_of(values: Sequence[Any]) -> Any:
    """The type of one of these values. `typing.Literal` would take True for 1, which Python holds for equal."""

    def check(given: Any) -> Any:
        for value in values:
            if value == given and isinstance(value, bool) == isinstance(given, bool):
                return value
        raise ValueError(f"expected one of: {', '.join(map(repr, values))}")

    return Annotated[Any, AfterValidator(check), WithJsonSchema({"enum": list(values)})]


def _object(name: str, fields: dict[str, Any], *, total: bool = True) -> Any:
    """The type of an object with these fields and no others; names of features need not be names of Python."""
    make: Any = TypedDict  # mypy knows only those that are written down
    kind = make(name, fields, total=total)
    kind.__pydantic_config__ = STRICT
    return kind


def _list(kind: Any) -> Any:
    return list[kind]


def _value(feature: Feature, explainer: Explainer) -> Any:
    kind = _number(feature) if KINDS[feature.kind].categories is None else _category(feature)
    if explainer.imputer_ is not None or feature.missing:
        kind = kind | None
    return Annotated[kind, Field(description=_description(feature, explainer))]


def _number(feature: Feature) -> Any:
    if KINDS[feature.kind].times:
        return str
    if KINDS[feature.kind].whole:
        return _integer(-_MAX_INTEGER, _MAX_INTEGER)
    above = -math.inf if feature.codes else TRANSFORMS[feature.transform].above
    return Annotated[float, Field(gt=above) if above > -math.inf else Field()]


def _category(feature: Feature) -> Any:
    """A value like its categories, one that was never seen in training included: the response says so for that row."""
    present = {type(value) for value in feature.categories}
    return reduce(or_, [kind for kind in (bool, int, float, str) if kind in present])


def _integer(least: int, most: int) -> Any:
    # In this order: what stands after a validator is not part of the description.
    return Annotated[int, Field(ge=least, le=most), BeforeValidator(_whole)]


def _whole(value: Any) -> Any:
    """In JSON 40.0 is a whole number, too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _description(feature: Feature, explainer: Explainer) -> str:
    """What a feature means, what it counts, which values it has, and whether plans change it."""
    meaning = ": ".join(part.rstrip(".") for part in (feature.label, feature.description) if part)
    if feature.categories:
        labels = ((category, feature.category_labels.get(str(category))) for category in feature.categories)
        values = ", ".join(f"{category} ({label})" if label else str(category) for category, label in labels)
        values = f"One of: {values}."
    else:
        column, encoder = explainer.schema_.index(feature.name), explainer.encoder_
        low, high = (wording.number(feature, ends[column]) for ends in (encoder.low, encoder.high))
        values = f"From {low} to {wording.with_unit(feature, high)} in the training rows."
        values += f" Written as {feature.format}." if feature.format else ""
        values += f" Plans have multiples of {wording.value(feature.step)}." if feature.step else ""
        codes = ", ".join(f"{wording.value(code)} ({meaning})" for code, meaning in feature.codes.items())
        values += f" Or a code: {codes}." if codes else ""
    values += " Null where it is missing." if feature.missing else ""
    held = "" if feature.actionable else " No plan changes it unless it is in `unlock`."
    held = " No plan changes it." if feature.immutable else held
    return f"{f'{meaning}. ' if meaning else ''}{values}{held}"


def _range(feature: Feature) -> Any:
    if not constraints.is_interval(feature):
        return Annotated[_list(one_of(list(feature.categories))), Field(min_length=1)]
    end = one_of([*feature.categories, None]) if feature.categories else float | None
    end = str | float | None if KINDS[feature.kind].times else end  # a date, or days
    return Annotated[_list(end), Field(min_length=2, max_length=2)]
