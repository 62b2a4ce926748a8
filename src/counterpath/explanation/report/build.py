"""From an explanation to what is on its page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from counterpath.data import constraints
from counterpath.data.schema import Feature
from counterpath.data.status import FOUND
from counterpath.explanation import summary, tables, wording
from counterpath.explanation.comparing import both_tables
from counterpath.explanation.milestones import list_milestones, steps_between
from counterpath.explanation.report.charts import Map
from counterpath.explanation.report.page import MOST_LISTED, MOST_ON_THE_MAP, Page
from counterpath.explanation.report.sheets import Fact, Sheet, Walk
from counterpath.explanation.result import Explanation
from counterpath.explanation.summary import tally
from counterpath.explanation.tables import path_features
from counterpath.explanation.wording import Person
from counterpath.utils.errors import InputError

_WALKED = ("step", "probability", "uncertainty", "map_x", "map_y")
_DIRECTIONS = {constraints.UP: "may only rise", constraints.DOWN: "may only fall"}


@dataclass(frozen=True)
class Wanted:
    """What a page is to have, beside the explanation: see `Explanation.to_html`."""

    title: str
    tables: Mapping[str, pd.DataFrame]
    baselines: Mapping[str, Explanation]
    by: summary.By | Sequence[summary.By]
    pages: int
    about: Mapping[str, str]

    def __post_init__(self) -> None:
        if isinstance(self.pages, bool) or not isinstance(self.pages, int) or self.pages < 0:
            raise InputError(f"pages is {self.pages!r}; expected how many people get a page, a whole number from 0")


def gather(result: Explanation, wanted: Wanted) -> Page:
    """What is on the page of an explanation."""
    walkers = tables.walkers(result.paths)
    shown = walkers[:MOST_ON_THE_MAP]
    paths = dict(list(result.paths[result.paths["row"].isin(shown)].groupby("row")))
    names, found = list(result.schema.names), result.status["status"].isin(FOUND).to_numpy()
    old, new, changed = (frame[found][names] for frame in (result.factuals, result.counterfactuals, result.changed))
    method = str(result.request["method"])
    return Page(
        title=wanted.title,
        headline=result._headline,
        method=method,
        summary=result.summary(),
        changes=tally(old, new, changed, result._amounts),
        comparison=both_tables({method: _first(result)} | {n: _first(r) for n, r in wanted.baselines.items()}),
        groups={_named(by): result.summary(by) for by in _each(wanted.by)},
        tables=wanted.tables,
        latent=Map.of(result.landscape, result.paths) if len(result.landscape) else None,
        note=result.note,
        paths=list(paths.values()),
        walked=len(walkers),
        people=result._people(MOST_LISTED) if len(result) else [],
        sheets=_sheets(result, wanted.pages),
        total=result._count,
        diagnostics=result.diagnostics,
        quality=result.quality,
        request=result.request,
        made=result.made,
        about=wanted.about,
    )


def _first(result: Explanation) -> Explanation:
    """One row a person: of several plans the first."""
    return result.plan(1)


def _each(by: summary.By | Sequence[summary.By]) -> list[summary.By]:
    return [by] if isinstance(by, str | pd.Series) else list(by)


def _named(by: summary.By) -> str:
    if isinstance(by, pd.Series):
        return str(by.name if by.name is not None else "group")
    return by if isinstance(by, str) else wording.listed(list(by))


def _sheets(result: Explanation, most: int) -> list[Sheet]:
    """The pages of the first people."""
    if not most or not len(result):
        return []
    people, measures = result._people(most), result.measures()
    steps = dict(list(result.paths.groupby("row")))
    places: dict[int, list[int]] = {}
    for position, person in enumerate(result._person.tolist()):
        places.setdefault(person, []).append(position)
    return [
        Sheet(
            number + 1,
            person,
            _facts(result, places[number], person),
            [
                _walk(result, row, steps.get(place, result.paths.iloc[:0]), measures.iloc[place])
                for row, place in zip(person.rows, places[number], strict=True)
                if _is_told(row, person)
            ],
        )
        for number, person in enumerate(people)
    ]


def _is_told(row: wording.Row, person: Person) -> bool:
    """Whether there is a way to show: of a plan that there is, or else of the attempt to find the first."""
    return row.status.found or (not person.found and row is person.first and row.status.searched)


def _walk(result: Explanation, row: wording.Row, steps: pd.DataFrame, measures: pd.Series) -> Walk:
    stops: list[int] = []
    if row.status.found and len(steps):
        milestones = list_milestones(steps, result.schema, result._amounts, chosen=result._chosen)
        stops = np.flatnonzero(steps["step"].isin(milestones["step"]))[1:].tolist()
        row = replace(row, steps=steps_between(milestones))
    moves = path_features(steps, result.schema.names)
    costs = {str(name): float(value) for name, value in measures.items()}
    return Walk(row, steps[list(_WALKED)], moves, stops, result._ranges, costs)


def _facts(result: Explanation, places: Sequence[int], person: Person) -> list[Fact]:
    """Every feature of a person, what holds it, and what else is to be known about it."""
    values = result.factuals.iloc[places[0]]
    changed = {change.feature for row in person.found for change in row.changes}
    imputed = result.status["imputed"].iloc[places[0]]
    return [
        Fact(
            feature.name,
            wording.value(values[feature.name]),
            _held(feature, result.request),
            (*(["filled in"] if feature.name in imputed else []), *(["changes"] if feature.name in changed else [])),
        )
        for feature in result.schema
    ]


def _held(feature: Feature, request: Mapping[str, Any]) -> tuple[str, ...]:
    """What keeps a feature from changing as it likes."""
    if feature.immutable:
        return ("immutable",)
    locked = ["locked"] if feature.name in request.get("lock", ()) else []
    direction = request.get("directions", {}).get(feature.name)
    span = request.get("ranges", {}).get(feature.name)
    return (
        *locked,
        *([_DIRECTIONS[direction]] if direction else []),
        *([constraints.describe_range(feature, tuple(span))] if span else []),
    )
