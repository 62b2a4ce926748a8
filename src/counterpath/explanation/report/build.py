"""Self-contained HTML: one file for the screen and for paper, no network, no script.

Every page is a template in `templates/`, which Jinja2 fills in and in which all text is escaped; what stands as it is
was drawn by us, and is a `Markup`. How a page looks is in `report.css`.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from counterpath.data import constraints
from counterpath.data.schema import Feature, Schema
from counterpath.data.status import FOUND, StatusCode
from counterpath.explanation import wording
from counterpath.explanation.milestones import list_milestones, steps_between
from counterpath.explanation.plots.style import MOST_PATHS
from counterpath.explanation.report import charts
from counterpath.explanation.report.charts import Axis, Map
from counterpath.explanation.result import Explanation
from counterpath.explanation.summary import COMMON, By, both_tables, tally, with_labels
from counterpath.explanation.tables import moving_features, path_features
from counterpath.explanation.wording import MEANINGS, ROW_MEANINGS, Person, Row
from counterpath.utils.errors import InputError
from counterpath.utils.files import write_text

_PACKAGE = __name__.rpartition(".")[0]
_NUMBER = re.compile(r"[<>+−-]?[\d.,]+(e[+-]?\d+)?( ?%)?|–|(under|over) \d+ %|")
MOST_LISTED = 2000
"""How many people are listed at a glance: half a megabyte, which a browser still opens at once."""
FEW = 20
"""The means of fewer people say little: a single one of them moves a share by 5 % or more."""
PLANS_IN_A_TABLE = 3
"""How many plans stand side by side: more columns would break words and numbers in two."""
MOST_DETOURS = 4
"""How many features that end as they were are drawn along a path: they are nothing that the reader has to do."""
MEASURES = (
    *("confidence", "l0", "l1", "l1_mad", "ld", "ynn", "redundancy", "violation", "copy"),
    *("valid_after", "valid_noise", "steps"),
)
"""What the page of a person says about a plan."""
_FEATURES_AT_FIRST = 8  # that have bars on the first page: with them it is still one page of paper
_NAMES_AT_A_GLANCE = 4  # of changed features in the list of everybody: a line each
_PROBABILITIES = (0.0, 1.0)  # the scale of every probability, so that charts can be compared
_NOT_ACTIONABLE = "people cannot usually change it"
_DIRECTIONS = {constraints.UP: "may only rise", constraints.DOWN: "may only fall"}


@dataclass(frozen=True)
class Table:
    """A table of a page.

    Attributes:
        columns: The names of the columns.
        rows: For each row its cells, of which the first one names it: text, or markup that stands as it is.
        caption: What stands above it.
        css: A class of the page's style.
        own: The name of a row that is to stand out.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    css: str = ""
    own: str = ""

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, **other: str) -> "Table":
        """The table of a frame without its index."""
        rows = [[str(value) for value in row] for row in frame.itertuples(index=False)]
        return cls([str(name) for name in frame.columns], rows, **other)

    @property
    def alignment(self) -> list[str | None]:
        """For each column its CSS class: numbers stand at the right, words at the left."""
        columns = range(len(self.columns))
        cells = ([row[column] for row in self.rows] for column in columns)
        is_number = (all(not isinstance(cell, Markup) and _NUMBER.fullmatch(cell) for cell in each) for each in cells)
        return [None if numbers else "t" for numbers in is_number]


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    forms = (wording.rounded, wording.probability, wording.percent, wording.outcome, wording.which, charts.coordinate)
    made.filters |= {form.__name__: form for form in forms}
    return made


@cache
def _style() -> Markup:
    """The style of every page, without comments and indentation."""
    given = files(_PACKAGE).joinpath("report.css").read_text(encoding="utf-8")
    return Markup(re.sub(r"\s*\n\s*", "\n", re.sub(r"/\*.*?\*/", "", given, flags=re.DOTALL)).strip())


def render(template: str, **values: Any) -> str:
    """The HTML of a template that is filled in."""
    return _environment().get_template(template).render(style=_style(), **values)


