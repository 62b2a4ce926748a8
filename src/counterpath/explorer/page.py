"""The page, put on the app that also answers over HTTP."""

import asyncio
import warnings
from collections.abc import Callable
from typing import Any

import pandas as pd
from fastapi import FastAPI
from nicegui import app as pages
from nicegui import ui

from counterpath.explanation.wording import NOTICE
from counterpath.explorer import parts, theme
from counterpath.explorer.explorer import Explorer
from counterpath.explorer.group import group_view
from counterpath.explorer.opening import Load, Opened, Opening
from counterpath.service import api, server
from counterpath.service.dispatcher import Dispatcher
from counterpath.service.settings import Settings

TITLE = "Counterpath"
_ONE, _MANY = "One person", "Many people"
_POLL_SECONDS = 0.25
_PATIENCE = 60.0


def mount(app: FastAPI, opening: Opening, dispatcher: Dispatcher) -> None:
    """Put the explorer on an app, at `/`.

    Args:
        app: What serves it; its own routes come first.
        opening: The model, which may still be on its way.
        dispatcher: Where questions to it are answered.
    """

    @ui.page("/", title=TITLE)
    def explorer() -> None:
        theme.apply()
        _header(opening)
        outer = ui.element("div")
        with outer:
            if opening.opened is not None:
                _tabs(opening.opened, dispatcher)
            else:
                _Waiting(opening, dispatcher, outer)

    ui.run_with(
        app,
        title=TITLE,
        favicon=theme.ICON,
        language="en-US",
        tailwind=False,
        reconnect_timeout=_PATIENCE,
        show_welcome_message=False,
    )


def _header(opening: Opening) -> None:
    with ui.element("header").classes("cp-header"):
        parts.text("h1", "Counterpath")
        parts.text("span", f"Model: {opening.title}", "cp-model")


def _notice() -> None:
    parts.text("p", NOTICE, "cp-notice").props["role"] = "note"


def _tabs(opened: Opened, dispatcher: Dispatcher) -> None:
    """One person, and many people."""

    def look_at(row: pd.DataFrame) -> None:
        explorer.open(row)
        tabs.set_value(_ONE)

    with ui.tabs().classes("cp-tabs").props("no-caps align=left") as tabs:
        ui.tab(_ONE)
        ui.tab(_MANY)
    _notice()
    # A figure that is kept while it is out of sight cannot be resized there, and complains.
    with ui.tab_panels(tabs, value=_ONE, animated=False, keep_alive=False).classes("cp-panels"):
        with ui.tab_panel(_ONE):
            explorer = Explorer(opened, dispatcher)
        with ui.tab_panel(_MANY), ui.element("div").classes("cp-wide"):
            group_view(dispatcher, opened.name, opened.people, look_at)


class _Waiting:
    """What is shown until the model is there."""

    def __init__(self, opening: Opening, dispatcher: Dispatcher, outer: ui.element) -> None:
        self._opening, self._dispatcher, self._outer = opening, dispatcher, outer
        _notice()
        with ui.element("div").classes("cp-section cp-opening"):
            self._title = parts.text("h2", "The model is on its way", "cp-title")
            parts.text("p", "A model is fitted once and kept: after that a start takes seconds.", "cp-lead")
            self._stage = parts.text("p", "", "cp-odds")
            self._stage.props["role"] = "status"
            self._bar = ui.linear_progress(show_value=False, size="12px").props("rounded")
            parts.named(self._bar, "Progress")
            self._past = parts.text("p", "", "cp-soft")
            self.problem = parts.problem()
        self._timer = ui.timer(_POLL_SECONDS, self._look)
        self._look()

    def _look(self) -> None:
        opening = self._opening
        if opening.opened is not None:
            self._timer.cancel()
            self._outer.clear()
            with self._outer:
                _tabs(opening.opened, self._dispatcher)
            return
        stage = opening.stage
        of = f" ({stage.done} of {stage.total})" if stage.total else " …"
        self._stage.set_text(f"{stage.description}{of} {stage.note}".strip())
        self._bar.props.set_bool("indeterminate", stage.share is None and not opening.problem)
        self._bar.set_value(stage.share or 0.0)
        self._past.set_text(f"Done: {', '.join(opening.past[1:])}." if opening.past[1:] else "")
        if opening.problem:
            self._timer.cancel()
            self._title.set_text("The model is not there")
            self.problem.set_text(f"The model cannot be opened: {opening.problem}")


_STOP_POLL_SECONDS = 0.2


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
    dispatcher = Dispatcher({}, settings)
    opening = Opening(title, load, dispatcher)
    app = api.create(dispatcher, settings)
    mount(app, opening, dispatcher)
    pages.on_startup(lambda: _publish(app, opening))
    opening.start()
    with warnings.catch_warnings():
        # NiceGUI looks through all objects of the process for its server, and torch has some that do not like it.
        warnings.filterwarnings("ignore", message=".*torch.distributed.reduce_op", category=FutureWarning)
        stopped_by = server.run(app, dispatcher, settings, announce)
    return stopped_by, dispatcher.busy or opening.running


async def _publish(app: FastAPI, opening: Opening) -> None:
    """Offer the model over HTTP once it is there: here, because only the event loop may change the routes."""
    while opening.running:
        await asyncio.sleep(_STOP_POLL_SECONDS)
    if opening.opened is not None:
        api.publish(app, opening.opened.name)
