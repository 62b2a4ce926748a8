"""Serves the page, and what can be asked over HTTP beside it, until it is told to stop."""

import asyncio
import warnings
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from nicegui import app as pages

from counterpath.app import api, server
from counterpath.app.desk import Desk
from counterpath.app.settings import Settings
from counterpath.app.ui.opening import Load, Opening
from counterpath.app.ui.page import mount

_LOOKS = 0.2


def serve(title: str, load: Load, settings: Settings, announce: Callable[[str], Any]) -> tuple[int | None, bool]:
    """Serve the explorer at once, and open its model meanwhile.

    Args:
        title: What the model is called.
        load: Makes or reads it.
        settings: Where to listen, and whom to answer.
        announce: Told the address of the page.

    Returns:
        The signal that stopped it, if any; and whether something still runs that would not stop.

    Raises:
        InputError: The address cannot be listened at, or would be open to everybody.
    """
    desk = Desk({}, settings)
    opening = Opening(title, load, desk)
    app = api.create(desk, settings)
    mount(app, opening, desk)
    pages.on_startup(lambda: _publish(app, opening))
    opening.start()
    with warnings.catch_warnings():
        # NiceGUI looks through all objects of the process for its server, and torch has some that do not like it.
        warnings.filterwarnings("ignore", message=".*torch.distributed.reduce_op", category=FutureWarning)
        stopped_by = server.run(app, desk, settings, announce)
    return stopped_by, desk.busy or opening.running


async def _publish(app: FastAPI, opening: Opening) -> None:
    """Offer the model over HTTP once it is there: here, because only the event loop may change the routes."""
    while opening.running:
        await asyncio.sleep(_LOOKS)
    if opening.opened is not None:
        api.publish(app, opening.opened.name)
