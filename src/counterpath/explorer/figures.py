"""The figures of the explorer: one look and stacked panels for all of them; the path of a row, and many rows at once.

Figures are plain dictionaries, made without any element of the page. Plotly reads tags (`<b>`, `<a>`, `<br>`) and
entities in every label, tick and hover, and `%{…}` in templates. So whatever comes from a table goes through `label`,
or `template_label`.
"""

import html
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.data.schema import Feature
from counterpath.data.status import FOUND
from counterpath.explanation import Explanation, wording
from counterpath.explanation.plots.style import INK, MOST_FEATURES, PALETTE, SOFT
from counterpath.explanation.summary import change_shares, commonest_change
from counterpath.explanation.tables import differences, moving_features, path_features

Figure: TypeAlias = dict[str, Any]
"""What `nicegui.ui.plotly` takes: `data`, `layout` and `config`, all of it plain values that fit JSON."""

RISES, FALLS, SWAPS = "#0072B2", "#D55E00", "#8a929c"
"""The colours of a number that rises, one that falls, and a category that becomes another."""
LINE = "#d9dee4"
_GRID = {"showgrid": True, "gridcolor": LINE}
BACKDROP = "rgba(255,255,255,0.85)"
"""Behind words, so that lines do not run through them."""
FONT = 12
"""Pixels, a step below the 15 of the page's text, so that names and numbers fit beside each other on a phone."""
SMALL_FONT = 11
"""Pixels, the smallest that is still read without effort."""
HEADING_INDENT = 4
"""Pixels from the left edge of a figure to headings and captions, so that no letter touches the edge."""
_FAMILY = "system-ui, -apple-system, 'Segoe UI', sans-serif"
_CONFIG = {
    "displaylogo": False,
    "displayModeBar": False,
    "typesetMath": False,
    "scrollZoom": False,
    "responsive": False,  # `elements.Drawing` sees to it
}
_DIGITS = 5
"""Significant digits of coordinates: one in 100,000 is less than a pixel, and more would double what is sent."""


def label(value: Any, width: int = 28) -> str:
    """A value as a label: at most so many characters, none of which plotly takes for markup."""
    text = " ".join(wording.value(value).split())
    return html.escape(text if len(text) <= width else text[: width - 1] + "…", quote=False)


def template_label(value: Any) -> str:
    """A value as a part of a hover's template, in which percent signs begin fields."""
    return label(value).replace("%", "&#37;")


def annotation(text: str, **options: Any) -> dict[str, Any]:
    """Words on a figure, in its own coordinates; the text is markup."""
    anchor = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    return {**anchor, "text": text, "font": {"size": FONT, "color": INK}, **options}


def caption(text: str, below: int, left: int = 0) -> dict[str, Any]:
    """A remark below a figure, in lines that fit a phone.

    Args:
        text: The remark.
        below: How many pixels under the panels it begins.
        left: How many pixels left of them.
    """
    lines = [html.escape(line, quote=False) for line in textwrap.wrap(text.replace(" %", "\u00a0%"), width=54)]
    shift = {"yanchor": "top", "yshift": -below, "xshift": -left}
    return annotation("<br>".join(lines), x=0, y=0, **shift, align="left", font=soft_font())


def soft_font(size: int = SMALL_FONT) -> dict[str, Any]:
    """The font of what is less important."""
    return {"size": size, "color": SOFT}


def title(text: str, **options: Any) -> dict[str, Any]:
    """What an axis or a scale is of."""
    return {"text": text, "font": soft_font(), **options}


def axis(**options: Any) -> dict[str, Any]:
    """An axis without decoration that cannot be dragged."""
    bare = {"showgrid": False, "zeroline": False, "fixedrange": True, "tickfont": soft_font(), "ticks": ""}
    return {**bare, **options}


def legend(**options: Any) -> dict[str, Any]:
    """A legend in one line above the panels."""
    return {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "font": {"size": SMALL_FONT}, **options}


def scatter(x: Iterable[float], y: Iterable[float], mode: str, **options: Any) -> dict[str, Any]:
    """Points, a line through them, or both."""
    return {"type": "scatter", "x": rounded(x), "y": rounded(y), "mode": mode, **options}


