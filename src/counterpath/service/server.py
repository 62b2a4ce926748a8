"""A process that serves: it listens, says where, and stops in an orderly way."""

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

from counterpath.service.dispatcher import Desk
from counterpath.service.guard import check_address
from counterpath.service.settings import Settings
from counterpath.utils.errors import InputError

_SWITCH = 0.001
"""Seconds after which a thread that computes gives way to the event loop. The usual 5 ms, waited for at every step of
an answer, make answers slow while a search runs."""
_LOG = logging.getLogger("counterpath.app")
_CLOSING = 5
"""Seconds that open connections have to be closed, once all questions are answered."""


def run(app: ASGIApp, desk: Desk, settings: Settings, announce: Callable[[str], Any]) -> int | None:
    """Serve until the process is told to stop; then answer the questions that are there, but take no others.

    While it stops, `/readyz` and questions are answered 503. A second signal stops it at once.

    Args:
        app: What to serve.
        desk: Answers its questions.
        settings: Where to listen.
        announce: Told the address once requests are answered there.

    Returns:
        The signal that stopped it, if any. If `desk.busy` then, something runs that does not give up.

    Raises:
        InputError: The address cannot be listened at, or would be open to everybody.
    """
    check_address(settings)
    listening = _listen(settings)
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    try:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=_CLOSING,
        )
        server = _Server(config, desk, settings, announce)
        asyncio.run(server.serve(sockets=[listening]))
    finally:
        sys.setswitchinterval(before)
        listening.close()
    return server.stopped_by


class _Server(uvicorn.Server):
    """Uvicorn's server, which drains the desk before it closes, and does not end by the signal that stops it."""

    def __init__(self, config: uvicorn.Config, desk: Desk, settings: Settings, announce: Callable[[str], Any]) -> None:
        super().__init__(config)
        self.stopped_by: int | None = None
        self._desk, self._settings, self._announce = desk, settings, announce
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say where."""
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
        if not await self._desk.drain(self._settings.grace):
            _LOG.warning("some questions were not answered within %g seconds, and are given up", self._settings.grace)
            self._desk.close()
        self.should_exit = True


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if isinstance(number, int) and number > 0 else error
        raise InputError(
            f"cannot listen at {_address(settings.host, settings.port)}: {reason}; try another --port or --host"
        ) from error


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
