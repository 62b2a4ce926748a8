"""One self-contained HTML page: text, numbers, tables, figures and cards, no network, prints well.

Every part of a page is a `Markup`, made by a function that escapes what it is given.
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NewType

import pandas as pd

from counterpath.files import write_text

Markup = NewType("Markup", str)
"""HTML in which everything that came from outside is escaped."""

_STYLE = """
:root { color-scheme: light; --ink: #1b1f24; --soft: #5b6470; --line: #d9dee4; --accent: #0072b2; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); max-width: 1440px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .3rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p { max-width: 75ch; overflow-wrap: anywhere; } p.lead, figcaption { color: var(--soft); }
p.notice { border-left: 4px solid #e69f00; background: #fdf6e7; padding: .6rem .9rem; }
figure { margin: 1.5rem 0; overflow-x: auto; } figure svg { max-width: 100%; height: auto; }
figcaption { font-size: 13px; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f4f7fa; padding: .8rem; font-size: 12.5px; }
.scroll { overflow-x: auto; }
.numbers { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.2rem 0; }
.numbers div { border: 1px solid var(--line); border-radius: 8px; padding: .5rem .9rem; min-width: 7.5rem; }
.numbers b { display: block; font-size: 1.5rem; line-height: 1.3; }
.numbers span { color: var(--soft); font-size: 13px; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(26rem, 100%), 1fr)); gap: 1rem; }
.card { border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem; min-width: 0; }
.card h3 { margin: 0; font-size: 1rem; overflow-wrap: anywhere; } .card p { margin: .4rem 0; }
.card table { width: 100%; } .card th, .card td { white-space: normal; overflow-wrap: anywhere; }
.steps { margin: .7rem 0; }
.steps h4 { margin: 0 0 .35rem; font-size: 12.5px; font-weight: 600; color: var(--soft); }
.steps ol { list-style: none; counter-reset: step; margin: 0; padding: 0; font-size: 13.5px; line-height: 1.4; }
.steps li { counter-increment: step; position: relative; padding: 0 0 .55rem 1.9rem; overflow-wrap: anywhere; }
.steps li::before { content: counter(step); position: absolute; left: 0; top: 0; width: 1.25rem; height: 1.25rem;
  border-radius: 50%; background: var(--accent); color: white; font: 600 11px/1.25rem system-ui, sans-serif;
  text-align: center; z-index: 1; print-color-adjust: exact; }
.steps li:not(:last-child)::after { content: ""; position: absolute; left: .6rem; top: 1rem; bottom: -.25rem;
  border-left: 1.5px solid #b9d4e6; }
.steps li:last-child { padding-bottom: 0; } .steps span { color: var(--soft); white-space: nowrap; }
p.soft { color: var(--soft); font-size: 13px; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(34rem, 100%), 1fr)); gap: 0 2rem; }
.gallery figure { margin: .5rem 0; min-width: 0; }
table { border-collapse: collapse; font-size: 12.5px; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .55rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { color: var(--soft); font-weight: 600; position: sticky; top: 0; background: white; }
tr:hover td { background: #f4f7fa; }
.card th:first-child, .card td:first-child { text-align: left; }
@media screen and (max-width: 600px) { figure svg { max-width: none; width: 38rem; } }
@media print { body { max-width: none; margin: 0; } h2 { break-after: avoid; } .scroll { overflow: visible; }
  tr, figure, .card, .numbers div { break-inside: avoid; } .cards { grid-template-columns: 1fr 1fr; } }
"""


def write_report(
    path: Path, title: str, tables: Mapping[str, pd.DataFrame], figures: Iterable[Path], lead: str = ""
) -> Path:
    """Write a page with figures (SVG files, put into the page) and tables; all text is escaped."""
    drawings = [drawing(figure.read_text(encoding="utf-8")) for figure in figures]
    return write_page(path, title, [*drawings, *(section(name, table(frame)) for name, frame in tables.items())], lead)


def write_page(path: Path, title: str, parts: Iterable[Markup], lead: str = "") -> Path:
    """Write a page with a title and, below it, the parts."""
    head = f"<h1>{html.escape(title)}</h1>" + (text(lead, "lead") if lead else "")
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>{head}{''.join(parts)}</body></html>"
    )
    return write_text(path, page)


def section(heading: str, *parts: Markup) -> Markup:
    """Parts under a heading."""
    return Markup(f"<h2>{html.escape(heading)}</h2>{''.join(parts)}")


def text(words: str, look: str = "") -> Markup:
    """A paragraph; `look` is "", "lead", "notice" or "soft"."""
    return Markup(f'<p class="{html.escape(look)}">{html.escape(words)}</p>')


def entry(name: str, words: str) -> Markup:
    """A paragraph that begins with a name, as one of a list does."""
    return Markup(f"<p><b>{html.escape(name)}:</b> {html.escape(words)}</p>")


def steps(heading: str, each: Sequence[tuple[str, str]]) -> Markup:
    """A numbered list under a small heading, each step with a note at its end."""
    items = (f"<li>{html.escape(words)} <span>{html.escape(note)}</span></li>" for words, note in each)
    return Markup(f'<div class="steps"><h4>{html.escape(heading)}</h4><ol>{"".join(items)}</ol></div>')


def verbatim(words: str) -> Markup:
    """Text with its line breaks."""
    return Markup(f"<pre>{html.escape(words)}</pre>")


def numbers(values: Mapping[str, str]) -> Markup:
    """Key numbers, each above its name."""
    boxes = (
        f"<div><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>" for name, value in values.items()
    )
    return Markup(f'<div class="numbers">{"".join(boxes)}</div>')


def drawing(svg: str, caption: str = "") -> Markup:
    """A figure, of an SVG text that we drew ourselves: it is not escaped."""
    below = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return Markup(f"<figure>{svg[svg.index('<svg') :]}{below}</figure>")


def table(frame: pd.DataFrame) -> Markup:
    """A table without its index, in a box that scrolls if it is too wide."""
    return Markup(f'<div class="scroll">{_table(frame)}</div>')


def cards(each: Sequence[Markup]) -> Markup:
    """Cards side by side, as many as fit."""
    return Markup(f'<div class="cards">{"".join(each)}</div>')


def gallery(drawings: Sequence[Markup]) -> Markup:
    """Figures side by side, as many as fit."""
    return Markup(f'<div class="gallery">{"".join(drawings)}</div>')


def card(heading: str, *parts: Markup) -> Markup:
    """A box with a heading, for one of many things."""
    return Markup(f'<article class="card"><h3>{html.escape(heading)}</h3>{"".join(parts)}</article>')


def _table(table: pd.DataFrame) -> str:
    head = "".join(f"<th>{html.escape(str(column))}</th>" for column in table.columns)
    rows = (
        "<tr>" + "".join(f"<td>{html.escape(str(value))}</td>" for value in row) + "</tr>"
        for row in table.itertuples(index=False)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
