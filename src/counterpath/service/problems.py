"""Every way in which a request can fail, as one kind of answer; never with a traceback."""

import json
import logging
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from counterpath.service.queue import BusyError, LateError
from counterpath.service.schemas import ErrorAnswer
from counterpath.utils.errors import InputError

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


_LOG = logging.getLogger("counterpath.app")
_MOST_DETAILS = 20

MEANINGS: dict[int, str] = {
    400: "The request cannot be understood, for instance because it has no Host header.",
    401: "The service has a token, and the request does not present it.",
    403: "The request comes from a page of another site.",
    404: "There is nothing under this address: no such model, for instance.",
    405: "The address exists, but not for this method; the header Allow says for which.",
    408: "The body did not come in time.",
    413: "The body has too many bytes, or too many rows.",
    415: "The body is not declared as application/json.",
    421: "The request is meant for another host, by its Host header.",
    422: "The body is not JSON, does not fit the description, or asks for what cannot be.",
    500: "A fault of the service; it is logged under the id in the answer.",
    503: "Too many questions are waiting, or the service is stopping; the header Retry-After says when to try again.",
    504: "The time for the question was up. It is no longer computed.",
}
"""What each status that is not a success means here."""


class TooManyRowsError(InputError):
    """A question has more rows than the service takes."""


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI says about statuses: what they mean, and that the answer is an `ErrorAnswer`."""
    retry = {"Retry-After": {"description": "In how many seconds to try again.", "schema": {"type": "integer"}}}
    return {
        status: {
            "description": MEANINGS[status],
            "model": ErrorAnswer,
            **({"headers": retry} if status == 503 else {}),
        }
        for status in statuses
    }


def failure(
    status: int,
    code: str,
    message: str,
    *,
    headers: Mapping[str, str] | None = None,
    details: Sequence[Mapping[str, str]] = (),
    id: str | None = None,  # noqa: A002  # its name in the answer
) -> Response:
    """The answer to a request that fails."""
    error = {"code": code, "message": message, "details": list(details), "id": id}
    content = json.dumps({"error": error}, ensure_ascii=True)
    return Response(content, status, headers=dict(headers or {}), media_type="application/json")


def unexpected(error: Exception) -> Response:
    """The answer where the fault is ours: an id, under which the log has the rest."""
    name = secrets.token_hex(6)
    _LOG.error("request failed, id %s", name, exc_info=error)
    return failure(500, "internal", f"something unexpected happened; the service's log has it under {name}", id=name)


def handle_failures(app: FastAPI) -> None:
    """Have every failure answered in the one way."""
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(NotJsonError, _not_json)
    app.add_exception_handler(TooManyRowsError, _too_many_rows)
    app.add_exception_handler(InputError, _unusable)
    app.add_exception_handler(BusyError, _busy)
    app.add_exception_handler(LateError, _late)


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    said = str(error.detail)
    message = MEANINGS.get(error.status_code, phrase) if said == phrase else said
    return failure(error.status_code, phrase.lower().replace(" ", "_"), message, headers=error.headers)


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    details = [{"place": place(one["loc"][1:]) or BODY, "message": str(one["msg"])} for one in found]
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    message = f"{details[0]['place']}: {details[0]['message']}{more}"
    return failure(422, "invalid", message, details=details[:_MOST_DETAILS])


def _not_json(request: Request, error: Exception) -> Response:
    assert isinstance(error, NotJsonError)
    return failure(422, "not_json", str(error), details=[{"place": error.where, "message": error.why}])


def _too_many_rows(request: Request, error: Exception) -> Response:
    return failure(413, "too_many_rows", str(error))


def _unusable(request: Request, error: Exception) -> Response:
    return failure(422, "unusable", str(error))


def _busy(request: Request, error: Exception) -> Response:
    assert isinstance(error, BusyError)
    return failure(503, "busy", str(error), headers={"Retry-After": str(error.retry_after)})


def _late(request: Request, error: Exception) -> Response:
    return failure(504, "out_of_time", str(error))
