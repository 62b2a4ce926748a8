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
from counterpath.service.throttle import Throttle
from counterpath.utils.errors import InputError

from .conftest import served

TOKEN = "s3cret-täken-of-many-different-letters"
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
    assert response.json()["code"] == "wrong_host"


def test_a_service_for_all_addresses_is_called_by_any_address_but_by_no_strange_name() -> None:
    with served(_app(host="0.0.0.0", token=TOKEN)) as address:
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
        assert response.json()["code"] == "too_large"
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
    check_address(Settings(host=host, token=TOKEN))
    with pytest.raises(InputError, match="the token is empty"):
        check_address(Settings(host=host, token=" "))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_an_address_of_this_machine_needs_none(host: str) -> None:
    check_address(Settings(host=host))


def test_a_failure_is_json(open_to_us: httpx.Client) -> None:
    response = open_to_us.post("/v1/echo", content=b"x")
    assert response.headers["content-type"] == "application/problem+json"
    assert json.loads(response.content).keys() == {"type", "title", "status", "detail", "code", "errors", "id"}


def test_long_polling_of_other_sites_is_refused(open_to_us: httpx.Client) -> None:
    """By GET, too: whose answer names the origin, so that its pages may read it."""
    path = "/_nicegui_ws/socket.io/?EIO=4&transport=polling"
    for headers, status in (({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403), ({}, 404)):
        response = open_to_us.get(path, headers=headers)
        assert response.status_code == status
        assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize(
    ("site", "mode", "dest", "status"),
    [
        ("cross-site", "no-cors", "image", 403),
        ("cross-site", "navigate", "iframe", 403),
        ("same-site", "no-cors", "empty", 403),
        ("cross-site", "navigate", "document", 200),
        ("same-origin", "cors", "empty", 200),
        ("none", "navigate", "document", 200),
    ],
)
def test_what_pages_of_other_sites_load_is_refused_and_links_are_followed(
    open_to_us: httpx.Client, site: str, mode: str, dest: str, status: int
) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
    assert open_to_us.get("/page", headers=headers).status_code == status


@pytest.mark.parametrize(
    ("token", "good"),
    [
        ("x", False),
        ("correct horse", False),
        ("ab" * 50, False),
        ("0123456789abcdef" * 2, True),
        ("AbCdEfGhIjKlMnOpQrStU1", True),
        ("AbCdEfGhIjKlMnOp", False),
    ],
)
def test_a_token_is_hard_to_guess_or_refused(token: str, good: bool) -> None:
    for host in ("0.0.0.0", "127.0.0.1"):
        if good:
            check_address(Settings(host=host, token=token))
        else:
            with pytest.raises(InputError, match="token_urlsafe"):
                check_address(Settings(host=host, token=token))


def test_a_browser_signs_in_by_a_form() -> None:
    page = {"Accept": "text/html"}
    with served(_app(token=TOKEN, port=1235)) as address, httpx.Client(base_url=address) as client:
        asked = client.get("/page", headers=page)
        assert asked.status_code == 401
        assert asked.headers["content-type"].startswith("text/html")
        assert 'name="next" value="/page"' in asked.text
        assert client.get("/page").headers["content-type"] == "application/problem+json"
        assert client.get("/v1/echo", headers=page).headers["content-type"] == "application/problem+json"
        wrong = client.post("/login", data={"token": "wrong", "next": '/page"><script>'})
        assert wrong.status_code == 401
        assert "This is not the token." in wrong.text
        assert "<script>" not in wrong.text
        assert (
            client.post("/login", data={"token": TOKEN}, headers={"Origin": "http://evil.example"}).status_code == 403
        )
        right = client.post("/login", data={"token": TOKEN, "next": "//evil.example/page"})
        assert (right.status_code, right.headers["location"]) == (303, "/page")
        assert client.get("/page", headers=page).status_code == 200
        assert client.post("/login", data={"token": "x" * 5000}).status_code == 413


def test_wrong_tokens_are_throttled_and_the_right_one_is_not() -> None:
    with served(_app(token=TOKEN, tries=3)) as address, httpx.Client(base_url=address) as client:
        wrong = [client.get("/page", headers={"Authorization": f"Bearer {n}"}) for n in range(5)]
        assert [response.status_code for response in wrong] == [401, 401, 401, 429, 429]
        assert int(wrong[-1].headers["retry-after"]) <= 20
        assert client.post("/login", data={"token": "wrong"}).status_code == 429
        assert client.get("/page", headers={"Authorization": f"Bearer {TOKEN}".encode()}).status_code == 200
        assert client.get("/page").status_code == 401, "who presents none has not tried"


def test_each_client_may_ask_so_often() -> None:
    with served(_app(rate=1)) as address, httpx.Client(base_url=address) as client:
        found = [client.get("/v1/echo") for _ in range(6)]
        assert [response.status_code for response in found[:3]] == [200, 200, 200]
        assert found[-1].status_code == 429
        assert found[-1].json()["code"] == "too_often"
        assert int(found[-1].headers["retry-after"]) == 1
        assert client.get("/healthz").status_code == 200


def test_headers_that_come_in_one_piece_are_limited_too() -> None:
    with served(_app(header_bytes=2000)) as address:
        assert httpx.get(f"{address}/page", headers={"X-A": "a" * 1500}).status_code == 200
        assert httpx.get(f"{address}/page", headers={"X-A": "a" * 2500}).status_code == 431


def test_a_throttle_fills_at_its_rate_and_forgets_who_came_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    throttle = Throttle(2, 4, clock=lambda: now)
    assert [throttle.take("a") for _ in range(5)] == [0, 0, 0, 0, 0.5]
    assert throttle.take("b") == 0
    now = 1.0
    assert [throttle.take("a") for _ in range(3)] == [0, 0, 0.5]
    monkeypatch.setattr("counterpath.service.throttle._MOST_CLIENTS", 2)
    throttle.take("c")
    assert len(throttle._left) == 2
