"""Many people at once in a browser: which features change, how often, and for whom."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.data.status import FOUND
from counterpath.explanation import Explanation, wording
from counterpath.explanation.plots.style import INK, MOST_FEATURES, SOFT
from counterpath.explanation.tables import numeric_features
from counterpath.explorer.plotting import (
    FALLS,
    FONT,
    LINE,
    PAPER,
    RISES,
    SMALL,
    SWAPS,
    Figure,
    axis,
    caption,
    figure,
    note,
    nothing,
    rounded,
    shown,
    soft,
)

FEW = 30
"""Groups of fewer people are marked: a share of so few says little."""
MEASURES = {
    "found": "counterfactual found, share of those explained",
    "gaps": "found only across a gap in the data, share",
    "l0": "features that change, mean",
    "l1": "distance L1, mean",
    "ld_sq": "squared distance to the data, mean",
    "steps": "steps of the path, mean",
}
"""What can be drawn by group: columns of `Explanation.summary`, each with its axis label."""
SHARES = ("found", "gaps")
_MEASURES_HEADING, _MEASURES_ROW, _BELOW = 20, 36, 30
_MOST_GROUPS = 12
_MEASURES_LEFT = 130
_CERTAIN = 1.96


def measures_figure(summary: pd.DataFrame, measures: Sequence[str] = ("found", "l1", "steps")) -> Figure:
    """Measures by group, one panel a measure and one dot a group; groups of few people are hollow.

    Args:
        summary: What `Explanation.summary(by=…)` returns.
        measures: Keys of `MEASURES`; those that nobody has are left out.
    """
    known = [name for name in measures if name in summary and summary[name].notna().any()]
    if not known or not len(summary):
        return nothing("There is no measure to compare by group.")
    table = summary.head(_MOST_GROUPS)
    rows, hidden = len(table), len(summary) - len(table)
    panel = _MEASURES_ROW * rows
    inner = len(known) * (panel + _MEASURES_HEADING + _BELOW)
    data, layout, words = [], {}, []
    for number, name in enumerate(known):
        top = 1 - (number * (panel + _MEASURES_HEADING + _BELOW) + _MEASURES_HEADING) / inner
        domain = [top - panel / inner, top]
        suffix = "" if number == 0 else str(number + 1)
        data.append({**_dots(table, name), "xaxis": f"x{suffix}", "yaxis": f"y{suffix}"})
        words.append(note(f"<b>{shown(MEASURES[name], 52)}</b>", x=0, y=top, yshift=2, xshift=4 - _MEASURES_LEFT))
        layout[f"xaxis{suffix}"] = axis(anchor=f"y{suffix}", showgrid=True, gridcolor=LINE, **_extent(table, name))
        layout[f"yaxis{suffix}"] = axis(
            anchor=f"x{suffix}",
            domain=domain,
            range=[rows - 0.45, -0.75],
            tickvals=list(range(rows)),
            ticktext=[f"{_group(label)}<br>n {int(n)}" for label, n in table["n"].items()],
        )
    by = " and ".join(str(level) for level in summary.index.names if level is not None) or "group"
    few = bool((table["n"] < FEW).any())
    said = (
        f"By {by}; n is the number of people."
        + (" Lines: 95 % interval of the share." if set(known) & set(SHARES) else "")
        + (f" Hollow: fewer than {FEW} people, so take it with care." if few else "")
        + (f" {hidden} more groups are not drawn." if hidden else "")
    )
    return figure(
        data,
        f"{wording.listed([MEASURES[name] for name in known])}. {said}",
        height=inner + 62,
        margin={"l": _MEASURES_LEFT, "r": 24, "t": 6, "b": 56},
        annotations=[*words, caption(said, 14, left=_MEASURES_LEFT - 4)],
        hovermode="closest",
        **layout,
    )


def _group(label: Any) -> str:
    parts = label if isinstance(label, tuple) else (label,)
    return shown(", ".join(wording.value(part) for part in parts), 18)


def _dots(table: pd.DataFrame, name: str) -> dict[str, Any]:
    values = table[name].astype(float)
    shares = np.asarray(values, dtype=np.float64)
    few = (table["n"] < FEW).tolist()
    texts = [_said(value, name) for value in values]
    dots = {
        "type": "scatter",
        "x": rounded(values),
        "y": list(range(len(table))),
        "mode": "markers+text",
        "marker": {
            "size": 10,
            "color": ["white" if small else RISES for small in few],
            "line": {"color": RISES, "width": 2},
        },
        "text": texts,
        "textposition": "top center",
        "textfont": {"size": SMALL, "color": INK},
        "cliponaxis": False,
        "hoverinfo": "text",
        "hovertext": [
            f"<b>{_group(label)}</b>: {text}, n {int(n)}"
            for (label, n), text in zip(table["n"].items(), texts, strict=True)
        ],
    }
    if name in SHARES:
        low, high = wilson(shares, np.asarray(table["explained"], dtype=np.float64))
        over = {"array": rounded(high - shares), "arrayminus": rounded(shares - low), "symmetric": False}
        dots["error_x"] = {"type": "data", **over, "color": SOFT, "thickness": 1.2, "width": 4}
    return dots


def _said(value: float, name: str) -> str:
    return wording.percent(value) if name in SHARES else shown(wording.value(value, 3))


def _extent(table: pd.DataFrame, name: str) -> dict[str, Any]:
    if name in SHARES:
        return {"range": [-0.02, 1.02], "tickformat": ".0%", "nticks": 5}
    most = float(table[name].astype(float).max())
    return {"range": [-0.02 * most, 1.12 * most] if most > 0 else [-0.1, 1], "nticks": 5}


def wilson(share: NDArray[np.float64], count: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The 95 % interval of a share of so many people, which stays between 0 and 1 (Wilson, 1927)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = _CERTAIN**2 / count
        middle = (share + inverse / 2) / (1 + inverse)
        half = np.sqrt(inverse * (share * (1 - share) + inverse / 4)) / (1 + inverse)
    return np.minimum(middle - half, share), np.maximum(middle + half, share)


_ROW, _HEADING, _BAR = 46, 20, 14
_MOST_COLUMNS = 6
_LEFT = 130
_ACROSS = 34
_DARK = 0.55


def changes_figure(result: Explanation) -> Figure:
    """How often each feature changes in the rows that were found, in which direction, and by how much.

    Args:
        result: The explanation of a group.
    """
    found = result.status["status"].isin(FOUND).to_numpy()
    unit = "row" if result.plans == 1 else "plan"
    count, names = int(found.sum()), list(result.schema.names)
    old, new, changed = (frame.loc[found, names] for frame in (result.factuals, result.counterfactuals, result.changed))
    shares = changed.mean().sort_values(ascending=False, kind="stable") if count else pd.Series(dtype=float)
    changing = [str(name) for name in shares[shares > 0].index]
    drawn = changing[:MOST_FEATURES]
    if not drawn:
        return nothing(f"No {unit} was found, so there is nothing to draw.")
    numbers = numeric_features(result.schema, result.factuals)
    directions = {name: _direction(old[name], new[name], name in numbers)[changed[name].to_numpy()] for name in drawn}
    told = {name: _typical(old[name], new[name], changed[name].to_numpy(), name in numbers) for name in drawn}
    height, hidden = _ROW * len(drawn), len(changing) - len(drawn)
    words = [
        part
        for place, name in enumerate(drawn)
        for part in _row_words(name, told[name], 1 - place * _ROW / height, float(shares[name]))
    ]
    said = f"Share of the {count} {unit}{'' if count == 1 else 's'} that were found in which a feature changes." + (
        f" {hidden} more features change less often." if hidden else ""
    )
    most = wording.listed([f"{name} ({wording.percent(float(shares[name]))})" for name in drawn[:5]])
    return figure(
        [_bars(directions, count, height, sign) for sign in (1, -1, 0)],
        f"Which features change most, over {count} {unit}s: {most}.",
        height=height + 92,
        margin={"l": 14, "r": 16, "t": 34, "b": 58},
        barmode="stack",
        xaxis=axis(range=[0, 1], tickvals=[0, 0.25, 0.5, 0.75, 1], tickformat=".0%", showgrid=True, gridcolor=LINE),
        yaxis=axis(range=[0, height], visible=False),
        annotations=[*words, caption(said, 26)],
        showlegend=True,
        legend={
            "orientation": "h",
            "x": 0,
            "y": 1,
            "yanchor": "bottom",
            "traceorder": "normal",
            "font": {"size": SMALL},
        },
        hovermode="closest",
        bargap=0,
    )


def _direction(old: pd.Series, new: pd.Series, number: bool) -> NDArray[np.float64]:
    if not number:
        return np.zeros(len(old))
    sign: NDArray[np.float64] = np.sign((new.astype(float) - old.astype(float)).to_numpy())
    return sign


def _typical(old: pd.Series, new: pd.Series, moved: NDArray[np.bool_], number: bool) -> str:
    """By how much a number changes in the middle case, or into what most categories change."""
    if number:
        return f"median {_signed(float(np.median((new.astype(float) - old.astype(float)).to_numpy()[moved])))}"
    moves = pd.Series(
        [f"{shown(a, 13)} → {shown(b, 13)}" for a, b in zip(old[moved], new[moved], strict=True)]
    ).value_counts(sort=True)
    return str(moves.index[0])


def _signed(amount: float) -> str:
    return f"{'+' if amount > 0 else '−' if amount < 0 else ''}{wording.value(abs(amount), 3)}"


def _row_words(name: str, typical: str, top: float, share: float) -> tuple[dict[str, Any], dict[str, Any]]:
    left = f"<b>{shown(name, 20)}</b>  {wording.percent(share)}"
    return (
        note(left, x=0, y=top, yanchor="top", yshift=-2, bgcolor=PAPER),
        note(
            typical,
            x=1,
            y=top,
            xanchor="right",
            yanchor="top",
            yshift=-2,
            align="right",
            font=soft(FONT),
            bgcolor=PAPER,
        ),
    )


def _bars(directions: Mapping[str, NDArray[np.float64]], count: int, height: int, sign: int) -> dict[str, Any]:
    label, color = {1: ("rises", RISES), -1: ("falls", FALLS), 0: ("changes category", SWAPS)}[sign]
    cases = [int((direction == sign).sum()) for direction in directions.values()]
    centers = [height - place * _ROW - _HEADING - _BAR / 2 - 4 for place in range(len(directions))]
    return {
        "type": "bar",
        "orientation": "h",
        "x": rounded([number / count for number in cases]),
        "y": centers,
        "width": _BAR,
        "marker": {"color": color},
        "name": label,
        "hoverinfo": "text",
        "hovertext": [
            f"<b>{shown(name)}</b> {label}: {number} of {count}" for name, number in zip(directions, cases, strict=True)
        ],
        "textposition": "none",
    }


def shares_figure(result: Explanation, groups: pd.Series) -> Figure:
    """In which share of the found rows of each group each feature changes: for whom which feature matters.

    Args:
        result: The explanation of a group.
        groups: The group of each row, in their order; its name is what the rows are grouped by.
    """
    found = result.status["status"].isin(FOUND).to_numpy()
    changed = result.changed[list(result.schema.names)].reset_index(drop=True)[found]
    keys = groups.reset_index(drop=True)[found]
    table = changed.groupby(keys.to_numpy(), observed=True).mean()
    sizes = keys.value_counts()
    order = changed.mean().sort_values(ascending=False, kind="stable")
    names = [str(name) for name in order[order > 0].index[:MOST_FEATURES]]
    columns = [group for group in table.index if group in set(sizes.index[:_MOST_COLUMNS])]
    if not names or not columns:
        return nothing("No row was found, so there is nothing to compare.")
    heights = [[float(table.loc[group, name]) for group in columns] for name in names]
    words = [
        note(
            f"{100 * share:.0f}",
            x=across,
            y=down,
            xref="x",
            yref="y",
            xanchor="center",
            yanchor="middle",
            font={"size": SMALL, "color": "white" if share < _DARK else INK},
        )
        for down, row in enumerate(heights)
        for across, share in enumerate(row)
    ]
    hidden = len(table) - len(columns)
    said = f"Percent of the found rows of each group of {groups.name} in which a feature changes." + (
        f" {hidden} more groups are not drawn." if hidden else ""
    )
    wide = max(8, _ACROSS // len(columns))
    ticks = [f"{_lines(group, wide)}<br>n {int(sizes[group])}" for group in columns]
    above = 8 + 15 * max(tick.count("<br>") + 1 for tick in ticks)
    return figure(
        [
            {
                "type": "heatmap",
                "z": [rounded(row) for row in heights],
                "zmin": 0,
                "zmax": 1,
                "colorscale": "Viridis",
                "showscale": False,
                "xgap": 2,
                "ygap": 2,
                "hoverinfo": "skip",
            }
        ],
        said,
        height=30 * len(names) + above + 48,
        margin={"l": _LEFT, "r": 8, "t": above, "b": 48},
        xaxis=axis(side="top", tickvals=list(range(len(columns))), ticktext=ticks, tickangle=0),
        yaxis=axis(
            autorange="reversed", tickvals=list(range(len(names))), ticktext=[shown(name, 18) for name in names]
        ),
        annotations=[*words, caption(said, 8, left=_LEFT - 4)],
    )


def _lines(given: Any, width: int) -> str:
    """A label in at most two lines."""
    lines = textwrap.wrap(wording.value(given), width)
    first, rest = (lines or [""])[0], " ".join(lines[1:])
    return shown(first, width) + (f"<br>{shown(rest, width)}" if rest else "")
