"""Options that several commands share, and how their text is parsed.

To show `--help` no library may be loaded: the functions import what they need. Names that the help lists and that are
defined elsewhere are written out here and in the commands; tests/cli/test_help.py compares them.
"""

import json
import re
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from counterpath.utils.errors import InputError, choose
from counterpath.utils.importing import import_object

if TYPE_CHECKING:
    import pandas as pd

    from counterpath.data.schema import Feature, Number, Schema
    from counterpath.explainer.explainer import Explainer
    from counterpath.explainer.request import Request

ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="A model directory, written by fit.")]
Columns = Annotated[str, typer.Option(help="Columns to leave out, separated by commas, for instance an identifier.")]
UserModel = Annotated[str | None, typer.Option(help="Your model as module:attribute, found from the current folder.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
CONFIDENCE = "What the probability of the target class must reach."
OWN_DECISION = "as the model decides"
TargetClass = Annotated[
    str | None,
    typer.Option(help="The class to reach, or other: any class but the present one.", show_default="other"),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="COLUMN.ATTRIBUTE=VALUE",
        help="What a column is; attributes: kind, lower, upper, transform, immutable, categories, actionable, step, "
        "step_from, values, min_change, label, unit, description, phrase, category_labels, codes, missing, format. "
        "The value is JSON or text. May be repeated.",
    ),
]

_RANGE = "FEATURE=LOW:HIGH or FEATURE=A|B, for instance hours=20:60, hours=20: or job=Sales|Tech"
_FEATURE_COST = "FEATURE=NUMBER, for instance education=3"


def expand(omit: Collection[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take dataclasses: to typer, every field of them is an option of its own.

    Args:
        omit: Fields that are no options of this command; they keep their defaults.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        groups: dict[str, Any] = {}
        parameters: list[Parameter] = []
        for parameter in signature(command).parameters.values():
            group = parameter.annotation
            if not is_dataclass(group):
                parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
                continue
            groups[parameter.name], hints = group, get_type_hints(group, include_extras=True)
            parameters += [
                Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
                for field in fields(group)
                if field.name not in omit
            ]

        @wraps(command)
        def call(**values: Any) -> None:
            for name, group in groups.items():
                given = {field.name: values.pop(field.name) for field in fields(group) if field.name not in omit}
                values[name] = group(**given)
            command(**values)

        call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # which typer reads
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return call

    return decorate


def names(text: str) -> list[str]:
    """Names that are separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def numbers(option: str, text: str) -> list[int]:
    """Whole numbers that are separated by commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"{option} are whole numbers separated by commas, for instance 0,1,2; given {text!r}"
        ) from None


def threshold(text: str | None) -> "Number | dict[str, Number] | None":
    """From which probability on a class is decided: a number, or CLASS=NUMBER, separated by commas."""
    if text is None:
        return None
    given = f"--threshold {text!r}"
    if "=" not in text:
        return _number(text, given)
    pairs = [part.rpartition("=") for part in text.split(",")]
    return {label.strip(): _number(number, given) for label, _, number in pairs}


def check_positive(**values: "Number | None") -> None:
    """Raise an error unless the values of options are positive, or not given; typer's would not say what was given."""
    for name, value in values.items():
        if value is not None and not value > 0:
            raise InputError(f"--{name.replace('_', '-')} must be a positive number; given {value!r}")


def check_port(port: int) -> None:
    """Raise an error unless this can be a port; 0 is for any free one."""
    if not 0 <= port <= 65535:
        raise InputError(f"--port is {port}; expected a whole number from 0 to 65535")


def overrides(texts: list[str] | None) -> dict[str, dict[str, Any]]:
    """What `--set` says about each column."""
    from counterpath.data.schema import Feature, check_json

    attributes = [field.name for field in fields(Feature) if field.name != "name"]
    pattern = re.compile(rf"(.+?)\.({'|'.join(attributes)})=(.*)", re.DOTALL)
    found: dict[str, dict[str, Any]] = {}
    for text in texts or ():
        match = pattern.fullmatch(text)
        if match is None:
            raise InputError(
                f"--set {text!r} is not COLUMN.ATTRIBUTE=VALUE, for instance age.upper=80; "
                f"attributes: {', '.join(attributes)}"
            )
        column, name, value = match.groups()
        check_json(column, {name: _json_or_text(value)})
        found.setdefault(column, {})[name] = _json_or_text(value)
    return found


def table(path: str, drop: str, *, most: int | None = None, seed: int = 0) -> "pd.DataFrame":
    """A table from a file or from standard input, without some columns; of a large Parquet file `most` rows."""
    from counterpath.data.tables import read_table

    frame = read_table(path, most=most, seed=seed)
    dropped = names(drop)
    for name in dropped:
        choose("column", name, dict.fromkeys(map(str, frame.columns)))
    return frame.drop(columns=dropped)


def user_model(text: str | None) -> Any:
    """The object that `module:attribute` names, with the current folder on the path as `python -m` has it."""
    if text is None:
        return None
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return import_object(text)


def class_named(text: str | None, classes: tuple[Any, ...]) -> Any:
    """The class that is called `text`, or else `OTHER`."""
    from counterpath.explainer.request import OTHER

    return choose("target class", OTHER if text is None else text, {str(name): name for name in (*classes, OTHER)})


@dataclass(frozen=True)
class RequestOptions:
    """The options that make up a request; when they are given, all is checked that needs no model."""

    target_class: TargetClass = None
    confidence: Annotated[
        str | None,
        typer.Option(metavar="NUMBER|LOW:HIGH", help=f"{CONFIDENCE} Or where it must lie.", show_default=OWN_DECISION),
    ] = None
    target_range: Annotated[
        str | None,
        typer.Option(
            metavar="LOW:HIGH", help="Of a regressor, where what it predicts must lie: 40:60, or 40: for at least 40."
        ),
    ] = None
    method: Annotated[str | None, typer.Option(help="How to search; by default the method of fit.")] = None
    time_limit: Annotated[float | None, typer.Option(help="How many seconds to search at most.")] = None
    lock: Annotated[list[str] | None, typer.Option(metavar="A,B", help="Features that must not change.")] = None
    unlock: Annotated[
        list[str] | None, typer.Option(metavar="A,B", help="Features that may change though they are not actionable.")
    ] = None
    up: Annotated[list[str] | None, typer.Option(metavar="A,B", help="Features that may only rise.")] = None
    down: Annotated[list[str] | None, typer.Option(metavar="A,B", help="Features that may only fall.")] = None
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="FEATURE=RANGE",
            help="Where a feature must end: hours=20:60, hours=20:, size=small:large, job=Sales|Tech. May be repeated.",
        ),
    ] = None
    stay_within: Annotated[
        list[str] | None,
        typer.Option(
            "--stay-within",
            metavar="FEATURE=RANGE",
            help="Where a feature must stay from the start to the end; who is outside is not explained. "
            "May be repeated.",
        ),
    ] = None
    max_changes: Annotated[int | None, typer.Option(help="How many features may change.")] = None
    feature_costs: Annotated[
        list[str] | None,
        typer.Option(
            "--feature-cost",
            metavar="FEATURE=NUMBER",
            help="How hard a feature is to change; others have 1. May be repeated.",
        ),
    ] = None
    rules: Annotated[
        list[str] | None,
        typer.Option(
            "--rule",
            metavar="RULE",
            help="What every row of every path keeps to: 'rent + savings <= income', 'education up => age up by 2 per "
            "level'. May be repeated.",
        ),
    ] = None
    causes: Annotated[
        list[str] | None,
        typer.Option(
            "--cause",
            metavar="CAUSE->EFFECT",
            help="Which feature follows from which: 'education -> income', or 'income = 2 * hours'. May be repeated.",
        ),
    ] = None
    plans: Annotated[
        int | None,
        typer.Option(
            "--plans", "-k", help="How many different counterfactuals to find for every row.", show_default="1"
        ),
    ] = None
    plausibility: Annotated[
        float | None,
        typer.Option(
            help="How far from the data a counterfactual may be: as far as this share of real rows.",
            show_default="0.95",
        ),
    ] = None
    closeness: Annotated[
        str | None,
        typer.Option(
            metavar="l1|l2|l0",
            help="What is made as small as can be: the sum of changes, of their squares, or their number.",
            show_default="l1",
        ),
    ] = None
    robust: Annotated[
        float | None,
        typer.Option(help="Which share of the models that may follow must give the wanted outcome, too."),
    ] = None
    noise: Annotated[
        float | None,
        typer.Option(help="For which share of small deviations in what changes an answer must stay valid."),
    ] = None
    paths: Annotated[
        str | None,
        typer.Option(
            metavar="all|milestones|end",
            help="How much of each path a .json or .html file has: all of it, its milestones, or only its end.",
            show_default="all",
        ),
    ] = None
    file: Annotated[
        Path | None,
        typer.Option(
            "--request", help="Repeat a request: an explanation that was saved as .json, or a request in JSON."
        ),
    ] = None

    def __post_init__(self) -> None:
        from counterpath.data.constraints import parse_count

        for name, (option, form, _) in _BY_FEATURE.items():
            for text in getattr(self, name) or ():
                if "=" not in text:
                    raise InputError(f"{option} {text!r} is not {form}")
        for option, number in (("--max-changes", self.max_changes), ("--plans", self.plans)):
            if number is not None:
                parse_count(option, number)
        check_positive(time_limit=self.time_limit)
        self._without_schema  # noqa: B018  # it raises an error if something cannot be asked for
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "file"}
        options = {name: f"--{name.replace('_', '-')}" for name in values} | {
            name: each[0] for name, each in _BY_FEATURE.items()
        }
        given = [options[name] for name, value in values.items() if value]
        if self.file is not None and given:
            raise InputError(
                f"--request already says all that is asked for; leave out {', '.join(given)}, or --request"
            )
        self.recorded  # noqa: B018  # it raises an error if the file cannot be read

    @cached_property
    def _without_schema(self) -> "Request":
        """The request without all that depends on the model's schema and classes."""
        from counterpath.explainer.request import Request

        names = ("method", "time_limit", "paths", "plans", "plausibility", "closeness", "robust", "noise")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.confidence is not None:
            pair = ":" in self.confidence
            text = f"--confidence {self.confidence!r}"
            given["confidence"] = _pair(self.confidence, text) if pair else _number(self.confidence, text)
        if self.target_range is not None:
            given["target_range"] = _pair(self.target_range, f"--target-range {self.target_range!r}")
        return Request(**given)

    @cached_property
    def recorded(self) -> dict[str, Any] | None:
        """The request in the file; None if none was given."""
        return None if self.file is None else read_request(self.file)

    def request(self, explainer: "Explainer") -> "Request":
        """The request that the options make up; the file is not looked at."""
        target = class_named(self.target_class, explainer.classes_)
        return replace(self._without_schema, target_class=target, **self.constraints(explainer.schema_))

    def constraints(self, schema: "Schema") -> dict[str, Any]:
        """What may change, as arguments of `Explainer.explain`."""
        from counterpath.data.constraints import DOWN, UP

        lock, unlock, up, down = (
            [name for text in texts or () for name in _split(text, ",", schema.names)]
            for texts in (self.lock, self.unlock, self.up, self.down)
        )
        both = [name for name in up if name in down]
        if both:
            raise InputError(f"feature {both[0]!r} is in --up and in --down; leave one, or try --lock to keep it")
        return {
            "lock": lock,
            "unlock": unlock,
            "directions": dict.fromkeys(up, UP) | dict.fromkeys(down, DOWN),
            "max_changes": self.max_changes,
            "rules": self.rules or [],
            "causes": self.causes or [],
            **{name: _by_feature(each, getattr(self, name), schema) for name, each in _BY_FEATURE.items()},
        }


