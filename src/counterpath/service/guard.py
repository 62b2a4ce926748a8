"""What a request must be like before anything looks at it: from whom, for whom, and how large.

A page of another site can have a browser send requests to services on the same machine, and by a name of its own that
resolves to 127.0.0.1 even read the responses (DNS rebinding). So the Host header must be one of ours, and what changes
anything must come from a page of ours, or from no page at all.

Starlette's TrustedHostMiddleware does only the first of these, and cannot do what we need of it: to allow any address
but no other name where the service is bound to all addresses, to refuse two Host headers, to take a final dot, and to
fail with our JSON. FastAPI's HTTPBearer guards single routes, not mounted pages, static files and web sockets, and
leaves it to its caller to compare tokens in constant time. Neither limits the size of a body.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import math
from contextlib import suppress
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from counterpath.service.login import LOGIN, MAX_FORM, check_token, form
from counterpath.service.problems import failure
from counterpath.service.settings import Settings
from counterpath.service.throttle import Throttle
from counterpath.utils.errors import InputError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
ALL_ADDRESSES = ("0.0.0.0", "::", "")
HEALTH = "/healthz"
READY = "/readyz"
API = "/v1/"
_SOCKETS = "/socket.io"
_BURST_SECONDS = 3
"""For how many seconds' requests may come at once: clients that were answered together ask again together."""
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_ELSEWHERE = ("cross-site", "same-site")
"""What browsers say of requests that come from another site, or from another port of this one (Fetch metadata)."""
_MAX_DISCARDED = 64 << 20
"""Bytes of a refused body that are read and thrown away, so that its sender comes to read the response: far more than
is ever sent by mistake, and read in a second."""
_BODY_SECONDS = 30.0
"""How long a body may take to arrive: 1 MiB, the usual limit, at 300 kbit/s."""
_SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # A page may load nothing from elsewhere. Its scripts are its own, and some of them are written into it.
    "content-security-policy": "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; object-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors 'none'",
}


