"""What may be asked of a model: its own features, classes and methods, as types that pydantic checks and OpenAPI shows.

A question that fits its form may still be one that cannot be answered, such as to lock every feature; what a form can
say, it says, so that whoever reads the description of the service knows what to send.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import pandas as pd
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, create_model
from typing_extensions import TypedDict

from counterpath.answering import COPYING, NEAREST, OTHER
from counterpath.app.answers import plain, records
from counterpath.app.asking import Asked
from counterpath.app.settings import Settings
from counterpath.data import wishes
from counterpath.data.schema import KINDS, TRANSFORMS, Feature
from counterpath.explainer import Explainer
from counterpath.explanation.keeping import END, KEEPS
from counterpath.methods import METHODS

MOST_PLANS = 10
FEWEST_SECONDS = 0.1
_LARGEST = 10**15
"""The largest whole number: beyond it a float, which JSON's numbers often become, no longer has them all."""
_HARDEST = 1000.0
"""How much harder than usual, and how much easier, a change may be: together what a search can tell apart."""
_STRICT = ConfigDict(extra="forbid", strict=True)
_BESIDE_ASKED = ("rows", "seconds")


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
        "seconds": (
            Annotated[float, Field(ge=min(FEWEST_SECONDS, settings.longest), le=settings.longest)],
            Field(settings.seconds, description="How long the answer may take; then the status is 504.", examples=[30]),
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
        "keep": (
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
        "difficulty": (
            _object(
                f"{title}Difficulty",
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
    lacking = {"flow"} if explainer.learned_.flow is None else set()
    copying = set() if explainer.copies else set(COPYING)
    return [name for name in (*METHODS, NEAREST) if name not in lacking | copying]


def example_row(explainer: Explainer) -> dict[str, Any]:
    """Nobody's row: the average, with the most frequent categories. A training row would be somebody's."""
    mean = explainer.learned_.rows.mean(0, keepdim=True).cpu()
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
    if not wishes.paired(feature):
        return Annotated[_list(one_of(list(feature.categories))), Field(min_length=1)]
    end = one_of([*feature.categories, None]) if feature.categories else float | None
    return Annotated[_list(end), Field(min_length=2, max_length=2)]


def _title(name: str) -> str:
    """A model's name as part of the name of a type."""
    return "".join(part.capitalize() for part in "".join(c if c.isalnum() else " " for c in name).split()) or "Model"
