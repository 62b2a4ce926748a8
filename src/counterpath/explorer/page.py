"""The page, put on the app that also answers over HTTP, and the model that is loaded while the page says how far."""

import asyncio
import logging
import re
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pandas as pd
from nicegui import app as pages
from nicegui import ui

from counterpath.explainer.explainer import Explainer
from counterpath.explanation import Explanation
from counterpath.explanation.wording import NOTICE
from counterpath.explorer import elements, theme
from counterpath.explorer.group_view import GroupView
from counterpath.explorer.row_view import RowView
from counterpath.explorer.state import LoadedModel, RowTable
from counterpath.service import api, server
from counterpath.service.dispatcher import Dispatcher
from counterpath.service.problems import handle_failures
from counterpath.service.settings import Settings
from counterpath.utils.errors import CounterpathError
from counterpath.utils.progress import listen, track

Load: TypeAlias = Callable[[], tuple[Explainer, Any]]
"""Gives the fitted explainer and the table of rows to choose from; None for its own training rows."""
TITLE = "Counterpath"
_ONE, _MANY = "One person", "Many people"
_POLL_SECONDS = 0.25
"""Between two looks at a model that is being loaded: often enough to see it move."""
_RECONNECT_SECONDS = 60.0
"""How long a tab is kept whose connection is lost: a laptop that is closed for a moment loses nothing."""
_LONGEST_NAME = 60
"""Characters of a model's name in an address: titles may be long, and addresses are read."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """What is being done, and how far it is.

    Attributes:
        description: What is being done.
        done: How much of it.
        total: Out of how much; 0 if that is not known.
        note: What else is to be said.
    """

    description: str
    done: int = 0
    total: int = 0
    note: str = ""

    @property
    def share(self) -> float | None:
        """How much of it is done, if that is known."""
        return min(self.done / self.total, 1.0) if self.total else None


class ModelLoader:
    """Loads a model, and knows how far that is.

    Args:
        title: What the model is called; its name has only what an address may have.
        load: Fits or reads it.
        dispatcher: Gets the model once it is there.

    Attributes:
        stage: What is being done now.
        past: What was done before, in order.
        model: The model, once it is there.
        error: Why it will never be there, or nothing.
    """

    def __init__(self, title: str, load: Load, dispatcher: Dispatcher) -> None:
        self.title = title
        self.stage = Stage("Starting")
        self.past: list[str] = []
        self.model: LoadedModel | None = None
        self.error = ""
        self._load, self._dispatcher = load, dispatcher
        self._thread = threading.Thread(target=self._run, name="loading", daemon=True)

    def start(self) -> None:
        """Begin, and return at once."""
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether the model is still being loaded."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            with listen(self._set_stage):
                self._load_model()
        except (CounterpathError, OSError) as error:
            self.error = str(error)
            _log.error("the model cannot be opened: %s", error)
        except Exception as error:
            self.error = f"something unexpected happened ({type(error).__name__}); the terminal has the details"
            _log.exception("the model cannot be opened")

    def _load_model(self) -> None:
        self._set_stage("Opening the model")
        explainer, table = self._load()
        self._set_stage("Asking the model about everybody")
        own = explainer.encoder_.decode(explainer.models_.rows) if table is None else table
        rows = RowTable.from_table(explainer, own, training=table is None)
        known = rows.frame[[predicted is not None for predicted in rows.predicted]].head(1)
        # Of a regressor the highest number that is predicted, so that there is something to search.
        highest = max((each for each in rows.predicted if each is not None), default=0)
        asked: dict[str, Any] = {"target_range": (highest, None)} if explainer.models_.explained.numbers else {}
        with track("Warming up", total=2, shown=False) as advance:
            for plans in (1, 2):  # what is made only once is there then: graph, map, compiled code
                explainer.explain(known, plans=plans, **asked)
                advance()
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", self.title).strip("-._")[:_LONGEST_NAME] or "model"
        self._dispatcher.models[name] = explainer
        model = LoadedModel(name, explainer, rows, self._dispatcher)
        _ = model.distributions  # once, and before anybody waits for it
        self.model = model

    def _set_stage(self, description: str, done: int = 0, total: int = 0, note: str = "") -> None:
        if description != self.stage.description:
            self.past.append(self.stage.description)
        self.stage = Stage(description, done, total, note)


def _notice() -> None:
    elements.text("p", NOTICE, "cp-notice", role="note")


def _tabs(model: LoadedModel, title: str) -> None:
    """One person, and many people."""

    def open_row(row: pd.DataFrame, result: Explanation) -> None:
        row_view.open(row, result)
        tabs.set_value(_ONE)

    with ui.tabs().classes("cp-tabs").props("no-caps align=left") as tabs:
        ui.tab(_ONE)
        ui.tab(_MANY)
    _notice()
    # A figure that is kept while it is out of sight cannot be resized there, and complains.
    with ui.tab_panels(tabs, value=_ONE, animated=False, keep_alive=False).classes("cp-panels"):
        with ui.tab_panel(_ONE):
            row_view = RowView(model, title)
        with ui.tab_panel(_MANY), ui.element("div").classes("cp-wide"):
            GroupView(model, open_row)


def _show_loading(loader: ModelLoader, outer: ui.element) -> None:
    """What is shown until the model is there."""
    _notice()
    with ui.element("div").classes("cp-section cp-opening"):
        title = elements.text("h2", "Loading model", "cp-title")
        elements.text("p", "A model is fitted once and kept: after that a start takes seconds.", "cp-lead")
        stage_text = elements.text("p", "", "cp-odds", role="status")
        bar = ui.linear_progress(show_value=False, size="12px").props("rounded")
        elements.describe(bar, aria_label="Progress")
        past = elements.text("p", "", "cp-soft")
        error = elements.error_label()

    def update() -> None:
        if loader.model is not None:
            timer.cancel()
            outer.clear()
            with outer:
                _tabs(loader.model, loader.title)
            return
        stage = loader.stage
        progress = f" ({stage.done} of {stage.total})" if stage.total else " …"
        stage_text.set_text(f"{stage.description}{progress} {stage.note}".strip())
        bar.props.set_bool("indeterminate", stage.share is None and not loader.error)
        bar.set_value(stage.share or 0.0)
        past.set_text(f"Done: {', '.join(loader.past[1:])}." if loader.past[1:] else "")
        if loader.error:
            timer.cancel()
            title.set_text("No model")
            error.set_text(f"The model cannot be opened: {loader.error}")

    timer = ui.timer(_POLL_SECONDS, update)
    update()


def serve(title: str, load: Load, settings: Settings, announce: Callable[[str], Any]) -> tuple[int | None, bool]:
    """Serve the explorer at once, at `/` after the routes of the service, and load its model meanwhile.

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

    @ui.page("/", title=TITLE)
    def explorer() -> None:
        theme.apply()
        with ui.element("header").classes("cp-header"):
            elements.text("h1", "Counterpath")
            elements.text("span", f"Model: {loader.title}", "cp-model")
            theme.dark_switch()
        outer = ui.element("div")
        with outer:
            if loader.model is not None:
                _tabs(loader.model, loader.title)
            else:
                _show_loading(loader, outer)

    ui.run_with(
        app,
        title=TITLE,
        favicon=theme.ICON,
        language="en-US",
        tailwind=False,
        reconnect_timeout=_RECONNECT_SECONDS,
        show_welcome_message=False,
    )

    handle_failures(pages)

    async def publish() -> None:
        """Load the model, and offer it over HTTP: here, because only the event loop may change the routes.

        Not earlier: NiceGUI looks at all objects of the process when it starts, and CPython gives out a tuple that
        another thread is still filling, which then fails there (bpo-15108).
        """
        loader.start()
        while loader.running:
            await asyncio.sleep(_POLL_SECONDS)
        if loader.model is not None:
            api.publish(app, loader.model.name)

    pages.on_startup(publish)
    with warnings.catch_warnings():
        # NiceGUI looks through all objects of the process for its server, and torch has some that do not like it.
        warnings.filterwarnings("ignore", message=".*torch.distributed.reduce_op", category=FutureWarning)
        stopped_by = server.run(app, dispatcher, settings, announce)
    return stopped_by, dispatcher.busy or loader.running
