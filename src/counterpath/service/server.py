"""The process that serves: it listens, announces where, and shuts down gracefully."""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from counterpath.service.dispatcher import Dispatcher
from counterpath.service.guard import check_address
from counterpath.service.settings import Settings
from counterpath.utils.errors import InputError

_SWITCH_INTERVAL = 0.001
"""Seconds after which a thread that computes gives way to the event loop. Python's 5 ms, waited for at every step of a
response, make responses slow while a search runs."""
_KEEP_ALIVE = 30
"""Seconds for which an idle connection is kept: longer than the pauses of a busy client, and no longer, because each
takes a file descriptor."""
_CLOSE_SECONDS = 5
"""How long open connections have to be closed, once all requests are answered: responses are short."""
_BACKLOG = 1024
"""Connections that the kernel holds until they are accepted: more than ever come within a step of the event loop."""
_LOG = logging.getLogger("counterpath.service")


def run(app: ASGIApp, dispatcher: Dispatcher, settings: Settings, announce: Callable[[str], Any]) -> int | None:
    """Serve until a signal stops the process; then finish the requests that are there, but take no others.

    While it stops, `/readyz` and requests for models get the status 503. A second signal stops it at once.

    Args:
        app: What to serve.
        dispatcher: Runs its models.
        settings: Where to listen.
        announce: Called with the address once requests are answered there.

    Returns:
        The signal that stopped it, if any. If `dispatcher.busy` then, something runs that does not stop.

    Raises:
        InputError: The address cannot be listened at, or would be open to everybody.
    """
    check_address(settings)
    listening = _listen(settings)
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=_CLOSE_SECONDS,
        )
        server = _Server(config, dispatcher, settings, announce)
        asyncio.run(server.serve(sockets=[listening]))
    finally:
        sys.setswitchinterval(before)
        listening.close()
    return server.stopped_by


class _Server(uvicorn.Server):
    """Uvicorn's server, which finishes all jobs before it closes, and does not end by the signal that stops it."""

    def __init__(
        self, config: uvicorn.Config, dispatcher: Dispatcher, settings: Settings, announce: Callable[[str], Any]
    ) -> None:
        super().__init__(config)
        self.stopped_by: int | None = None
        self._dispatcher, self._settings, self._announce = dispatcher, settings, announce
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and announce where."""
        await super().startup(sockets)
        for listening in sockets or []:
            self._announce(_address(self._settings.host, listening.getsockname()[1]))

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Have signals stop the server, and put back afterwards what they did before."""
        if threading.current_thread() is not threading.main_thread():
            yield  # which alone gets signals
            return
        loop = asyncio.get_running_loop()
        known = (signal.SIGTERM, signal.SIGINT)
        before = {
            number: signal.signal(number, lambda got, _: loop.call_soon_threadsafe(self._stop, got)) for number in known
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int) -> None:
        if self._draining is None:
            self.stopped_by = number
            self._draining = asyncio.get_running_loop().create_task(self._drain())
        else:
            self.should_exit = self.force_exit = True

    async def _drain(self) -> None:
        if not await self._dispatcher.drain(self._settings.grace):
            _LOG.warning("some requests were not answered within %g seconds, and are cancelled", self._settings.grace)
            self._dispatcher.close()
        self.should_exit = True


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if isinstance(number, int) and number > 0 else error
        raise InputError(
            f"cannot listen at {_address(settings.host, settings.port)}: {reason}; try another --port or --host"
        ) from error


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
