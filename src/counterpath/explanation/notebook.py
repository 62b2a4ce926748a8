"""Explanations in a notebook: a compact table, with a style of its own that touches nothing else there."""

from collections.abc import Sequence

from counterpath.explanation import wording
from counterpath.explanation.report import render as render_template
from counterpath.explanation.wording import Person, Row


def render(headline: str, people: Sequence[Person], total: int) -> str:
    """The HTML of a table of some of all people."""
    shown = [(person.first.label, _rows(person)) for person in people]
    several = any(person.several for person in people)
    more = total - len(people)
    return render_template("notebook.html.j2", headline=headline, people=shown, several=several, more=more)


def _rows(person: Person) -> list[tuple[str, Row]]:
    """A person's rows of the table, with their plans: what is shown, and in one row which plans are missing."""
    rows = [(str(row.plan) if row.is_plan else "–", row) for row in person.shown]
    if person.missing:
        rows.append((wording.listed([str(row.plan) for row in person.missing]), person.missing[0]))
    return rows if person.several else [("", person.first)]