def write_report(
    path: Path, title: str, tables: Mapping[str, pd.DataFrame], figures: Iterable[Path], lead: str = ""
) -> Path:
    """Write a page with figures (SVG files that we drew ourselves, put into the page) and tables by their headings."""
    # What follows the name of the outermost tag, in which the page writes a label for those who cannot see it.
    drawings = [(path.stem, Markup(path.read_text(encoding="utf-8").partition("<svg")[2])) for path in figures]
    shown = {name: Table.from_frame(frame) for name, frame in tables.items()}
    images = any("data:image/" in svg for _, svg in drawings)
    page = render("page.html.j2", title=title, lead=lead, has_images=images, drawings=drawings, tables=shown)
    return write_text(path, page)


class Section(NamedTuple):
    """A part of the page: its heading, the macro that shows it, the values of that, and a CSS class."""

    heading: str
    macro: str
    values: Any
    css: str = ""


def write(
    path: Path,
    result: Explanation,
    title: str,
    tables: Mapping[str, pd.DataFrame],
    baselines: Mapping[str, Explanation],
    by: By | Sequence[By],
    pages: int,
    about: Mapping[str, str],
) -> Path:
    """Write the page of an explanation; see `Explanation.to_html`."""
    if isinstance(pages, bool) or not isinstance(pages, int) or pages < 0:
        raise InputError(f"pages is {pages!r}; expected how many people get a page, a whole number from 0")
    method, several = str(result.request["method"]), result.plans > 1
    unit = "people" if several else "rows"
    latent = Map.around(result.landscape, result.paths, result.schema) if len(result.landscape) else None
    models = _models(result.quality, result.schema) if "verdict" in result.quality else {}
    compared = {method: result, **baselines}
    comparison = both_tables({name: each.plan(1) if each.plans > 1 else each for name, each in compared.items()})
    groups = [
        with_labels(result.summary(each), result.schema) for each in ([by] if isinstance(by, str | pd.Series) else by)
    ]
    sheets = _sheets(result, pages, latent)
    if result._of_numbers:
        comparison = {name: table.drop(columns="confidence", errors="ignore") for name, table in comparison.items()}
        groups = [table.drop(columns="confidence", errors="ignore") for table in groups]

    heading = "Beside other methods" if len(compared) > 1 else "In numbers"
    sections = [Section(f"All {unit} at a glance", "overview", _overview(result, len(sheets), unit), "page")]
    values = _methods(comparison, method, result.schema)
    values |= {"several": several, "is_alone": len(compared) == 1, "none": _found_none(compared)}
    sections.append(Section(heading, "methods", values, "page"))
    if groups:
        sections.append(Section("By subgroup", "groups", _groups(groups, comparison, result.schema)))
    sections += [
        Section(name, "listing", Table.from_frame(each.map(partial(wording.rounded, digits=4))))
        for name, each in tables.items()
    ]
    if latent is not None:
        sections.append(Section("Where the paths lead", "latent_map", _map(result, latent)))
    if models or result.diagnostics:
        sections.append(Section("Are the models good enough?", "models", models or result.diagnostics))
    meanings = _meanings(result.schema)
    if meanings.rows:
        sections.append(Section("What the features are", "listing", meanings))
    sections.append(Section("How this was made", "provenance", _provenance(result, about)))
    if sheets:
        sections.append(Section("Person by person" if several else "Row by row", "people", sheets, "page sheets"))
    page = render(
        "explanation.html.j2",
        title=title,
        lead=result._headline,
        has_images=False,
        notice=wording.NOTICE,
        alarm=models if models.get("level") == "bad" else None,
        numbers=_key_numbers(result, unit),
        codes=latent.codes if latent else "",
        sections=sections,
        **_most_changed(result),
    )
    return write_text(path, page)


