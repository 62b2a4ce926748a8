"""What the service answers, as OpenAPI describes it. What may be asked depends on the model: see `forms`."""

from pydantic import BaseModel, ConfigDict, Field

from counterpath.explanation import Status

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


class Plan(Answered):
    """One way to another decision, or why there is none."""

    status: Status = Field(description="What became of it.")
    reason: str = Field(description="The same as a sentence that says what to try.")
    binding: list[str] = Field(description="Which constraints stand in the way of a counterfactual.")
    class_after: Value = Field(description="What the model predicts for the counterfactual.")
    probability_after: float | None = Field(description="How probable it finds the wanted outcome then.")
    counterfactual: dict[str, Value] = Field(description="The row as it would have to be, in original units.")
    changes: list[Change] = Field(description="Only what changes.")
    sentence: str = Field(description="The plan in plain language.")
    measures: dict[str, float | None] = Field(description="Distances and more; null where there is nothing to measure.")
    path: list[Point] | None = Field(default=None, description='The way there, if keep is "all".')
    milestones: list[Milestone] | None = Field(default=None, description='The same told, if keep is "milestones".')


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
