"""Reports, as options of a command: an .html file, always beside the baseline."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from counterpath.cli import options
from counterpath.explainer.explainer import Explainer
from counterpath.explanation import Explanation
from counterpath.explanation.milestones import END, KEEP
from counterpath.explanation.result import MOST_PAGES
from counterpath.explanation.tables import PLAN, PLANS
from counterpath.search.methods import NEAREST
from counterpath.utils.errors import InputError

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


SUFFIX = ".html"
By = Annotated[
    str, typer.Option(metavar="A,B", help=f"Columns by which a {SUFFIX} file shows subgroups, each in a table.")
]
Pages = Annotated[
    int | None,
    typer.Option(
        help=f"How many people have a page of their own in a {SUFFIX} file; the others are listed.",
        show_default=str(MOST_PAGES),
    ),
]


@dataclass(frozen=True)
class Wish:
    """What a report is to have."""

    is_report: bool
    by: tuple[str, ...] = ()
    pages: int = MOST_PAGES

    @classmethod
    def of(cls, out: Path | None, by: str, pages: int | None) -> "Wish":
        """What the options say, or an error if they say something about a report and none is written."""
        is_report = out is not None and out.suffix.lower() == SUFFIX
        for option, given in (("--by", by), ("--pages", pages)):
            if given not in ("", None) and not is_report:
                raise InputError(f"{option} is about a report, and there is none: try --out report{SUFFIX} with it")
        if pages is not None and pages < 0:
            raise InputError(f"--pages must be a whole number from 0; given {pages}")
        return cls(is_report, tuple(options.names(by)), MOST_PAGES if pages is None else pages)

    def write(
        self, result: Explanation, path: Path, baselines: Mapping[str, Explanation], about: Mapping[str, str]
    ) -> Path:
        """Write the report."""
        return result.to_html(path, baselines=baselines, by=list(self.by), pages=self.pages, about=about)


def baseline(explainer: Explainer, result: Explanation, table: Any) -> dict[str, Explanation]:
    """The nearest training rows with the wanted decision, in answer to the same request: what there is to beat.

    There is none beside itself, nor where a counterfactual must not be a training row.
    """
    if result.request["method"] == NEAREST or not explainer.allow_copies:
        return {}
    again = {name: value for name, value in result.request.items() if name != PLAN}
    return {NEAREST: explainer.repeat(again | {"method": NEAREST, PLANS: 1, KEEP: END}, table)}


def about(model: Path, rows: str) -> dict[str, str]:
    """Which model and which rows: by their names, for a path says more about the machine than about them."""
    return {"model directory": model.resolve().name, "rows": "standard input" if rows == "-" else Path(rows).name}