def heatmap(values: Iterable[Iterable[float]], low: float, high: float, **options: Any) -> dict[str, Any]:
    """Cells coloured by their values, from the colour of `low` to that of `high`."""
    cells = {"type": "heatmap", "z": [rounded(row) for row in values], "zmin": low, "zmax": high, "hoverinfo": "skip"}
    return {**cells, **options}


def rounded(values: Iterable[float]) -> list[float | None]:
    """Numbers with few digits, because nobody sees more on a screen; None where there is none."""
    return [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in values]


def figure(traces: Iterable[dict[str, Any]], description: str, *, height: int, **layout: Any) -> Figure:
    """A figure that is as wide as there is room.

    Args:
        traces: What is drawn.
        description: What it shows, in words, for people who do not see it: see `description_of`.
        height: In pixels.
        layout: The rest of the layout.
    """
    common = {
        "autosize": True,
        "height": height,
        "font": {"family": _FAMILY, "size": FONT, "color": INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {"bgcolor": "white", "bordercolor": LINE, "align": "left", "font": {"size": FONT, "color": INK}},
        "hovermode": "closest",
        "showlegend": False,
        "dragmode": False,
        "meta": description,
    }
    return {"data": list(traces), "layout": {**common, **layout}, "config": dict(_CONFIG)}


def description_of(drawn: Figure) -> str:
    """What a figure shows, in words: the label of its element for screen readers."""
    return str(drawn["layout"]["meta"])


def empty_figure(reason: str) -> Figure:
    """A figure that says why there is nothing to see."""
    middle = {"x": 0.5, "y": 0.5, "xanchor": "center", "yanchor": "middle"}
    words = annotation(html.escape(reason, quote=False), **middle, font=soft_font(FONT))
    hidden = {"visible": False, "fixedrange": True}
    return figure([], reason, height=120, annotations=[words], xaxis=hidden, yaxis=hidden)


@dataclass(frozen=True)
class Panel:
    """One of several panels below each other.

    Attributes:
        heading: What it shows, as markup.
        height: In pixels.
        traces: Without their axes.
        y: What its y-axis has beside its domain.
        x: What its x-axis has; nothing for the x-axis of the whole figure.
    """

    heading: str
    height: int
    traces: tuple[dict[str, Any], ...]
    y: dict[str, Any]
    x: dict[str, Any] = field(default_factory=dict)


def stacked(
    panels: Sequence[Panel],
    description: str,
    *,
    heading: int,
    gap: int,
    margin: dict[str, int],
    annotations: Sequence[dict[str, Any]],
    **layout: Any,
) -> Figure:
    """A figure of panels below each other, each under its heading.

    Args:
        panels: From top to bottom.
        description: As for `figure`.
        heading: Pixels above each panel for what it shows.
        gap: Pixels between a panel and the next heading.
        margin: Pixels around all of them, by `l`, `r`, `t` and `b`.
        annotations: Further words.
        layout: The rest of the layout.
    """
    inner = sum(panel.height + heading + gap for panel in panels) - gap
    traces, axes, words, top = [], {}, [], 0
    for number, panel in enumerate(panels, start=1):
        name = "" if number == 1 else str(number)
        high, low = 1 - (top + heading) / inner, 1 - (top + heading + panel.height) / inner
        axes[f"yaxis{name}"] = axis(domain=[max(0.0, low), high], **panel.y)
        if panel.x:
            axes[f"xaxis{name}"] = axis(anchor=f"y{name}", **panel.x)
            axes[f"yaxis{name}"]["anchor"] = f"x{name}"
        traces += [{**one, "xaxis": f"x{name if panel.x else ''}", "yaxis": f"y{name}"} for one in panel.traces]
        shift = {"yshift": 2, "xshift": HEADING_INDENT - margin["l"]}
        words.append(annotation(panel.heading, x=0, y=high, **shift, bgcolor=BACKDROP))
        top += heading + panel.height + gap
    height = inner + margin["t"] + margin["b"]
    return figure(
        traces, description, height=height, margin=margin, annotations=[*words, *annotations], **axes, **layout
    )


_HEADING, _GAP = 22, 10
"""Pixels above each panel of a path for a line of what it shows, and below it for some air."""
_PROBABILITY, _UNCERTAINTY, _NUMBER, _CATEGORY = 112, 54, 46, 32
"""Heights of panels in pixels: as much as each needs to be read, so that ten features still fit a screen or two."""
_MARGIN = {"l": 52, "r": 16, "t": 6, "b": 46}
"""Pixels: on the left six digits fit, below the steps and what they are."""
_MOST_MARKERS = 40
"""A path of more points is a line without markers, which would run into each other on a phone."""
_VALUE_WIDTH = 40
"""Characters of a number with its unit: the 24 of any number are never cut, for that would be another one."""
_TICK_WIDTH = 7
"""Characters of a number that fit left of the panels."""
_MOST_VISITED = 4
"""So many categories, one after the other, fit a heading on a phone."""
_HIGH_CONFIDENCE = 0.8
"""Above it there is no room over the line of the confidence for what it says: that is written below."""
_CURSOR = 0.0035
"""The width of the cursor as a share of all steps: a pixel or two."""
_POINT = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGOQllcBAAC3AF+0tpLBAAAAAElFTkSuQmCC"
)
"""A picture of one point, in the colour `plots.INK`."""


