"""Every way in which a request can fail, as one kind of response; never with a traceback."""

import json
import logging
import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from counterpath.service.dispatcher import BusyError, TimedOutError
from counterpath.service.examples import EXAMPLES
from counterpath.utils.errors import CounterpathError, InputError, NotFittedError

BODY = "the body"
_MAX_DIGITS = 320
"""Characters of a whole number that could still be a finite float: those have up to 309 digits. To convert a longer one
takes time that grows with the square of its length."""
_MAX_DETAILS = 20
"""More mistakes than anybody corrects at once; a request with a thousand rows can have thousands."""
_LOG = logging.getLogger("counterpath.service")


class NotJsonError(InputError):
    """A body is not JSON: where in it, in words, and why."""

    def __init__(self, location: str, why: str) -> None:
        super().__init__(f"{location}: {why}")
        self.location, self.why = location, why


class FullError(CounterpathError):
    """There is no room for another job, or for more of one."""


class TooManyRowsError(InputError):
    """A request has more rows than the service takes."""


@dataclass(frozen=True)
class _Refused:
    """Stands where something was that must not be."""

    why: str


def parse(body: bytes) -> Any:
    """The value of a JSON text.

    Pydantic's own parser is faster, but takes 1e999 and a key that is there twice, and of NaN says only at which line
    of the text it is, not in which row of the table.

    Raises:
        NotJsonError: It is not JSON in UTF-8; or it holds NaN, an infinity or a number too large for a float, a key
            twice in one object, or half of a surrogate pair.
    """
    try:
        value = json.loads(
            body.decode("utf-8"),
            parse_constant=lambda text: _Refused(f"{text} is no number in JSON; leave the row out, or give a number"),
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
    for steps, refused in _find_refused(value, ()):
        raise NotJsonError(location(steps) or BODY, refused.why)
    return value


def location(steps: Sequence[str | int]) -> str:
    """Where something is in a JSON value, for people.

    Example:
        >>> location(("rows", 3, "age"))
        'rows[3].age'
    """
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return text.removeprefix(".")


def _float(text: str) -> float | _Refused:
    value = float(text)
    return value if math.isfinite(value) else _Refused(f"{text[:40]} is too large; expected a number below 1.8e308")


def _int(text: str) -> int | float | _Refused:
    if len(text) > _MAX_DIGITS:
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


def _find_refused(value: Any, steps: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], _Refused]]:
    """What must not be there, in order, each with its location."""
    if isinstance(value, _Refused):
        yield steps, value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from _find_refused(name, steps)
            yield from _find_refused(part, (*steps, name))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _find_refused(part, (*steps, number))
    elif isinstance(value, str) and not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        yield steps, _Refused("text has half of a surrogate pair, which stands for no character")


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
    429: "This client has sent too many requests, or too many wrong tokens; Retry-After says when to try again.",
    431: "The headers are too large, or took too long.",
    500: "A fault of the service; it is logged under the id in the response.",
    503: "Too many requests are waiting, or the service is stopping; the header Retry-After says when to try again.",
    504: "The time for the request was up. It is no longer computed.",
    507: "The folder of jobs is full.",
}
"""What each status that is not a success means here."""


RETRIED = (429, 503)
"""The statuses whose responses say when to try again."""
PROBLEM = "application/problem+json"
_TYPE = "urn:counterpath:problem:"


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI says about statuses: what they mean, and that the response is a `Problem`."""
    retry = {"Retry-After": {"description": "In how many seconds to try again.", "schema": {"type": "integer"}}}
    return {
        status: {
            "description": MEANINGS[status],
            "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
            **({"headers": retry} if status in RETRIED else {}),
        }
        for status in statuses
    }


def examples(status: int) -> dict[str, Any]:
    """What the service has answered with a status, by the codes of the problems."""
    return {code: {"value": value} for code, value in EXAMPLES.items() if value["status"] == status}


def problem(
    status: int,
    code: str,
    message: str,
    *,
    details: Sequence[Mapping[str, str]] = (),
    id: str | None = None,  # noqa: A002
) -> dict[str, Any]:
    """The content of a response to a request that fails; see `schemas.Problem`."""
    return {
        "type": f"{_TYPE}{code}",
        "title": MEANINGS.get(status, HTTPStatus(status).phrase).partition(";")[0].partition(":")[0].rstrip("."),
        "status": status,
        "detail": message,
        "code": code,
        "errors": list(details),
        "id": id,
    }


def failure(
    status: int,
    code: str,
    message: str,
    *,
    headers: Mapping[str, str] | None = None,
    details: Sequence[Mapping[str, str]] = (),
    id: str | None = None,  # noqa: A002  # its name in the response
) -> Response:
    """The response to a request that fails."""
    content = json.dumps(problem(status, code, message, details=details, id=id), ensure_ascii=True)
    return Response(content, status, headers=dict(headers or {}), media_type=PROBLEM)


def unexpected(error: Exception) -> Response:
    """The response where the fault is ours: an id, under which the log has the rest."""
    name = secrets.token_hex(6)
    _LOG.error("request failed, id %s", name, exc_info=error)
    return failure(500, "internal", f"something unexpected happened; the service's log has it under {name}", id=name)


def handle_failures(app: FastAPI) -> None:
    """Have every failure answered in the one way."""
    handlers: dict[type[Exception], Callable[[Any], Response]] = {
        RequestValidationError: _invalid,
        NotJsonError: lambda error: failure(
            422, "not_json", str(error), details=[{"location": error.location, "message": error.why}]
        ),
        TooManyRowsError: lambda error: failure(413, "too_many_rows", str(error)),
        InputError: lambda error: failure(422, "unusable", str(error)),
        NotFittedError: lambda error: failure(422, "unusable", str(error)),
        FullError: lambda error: failure(507, "jobs_full", str(error)),
        BusyError: lambda error: failure(503, "busy", str(error), headers={"Retry-After": str(error.retry_after)}),
        TimedOutError: lambda error: failure(504, "out_of_time", str(error)),
    }

    for kind, respond in handlers.items():
        app.add_exception_handler(kind, partial(_handle, respond))
    app.add_exception_handler(HTTPException, _handle_http)
    app.add_exception_handler(404, _handle_http)  # NiceGUI would make a page of its own, which is kept for a minute


async def _handle(respond: Callable[[Any], Response], request: Request, error: Exception) -> Response:
    return respond(error)


async def _handle_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    allowed = _allowed(request) if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED else ""
    return _http(error, {"Allow": allowed} if allowed else error.headers)


def _allowed(request: Request) -> str:
    """The methods of an address, for which there may be a route each: Starlette names those of the first alone."""
    routes = [each for each in request.app.routes if each.matches(request.scope)[0] is not Match.NONE]
    return ", ".join(sorted({method for each in routes for method in getattr(each, "methods", None) or ()}))


def _http(error: HTTPException, headers: Mapping[str, str] | None) -> Response:
    phrase = HTTPStatus(error.status_code).phrase
    said = str(error.detail)
    message = MEANINGS.get(error.status_code, phrase) if said == phrase else said
    return failure(error.status_code, phrase.lower().replace(" ", "_"), message, headers=headers)


def _invalid(error: RequestValidationError) -> Response:
    details = [{"location": location(each["loc"][1:]) or BODY, "message": str(each["msg"])} for each in error.errors()]
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    message = f"{details[0]['location']}: {details[0]['message']}{more}"
    return failure(422, "invalid", message, details=details[:_MAX_DETAILS])
