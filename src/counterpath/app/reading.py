"""How questions are read: as strict JSON, in turns, and only as long as somebody waits for the answer."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from counterpath.app.failures import TooManyRowsError
from counterpath.app.meter import GONE
from counterpath.app.strict import parse

T = TypeVar("T")
_SHORT = 1 << 14
"""Bytes that are parsed on the event loop itself."""


class Turns:
    """Lets those who wait go on one at a time, and all else in between.

    Clients that are answered together come and go together. Dozens of requests that are read, or answered, in one go
    would hold up the event loop for so long that whoever asks for health thinks the service dead.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def wait(self) -> None:
        """Return when it is the caller's turn, which ends when the caller next waits for anything."""
        async with self._turn:
            await asyncio.sleep(0)


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns, unless the client goes away first: then it is cancelled.

    Raises:
        ClientGoneError: The client went away.
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGoneError
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


class ClientGoneError(Exception):
    """Nobody is there any more to be answered."""


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def strict_route(most_rows: int, turns: Turns) -> type[APIRoute]:
    """Routes whose bodies are strict JSON with no more than so many rows, and which are read and answered in turns."""

    class StrictRequest(Request):
        """A request whose body was parsed already."""

        parsed: Any = None

        async def json(self) -> Any:
            return self.parsed

    class StrictRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def strict(request: Request) -> Response:
                given = StrictRequest(request.scope, request.receive)
                body = await given.body()
                await turns.wait()
                if len(body) > _SHORT:  # which would hold up the event loop
                    given.parsed = await asyncio.to_thread(_parsed, body, most_rows)
                elif body:
                    given.parsed = _parsed(body, most_rows)
                try:
                    answer = await handle(given)
                except ClientGoneError:
                    return Response(status_code=GONE)
                await turns.wait()
                return answer

            return strict

    return StrictRoute


def _parsed(body: bytes, most_rows: int) -> Any:
    value = parse(body)
    rows = value.get("rows") if isinstance(value, Mapping) else None
    if isinstance(rows, list) and len(rows) > most_rows:
        raise TooManyRowsError(
            f"the question has {len(rows):,} rows; expected at most {most_rows:,}: ask in several parts"
        )
    return value
