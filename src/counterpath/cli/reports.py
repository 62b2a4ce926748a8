"""Reports, as options of a command: an .html file, always beside the baseline."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from counterpath.answering import NEAREST
from counterpath.cli import options
from counterpath.errors import InputError
from counterpath.explainer import Explainer
from counterpath.explanation import Explanation
from counterpath.explanation.keeping import END, KEEP
from counterpath.explanation.page import MOST_PAGES
from counterpath.explanation.plans import PLAN, PLANS

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
    if result.request["method"] == NEAREST or not explainer.copies:
        return {}
    again = {name: value for name, value in result.request.items() if name != PLAN}
    return {NEAREST: explainer.repeat(again | {"method": NEAREST, PLANS: 1, KEEP: END}, table)}


def about(model: Path, rows: str) -> dict[str, str]:
    """Which model and which rows: by their names, for a path says more about the machine than about them."""
    return {"model directory": model.resolve().name, "rows": "standard input" if rows == "-" else Path(rows).name}