def path_figure(result: Explanation, i: Any) -> Figure:
    """The path of one row: every feature that moves, below probability and uncertainty, with a cursor at the end.

    `cursor` moves it: a picture of one dark point, stretched. Plotly moves a picture in under a millisecond, where it
    computes and draws the whole figure again for a line.

    Args:
        result: The explanation.
        i: The row, as in `Explanation.path`.

    Raises:
        InputError: There is no such row, or its path was not kept.
    """
    path = result.path(i)
    features = path_features(path, result.schema.names)
    moving = moving_features(features)
    drawn = moving[:MOST_FEATURES]
    steps, probabilities = path["step"].tolist(), path["probability"].tolist()
    milestones = result.milestones(i).iloc[1:]
    (row,) = result._describe([result._position(i, None)])
    confidence, measured = row.confidence, row.measured
    panels = [_probability_panel(steps, probabilities, milestones, measured)]
    if path["uncertainty"].notna().any():
        panels.append(_number_panel(steps, path["uncertainty"], PALETTE[3], _UNCERTAINTY))
    panels += [
        _number_panel(steps, features[name], PALETTE[4], _NUMBER, result.schema[name])
        if name in result._numeric and result.schema[name].is_measured(features[name]).all()
        else _category_panel(steps, features[name], result.schema[name])
        for name in drawn
    ]
    titles = wording.titles(result.schema)
    first, last = (steps[0], steps[-1]) if len(steps) > 1 else (steps[0] - 1, steps[0] + 1)
    beside, hidden = 0.02 * (last - first), len(moving) - len(drawn)
    asked = annotation(
        f"asked: {wording.rounded(confidence)}",
        x=0,
        y=confidence,
        yref="y",
        yanchor="top" if confidence > _HIGH_CONFIDENCE else "bottom",
        xshift=2,
        font=soft_font(),
    )
    has_level = confidence == confidence  # NaN where only the decision counts
    level = {"x0": 0, "x1": 1, "xref": "paper", "y0": confidence, "y1": confidence, "yref": "y"}
    marks = milestones["step"].tolist() if len(milestones) > 1 else []
    line = {"type": "line", "layer": "below"}
    shapes = [{**line, **level, "line": {"color": INK, "width": 1, "dash": "dash"}}] if has_level else []
    shapes += [
        {**line, "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": {"color": "#b9d4e6", "width": 1}}
        for x in marks
    ]
    at = {"x": steps[-1], "xref": "x", "xanchor": "center", "y": 1, "yref": "paper", "layer": "below"}
    size = {"sizex": _CURSOR * (last - first), "sizey": 1, "sizing": "stretch"}
    return stacked(
        panels,
        f"Path of {steps[-1]} steps: the {measured} goes from {wording.probability(probabilities[0])} to "
        f"{wording.probability(probabilities[-1])}; moving features: "
        f"{wording.listed([titles[name] for name in moving]) or 'none'}.",
        heading=_HEADING,
        gap=_GAP,
        margin=_MARGIN,
        annotations=[asked] if has_level else [],
        hovermode="x unified",
        hoversubplots="axis",
        xaxis=axis(
            range=[first - beside, last + beside],
            anchor=f"y{'' if len(panels) == 1 else len(panels)}",
            title=title("step" + (f" ({hidden} more features move)" if hidden else ""), standoff=6),
            ticks="outside",
            tickcolor=LINE,
            tickformat="d",
            nticks=8,
            unifiedhovertitle={"text": "step %{x}"},
        ),
        shapes=shapes,
        images=[{"source": _POINT, **at, **size}],
    )


