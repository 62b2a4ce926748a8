"""What a connection may cost: how many there are, how long headers take and how large they are, and how long one idles.

Uvicorn limits none of these by itself: its keep-alive timeout begins with the first response, and a flood of sockets
ends in the operating system's limit on open files, which asyncio reports with a traceback for each of them.
"""

import asyncio
import json
import resource
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from counterpath.service.problems import PROBLEM, problem
from counterpath.service.settings import Settings
from counterpath.utils.errors import InputError

_OTHER_FILES = 256
"""File descriptors that are left for all but connections: models, logs, jobs and libraries take some dozens."""
_FEWEST = 16  # connections; with fewer a single browser, which opens six, would be in its own way
_END = b"\r\n\r\n"


def fit_connections(settings: Settings) -> int:
    """How many connections there may be, after the operating system's limit on open files was raised as far as needed.

    Raises:
        InputError: The limit leaves no room for connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = settings.connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = allowed
    room = settings.connections if soft == resource.RLIM_INFINITY else min(settings.connections, soft - _OTHER_FILES)
    if room < min(_FEWEST, settings.connections):
        raise InputError(f"the process may have {soft} files open, too few to serve; raise the limit: ulimit -n 1024")
    return room


class Connections:
    """The connections that are open, and which of them have been idle for how long."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._all: dict[LimitedProtocol, None] = {}  # in the order in which they last ended a request

    def __len__(self) -> int:
        return len(self._all)

    def add(self, protocol: "LimitedProtocol") -> bool:
        """Take a connection, if need be in place of the one that has been idle longest; whether there was room."""
        if len(self._all) >= self.most:
            longest = next((each for each in self._all if each.is_idle), None)
            if longest is None:
                return False
            self.discard(longest)
            longest.transport.abort()
        self._all[protocol] = None
        return True

    def renew(self, protocol: "LimitedProtocol") -> None:
        """A request on it has ended."""
        if protocol in self._all:
            del self._all[protocol]
            self._all[protocol] = None

    def discard(self, protocol: "LimitedProtocol") -> None:
        """It is closed."""
        self._all.pop(protocol, None)


class LimitedProtocol(H11Protocol):
    """Uvicorn's HTTP protocol in pure Python, with limits on what a connection costs."""

    settings: Settings
    open: Connections

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._head, self._tail = 0, b""  # how many bytes came since the last request ended, and the last three of them
        self._upgraded = False

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered on it: headers may be on their way."""
        return not self._upgraded and (self.cycle is None or self.cycle.response_complete)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it, unless there are too many that are all busy."""
        super().connection_made(transport)
        if self.open.add(self):
            self._wait(self.settings.idle_seconds)
        else:
            self._refuse(503, "too_many_connections", "too many connections are open; try again later")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._stop_waiting()
        if self._stalled is not None:
            self._stalled.cancel()
        self.open.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Headers have a time and a size in which they must be complete; bodies are limited by the guard."""
        if self.transport.is_closing():
            return
        if self.is_idle:
            if self._head == 0:
                self._wait(self.settings.header_seconds)
            if self._read_head(data) > self.settings.header_bytes:
                self._refuse(431, "headers_too_large", f"headers may have {self.settings.header_bytes:,} bytes")
                return
        super().data_received(data)
        if not self.is_idle:
            self._stop_waiting()

    def _read_head(self, data: bytes) -> int:
        """How many bytes the headers have so far: a body may follow them in the same piece."""
        seen = self._tail + data
        end, before = seen.find(_END), self._head - len(self._tail)
        self._head, self._tail = self._head + len(data), seen[1 - len(_END) :]
        return before + end if end >= 0 else self._head

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """A web socket is open for as long as the page: it counts, and is never idle."""
        self._upgraded = True
        self._stop_waiting()
        transport, protocol = self.transport, self
        super().handle_websocket_upgrade(event)
        socket = transport.get_protocol()
        lost = socket.connection_lost

        def forget(exc: Exception | None) -> None:
            protocol.open.discard(protocol)
            lost(exc)

        socket.connection_lost = forget  # type: ignore[method-assign]

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._head, self._tail = 0, b""
        self.open.renew(self)
        self._wait(self.settings.idle_seconds)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The client does not read: not for ever."""
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.settings.stalled_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """It does again."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def send_400_response(self, msg: str) -> None:
        """As all failures: a problem in JSON."""
        self._refuse(400, "not_http", "the request is not HTTP, or its headers are too large")

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(seconds, self._end)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        """The time is up: nothing came, or not all of the headers did."""
        if self.transport.is_closing() or not self.is_idle:
            return
        if self._head:
            seconds = f"{self.settings.header_seconds:g}"
            self._refuse(408, "slow_headers", f"the headers did not come within {seconds} seconds")
        else:
            self.transport.close()

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._stop_waiting()
        body = json.dumps(problem(status, code, message)).encode()
        lines = [
            f"HTTP/1.1 {status} {code.replace('_', ' ')}",
            f"Content-Type: {PROBLEM}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.transport.close()


def limited(settings: Settings) -> type[LimitedProtocol]:
    """The protocol with these limits; its connections are counted together."""
    return type("Limited", (LimitedProtocol,), {"settings": settings, "open": Connections(fit_connections(settings))})
