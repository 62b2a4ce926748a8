"""One self-contained HTML page: text, numbers, tables and figures, no network, no script, prints well.

Every part of a page is a `Markup`, made by a function that escapes what it is given. How it looks is in `report.css`.
"""

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

import pandas as pd

from counterpath.utils.files import write_text


class Markup(str):
    """HTML in which everything that came from outside is escaped."""

    __slots__ = ()


_NUMBER = re.compile(r"[<>+−-]?[\d.,]+(e[+-]?\d+)?( ?%)?|–|(under|over) \d+ %|")


def write_report(
    path: Path, title: str, tables: Mapping[str, pd.DataFrame], figures: Iterable[Path], lead: str = ""
) -> Path:
    """Write a page with figures (SVG files, put into the page) and tables; all text is escaped."""
    drawings = [drawing(figure.read_text(encoding="utf-8"), label=figure.stem) for figure in figures]
    return write_page(path, title, [*drawings, *(section(name, table(frame)) for name, frame in tables.items())], lead)


def write_page(path: Path, title: str, parts: Iterable[Markup], lead: str = "") -> Path:
    """Write a page with a title and, below it, the parts.

    It forbids the browser everything but its own style: no script, no font, no request. Images are allowed only where
    a drawing holds one, as data.
    """
    body = "".join(parts)
    head = f"<h1>{html.escape(title)}</h1>" + (text(lead, "lead") if lead else "")
    images = "; img-src data:" if "data:image/" in body else ""
    policy = f"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'{images}"
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_style()}</style></head><body>{head}{body}</body></html>"
    )
    return write_text(path, page)


def section(heading: str, *parts: Markup, anchor: str = "", look: str = "") -> Markup:
    """Parts under a heading, which links lead to if it has an anchor."""
    return Markup(f"<section{_class(look)}>{_heading(2, heading, anchor)}{''.join(parts)}</section>")


def heading(words: str, level: int = 3) -> Markup:
    """A heading within a section."""
    return _heading(level, words, "")


def text(words: str, look: str = "") -> Markup:
    """A paragraph; `look` is "", "lead", "notice" or "soft"."""
    return Markup(f"<p{_class(look)}>{html.escape(words)}</p>")


def entry(name: str, words: str) -> Markup:
    """A paragraph that begins with a name, as one of a list does."""
    return Markup(f"<p><b>{html.escape(name)}:</b> {html.escape(words)}</p>")


def box(look: str, *parts: Markup) -> Markup:
    """Parts in a box of their own; a `look` like "alarm" is one of the page's style."""
    return Markup(f"<div{_class(look)}>{''.join(parts)}</div>")


def link(words: str, anchor: str) -> Markup:
    """A link within the page."""
    return Markup(f'<a href="#{html.escape(anchor)}">{html.escape(words)}</a>')


def contents(links: Mapping[str, str]) -> Markup:
    """The table of contents: anchors by their headings."""
    items = "".join(f"<li>{link(words, anchor)}</li>" for words, anchor in links.items())
    return Markup(f'<nav class="contents" id="contents" aria-label="Contents"><h2>Contents</h2><ol>{items}</ol></nav>')


def steps(heading: str, each: Sequence[tuple[str, str]]) -> Markup:
    """A numbered list under a small heading, each step with a note at its end."""
    items = (f"<li>{html.escape(words)} <span>{html.escape(note)}</span></li>" for words, note in each)
    return Markup(f'<div class="steps"><h4>{html.escape(heading)}</h4><ol>{"".join(items)}</ol></div>')


def terms(meanings: Mapping[str, str]) -> Markup:
    """What words mean, as a compact list."""
    items = (f"<div><dt>{html.escape(n)}</dt><dd>{html.escape(text)}</dd></div>" for n, text in meanings.items())
    return Markup(f'<dl class="terms">{"".join(items)}</dl>')


def verbatim(words: str) -> Markup:
    """Text with its line breaks."""
    return Markup(f"<pre>{html.escape(words)}</pre>")


def numbers(values: Mapping[str, str]) -> Markup:
    """Key numbers, each above its name."""
    boxes = (
        f"<div><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>" for name, value in values.items()
    )
    return Markup(f'<div class="numbers">{"".join(boxes)}</div>')


def drawing(svg: str, caption: str = "", label: str = "") -> Markup:
    """A figure, of an SVG text that we drew ourselves: it is not escaped. The label is for those who cannot see it."""
    below = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    named = f'<svg role="img" aria-label="{html.escape(label)}"' if label else "<svg"
    return Markup(f"<figure>{named}{svg[svg.index('<svg') + len('<svg') :]}{below}</figure>")


def table(frame: pd.DataFrame, caption: str = "", look: str = "", own: str = "") -> Markup:
    """A table without its index, in a box that scrolls if it is too wide.

    Args:
        frame: The table; its first column names the rows.
        caption: What stands above it.
        look: A class of the page's style.
        own: The name of a row that is to stand out.
    """
    rows = [[str(value) for value in row] for row in frame.itertuples(index=False)]
    return listing([str(name) for name in frame.columns], rows, caption, look, own)


def listing(
    names: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "", look: str = "", own: str = ""
) -> Markup:
    """The same from the names of the columns, and rows whose cells are text, or markup that stands as it is."""
    body = [list(row) for row in rows]
    looks = ["" if all(_is_number(row[place]) for row in body) else "t" for place in range(len(names))]
    head = "".join(
        f'<th scope="col"{_class(each)}>{html.escape(name)}</th>' for name, each in zip(names, looks, strict=True)
    )
    lines = "".join(f"<tr{_class('own' if own and row[0] == own else '')}>{_cells(row, looks)}</tr>" for row in body)
    above = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    whole = f"<table{_class(look)}>{above}<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
    return Markup(f'<div class="scroll">{whole}</div>')


def gallery(drawings: Sequence[Markup]) -> Markup:
    """Figures side by side, as many as fit."""
    return Markup(f'<div class="gallery">{"".join(drawings)}</div>')


def escape(given: object) -> Markup:
    """A value as text of a page, if it is not part of a page already."""
    return given if isinstance(given, Markup) else Markup(html.escape(str(given)))


def _cells(row: Sequence[str], looks: Sequence[str]) -> str:
    """The first cell names the row; numbers stand at the right, words at the left."""
    cells = zip(row[1:], looks[1:], strict=True)
    return f'<th scope="row">{escape(row[0])}</th>' + "".join(f"<td{_class(k)}>{escape(v)}</td>" for v, k in cells)


def _is_number(cell: str) -> bool:
    return not isinstance(cell, Markup) and _NUMBER.fullmatch(cell) is not None


def _heading(level: int, words: str, anchor: str) -> Markup:
    named = f' id="{html.escape(anchor)}"' if anchor else ""
    return Markup(f"<h{level}{named}>{html.escape(words)}</h{level}>")


def _class(look: str) -> str:
    return f' class="{html.escape(look)}"' if look else ""


@cache
def _style() -> str:
    given = files("counterpath.explanation.report").joinpath("report.css").read_text(encoding="utf-8")
    return re.sub(r"\s*\n\s*", "\n", re.sub(r"/\*.*?\*/", "", given, flags=re.DOTALL)).strip()