def cursor(step: int) -> dict[str, Any]:
    """What to call `Plotly.relayout` with to move the cursor of a `path_figure`: nothing else is drawn again."""
    return {"images[0].x": step}


def _heading(name: str, *values: str) -> str:
    return f"<b>{label(name, 26)}</b>  {' → '.join(values)}"


def _probability_panel(steps: list[int], values: list[float], milestones: pd.DataFrame, measured: str) -> Panel:
    texts = [label(wording.probability(value)) for value in values]
    traces = [_line(steps, values, RISES, measured.partition(" ")[0], texts)]
    if len(milestones) > 1:
        numbers: dict[str, Any] = {
            "text": [str(number) for number in range(1, len(milestones) + 1)],
            "textfont": {"size": SMALL_FONT, "color": "white"},
            "textposition": "middle center",
        }
        marker = {"size": 18, "color": RISES, "line": {"color": "white", "width": 1.5}}
        at = milestones["step"], milestones["probability"]
        traces.append(scatter(*at, "markers+text", **numbers, marker=marker, hoverinfo="skip", cliponaxis=False))
    heading = _heading(measured, texts[0], texts[-1])
    ticks = {"range": [-0.04, 1.04], "tickvals": [0, 0.5, 1], "showgrid": True, "gridcolor": "#eef1f4"}
    return Panel(heading, _PROBABILITY, tuple(traces), ticks)


def _number_panel(
    steps: list[int], values: pd.Series, color: str, height: int, feature: Feature | None = None
) -> Panel:
    """Numbers as a line over all that they move, on a scale that says where it begins and ends, in original units.

    Those of a feature have every digit; others are measures, and rounded.
    """
    name, numbers = str(values.name) if feature is None else feature.title, values.astype(float).tolist()
    known = [value for value in numbers if value == value]
    ends = sorted({min(known), max(known)})
    scale = {"range": _padded(known), "tickvals": ends, "ticktext": [_tick(end) for end in ends]}
    written = [wording.rounded(value, 4) if feature is None else wording.value(value) for value in values.array]
    unit = "" if feature is None else feature.unit
    line = _line(steps, numbers, color, name, [label(f"{text} {unit}", _VALUE_WIDTH) for text in written])
    first, last = label(written[0], _VALUE_WIDTH), label(f"{written[-1]} {unit}", _VALUE_WIDTH)
    return Panel(_heading(name, first, last), height, (line,), scale)


def _tick(value: float) -> str:
    """A number beside its axis: as it is if there is room, else rounded, which it says."""
    text = wording.value(value)
    return text if len(text) <= _TICK_WIDTH else f"≈{wording.rounded(value)}"


def _category_panel(steps: list[int], values: pd.Series, feature: Feature) -> Panel:
    """Categories as steps, and in the heading those that are visited one after the other."""
    name, codes = feature.title, [float(code) for code in pd.factorize(values.astype(object))[0]]
    texts = [wording.shown(feature, value) for value in values.array]
    line = _line(steps, codes, PALETTE[2], name, [label(text, 40) for text in texts])
    line["line"]["shape"] = "hv"
    visited = [texts[0], *(new for old, new in pairwise(texts) if old != new)]
    between = visited[1:-1] if len(visited) <= _MOST_VISITED else ["…"]
    heading = _heading(name, *(label(value, 20) for value in [visited[0], *between, visited[-1]]))
    return Panel(heading, _CATEGORY, (line,), {"range": _padded(codes), "showticklabels": False})


