"""Self-contained HTML: one file for the screen and for paper, no network, no script.

Every page is a template in `templates/`, which Jinja2 fills in and in which all text is escaped; what stands as it is
was drawn by us, and is a `Markup`. How a page looks is in `report.css`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from counterpath.explanation import wording
from counterpath.explanation.report import charts
from counterpath.explanation.wording import Person
from counterpath.utils.files import write_text

_NUMBER = re.compile(r"[<>+−-]?[\d.,]+(e[+-]?\d+)?( ?%)?|–|(under|over) \d+ %|")


@dataclass(frozen=True)
class Table:
    """A table of a page.

    Attributes:
        columns: The names of the columns.
        rows: For each row its cells, of which the first one names it: text, or markup that stands as it is.
        caption: What stands above it.
        css: A class of the page's style.
        own: The name of a row that is to stand out.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    css: str = ""
    own: str = ""

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, **other: str) -> "Table":
        """The table of a frame without its index."""
        rows = [[str(value) for value in row] for row in frame.itertuples(index=False)]
        return cls([str(name) for name in frame.columns], rows, **other)

    @property
    def alignment(self) -> list[str | None]:
        """For each column its CSS class: numbers stand at the right, words at the left."""
        columns = range(len(self.columns))
        cells = ([row[column] for row in self.rows] for column in columns)
        is_number = (all(not isinstance(cell, Markup) and _NUMBER.fullmatch(cell) for cell in each) for each in cells)
        return [None if numbers else "t" for numbers in is_number]


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader(__name__),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    forms = (wording.value, wording.probability, wording.outcome, wording.which, charts.coordinate)
    made.filters |= {form.__name__: form for form in forms}
    return made


@cache
def _style() -> Markup:
    """The style of every page, without comments and indentation."""
    given = files(__name__).joinpath("report.css").read_text(encoding="utf-8")
    return Markup(re.sub(r"\s*\n\s*", "\n", re.sub(r"/\*.*?\*/", "", given, flags=re.DOTALL)).strip())


def render(template: str, **values: Any) -> str:
    """The HTML of a template that is filled in."""
    return _environment().get_template(template).render(style=_style(), **values)


def render_notebook(headline: str, people: Sequence[Person], total: int) -> str:
    """The HTML of a table of some of all people for a notebook, with a style of its own that touches nothing else."""
    shown = []
    for person in people:
        rows = [(str(row.plan) if row.is_plan else "–", row) for row in person.shown]
        if person.missing:  # in one row, which plans are missing
            rows.append((wording.listed([str(row.plan) for row in person.missing]), person.missing[0]))
        shown.append((person.first.label, rows if person.several else [("", person.first)]))
    several, more = any(person.several for person in people), total - len(people)
    return render("notebook.html.j2", headline=headline, people=shown, several=several, more=more)


def write_report(
    path: Path, title: str, tables: Mapping[str, pd.DataFrame], figures: Iterable[Path], lead: str = ""
) -> Path:
    """Write a page with figures (SVG files that we drew ourselves, put into the page) and tables by their headings."""
    # What follows the name of the outermost tag, in which the page writes a label for those who cannot see it.
    drawings = [(path.stem, Markup(path.read_text(encoding="utf-8").partition("<svg")[2])) for path in figures]
    shown = {name: Table.from_frame(frame) for name, frame in tables.items()}
    images = any("data:image/" in svg for _, svg in drawings)
    page = render("page.html.j2", title=title, lead=lead, has_images=images, drawings=drawings, tables=shown)
    return write_text(path, page)
