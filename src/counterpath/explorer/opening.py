"""A model that is being opened: on a thread of its own, while the page says how far it is."""

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from counterpath.explainer.explainer import Explainer
from counterpath.explorer.state import People
from counterpath.service.dispatcher import Dispatcher
from counterpath.utils.errors import CounterpathError
from counterpath.utils.progress import listen, track

Load: TypeAlias = Callable[[], tuple[Explainer, Any]]
"""Gives the fitted explainer and the table of people to pick from; None for its own training rows."""

_LONGEST = 60
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """What is being done, and how far it is.

    Attributes:
        description: What is being done.
        done: How much of it.
        total: Out of how much; 0 if nobody knows.
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
class Opened:
    """What the page is about.

    Attributes:
        name: The name of the model at the dispatcher.
        explainer: The model.
        people: Whom to pick from.
    """

    name: str
    explainer: Explainer
    people: People


class Opening:
    """Opens a model, and knows how far that is.

    Args:
        title: What the model is called; at the dispatcher its name has only what an address may have.
        load: Makes or reads it.
        dispatcher: Where questions to it will be answered.

    Attributes:
        stage: What is being done now.
        past: What was done before, in order.
        opened: The model, once it is there.
        problem: Why it will never be there, or nothing.
    """

    def __init__(self, title: str, load: Load, dispatcher: Dispatcher) -> None:
        self.title = title
        self.stage = Stage("Starting")
        self.past: list[str] = []
        self.opened: Opened | None = None
        self.problem = ""
        self._load, self._dispatcher = load, dispatcher
        self._thread = threading.Thread(target=self._run, name="opening", daemon=True)

    def start(self) -> None:
        """Begin, and return at once."""
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether the model is still on its way."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            with listen(self._heard):
                self._open()
        except (CounterpathError, OSError) as error:
            self.problem = str(error)
            _log.error("the model cannot be opened: %s", error)
        except Exception as error:
            self.problem = f"something unexpected happened ({type(error).__name__}); the terminal has the details"
            _log.exception("the model cannot be opened")

    def _open(self) -> None:
        self._heard("Opening the model", 0, 0, "")
        explainer, table = self._load()
        self._heard("Asking the model about everybody", 0, 0, "")
        own = table is None
        people = People.of(explainer, explainer.encoder_.decode(explainer.models_.rows) if own else table)
        with track("Warming up", total=2, shown=False) as advance:
            warm_up(explainer, people, advance)
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", self.title).strip("-._")[:_LONGEST] or "model"
        self._dispatcher.models[name] = explainer
        self.opened = Opened(name, explainer, people)

    def _heard(self, description: str, done: int, total: int, note: str) -> None:
        if description != self.stage.description:
            self.past.append(self.stage.description)
        self.stage = Stage(description, done, total, note)


def warm_up(explainer: Explainer, people: People, advance: Callable[[], None]) -> None:
    """Ask once what will be asked first, so that what is made only once is there: the graph, the map, compiled code."""
    known = [place for place, decision in enumerate(people.decided) if decision is not None][:1]
    for plans in (1, 2):
        for place in known:
            explainer.explain(people.frame.iloc[[place]], plans=plans)
        advance()
