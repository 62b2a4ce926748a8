"""What may be asked of a model: its own features, classes and methods, as types that pydantic checks and OpenAPI shows.

A question that fits its form may still be one that cannot be answered, such as to lock every feature; what a form can
say, it says, so that whoever reads the description of the service knows what to send.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, create_model
from typing_extensions import TypedDict

from counterpath.data import constraints
from counterpath.data.schema import KINDS, TRANSFORMS, Feature, Number, Schema
from counterpath.explainer.explainer import Explainer
from counterpath.explainer.request import OTHER
from counterpath.explanation import Explanation, StatusCode
from counterpath.explanation.milestones import ALL, END, KEEPS, MILESTONES, list_milestones
from counterpath.explanation.tables import (
    CHANGES,
    PATH_BACK,
    PATH_FRONT,
    changed_cells,
    feature_columns,
    numeric_features,
)
from counterpath.search.methods import method_names
from counterpath.service.settings import Settings

Value = str | bool | int | float | None
"""A value of a feature, or a class."""


class Answered(BaseModel):
    """Base of all answers: they have no fields but those that are described."""

    model_config = ConfigDict(extra="forbid")


class Detail(Answered):
    """One thing that is wrong with a request."""

    place: str = Field(description="Where it is.", examples=["rows[0].age"])
    message: str = Field(description="What is wrong with it.", examples=["Input should be a valid number"])


class Failure(Answered):
    """What went wrong, and what to try."""

    code: str = Field(description="For programs; it does not change.", examples=["invalid"])
    message: str = Field(description="For people.", examples=["rows[0].age: Input should be a valid number"])
    details: list[Detail] = Field(default=[], description="Every place that is wrong, if several may be.")
    id: str | None = Field(default=None, description="Under which the service has logged it, if it is its own fault.")


class ErrorAnswer(Answered):
    """The answer to every request that fails."""

    error: Failure


class Change(Answered):
    """One feature that would change."""

    feature: str
    from_: Value = Field(alias="from", description="What it is.")
    to: Value = Field(description="What it would have to be.")
    difference: float | None = Field(description="Of numbers, by how much; null for all else.")


class Point(Answered):
    """A point of a path."""

    step: int = Field(description="Which step of the whole path it is, from 0.")
    features: dict[str, Value]
    probability: float | None = Field(description="Of the wanted outcome.")
    uncertainty: float | None = Field(description="Of the generative model: high where there are no data.")
    length: float | None = Field(description="Of the path up to here.")
    map_x: float | None = Field(description="Where it is on the map of the latent space.")
    map_y: float | None


class Milestone(Point):
    """A point of a path that tells it in a few steps."""

    changes: str = Field(description="What is different from the milestone before, in words; empty for the first.")


class Binding(Answered):
    """A constraint that stands in the way of a counterfactual."""

    kind: str = Field(description="What kind of constraint: immutable, lock, up, down, range or max_changes.")
    feature: str = Field(description="The feature; for max_changes how many features may change.")
    reach: float = Field(description="The probability of the target if that constraint alone is dropped.")


class Plan(Answered):
    """One way to another decision, or why there is none."""

    status: StatusCode = Field(description="What became of it.")
    reason: str = Field(description="The same as a sentence that says what to try.")
    fallback: bool = Field(description="Whether it was found by the fallback, because the search itself got stuck.")
    binding: list[Binding] = Field(description="Which constraints stand in the way of a counterfactual.")
    class_after: Value = Field(description="What the model predicts for the counterfactual.")
    probability_after: float | None = Field(description="How probable it finds the wanted outcome then.")
    counterfactual: dict[str, Value] = Field(description="The row as it would have to be, in original units.")
    changes: list[Change] = Field(description="Only what changes.")
    sentence: str = Field(description="The plan in plain language.")
    measures: dict[str, float | None] = Field(description="Distances and more; null where there is nothing to measure.")
    path: list[Point] | None = Field(default=None, description='The way there, if paths is "all".')
    milestones: list[Milestone] | None = Field(default=None, description='The same told, if paths is "milestones".')


class Person(Answered):
    """The answer for one row."""

    class_before: Value = Field(description="What the model predicts today; null for a row with an unknown category.")
    probability_before: float | None = Field(description="How probable it finds the wanted outcome today.")
    imputed: list[str] = Field(description="Features that were missing, and were filled in.")
    plans: list[Plan] = Field(description="As many as were asked for, the cheapest first.")


class ExplainAnswer(Answered):
    """The answer to a question for explanations."""

    model: str
    rows: list[Person] = Field(description="One for each row, in the order of the question.")


class Prediction(Answered):
    """What the model under explanation says about one row."""

    class_: Value = Field(alias="class", description="The most probable class.")
    probabilities: list[float] = Field(description="Of the classes, in the order of `classes`.")


class PredictAnswer(Answered):
    """The answer to a question for predictions."""

    model: str
    classes: list[Value]
    rows: list[Prediction] = Field(description="One for each row, in the order of the question.")


class FeatureCard(Answered):
    """A column of the model's table."""

    name: str
    kind: str = Field(description="continuous, integer, binary, boolean, ordinal or categorical.")
    lower: float | None = Field(description="The smallest legal value; null for that of the training rows.")
    upper: float | None
    transform: str
    immutable: bool = Field(description="Whether no plan changes it.")
    categories: list[Value] = Field(description="Its values, if it has categories.")


