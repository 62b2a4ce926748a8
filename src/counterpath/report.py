"""One self-contained HTML page: tables and figures, no network, prints well."""

import html
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from counterpath.files import write_text

_STYLE = """
:root { color-scheme: light; --ink: #1b1f24; --soft: #5b6470; --line: #d9dee4; --accent: #0072b2; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); max-width: 1440px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .3rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p.lead { color: var(--soft); max-width: 75ch; }
figure { margin: 1.5rem 0; } figure svg { max-width: 100%; height: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 12.5px; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .55rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { color: var(--soft); font-weight: 600; position: sticky; top: 0; background: white; }
tr:hover td { background: #f4f7fa; }
@media print { body { max-width: none; margin: 0; } h2 { break-after: avoid; } tr, figure { break-inside: avoid; } }
"""


def write_report(
    path: Path, title: str, tables: Mapping[str, pd.DataFrame], figures: Iterable[Path], lead: str = ""
) -> Path:
    """Write a page with figures (SVG files, put into the page) and tables; all text is escaped."""
    body = [f"<h1>{html.escape(title)}</h1>", f'<p class="lead">{html.escape(lead)}</p>' if lead else ""]
    for figure in figures:
        drawing = figure.read_text(encoding="utf-8")
        body.append(f"<figure>{drawing[drawing.index('<svg') :]}</figure>")
    for heading, table in tables.items():
        body.append(f'<h2>{html.escape(heading)}</h2><div class="scroll">{_table(table)}</div>')
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>{''.join(body)}</body></html>"
    )
    return write_text(path, page)


def _table(table: pd.DataFrame) -> str:
    head = "".join(f"<th>{html.escape(str(column))}</th>" for column in table.columns)
    rows = (
        "<tr>" + "".join(f"<td>{html.escape(str(value))}</td>" for value in row) + "</tr>"
        for row in table.itertuples(index=False)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