def read_request(path: Path) -> dict[str, Any]:
    """The request in a saved explanation, or in a file that holds nothing else."""
    from counterpath.explanation.io import FORMAT

    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--request {path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # not JSON, or not UTF-8
        raise InputError(f"--request {path} is not JSON: {error}; expected what explain --out {path} writes") from error
    request = value.get("request") if isinstance(value, dict) and value.get("format") == FORMAT else value
    if not isinstance(request, dict):
        raise InputError(f'--request {path} holds no request; expected one like {{"lock": ["age"], "plans": 3}}')
    return request


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _by_feature(
    how: "tuple[str, str, Callable[[Feature, str, str], Any]]", texts: Sequence[str] | None, schema: "Schema"
) -> dict[str, Any]:
    """The values of `FEATURE=VALUE` by feature; of several names before an equals sign the longest known one counts."""
    option, _, parse = how
    found: dict[str, Any] = {}
    for text in texts or ():
        ends = [index for index, character in enumerate(text) if character == "="]
        candidates = [_stripped(text[:end], schema.names) for end in ends]
        known = [index for index, name in enumerate(candidates) if name in schema.names]
        index = known[-1] if known else 0
        features = {feature.name: feature for feature in schema}
        feature = choose(f"feature in {option} {text!r}:", candidates[index], features)
        if feature.name in found:
            raise InputError(f"{option} is there twice for feature {feature.name!r}; expected once, with both ends")
        found[feature.name] = parse(feature, text[ends[index] + 1 :].strip(), f"{option} {text!r}")
    return found


def _range(feature: "Feature", value: str, given: str) -> list[Any]:
    from counterpath.data.constraints import is_interval
    from counterpath.data.times import DATE, as_days

    categories = [str(category) for category in feature.categories]
    if not is_interval(feature):
        return list(_split(value, "|", categories))
    colons = [index for index, character in enumerate(value) if character == ":"]
    pairs = [(value[:index].strip(), value[index + 1 :].strip()) for index in colons]
    if not pairs:
        raise InputError(f"{given} is not {_RANGE}; feature {feature.name!r} (kind {feature.kind!r}) needs a colon")
    if feature.kind == DATE:  # a time of day has colons, too
        dates = (pair for pair in pairs if all(end == "" or not isinstance(as_days(end), str) for end in pair))
        return [end or None for end in next(dates, pairs[0])]
    if not categories:
        return [None if end == "" else _number(end, given) for end in pairs[0]]
    known = (pair for pair in pairs if all(end == "" or end in categories for end in pair))
    return [end or None for end in next(known, pairs[0])]


def _feature_cost(feature: "Feature", value: str, given: str) -> "Number":
    return _number(value, f"{given} is not {_FEATURE_COST}")


_BY_FEATURE: "dict[str, tuple[str, str, Callable[[Feature, str, str], Any]]]" = {
    "ranges": ("--range", _RANGE, _range),
    "stay_within": ("--stay-within", _RANGE, _range),
    "feature_costs": ("--feature-cost", _FEATURE_COST, _feature_cost),
}
"""The options FEATURE=VALUE by constraint: what each is called, its form in words, and what parses it."""


def _pair(text: str, given: str) -> "tuple[Number | None, Number | None]":
    """The ends of LOW:HIGH, either of which may be left out."""
    low, colon, high = (part.strip() for part in text.partition(":"))
    if not colon:
        raise InputError(f"{given} is not LOW:HIGH, for instance 40:60 or 40: for at least 40")
    ends = [_number(end, given) if end else None for end in (low, high)]
    return ends[0], ends[1]


def _number(text: str, given: str) -> "Number":
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise InputError(f"{given}: {text!r} is no number")


def _split(text: str, separator: str, known: Collection[str]) -> list[str]:
    """The parts of a list, each as long as a known name can be; an unknown one ends at the next separator."""
    parts, found = text.split(separator), []
    while parts:
        candidates = [_stripped(separator.join(parts[:count]), known) for count in range(1, len(parts) + 1)]
        longest = max((index for index, name in enumerate(candidates) if name in known), default=0)
        found.append(candidates[longest])
        parts = parts[longest + 1 :]
    return [name for name in found if name]


def _stripped(text: str, known: Collection[str]) -> str:
    """A name without the blanks around it, unless they are part of it."""
    return text if text in known else text.strip()
