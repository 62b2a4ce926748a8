"""The report of an audit, and of plans that many people share: one file for the screen and for paper."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from counterpath.explanation import wording
from counterpath.explanation.audit import ALWAYS, BETTER_HIGH, FEWEST, LEVEL, MEASURES, Audit
from counterpath.explanation.report.build import FEW, Table, render
from counterpath.explanation.shared import SharedPlans
from counterpath.utils.files import write_text

_WIDTH = 100.0  # of an interval, before the page stretches it: a width in percent
_MOST_SENTENCES = 12
"""Findings on the first page; all of them are in the tables after it."""
NOTICE = (
    "A difference says how the model's decisions can be changed by people as they are, group by group. It proves no "
    "discrimination, and its absence proves no fairness: groups differ in other features, too, and small differences "
    "go unseen. What was tested, and how, stands beside every number."
)


def write(path: Path, title: str, *, audit: Audit | None, shared: SharedPlans | None) -> Path:
    """Write the page of an audit, of shared plans, or of both."""
    given = audit if audit is not None else shared
    assert given is not None
    sections: list[tuple[str, str, Any]] = []
    if audit is not None:
        sections += _of_audit(audit)
    if shared is not None:
        sections.append(("Plans that many people share", "shared", _shared(shared)))
    sections.append(("How this was made", "made", _made(audit, shared)))
    page = render(
        "audit.html.j2",
        title=title,
        lead=given.headline,
        has_images=False,
        notice=NOTICE if audit is not None else wording.NOTICE,
        numbers=_numbers(audit, shared),
        findings=[] if audit is None else _findings(audit),
        sections=sections,
    )
    return write_text(path, page)


def _numbers(audit: Audit | None, shared: SharedPlans | None) -> dict[str, str]:
    """What to know first."""
    numbers: dict[str, str] = {}
    if audit is not None:
        count = audit.settings
        numbers |= {
            "people": f"{count['people']:,}",
            "rejected, and searched for": f"{count['searched']:,}",
            "differences tested": str(len(audit.differences)),
            "shown after correction": str(len(audit.shown)),
        }
    if shared is not None and len(shared):
        last = shared.curve.iloc[-1]
        numbers |= {
            f"served by {wording.counted(len(shared), 'shared plan')}": wording.percent(last["coverage"]),
            "mean cost of these": wording.rounded(last["mean cost"]),
        }
    return numbers


def _findings(audit: Audit) -> list[str]:
    """The first sentences; the tables have the rest."""
    more = len(audit.findings) - _MOST_SENTENCES
    return [*audit.findings[:_MOST_SENTENCES], *([f"… and {more} more, in the tables below."] if more > 0 else [])]


def _of_audit(audit: Audit) -> list[tuple[str, str, Any]]:
    sections: list[tuple[str, str, Any]] = [("Groups side by side", "groups", _groups(audit))]
    if len(audit.differences):
        sections.append(("Differences, and how sure they are", "differences", _differences(audit.differences)))
    if len(audit.effort):
        sections.append(("Equal effort", "effort", {"drawing": _drawn(audit.plot_effort), "few": FEWEST}))
    if len(audit.closing):
        sections.append(("What would close the gap", "closing", _closing(audit)))
    if len(audit.found):
        sections.append(("Groups that were found", "found", _found(audit)))
    return sections


def _groups(audit: Audit) -> dict[str, Any]:
    """A table for each grouping."""
    tables = []
    for name, lines in audit.groups.groupby("by", sort=False):
        measures = [column for column in MEASURES if column in lines and lines[column].notna().any()]
        columns = [str(name), "people", "rejected", "share", *(MEASURES[column].label for column in measures)]
        rows = []
        for line in lines.to_dict("records"):
            few = " *" if line["searched"] < FEW else ""
            cells = [MEASURES[column].form(line[column]) for column in measures]
            share = wording.percent(line["searched"] / line["n"]) if line["n"] else "–"
            rows.append([f"{line['group']}{few}", f"{line['n']:,}", f"{line['searched']:,}", share, *cells])
        tables.append(Table(columns, rows, caption=f"By {name}. Means over those who were searched for.", css="wide"))
    names = [column for column in MEASURES if column in audit.groups and audit.groups[column].notna().any()]
    return {"tables": tables, "terms": {MEASURES[name].label: MEASURES[name].text for name in names}, "few": FEW}


def _differences(differences: pd.DataFrame) -> dict[str, Any]:
    """A table for each comparison, with the interval as a drawing."""
    tables = []
    for (by, group, against), lines in differences.groupby(["by", "group", "against"], sort=False):
        rows = [_difference(line) for line in lines.to_dict("records") if line["difference"] == line["difference"]]
        caption = f"{by}: {group} ({_counts(lines, 'n')}) against {against} ({_counts(lines, 'n_against')})."
        tables.append(Table(_HEADINGS, rows, caption=caption, css="differences"))
    return {"tables": tables, "count": len(differences), "fewest": FEWEST}


_HEADINGS = (
    *("measure", "group", "others", "difference (95 % interval)", "", "p", "p, Holm", "p, B–H"),
    *("pairs", "among pairs alike (95 % interval)", "p"),
)


def _counts(lines: pd.DataFrame, column: str) -> str:
    """How many people a mean is over: those searched for, and those found where these are fewer."""
    always = lines[lines["measure"].isin(ALWAYS)][column].max()
    found = lines[~lines["measure"].isin(ALWAYS)][column].max()
    return f"{always:,} people" + (f", {found:,} of them found" if found == found and found < always else "")


def _difference(line: Mapping[Any, Any]) -> list[str]:
    meaning, worse = MEASURES[str(line["measure"])], (line["difference"] < 0) == (line["measure"] in BETTER_HIGH)
    form: Callable[[Any], str] = meaning.form
    shown = line["p_holm"] < LEVEL
    mark = Markup('<b class="{}">{}</b>').format("worse" if worse else "better", "worse off" if worse else "better off")
    label = Markup("{} {}").format(meaning.label, mark) if shown else meaning.label
    matched = "–"
    if line["matched"] == line["matched"]:
        ends = " to ".join(_short(line[end], form) for end in ("matched_low", "matched_high"))
        matched = f"{_short(line['matched'], form)} ({ends})"
    return [
        label,
        form(line["mean"]),
        form(line["mean_against"]),
        with_interval(line),
        _interval(line["difference"], line["low"], line["high"], line["mean_against"], shown),
        p_text(line["p"]),
        p_text(line["p_holm"]),
        p_text(line["p_bh"]),
        f"{int(line['pairs']):,}",
        matched,
        p_text(line["matched_p"]),
    ]


def _short(value: float, form: Any) -> str:
    """A difference with its sign, shares in percent points."""
    sign = "+" if value > 0 else "−" if value < 0 else ""
    if form is wording.percent:
        return f"{sign}{abs(100 * value):.1f} pp"
    return f"{sign}{wording.rounded(abs(float(value)), 2)}"


def with_interval(line: Mapping[Any, Any]) -> str:
    """A difference with its 95 % interval."""
    form = MEASURES[str(line["measure"])].form
    difference, low, high = (_short(line[name], form) for name in ("difference", "low", "high"))
    return f"{difference} ({low} to {high})"


def p_text(value: float) -> str:
    """A p as short as it may be read."""
    return "–" if value != value else "<0.001" if value < 0.001 else f"{value:.3f}"


def _interval(difference: float, low: float, high: float, scale: float, shown: bool) -> Markup:
    """A difference as a dot with its interval as a line, on a scale of its own around none."""
    reach = max(abs(low), abs(high), abs(difference), 0.05 * abs(scale), 1e-9) * 1.08  # room at the ends
    low_x, high_x, x = (_WIDTH / 2 * (1 + each / reach) for each in (low, high, difference))
    css = "sure" if shown else "open"
    return Markup(
        '<svg class="interval {}" viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true">'
        '<line class="none" x1="50" x2="50" y1="0" y2="20"/><line x1="{:.1f}" x2="{:.1f}" y1="10" y2="10"/>'
        '<line class="dot" x1="{:.1f}" x2="{:.1f}" y1="4" y2="16"/></svg>'
    ).format(css, low_x, high_x, x, x)


def _drawn(plot: Callable[[Path], Any]) -> Markup:
    """A figure as SVG that stands in the page."""
    with tempfile.TemporaryDirectory() as folder:
        plot(Path(folder) / "figure")
        drawn = (Path(folder) / "figure.svg").read_text(encoding="utf-8")
    return Markup("<svg" + drawn.partition("<svg")[2])  # we drew it ourselves


def _closing(audit: Audit) -> Sequence[Table]:
    tables = []
    for (by, group, against), lines in audit.closing.groupby(["by", "group", "against"], sort=False):
        rows = [
            [
                str(line["what"]),
                "beyond what was found"
                if line["group value"] == float("inf")
                else wording.rounded(line["group value"]),
                wording.rounded(line["others"]),
                "–" if line["difference"] == float("inf") else _short(line["difference"], wording.rounded),
            ]
            for line in lines.to_dict("records")
        ]
        tables.append(
            Table(("", str(group), str(against), "difference"), rows, caption=f"{by}: {group} against {against}.")
        )
    return tables


def found_table(audit: Audit) -> Table | None:
    """The groups that the tree found and whose difference was shown; None if there are none."""
    shown = audit.found[audit.found["p_holm"] < LEVEL]
    rows = []
    for line in shown[shown["measure"].isin(("found", "within", "l1", "l0"))].to_dict("records"):
        form = MEASURES[str(line["measure"])].form
        cells = [MEASURES[str(line["measure"])].label, f"{line['n']:,}", form(line["mean"]), form(line["mean_against"])]
        rows.append([str(line["group"]), *cells, with_interval(line), p_text(line["p_holm"])])
    columns = ("group", "measure", "people", "group", "others", "difference (95 % interval)", "p (Holm)")
    return Table(columns, rows) if rows else None


def _found(audit: Audit) -> dict[str, Any]:
    return {"table": found_table(audit), "tested": len(audit.found)}


def plan_table(shared: SharedPlans) -> Table:
    """What each plan asks, who takes it, and what it costs them."""
    rows = [
        [
            str(plan),
            str(line["what"]),
            wording.percent(line["takes it"]),
            wording.percent(line["could take it"]),
            wording.rounded(line["mean cost"]),
            str(line["typically"]),
        ]
        for plan, line in shared.table.iterrows()
    ]
    columns = ("plan", "what it asks", "take it", "could", "mean cost", "what they need of it, at the median")
    return Table(columns, rows, css="plans")


def curve_table(shared: SharedPlans) -> Table:
    """Whom the first plan serves, the first two, and so on."""
    rows = [
        [
            str(k),
            wording.percent(line["coverage"], 1),
            wording.rounded(line["mean cost"]),
            wording.percent(line["of the best"]),
        ]
        for k, line in shared.curve.iterrows()
    ]
    return Table(("plans", "served", "mean cost", "of the best choice, at least"), rows)


def served_by_group(shared: SharedPlans) -> Table | None:
    """Whom of each group the plans serve, and what the best plans for it alone would come to; None without groups."""
    groups = shared.group_table()
    if groups is None:
        return None
    lines = [
        [
            str(label),
            f"{int(line['n']):,}",
            wording.percent(line["coverage"]),
            wording.rounded(line["mean cost"]),
            wording.percent(line["alone coverage"]),
            wording.rounded(line["alone mean cost"]),
        ]
        for label, line in groups.iterrows()
    ]
    heads = (str(groups.index.name), "people", "served", "mean cost", "served by its own best", "mean cost of that")
    return Table(heads, lines)


def _shared(shared: SharedPlans) -> dict[str, Any]:
    return {
        "headline": shared.headline,
        "table": plan_table(shared),
        "curve": curve_table(shared),
        "drawing": _drawn(shared.plot_curve) if len(shared) else "",
        "groups": served_by_group(shared),
        "candidates": shared.settings.get("candidates", 0),
    }


def _made(audit: Audit | None, shared: SharedPlans | None) -> Sequence[tuple[str, str]]:
    given = audit if audit is not None else shared
    assert given is not None
    lines = [*wording.describe_provenance(given.provenance)] if given.provenance else []
    if given.request:
        lines += [(name, f"{text}") for name, text, _ in wording.describe_request(given.request, given.schema)]
    if audit is not None:
        settings = audit.settings
        lines += [
            (
                "tests",
                f"{settings['permutations']:,} permutations of Welch's t; level {LEVEL:.0%}; seed {settings['seed']}",
            ),
            ("intervals", f"{settings['resamples']:,} bootstrap resamples, percentiles"),
        ]
        lines += [("sample", str(settings["sample"]))] if "sample" in settings else []
    if shared is not None:
        lines.append(
            ("shared plans", f"{shared.settings.get('candidates')} candidates on everybody, after a screening")
        )
    return [(str(escape(name)), text) for name, text in lines]
