"""Options as text, and what they mean."""

import dataclasses
import json
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pandas as pd
import typer

from counterpath.data import constraints
from counterpath.data.schema import Feature, Number, Schema, check_json
from counterpath.data.tables import read_table
from counterpath.explainer.explainer import Explainer
from counterpath.explainer.request import OTHER
from counterpath.explanation.io import FORMAT
from counterpath.explanation.milestones import KEEP, check_keep
from counterpath.search.methods import resolve_method
from counterpath.utils.errors import InputError, choose
from counterpath.utils.importing import import_object

_ATTRIBUTES = [name for name in Feature.__dataclass_fields__ if name != "name"]
_EDIT = re.compile(rf"(.+?)\.({'|'.join(_ATTRIBUTES)})=(.*)", re.DOTALL)

ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="A model directory, written by fit.")]
Columns = Annotated[str, typer.Option(help="Columns to leave out, separated by commas, for instance an identifier.")]
Own = Annotated[str | None, typer.Option(help="Your model as module:attribute, found from the current folder.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
_CONFIDENCE = "What the probability of the wanted class must reach."
_TARGET = "The wanted class, or other: any class but the present one."
SURE = 0.5
Confidence = Annotated[float, typer.Option(help=_CONFIDENCE)]
Target = Annotated[str, typer.Option(help=_TARGET)]
MaybeConfidence = Annotated[float | None, typer.Option(help=_CONFIDENCE, show_default=str(SURE))]
MaybeTarget = Annotated[str | None, typer.Option(help=_TARGET, show_default=OTHER)]
Edits = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="COLUMN.ATTRIBUTE=VALUE",
        help=f"What a column is; attributes: {', '.join(_ATTRIBUTES)}. The value is JSON or text. May be repeated.",
    ),
]


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


def method(name: str) -> str:
    """The name of a method, if there is one of that name."""
    resolve_method(name)
    return name


def confidence(value: Number) -> Number:
    """A probability to ask for."""
    if not 0 < value < 1:
        raise InputError(f"a confidence lies between 0 and 1; given {value!r}, try 0.5")
    return value


def positive(option: str, value: Number | None) -> None:
    """Raise an error unless the value is positive, or not given."""
    if value is not None and not value > 0:
        raise InputError(f"{option} must be a positive number; given {value!r}")


def edits(texts: list[str] | None) -> dict[str, dict[str, Any]]:
    """What `--set` says about each column."""
    found: dict[str, dict[str, Any]] = {}
    for text in texts or ():
        match = _EDIT.fullmatch(text)
        if match is None:
            raise InputError(
                f"--set {text!r} is not COLUMN.ATTRIBUTE=VALUE, for instance age.upper=80; "
                f"attributes: {', '.join(_ATTRIBUTES)}"
            )
        column, attribute, value = match.groups()
        check_json(column, {attribute: _value(value)})
        found.setdefault(column, {})[attribute] = _value(value)
    return found


def table(path: str, drop: str) -> pd.DataFrame:
    """A table from a file or from standard input, without some columns."""
    frame = read_table(path)
    unwanted = names(drop)
    for name in unwanted:
        choose("column", name, dict.fromkeys(map(str, frame.columns)))
    return frame.drop(columns=unwanted)


def model(text: str | None) -> Any:
    """The object that `module:attribute` names, with the current folder on the path as `python -m` has it."""
    if text is None:
        return None
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return import_object(text)


def target_class(text: str, classes: tuple[Any, ...], other: str) -> Any:
    """The class that is called `text`, or `other`."""
    by_name: Mapping[str, Any] = {str(label): label for label in classes}
    return choose("target class", text, {**by_name, other: other})


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


T = TypeVar("T")

Lock = Annotated[list[str] | None, typer.Option(metavar="A,B", help="Features that must not change.")]
Up = Annotated[list[str] | None, typer.Option(metavar="A,B", help="Features that may only rise.")]
Down = Annotated[list[str] | None, typer.Option(metavar="A,B", help="Features that may only fall.")]
Ranges = Annotated[
    list[str] | None,
    typer.Option(
        "--range",
        metavar="FEATURE=RANGE",
        help="Where a feature must stay: hours=20:60, hours=20:, size=small:large, job=Sales|Tech. May be repeated.",
    ),
]
MaxChanges = Annotated[int | None, typer.Option(help="How many features may change.")]
FeatureCosts = Annotated[
    list[str] | None,
    typer.Option(metavar="FEATURE=NUMBER", help="How hard a feature is to change; others have 1. May be repeated."),
]
Plans = Annotated[
    int | None,
    typer.Option("--plans", "-k", help="How many different counterfactuals to find for every row.", show_default="1"),
]
Again = Annotated[
    Path | None,
    typer.Option("--request", help="Ask as before: an explanation that was saved as .json, or a request in JSON."),
]

_RANGE = "FEATURE=LOW:HIGH or FEATURE=A|B, for instance hours=20:60, hours=20: or job=Sales|Tech"
_FEATURE_COST = "FEATURE=NUMBER, for instance education=3"


