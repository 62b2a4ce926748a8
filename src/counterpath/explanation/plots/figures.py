"""The figures of an explanation, from tables: what changes, one row's path, and the latent map."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from counterpath.explanation import wording
from counterpath.explanation.plots.style import INK, PALETTE, SOFT, figure, plain

Ranges: TypeAlias = Mapping[str, tuple[float, float]]
"""The smallest and the largest value of each feature that is a number."""

MOST_FEATURES = 15
MOST_PATHS = 30

_UP, _DOWN, _OTHER = "#0072B2", "#D55E00", "#8a929c"
_LABEL_WIDTH = 26


def draw_changes(
    old: pd.DataFrame,
    new: pd.DataFrame,
    changed: pd.DataFrame,
    ranges: Ranges,
    path: Path | None = None,
    unit: str = "row",
) -> Figure:
    """Draw how often each feature changes, and beside it by how much.

    Args:
        old: The rows as asked.
        new: The rows as returned.
        changed: Which features differ.
        ranges: The features that are numbers; what they change by is drawn as a share of their range.
        path: Where to save the figure, if anywhere.
        unit: What a row is.
    """
    shares = changed.mean().sort_values(ascending=False, kind="stable") if len(changed) else pd.Series(dtype=float)
    names = [str(name) for name in shares[shares > 0].index]
    shown = names[:MOST_FEATURES]
    with figure(path, 8.6, 1.3 + 0.36 * max(len(shown), 2)) as fig:
        if not shown:
            return _say(fig, f"No {unit} was found, so there is nothing to draw.")
        often, amount = fig.subplots(1, 2, sharey=True, width_ratios=(1, 1.25))
        for place, name in enumerate(shown):
            moved = changed[name].to_numpy(bool)
            _often(often, place, _directions(old[name], new[name], name in ranges)[moved], len(changed))
            if name in ranges:
                _amounts(amount, place, (new[name] - old[name]).to_numpy(float)[moved], ranges[name])
            else:
                _commonest(amount, place, old[name][moved], new[name][moved])
        _finish_changes(often, amount, shown, len(changed), len(names) - len(shown), unit)
    return fig


def _directions(old: pd.Series, new: pd.Series, number: bool) -> Any:
    return np.sign((new - old).to_numpy(float)) if number else np.zeros(len(old))


def _often(axes: Axes, place: int, direction: Any, count: int) -> None:
    left = 0.0
    for sign, color in ((1, _UP), (-1, _DOWN), (0, _OTHER)):
        share = float((direction == sign).sum()) / count
        axes.barh(place, share, left=left, color=color, height=0.62)
        left += share
    axes.annotate(
        wording.percent(left), (left, place), textcoords="offset points", xytext=(4, 0), va="center", fontsize=8
    )


def _amounts(axes: Axes, place: int, difference: Any, limits: tuple[float, float]) -> None:
    """Points, the middle half as a band, and the median, all as shares of the range."""
    scaled = difference / ((limits[1] - limits[0]) or 1.0)
    low, middle, high = np.quantile(scaled, (0.25, 0.5, 0.75))
    jitter = np.random.default_rng(0).uniform(-0.2, 0.2, len(scaled))
    colors = np.where(scaled > 0, _UP, _DOWN)
    axes.barh(place, high - low, left=low, height=0.62, color="#dfe4ea", zorder=1)
    axes.scatter(scaled, place + jitter, s=12, c=colors, alpha=0.65, lw=0, zorder=2, rasterized=len(scaled) > 500)
    axes.plot([middle, middle], [place - 0.31, place + 0.31], color=INK, lw=1.6, zorder=1.5)


def _commonest(axes: Axes, place: int, old: pd.Series, new: pd.Series) -> None:
    """A category has no amount; say its commonest change instead."""
    moves = pd.Series([f"{_short(a)} → {_short(b)}" for a, b in zip(old, new, strict=True)]).value_counts(sort=True)
    text = f"{moves.index[0]}  ({moves.iloc[0]} of {len(old)})"
    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "color": SOFT}
    background = {"facecolor": "white", "edgecolor": "none", "pad": 2}
    axes.annotate(text, (0.5, place), xycoords=("axes fraction", "data"), bbox=background, **look)


def _finish_changes(often: Axes, amount: Axes, names: list[str], rows: int, hidden: int, unit: str) -> None:
    often.set_yticks(range(len(names)), [_short(name) for name in names])
    often.set_ylim(len(names) - 0.5, -0.5)
    often.set(
        xlim=(0, 1.12), xticks=(0, 0.5, 1), title=f"How often it changes ({rows} {unit}{'s' if rows != 1 else ''})"
    )
    often.xaxis.set_major_formatter(PercentFormatter(1.0))
    often.tick_params(axis="y", length=0)
    widest = max(0.05, *(abs(limit) for limit in amount.dataLim.intervalx if np.isfinite(limit)), 0.05)
    amount.set(xlim=(-1.1 * widest, 1.1 * widest), title="By how much, in percent of its range")
    amount.axvline(0, color=INK, lw=0.8, zorder=0)
    amount.spines["left"].set_visible(False)
    amount.xaxis.set_major_locator(MaxNLocator(6))
    amount.xaxis.set_major_formatter(PercentFormatter(1.0))
    amount.tick_params(axis="y", length=0)
    for color, text in ((_UP, "rises"), (_DOWN, "falls"), (_OTHER, "changes category")):
        often.bar(0, 0, color=color, label=text)
    fig = often.figure
    note = f"; {hidden} more features change less often" if hidden else ""
    fig.supxlabel(f"points: {unit}s · band: middle half · line: median{note}", fontsize=8, color=SOFT)
    fig.legend(*often.get_legend_handles_labels(), loc="outside upper center", ncols=3)


def draw_path(
    told: pd.DataFrame,
    features: pd.DataFrame,
    ranges: Ranges,
    title: str,
    asked: tuple[str, float],
    path: Path | None = None,
    milestones: Sequence[int] = (),
) -> Figure:
    """Draw one path: probability, uncertainty where it is known, and every feature that moves.

    Args:
        told: One row a step: `step`, `probability`, `uncertainty`.
        features: The features at every step.
        ranges: The features that are numbers; each is drawn over this range, widened by the path.
        title: The heading.
        asked: The wanted outcome and the confidence.
        path: Where to save the figure, if anywhere.
        milestones: Where the steps of a short account of the path end, by position; the numbers of several are drawn.
    """
    step = told["step"].to_numpy(float)
    moving = [str(name) for name in features if features[name].astype(object).nunique(dropna=False) > 1]
    shown = moving[:MOST_FEATURES]
    uncertain = bool(told["uncertainty"].notna().any())
    heights = [1.6, *([0.9] if uncertain else []), *([0.62] * len(shown))]
    with figure(path, 7.4, 0.9 + sum(heights)) as fig:
        panels = fig.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
        _probability(panels[0], step, told["probability"].to_numpy(float), *asked)
        if len(milestones) > 1:
            _milestones(panels[0], step[list(milestones)], told["probability"].to_numpy(float)[list(milestones)])
        if uncertain:
            panels[1].plot(step, told["uncertainty"], color=PALETTE[3], marker=_marker(step), ms=3)
            panels[1].set_ylabel("uncertainty", rotation=0, ha="right", va="center")
            panels[1].yaxis.set_major_locator(MaxNLocator(3))
        for axes, name in zip(panels[len(panels) - len(shown) :], shown, strict=True):
            _feature(axes, step, features[name], ranges.get(name))
        hidden = len(moving) - len(shown)
        panels[-1].set_xlabel("step" + (f"   ({hidden} more features move)" if hidden else ""))
        panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        if len(step) == 1:
            panels[-1].set_xlim(step[0] - 1, step[0] + 1)
        fig.suptitle(plain(title), fontsize=10)
    return fig


def _probability(axes: Axes, step: Any, probability: Any, outcome: str, confidence: float) -> None:
    axes.plot(step, probability, color=_UP, marker=_marker(step), ms=3)
    axes.axhline(confidence, color=INK, lw=0.9, ls="--")
    axes.annotate(
        f"asked: {wording.value(confidence)}",
        (0, confidence),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        xytext=(3, 3 if confidence < 0.85 else -10),
        fontsize=8,
    )
    axes.set(ylim=(-0.03, 1.03), yticks=(0, 0.5, 1))
    axes.set_ylabel(f"probability\nof {_short(outcome)}", rotation=0, ha="right", va="center")
    _ends(axes, step, (wording.probability(probability[0]), wording.probability(probability[-1])), probability)


def _milestones(axes: Axes, step: Any, probability: Any) -> None:
    """A dot for each milestone, with its number, on top of the line."""
    axes.scatter(step, probability, s=78, color=_UP, edgecolor="white", lw=0.9, zorder=3, clip_on=False)
    for number, where in enumerate(zip(step, probability, strict=True), start=1):
        axes.annotate(str(number), where, ha="center", va="center", fontsize=6, color="white", zorder=4)


def _feature(axes: Axes, step: Any, values: pd.Series, limits: tuple[float, float] | None) -> None:
    """One feature along the path: numbers as a line over their range, categories as steps."""
    first, last = values.iloc[0], values.iloc[-1]
    if limits is None:
        codes, _ = pd.factorize(values.astype(object))
        heights, bounds = codes.astype(float), (0.0, float(codes.max()))
        axes.step(step, heights, where="post", color=PALETTE[2])
    else:
        heights = values.to_numpy(float)
        bounds = (min(limits[0], heights.min()), max(limits[1], heights.max()))
        axes.plot(step, heights, color=PALETTE[4], marker=_marker(step), ms=3)
    margin = 0.14 * (bounds[1] - bounds[0])
    axes.set(ylim=(bounds[0] - margin, bounds[1] + margin), yticks=())
    axes.set_ylabel(_short(str(values.name)), rotation=0, ha="right", va="center", labelpad=64)
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="x", length=0)
    change = wording.change("", first, last, ordered=False)
    _ends(axes, step, (_short(change.old, 14), _short(change.new, 22)), heights, both=True)


def _ends(axes: Axes, step: Any, texts: tuple[str, str], heights: Any, both: bool = False) -> None:
    """Write the last value at the right end of a line and, if asked, the first one at its left."""
    look: dict[str, Any] = {"va": "center", "fontsize": 8, "textcoords": "offset points"}
    right, left = ("axes fraction", "data"), ("axes fraction", "data")
    axes.annotate(texts[1], (1, heights[-1]), xycoords=right, xytext=(4, 0), ha="left", **look)
    if both:
        axes.annotate(texts[0], (0, heights[0]), xycoords=left, xytext=(-4, 0), ha="right", color=SOFT, **look)


def draw_map(landscape: pd.DataFrame, paths: pd.DataFrame, note: str, path: Path | None = None) -> Figure:
    """Draw the latent map: codes in the colour of the class the model predicts, and paths on top.

    Args:
        landscape: `map_x`, `map_y`, `predicted` and, if known, `volume`, which is drawn as a grey background.
        paths: `row`, `map_x`, `map_y`, in the order of the steps.
        note: What the map shows, as its subtitle.
        path: Where to save the figure, if anywhere.
    """
    with figure(path, 7.2, 5.2) as fig:
        if not len(landscape) and not len(paths):
            return _say(fig, "There is no map of this explanation.")
        axes = fig.subplots()
        if "volume" in landscape and _is_flat(landscape[["map_x", "map_y"]].to_numpy(float)):
            x, y, volume = (landscape[name] for name in ("map_x", "map_y", "volume"))
            filled = axes.tricontourf(x, y, volume, levels=8, cmap="Greys", alpha=0.45, zorder=0)
            fig.colorbar(filled, ax=axes, label="volume", shrink=0.5, pad=0.01)
        _codes(axes, landscape)
        drawn = _walks(axes, paths)
        axes.set(xlabel="map x", ylabel="map y", aspect="equal", xticks=(), yticks=())
        axes.set_title(plain(note), fontsize=9, color=SOFT)
        hidden = paths["row"].nunique() - drawn
        fig.suptitle(
            f"Latent map ({drawn} path{'s' if drawn != 1 else ''}{f', {hidden} more not drawn' if hidden else ''})"
        )
        legend = fig.legend(*axes.get_legend_handles_labels(), loc="outside right upper")
        for handle in legend.legend_handles:
            if isinstance(handle, PathCollection):  # points as small as those on the map cannot be told by colour
                handle.set_sizes([30.0])
    return fig


def _is_flat(points: Any) -> bool:
    """Whether points fill a plane, so that it can be cut into triangles; those of a one-dimensional space do not."""
    return len(points) >= 3 and int(np.linalg.matrix_rank(points - points.mean(axis=0))) == 2


def _codes(axes: Axes, landscape: pd.DataFrame) -> None:
    size = float(np.clip(6000 / max(len(landscape), 1), 4, 24))
    looks = cycle((color, marker) for marker in "osv^D" for color in PALETTE)
    for (label, group), (color, marker) in zip(landscape.groupby("predicted", observed=True), looks, strict=False):
        axes.scatter(
            group["map_x"],
            group["map_y"],
            s=size,
            color=color,
            marker=marker,
            alpha=0.6,
            lw=0,
            rasterized=True,
            label=f"model says {_short(wording.value(label))}",
            zorder=1,
        )


def _walks(axes: Axes, paths: pd.DataFrame) -> int:
    """Draw the first paths, and return how many."""
    rows = paths["row"].unique()[:MOST_PATHS]
    size = 1.0 if len(rows) <= 8 else 0.5
    for place, row in enumerate(rows):
        steps = paths[paths["row"] == row]
        x, y = steps["map_x"].to_numpy(float), steps["map_y"].to_numpy(float)
        axes.plot(x, y, color="white", lw=2.6 * size, zorder=2)
        axes.plot(x, y, color=INK, lw=1.2 * size, zorder=3)
        labels = ("row as asked", "counterfactual") if place == 0 else (None, None)
        axes.scatter(x[0], y[0], s=34 * size, facecolor="white", edgecolor=INK, lw=0.9, zorder=4, label=labels[0])
        axes.scatter(x[-1], y[-1], s=95 * size, marker="*", color=INK, lw=0, zorder=5, label=labels[1])
    return len(rows)


def _say(fig: Figure, words: str) -> Figure:
    fig.text(0.5, 0.5, words, ha="center", va="center", color=SOFT)
    return fig


def _marker(step: Any) -> str:
    return "o" if len(step) <= 40 else ""


def _short(given: Any, width: int = _LABEL_WIDTH) -> str:
    text = wording.value(given)
    return plain(text if len(text) <= width else text[: width - 1] + "…")
