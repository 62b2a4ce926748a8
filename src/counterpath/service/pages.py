"""How many loads of the page are kept, and connections to it: they take memory, whether a browser stays or not."""

import sys
import time
from collections.abc import Iterable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from counterpath.service.problems import failure
from counterpath.service.settings import Settings

_CONNECTS_WITHIN = 20.0
"""Seconds in which a browser that loads the page connects to it, on a slow line, too. Others may be forgotten."""
_SOCKETS = "/socket.io"
"""In the path under which a browser connects to a page: it gets a session, which is kept for about a minute."""
_RETRY = 10
"""Seconds after which to load the page again: by then half of what is waited for is there, or gone."""


_TRY_LATER = 1013  # the close code of a web socket that says so


class PageLimit:
    """ASGI middleware that forgets loads of the page to which no browser connected, and refuses more than so many.

    The page is NiceGUI's, which keeps a load for a minute. Without it there is nothing to limit.

    Args:
        app: What answers.
        settings: How many.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, unless it would load the page once too often."""
        if scope["type"] == "http" and scope["path"] == "/" and not self._has_room(_loads()):
            words = "the page is open too often; close it elsewhere, or try again later"
            refused = failure(503, "too_many_pages", words, headers={"Retry-After": str(_RETRY)})
            await refused(scope, receive, send)
            return
        if _SOCKETS in scope.get("path", "") and b"sid=" not in scope["query_string"] and not self._may_connect():
            if scope["type"] == "http":
                words = "too many browsers are connected; try again later"
                refused = failure(503, "too_many_pages", words, headers={"Retry-After": str(_RETRY)})
                await refused(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": _TRY_LATER})
            return
        await self._app(scope, receive, send)

    def _may_connect(self) -> bool:
        return _sessions() < self._settings.visitors + self._settings.pages

    def _has_room(self, loads: Iterable[Any]) -> bool:
        everybody = [*loads]
        waiting = [each for each in everybody if each.environ is None]  # no browser ever connected
        old = [each for each in waiting if time.time() - each.created > _CONNECTS_WITHIN]
        if len(waiting) >= self._settings.pages:
            for each in old:
                each.delete()
        else:
            old = []
        left = len(everybody) - len(old)
        return len(waiting) - len(old) < self._settings.pages and left < self._settings.visitors + self._settings.pages


def _sessions() -> int:
    core = sys.modules.get("nicegui.core")
    return 0 if core is None else len(core.sio.eio.sockets)


def _loads() -> Iterable[Any]:
    client = sys.modules.get("nicegui.client")  # it is there if the page is
    return [] if client is None else list(client.Client.instances.values())