@dataclass(frozen=True)
class Options:
    """What was given; only so much of it is checked as needs no schema."""

    lock: Sequence[str] | None = None
    up: Sequence[str] | None = None
    down: Sequence[str] | None = None
    ranges: Sequence[str] | None = None
    max_changes: int | None = None
    feature_costs: Sequence[str] | None = None
    plans: int | None = None

    def __post_init__(self) -> None:
        for option, texts, form in (
            ("--range", self.ranges, _RANGE),
            ("--feature-cost", self.feature_costs, _FEATURE_COST),
        ):
            for text in texts or ():
                if "=" not in text:
                    raise InputError(f"{option} {text!r} is not {form}")
        for option, count in (("--max-changes", self.max_changes), ("--plans", self.plans)):
            if count is not None:
                constraints.parse_count(option, count)

    @property
    def by_option(self) -> dict[str, Any]:
        """What was given, by the names of the options."""
        options = ("--lock", "--up", "--down", "--range", "--max-changes", "--feature-cost", "--plans")
        return dict(zip(options, dataclasses.astuple(self), strict=True))

    def arguments(self, schema: Schema) -> dict[str, Any]:
        """The same as arguments of `Explainer.explain`."""
        lock, up, down = (_names(texts, schema) for texts in (self.lock, self.up, self.down))
        both = [name for name in up if name in down]
        if both:
            raise InputError(f"feature {both[0]!r} is in --up and in --down; leave one, or try --lock to keep it")
        return {
            "lock": lock,
            "directions": dict.fromkeys(up, constraints.UP) | dict.fromkeys(down, constraints.DOWN),
            "ranges": _by_feature("--range", self.ranges, schema, _range),
            "max_changes": self.max_changes,
            "feature_costs": _by_feature("--feature-cost", self.feature_costs, schema, _feature_cost),
            "plans": 1 if self.plans is None else self.plans,
        }


def refuse_beside_request(options: Mapping[str, Any]) -> None:
    """Raise an error if an option was given that a request answers."""
    given = [option for option, value in options.items() if value not in (None, [], ())]
    if given:
        raise InputError(f"--request already says all that is asked for; leave out {', '.join(given)}, or --request")


def read_request(path: Path) -> dict[str, Any]:
    """The request in a saved explanation, or in a file that holds nothing else."""
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


def _names(texts: Sequence[str] | None, schema: Schema) -> list[str]:
    return [name for text in texts or () for name in _listed(text, ",", schema.names)]


def _by_feature(
    option: str, texts: Sequence[str] | None, schema: Schema, read: Callable[[Feature, str, str], T]
) -> dict[str, T]:
    """What is said of each feature: `FEATURE=…`, where the longest name counts that is one."""
    found: dict[str, T] = {}
    for text in texts or ():
        ends = [place for place, sign in enumerate(text) if sign == "="]
        names = [_name(text[:end], schema.names) for end in ends]
        known = [place for place, name in enumerate(names) if name in schema.names]
        place = known[-1] if known else 0
        feature = choose(f"feature in {option} {text!r}:", names[place], {feature.name: feature for feature in schema})
        if feature.name in found:
            raise InputError(f"{option} is there twice for feature {feature.name!r}; expected once, with both ends")
        found[feature.name] = read(feature, text[ends[place] + 1 :].strip(), f"{option} {text!r}")
    return found


def _range(feature: Feature, value: str, given: str) -> list[Any]:
    names = [str(category) for category in feature.categories]
    if not constraints.is_interval(feature):
        return list(_listed(value, "|", names))
    splits = [(value[:place].strip(), value[place + 1 :].strip()) for place, sign in enumerate(value) if sign == ":"]
    if not splits:
        raise InputError(f"{given} is not {_RANGE}; feature {feature.name!r} (kind {feature.kind!r}) needs a colon")
    if not names:
        return [None if end == "" else _number(end, given) for end in splits[0]]
    known = (pair for pair in splits if all(end == "" or end in names for end in pair))
    return [end or None for end in next(known, splits[0])]


def _feature_cost(feature: Feature, value: str, given: str) -> Number:
    return _number(value, f"{given} is not {_FEATURE_COST}")


def _number(text: str, given: str) -> Number:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise InputError(f"{given}: {text!r} is no number")


def _listed(text: str, sign: str, known: Collection[str]) -> list[str]:
    """The parts of a list, of which each is as long as can be known; an unknown one ends at the next sign."""
    parts, found = text.split(sign), []
    while parts:
        runs = [_name(sign.join(parts[:count]), known) for count in range(1, len(parts) + 1)]
        taken = max((place for place, run in enumerate(runs) if run in known), default=0)
        found.append(runs[taken])
        parts = parts[taken + 1 :]
    return [name for name in found if name]


def _name(text: str, known: Collection[str]) -> str:
    """A name without the blanks around it, unless they are part of it."""
    return text if text in known else text.strip()


class Question:
    """What was asked, of which only so much is checked as needs no model.

    Args:
        given: By option what was given, without what constraints say; None for what was not.
        wishes: What may change.
        request: A file that holds a request, beside which nothing else may be asked.
        keep: How much of every path to keep if nobody says.
    """

    def __init__(self, given: Mapping[str, Any], wishes: Options, request: Path | None, keep: str) -> None:
        confidence(SURE if given["--confidence"] is None else given["--confidence"])
        if given["--method"] is not None:
            method(given["--method"])
        if given.get("--paths") is not None:
            check_keep(given["--paths"])
        if request is not None:
            refuse_beside_request({**given, **wishes.by_option})
        self.again = None if request is None else read_request(request)
        self._given, self._wishes, self._keep = given, wishes, keep

    @property
    def paths(self) -> Any:
        """How much of every path is asked for; None where a request does not say."""
        return (self._given.get("--paths") or self._keep) if self.again is None else self.again.get(KEEP)

    def of(self, explainer: Explainer) -> dict[str, Any]:
        """The same as what `Explainer.repeat` takes."""
        if self.again is not None:
            return self.again
        target, confidence = self._given["--target-class"], self._given["--confidence"]
        return self._wishes.arguments(explainer.schema_) | {
            "method": self._given["--method"],
            "time_limit": self._given.get("--time-limit"),
            KEEP: self.paths,
            "target_class": target_class(OTHER if target is None else target, explainer.classes_, OTHER),
            "confidence": SURE if confidence is None else confidence,
        }