class ModelCard(Answered):
    """What there is to know about a model before asking it."""

    name: str
    target: str | None = Field(description="The column that the model predicts.")
    classes: list[Value]
    method: str = Field(description="The method that is used if none is asked for.")
    methods: list[str] = Field(description="All methods that can be asked for.")
    features: list[FeatureCard]
    verdict: str = Field(description="Whether the models behind explanations are good, fair or bad.")
    diagnostics: str = Field(description="The same at length.")


class ModelName(Answered):
    """A model that can be asked."""

    name: str
    target: str | None
    features: int = Field(description="How many columns a row has.")


class ModelList(Answered):
    """All models that can be asked."""

    models: list[ModelName]


class Health(Answered):
    """Whether the service lives, or can be asked."""

    status: str = Field(examples=["ok"])


_EXACT = 2**53
"""Up to here a float tells neighbouring whole numbers apart."""


@dataclass(frozen=True)
class Answer:
    """What was found for the people of one or more questions."""

    explanation: Explanation

    @cached_property
    def texts(self) -> list[str]:
        """One JSON text a person, in their order."""
        return [json.dumps(person, allow_nan=False, ensure_ascii=False) for person in told(self.explanation)]


def told(explanation: Explanation) -> list[dict[str, Any]]:
    """The people in their order, each with the decision today and the plans, fit for JSON."""
    plans = _plans(explanation)
    outcome = explanation.outcome.to_dict("list")
    imputed = explanation.status["imputed"].tolist()
    each = explanation.plans
    return [
        {
            "class_before": plain(outcome["class_before"][first]),
            "probability_before": plain(outcome["probability_before"][first]),
            "imputed": imputed[first],
            "plans": plans[first : first + each],
        }
        for first in range(0, len(plans), each)
    ]


def plain(value: Any) -> Any:
    """A value as JSON has it: None for none, a whole number without a fraction."""
    own = value.item() if isinstance(value, np.generic) else value
    if own is None or own is pd.NA:
        return None
    if not isinstance(own, float):
        return own if isinstance(own, bool | int | str) else str(own)
    if not math.isfinite(own):
        return None
    return int(own) if own.is_integer() and abs(own) < _EXACT else own


def _plans(explanation: Explanation) -> list[dict[str, Any]]:
    """One a row of the explanation's tables."""
    told = pd.concat([explanation.status, explanation.outcome], axis=1).to_dict("records")
    counterfactuals = records(explanation.counterfactuals[list(explanation.schema.names)])
    changes, sentences = _changes(explanation), explanation.sentences.tolist()
    measures, ways = records(explanation.measures()), _ways(explanation)
    return [
        {
            "status": str(told[place]["status"]),
            "reason": told[place]["reason"],
            "fallback": bool(told[place]["fallback"]),
            "binding": told[place]["binding"],
            "class_after": plain(told[place]["class_after"]),
            "probability_after": plain(told[place]["probability_after"]),
            "counterfactual": counterfactuals[place],
            "changes": changes[place],
            "sentence": sentences[place],
            "measures": measures[place],
            **({} if ways is None else {_way_name(explanation): ways[place]}),
        }
        for place in range(len(explanation))
    ]


