"""An explanation as one page: what is on it, in which order, and how it is written."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from counterpath.explanation import wording
from counterpath.explanation.comparing import COMMON
from counterpath.explanation.report import charts, html, meanings, quality, sheets
from counterpath.explanation.report.charts import Map
from counterpath.explanation.report.html import Markup
from counterpath.explanation.report.recipe import recipe
from counterpath.explanation.report.sheets import Sheet
from counterpath.explanation.summary import Tally
from counterpath.explanation.wording import Person

NOTICE = "A counterfactual explains the model; it promises nothing about the world."
MOST_LISTED = 2000
"""How many people are listed at a glance."""
MOST_ON_THE_MAP = 30
FEW = 20
"""The means of fewer people than this say little."""
_FIRST = 8
"""How many features the first page shows."""
_NAMES = 4


@dataclass(frozen=True)
class Page:
    """What is on the page of an explanation.

    Attributes:
        title: Its heading.
        headline: One line about all rows.
        method: How was searched.
        summary: The row of `Explanation.summary` over all rows.
        changes: Which features change most.
        comparison: This and other methods side by side, by the titles of the tables.
        groups: The summary by subgroup, by what was grouped by.
        tables: Further tables by their headings.
        latent: The map, if there is one.
        note: What it shows.
        paths: The paths to draw on it.
        walked: How many paths there are.
        people: Those who are listed.
        sheets: The pages of the first of them.
        total: How many people there are.
        diagnostics: Text about the models.
        quality: The same as numbers.
        request: What was asked for.
        made: When and with which versions.
        about: What else to say about how it was made.
    """

    title: str
    headline: str
    method: str
    summary: pd.DataFrame
    changes: Sequence[Tally]
    comparison: Mapping[str, pd.DataFrame]
    groups: Mapping[str, pd.DataFrame]
    tables: Mapping[str, pd.DataFrame]
    latent: Map | None
    note: str
    paths: Sequence[pd.DataFrame]
    walked: int
    people: Sequence[Person]
    sheets: Sequence[Sheet]
    total: int
    diagnostics: str
    quality: Mapping[str, Any]
    request: Mapping[str, Any]
    made: Mapping[str, Any]
    about: Mapping[str, str] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        """Write the page."""
        sections = list(self._sections())
        links = {heading: f"part-{number}" for number, (heading, *_) in enumerate(sections, start=1)}
        parts = [html.text(NOTICE, "notice"), quality.alarm(self.quality), self._numbers(), *self._most()]
        parts += [html.contents(links)]
        parts += [] if self.latent is None else [self.latent.codes]
        parts += [
            html.section(heading, *inside, anchor=links[heading], look=look) for heading, look, inside in sections
        ]
        return html.write_page(path, self.title, parts, lead=self.headline)

    def _sections(self) -> Iterator[tuple[str, str, list[Markup]]]:
        """The heading of each section, its look, and what is in it."""
        yield "Beside other methods" if len(self.comparison) > 1 else "In numbers", "page", self._methods()
        if self.groups:
            yield "By subgroup", "", self._groups()
        for heading, table in self.tables.items():
            yield heading, "", [html.table(table.map(wording.value))]
        if self.latent is not None:
            yield "Where the paths lead", "", self._map(self.latent)
        models = quality.details(self.quality, self.diagnostics)
        if models:
            yield "Are the models good enough?", "", models
        yield "How this was made", "", recipe(self.request, self.made, self.about)
        yield f"All {self._kind} at a glance", "page", self._glance()
        if self.sheets:
            yield ("Person by person" if self._several else "Row by row"), "page sheets", self._pages()

    @property
    def _several(self) -> bool:
        return "plans" in self.summary

    @property
    def _kind(self) -> str:
        return "people" if self._several else "rows"

    def _numbers(self) -> Markup:
        row = self.summary.iloc[0]
        gaps = {"of them only across a gap": wording.percent(row["gaps"])} if row["gaps"] > 0 else {}
        each = {"plans each, mean": wording.value(row["plans"], digits=2)} if self._several else {}
        return html.numbers(
            {
                self._kind: wording.value(row["n"]),
                "searched": wording.value(row["explained"]),
                "of them with a plan" if self._several else "of them found": wording.percent(row["found"]),
                **gaps,
                **each,
                "features changed, mean": wording.value(row["l0"], digits=2),
                "steps, mean": wording.value(row["steps"], digits=2),
            }
        )

    def _most(self) -> list[Markup]:
        """What changes most, as bars; the rest by name."""
        unit = "plans" if self._several else "rows"
        if not self.changes:
            return [html.text(f"No counterfactual was found, so nothing changes in any of the {unit}.")]
        rows = [(each.feature, _bar(each), each.typical) for each in self.changes[:_FIRST]]
        rest = [f"{each.feature} {wording.percent(each.share)}" for each in self.changes[_FIRST:]]
        more = [html.text(f"Less often: {', '.join(rest)}.", "soft")] if rest else []
        key = (("up", "rises"), ("down", "falls"), ("swap", "changes category"))
        legend = "".join(f'<span class="key {look}"></span>{words}' for look, words in key)
        return [
            html.heading(f"What changes most, in the {unit} that were found", 2),
            html.listing(("feature", "how often", "typical change"), rows, look="most"),
            Markup(f'<p class="soft">{legend}</p>'),
            *more,
        ]

    def _methods(self) -> list[Markup]:
        parts = []
        if self._several:
            parts.append(html.text("Of each person the first plan counts.", "soft"))
        names: dict[str, None] = {}
        for title, table in self.comparison.items():
            names |= dict.fromkeys(map(str, table.columns))
            counts = sorted({int(count) for count in table["n"]})
            over = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
            caption = f"{title} (n = {over})."
            parts.append(html.table(_readable(table), caption=caption, look="wide", own=self.method))
        if len(self.comparison) == 1:
            parts.append(html.text(_ALONE, "soft"))
        elif not self.comparison[COMMON]["n"].iloc[0]:
            parts.append(html.text("No row was found by all of them, so their costs cannot be compared."))
        return [*parts, html.terms(meanings.legend(names))]

    def _groups(self) -> list[Markup]:
        parts = []
        for by, table in self.groups.items():
            small = table["explained"].to_numpy(int) < FEW
            marked = [f"{label} *" if few else label for label, few in zip(_labels(table), small, strict=True)]
            shown = _readable(table.set_axis(pd.Index(marked, name=by), axis=0))
            parts.append(html.table(shown, caption=f"By {by}.", look="wide"))
            if small.any():
                parts.append(html.text(f"* fewer than {FEW} were searched: these means say little.", "soft"))
        names = dict.fromkeys(str(name) for table in self.groups.values() for name in table)
        told = meanings.legend(str(name) for table in self.comparison.values() for name in table)
        new = {label: text for label, text in meanings.legend(names).items() if label not in told}
        return [*parts, html.terms(new), html.text(_QUESTION, "soft")]

    def _map(self, latent: Map) -> list[Markup]:
        more = f" of {self.walked}" if self.walked > len(self.paths) else ""
        words = f"{len(self.paths)}{more} path{'' if self.walked == 1 else 's'} on the latent map"
        note = html.text(f"{words}; it shows {self.note}." if self.note else f"{words}.", "soft")
        return [latent.draw(self.paths, words, "map big", size=0.6), latent.legend, note]

    def _glance(self) -> list[Markup]:
        if not self.total:
            return [html.text(f"There are no {self._kind}.")]
        paged = len(self.sheets)
        rows = [_line(number, person, number <= paged) for number, person in enumerate(self.people, start=1)]
        missing, parts = self.total - len(self.people), []
        if paged < self.total:
            told = f"The first {paged}" if paged else "None"
            parts.append(html.text(f"{told} of {self.total} {self._kind} have a page of their own.", "soft"))
        parts.append(html.listing(("row", "decision", "probability", "what changes", "result"), rows, look="glance"))
        if missing:
            parts.append(html.text(f"… and {missing} more {self._kind}, which are not shown here."))
        return parts

    def _pages(self) -> list[Markup]:
        return [sheets.render(sheet, len(self.sheets), self.latent) for sheet in self.sheets]


_ALONE = (
    "No other method was given to compare with: the nearest training row with the wanted decision is the one to beat, "
    'baselines={"nearest": explainer.explain(…, method="nearest")}.'
)
_QUESTION = (
    "Differences between groups are a question and not a verdict: the models may also simply know less about a group."
)


def _bar(each: Tally) -> Markup:
    other = max(each.share - each.up - each.down, 0.0)
    return charts.bar({"up": each.up, "down": each.down, "swap": other}, wording.percent(each.share))


def _line(number: int, person: Person, paged: bool) -> tuple[str, ...]:
    row = person.first
    names = [change.feature for change in row.changes] if row.status.found else []
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    decision = f"{row.before} → {row.after}" if row.changes else row.before
    now, then = wording.probability(row.p_before), wording.probability(row.p_after)
    chances = now if now == then else f"{now} → {then}"
    label = html.link(row.label, sheets.anchor(number)) if paged else row.label
    return label, decision, chances, ", ".join(names[:_NAMES]) + more, person.result


def _readable(table: pd.DataFrame) -> pd.DataFrame:
    """A table of numbers by name, as people read it, with its names in the first column."""
    texts = {meanings.label(str(name)): [meanings.form(str(name), v) for v in table[name]] for name in table}
    return pd.DataFrame({str(table.index.name or ""): _labels(table), **texts})


def _labels(table: pd.DataFrame) -> list[str]:
    parts = (label if isinstance(label, tuple) else (label,) for label in table.index.tolist())
    return [", ".join(wording.value(part) for part in label) for label in parts]