class Guard:
    """ASGI middleware that passes on only what is allowed.

    Args:
        app: What it guards.
        settings: What is allowed.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._max_body = app, settings.body
        self._any_address = settings.host in ALL_ADDRESSES
        bound = [] if self._any_address else [settings.host.lower().strip("[]")]
        self._names = frozenset({*LOOPBACK, *settings.hosts, *bound})
        self._token = None if settings.token is None else settings.token.encode()
        self._cookie_name = f"counterpath-{settings.port}"
        self._header_bytes = settings.header_bytes
        self._rate = None if settings.rate is None else Throttle(settings.rate, _BURST_SECONDS * settings.rate)
        self._tries = Throttle(settings.tries / 60, settings.tries)
        # Proof of the token, and not the token.
        self._cookie = hmac.new(self._token or b"", b"counterpath cookie", hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        refusal = self._check_headers(connection) or self._check_origin(connection) or self._check_rate(connection)
        if refusal is None and self._token is not None and _is_login(scope):
            await (await self._log_in(connection, receive))(scope, receive, _secured(send))
            return
        refusal = refusal or self._check_token(connection)
        if scope["type"] == "websocket":
            if refusal is None:
                await self._app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
            return
        secured = _secured(send)
        if refusal is not None:
            await _discard(connection.headers, receive)
            await refusal(scope, receive, secured)
        else:
            await self._pass_with_body(connection, receive, secured)

    def _check_headers(self, connection: HTTPConnection) -> Response | None:
        """Whether there is too much of them: the server holds what comes in one piece."""
        size = sum(len(name) + len(value) for name, value in connection.scope["headers"])
        size += len(connection.scope.get("raw_path") or b"") + len(connection.scope.get("query_string") or b"")
        if size <= self._header_bytes:
            return None
        return failure(431, "headers_too_large", f"headers may have {self._header_bytes:,} bytes; these have {size:,}")

    def _check_rate(self, connection: HTTPConnection) -> Response | None:
        """Whether this client asks too often; a health check may."""
        path = connection.scope["path"]
        if self._rate is None or path == HEALTH or not path.startswith(API):  # a page loads dozens of files at once
            return None
        wait = self._rate.take(_client(connection))
        if not wait:
            return None
        return failure(429, "too_often", "this client sends too many requests; see --rate", headers=_retry(wait))

    def _check_origin(self, connection: HTTPConnection) -> Response | None:
        """Why a request may not pass for where it comes from, or for the name it calls us by."""
        scope, headers = connection.scope, connection.headers
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            return failure(400, "no_host", f"the request has {len(hosts)} Host headers; expected one")
        name, port = _name_and_port(hosts[0])
        if name not in self._names and not (self._any_address and _is_address(name)):
            return failure(
                421, "wrong_host", "this service has another name than the Host header says; see --allow-host"
            )
        origin = headers.get("origin")
        # Long polling reads by GET, what a web socket would send: with an answer that lets other sites read it, too.
        changes = scope["type"] == "websocket" or scope["method"] not in _SAFE_METHODS or _SOCKETS in scope["path"]
        if changes and origin is not None and _name_and_port(origin.partition("://")[2]) != (name, port):
            return failure(403, "other_origin", "the request comes from a page of another site")
        # An image or a script of another site has no Origin, and costs as much. A link may be followed.
        followed = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
        if headers.get("sec-fetch-site") in _ELSEWHERE and not followed:
            return failure(403, "other_origin", "the request comes from a page of another site")
        return None

    def _check_token(self, connection: HTTPConnection) -> Response | None:
        """Why a request may not pass for its token; or where to go with it."""
        scope = connection.scope
        if self._token is None or scope["path"] in (HEALTH, READY):  # which whoever starts containers must see
            return None
        kind, _, given = connection.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1"), self._token):
            return None
        if hmac.compare_digest(connection.cookies.get(self._cookie_name, "").encode(), self._cookie.encode()):
            return None
        offered = connection.query_params.get("token", "").encode("utf-8", "surrogateescape")
        if scope["type"] == "http" and scope["method"] == "GET" and hmac.compare_digest(offered, self._token):
            query = urlencode([item for item in connection.query_params.multi_items() if item[0] != "token"])
            return self._set_cookie(scope["path"], query)
        tried = bool(given) or bool(offered)
        wait = self._tries.take(_client(connection)) if tried else 0.0
        if wait:
            return self._too_many_tries(wait)
        if scope["type"] == "http" and scope["method"] == "GET" and _wants_page(connection):
            path = scope["path"]
            return form("/" if path == LOGIN else path, "This is not the token." if tried else "")
        return failure(
            401,
            "no_token",
            "this service has a token: send it as 'Authorization: Bearer …', or open the page and sign in",
            headers={"WWW-Authenticate": "Bearer"},
        )

    def _too_many_tries(self, wait: float) -> Response:
        """A right token still passes: with 128 bits nobody guesses it, and else any client could lock others out."""
        return failure(429, "too_many_tries", "too many wrong tokens came from this client", headers=_retry(wait))

    async def _log_in(self, connection: HTTPConnection, receive: Receive) -> Response:
        """The answer to the form: a cookie, or the form again."""
        assert self._token is not None
        body = await _read(connection.headers, receive, MAX_FORM)
        if not isinstance(body, bytes):
            return body or failure(400, "no_form", "the client has disconnected")
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
        offered, path = fields.get("token", [""])[0].strip(), fields.get("next", ["/"])[0]
        path = urlsplit(path).path or "/"
        if hmac.compare_digest(offered.encode("utf-8", "surrogateescape"), self._token):
            return self._set_cookie(path, "")
        wait = self._tries.take(_client(connection))
        if wait:
            said = f"Too many wrong tokens; try again in {math.ceil(wait)} seconds."
            return form(path, said, status=429, headers=_retry(wait))
        return form(path, "This is not the token.")

    def _set_cookie(self, path: str, query: str) -> Response:
        """Keep the token in a cookie, and out of the address, which is shown, kept and sent on."""
        # A path that begins with two slashes would be the address of another host.
        path = "/" + quote(path.lstrip("/\\"))
        response = RedirectResponse(f"{path}?{query}" if query else path, status_code=303)
        response.set_cookie(self._cookie_name, self._cookie, httponly=True, samesite="strict", path="/")
        return response

    async def _pass_with_body(self, connection: HTTPConnection, receive: Receive, send: Send) -> None:
        """Pass a request on whose body is complete and not too large, and of the API JSON."""
        scope, headers = connection.scope, connection.headers
        if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
            await self._app(scope, receive, send)
            return
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["path"].startswith(API) and kind != "application/json":
            await _discard(headers, receive)
            wrong = failure(415, "wrong_content_type", "the body must be declared by 'Content-Type: application/json'")
            await wrong(scope, receive, send)
            return
        body = await _read(headers, receive, self._max_body)
        if isinstance(body, Response):
            await body(scope, receive, send)
        elif body is not None:  # else the client has disconnected
            messages = iter([{"type": "http.request", "body": body, "more_body": False}])

            async def replay() -> Message:
                # After the body whatever comes: that the client disconnects, for instance.
                return next(messages, None) or await receive()

            await self._app(scope, replay, send)


def check_address(settings: Settings) -> None:
    """Raise an error if the service could be reached from elsewhere by anybody."""
    host = settings.host
    loopback = host in LOOPBACK or (_is_address(host) and ipaddress.ip_address(host).is_loopback)
    if settings.token is None and not loopback:
        raise InputError(
            f"--host {host} can be reached from other machines, and there is no --token: set one, for "
            "instance in the environment variable COUNTERPATH_TOKEN, or bind to 127.0.0.1"
        )
    check_token(settings.token)


async def _read(headers: Headers, receive: Receive, most: int) -> bytes | Response | None:
    """The whole body, of which no more than `most` bytes are ever held; why not; or None if the client disconnected."""
    announced = headers.get("content-length", "")
    body, more = bytearray(), True
    if not announced.isdecimal() or int(announced) <= most:
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                while more and len(body) <= most:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
        except TimeoutError:
            slow = f"the body did not come within {_BODY_SECONDS:.0f} seconds"
            return failure(408, "slow_body", slow, headers={"connection": "close"})
        if len(body) <= most:
            return bytes(body)
    body.clear()
    if more:
        await _discard(headers, receive)
    too_large = f"the body is larger than {most:,} bytes; send fewer rows at a time"
    return failure(413, "too_large", too_large, headers={"connection": "close"})


async def _discard(headers: Headers, receive: Receive) -> None:
    """Read the rest of a body and keep nothing of it: most clients look for a response only when they have sent all."""
    if headers.get("expect", "").lower() == "100-continue":
        return  # this one waits for a word before it sends
    left, more = _MAX_DISCARDED, True
    with suppress(TimeoutError):
        async with asyncio.timeout(_BODY_SECONDS):
            while more and left > 0:
                message = await receive()
                more = message["type"] != "http.disconnect" and message.get("more_body", False)
                left -= len(message.get("body", b""))


def _secured(send: Send) -> Send:
    """Responses with the headers that keep browsers from guessing."""

    async def secured(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return secured


def _client(connection: HTTPConnection) -> str:
    """Who asks: by address, since headers such as X-Forwarded-For say whatever their sender likes."""
    return connection.client.host if connection.client else ""


def _retry(wait: float) -> dict[str, str]:
    return {"Retry-After": str(math.ceil(wait))}


def _is_login(scope: Scope) -> bool:
    return bool(scope["type"] == "http" and scope["method"] == "POST" and scope["path"] == LOGIN)


def _wants_page(connection: HTTPConnection) -> bool:
    """Whether it is a browser that opens a page, and no program."""
    return not connection.scope["path"].startswith(API) and "text/html" in connection.headers.get("accept", "")


def _name_and_port(host: str) -> tuple[str, int | None]:
    """The name and the port of a Host header or an origin, in one spelling."""
    try:
        parts = urlsplit(f"//{host}")
        return (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return "", None


def _is_address(name: str) -> bool:
    """Whether it is an address and no name: nobody can have it resolved to another one."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
