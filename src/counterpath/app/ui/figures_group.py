"""Many people at once in a browser: which features change, how often, and for whom."""

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.app.ui.plotting import (
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
from counterpath.explanation import Explanation, wording
from counterpath.explanation.figures import MOST_FEATURES
from counterpath.explanation.status import FOUND
from counterpath.explanation.telling import amounts
from counterpath.plots import INK

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
    numbers = amounts(result.schema, result.factuals)
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
