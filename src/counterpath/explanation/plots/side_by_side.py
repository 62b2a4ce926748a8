"""One person by several methods, side by side: the paths on one latent map, and below them a column a method."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from counterpath.explanation import wording
from counterpath.explanation.plots.style import COLORS, INK, PALETTE, SOFT, figure, plain

MOST_SHOWN = 9
"""How many features are drawn at most: those that most methods change."""
_CLASSES = ("#c4cad2", "#ecd08a", "#b5d5c5", "#d9c2dd", "#b8d4ea")
"""Pale, so that paths stand out."""
_WIDTH, _WIDER = 1.6, 1.7


def draw_side_by_side(
    landscape: pd.DataFrame,
    walks: Mapping[str, pd.DataFrame],
    features: Mapping[str, pd.DataFrame],
    numbers: Collection[str],
    title: str,
    asked: tuple[str, float],
    path: Path | None = None,
) -> Figure:
    """Draw the paths of one person by several methods.

    Every row of panels has one scale, so that methods can be compared across it. Along a panel is the share of the
    steps of the path, because methods take different numbers of them.

    Args:
        landscape: `map_x`, `map_y`, `predicted` of training rows; may be empty.
        walks: By the name of the method one row a step: `step`, `probability`, `map_x`, `map_y`.
        features: By the name of the method the features at every step.
        numbers: The features that are numbers.
        title: The heading.
        asked: The wanted outcome and the confidence.
        path: Where to save the figure, if anywhere.
    """
    moving = _moving(list(features.values()))
    shown = moving[:MOST_SHOWN]
    heights = [1.25, *([0.62] * len(shown))]
    with figure(path, 2.6 + 1.75 * len(walks), 4.6 + sum(heights)) as fig:
        fig.suptitle(plain(title), fontsize=11, color=INK)
        parts: Any = fig.subfigures(2, 1, height_ratios=(3.6, 0.6 + sum(heights)))
        above, below = parts
        _map(above.subplots(), above, landscape, walks)
        panels = below.subplots(
            len(heights), len(walks), sharex=True, sharey="row", height_ratios=heights, squeeze=False
        )
        for column, (name, steps) in zip(panels.T, walks.items(), strict=True):
            _probability(column[0], name, steps, asked[1])
            changed = sum(_differs(values) for _, values in features[name].iloc[[0, -1]].items())
            column[0].set_title(f"{name}\n{changed} feature{'s' if changed != 1 else ''} changed", fontsize=9)
        panels[0, 0].set_ylabel(plain(f"probability\nof {asked[0]}"), rotation=0, ha="right", va="center", fontsize=8)
        for row, feature in zip(panels[1:], shown, strict=True):
            values = {name: frame[feature] for name, frame in features.items()}
            _feature(row, values, {name: _shares(steps) for name, steps in walks.items()}, feature in numbers)
        for axes in panels[-1]:
            axes.set(xlim=(-0.04, 1.04), xticks=())
        hidden = len(moving) - len(shown)
        note = f"; {hidden} more features move" if hidden else ""
        below.supxlabel(f"from the row as asked (left) to the counterfactual (right){note}", fontsize=8, color=SOFT)
    return fig


def _moving(paths: Sequence[pd.DataFrame]) -> list[str]:
    """The features that any path moves; first those that most methods leave changed."""
    names = [str(name) for name in paths[0]]
    moved = {name: sum(_differs(path[name]) for path in paths) for name in names}
    changed = {name: sum(_differs(path[name].iloc[[0, -1]]) for path in paths) for name in names}
    return sorted((name for name in names if moved[name]), key=lambda name: (-changed[name], -moved[name]))


def _differs(values: pd.Series) -> bool:
    return bool(values.astype(object).nunique(dropna=False) > 1)


def _map(axes: Axes, fig: Any, landscape: pd.DataFrame, walks: Mapping[str, pd.DataFrame]) -> None:
    if len(landscape):
        for (label, group), color in zip(landscape.groupby("predicted", observed=True), _CLASSES, strict=False):
            text = plain(f"model says {wording.value(label)}")
            axes.scatter(group["map_x"], group["map_y"], s=5, color=color, lw=0, rasterized=True, label=text, zorder=1)
    start = next(iter(walks.values())).iloc[0]
    look: Any = {"s": 46, "color": "white", "edgecolor": INK, "lw": 1.3, "zorder": 6}
    axes.scatter(start["map_x"], start["map_y"], label="row as asked", **look)
    for under, (name, steps) in zip(reversed(range(len(walks))), walks.items(), strict=True):
        x, y = steps["map_x"].to_numpy(float), steps["map_y"].to_numpy(float)
        color = _color(name)
        width = _WIDTH + _WIDER * under  # paths often coincide: what lies under another one is wider
        axes.plot(x, y, color="white", lw=width + 1.6, zorder=2)
        axes.plot(x, y, color=color, lw=width, label=name, zorder=3)
        size = 110 * (1 + 0.6 * under)
        axes.scatter(x[-1], y[-1], s=size, marker="*", color=color, edgecolor="white", lw=0.6, zorder=5)
    axes.set(xticks=(), yticks=(), aspect="equal")
    axes.set_title("Latent map: each method's path, with a star at its counterfactual", fontsize=9, color=SOFT)
    for spine in axes.spines.values():
        spine.set_visible(False)
    legend = fig.legend(*axes.get_legend_handles_labels(), loc="outside right center", fontsize=8)
    for handle in legend.legend_handles:
        if isinstance(handle, PathCollection):
            handle.set_sizes([34.0])


def _probability(axes: Axes, name: str, steps: pd.DataFrame, confidence: float) -> None:
    values = steps["probability"].to_numpy(float)
    axes.plot(_shares(steps), values, color=_color(name), lw=1.8)
    axes.scatter(1, values[-1], s=44, marker="*", color=_color(name), lw=0, zorder=4, clip_on=False)
    axes.axhline(confidence, color=INK, lw=0.8, ls="--")
    axes.set(ylim=(-0.03, 1.03), yticks=(0, 0.5, 1))
    axes.tick_params(labelsize=7)
    _say(axes, values[-1], wording.probability(values[-1]))


def _feature(row: Any, values: Mapping[str, pd.Series], shares: Mapping[str, Any], number: bool) -> None:
    """One feature along the path of every method, over one scale; what does not change is grey."""
    feature = str(next(iter(values.values())).name)
    together = pd.concat([one.astype(object) for one in values.values()])
    codes = together.to_numpy(float) if number else pd.factorize(together)[0].astype(float)
    low, high = float(codes.min()), float(codes.max())
    margin = 0.18 * ((high - low) or 1.0)
    lengths = np.cumsum([len(one) for one in values.values()])[:-1]
    for axes, (name, one), heights in zip(row, values.items(), np.split(codes, lengths), strict=True):
        changed = _differs(one.iloc[[0, -1]])
        style = {} if number else {"drawstyle": "steps-post"}
        color = _color(name) if _differs(one) else "#c3c9d0"
        axes.plot(shares[name], heights, color=color, lw=1.6, **style)
        if changed:
            told = wording.change("", one.iloc[0], one.iloc[-1], ordered=False)
            _say(axes, heights[-1], _short(told.new))
        axes.set(ylim=(low - margin, high + margin), yticks=())
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(axis="x", length=0)
    first = _short(wording.value(next(iter(values.values())).iloc[0]))
    row[0].set_ylabel(f"{_short(feature, 24)}\n{first}", rotation=0, ha="right", va="center", fontsize=8)


def _say(axes: Axes, height: float, text: str) -> None:
    """Write the last value at the right end of a line."""
    axes.annotate(
        text,
        (1, height),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        xytext=(4, 0),
        ha="left",
        va="center",
        fontsize=7.5,
    )


def _shares(steps: pd.DataFrame) -> Any:
    """How much of the way lies behind each point, by steps; not all of them need be there."""
    step = steps["step"].to_numpy(float)
    return step / step[-1] if step[-1] > 0 else np.ones(len(step))


def _color(name: str) -> str:
    return COLORS.get(name, PALETTE[0])


def _short(text: str, width: int = 15) -> str:
    return plain(text if len(text) <= width else text[: width - 1] + "…")
