"""Options as text, and what they mean."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from counterpath.answering import NEAREST, OTHER
from counterpath.data.frames import read_table
from counterpath.data.schema import Feature, Number, check_json
from counterpath.errors import InputError, choose
from counterpath.importing import attribute
from counterpath.methods import METHODS

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
    choose("method", name, {**METHODS, NEAREST: None})
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
    return attribute(text)


def target_class(text: str, classes: tuple[Any, ...], other: str) -> Any:
    """The class that is called `text`, or `other`."""
    by_name: Mapping[str, Any] = {str(label): label for label in classes}
    return choose("target class", text, {**by_name, other: other})


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
