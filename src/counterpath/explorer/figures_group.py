"""Many rows at once in a browser: which features change, how often, and in which group."""

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.data.status import FOUND
from counterpath.explanation import Explanation, wording
from counterpath.explanation.plots.style import INK, MOST_FEATURES, SOFT
from counterpath.explanation.tables import numeric_features
from counterpath.explorer import figures
from counterpath.explorer.figures import Figure

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


def measures_figure(summary: pd.DataFrame) -> Figure:
    """Measures by group, one panel a measure and one dot a group; groups of few people are hollow.

    Args:
        summary: What `Explanation.summary(by=…)` returns; measures that no group has are left out.
    """
    known = [name for name in MEASURES if name in summary and summary[name].notna().any()]
    if not known or not len(summary):
        return figures.empty_figure("There is no measure to compare by group.")
    table = summary.head(_MOST_GROUPS)
    count, hidden = len(table), len(summary) - len(table)
    by = " and ".join(str(level) for level in summary.index.names if level is not None) or "group"
    remark = (
        f"By {by}; n is the number of people."
        + (" Lines: 95 % interval of the share." if set(known) & set(SHARES) else "")
        + (f" Hollow: fewer than {FEW} people, so take it with care." if (table["n"] < FEW).any() else "")
        + (f" {hidden} more groups are not drawn." if hidden else "")
    )
    groups = {
        "range": [count - 0.45, -0.75],
        "tickvals": list(range(count)),
        "ticktext": [f"{_group_label(group)}<br>n {int(n)}" for group, n in table["n"].items()],
    }
    panels = [
        figures.Panel(
            f"<b>{figures.label(MEASURES[name], 52)}</b>",
            _GROUP_HEIGHT * count,
            (_dots(table, name),),
            y=groups,
            x={"showgrid": True, "gridcolor": figures.LINE, "nticks": 5, **_extent(table, name)},
        )
        for name in known
    ]
    return figures.stacked(
        panels,
        f"{wording.listed([MEASURES[name] for name in known])}. {remark}",
        heading=20,
        gap=30,
        margin={"l": _LEFT, "r": 24, "t": 6, "b": 86},
        annotations=[figures.caption(remark, 44, left=_LEFT - figures.HEADING_INDENT)],
    )


def _group_label(group: Any) -> str:
    parts = group if isinstance(group, tuple) else (group,)
    return figures.label(", ".join(wording.value(part) for part in parts), _NAME_WIDTH)


def _dots(table: pd.DataFrame, name: str) -> dict[str, Any]:
    values = table[name].to_numpy(float)
    texts = [
        wording.percent(value) if name in SHARES else figures.label(wording.value(value, 3))
        for value in values.tolist()
    ]
    dots = figures.scatter(
        values,
        range(len(table)),
        "markers+text",
        marker={
            "size": 10,
            "color": ["white" if n < FEW else figures.RISES for n in table["n"]],
            "line": {"color": figures.RISES, "width": 2},
        },
        text=texts,
        textposition="top center",
        textfont={"size": figures.SMALL_FONT, "color": INK},
        cliponaxis=False,
        hoverinfo="text",
        hovertext=[
            f"<b>{_group_label(group)}</b>: {text}, n {int(n)}"
            for (group, n), text in zip(table["n"].items(), texts, strict=True)
        ],
    )
    if name in SHARES:
        low, high = wilson(values, table["explained"].to_numpy(float))
        over = {
            "array": figures.rounded(high - values),
            "arrayminus": figures.rounded(values - low),
            "symmetric": False,
        }
        dots["error_x"] = {"type": "data", **over, "color": SOFT, "thickness": 1.2, "width": 4}
    return dots


def _extent(table: pd.DataFrame, name: str) -> dict[str, Any]:
    if name in SHARES:
        return {"range": [-0.02, 1.02], "tickformat": ".0%"}
    most = float(table[name].astype(float).max())
    return {"range": [-0.02 * most, 1.12 * most] if most > 0 else [-0.1, 1]}