def _key_numbers(result: Explanation, unit: str) -> dict[str, str]:
    """What to know first, each number by its name."""
    row, several = result.summary().iloc[0], result.plans > 1
    gaps = {"of them only across a gap": wording.percent(row["gaps"])} if row["gaps"] > 0 else {}
    each = {"plans each, mean": wording.rounded(row["plans"], 2)} if several else {}
    return {
        unit: wording.value(row["n"]),
        "searched": wording.value(row["explained"]),
        "of them with a plan" if several else "of them found": wording.percent(row["found"]),
        **gaps,
        **each,
        "features changed, mean": wording.rounded(row["l0"], 2),
        "steps, mean": wording.rounded(row["steps"], 2),
    }


def _most_changed(result: Explanation) -> dict[str, Any]:
    """What changes most, as bars; the rest by name."""
    features = tally(*result._found, result._numeric, result.schema)
    rows = []
    for each in features[:_FEATURES_AT_FIRST]:
        other = max(each.share - each.up - each.down, 0.0)
        shares = {"up": each.up, "down": each.down, "swap": other}
        rows.append((each.feature, charts.bar(shares, wording.percent(each.share)), each.typical))
    rest = (f"{each.feature} {wording.percent(each.share)}" for each in features[_FEATURES_AT_FIRST:])
    return {
        "most": Table(("feature", "how often", "typical change"), rows, css="most"),
        "less_often": ", ".join(rest),
        "unit": "plans" if result.plans > 1 else "rows",
    }


def _methods(comparison: Mapping[str, pd.DataFrame], own: str, schema: Schema) -> dict[str, Any]:
    """This and other methods side by side, over their own and over common rows."""
    tables = []
    common = comparison[COMMON]["n"].iloc[0] if COMMON in comparison else 0
    for title, table in comparison.items():
        if title == COMMON and not common:
            continue  # a table of dashes
        counts = sorted({int(count) for count in table["n"]})
        over = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        tables.append(_readable(table, caption=f"{title} (n = {over}).", css="wide", own=own))
    return {
        "tables": tables,
        "differ": COMMON in comparison and not common,
        "terms": _terms(comparison.values(), schema),
    }


def _found_none(compared: Mapping[str, Explanation]) -> dict[str, str]:
    """Why methods found nothing for anybody, by their names: the first sentence of the reason that is most frequent."""
    reasons = {}
    for name, each in compared.items():
        failed = each.status.loc[each.status["status"] == StatusCode.NOT_FOUND, "reason"]
        if len(failed) and not each.status["status"].isin(FOUND).any():
            reasons[name] = failed.str.partition(". ")[0].mode().iloc[0].rstrip(".")
    return reasons


def _groups(groups: Sequence[pd.DataFrame], comparison: Mapping[str, pd.DataFrame], schema: Schema) -> dict[str, Any]:
    """The summary by subgroup, with a mark at small ones; meanings that the comparison has are not said again."""
    tables = []
    for table in groups:
        few, by = table["explained"].to_numpy(int) < FEW, table.index.name
        labels = [f"{label} *" if mark else label for label, mark in zip(table.index, few, strict=True)]
        marked = table.set_axis(pd.Index(labels, name=by), axis=0)
        tables.append((_readable(marked, caption=f"By {by}.", css="wide"), bool(few.any())))
    known = _terms(comparison.values(), schema)
    new = {label: text for label, text in _terms(groups, schema).items() if label not in known}
    return {"tables": tables, "few": FEW, "terms": new}


def _readable(table: pd.DataFrame, **other: str) -> Table:
    """A table of numbers by name, as people read it, with its index in the first column."""
    meanings = {str(name): MEANINGS.get(str(name), wording.Meaning(str(name), "")) for name in table}
    cells = [[meaning.form(value) for value in table[name]] for name, meaning in meanings.items()]
    columns = (str(table.index.name or ""), *(meaning.label for meaning in meanings.values()))
    return Table(columns, list(zip(map(wording.value, table.index), *cells, strict=True)), **other)


def _terms(tables: Iterable[pd.DataFrame], schema: Schema) -> dict[str, str]:
    """What the columns of tables mean, by what they are called."""
    names, known = (str(name) for table in tables for name in table), wording.meanings(schema)
    return {known[name].label: known[name].text for name in names if name in known}