def _way_name(explanation: Explanation) -> str:
    """Under which name a plan has its way."""
    return "path" if explanation.kept_paths == ALL else "milestones"


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table, fit for JSON."""
    columns = {str(name): [plain(value) for value in frame[name].tolist()] for name in frame.columns}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _changes(explanation: Explanation) -> dict[int, list[dict[str, Any]]]:
    """By row what changed."""
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    places = changed_cells(explanation.changed, explanation.schema.names)
    for (row, _), change in zip(places, explanation.changes.to_dict("records"), strict=True):
        difference = None if change["change"] == "" else plain(change["change"])
        ends = {"feature": change["feature"], "from": plain(change["from"]), "to": plain(change["to"])}
        found[row].append({**ends, "difference": difference})
    return found


def _ways(explanation: Explanation) -> dict[int, list[dict[str, Any]]] | None:
    """By row its path, or the milestones of it; None if neither was to be kept."""
    if explanation.kept_paths not in (ALL, MILESTONES):
        return None
    schema, numbers = explanation.schema, numeric_features(explanation.schema, explanation.factuals)
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row, path in explanation.paths.groupby("row", sort=False):
        if explanation.kept_paths == ALL:
            found[int(str(row))] = _points(path, schema, PATH_FRONT + PATH_BACK)
        else:
            stops = list_milestones(path, schema, numbers, most=max(len(path), 2), chosen=True)
            texts = stops[CHANGES].tolist()
            points = _points(stops, schema, (*PATH_FRONT, *PATH_BACK, CHANGES))
            found[int(str(row))] = [{**point, CHANGES: text} for point, text in zip(points, texts, strict=True)]
    return found


def _points(path: pd.DataFrame, schema: Schema, reserved: tuple[str, ...]) -> list[dict[str, Any]]:
    columns = feature_columns(schema.names, reserved)
    features = records(path[list(columns.values())].set_axis(list(columns), axis=1))
    rest = records(path[["step", *PATH_BACK]])
    return [{**point, "features": row} for point, row in zip(rest, features, strict=True)]


@dataclass(frozen=True)
class Asked:
    """What is asked for, beside the rows: the arguments of `Explainer.explain`, which says what each means."""

    target_class: Any = OTHER
    confidence: float = 0.5
    method: str | None = None
    paths: str = ALL
    lock: tuple[str, ...] = ()
    directions: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, Any] = field(default_factory=dict)
    max_changes: int | None = None
    feature_costs: Mapping[str, Number] = field(default_factory=dict)
    plans: int = 1

    @property
    def key(self) -> str:
        """Equal for equal questions: those can be answered together. It tells 1 from True and from 1.0."""
        return json.dumps(vars(self), sort_keys=True, default=repr)


MOST_PLANS = 10
FEWEST_SECONDS = 0.1
_LARGEST = 10**15
"""The largest whole number: beyond it a float, which JSON's numbers often become, no longer has them all."""
_HARDEST = 1000.0
"""How much harder than usual, and how much easier, a change may be: together what a search can tell apart."""
_STRICT = ConfigDict(extra="forbid", strict=True)
_BESIDE_ASKED = ("rows", "time_limit")


@dataclass(frozen=True)
class Forms:
    """The questions that may be asked of a model.

    Attributes:
        explain: For explanations.
        predict: For predictions.
        columns: The features.
    """

    explain: type[BaseModel]
    predict: type[BaseModel]
    columns: tuple[str, ...]

    def table(self, question: Any) -> pd.DataFrame:
        """The rows of a question, numbered from 0."""
        return pd.DataFrame(question.rows, columns=list(self.columns))

    def asked(self, question: Any) -> Asked:
        """What is asked about them."""
        given = {name: getattr(question, name) for name in type(question).model_fields if name not in _BESIDE_ASKED}
        return Asked(**given | {"lock": tuple(given["lock"])})


def forms(name: str, explainer: Explainer, settings: Settings) -> Forms:
    """The questions that may be asked of a model of this name."""
    schema, title = explainer.schema_, _title(name)
    rows = _list(_object(f"{title}Row", {each.name: _value(each, explainer) for each in schema}))
    example = example_row(explainer)
    described: dict[str, Any] = {
        "rows": (
            Annotated[rows, Field(max_length=settings.rows)],
            Field(description="People in original units, one object each.", examples=[[example]]),
        ),
        "time_limit": (
            Annotated[float, Field(ge=min(FEWEST_SECONDS, settings.longest), le=settings.longest)],
            Field(
                settings.time_limit, description="How long the answer may take; then the status is 504.", examples=[30]
            ),
        ),
    }
    asked: dict[str, Any] = {
        "target_class": (
            one_of([*(plain(label) for label in explainer.classes_), OTHER]),
            Field(OTHER, description='The wanted class, or "other": any class but the present one.'),
        ),
        "confidence": (
            Annotated[float, Field(gt=0, lt=1)],
            Field(0.5, description="What the probability of the wanted outcome must reach."),
        ),
        "method": (
            one_of([*methods(explainer), None]),
            Field(None, description=f"How to search; by default {explainer.method}."),
        ),
        "paths": (
            one_of(list(KEEPS)),
            Field(END, description=f"Of the way there: {'; '.join(f'{key}: {words}' for key, words in KEEPS.items())}"),
        ),
        "lock": (
            _list(one_of(list(schema.names))),
            Field([], description="Features that must not change, beside the immutable ones."),
        ),
        "directions": (
            _object(f"{title}Directions", _directions(schema.features), total=False),
            Field({}, description="By feature the only way in which it may change."),
        ),
        "ranges": (
            _object(f"{title}Ranges", {each.name: _range(each) for each in schema}, total=False),
            Field({}, description="By feature where it must stay: [low, high], null for an open end; or categories."),
        ),
        "max_changes": (
            _integer(1, len(schema)) | None,
            Field(None, description="How many features may change."),
        ),
        "feature_costs": (
            _object(
                f"{title}FeatureCosts",
                {each.name: Annotated[float, Field(ge=1 / _HARDEST, le=_HARDEST)] for each in schema},
                total=False,
            ),
            Field({}, description="By feature how hard it is to change; 1 for those that are not named."),
        ),
        "plans": (
            _integer(1, MOST_PLANS),
            Field(1, description="How many different plans to find for every row."),
        ),
    }
    return Forms(
        create_model(f"{title}ExplainQuestion", __config__=_STRICT, **described, **asked),
        create_model(f"{title}PredictQuestion", __config__=_STRICT, **described),
        tuple(schema.names),
    )


