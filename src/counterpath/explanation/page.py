"""Explanations as HTML: a compact table for notebooks, and a page of its own."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from counterpath import report
from counterpath.explanation import wording
from counterpath.explanation.person import Person, which
from counterpath.explanation.wording import Row
from counterpath.plots import svg

NOTICE = "A counterfactual explains the model; it promises nothing about the world."
MOST_CARDS = 200
PLANS_IN_A_TABLE = 3
"""More columns would break words and numbers in two on a card."""

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
.counterpath .crosses_gap { color: #7a5b00; }
.counterpath .no_other_plan { color: #5b6470; }
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
        people: Those who get a card, which are rows if everybody has one plan.
        total: How many people there are.
        diagnostics: Text about the models.
    """

    title: str
    headline: str
    summary: pd.DataFrame
    tables: Mapping[str, pd.DataFrame]
    drawings: Mapping[str, Figure]
    walks: Sequence[Figure]
    people: Sequence[Person]
    total: int
    diagnostics: str

    def write(self, path: Path) -> Path:
        """Write the page."""
        summary = report.section("In numbers", report.table(self._summary), report.text(self._legend, "soft"))
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
        shares = {name: self.summary[name].map(wording.percent) for name in ("found", "gaps")}
        return _readable(self.summary.assign(**shares))

    @property
    def _several(self) -> bool:
        return "plans" in self.summary

    @property
    def _legend(self) -> str:
        return (_LEGEND_OF_PLANS if self._several else _LEGEND_OF_ROWS) + _LEGEND_OF_COSTS

    def _numbers(self) -> report.Markup:
        row = self.summary.iloc[0]
        gaps = {"of them only across a gap": wording.percent(row["gaps"])} if row["gaps"] > 0 else {}
        each = {"plans each, mean": wording.value(row["plans"], digits=2)} if self._several else {}
        return report.numbers(
            {
                "people" if self._several else "rows": wording.value(row["n"]),
                "searched": wording.value(row["explained"]),
                "of them with a plan" if self._several else "of them found": wording.percent(row["found"]),
                **gaps,
                **each,
                "features changed, mean": wording.value(row["l0"], digits=2),
                "steps, mean": wording.value(row["steps"], digits=2),
            }
        )

    def _cards(self) -> report.Markup:
        kind, heading = ("people", "Person by person") if self._several else ("rows", "Row by row")
        more = self.total - len(self.people)
        rest = [report.text(f"… and {more} more {kind}, which are not shown here.")] if more else []
        none = [] if self.total else [report.text(f"There are no {kind}.")]
        return report.section(heading, report.cards([_card(person) for person in self.people]), *rest, *none)


_LEGEND_OF_ROWS = (
    "n: rows. explained: rows for which a counterfactual was looked for. found: the share of them for which there is "
    "one. gaps: the share of them whose path crosses a gap in the data. The rest are means over the found ones: "
)
_LEGEND_OF_PLANS = (
    "n: people. explained: people for whom a counterfactual was looked for. found: the share of them who have a plan. "
    "gaps: the share of them all of whose plans cross a gap in the data. plans: how many they have, on average. The "
    "rest are means over all plans that were found: "
)
_LEGEND_OF_COSTS = (
    "l0 (features changed), l1, l2_sq, ld_sq (squared distance to the nearest training row), copy (equal to a "
    "training row), violation (immutable features changed), steps."
)


def notebook(headline: str, people: Sequence[Person], total: int) -> str:
    """A compact table of some people, with its own style, which touches nothing else in a notebook."""
    several = any(person.several for person in people)
    names = ("row", *(["plan"] if several else []), "decision", "what changes", "status")
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(_notebook_rows(person) for person in people)
    more = f'<p class="soft">… and {total - len(people)} more</p>' if total > len(people) else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if people else ""
    return f'<div class="counterpath"><style>{_STYLE}</style><p>{html.escape(headline)}</p>{table}{more}</div>'


