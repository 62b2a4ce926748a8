"""What commands print, and the report that some of them write."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpath.cli import options
from counterpath.utils.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from counterpath.explainer.explainer import Explainer
    from counterpath.explanation import Explanation

_WIDTH = 120
"""Of a table where there is no terminal: the widest table that a command prints, `evaluate`'s, has 104 columns."""
SUFFIX = ".html"


def show(text: str, *, stderr: bool = False) -> None:
    """Print a piece of the result."""
    from rich.console import Console

    Console(stderr=stderr).print(text, highlight=False, soft_wrap=True, markup=False)


def say(message: str) -> None:
    """Print a message that is not part of the result, to standard error."""
    show(message, stderr=True)


def fail(message: str) -> int:
    """Print what was wrong in one line; returns the exit code."""
    from rich.console import Console

    Console(stderr=True).print("[bold red]error:[/] ", end="")
    say(" ".join(message.split()))
    return 2


def show_table(title: str, rows: Sequence[Mapping[Any, Any]], *, words: bool = False) -> None:
    """Print a table whose first column is a name, and the others numbers, or words."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False
    )
    for index, heading in enumerate(rows[0]):
        table.add_column(str(heading), justify="right" if index and not words else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    # A pipe or a file has no width, and a column that is cut off is worse than a line that wraps.
    console = Console()
    console.width = max(console.width, _WIDTH)
    console.print(table)
    console.print()


def format_table(table: "pd.DataFrame") -> "pd.DataFrame":
    """A table of numbers as text: the index as first column, three digits, tenths of seconds."""
    times = {name: table[name].map("{:.1f}".format) for name in ("seconds",) if name in table}
    return table.assign(**times).reset_index().map(format_value)


def format_value(value: Any) -> str:
    """A value in a table: numbers with three digits, a dash for none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class ReportOptions:
    """The options of a report."""

    by: Annotated[
        str, typer.Option(metavar="A,B", help=f"Columns by which a {SUFFIX} file shows subgroups, each in a table.")
    ] = ""
    pages: Annotated[
        int | None,
        typer.Option(
            help=f"How many people have a page of their own in a {SUFFIX} file; the others are listed.",
            show_default="200",
        ),
    ] = None

    def is_written(self, out: Path | None) -> bool:
        """Whether the file to write is a report.

        Raises:
            InputError: It is none, and options of a report are given; or the number of pages is negative.
        """
        is_report = out is not None and out.suffix.lower() == SUFFIX
        for option, given in (("--by", self.by), ("--pages", self.pages)):
            if given not in ("", None) and not is_report:
                raise InputError(f"{option} is about a report, and there is none: try --out report{SUFFIX} with it")
        if self.pages is not None and self.pages < 0:
            raise InputError(f"--pages must be a whole number from 0; given {self.pages}")
        return is_report

    def write(
        self, result: "Explanation", path: Path, baselines: "Mapping[str, Explanation]", model: Path, rows: str
    ) -> None:
        """Write the report of rows that a model explained; it names both, without where they are on this machine."""
        from counterpath.explanation.result import MOST_PAGES

        about = {"model directory": model.resolve().name, "rows": "standard input" if rows == "-" else Path(rows).name}
        pages = MOST_PAGES if self.pages is None else self.pages
        result.to_html(path, baselines=baselines, by=options.names(self.by), pages=pages, about=about)
        say(f"wrote {path}")


def baseline(explainer: "Explainer", result: "Explanation", table: Any) -> "dict[str, Explanation]":
    """The nearest training rows of the target class, for the same request: what a method has to beat.

    There is none beside itself, nor where a counterfactual must not be a training row.
    """
    from counterpath.search.methods import NEAREST

    if result.request["method"] == NEAREST or not explainer.allow_copies:
        return {}
    request = {name: value for name, value in result.request.items() if name != "plan"}
    return {NEAREST: explainer.repeat(request | {"method": NEAREST, "plans": 1, "paths": "end"}, table)}
