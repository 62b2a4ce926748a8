"""JSON as the standard has it, and no more: what Python's own reader lets pass is refused, with its place."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from counterpath.errors import InputError

BODY = "the body"
_LONGEST_NUMBER = 320
"""Characters of a whole number that could still be a finite float."""


class NotJsonError(InputError):
    """A body is not JSON: at which place of it, in words, and why."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where, self.why = where, why


@dataclass(frozen=True)
class _Refused:
    """Stands where something was that must not be."""

    why: str


def parse(body: bytes) -> Any:
    """The value of a JSON text.

    Raises:
        NotJsonError: It is not JSON in UTF-8; or it holds NaN, an infinity or a number too large for a float, a key
            twice in one object, or half of a surrogate pair.
    """
    try:
        value = json.loads(
            body.decode("utf-8"),
            parse_constant=_not_finite,
            parse_float=_float,
            parse_int=_int,
            object_pairs_hook=_object,
        )
    except UnicodeDecodeError as error:
        raise NotJsonError(f"byte {error.start}", "the body is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise NotJsonError(f"line {error.lineno}, column {error.colno}", f"not JSON: {error.msg}") from error
    except RecursionError as error:
        raise NotJsonError(BODY, "it is nested too deeply") from error
    for steps, found in _walk(value, ()):
        raise NotJsonError(place(steps) or BODY, found.why)
    return value


def place(steps: Sequence[str | int]) -> str:
    """Where something is in a JSON value, for people.

    Example:
        >>> place(("rows", 3, "age"))
        'rows[3].age'
    """
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return text.removeprefix(".")


def _not_finite(text: str) -> _Refused:
    return _Refused(f"{text} is no number in JSON; leave the row out, or give a number")


def _float(text: str) -> float | _Refused:
    value = float(text)
    return value if math.isfinite(value) else _Refused(f"{text[:40]} is too large; expected a number below 1.8e308")


def _int(text: str) -> int | float | _Refused:
    if len(text) > _LONGEST_NUMBER:
        return _Refused(f"a number of {len(text)} digits is too large; expected one below 1.8e308")
    value = int(text)
    return value if abs(value) < 10**308 else _float(text)


def _object(pairs: list[tuple[str, Any]]) -> Any:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    names = [name for name, _ in pairs]
    twice = next(name for name in names if names.count(name) > 1)
    return _Refused(f"the key {twice!r} is there twice in one object, and which one counts is not defined")


def _walk(value: Any, steps: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], _Refused]]:
    """What must not be there, in order, each with its place."""
    if isinstance(value, _Refused):
        yield steps, value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from _walk(name, steps)
            yield from _walk(part, (*steps, name))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _walk(part, (*steps, number))
    elif isinstance(value, str) and not _whole(value):
        yield steps, _Refused("text has half of a surrogate pair, which stands for no character")


def _whole(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