def methods(explainer: Explainer) -> list[str]:
    """The methods that this model can be asked for."""
    return [name for name in method_names() if explainer.can_search(name)]


def example_row(explainer: Explainer) -> dict[str, Any]:
    """Nobody's row: the average, with the most frequent categories. A training row would be somebody's."""
    mean = explainer.models_.rows.mean(0, keepdim=True).cpu()
    row = explainer.encoder_.decode(explainer.encoder_.round(mean))[list(explainer.schema_.names)]
    return records(row)[0]


def one_of(values: Sequence[Any]) -> Any:
    """The type of one of these values, and of nothing else that Python holds for equal."""

    def check(given: Any) -> Any:
        for value in values:
            if value == given and isinstance(value, bool) == isinstance(given, bool):
                return value
        raise ValueError(f"expected one of: {', '.join(map(repr, values))}")

    return Annotated[Any, AfterValidator(check), WithJsonSchema({"enum": list(values)})]


def _object(name: str, fields: dict[str, Any], *, total: bool = True) -> Any:
    """The type of an object with these fields and no others; names of features need not be names of Python."""
    make: Any = TypedDict  # the checker of types knows only those that are written down
    kind = make(name, fields, total=total)
    kind.__pydantic_config__ = _STRICT
    return kind


def _list(kind: Any) -> Any:
    return list[kind]


def _value(feature: Feature, explainer: Explainer) -> Any:
    kind = _number(feature) if KINDS[feature.kind].categories is None else _category(feature)
    if explainer.imputer_ is not None:
        kind = kind | None
    return Annotated[kind, Field(description=_described(feature, explainer))]


def _number(feature: Feature) -> Any:
    if KINDS[feature.kind].whole:
        return _integer(-_LARGEST, _LARGEST)
    above = TRANSFORMS[feature.transform].above
    bounds = Field(gt=above) if above > -float("inf") else Field()
    return Annotated[float, bounds]


def _category(feature: Feature) -> Any:
    """A value like its categories, one that was never seen in training included: the answer says so for that row."""
    kinds = {type(value) for value in feature.categories}
    found: Any = None
    for kind in (bool, int, float, str):
        if kind in kinds:
            found = kind if found is None else found | kind
    return found


def _integer(least: int, most: int) -> Any:
    # In this order: what stands after a validator is not part of the description.
    return Annotated[int, Field(ge=least, le=most), BeforeValidator(_whole)]


def _whole(value: Any) -> Any:
    """In JSON 40.0 is a whole number, too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _described(feature: Feature, explainer: Explainer) -> str:
    place = explainer.schema_.index(feature.name)
    fixed = " No plan changes it." if feature.immutable else ""
    if feature.categories:
        return f"One of: {', '.join(map(str, feature.categories))}.{fixed}"
    encoder = explainer.encoder_
    return f"From {encoder.low[place]:g} to {encoder.high[place]:g} in the training rows.{fixed}"


def _directions(features: Iterable[Feature]) -> dict[str, Any]:
    return {each.name: one_of(["up", "down"]) for each in features if not KINDS[each.kind].one_hot}


def _range(feature: Feature) -> Any:
    if not constraints.is_interval(feature):
        return Annotated[_list(one_of(list(feature.categories))), Field(min_length=1)]
    end = one_of([*feature.categories, None]) if feature.categories else float | None
    return Annotated[_list(end), Field(min_length=2, max_length=2)]


def _title(name: str) -> str:
    """A model's name as part of the name of a type."""
    return "".join(part.capitalize() for part in "".join(c if c.isalnum() else " " for c in name).split()) or "Model"
