"""Explanations as HTML: a compact table for notebooks, and a page of its own."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from counterpath import report
from counterpath.explanation import wording
from counterpath.explanation.status import Status
from counterpath.explanation.wording import Row
from counterpath.plots import svg

NOTICE = "A counterfactual explains the model; it promises nothing about the world."
MOST_CARDS = 200

_STYLE = """
.counterpath { font: 13px/1.45 system-ui, sans-serif; color: #1b1f24; background: white; }
.counterpath table { border-collapse: collapse; } .counterpath p { margin: .3em 0; }
.counterpath th, .counterpath td { text-align: left; vertical-align: top; padding: .35em .7em;
  border-bottom: 1px solid #d9dee4; background: white; color: #1b1f24; }
.counterpath th, .counterpath .soft { color: #5b6470; font-weight: 600; } .counterpath .soft { font-weight: 400; }
.counterpath .chip { display: inline-block; border: 1px solid #b9d4e6; background: #eef6fb; border-radius: 1em;
  padding: 0 .6em; margin: 0 .3em .2em 0; }
.counterpath .p { white-space: nowrap; } .counterpath td:last-child { min-width: 16em; max-width: 36em; }
.counterpath .found, .counterpath .already { color: #006b4f; } .counterpath .status { font-weight: 600; }
.counterpath .not_found, .counterpath .out_of_time, .counterpath .unknown_category { color: #a94a00; }
@media print { .counterpath tr { break-inside: avoid; } .counterpath { print-color-adjust: exact; } }
"""


@dataclass(frozen=True)
class Page:
    """What is on the page of an explanation.

    Attributes:
        title: Its heading.
        headline: One line about all rows.
        summary: The row of `Explanation.summary` over all rows.
        tables: Further tables by their headings.
        drawings: Figures by their headings.
        walks: A figure for each of the first paths.
        rows: The rows that get a card.
        total: How many rows there are.
        diagnostics: Text about the models.
    """

    title: str
    headline: str
    summary: pd.DataFrame
    tables: Mapping[str, pd.DataFrame]
    drawings: Mapping[str, Figure]
    walks: Sequence[Figure]
    rows: Sequence[Row]
    total: int
    diagnostics: str

    def write(self, path: Path) -> Path:
        """Write the page."""
        summary = report.section("In numbers", report.table(self._summary), report.text(_LEGEND, "soft"))
        parts = [report.text(NOTICE, "notice"), self._numbers(), summary]
        parts += [report.section(heading, report.table(_readable(table))) for heading, table in self.tables.items()]
        parts += [report.section(heading, report.drawing(svg(figure))) for heading, figure in self.drawings.items()]
        if self.walks:
            walks = [report.drawing(svg(figure)) for figure in self.walks]
            parts.append(report.section("The first paths, step by step", report.gallery(walks)))
        parts.append(self._cards())
        if self.diagnostics:
            parts.append(report.section("Diagnostics", report.verbatim(self.diagnostics)))
        return report.write_page(path, self.title, parts, lead=self.headline)

    @property
    def _summary(self) -> pd.DataFrame:
        return _readable(self.summary.assign(found=self.summary["found"].map(wording.percent)))

    def _numbers(self) -> report.Markup:
        row = self.summary.iloc[0]
        return report.numbers(
            {
                "rows": wording.value(row["n"]),
                "searched": wording.value(row["explained"]),
                "of them found": wording.percent(row["found"]),
                "features changed, mean": wording.value(row["l0"], digits=2),
                "steps, mean": wording.value(row["steps"], digits=2),
            }
        )

    def _cards(self) -> report.Markup:
        more = self.total - len(self.rows)
        rest = [report.text(f"… and {more} more rows, which are not shown here.")] if more else []
        none = [] if self.total else [report.text("There are no rows.")]
        return report.section("Row by row", report.cards([_card(row) for row in self.rows]), *rest, *none)


_LEGEND = (
    "n: rows. explained: rows for which a counterfactual was looked for. found: the share of them for which there is "
    "one. The rest are means over the found ones: l0 (features changed), l1, l2_sq, ld_sq (squared distance to the "
    "nearest training row), violation (immutable features changed), steps."
)


def notebook(headline: str, rows: Sequence[Row], total: int) -> str:
    """A compact table of some rows, with its own style, which touches nothing else in a notebook."""
    head = "".join(f"<th>{name}</th>" for name in ("row", "decision", "what changes", "status"))
    body = "".join(_notebook_row(row) for row in rows)
    more = f'<p class="soft">… and {total - len(rows)} more</p>' if total > len(rows) else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
    return f'<div class="counterpath"><style>{_STYLE}</style><p>{html.escape(headline)}</p>{table}{more}</div>'


def _notebook_row(row: Row) -> str:
    escape = html.escape
    chips = "".join(
        f'<span class="chip">{escape(change.feature)}: {escape(change.old)} → {escape(change.new)}</span>'
        for change in row.changes
    )
    chances = f"{wording.probability(row.p_before)} → {wording.probability(row.p_after)}"
    reason = escape(row.reason)
    status = f'<span class="status {row.status}" title="{reason}">{_name(row.status)}</span>'
    cells = (
        escape(row.label),
        f'{escape(row.before)} → {escape(row.after)}<br><span class="soft p">p {escape(chances)}</span>',
        chips or '<span class="soft">nothing</span>',
        f'{status}<br><span class="soft">{reason}{_obstacle(row)}</span>',
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _obstacle(row: Row) -> str:
    return f"<br>In the way: {html.escape(row.binding)}" if row.binding else ""


def _card(row: Row) -> report.Markup:
    changes = pd.DataFrame(
        [(change.feature, change.old, change.new) for change in row.changes], columns=["feature", "now", "then"]
    )
    parts = [report.text(row.sentence), *([report.table(changes)] if row.changes else [])]
    return report.card(f"Row {row.label}: {_name(row.status)}", *parts, report.text(row.reason, "soft"))


def _name(status: Status) -> str:
    return status.replace("_", " ")


def _readable(table: pd.DataFrame) -> pd.DataFrame:
    """The same table with every value as people write it."""
    return table.map(wording.value)
