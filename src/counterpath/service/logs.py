"""What is known about every request: an id, a line in the log, and who answered it, in headers."""

import json
import logging
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from counterpath import __version__
from counterpath.service.dispatcher import Dispatcher
from counterpath.service.identity import ANSWERED_BY, Identity

ACCESS = logging.getLogger("counterpath.access")
REQUEST_ID, VERSION = "x-request-id", "counterpath-version"
_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
"""Ids that callers may choose: what needs no escape in a log, and is no word by accident."""
_MODEL = re.compile(r"/v1/models/([^/:]+)")
_JOB = re.compile(r"(/v1/jobs/[^/]{1,6})[^/]*")
"""The id of a job, whoever reads which may see the job: its first characters tell jobs apart."""
_DISCONNECTED = 499  # as metrics count it
_REQUEST: ContextVar[str] = ContextVar("request", default="")


class RequestLog:
    """ASGI middleware that gives requests an id, logs them when they end, and says in headers who answered.

    Args:
        app: What answers.
        dispatcher: Knows the models.
    """

    def __init__(self, app: ASGIApp, dispatcher: Dispatcher) -> None:
        self._app, self._dispatcher = app, dispatcher

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and log it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID, "")
        name = given if _ID.fullmatch(given) else secrets.token_hex(8)
        own, answered_by = {REQUEST_ID: name, VERSION: __version__}, list[Identity]()
        started, status, size = time.perf_counter(), _DISCONNECTED, 0

        async def named(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for header, value in (own | self._identity(scope["path"], answered_by)).items():
                    headers[header] = value
            size += len(message.get("body", b""))
            await send(message)

        token, answering = _REQUEST.set(name), ANSWERED_BY.set(answered_by)
        try:
            await self._app(scope, receive, named)
        finally:
            if ACCESS.isEnabledFor(logging.INFO):
                self._log(scope, status, size, time.perf_counter() - started)
            _REQUEST.reset(token)
            ANSWERED_BY.reset(answering)

    def _identity(self, path: str, answered_by: Sequence[Identity]) -> dict[str, str]:
        """Which model has answered; else which one answers under an address, if one does."""
        found = _MODEL.match(path)
        identity = None if found is None else self._dispatcher.identities.get(found[1])
        chosen = answered_by[-1] if answered_by else identity  # another may have taken its place since
        return {} if chosen is None else chosen.headers

    def _log(self, scope: Scope, status: int, size: int, seconds: float) -> None:
        """One line; of the address without what is asked there, which may be somebody's, or a token."""
        client = scope.get("client")
        fields = {
            "client": client[0] if client else None,
            "method": scope["method"],
            "path": shown_path(scope),
            "route": getattr(scope.get("route"), "path", None),
            "status": status,
            "bytes": size,
            "seconds": round(seconds, 4),
            "user_agent": Headers(scope=scope).get("user-agent", "")[:_LONGEST_PATH],
        }
        ACCESS.info("%s %s %s", fields["method"], fields["path"], status, extra={"fields": fields})


def shown_path(scope: Scope) -> str:
    """The path of a request as others may see it, without the whole id of a job."""
    return _JOB.sub(r"\1…", scope["path"])[:_LONGEST_PATH]


_LONGEST_PATH = 200  # characters of what clients chose that are logged: longer ones are no addresses of ours


class JsonFormatter(logging.Formatter):
    """Log records as JSON, a line each."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": at, "level": record.levelname.lower(), "logger": record.name}
        line["message"] = record.getMessage()
        if request := _REQUEST.get():
            line["request_id"] = request
        fields = getattr(record, "fields", None)
        line |= fields if isinstance(fields, Mapping) else {}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True)


def configure(style: str, *, access: bool) -> None:
    """Log to standard error.

    Args:
        style: "json" or "text".
        access: Whether every request is logged, too.
    """
    handler = logging.StreamHandler()
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if style == "json" else plain)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    ACCESS.setLevel(logging.INFO if access else logging.WARNING)
