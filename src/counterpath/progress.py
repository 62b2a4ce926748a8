"""One progress bar for everything that takes long."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@runtime_checkable
class Advance(Protocol):
    """Moves a progress bar on; `note` replaces the text at its end."""

    def __call__(self, amount: int = 1, note: str = "") -> None:
        """Advance by `amount`."""
        ...


@contextmanager
def track(description: str, total: int, *, shown: bool | None = None) -> Iterator[Advance]:
    """Show a bar on standard error while the block runs.

    Args:
        description: What is being done.
        total: How many advances make it complete.
        shown: True or False to force it; by default a bar is shown where standard error is a terminal.
    """
    if not (sys.stderr.isatty() if shown is None else shown):
        yield lambda amount=1, note="": None
        return
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[note]}", style="dim"),
    )
    # The stream of now: what runs inside may redirect standard error, and the bar is not meant by that.
    with Progress(*columns, console=Console(file=sys.stderr)) as bar:
        task = bar.add_task(description, total=total, note="")
        yield lambda amount=1, note="": bar.update(task, advance=amount, note=note)
