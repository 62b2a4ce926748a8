"""How many loads of the page are kept: each holds its elements on the server, whether a browser connects or not."""

import sys
import time
from collections.abc import Iterable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from counterpath.service.problems import failure
from counterpath.service.settings import Settings

_CONNECTS_WITHIN = 20.0
"""Seconds in which a browser that loads the page connects to it, on a slow line, too. Others may be forgotten."""
_RETRY = 10
"""Seconds after which to load the page again: by then half of what is waited for is there, or gone."""


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
        await self._app(scope, receive, send)

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


def _loads() -> Iterable[Any]:
    client = sys.modules.get("nicegui.client")  # it is there if the page is
    return [] if client is None else list(client.Client.instances.values())
