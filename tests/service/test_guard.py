"""What passes the guard, and how much of it: a real server, and whatever can be sent to it."""

import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from counterpath.service.guard import Guard, check_address
from counterpath.service.settings import Settings
from counterpath.utils.errors import InputError

from .conftest import served

TOKEN = "s3cret-täken"
LIMIT = 1000


async def _echo(request: Request) -> JSONResponse:
    return JSONResponse({"size": len(await request.body())})


async def _talk(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text("hello")
    await socket.close()


ROUTES = [
    Route("/v1/echo", _echo, methods=["GET", "POST"]),
    Route("/page", _echo, methods=["GET", "POST"]),
    Route("/healthz", _echo),
    WebSocketRoute("/talk", _talk),
]


def _app(**settings: Any) -> Guard:
    return Guard(Starlette(routes=ROUTES), Settings(body=LIMIT, **settings))


@pytest.fixture(scope="module")
def open_to_us() -> Iterator[httpx.Client]:
    with served(_app(hosts=("explain.example",))) as address, httpx.Client(base_url=address) as client:
        yield client


@pytest.fixture(scope="module")
def locked() -> Iterator[httpx.Client]:
    with served(_app(token=TOKEN, port=1234)) as address, httpx.Client(base_url=address) as client:
        yield client


def _raw(client: httpx.Client, text: bytes) -> bytes:
    """The response to bytes that no library would send."""
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=20) as connection:
        connection.sendall(text)
        response = b""
        while part := connection.recv(4096):
            response += part
        return response


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:80", "[::1]:9", "LOCALHOST.", "explain.example:443"])
def test_hosts_of_ours_pass(open_to_us: httpx.Client, host: str) -> None:
    assert open_to_us.get("/page", headers={"Host": host}).status_code == 200


STRANGE = ["evil.example", "localhost.evil.example", "127.0.0.1.evil", "10.0.0.1", "[::2]", "a:b:c"]


@pytest.mark.parametrize("host", STRANGE)
def test_other_hosts_do_not(open_to_us: httpx.Client, host: str) -> None:
    response = open_to_us.get("/healthz", headers={"Host": host})
    assert response.status_code == 421
    assert response.json()["error"]["code"] == "wrong_host"


def test_a_service_for_all_addresses_is_called_by_any_address_but_by_no_strange_name() -> None:
    with served(_app(host="0.0.0.0", token="t")) as address:
        statuses = [
            httpx.get(f"{address}/healthz", headers={"Host": host}).status_code
            for host in ("192.168.1.7:8000", "[fe80::1]", "evil.example")
        ]
    assert statuses == [200, 200, 421]


def test_a_request_without_a_host_or_with_two_is_refused(open_to_us: httpx.Client) -> None:
    close = b"Connection: close\r\n\r\n"
    assert b" 400 " in _raw(open_to_us, b"GET /page HTTP/1.0\r\n" + close).splitlines()[0]
    two = b"GET /page HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n" + close
    assert b" 400 " in _raw(open_to_us, two).splitlines()[0]


def test_only_pages_of_ours_may_change_anything(open_to_us: httpx.Client) -> None:
    own = str(open_to_us.base_url).rstrip("/")
    for origin, status in ((own, 200), ("http://evil.example", 403), ("null", 403), ("http://127.0.0.1:1", 403)):
        response = open_to_us.post("/page", content=b"x", headers={"Origin": origin})
        assert response.status_code == status, origin
        assert open_to_us.get("/page", headers={"Origin": origin}).status_code == 200  # what only reads may come
        assert "access-control-allow-origin" not in response.headers
    assert open_to_us.post("/page", content=b"x").status_code == 200


def _handshake(client: httpx.Client, *headers: str) -> int:
    host = f"{client.base_url.host}:{client.base_url.port}"
    lines = [
        "GET /talk HTTP/1.1",
        f"Host: {host}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
        *headers,
    ]
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=20) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        return int(connection.recv(4096).split()[1])


