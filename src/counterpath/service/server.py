"""The process that serves: it listens, announces where, and shuts down gracefully."""

import asyncio
import logging
import math
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
from counterpath.service.limits import limited
from counterpath.service.settings import Settings
from counterpath.utils.errors import CounterpathError, InputError

_SWITCH_INTERVAL = 0.001
"""Seconds after which a thread that computes gives way to the event loop. Python's 5 ms, waited for at every step of a
response, make responses slow while a search runs."""
_LARGEST_FRAME = 1 << 20
"""Bytes of a message on a web socket: the page sends what people type."""
_CLOSE_SECONDS = 5
"""How long open connections have to be closed, once all requests are answered: responses are short."""
_BACKLOG = 1024
"""Connections that the kernel holds until they are accepted: more than ever come within a step of the event loop."""
_LOG = logging.getLogger("counterpath.service")


def run(
    app: ASGIApp,
    dispatcher: Dispatcher,
    settings: Settings,
    announce: Callable[[str], Any],
    *,
    reload: Callable[[], Callable[[], None]] | None = None,
    listening: socket.socket | None = None,
) -> int | None:
    """Serve until a signal stops the process; then finish the requests that are there, but take no others.

    While it stops, `/readyz` and requests for models get the status 503. A second signal stops it at once.

    Args:
        app: What to serve.
        dispatcher: Runs its models.
        settings: Where to listen.
        announce: Called with the address once requests are answered there.
        reload: Called on SIGHUP, on a thread: reads the models again, and returns what has them answer from then on.
        listening: A socket that listens already; by default one is opened.

    Returns:
        The signal that stopped it, if any. If `dispatcher.busy` then, something runs that does not stop.

    Raises:
        InputError: The address cannot be listened at, or would be open to everybody.
    """
    check_address(settings)
    listening = listening or listen(settings)
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            http=limited(settings),
            h11_max_incomplete_event_size=settings.header_bytes,
            timeout_keep_alive=math.ceil(settings.idle_seconds),
            ws_max_size=_LARGEST_FRAME,
            timeout_graceful_shutdown=_CLOSE_SECONDS,
        )
        server = _Server(config, dispatcher, settings, announce, reload)
        asyncio.run(server.serve(sockets=[listening]))
    finally:
        sys.setswitchinterval(before)
        listening.close()
    return server.stopped_by


class _Server(uvicorn.Server):
    """Uvicorn's server, which finishes all jobs before it closes, and does not end by the signal that stops it."""

    def __init__(
        self,
        config: uvicorn.Config,
        dispatcher: Dispatcher,
        settings: Settings,
        announce: Callable[[str], Any],
        reload: Callable[[], Callable[[], None]] | None,
    ) -> None:
        super().__init__(config)
        self._reload, self._reloading = reload, asyncio.Lock()
        self._reloads: set[asyncio.Task[None]] = set()
        self.stopped_by: int | None = None
        self._dispatcher, self._settings, self._announce = dispatcher, settings, announce
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and announce where."""
        await super().startup(sockets)
        for listening in sockets or []:
            self._announce(address(self._settings.host, listening.getsockname()[1]))

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
        if self._reload is not None and hasattr(signal, "SIGHUP"):
            again = signal.signal(signal.SIGHUP, lambda *_: loop.call_soon_threadsafe(self._load_again))
            before[signal.SIGHUP] = again
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

    def _load_again(self) -> None:
        task = asyncio.get_running_loop().create_task(self._load_models())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _load_models(self) -> None:
        """Have the models that are in the folders now answer; those that cannot be read change nothing."""
        assert self._reload is not None
        async with self._reloading:
            try:
                put_in = await asyncio.to_thread(self._reload)
                put_in()
            except (CounterpathError, OSError) as error:
                _LOG.error("the models cannot be loaded again, and those before go on: %s", error)
            else:
                _LOG.warning("the models were loaded again")

    async def _drain(self) -> None:
        if not await self._dispatcher.drain(self._settings.grace):
            _LOG.warning("some requests were not answered within %g seconds, and are cancelled", self._settings.grace)
            self._dispatcher.close()
        self.should_exit = True


def listen(settings: Settings) -> socket.socket:
    """A socket that listens where the settings say.

    Raises:
        InputError: The address cannot be listened at.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if isinstance(number, int) and number > 0 else error
        raise InputError(
            f"cannot listen at {address(settings.host, settings.port)}: {reason}; try another --port or --host"
        ) from error


def address(host: str, port: int) -> str:
    """Where a service is reached."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
