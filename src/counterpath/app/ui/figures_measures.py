"""What counterfactuals cost by group, in a browser: one panel a measure, one dot a group."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.app.ui.plotting import LINE, RISES, SMALL, Figure, axis, caption, figure, note, nothing, rounded, shown
from counterpath.explanation import wording
from counterpath.plots import INK, SOFT

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
_HEADING, _ROW, _BELOW = 20, 36, 30
_MOST_GROUPS = 12
_LEFT = 130
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
    panel = _ROW * rows
    inner = len(known) * (panel + _HEADING + _BELOW)
    data, layout, words = [], {}, []
    for number, name in enumerate(known):
        top = 1 - (number * (panel + _HEADING + _BELOW) + _HEADING) / inner
        domain = [top - panel / inner, top]
        suffix = "" if number == 0 else str(number + 1)
        data.append({**_dots(table, name), "xaxis": f"x{suffix}", "yaxis": f"y{suffix}"})
        words.append(note(f"<b>{shown(MEASURES[name], 52)}</b>", x=0, y=top, yshift=2, xshift=4 - _LEFT))
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
        margin={"l": _LEFT, "r": 24, "t": 6, "b": 56},
        annotations=[*words, caption(said, 14, left=_LEFT - 4)],
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
