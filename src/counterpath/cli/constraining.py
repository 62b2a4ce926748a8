"""What may change, as options of a command.

Names of features and of categories may hold the very signs that separate them here, so a text is split where the
schema knows the parts.
"""

import dataclasses
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from counterpath.data import wishes
from counterpath.data.schema import Feature, Number, Schema
from counterpath.errors import InputError, choose
from counterpath.explanation.storage import FORMAT

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
Difficulty = Annotated[
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
_DIFFICULTY = "FEATURE=NUMBER, for instance education=3"


@dataclass(frozen=True)
class Options:
    """What was given; only so much of it is checked as needs no schema."""

    lock: Sequence[str] | None = None
    up: Sequence[str] | None = None
    down: Sequence[str] | None = None
    ranges: Sequence[str] | None = None
    max_changes: int | None = None
    difficulty: Sequence[str] | None = None
    plans: int | None = None

    def __post_init__(self) -> None:
        for option, texts, form in (("--range", self.ranges, _RANGE), ("--difficulty", self.difficulty, _DIFFICULTY)):
            for text in texts or ():
                if "=" not in text:
                    raise InputError(f"{option} {text!r} is not {form}")
        for option, count in (("--max-changes", self.max_changes), ("--plans", self.plans)):
            if count is not None:
                wishes.count(option, count)

    @property
    def by_option(self) -> dict[str, Any]:
        """What was given, by the names of the options."""
        options = ("--lock", "--up", "--down", "--range", "--max-changes", "--difficulty", "--plans")
        return dict(zip(options, dataclasses.astuple(self), strict=True))

    def arguments(self, schema: Schema) -> dict[str, Any]:
        """The same as arguments of `Explainer.explain`."""
        lock, up, down = (_names(texts, schema) for texts in (self.lock, self.up, self.down))
        both = [name for name in up if name in down]
        if both:
            raise InputError(f"feature {both[0]!r} is in --up and in --down; leave one, or try --lock to keep it")
        return {
            "lock": lock,
            "directions": dict.fromkeys(up, wishes.UP) | dict.fromkeys(down, wishes.DOWN),
            "ranges": _by_feature("--range", self.ranges, schema, _range),
            "max_changes": self.max_changes,
            "difficulty": _by_feature("--difficulty", self.difficulty, schema, _difficulty),
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
    if not wishes.paired(feature):
        return list(_listed(value, "|", names))
    splits = [(value[:place].strip(), value[place + 1 :].strip()) for place, sign in enumerate(value) if sign == ":"]
    if not splits:
        raise InputError(f"{given} is not {_RANGE}; feature {feature.name!r} (kind {feature.kind!r}) needs a colon")
    if not names:
        return [None if end == "" else _number(end, given) for end in splits[0]]
    known = (pair for pair in splits if all(end == "" or end in names for end in pair))
    return [end or None for end in next(known, splits[0])]


def _difficulty(feature: Feature, value: str, given: str) -> Number:
    return _number(value, f"{given} is not {_DIFFICULTY}")


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