def test_web_sockets_open_for_pages_of_ours_only(open_to_us: httpx.Client, locked: httpx.Client) -> None:
    own = f"Origin: http://127.0.0.1:{open_to_us.base_url.port}"
    assert _handshake(open_to_us, own) == 101
    assert _handshake(open_to_us, "Origin: http://evil.example") == 403
    assert _handshake(locked) == 403
    assert _handshake(locked, f"Authorization: Bearer {TOKEN}") == 101


def test_a_token_is_needed_for_all_but_health(locked: httpx.Client) -> None:
    assert locked.get("/healthz").status_code == 200
    wrong = ({"Authorization": "Bearer wrong"}, {"Authorization": TOKEN.encode()}, {"Cookie": "counterpath-1234=x"})
    for headers in ({}, *wrong):
        response = locked.get("/page", headers=headers)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
    assert locked.get("/page", headers={"Authorization": f"bearer {TOKEN}".encode()}).status_code == 200


def test_a_browser_brings_the_token_once_and_has_a_cookie_then(locked: httpx.Client) -> None:
    response = locked.get("/page", params={"token": TOKEN, "who": "me & you"})
    assert response.status_code == 303
    assert response.headers["location"] == "/page?who=me+%26+you"
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    named = cookie.partition(";")[0]
    locked.cookies.clear()
    assert locked.get("/page", headers={"Cookie": named}).status_code == 200
    assert locked.get("/page", headers={"Cookie": named[:-1]}).status_code == 401
    assert locked.get("/page", params={"token": "wrong"}).status_code == 401
    assert locked.post("/page", params={"token": TOKEN}, content=b"x").status_code == 401
    doubled = f"GET //evil.example/x?token={quote(TOKEN)} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert b"location: /evil.example/x\r\n" in _raw(locked, doubled.encode())


def test_a_body_may_be_so_large_and_no_larger(open_to_us: httpx.Client) -> None:
    assert open_to_us.post("/page", content=b"x" * LIMIT).json() == {"size": LIMIT}
    announced = open_to_us.post("/page", content=b"x" * (LIMIT + 1))
    chunks = open_to_us.post("/page", content=(b"x" * 100 for _ in range(11)))  # of which it is not announced how many
    for response in (announced, chunks):
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "too_large"
    assert open_to_us.post("/page", content=(b"x" * 100 for _ in range(10))).json() == {"size": LIMIT}


def test_a_client_that_asks_before_sending_too_much_is_refused_before(open_to_us: httpx.Client) -> None:
    head = b"POST /page HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999\r\nExpect: 100-continue\r\n\r\n"
    response = _raw(open_to_us, head)
    assert b" 413 " in response.splitlines()[0]
    assert b"100 Continue" not in response


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", None])
def test_the_api_takes_nothing_but_json(open_to_us: httpx.Client, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    response = open_to_us.post("/v1/echo", content=b"{}", headers=headers)
    assert response.status_code == 415
    assert open_to_us.post("/page", content=b"{}", headers=headers).status_code == 200


def test_responses_have_headers_that_keep_browsers_from_guessing(open_to_us: httpx.Client) -> None:
    for response in (open_to_us.get("/page"), open_to_us.get("/page", headers={"Host": "evil.example"})):
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in response.headers["content-security-policy"]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "::", "example.org"])
def test_an_address_that_others_reach_needs_a_token(host: str) -> None:
    with pytest.raises(InputError, match="there is no --token"):
        check_address(Settings(host=host))
    check_address(Settings(host=host, token="x"))
    with pytest.raises(InputError, match="the token is empty"):
        check_address(Settings(host=host, token=" "))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_an_address_of_this_machine_needs_none(host: str) -> None:
    check_address(Settings(host=host))


def test_a_failure_is_json(open_to_us: httpx.Client) -> None:
    response = open_to_us.post("/v1/echo", content=b"x")
    assert json.loads(response.content)["error"].keys() == {"code", "message", "details", "id"}