def wilson(share: NDArray[np.float64], count: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The 95 % interval of a share of so many people, which stays between 0 and 1 (Wilson, 1927).

    Of all groups at once: SciPy's takes one at a time.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = _NORMAL_QUANTILE**2 / count
        middle = (share + inverse / 2) / (1 + inverse)
        half = np.sqrt(inverse * (share * (1 - share) + inverse / 4)) / (1 + inverse)
    return np.minimum(middle - half, share), np.maximum(middle + half, share)


def _change_shares(changed: pd.DataFrame) -> pd.Series:
    """The share of rows in which each feature changes, of those that change at all, the largest first."""
    shares = changed.mean().sort_values(ascending=False, kind="stable") if len(changed) else pd.Series(dtype=float)
    return shares[shares > 0]


def changes_figure(result: Explanation) -> Figure:
    """How often each feature changes in the rows that were found, in which direction, and by how much.

    Args:
        result: The explanation of a group.
    """
    found = result.status["status"].isin(FOUND).to_numpy()
    unit = "row" if result.plans == 1 else "plan"
    count, names = int(found.sum()), list(result.schema.names)
    old, new, changed = (frame.loc[found, names] for frame in (result.factuals, result.counterfactuals, result.changed))
    shares = _change_shares(changed)
    drawn = shares.head(MOST_FEATURES)
    if not len(drawn):
        return figures.empty_figure(f"No {unit} was found, so there is nothing to draw.")
    numbers = numeric_features(result.schema, result.factuals)
    height, hidden = _FEATURE_HEIGHT * len(drawn), len(shares) - len(drawn)
    directions: dict[str, NDArray[np.float64]] = {}
    words: list[dict[str, Any]] = []
    for index, (name, share) in enumerate(drawn.items()):
        moved = changed[name].to_numpy()
        directions[str(name)], typical = _typical_change(old[name][moved], new[name][moved], name in numbers)
        words += _feature_words(
            f"<b>{figures.label(name, 20)}</b>  {wording.percent(share)}", typical, 1 - index / len(drawn)
        )
    remark = f"Share of the {count} {unit}{'' if count == 1 else 's'} that were found in which a feature changes." + (
        f" {hidden} more features change less often." if hidden else ""
    )
    most = wording.listed([f"{name} ({wording.percent(share)})" for name, share in drawn.head(5).items()])
    return figures.figure(
        [_bars(directions, count, height, sign) for sign in (1, -1, 0)],
        f"Which features change most, over {count} {unit}s: {most}.",
        height=height + 92,
        margin={"l": 14, "r": 16, "t": 34, "b": 58},
        barmode="stack",
        xaxis=figures.axis(
            range=[0, 1], tickvals=[0, 0.25, 0.5, 0.75, 1], tickformat=".0%", showgrid=True, gridcolor=figures.LINE
        ),
        yaxis=figures.axis(range=[0, height], visible=False),
        annotations=[*words, figures.caption(remark, 26)],
        showlegend=True,
        legend=figures.legend(traceorder="normal"),
        bargap=0,
    )


def _typical_change(old: pd.Series, new: pd.Series, is_number: bool) -> tuple[NDArray[np.float64], str]:
    """In which direction each value goes; and the median change of a number, or the commonest of a category."""
    if is_number:
        amounts = new.to_numpy(float) - old.to_numpy(float)
        median = float(np.median(amounts))
        sign = "+" if median > 0 else "−" if median < 0 else ""
        return np.sign(amounts), f"median {sign}{wording.value(abs(median), 3)}"
    changes = pd.Series([f"{figures.label(a, 13)} → {figures.label(b, 13)}" for a, b in zip(old, new, strict=True)])
    return np.zeros(len(old)), str(changes.value_counts(sort=True).index[0])


def _feature_words(name: str, typical: str, top: float) -> list[dict[str, Any]]:
    at = {"y": top, "yanchor": "top", "yshift": -2, "bgcolor": figures.BACKDROP}
    right = {"x": 1, "xanchor": "right", "align": "right", "font": figures.soft_font(figures.FONT)}
    return [figures.annotation(name, x=0, **at), figures.annotation(typical, **right, **at)]


def _bars(directions: Mapping[str, NDArray[np.float64]], count: int, height: int, sign: int) -> dict[str, Any]:
    name, color = {1: ("rises", figures.RISES), -1: ("falls", figures.FALLS), 0: ("changes category", figures.SWAPS)}[
        sign
    ]
    cases = {feature: int((direction == sign).sum()) for feature, direction in directions.items()}
    top = height - _FEATURE_HEADING - _BAR / 2 - 4
    return {
        "type": "bar",
        "orientation": "h",
        "x": figures.rounded(number / count for number in cases.values()),
        "y": [top - index * _FEATURE_HEIGHT for index in range(len(cases))],
        "width": _BAR,
        "marker": {"color": color},
        "name": name,
        "hoverinfo": "text",
        "hovertext": [
            f"<b>{figures.label(feature)}</b> {name}: {number} of {count}" for feature, number in cases.items()
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
    table, sizes = changed.groupby(keys.to_numpy(), observed=True).mean(), keys.value_counts()
    names = _change_shares(changed).index[:MOST_FEATURES].tolist()
    columns = [group for group in table.index if group in set(sizes.index[:_MOST_COLUMNS])]
    if not names or not columns:
        return figures.empty_figure("No row was found, so there is nothing to compare.")
    shares = table.loc[columns, names].to_numpy(float).T
    centered = {"xref": "x", "yref": "y", "xanchor": "center", "yanchor": "middle"}
    words = [
        figures.annotation(
            f"{100 * share:.0f}",
            x=column,
            y=row,
            **centered,
            font={"size": figures.SMALL_FONT, "color": "white" if share < _DARK else INK},
        )
        for (row, column), share in np.ndenumerate(shares)
    ]
    hidden = len(table) - len(columns)
    remark = f"Percent of the found rows of each group of {groups.name} in which a feature changes." + (
        f" {hidden} more groups are not drawn." if hidden else ""
    )
    width = max(_LEAST_COLUMN, _COLUMNS_WIDTH // len(columns))
    ticks = [f"{_two_lines(group, width)}<br>n {int(sizes[group])}" for group in columns]
    above = 8 + 15 * max(tick.count("<br>") + 1 for tick in ticks)
    rows = {"tickvals": list(range(len(names))), "ticktext": [figures.label(name, _NAME_WIDTH) for name in names]}
    return figures.figure(
        [figures.heatmap(shares, 0, 1, colorscale="Viridis", showscale=False, xgap=2, ygap=2)],
        remark,
        height=30 * len(names) + above + 48,
        margin={"l": _LEFT, "r": 8, "t": above, "b": 48},
        xaxis=figures.axis(side="top", tickvals=list(range(len(columns))), ticktext=ticks, tickangle=0),
        yaxis=figures.axis(autorange="reversed", **rows),
        annotations=[*words, figures.caption(remark, 8, left=_LEFT - figures.HEADING_INDENT)],
    )


def _two_lines(value: Any, width: int) -> str:
    """A label in at most two lines."""
    lines = textwrap.wrap(wording.value(value), width)
    first, rest = (lines or [""])[0], " ".join(lines[1:])
    return figures.label(first, width) + (f"<br>{figures.label(rest, width)}" if rest else "")