def _line(steps: list[int], values: list[float], color: str, name: str, texts: list[str]) -> dict[str, Any]:
    return scatter(
        steps,
        values,
        "lines+markers" if len(steps) <= _MOST_MARKERS else "lines",
        line={"color": color, "width": 2},
        marker={"color": color, "size": 4},
        name=label(name),
        customdata=texts,
        hovertemplate=f"{template_label(name)}: <b>%{{customdata}}</b><extra></extra>",
        cliponaxis=False,
    )


def _padded(values: list[float]) -> list[float]:
    low, high = min(values), max(values)
    margin = 0.14 * ((high - low) or 1.0)
    return [low - margin, high + margin]


FEW = 30
"""Groups of fewer people are marked: the 95 % interval of a share of so few may be wider than a third."""
MEASURES = {
    "found": "counterfactual found, share of those explained",
    "l1": "distance L1, mean",
    "steps": "steps of the path, mean",
}
"""What is drawn by group: columns of `Explanation.summary`, each with its axis label."""
SHARES = ("found", "gaps")
_MOST_GROUPS, _MOST_COLUMNS = 12, 6
"""Groups that are drawn: below each other as many as fit a screen, beside each other as many as fit a phone."""
_LEFT = 130
"""Pixels left of the panels for the names of groups and features: 18 characters."""
_NAME_WIDTH = 18
"""Characters of a name that fit there."""
_GROUP_HEIGHT = 36
"""Pixels of a group: two lines of its name."""
_NORMAL_QUANTILE = 1.96
"""97.5 % of a normal distribution lie below: for intervals of 95 %."""
_FEATURE_HEIGHT, _FEATURE_HEADING, _BAR = 46, 20, 14
"""Pixels of a feature, of the line above its bar, and of the bar itself, with some air."""
_COLUMNS_WIDTH, _LEAST_COLUMN = 34, 8
"""Characters that fit beside each other over all columns on a phone, and the fewest of a column that say something."""
_DARK = 0.55
"""Cells of a smaller share are too dark for black letters."""
_DIRECTIONS = {1: ("rises", RISES), -1: ("falls", FALLS), 0: ("changes category", SWAPS)}
"""By the sign of a change what it is called, and its colour."""


def measures_figure(summary: pd.DataFrame) -> Figure:
    """Measures by group, one panel a measure and one dot a group; groups of few people are hollow.

    Args:
        summary: What `Explanation.summary(by=…)` returns, as `with_labels` has it; measures that no group has are left
            out.
    """
    known = [name for name in MEASURES if name in summary and summary[name].notna().any()]
    if not known or not len(summary):
        return empty_figure("There is no measure to compare by group.")
    table = summary.head(_MOST_GROUPS)
    count, hidden = len(table), len(summary) - len(table)
    by = summary.index.name or "group"
    remark = (
        f"By {by}; n is the number of people."
        + (" Lines: 95 % interval of the share." if set(known) & set(SHARES) else "")
        + (f" Hollow: fewer than {FEW} people, so take it with care." if (table["n"] < FEW).any() else "")
        + (f" {hidden} more groups are not drawn." if hidden else "")
    )
    names = [label(group, _NAME_WIDTH) for group in table.index]
    groups = {
        "range": [count - 0.45, -0.75],
        "tickvals": list(range(count)),
        "ticktext": [f"{name}<br>n {int(n)}" for name, n in zip(names, table["n"], strict=True)],
    }
    panels = [
        Panel(f"<b>{label(MEASURES[name], 52)}</b>", _GROUP_HEIGHT * count, (dots,), y=groups, x={**_GRID, **extent})
        for name in known
        for dots, extent in [_dots(table, name, names)]
    ]
    return stacked(
        panels,
        f"{wording.listed([MEASURES[name] for name in known])}. {remark}",
        heading=20,
        gap=30,
        margin={"l": _LEFT, "r": 24, "t": 6, "b": 86},
        annotations=[caption(remark, 44, left=_LEFT - HEADING_INDENT)],
    )


