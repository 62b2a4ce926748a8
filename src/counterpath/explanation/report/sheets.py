"""One person on one page: who they are, the decision, what would have to change, the way there, and what it costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from counterpath.data.status import StatusCode
from counterpath.explanation import wording
from counterpath.explanation.report import charts, html
from counterpath.explanation.report.charts import Axis, Map
from counterpath.explanation.report.html import Markup
from counterpath.explanation.report.meanings import SINGLE
from counterpath.explanation.wording import Change, Person, Row, which

PLANS_IN_A_TABLE = 3
"""More columns would break words and numbers in two."""
MOST_DETOURS = 4
"""How many features that end as they were are drawn along a path."""
MEASURES = ("confidence", "l0", "l1", "ld", "ynn", "redundancy", "violation", "copy", "steps")
"""What a page says about a plan."""
_BOUNDS = (0.0, 1.0)


@dataclass(frozen=True)
class Fact:
    """A feature of a person: its value, and what holds it, for instance "immutable"."""

    feature: str
    value: str
    held: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Walk:
    """The way of one plan, or to the best point that was reached if there is none.

    Attributes:
        row: What is told about it.
        points: One row a point of the path, `step`, `probability`, `uncertainty`, `map_x`, `map_y`; empty if it was
            not kept.
        features: The features at every point.
        stops: The positions of the milestones after the first point.
        ranges: From where to where the features that are numbers go, over all people.
        measures: The measures of its end.
    """

    row: Row
    points: pd.DataFrame
    features: pd.DataFrame
    stops: Sequence[int]
    ranges: Mapping[str, tuple[float, float]]
    measures: Mapping[str, float]

    @cached_property
    def axis(self) -> Axis:
        """Where along the path its points are."""
        return Axis(self.points["step"].to_numpy(float), self.stops)

    @cached_property
    def detours(self) -> list[str]:
        """The features that move on the way and end as they were."""
        changed = {change.feature for change in self.row.changes}
        moving = (str(name) for name, values in self.features.items() if len(set(values.tolist())) > 1)
        return [name for name in moving if name not in changed]


@dataclass(frozen=True)
class Sheet:
    """What is on the page of one person: their number from 1, what is told, their features, and the ways there."""

    number: int
    person: Person
    facts: Sequence[Fact]
    walks: Sequence[Walk]


def anchor(number: int) -> str:
    """Where the page of a person is."""
    return f"person-{number}"


def render(sheet: Sheet, last: int, latent: Map | None) -> Markup:
    """The page of a person, with links to the one before and the one after it.

    Args:
        sheet: What is on it.
        last: The number of the last person with a page.
        latent: The map on which to show the paths, if there is one.
    """
    row = sheet.person.first
    around = [html.link("Contents", "contents")]
    around += [html.link("← Previous", anchor(sheet.number - 1))] if sheet.number > 1 else []
    around += [html.link("Next →", anchor(sheet.number + 1))] if sheet.number < last else []
    title = f'<h3 id="{anchor(sheet.number)}-name">Row {html.escape(row.label)} {_pill(sheet.person)}</h3>'
    nav = f'<nav aria-label="Row {html.escape(row.label)}">{"".join(around)}</nav>'
    main = "".join([*_story(sheet), *_ways(sheet), *_costs(sheet)])
    side = "".join([_who(sheet.facts), *_where(sheet, latent)])
    return Markup(
        f'<article class="sheet" id="{anchor(sheet.number)}" aria-labelledby="{anchor(sheet.number)}-name">'
        f"<header>{title}{nav}</header>"
        f'<div class="columns"><div class="main">{main}</div><div class="side">{side}</div></div></article>'
    )


def _pill(person: Person) -> Markup:
    across = all(row.status is StatusCode.CROSSES_GAP for row in person.found)
    look = "gap" if person.found and across else "yes" if person.first.status.valid else ""
    return Markup(f'<span class="pill {look}">{html.escape(person.result)}</span>')


def _story(sheet: Sheet) -> list[Markup]:
    """The decision before and after, the sentences, and why there is nothing, or nothing more."""
    person, row = sheet.person, sheet.person.first
    parts = _decision(row)
    told = [each for each in person.told if each.is_plan]
    if person.several and person.found:
        parts.append(html.text(person.found[0].now))
        parts += [html.entry(each.number, each.claim) for each in told]
        if person.missing:
            parts.append(html.text(f"{which(person.missing)}: {person.missing[0].claim}", "soft"))
    else:
        told = [row]
        parts.append(html.text(row.sentence))
    reasons = {reason: tuple(each for each in told if each.reason == reason) for reason in (r.reason for r in told)}
    for reason, rows in reasons.items():
        parts.append(html.text(reason if len(reasons) == 1 else f"{which(rows)}: {reason}", "soft"))
    return parts


def _decision(row: Row) -> list[Markup]:
    if row.status in (StatusCode.UNKNOWN_CATEGORY, StatusCode.NO_OTHER_PLAN):
        return []
    now, then = wording.probability(row.p_before), wording.probability(row.p_after)
    wanted, asked = wording.outcome(row.wanted), wording.value(row.confidence)
    label = f"Probability of {wanted}: {now} now, {then} at the end, {asked} asked"
    before, after = (html.escape(each) for each in (row.before, row.after))
    change = f"<b>{before}</b>" if row.status is StatusCode.ALREADY else f"<b>{before}</b> → <b>{after}</b>"
    chances = html.escape(f"probability of {wanted}: {now} → {then} ({asked} asked)")
    words = Markup(f'<p class="decision">{change} <span class="soft">{chances}</span></p>')
    return [words, charts.gauge(row.p_before, row.p_after, row.confidence, label)]


def _ways(sheet: Sheet) -> list[Markup]:
    """The plans side by side, if there are several, and each of them along its path, and in steps."""
    found = sheet.person.found
    starts = range(0, len(found), PLANS_IN_A_TABLE) if len(found) > 1 else ()
    parts = [_compared(found[start : start + PLANS_IN_A_TABLE]) for start in starts]
    if parts:
        parts = [html.heading("The plans side by side", 4), *parts]
    for walk in sheet.walks:
        parts += _way(walk)
    return parts


def _way(walk: Walk) -> list[Markup]:
    row = walk.row
    if not row.changes and not len(walk.points):
        return []
    words = "What would have to change" if row.status.found else "The closest that was reached"
    parts = [html.heading(f"{row.number}: {words[0].lower()}{words[1:]}" if row.is_plan else words, 4)]
    parts.append(_table(walk))
    hidden = len(walk.detours) - MOST_DETOURS
    if hidden > 0:
        parts.append(html.text(f"{hidden} more features move on the way and end as they were.", "soft"))
    if row.steps:
        heading = f"Step by step, plan {row.plan}" if row.is_plan else "Step by step"
        notes = [(step.changes or "no change", f"p {wording.probability(step.probability)}") for step in row.steps]
        parts.append(html.steps(heading, notes))
    return parts


def _table(walk: Walk) -> Markup:
    """What changes, its value now and then, and between them how it goes along the path, if that was kept."""
    if len(walk.points) < 2:
        changes = [(change.feature, change.old, change.new) for change in walk.row.changes]
        return html.listing(("feature", "now", "then"), changes)
    lines = [_probability(walk)]
    uncertainty = walk.points["uncertainty"].to_numpy(float)
    if np.isfinite(uncertainty).all():
        old, new = (wording.value(value, digits=2) for value in uncertainty[[0, -1]])
        bounds = (0.0, float(uncertainty.max()))
        lines.append(_line("uncertainty", old, new, walk.axis.line(uncertainty, bounds, "u")))
    lines += [_line(change.feature, change.old, change.new, _along(walk, change)) for change in walk.row.changes]
    for name in walk.detours[:MOST_DETOURS]:
        value = wording.value(walk.features[name].iloc[0])
        lines.append(_line(name, value, value, _along(walk, Change(name, value, value), " back")))
    looks = {"feature": "", "now": "", "along the path": ' class="t"', "then": ' class="t"'}
    heads = "".join(f'<th scope="col"{look}>{head}</th>' for head, look in looks.items())
    return Markup(f'<table class="walk"><thead><tr>{heads}</tr></thead><tbody>{"".join(lines)}</tbody></table>')


def _probability(walk: Walk) -> str:
    values = walk.points["probability"].to_numpy(float)
    chart = walk.axis.line(values, _BOUNDS, "p", level=walk.row.confidence) + walk.axis.numbers(values, _BOUNDS)
    name = f"probability of {wording.outcome(walk.row.wanted)}, {wording.value(walk.row.confidence)} asked"
    return _line(name, wording.probability(values[0]), wording.probability(values[-1]), chart, "first")


def _line(name: str, old: str, new: str, chart: str, look: str = "") -> str:
    row = f' class="{look}"' if look else ""
    cells = f'<td>{html.escape(old)}</td><td class="path"><div class="chart">{chart}</div></td>'
    return f'<tr{row}><th scope="row">{html.escape(name)}</th>{cells}<td class="t">{html.escape(new)}</td></tr>'


def _along(walk: Walk, change: Change, look: str = "") -> Markup:
    """One feature along the path: numbers as a line over their range, categories as stairs."""
    values = walk.features[change.feature]
    if change.feature not in walk.ranges:
        codes, _ = pd.factorize(values.astype(object), use_na_sentinel=False)
        return walk.axis.stairs(codes.astype(float), f"c{look}")
    heights = values.to_numpy(float)
    low, high = float(heights.min()), float(heights.max())
    if look:  # over its own range a small detour would look like a large change
        least, most = walk.ranges[change.feature]
        low, high = min(low, least), max(high, most)
    return walk.axis.line(heights, (low, high), f"v{look}")


def _compared(rows: Sequence[Row]) -> Markup:
    """What changes, one row a feature: its value now, and in each plan, where nothing is said if it stays."""
    changes = [{change.feature: change for change in row.changes} for row in rows]
    features = list(dict.fromkeys(feature for each in changes for feature in each))
    # One plan may need more digits than another to tell old from new.
    now = {f: max((each[f].old for each in changes if f in each), key=len) for f in features}
    cells = [[f, now[f], *(each[f].new if f in each else "" for each in changes)] for f in features]
    return html.listing(["feature", "now", *(f"plan {row.plan}" for row in rows)], cells)


def _who(facts: Sequence[Fact]) -> Markup:
    """All features as a compact table; what holds one is marked."""
    rows = [(fact.feature, _marked(fact)) for fact in facts]
    return Markup(html.heading("Who this is", 4) + html.listing(("feature", "value"), rows))


def _marked(fact: Fact) -> Markup:
    marks = [(" held", words) for words in fact.held] + [("", words) for words in fact.notes]
    shown = "".join(f' <span class="mark{look}">{html.escape(words)}</span>' for look, words in marks)
    return Markup(html.escape(fact.value) + shown)


def _where(sheet: Sheet, latent: Map | None) -> list[Markup]:
    paths = [walk.points for walk in sheet.walks if len(walk.points)]
    if latent is None or not paths:
        return []
    label = f"Latent map: {len(paths)} path{'s' if len(paths) > 1 else ''} of row {sheet.person.first.label}"
    return [html.heading("On the latent map", 4), latent.draw(paths, label), latent.legend]


def _costs(sheet: Sheet) -> list[Markup]:
    """What each plan costs, with what the numbers mean."""
    walks = [walk for walk in sheet.walks if walk.measures]
    if not walks:
        return []
    names = [name for name in MEASURES if any(np.isfinite(walk.measures.get(name, np.nan)) for walk in walks)]
    heads = [f"plan {walk.row.plan}" if walk.row.is_plan else "value" for walk in walks]
    rows = [
        [SINGLE[name].label, *(SINGLE[name].form(walk.measures[name]) for walk in walks), SINGLE[name].text]
        for name in names
    ]
    return [html.heading("What it costs", 4), html.listing(["measure", *heads, "meaning"], rows, look="costs")]
