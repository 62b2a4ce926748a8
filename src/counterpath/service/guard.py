"""What a request must be like before anything looks at it: from whom, for whom, and how large.

A page of another site can have a browser send requests to services on the same machine, and by a name of its own that
resolves to 127.0.0.1 even read the answers (DNS rebinding). So the Host header must be one of ours, and what changes
anything must come from a page of ours, or from no page at all.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import time
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from counterpath.service.problems import failure
from counterpath.service.settings import Settings
from counterpath.utils.errors import InputError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
HEALTH = "/healthz"
API = "/v1/"
_SAFE = ("GET", "HEAD", "OPTIONS")
_DISCARDED = 64 << 20
"""How much of a body that is too large is read and thrown away, so that its sender comes to read the answer."""
_BODY_SECONDS = 30.0
_SECURITY = {
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
    """ASGI middleware that lets pass only what may.

    Args:
        app: What it guards.
        settings: Whom to let pass.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._names = frozenset({*LOOPBACK, *settings.hosts, *_bound(settings.host)})
        self._any_address = settings.host in ("0.0.0.0", "::", "")
        self._token = None if settings.token is None else settings.token.encode()
        self._cookie = f"counterpath-{settings.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that may not pass, or have it answered."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = self._refused(scope, headers)
        if refused is not None:
            await _refuse(refused, scope, receive, send)
        elif scope["type"] == "websocket":
            await self._app(scope, receive, send)
        else:
            await self._pass_with_body(scope, headers, receive, _secured(send))

    def _refused(self, scope: Scope, headers: Headers) -> Response | None:
        """Why a request may not pass, before its body is read; or where it is to go with its token."""
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            return failure(400, "no_host", f"the request has {len(hosts)} Host headers; expected one")
        if not self._ours(hosts[0]):
            return failure(
                421, "wrong_host", "this service has another name than the Host header says; see --allow-host"
            )
        origin = headers.get("origin")
        changes = scope["type"] == "websocket" or scope["method"] not in _SAFE
        if changes and origin is not None and _place(urlsplit(origin).netloc) != _place(hosts[0]):
            return failure(403, "other_origin", "the request comes from a page of another site")
        return self._without_token(scope, headers)

    def _ours(self, host: str) -> bool:
        name = _place(host)[0]
        return name in self._names or (self._any_address and _is_address(name))

    def _without_token(self, scope: Scope, headers: Headers) -> Response | None:
        if self._token is None or scope["path"] == HEALTH:
            return None
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1"), self._token):
            return None
        if hmac.compare_digest(_cookie(headers, self._cookie).encode(), self._pass().encode()):
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        offered = dict(query).get("token", "")
        if scope["type"] == "http" and scope["method"] == "GET" and _equal(offered, self._token):
            return self._admitted(scope, [(name, value) for name, value in query if name != "token"])
        return failure(
            401,
            "no_token",
            "this service has a token: send it as 'Authorization: Bearer …', or open the address with ?token=…",
            headers={"WWW-Authenticate": "Bearer"},
        )

    def _admitted(self, scope: Scope, query: list[tuple[str, str]]) -> Response:
        """Keep the token in a cookie, and out of the address, which is shown, kept and sent on."""
        # A path that begins with two slashes would be the address of another host.
        path = "/" + quote(scope["path"].lstrip("/"))
        answer = RedirectResponse(f"{path}?{urlencode(query)}" if query else path, status_code=303)
        answer.set_cookie(self._cookie, self._pass(), httponly=True, samesite="strict", path="/")
        return answer

    def _pass(self) -> str:
        """What the cookie holds: proof of the token, and not the token."""
        return hmac.new(self._token or b"", b"counterpath cookie", hashlib.sha256).hexdigest()

    async def _pass_with_body(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
            await self._app(scope, receive, send)
            return
        if scope["path"].startswith(API) and not _is_json(headers):
            await _discard(headers, receive)
            wrong = failure(415, "wrong_content_type", "the body must be declared by 'Content-Type: application/json'")
            await wrong(scope, receive, send)
            return
        try:
            body = await _read(headers, receive, self._settings.body)
        except _RefusedError as refused:
            await refused.answer(scope, receive, send)
            return
        if body is not None:  # else the client is gone
            await self._app(scope, _replayed(body, receive), send)


class _RefusedError(Exception):
    def __init__(self, answer: Response) -> None:
        super().__init__()
        self.answer = answer


def check_address(settings: Settings) -> None:
    """Raise an error if the service could be reached from elsewhere by anybody."""
    if settings.token is None and settings.host not in LOOPBACK and not _is_loopback(settings.host):
        raise InputError(
            f"--host {settings.host} can be reached from other machines, and there is no --token: set one, for "
            "instance in the environment variable COUNTERPATH_TOKEN, or bind to 127.0.0.1"
        )
    if settings.token is not None and not settings.token.strip():
        raise InputError("the token is empty; expected one that is hard to guess, or none for this machine only")


async def _read(headers: Headers, receive: Receive, most: int) -> bytes | None:
    """The whole body, of which no more than `most` bytes are ever held; None if the client went away."""
    said = headers.get("content-length", "")
    if said.isdecimal() and int(said) > most:
        await _discard(headers, receive)
        raise _RefusedError(_too_large(most))
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > most:
                    break
                if not more:
                    return bytes(body)
    except TimeoutError:
        late = failure(408, "slow_body", f"the body did not come within {_BODY_SECONDS:.0f} seconds")
        late.headers["connection"] = "close"
        raise _RefusedError(late) from None
    body.clear()
    if more:
        await _discard(headers, receive)
    raise _RefusedError(_too_large(most))


async def _discard(headers: Headers, receive: Receive) -> None:
    """Read the rest of a body and keep nothing of it: most clients look for an answer only when they have sent all."""
    if headers.get("expect", "").lower() == "100-continue":
        return  # this one waits for a word before it sends
    left, until = _DISCARDED, time.monotonic() + _BODY_SECONDS
    while left > 0 and time.monotonic() < until:
        try:
            message = await asyncio.wait_for(receive(), max(until - time.monotonic(), 0.01))
        except TimeoutError:
            return
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return
        left -= len(message.get("body", b""))


def _too_large(most: int) -> Response:
    answer = failure(413, "too_large", f"the body is larger than {most:,} bytes; ask about fewer rows at a time")
    answer.headers["connection"] = "close"
    return answer


def _replayed(body: bytes, receive: Receive) -> Receive:
    """What gives a body that was read already, and then whatever comes: that the client goes away, for instance."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _refuse(answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    await _discard(Headers(scope=scope), receive)
    await answer(scope, receive, _secured(send))


def _secured(send: Send) -> Send:
    async def secured(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _SECURITY.items():
                headers.setdefault(name, value)
        await send(message)

    return secured


def _place(host: str) -> tuple[str, int | None]:
    """The name and the port of a Host header or an origin, so that equal places are equal."""
    try:
        parts = urlsplit(f"//{host}")
        return (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return "", None


def _bound(host: str) -> Iterable[str]:
    return [] if host in ("0.0.0.0", "::", "") else [host.lower().strip("[]")]


def _is_address(name: str) -> bool:
    """Whether it is an address and no name: nobody can have it resolved to another one."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return _is_address(host) and ipaddress.ip_address(host).is_loopback


def _is_json(headers: Headers) -> bool:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json"


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _equal(given: str, wanted: bytes) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted)