def _dots(table: pd.DataFrame, name: str, groups: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A dot for each group, and what its axis has for them."""
    values, is_share = table[name].to_numpy(float), name in SHARES
    texts = [wording.percent(value) if is_share else label(wording.rounded(value)) for value in values.tolist()]
    hover = [f"<b>{group}</b>: {text}, n {int(n)}" for group, text, n in zip(groups, texts, table["n"], strict=True)]
    colors = ["white" if n < FEW else RISES for n in table["n"]]
    dots = scatter(
        values,
        range(len(table)),
        "markers+text",
        marker={"size": 10, "color": colors, "line": {"color": RISES, "width": 2}},
        text=texts,
        textposition="top center",
        textfont={"size": SMALL_FONT, "color": INK},
        cliponaxis=False,
        hoverinfo="text",
        hovertext=hover,
    )
    if not is_share:
        most = float(table[name].astype(float).max())
        return dots, {"nticks": 5, "range": [-0.02 * most, 1.12 * most] if most > 0 else [-0.1, 1]}
    low, high = wilson(values, table["explained"].to_numpy(float))
    over = {"array": rounded(high - values), "arrayminus": rounded(values - low), "symmetric": False}
    dots["error_x"] = {"type": "data", **over, "color": SOFT, "thickness": 1.2, "width": 4}
    return dots, {"nticks": 5, "range": [-0.02, 1.02], "tickformat": ".0%"}


def wilson(share: NDArray[np.float64], count: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The 95 % interval of a share of so many people, which stays between 0 and 1 (Wilson, 1927).

    Of all groups at once: SciPy's takes one at a time.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = _NORMAL_QUANTILE**2 / count
        middle = (share + inverse / 2) / (1 + inverse)
        half = np.sqrt(inverse * (share * (1 - share) + inverse / 4)) / (1 + inverse)
    return np.minimum(middle - half, share), np.maximum(middle + half, share)


def changes_figure(result: Explanation) -> Figure:
    """How often each feature changes in the rows that were found, in which direction, and by how much.

    Args:
        result: The explanation of a group.
    """
    unit = "row" if result.plans == 1 else "plan"
    old, new, changed = result._found
    count, shares = len(changed), change_shares(changed)
    drawn = list(shares.items())[:MOST_FEATURES]
    if not drawn:
        return empty_figure(f"No {unit} was found, so there is nothing to draw.")
    height, hidden = _FEATURE_HEIGHT * len(drawn), len(shares) - len(drawn)
    directions: dict[str, NDArray[np.float64]] = {}
    words: list[dict[str, Any]] = []
    for index, (name, share) in enumerate(drawn):
        moved = changed[name].to_numpy(bool)
        feature = result.schema[name]
        directions[name], typical = _typical_change(
            feature, old[name][moved], new[name][moved], name in result._numeric
        )
        at = {"y": 1 - index / len(drawn), "yanchor": "top", "yshift": -2, "bgcolor": BACKDROP}
        right = {"x": 1, "xanchor": "right", "align": "right", "font": soft_font(FONT)}
        words.append(annotation(f"<b>{label(feature.title, 20)}</b>  {wording.percent(share)}", x=0, **at))
        words.append(annotation(typical, **right, **at))
    remark = f"Share of the {wording.counted(count, unit)} that were found in which a feature changes." + (
        f" {hidden} more features change less often." if hidden else ""
    )
    titles = wording.titles(result.schema)
    most = wording.listed([f"{titles[name]} ({wording.percent(share)})" for name, share in drawn[:5]])
    return figure(
        [_bars(directions, titles, count, height, sign) for sign in _DIRECTIONS],
        f"Which features change most, over {count} {unit}s: {most}.",
        height=height + 92,
        margin={"l": 14, "r": 16, "t": 34, "b": 58},
        barmode="stack",
        xaxis=axis(range=[0, 1], tickvals=[0, 0.25, 0.5, 0.75, 1], tickformat=".0%", **_GRID),
        yaxis=axis(range=[0, height], visible=False),
        annotations=[*words, caption(remark, 26)],
        showlegend=True,
        legend=legend(traceorder="normal"),
        bargap=0,
    )


def _typical_change(
    feature: Feature, old: pd.Series, new: pd.Series, is_number: bool
) -> tuple[NDArray[np.float64], str]:
    """In which direction each value goes; and the median change of a number, or the commonest of a category."""
    amounts = differences(feature, old, new) if is_number else np.full(len(old), np.nan)
    if not np.isnan(amounts).all():
        median = float(np.nanmedian(amounts))
        sign = "+" if median > 0 else "−" if median < 0 else ""
        text = wording.with_unit(feature, f"{sign}{wording.rounded(abs(median))}")
        return np.nan_to_num(np.sign(amounts)), label(f"median {text}", _VALUE_WIDTH)
    return np.zeros(len(old)), commonest_change(old, new, lambda value: label(wording.shown(feature, value), 13))[0]


def _bars(
    directions: Mapping[str, NDArray[np.float64]], titles: Mapping[str, str], count: int, height: int, sign: int
) -> dict[str, Any]:
    name, color = _DIRECTIONS[sign]
    cases = {feature: int((direction == sign).sum()) for feature, direction in directions.items()}
    top = height - _FEATURE_HEADING - _BAR / 2 - 4
    return {
        "type": "bar",
        "orientation": "h",
        "x": rounded(number / count for number in cases.values()),
        "y": [top - index * _FEATURE_HEIGHT for index in range(len(cases))],
        "width": _BAR,
        "marker": {"color": color},
        "name": name,
        "hoverinfo": "text",
        "hovertext": [
            f"<b>{label(titles[feature])}</b> {name}: {number} of {count}" for feature, number in cases.items()
        ],
        "textposition": "none",
    }


def shares_figure(result: Explanation, groups: pd.Series) -> Figure:
    """In which share of the found rows of each group each feature changes: for whom which feature matters.

    Args:
        result: The explanation of a group.
        groups: The group of each row, in their order; its name is what the rows are grouped by.
    """
    changed, keys = result._found[2], groups[result.status["status"].isin(FOUND).to_numpy()]
    table, sizes = changed.groupby(keys.to_numpy(), observed=True).mean(), keys.value_counts()
    names = list(change_shares(changed))[:MOST_FEATURES]
    columns = [group for group in table.index if group in set(sizes.index[:_MOST_COLUMNS])]
    if not names or not columns:
        return empty_figure("No row was found, so there is nothing to compare.")
    shares = table.loc[columns, names].to_numpy(float).T
    centered = {"xref": "x", "yref": "y", "xanchor": "center", "yanchor": "middle"}
    words = [
        annotation(
            f"{100 * share:.0f}",
            x=column,
            y=row,
            **centered,
            font={"size": SMALL_FONT, "color": "white" if share < _DARK else INK},
        )
        for (row, column), share in np.ndenumerate(shares)
    ]
    hidden = len(table) - len(columns)
    features = {feature.name: feature for feature in result.schema}
    by, titles = features.get(str(groups.name)), wording.titles(result.schema)
    of = groups.name if by is None else by.title
    remark = f"Percent of the found rows of each group of {of} in which a feature changes." + (
        f" {hidden} more groups are not drawn." if hidden else ""
    )
    width = max(_LEAST_COLUMN, _COLUMNS_WIDTH // len(columns))
    shown = {group: wording.value(group) if by is None else wording.shown(by, group) for group in columns}
    ticks = [f"{_two_lines(shown[group], width)}<br>n {int(sizes[group])}" for group in columns]
    above = 8 + 15 * max(tick.count("<br>") + 1 for tick in ticks)
    rows = {"tickvals": list(range(len(names))), "ticktext": [label(titles[name], _NAME_WIDTH) for name in names]}
    return figure(
        [heatmap(shares, 0, 1, colorscale="Viridis", showscale=False, xgap=2, ygap=2)],
        remark,
        height=30 * len(names) + above + 48,
        margin={"l": _LEFT, "r": 8, "t": above, "b": 48},
        xaxis=axis(side="top", tickvals=list(range(len(columns))), ticktext=ticks, tickangle=0),
        yaxis=axis(autorange="reversed", **rows),
        annotations=[*words, caption(remark, 8, left=_LEFT - HEADING_INDENT)],
    )


def _two_lines(text: str, width: int) -> str:
    """A label in at most two lines."""
    lines = textwrap.wrap(text, width)
    first, rest = (lines or [""])[0], " ".join(lines[1:])
    return label(first, width) + (f"<br>{label(rest, width)}" if rest else "")
