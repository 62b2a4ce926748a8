"""What the command line writes: tables on standard output, messages on standard error."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

_WIDE = 120


def say(message: str) -> None:
    """Tell the user something that is not the result."""
    Console(stderr=True).print(message, highlight=False, soft_wrap=True, markup=False)


def fail(message: str) -> int:
    """Tell the user in one line what was wrong; returns the exit code."""
    console = Console(stderr=True)
    console.print("[bold red]error:[/] ", end="")
    console.print(" ".join(message.split()), highlight=False, soft_wrap=True, markup=False)
    return 2


def show(text: str) -> None:
    """Print a piece of the result."""
    Console().print(text, highlight=False, soft_wrap=True, markup=False)


def show_table(title: str, rows: Sequence[Mapping[Any, Any]]) -> None:
    """Print a table whose first column is a name."""
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False
    )
    for index, heading in enumerate(rows[0]):
        table.add_column(str(heading), justify="right" if index else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    # A pipe or a file has no width, and a column that is cut off is worse than a line that wraps.
    console = Console()
    console.width = max(console.width, _WIDE)
    console.print(table)
    console.print()


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """A table of numbers by name as people read it: names in the first column, three digits, tenths of seconds."""
    times = {name: table[name].map("{:.1f}".format) for name in ("seconds",) if name in table}
    return table.assign(**times).reset_index().map(short)


def short(value: Any) -> str:
    """A value in a table: numbers with three digits, a dash for none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def show_files(folder: Path) -> None:
    """Say which files a command wrote."""
    for path in sorted([*folder.glob("*.*"), *(folder / "figures").glob("*.png")]):
        show(f"wrote {path}")