def _map(result: Explanation, latent: Map) -> dict[str, Any]:
    """The latent map with the first of the paths that have more than one step."""
    steps = result.paths["row"].value_counts()
    moving = sorted(steps[steps > 1].index.tolist())
    shown = moving[:MOST_PATHS]
    paths = [path for _, path in result.paths[result.paths["row"].isin(shown)].groupby("row")]
    more = f" of {len(moving)}" if len(moving) > len(shown) else ""
    caption = f"{len(shown)}{more} path{'' if len(moving) == 1 else 's'} on the latent map"
    drawing = latent.draw(paths, caption, "map big", size=0.6) + latent.legend
    return {"drawing": drawing, "caption": caption, "note": result.note}


_VERDICTS = {
    "good": "Nothing was found that speaks against trusting these explanations.",
    "fair": "Something is not as good as it could be: see below before you rely on it.",
    "bad": "Do not rely on these explanations before this is put right.",
}


def _models(quality: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """How good the models behind an explanation are: what is wrong first, then every number, with what it means."""
    level = quality["verdict"]
    where = "held-out rows" if quality["held_out"] else "training rows, because the table is small"
    kept = pd.DataFrame(quality["reconstruction"])
    shares = {name: kept[name].map(_percent) for name in ("kept", "guessing")}
    errors = kept["mean error"].map(lambda error: error if error == "–" else wording.rounded(float(error), 4))
    titles = kept["feature"].replace(wording.titles(schema))
    kept = kept.assign(**shares, **{"feature": titles, "mean error": errors})
    return {
        "level": level,
        "css": {"bad": "alarm", "good": "good"}.get(level, "fair"),
        "measured": f"{quality['rows']} {where}",
        "advice": _VERDICTS.get(level, ""),
        "findings": quality["findings"],
        "numbers": Table(("what was measured", "value", "meaning"), _model_numbers(quality, schema)),
        "kept": Table.from_frame(kept.rename(columns={"kept": "kept by the model", "guessing": "kept by guessing"})),
    }


def _model_numbers(quality: Mapping[str, Any], schema: Schema) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    if quality["accuracy"] is not None:
        meaning = "how often the model under explanation is right, each class counting the same; 100 % is always"
        rows.append(("balanced accuracy", _percent(quality["accuracy"]), meaning))
    if (predicted := quality.get("quality")) is not None:
        seen = "" if predicted["unseen"] else "; it may have been trained on these rows"
        low, high = (f"{end:.2f}" for end in predicted["auc_interval"])
        meaning = f"how well the model tells the classes apart (AUC, with its 95 % interval); 0.5 is by chance{seen}"
        rows.append(("tells the classes apart", f"{predicted['auc']:.2f} ({low} to {high})", meaning))
        meaning = (
            f"how far its probabilities are off; always giving the shares of the classes: {predicted['guessing']:.3f}"
        )
        rows.append(("log loss", f"{predicted['log_loss']:.3f}", meaning))
    shares = zip(quality["coverage"]["class"], quality["coverage"]["share"], strict=True)
    meaning = "share of the training rows that the model puts into this class: people who show what it takes"
    rows += [(f"decided {wording.class_text(schema, label)}", _percent(share), meaning) for label, share in shares]
    if quality["calibration"] is not None:
        on, off = (wording.rounded(quality["calibration"][name]) for name in ("sigma_on", "sigma_off"))
        auc, share = (_percent(quality["calibration"][name]) for name in ("auc", "sigma_share"))
        rows += [
            ("uncertainty on the data", on, "how unsure the generative model is where people are"),
            ("uncertainty off the data", off, "the same where nobody is; it should be far higher"),
            ("tells data from empty space", auc, "how often it does (AUC); 50 % is by chance"),
            ("uncertainty in the metric", share, "how much it weighs when paths are chosen"),
        ]
    if quality["agreement"] is not None:
        meaning = "how often the stand-in that is searched decides as the model itself, on"
        held_out, drawn, visited = (_percent(quality["agreement"][name]) for name in ("held_out", "drawn", "visited"))
        rows += [
            ("stand-in agrees", held_out, f"{meaning} held-out rows"),
            ("stand-in agrees, drawn rows", drawn, f"{meaning} rows that were made up"),
            ("stand-in agrees, visited rows", visited, f"{meaning} rows that searches visit"),
        ]
    return rows


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %".replace("-", "−") if share == share else "–"


def _meanings(schema: Schema) -> Table:
    """What is known of the features beside what people call them."""
    known = [feature for feature in schema if feature.label or feature.unit or feature.description]
    rows = [(feature.title, feature.unit, feature.description, feature.name) for feature in known]
    return Table(("feature", "unit", "meaning", "column"), rows)


def _provenance(result: Explanation, about: Mapping[str, str]) -> dict[str, Any]:
    """How it was made, so that it can be made again."""
    facts = [(name, wording.value(value)) for name, value in about.items()]
    return {
        "facts": Table(("what", "value"), facts + wording.describe_provenance(result.provenance)),
        "asked": Table(
            ("part of the request", "value", "meaning"), wording.describe_request(result.request, result.schema)
        ),
        "json": json.dumps(result.request, ensure_ascii=False),
    }


def _overview(result: Explanation, pages: int, unit: str) -> dict[str, Any]:
    """Everybody, a line each; the first of them with a link to their page."""
    rows: list[tuple[Any, ...]] = []
    for number, person in enumerate(result._people(MOST_LISTED) if len(result) else [], start=1):
        row = person.first
        names = [change.name for change in row.changes] if row.status.found else []
        more = f" and {len(names) - _NAMES_AT_A_GLANCE} more" if len(names) > _NAMES_AT_A_GLANCE else ""
        now, then = wording.probability(row.p_before), wording.probability(row.p_after)
        rows.append(
            (
                Markup('<a href="#person-{}">{}</a>').format(number, row.label) if number <= pages else row.label,
                f"{row.before} → {row.after}" if row.changes else row.before,
                ("" if row.wanted else now) if now == then or row.wanted else f"{now} → {then}",
                ", ".join(names[:_NAMES_AT_A_GLANCE]) + more,
                person.result,
            )
        )
    columns = ["row", "decision", "probability", "what changes", "result"]
    if result._of_numbers:
        del columns[2]
        rows = [(*row[:2], *row[3:]) for row in rows]
    table = Table(columns, rows, css="glance")
    total = result._count
    return {"table": table, "pages": pages, "total": total, "hidden": total - len(rows), "unit": unit}


class Plan(NamedTuple):
    """The path of a plan, or to the closest point that was reached if there is none.

    Attributes:
        row: All that there is to say about it.
        points: The points of its path; empty if it was not kept.
        lines: How it goes along the path, each a name, the values now and then, and a chart; empty if the path has
            fewer than two points.
        changes: Only what changes.
        hidden: How many features that end as they were are not among the lines.
        measures: The measures of its end.
    """

    row: Row
    points: pd.DataFrame
    lines: list[tuple[str, str, str, Markup]]
    changes: Table
    hidden: int
    measures: Mapping[str, float]


def _sheets(result: Explanation, most: int, latent: Map | None) -> list[dict[str, Any]]:
    """The pages of the first people: what is said, the plans, their costs, and who it is."""
    if not most or not len(result):
        return []
    measures, paths = result.measures(), dict(list(result.paths.groupby("row")))
    positions: dict[int, list[int]] = {}
    for position, number in enumerate(result._person.tolist()):
        positions.setdefault(number, []).append(position)
    sheets = []
    for number, person in enumerate(result._people(most)):
        plans = [
            _plan(result, row, paths.get(position, result.paths.iloc[:0]), measures.iloc[position])
            for row, position in zip(person.rows, positions[number], strict=True)
            # One that there is, or else the attempt to find the first.
            if row.status.found or (not person.found and row is person.first and row.status.searched)
        ]
        drawn = [plan.points for plan in plans if len(plan.points)]
        caption = f"Latent map: {wording.counted(len(drawn), 'path')} of row {person.first.label}"
        across = all(row.status is StatusCode.CROSSES_GAP for row in person.found)
        sheets.append(
            {
                "person": person,
                "css": "gap" if person.found and across else "yes" if person.first.status.valid else "",
                "reasons": _reasons(person),
                "compared": _compared(person.found),
                "plans": [plan for plan in plans if plan.row.changes or len(plan.points)],
                "costs": _costs([plan for plan in plans if plan.measures], result.schema),
                "facts": _facts(result, positions[number][0], person),
                "map": None if latent is None or not drawn else latent.draw(drawn, caption) + latent.legend,
            }
        )
    return sheets


def _reasons(person: Person) -> list[str]:
    """Why there is nothing, or nothing more, each reason once, with the plans that it is about if there are several."""
    plans = person.several and person.found
    rows = [row for row in person.shown if row.is_plan] if plans else [person.first]
    about = {reason: tuple(row for row in rows if row.reason == reason) for reason in (row.reason for row in rows)}
    return [reason if len(about) == 1 else f"{wording.which(rows)}: {reason}" for reason, rows in about.items()]


def _compared(rows: Sequence[Row]) -> list[Table]:
    """What changes, one row a feature: its value now, and in each plan, where nothing is said if it stays."""
    tables = []
    for start in range(0, len(rows), PLANS_IN_A_TABLE) if len(rows) > 1 else ():
        some = rows[start : start + PLANS_IN_A_TABLE]
        changes = [{change.feature: change for change in row.changes} for row in some]
        first = {name: change for each in reversed(changes) for name, change in each.items()}
        features = dict.fromkeys(name for each in changes for name in each)
        cells = [
            [first[name].name, first[name].old, *(each[name].then if name in each else "" for each in changes)]
            for name in features
        ]
        tables.append(Table(["feature", "now", *(f"plan {row.plan}" for row in some)], cells))
    return tables


def _costs(plans: Sequence[Plan], schema: Schema) -> Table | None:
    """What each plan costs, with what the numbers mean."""
    if not plans:
        return None
    left_out = ("confidence",) if plans[0].row.wanted else ()  # a regressor gives no probabilities
    names = [name for name in MEASURES if any(np.isfinite(plan.measures.get(name, np.nan)) for plan in plans)]
    names = [name for name in names if name not in left_out]
    heads = [f"plan {plan.row.plan}" if plan.row.is_plan else "value" for plan in plans]
    known = wording.meanings(schema, ROW_MEANINGS)
    shown = [(known[name], [plan.measures[name] for plan in plans]) for name in names]
    rows = [[meaning.label, *map(meaning.form, values), meaning.text] for meaning, values in shown]
    return Table(["measure", *heads, "meaning"], rows, css="costs")


def _facts(result: Explanation, position: int, person: Person) -> list[tuple[Feature, str, list[str], list[str]]]:
    """Every feature of a person, its value, what holds it, for instance "immutable", and what else to know about it."""
    imputed = result.status["imputed"].iloc[position]
    changed = {change.feature for row in person.found for change in row.changes}
    marks = {"filled in": imputed, "changes": changed}
    return [
        (
            feature,
            wording.amount(feature, result.factuals[feature.name].array[position]),
            _constraints(feature, result.request),
            [mark for mark, names in marks.items() if feature.name in names],
        )
        for feature in result.schema
    ]


def _constraints(feature: Feature, request: Mapping[str, Any]) -> list[str]:
    """What keeps a feature from changing freely."""
    if feature.immutable:
        return ["immutable"]
    direction = request.get("directions", {}).get(feature.name)
    ends, stays = (request.get(name, {}).get(feature.name) for name in ("ranges", "stay_within"))
    return [
        *([_NOT_ACTIONABLE] if not feature.actionable and feature.name not in request.get("unlock", ()) else []),
        *(["locked"] if feature.name in request.get("lock", ()) else []),
        *([_DIRECTIONS[direction]] if direction else []),
        *([constraints.describe_range(feature, tuple(ends))] if ends else []),
        *([f"always {constraints.describe_range(feature, tuple(stays))}"] if stays else []),
    ]


def _plan(result: Explanation, row: Row, path: pd.DataFrame, measures: pd.Series) -> Plan:
    stops: list[int] = []
    if row.status.found and len(path):
        milestones = list_milestones(path, result.schema, result._numeric, chosen=result._chosen)
        stops = np.flatnonzero(path["step"].isin(milestones["step"]))[1:].tolist()
        row = replace(row, steps=steps_between(milestones))
    features = path_features(path, result.schema.names)
    changed = {change.feature for change in row.changes}
    detours = [name for name in moving_features(features) if name not in changed]
    return Plan(
        row=row,
        points=path,
        lines=_lines(row, path, features, detours, result, stops) if len(path) > 1 else [],
        changes=Table(("feature", "now", "then"), [(change.name, change.old, change.then) for change in row.changes]),
        hidden=len(detours) - MOST_DETOURS,
        measures={str(name): float(value) for name, value in measures.items()},
    )


def _lines(
    row: Row,
    path: pd.DataFrame,
    features: pd.DataFrame,
    detours: Sequence[str],
    result: Explanation,
    stops: Sequence[int],
) -> list[tuple[str, str, str, Markup]]:
    """Probability, uncertainty, what changes, and what moves and ends as it was, each along the path."""
    axis = Axis(path["step"].to_numpy(float), stops)
    values = path["probability"].to_numpy(float)
    level = None if math.isnan(row.confidence) else row.confidence
    asked = "" if level is None else f", {wording.rounded(level)} asked"
    name = f"{row.measured}{asked}"
    if row.wanted:
        name = f"how near the prediction is to {row.wanted}; 1 is within"
    chart = axis.line(values, _PROBABILITIES, "p", level=level) + axis.numbers(values, _PROBABILITIES)
    lines = [(name, wording.probability(values[0]), wording.probability(values[-1]), chart)]
    uncertainty = path["uncertainty"].to_numpy(float)
    if np.isfinite(uncertainty).all():
        now, then = (wording.rounded(value, 2) for value in uncertainty[[0, -1]])
        lines.append(("uncertainty", now, then, axis.line(uncertainty, (0.0, float(uncertainty.max())), "u")))
    for change in row.changes:
        chart = _feature_chart(axis, features[change.feature], _span(result, features[change.feature]))
        lines.append((change.name, change.old, change.then, chart))
    for feature in (result.schema[name] for name in detours[:MOST_DETOURS]):
        chart = _feature_chart(axis, features[feature.name], _span(result, features[feature.name]), is_detour=True)
        start = features[feature.name].array[0]
        now, then = wording.shown(feature, start), wording.amount(feature, start)
        lines.append((feature.title, now, then, chart))
    return lines


def _span(result: Explanation, values: pd.Series) -> tuple[float, float] | None:
    """The range of a number that is one all along; None for a category, a code or a gap."""
    feature = result.schema[str(values.name)]
    return result._ranges.get(feature.name) if feature.is_measured(values).all() else None


def _feature_chart(
    axis: Axis, values: pd.Series, span: tuple[float, float] | None, *, is_detour: bool = False
) -> Markup:
    """One feature along the path: numbers as a line over their range, categories as stairs."""
    css = " back" if is_detour else ""
    if span is None:
        codes, _ = pd.factorize(values.astype(object), use_na_sentinel=False)
        return axis.stairs(codes.astype(float), f"c{css}")
    heights: NDArray[np.float64] = values.to_numpy(float)
    low, high = float(heights.min()), float(heights.max())
    if is_detour:  # over its own range a small detour would look like a large change
        low, high = min(low, span[0]), max(high, span[1])
    return axis.line(heights, (low, high), f"v{css}")
