"""Explanations in a notebook: a compact table."""

import html
from collections.abc import Sequence

from counterpath.explanation import wording
from counterpath.explanation.wording import Person, Row

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


def render(headline: str, people: Sequence[Person], total: int) -> str:
    """A compact table of some people, with its own style, which touches nothing else in a notebook."""
    several = any(person.several for person in people)
    names = ("row", *(["plan"] if several else []), "decision", "what changes", "status")
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(_rows(person) for person in people)
    more = f'<p class="soft">… and {total - len(people)} more</p>' if total > len(people) else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if people else ""
    return f'<div class="counterpath"><style>{_STYLE}</style><p>{html.escape(headline)}</p>{table}{more}</div>'


def _rows(person: Person) -> str:
    """A person's rows of the table, under one label: what is told, and in one row which plans are missing."""
    label = html.escape(person.first.label)
    if not person.several:
        return _row(f"<td>{label}</td>", person.first)
    shown = [(str(row.plan) if row.is_plan else "–", row) for row in person.told]
    if person.missing:
        shown.append((wording.listed([str(row.plan) for row in person.missing]), person.missing[0]))
    heads = [f'<td rowspan="{len(shown)}">{label}</td>'] + [""] * (len(shown) - 1)
    return "".join(_row(f"{head}<td>{plan}</td>", row) for head, (plan, row) in zip(heads, shown, strict=True))


def _row(head: str, row: Row) -> str:
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
    return f"<br>In the way: {html.escape(row.binding_text)}" if row.binding else ""