def _notebook_rows(person: Person) -> str:
    """A person's rows of the table, under one label: what is told, and in one row which plans are missing."""
    label = html.escape(person.first.label)
    if not person.several:
        return _notebook_row(f"<td>{label}</td>", person.first)
    shown = [(str(row.plan) if row.is_plan else "–", row) for row in person.told]
    if person.missing:
        shown.append((wording.listed([str(row.plan) for row in person.missing]), person.missing[0]))
    heads = [f'<td rowspan="{len(shown)}">{label}</td>'] + [""] * (len(shown) - 1)
    return "".join(_notebook_row(f"{head}<td>{plan}</td>", row) for head, (plan, row) in zip(heads, shown, strict=True))


def _notebook_row(head: str, row: Row) -> str:
    escape = html.escape
    chips = "".join(
        f'<span class="chip">{escape(change.feature)}: {escape(change.old)} → {escape(change.new)}</span>'
        for change in row.changes
    )
    chances = f"{wording.probability(row.p_before)} → {wording.probability(row.p_after)}"
    reason = escape(row.reason)
    status = f'<span class="status {row.status}" title="{reason}">{row.status.replace("_", " ")}</span>'
    cells = (
        f'{escape(row.before)} → {escape(row.after)}<br><span class="soft p">p {escape(chances)}</span>',
        chips or '<span class="soft">nothing</span>',
        f'{status}<br><span class="soft">{reason}{_obstacle(row)}</span>',
    )
    return f"<tr>{head}" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _obstacle(row: Row) -> str:
    return f"<br>In the way: {html.escape(row.binding)}" if row.binding else ""


def _card(person: Person) -> report.Markup:
    heading = f"Row {person.first.label}: {person.result}"
    if person.several and person.found:
        return report.card(heading, *_plans(person))
    row = person.first
    parts = [report.text(row.sentence), *([report.table(_compared((row,)))] if row.changes else [])]
    return report.card(heading, *parts, *_steps(row), report.text(row.reason, "soft"))


def _plans(person: Person) -> list[report.Markup]:
    """A sentence a plan, a table of them side by side, the steps of each, and what else is known about it."""
    told = [row for row in person.told if row.is_plan]
    parts = [report.text(person.found[0].now)]
    parts += [report.entry(row.number, row.claim) for row in told]
    if person.missing:
        parts.append(report.text(f"{which(person.missing)}: {person.missing[0].claim}", "soft"))
    starts = range(0, len(person.found), PLANS_IN_A_TABLE)
    parts += [report.table(_compared(person.found[start : start + PLANS_IN_A_TABLE])) for start in starts]
    parts += [part for row in person.found for part in _steps(row)]
    reasons = {reason: [row for row in told if row.reason == reason] for reason in (row.reason for row in told)}
    for reason, rows in reasons.items():
        parts.append(report.text(reason if len(reasons) == 1 else f"{which(tuple(rows))}: {reason}", "soft"))
    return parts


def _steps(row: Row) -> list[report.Markup]:
    """The way there as a list, if it has several steps."""
    if not row.steps:
        return []
    heading = f"Step by step, plan {row.plan}" if row.is_plan else "Step by step"
    notes = [(step.changes or "no change", f"p {wording.probability(step.probability)}") for step in row.steps]
    return [report.steps(heading, notes)]


def _compared(rows: tuple[Row, ...]) -> pd.DataFrame:
    """What changes, one row a feature: its value now, and then, or in each plan, where nothing is said if it stays."""
    changes = [{change.feature: change for change in row.changes} for row in rows]
    features = list(dict.fromkeys(feature for each in changes for feature in each))
    # One plan may need more digits than another to tell old from new.
    now = {f: max((each[f].old for each in changes if f in each), key=len) for f in features}
    heads = [f"plan {row.plan}" if row.is_plan else "then" for row in rows]
    cells = [[f, now[f], *(each[f].new if f in each else "" for each in changes)] for f in features]
    return pd.DataFrame(cells, columns=["feature", "now", *heads])


def _readable(table: pd.DataFrame) -> pd.DataFrame:
    """The same table with every value as people write it."""
    return table.map(wording.value)
