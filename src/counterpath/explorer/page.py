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
from counterpath.explorer import elements, theme
from counterpath.explorer.group_view import GroupView
from counterpath.explorer.loading import Load, LoadedModel, ModelLoader
from counterpath.explorer.row_view import RowView
from counterpath.service import api, server
from counterpath.service.dispatcher import Dispatcher
from counterpath.service.settings import Settings

TITLE = "Counterpath"
_ONE, _MANY = "One person", "Many people"
_POLL_SECONDS = 0.25
"""Between two looks at a model that is being loaded: often enough to see it move."""
_RECONNECT_SECONDS = 60.0
"""How long a tab is kept whose connection is lost: a laptop that is closed for a moment loses nothing."""


def mount(app: FastAPI, loader: ModelLoader) -> None:
    """Put the explorer on an app, at `/`.

    Args:
        app: What serves it; its own routes come first.
        loader: The model, which may still be loading.
    """

    @ui.page("/", title=TITLE)
    def explorer() -> None:
        theme.apply()
        with ui.element("header").classes("cp-header"):
            elements.text("h1", "Counterpath")
            elements.text("span", f"Model: {loader.title}", "cp-model")
        outer = ui.element("div")
        with outer:
            if loader.model is not None:
                _tabs(loader.model)
            else:
                _LoadingScreen(loader, outer)

    ui.run_with(
        app,
        title=TITLE,
        favicon=theme.ICON,
        language="en-US",
        tailwind=False,
        reconnect_timeout=_RECONNECT_SECONDS,
        show_welcome_message=False,
    )


def _notice() -> None:
    elements.text("p", NOTICE, "cp-notice").props["role"] = "note"


def _tabs(model: LoadedModel) -> None:
    """One person, and many people."""

    def open_row(row: pd.DataFrame) -> None:
        row_view.open(row)
        tabs.set_value(_ONE)

    with ui.tabs().classes("cp-tabs").props("no-caps align=left") as tabs:
        ui.tab(_ONE)
        ui.tab(_MANY)
    _notice()
    # A figure that is kept while it is out of sight cannot be resized there, and complains.
    with ui.tab_panels(tabs, value=_ONE, animated=False, keep_alive=False).classes("cp-panels"):
        with ui.tab_panel(_ONE):
            row_view = RowView(model)
        with ui.tab_panel(_MANY), ui.element("div").classes("cp-wide"):
            GroupView(model, open_row)


class _LoadingScreen:
    """What is shown until the model is there."""

    def __init__(self, loader: ModelLoader, outer: ui.element) -> None:
        self._loader, self._outer = loader, outer
        _notice()
        with ui.element("div").classes("cp-section cp-opening"):
            self._title = elements.text("h2", "The model is on its way", "cp-title")
            elements.text("p", "A model is fitted once and kept: after that a start takes seconds.", "cp-lead")
            self._stage = elements.text("p", "", "cp-odds")
            self._stage.props["role"] = "status"
            self._bar = ui.linear_progress(show_value=False, size="12px").props("rounded")
            elements.set_name(self._bar, "Progress")
            self._past = elements.text("p", "", "cp-soft")
            self._error = elements.error_label()
        self._timer = ui.timer(_POLL_SECONDS, self._update)
        self._update()

    def _update(self) -> None:
        loader = self._loader
        if loader.model is not None:
            self._timer.cancel()
            self._outer.clear()
            with self._outer:
                _tabs(loader.model)
            return
        stage = loader.stage
        progress = f" ({stage.done} of {stage.total})" if stage.total else " …"
        self._stage.set_text(f"{stage.description}{progress} {stage.note}".strip())
        self._bar.props.set_bool("indeterminate", stage.share is None and not loader.error)
        self._bar.set_value(stage.share or 0.0)
        self._past.set_text(f"Done: {', '.join(loader.past[1:])}." if loader.past[1:] else "")
        if loader.error:
            self._timer.cancel()
            self._title.set_text("The model is not there")
            self._error.set_text(f"The model cannot be opened: {loader.error}")


def serve(title: str, load: Load, settings: Settings, announce: Callable[[str], Any]) -> tuple[int | None, bool]:
    """Serve the explorer at once, and load its model meanwhile.

    Args:
        title: What the model is called.
        load: Fits or reads it.
        settings: Where to listen, and whom to answer.
        announce: Called with the address of the page.

    Returns:
        The signal that stopped it, if any; and whether something still runs that would not stop.

    Raises:
        InputError: The address cannot be listened at, or would be open to everybody.
    """
    dispatcher = Dispatcher({}, settings)
    loader = ModelLoader(title, load, dispatcher)
    app = api.create(dispatcher, settings)
    mount(app, loader)
    pages.on_startup(lambda: _publish(app, loader))
    loader.start()
    with warnings.catch_warnings():
        # NiceGUI looks through all objects of the process for its server, and torch has some that do not like it.
        warnings.filterwarnings("ignore", message=".*torch.distributed.reduce_op", category=FutureWarning)
        stopped_by = server.run(app, dispatcher, settings, announce)
    return stopped_by, dispatcher.busy or loader.running


async def _publish(app: FastAPI, loader: ModelLoader) -> None:
    """Offer the model over HTTP once it is there: here, because only the event loop may change the routes."""
    while loader.running:
        await asyncio.sleep(_POLL_SECONDS)
    if loader.model is not None:
        api.publish(app, loader.model.name)
