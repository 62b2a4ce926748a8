"""Every way in which a request can fail, as one kind of answer; never with a traceback."""

import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from counterpath.app.line import BusyError, LateError
from counterpath.app.schemas import ErrorAnswer
from counterpath.app.strict import BODY, NotJsonError, place
from counterpath.errors import InputError

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
