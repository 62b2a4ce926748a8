"""A model that is being loaded: on a thread of its own, while the page says how far it is."""

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pandas as pd

from counterpath.explainer.explainer import Explainer
from counterpath.explainer.request import Request
from counterpath.explanation import Explanation
from counterpath.explorer.figures_map import VolumeGrid, volume_grid
from counterpath.explorer.state import RowTable
from counterpath.service.dispatcher import Dispatcher
from counterpath.utils.errors import CounterpathError
from counterpath.utils.progress import listen, track

Load: TypeAlias = Callable[[], tuple[Explainer, Any]]
"""Gives the fitted explainer and the table of rows to choose from; None for its own training rows."""

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


@dataclass(frozen=True)
class LoadedModel:
    """What the page is about, and where it is explained.

    Attributes:
        name: The name of the model in addresses and at the dispatcher.
        explainer: The model.
        rows: The rows to choose from.
        dispatcher: Runs it without holding up the event loop.
    """

    name: str
    explainer: Explainer
    rows: RowTable
    dispatcher: Dispatcher

    async def explain(self, rows: pd.DataFrame, request: Request) -> Explanation:
        """The explanation of rows, with their measures."""
        return await self.dispatcher.explain(self.name, rows, request)

    async def predict_proba(self, row: pd.DataFrame) -> dict[Any, float]:
        """The probability of each class for one row."""
        return (await self.dispatcher.predict(self.name, row)).iloc[0].to_dict()

    async def volume_grid(self, row: pd.DataFrame) -> VolumeGrid | None:
        """The background of the latent map for one row."""
        # A function of its own for each call: the dispatcher runs calls of the same function as one.
        return await self.dispatcher.run(self.name, row, lambda explainer, row: volume_grid(explainer, row))


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
        rows = RowTable.from_table(explainer, own)
        known = rows.frame[[predicted is not None for predicted in rows.predicted]].head(1)
        with track("Warming up", total=2, shown=False) as advance:
            for plans in (1, 2):  # what is made only once is there then: graph, map, compiled code
                explainer.explain(known, plans=plans)
                advance()
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", self.title).strip("-._")[:_LONGEST_NAME] or "model"
        self._dispatcher.models[name] = explainer
        self.model = LoadedModel(name, explainer, rows, self._dispatcher)

    def _set_stage(self, description: str, done: int = 0, total: int = 0, note: str = "") -> None:
        if description != self.stage.description:
            self.past.append(self.stage.description)
        self.stage = Stage(description, done, total, note)
