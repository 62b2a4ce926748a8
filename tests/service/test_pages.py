"""Loads of the page that no browser ever connects to: their number, and so their memory, is limited."""

import time
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from counterpath.service import pages
from counterpath.service.pages import PageLimit
from counterpath.service.settings import Settings

from .conftest import served


@dataclass(eq=False)
class Load:
    """A load of the page, as NiceGUI keeps it."""

    kept: list["Load"]
    created: float
    environ: Any = None

    def delete(self) -> None:
        self.kept.remove(self)


def test_loads_are_limited_and_old_ones_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Load] = []
    monkeypatch.setattr(pages, "_loads", lambda: list(kept))

    async def load(request: Request) -> PlainTextResponse:
        kept.append(Load(kept, time.time()))
        return PlainTextResponse("the page")

    app = Starlette(routes=[Route("/", load), Route("/other", lambda request: PlainTextResponse("no page"))])
    with served(PageLimit(app, Settings(pages=3, visitors=4))) as address:
        assert [httpx.get(address).status_code for _ in range(5)] == [200, 200, 200, 503, 503]
        assert httpx.get(address).headers["retry-after"] == "10"
        assert httpx.get(f"{address}/other").status_code == 200
        kept[0].environ = "a browser"  # it has connected
        for each in kept:
            each.created -= 100
        assert [httpx.get(address).status_code for _ in range(2)] == [200, 200]
        assert len(kept) == 3, "whoever is connected stays, and only that was forgotten which waited too long"
        for each in kept:
            each.environ = "a browser"
        assert httpx.get(address).status_code == 200


def test_the_loads_of_nicegui_are_those_that_are_counted() -> None:
    from nicegui.client import Client
    from nicegui.page import page

    before = len(list(pages._loads()))
    client = Client(page("/some"))
    assert len(list(pages._loads())) == before + 1
    assert client.environ is None
    assert time.time() - client.created < 60
    client.delete()
    assert len(list(pages._loads())) == before


def test_sessions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handshake costs some kilobytes for a minute; what belongs to a session passes."""
    monkeypatch.setattr(pages, "_sessions", lambda: 7)
    path = "/_nicegui_ws/socket.io/"
    app = Starlette(routes=[Route(path, lambda request: PlainTextResponse("connected"))])
    for most, status in ((7, 200), (6, 503)):
        with served(PageLimit(app, Settings(pages=1, visitors=most))) as address:
            assert httpx.get(f"{address}{path}?EIO=4&transport=polling").status_code == status
            assert httpx.get(f"{address}{path}?EIO=4&transport=polling&sid=x").status_code == 200
            assert httpx.get(f"{address}/").status_code == 404


def test_the_sessions_of_nicegui_are_those_that_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    from nicegui import core

    monkeypatch.setitem(core.sio.eio.sockets, "x", None)
    assert pages._sessions() == len(core.sio.eio.sockets) > 0
