"""Connections: how many, how slow, how large. Raw sockets against a real server."""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from counterpath.service import limits
from counterpath.service.guard import Guard
from counterpath.service.settings import Settings
from counterpath.utils.errors import InputError

HEAD = b"GET /page HTTP/1.1\r\nHost: localhost\r\n"
PATIENCE = 10.0
"""Seconds after which a test gives up waiting."""


async def _size(request: Request) -> JSONResponse:
    return JSONResponse({"size": len(await request.body())})


async def _long(request: Request) -> PlainTextResponse:
    return PlainTextResponse("x" * (64 << 20))


@contextlib.contextmanager
def _limited(**given: Any) -> Iterator[int]:
    """The port of a small application behind the limits."""
    settings = Settings(**given)
    routes = [Route("/page", _size, methods=["GET", "POST"]), Route("/long", _long)]
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        Guard(Starlette(routes=routes), settings),
        log_config=None,
        http=limits.limited(settings),
        h11_max_incomplete_event_size=settings.header_bytes,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()


def _connect(port: int, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    connection.sendall(sent)
    return connection


def _rest(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    text = b""
    with connection, contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            text += part
    return text


def test_headers_have_a_time_in_which_they_must_come() -> None:
    with _limited(header_seconds=0.4) as port:
        started, slow = time.monotonic(), _connect(port, HEAD)
        with contextlib.suppress(OSError):
            while time.monotonic() - started < PATIENCE:
                slow.sendall(b"X-A: 1\r\n")  # a drop now and then
                time.sleep(0.05)
        assert time.monotonic() - started < PATIENCE / 2
        slow.close()
        silent = _connect(port, HEAD)
        assert b" 408 " in _rest(silent).splitlines()[0]


def test_a_connection_on_which_nothing_is_asked_is_closed() -> None:
    with _limited(idle_seconds=0.3) as port:
        assert _rest(_connect(port)) == b""
        used = _connect(port, HEAD + b"\r\n")
        started = time.monotonic()
        assert b" 200 " in _rest(used).splitlines()[0]
        assert 0.2 < time.monotonic() - started < PATIENCE / 2


@pytest.mark.parametrize("at_once", [True, False])
def test_headers_are_so_large_and_no_larger(at_once: bool) -> None:
    with _limited(header_bytes=4096) as port:
        good = HEAD + b"X-A: " + b"a" * 3000 + b"\r\nConnection: close\r\n\r\n"
        assert b" 200 " in _rest(_connect(port, good)).splitlines()[0]
        large = [HEAD + b"X-A: " + b"a" * 3000, b"a" * 3000 + b"\r\n\r\n"]
        connection = _connect(port)
        for piece in [b"".join(large)] if at_once else large:
            connection.sendall(piece)
            time.sleep(0.05)
        answer = _rest(connection)
        assert b" 431 " in answer.splitlines()[0]
        assert b"application/problem+json" in answer


def test_a_large_body_is_no_header() -> None:
    with _limited(header_bytes=4096) as port:
        head = b"POST /page HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\nConnection: close\r\n"
        connection = _connect(port, head[:20])
        time.sleep(0.05)
        connection.sendall(head[20:] + b"\r\n" + b"b" * 100_000)
        assert b'{"size":100000}' in _rest(connection)


def test_a_request_after_another_has_headers_of_its_own() -> None:
    with _limited(header_bytes=4096) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        for _ in range(5):  # more bytes than one may have
            assert client.get("/page", headers={"X-A": "a" * 1500}).status_code == 200


def test_bytes_that_are_not_http_are_refused_in_json() -> None:
    with _limited() as port:
        answer = _rest(_connect(port, b"\x16\x03\x01 hello\r\n\r\n"))
        assert b" 400 " in answer.splitlines()[0]
        assert b'"code": "not_http"' in answer


def test_a_client_that_does_not_read_is_left() -> None:
    with _limited(stalled_seconds=0.3) as port:
        connection = _connect(port, b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(1.5)
        assert len(_rest(connection)) < 64 << 20


def test_idle_connections_make_room_for_new_ones(caplog: pytest.LogCaptureFixture) -> None:
    """More sockets than there may be, as many as once ended the service."""
    with _limited(connections=100) as port, contextlib.ExitStack() as idle:
        for _ in range(1100):
            idle.enter_context(_connect(port))
        assert httpx.get(f"http://127.0.0.1:{port}/page").status_code == 200
        counted = threading.active_count()
        assert counted < 20
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_busy_connections_are_not_given_up_for_new_ones() -> None:
    begun = HEAD.replace(b"GET", b"POST") + b"Content-Length: 9\r\n\r\n"  # and then the body does not come
    with _limited(connections=3) as port:
        busy = [_connect(port, begun) for _ in range(3)]
        time.sleep(0.2)
        assert b" 503 " in _rest(_connect(port, HEAD + b"\r\n")).splitlines()[0]
        for connection in busy:
            connection.sendall(b"123456789")
            assert b" 200 " in connection.recv(1000)
            connection.close()


def test_the_limit_on_open_files_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    raised = []
    monkeypatch.setattr(limits.resource, "getrlimit", lambda kind: (1024, 4096))
    monkeypatch.setattr(limits.resource, "setrlimit", lambda kind, both: raised.append(both))
    assert limits.fit_connections(Settings(connections=512)) == 512
    assert raised == []
    assert limits.fit_connections(Settings(connections=9000)) == 4096 - 256
    assert raised == [(4096, 4096)]
    monkeypatch.setattr(limits.resource, "getrlimit", lambda kind: (128, 128))
    with pytest.raises(InputError, match="ulimit -n 1024"):
        limits.fit_connections(Settings())
