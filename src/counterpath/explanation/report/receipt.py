"""A receipt for the person whom a decision is about: one page in plain words, to keep or to print."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from counterpath.data.schema import Schema
from counterpath.explanation import wording
from counterpath.explanation.milestones import steps_between
from counterpath.explanation.report.build import render
from counterpath.explanation.result import Explanation
from counterpath.utils.errors import InputError

MOST_PLANS = 3
"""Plans on a receipt: more do not fit one sheet of paper."""
_MOST_STEPS = 4
"""Steps that are written down, where there is one plan only: those of several do not fit the sheet."""
WHAT_IT_IS_NOT = (
    "It is not a promise. The model may be replaced, and people decide, too.",
    "It is not advice. Whether a change is possible or good for you, the model does not know.",
    "It does not say why the decision was made, and it is no legal notice.",
    "There may be other ways than these.",
)
"""What a receipt is not, on every one of them."""


def receipt(result: Explanation, *, model: str, day: date, person: str = "") -> str:
    """The HTML of a receipt, which runs no script and asks for nothing from elsewhere.

    Args:
        result: The explanation of one person, with one plan or several; there must be at least one.
        model: What the model is called.
        day: When it was made.
        person: What to call the person; by default the label of the row.

    Raises:
        InputError: It is about several people, or there is no plan.
    """
    people = result._people(1)
    if result._count != 1 or not people or not people[0].found:
        raise InputError("a receipt is for one person for whom there is a plan; give the explanation of one")
    shown, schema = people[0].found[:MOST_PLANS], result.schema
    first = shown[0]
    ways = []
    for row in shown:
        plan = result.plan(row.plan)
        milestones = plan.milestones(plan.factuals.index[0])
        steps = [step.changes for step in steps_between(milestones) if step.changes]
        ways.append({"row": row, "steps": steps if len(shown) == 1 < len(steps) <= _MOST_STEPS else []})
    values = result.factuals.iloc[0]
    return render(
        "receipt.html.j2",
        model=model,
        day=f"{day.day} {day:%B %Y}",
        person=person or first.label,
        wanted=first.wanted or wording.outcome(first.target),
        first=first,
        ways=ways,
        facts=[(each.title, wording.amount(each, values[each.name])) for each in schema],
        kept=kept_in_words(result.request, schema),
        not_this=WHAT_IT_IS_NOT,
    )


def kept_in_words(request: Mapping[str, Any], schema: Schema) -> list[str]:
    """What was not to change, or not freely, in words."""
    unlocked = request.get("unlock") or ()
    fixed = [
        each.title
        for each in schema
        if each.immutable
        or each.name in (request.get("lock") or ())
        or (not each.actionable and each.name not in unlocked)
    ]
    lines = [f"Unchanged: {wording.listed(fixed)}."] if fixed else []
    for name, way in (request.get("directions") or {}).items():
        lines.append(f"{schema[name].title} may only go {way}.")
    for part in ("ranges", "stay_within"):
        for name, given in (request.get(part) or {}).items():
            lines.append(f"{schema[name].title}: {_range(schema, name, given)}.")
    most = request.get("max_changes")
    lines += [f"At most {wording.counted(most, 'change')}."] if most else []
    lines += [f"The rule “{rule}” holds." for rule in request.get("rules") or ()]
    return lines


def _range(schema: Schema, name: str, given: Sequence[Any]) -> str:
    feature = schema[name]
    is_pair = len(given) == 2 and (not feature.categories or feature.kind == "ordinal")
    if not is_pair:
        return wording.listed([wording.shown(feature, each) for each in given])
    low, high = (None if end is None else wording.amount(feature, end) for end in given)
    if low is None or high is None:
        return f"at most {high}" if low is None else f"at least {low}"
    return f"{low} to {high}"
