"""One progress bar for everything that takes long, and when a search is to stop early."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable


@runtime_checkable
class Advance(Protocol):
    """Moves a progress bar on; `note` replaces the text at its end."""

    def __call__(self, amount: int = 1, note: str = "") -> None:
        """Advance by `amount`."""
        ...


Listener: TypeAlias = Callable[[str, int, int, str], None]
"""Called with the description, how much is done, the total, and the note at the end of the bar."""

# Per thread: a listener gets the progress of the work that was started within its block, and of no other.
_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """Call `listener` at every advance of every bar in the block, whether or not the bar is shown."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


@dataclass
class _Stages:
    """The bars of one piece of work that are still to come, with the share of its time that each takes."""

    shares: tuple[tuple[str, float], ...]
    begun: float
    entered: int = 0
    done: float = 0.0

    def enter(self, description: str) -> tuple[str, float]:
        """What a bar that begins is called, and its share; nothing before it is waited for any longer."""
        names = [name for name, _ in self.shares]
        if description not in names[self.entered :]:
            return description, 0.0
        number = names.index(description, self.entered)
        self.entered, self.done = number + 1, sum(share for _, share in self.shares[:number])
        return f"{number + 1}/{len(names)} {description}", self.shares[number][1]

    def left(self, within: float) -> str:
        """How much longer the work will take, when so much of the time of all stages has passed in the present one."""
        passed, total = self.done + within, sum(share for _, share in self.shares)
        if passed <= 0:
            return ""
        seconds = (time.monotonic() - self.begun) * (total - passed) / passed
        return f"in all {_duration(seconds)} to go"


_STAGES: ContextVar[_Stages | None] = ContextVar("stages", default=None)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


@contextmanager
def stages(shares: Iterable[tuple[str, float]]) -> Iterator[None]:
    """Number the bars in the block, and let them say how long all of it will take.

    Args:
        shares: What the bars are called, in order, and about what share of the time each takes. Others may come
            between, and some may be left out.
    """
    token = _STAGES.set(_Stages(tuple(shares), time.monotonic()))
    try:
        yield
    finally:
        _STAGES.reset(token)


@contextmanager
def track(description: str, total: int, *, shown: bool | None = None) -> Iterator[Advance]:
    """Show a bar on standard error while the block runs.

    Args:
        description: What is being done.
        total: How many advances make it complete.
        shown: True or False to force it; by default a bar is shown where standard error is a terminal.
    """
    listener, plan, done = _LISTENER.get(), _STAGES.get(), 0
    title, share = (description, 0.0) if plan is None else plan.enter(description)
    with _bar(title, total, shown=sys.stderr.isatty() if shown is None else shown) as move:
        if listener is None and plan is None:
            yield move
            return

        def advance(amount: int = 1, note: str = "") -> None:
            nonlocal done
            done += amount
            left = "" if plan is None or not share else plan.left(share * done / max(1, total))
            note = " · ".join(part for part in (note, left) if part)
            move(amount, note)
            if listener is not None:
                listener(description, done, total, note)

        if listener is not None:
            listener(description, 0, total, "")
        yield advance


@contextmanager
def _bar(description: str, total: int, *, shown: bool) -> Iterator[Advance]:
    if not shown:
        yield lambda amount=1, note="": None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[note]}", style="dim"),
    )
    # Today's stream: what runs in the block may redirect standard error, and the bar must stay where it is.
    with Progress(*columns, console=Console(file=sys.stderr)) as bar:
        task = bar.add_task(description, total=total, note="")
        yield lambda amount=1, note="": bar.update(task, advance=amount, note=note)


ShouldStop = Callable[[], bool]
"""Whether a search that is running is to stop; called between its steps."""


def never_stop() -> bool:
    """Run until everything is done."""
    return False


def stop_after(seconds: float | int | None, should_stop: ShouldStop | None = None) -> ShouldStop:
    """Stop so many seconds from now, and whenever `should_stop` is true; None is for no time limit."""
    deadline = None if seconds is None else time.monotonic() + seconds
    if deadline is None and should_stop is None:
        return never_stop
    return lambda: (deadline is not None and time.monotonic() > deadline) or (should_stop is not None and should_stop())
