"""The figures of explanations, from tables: what changes, one row's path, the latent map, and methods side by side."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from textwrap import wrap
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from counterpath.data.schema import Feature, Schema
from counterpath.explanation import wording
from counterpath.explanation.plots.style import COLORS, INK, MOST_FEATURES, MOST_PATHS, PALETTE, SOFT, figure, plain
from counterpath.explanation.summary import change_shares, commonest_change
from counterpath.explanation.tables import differences, moving_features

Ranges: TypeAlias = Mapping[str, tuple[float, float]]
"""The smallest and the largest value of each feature that is a number."""

MOST_COMPARED = 9
"""How many features are drawn for several methods, those that most of them change: with the map, a page."""

_UP, _DOWN, _OTHER = "#0072B2", "#D55E00", "#8a929c"
_PALE = ("#c4cad2", "#ecd08a", "#b5d5c5", "#d9c2dd", "#b8d4ea")
"""Classes where paths have the colours of methods, which must stand out."""
_LABEL_WIDTH = 26  # characters of a label that fit beside a panel
_CHARACTER = 4.6  # points across of a letter of a value beside a panel
_LEAST_PAD = 14  # letters between a panel and the name of its feature, where values are short
_VALUE_WIDTH = 21  # characters of each of the two lines of a value that fit between the narrow panels of two methods
_PATHS_ON_MAP = 0.75  # how far a map reaches to either side, compared to the paths on it
_LEAST_ON_MAP = 0.1  # the same compared to all codes, where the paths are short
_BESIDE_MAP = 0.5  # what the legend takes, compared to the height of the map
_RASTERIZED = 500  # from so many points on, a drawing of them is smaller as an image than as shapes


def draw_changes(
    old: pd.DataFrame,
    new: pd.DataFrame,
    changed: pd.DataFrame,
    ranges: Ranges,
    schema: Schema,
    path: str | Path | None = None,
    unit: str = "row",
) -> Figure:
    """Draw how often each feature changes, and beside it by how much.

    Args:
        old: The rows as asked.
        new: The rows as returned.
        changed: Which features differ.
        ranges: The features that are numbers; what they change by is drawn as a share of their range.
        schema: What people call them.
        path: Where to save the figure, if anywhere.
        unit: What a row is.
    """
    names = list(change_shares(changed))
    shown = names[:MOST_FEATURES]
    with figure(path, 8.6, 1.3 + 0.36 * max(len(shown), 2)) as fig:
        if not shown:
            return _write_only(fig, f"No {unit} was found, so there is nothing to draw.")
        often, amount = fig.subplots(1, 2, sharey=True, width_ratios=(1, 1.25))
        for y, name in enumerate(shown):
            moved = changed[name].to_numpy(bool)
            difference = differences(schema[name], old[name][moved], new[name][moved]) if name in ranges else None
            if difference is not None and not np.isnan(difference).all():
                _draw_shares(often, y, np.nan_to_num(np.sign(difference)), len(changed))
                _draw_amounts(amount, y, difference[~np.isnan(difference)], ranges[name])
            else:
                _draw_shares(often, y, np.zeros(int(moved.sum())), len(changed))
                _draw_commonest(amount, y, schema[name], old[name][moved], new[name][moved])
        titles = [schema[name].title for name in shown]
        _finish_changes(often, amount, titles, len(changed), len(names) - len(shown), unit)
    return fig


def _draw_shares(axes: Axes, y: int, direction: NDArray[np.float64], count: int) -> None:
    """In how many of all rows a feature rises, falls, or changes without an order."""
    left = 0.0
    for sign, color in ((1, _UP), (-1, _DOWN), (0, _OTHER)):
        share = float((direction == sign).sum()) / count
        axes.barh(y, share, left=left, color=color, height=0.62)
        left += share
    axes.annotate(wording.percent(left), (left, y), textcoords="offset points", xytext=(4, 0), va="center", fontsize=8)


def _draw_amounts(axes: Axes, y: int, difference: NDArray[np.float64], limits: tuple[float, float]) -> None:
    """Points, the middle half as a band, and the median, all as shares of the range."""
    scaled = difference / ((limits[1] - limits[0]) or 1.0)
    low, middle, high = np.quantile(scaled, (0.25, 0.5, 0.75))
    jitter = np.random.default_rng(0).uniform(-0.2, 0.2, len(scaled))
    colors = np.where(scaled > 0, _UP, _DOWN)
    many = len(scaled) > _RASTERIZED
    axes.barh(y, high - low, left=low, height=0.62, color="#dfe4ea", zorder=1)
    axes.scatter(scaled, y + jitter, s=12, c=colors, alpha=0.65, lw=0, zorder=2, rasterized=many)
    axes.plot([middle, middle], [y - 0.31, y + 0.31], color=INK, lw=1.6, zorder=1.5)


def _draw_commonest(axes: Axes, y: int, feature: Feature, old: pd.Series, new: pd.Series) -> None:
    """A category has no amount; write its commonest change instead."""
    change, count = commonest_change(old, new, partial(_value, feature))
    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "color": SOFT}
    background = {"facecolor": "white", "edgecolor": "none", "pad": 2}
    text = f"{change}  ({count} of {len(old)})"
    axes.annotate(text, (0.5, y), xycoords=("axes fraction", "data"), bbox=background, **look)


def _finish_changes(often: Axes, amount: Axes, names: list[str], rows: int, hidden: int, unit: str) -> None:
    often.set_yticks(range(len(names)), [_cut(name) for name in names])
    often.set_ylim(len(names) - 0.5, -0.5)
    often.set(xlim=(0, 1.12), xticks=(0, 0.5, 1), title=f"How often it changes ({wording.counted(rows, unit)})")
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


def draw_importance(table: pd.DataFrame, people: int, schema: Schema, path: str | Path | None = None) -> Figure:
    """Draw how often features change and how far they move then, with the intervals of both.

    Args:
        table: As of `Explanation.importance`.
        people: How many people have an answer.
        schema: What people call the features.
        path: Where to save the figure, if anywhere.
    """
    moving = table[table["often"] > 0]
    shown, held = moving.head(MOST_FEATURES), int(table["held"].sum())
    with figure(path, 8.6, 1.3 + 0.3 * max(len(shown), 2)) as fig:
        if not len(shown):
            return _write_only(fig, "Nothing changes in any answer, so there is nothing to draw.")
        axes = fig.subplots(1, 2, sharey=True)
        titles = (
            f"How often it changes ({wording.counted(people, 'person', 'people')})",
            "How far it moves then, in percent of its range",
        )
        for panel, name, title, color in zip(axes, ("often", "far"), titles, (_UP, INK), strict=True):
            for y, (_, row) in enumerate(shown.iterrows()):
                panel.plot([row[f"{name}_low"], row[f"{name}_high"]], [y, y], color=color, lw=5, alpha=0.25)
                panel.plot(row[name], y, "o", color=color, ms=5)
            panel.set_title(title)
            panel.set_xlim(left=-0.02)
            panel.xaxis.set_major_locator(MaxNLocator(5))
            panel.xaxis.set_major_formatter(PercentFormatter(1.0))
            panel.grid(axis="y", color="#e9edf1", lw=0.8)
            panel.tick_params(axis="y", length=0)
        axes[0].set_yticks(range(len(shown)), [_cut(schema[str(name)].title) for name in shown.index])
        axes[0].set_ylim(len(shown) - 0.5, -0.5)
        never = len(table) - len(moving)
        notes = [
            "bars: 95 % intervals over people",
            *([f"{len(moving) - len(shown)} more change less often"] if len(moving) > len(shown) else []),
            *([f"{wording.counted(never, 'feature')} never changed, {held} held"] if never else []),
        ]
        fig.supxlabel(" · ".join(notes), fontsize=8, color=SOFT)
    return fig


def draw_path(
    steps: pd.DataFrame,
    features: pd.DataFrame,
    ranges: Ranges,
    schema: Schema,
    title: str,
    asked: tuple[str, float],
    path: str | Path | None = None,
    milestones: Sequence[int] = (),
) -> Figure:
    """Draw one path: probability, uncertainty where it is known, and every feature that moves.

    Args:
        steps: One row a step: `step`, `probability`, `uncertainty`.
        features: The features at every step.
        ranges: The features that are numbers; each is drawn over this range, widened by the path.
        schema: What people call them.
        title: The heading.
        asked: What is known along a path, as `Row.measured` has it, and the confidence.
        path: Where to save the figure, if anywhere.
        milestones: Where the steps of a short account of the path end, by position; the numbers of several are drawn.
    """
    step, probability = steps["step"].to_numpy(float), steps["probability"].to_numpy(float)
    moving = moving_features(features)
    shown = moving[:MOST_FEATURES]
    uncertain = bool(steps["uncertainty"].notna().any())
    heights = [1.6, *([0.9] if uncertain else []), *([0.62] * len(shown))]
    with figure(path, 7.4, 0.9 + sum(heights)) as fig:
        panels = fig.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
        _draw_probability(panels[0], step, probability, *asked)
        if len(milestones) > 1:
            _number_milestones(panels[0], step[list(milestones)], probability[list(milestones)])
        if uncertain:
            panels[1].plot(step, steps["uncertainty"], color=PALETTE[3], marker=_marker(step), ms=3)
            panels[1].set_ylabel("uncertainty", rotation=0, ha="right", va="center")
            panels[1].yaxis.set_major_locator(MaxNLocator(3))
        pad = _CHARACTER * max([_LEAST_PAD, *(len(_value(schema[name], features[name].array[0])) for name in shown)])
        for axes, name in zip(panels[len(panels) - len(shown) :], shown, strict=True):
            _draw_feature(axes, step, schema[name], features[name], ranges.get(name))
            axes.yaxis.labelpad = pad
        hidden = len(moving) - len(shown)
        panels[-1].set_xlabel("step" + (f"   ({hidden} more features move)" if hidden else ""))
        panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        if len(step) == 1:
            panels[-1].set_xlim(step[0] - 1, step[0] + 1)
        fig.suptitle(plain(title), fontsize=10)
    return fig


def _draw_probability(axes: Axes, step: Any, probability: Any, measured: str, confidence: float) -> None:
    axes.plot(step, probability, color=_UP, marker=_marker(step), ms=3)
    if confidence == confidence:  # NaN where only the decision counts
        axes.axhline(confidence, color=INK, lw=0.9, ls="--")
        axes.annotate(
            f"asked: {wording.rounded(confidence)}",
            (0, confidence),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            xytext=(3, 3 if confidence < 0.85 else -10),
            fontsize=8,
        )
    axes.set(ylim=(-0.03, 1.03), yticks=(0, 0.5, 1))
    what, _, whose = measured.partition(" ")
    axes.set_ylabel(f"{what}\n{_cut(whose)}", rotation=0, ha="right", va="center")
    _write_end(axes, probability[-1], wording.probability(probability[-1]))


def _number_milestones(axes: Axes, step: Any, probability: Any) -> None:
    """A dot for each milestone, with its number, on top of the line."""
    axes.scatter(step, probability, s=78, color=_UP, edgecolor="white", lw=0.9, zorder=3, clip_on=False)
    for number, where in enumerate(zip(step, probability, strict=True), start=1):
        axes.annotate(str(number), where, ha="center", va="center", fontsize=6, color="white", zorder=4)


def _draw_feature(
    axes: Axes, step: Any, feature: Feature, values: pd.Series, limits: tuple[float, float] | None
) -> None:
    """One feature along the path: numbers as a line over their range, categories as steps."""
    if limits is None or not feature.is_measured(values).all():
        codes, _ = pd.factorize(values.astype(object), use_na_sentinel=False)
        heights, bounds = codes.astype(float), (0.0, float(codes.max()))
        axes.step(step, heights, where="post", color=PALETTE[2])
    else:
        heights = values.to_numpy(float)
        bounds = (min(limits[0], heights.min()), max(limits[1], heights.max()))
        axes.plot(step, heights, color=PALETTE[4], marker=_marker(step), ms=3)
    axes.set_ylabel(_cut(feature.title), rotation=0, ha="right", va="center")
    _frame_feature(axes, *bounds, margin=0.14 * (bounds[1] - bounds[0]))
    _write_end(axes, heights[-1], _value(feature, values.array[-1], unit=True))
    _write_end(axes, heights[0], _value(feature, values.array[0]), at_start=True)


def _frame_feature(axes: Axes, low: float, high: float, margin: float) -> None:
    """A panel of one feature has its values at the ends of the line, and no scale."""
    axes.set(ylim=(low - margin, high + margin), yticks=())
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="x", length=0)


def _write_end(axes: Axes, height: float, text: str, size: float = 8, *, at_start: bool = False) -> None:
    """Write the last value at the right end of a line, or the first one at its left."""
    look: dict[str, Any] = {"va": "center", "fontsize": size, "textcoords": "offset points"}
    look |= {"ha": "right", "xytext": (-4, 0), "color": SOFT} if at_start else {"ha": "left", "xytext": (4, 0)}
    axes.annotate(text, (0 if at_start else 1, height), xycoords=("axes fraction", "data"), **look)


def draw_map(
    landscape: pd.DataFrame, paths: pd.DataFrame, schema: Schema, note: str, path: str | Path | None = None
) -> Figure:
    """Draw the latent map: codes in the colour of the class the model predicts, and paths on top.

    Args:
        landscape: `map_x`, `map_y`, `predicted` and, if known, `volume`, which is drawn as a grey background.
        paths: `row`, `map_x`, `map_y`, in the order of the steps.
        schema: What people call the classes.
        note: What the map shows, as its subtitle.
        path: Where to save the figure, if anywhere.
    """
    with figure(path, 7.2, 5.2) as fig:
        if not len(landscape) and not len(paths):
            return _write_only(fig, "There is no map of this explanation.")
        axes = fig.subplots()
        if "volume" in landscape and _is_flat(landscape[["map_x", "map_y"]].to_numpy(float)):
            x, y, volume = (landscape[name] for name in ("map_x", "map_y", "volume"))
            filled = axes.tricontourf(x, y, volume, levels=8, cmap="Greys", alpha=0.45, zorder=0)
            fig.colorbar(filled, ax=axes, label="volume", shrink=0.5, pad=0.01)
        _draw_codes(axes, landscape, schema)
        drawn = _draw_paths(axes, paths)
        axes.set(xlabel="map x", ylabel="map y", aspect="equal", xticks=(), yticks=())
        axes.set_title(plain(note), fontsize=9, color=SOFT)
        hidden = paths["row"].nunique() - drawn
        fig.suptitle(f"Latent map ({wording.counted(drawn, 'path')}{f', {hidden} more not drawn' if hidden else ''})")
        _enlarge_dots(fig.legend(*axes.get_legend_handles_labels(), loc="outside right upper"), 30.0)
    return fig


def _enlarge_dots(legend: Legend, size: float) -> None:
    """Points as small as those on the map cannot be told apart by colour."""
    for handle in legend.legend_handles:
        if isinstance(handle, PathCollection):
            handle.set_sizes([size])


def _is_flat(points: Any) -> bool:
    """Whether points fill a plane, so that it can be cut into triangles; those of a one-dimensional space do not."""
    return len(points) >= 3 and int(np.linalg.matrix_rank(points - points.mean(axis=0))) == 2


def _draw_codes(axes: Axes, landscape: pd.DataFrame, schema: Schema) -> None:
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
            label=f"predicted {_cut(wording.class_text(schema, label))}",
            zorder=1,
        )


def _draw_paths(axes: Axes, paths: pd.DataFrame) -> int:
    """Draw the first paths, and return how many."""
    rows = paths["row"].unique()[:MOST_PATHS]
    size = 1.0 if len(rows) <= 8 else 0.5
    for number, row in enumerate(rows):
        steps = paths[paths["row"] == row]
        x, y = steps["map_x"].to_numpy(float), steps["map_y"].to_numpy(float)
        axes.plot(x, y, color="white", lw=2.6 * size, zorder=2)
        axes.plot(x, y, color=INK, lw=1.2 * size, zorder=3)
        labels = ("now", "counterfactual") if number == 0 else (None, None)
        axes.scatter(x[0], y[0], s=34 * size, facecolor="white", edgecolor=INK, lw=0.9, zorder=4, label=labels[0])
        axes.scatter(x[-1], y[-1], s=95 * size, marker="*", color=INK, lw=0, zorder=5, label=labels[1])
    return len(rows)


def draw_side_by_side(
    landscape: pd.DataFrame,
    paths: Mapping[str, pd.DataFrame],
    features: Mapping[str, pd.DataFrame],
    numeric: Collection[str],
    schema: Schema,
    title: str,
    asked: tuple[str, float],
    path: str | Path | None = None,
    *,
    with_map: bool = True,
) -> Figure:
    """Draw the paths of one row by several methods: on one latent map, and below it a column a method.

    Every row of panels has one scale, so that methods can be compared across it. Along a panel is the share of the
    steps of the path, because methods take different numbers of them.

    Args:
        landscape: `map_x`, `map_y`, `predicted` of training rows; may be empty.
        paths: By the name of the method one row a step: `step`, `probability`, `map_x`, `map_y`.
        features: By the name of the method the features at every step.
        numeric: The features that are numbers.
        schema: What people call them.
        title: The heading.
        asked: What is known along a path, as `Row.measured` has it, and the confidence.
        path: Where to save the figure, if anywhere.
        with_map: Whether to draw the map.
    """
    moving = _moving(list(features.values()))
    shown = moving[:MOST_COMPARED]
    heights = [1.25, *([0.62] * len(shown))]
    map_height = 3.4 if with_map else 0.0
    with figure(path, 2.6 + 1.95 * len(paths), 0.6 + map_height + sum(heights)) as fig:
        fig.suptitle(plain(title), fontsize=11, color=INK)
        below: Any = fig
        if with_map:
            parts: Any = fig.subfigures(2, 1, height_ratios=(map_height - 0.4, 0.6 + sum(heights)))
            above, below = parts
            _draw_methods_on_map(above.subplots(), above, landscape, paths, schema)
        panels = below.subplots(
            len(heights), len(paths), sharex=True, sharey="row", height_ratios=heights, squeeze=False
        )
        for column, (name, steps) in zip(panels.T, paths.items(), strict=True):
            _draw_method_probability(column[0], name, steps, asked[1])
            changed = sum(_differs(values) for _, values in features[name].iloc[[0, -1]].items())
            column[0].set_title(f"{name}\n{wording.counted(changed, 'feature')} changed", fontsize=9)
        panels[0, 0].set_ylabel(
            plain("\n".join(asked[0].split(" ", 1))), rotation=0, ha="right", va="center", fontsize=8
        )
        shares = {name: _shares(steps) for name, steps in paths.items()}
        for row, feature in zip(panels[1:], shown, strict=True):
            values = {name: frame[feature] for name, frame in features.items()}
            _draw_feature_by_method(row, schema[feature], values, shares, feature in numeric)
        for axes in panels[-1]:
            axes.set(xlim=(-0.04, 1.04), xticks=())
        hidden = len(moving) - len(shown)
        note = f"; {hidden} more features move" if hidden else ""
        below.supxlabel(f"from now (left) to the counterfactual (right){note}", fontsize=8, color=SOFT)
    return fig


def _moving(paths: Sequence[pd.DataFrame]) -> list[str]:
    """The features that any path moves; first those that most methods leave changed."""
    names = [str(name) for name in paths[0]]
    moved = {name: sum(_differs(path[name]) for path in paths) for name in names}
    changed = {name: sum(_differs(path[name].iloc[[0, -1]]) for path in paths) for name in names}
    return sorted((name for name in names if moved[name]), key=lambda name: (-changed[name], -moved[name]))


def _draw_methods_on_map(
    axes: Axes, fig: Any, landscape: pd.DataFrame, paths: Mapping[str, pd.DataFrame], schema: Schema
) -> None:
    if len(landscape):
        for (label, group), color in zip(landscape.groupby("predicted", observed=True), _PALE, strict=False):
            text = plain(f"predicted {wording.class_text(schema, label)}")
            axes.scatter(group["map_x"], group["map_y"], s=5, color=color, lw=0, rasterized=True, label=text, zorder=1)
    start = next(iter(paths.values())).iloc[0]
    look: Any = {"s": 46, "color": "white", "edgecolor": INK, "lw": 1.3, "zorder": 6}
    axes.scatter(start["map_x"], start["map_y"], label="now", **look)
    for under, (name, steps) in zip(reversed(range(len(paths))), paths.items(), strict=True):
        x, y = steps["map_x"].to_numpy(float), steps["map_y"].to_numpy(float)
        width = 1.6 + 1.3 * under  # paths often coincide: what lies under another one is wider
        axes.plot(x, y, color="white", lw=width + 1.6, zorder=2)
        axes.plot(x, y, color=_color(name), lw=width, label=name, zorder=3)
        size = 110 * (1 + 0.6 * under)
        axes.scatter(x[-1], y[-1], s=size, marker="*", color=_color(name), edgecolor="white", lw=0.6, zorder=5)
    _zoom_in(axes, pd.concat([landscape, *paths.values()]), pd.concat(list(paths.values())))
    axes.set(xticks=(), yticks=())
    axes.set_title("Latent map: each method's path, with a star at its counterfactual", fontsize=9, color=SOFT)
    for spine in axes.spines.values():
        spine.set_visible(False)
    _enlarge_dots(fig.legend(*axes.get_legend_handles_labels(), loc="outside right center", fontsize=8), 34.0)


def _zoom_in(axes: Axes, everything: pd.DataFrame, paths: pd.DataFrame) -> None:
    """Show what is around the paths, at one scale, and as much to the left and right of it as fits."""
    names = ["map_x", "map_y"]
    low, high = paths[names].min().to_numpy(float), paths[names].max().to_numpy(float)
    extent = everything[names].max().to_numpy(float) - everything[names].min().to_numpy(float)
    reach = max(_PATHS_ON_MAP * float((high - low).max()), _LEAST_ON_MAP * float(extent.max())) or 1.0
    middle = 0.5 * (low + high)
    wide = reach * (axes.figure.bbox.width / axes.figure.bbox.height - _BESIDE_MAP)
    axes.set(xlim=(middle[0] - wide, middle[0] + wide), ylim=(middle[1] - reach, middle[1] + reach), aspect="equal")


def _draw_method_probability(axes: Axes, name: str, steps: pd.DataFrame, confidence: float) -> None:
    values = steps["probability"].to_numpy(float)
    axes.plot(_shares(steps), values, color=_color(name), lw=1.8)
    axes.scatter(1, values[-1], s=44, marker="*", color=_color(name), lw=0, zorder=4, clip_on=False)
    if confidence == confidence:
        axes.axhline(confidence, color=INK, lw=0.8, ls="--")
    axes.set(ylim=(-0.03, 1.03), yticks=(0, 0.5, 1))
    axes.tick_params(labelsize=7)
    _write_end(axes, values[-1], wording.probability(values[-1]), 7.5)


def _draw_feature_by_method(
    row: Any, feature: Feature, values: Mapping[str, pd.Series], shares: Mapping[str, Any], is_numeric: bool
) -> None:
    """One feature along the path of every method, over one scale; what does not change is grey."""
    together = pd.concat([one.astype(object) for one in values.values()])
    is_numeric = is_numeric and bool(feature.is_measured(together).all())
    codes = together.to_numpy(float) if is_numeric else pd.factorize(together, use_na_sentinel=False)[0].astype(float)
    low, high = float(codes.min()), float(codes.max())
    lengths = np.cumsum([len(one) for one in values.values()])[:-1]
    for axes, (name, one), heights in zip(row, values.items(), np.split(codes, lengths), strict=True):
        style = {} if is_numeric else {"drawstyle": "steps-post"}
        axes.plot(shares[name], heights, color=_color(name) if _differs(one) else "#c3c9d0", lw=1.6, **style)
        if _differs(one.iloc[[0, -1]]):
            _write_end(axes, heights[-1], _folded(_value(feature, one.array[-1], 2 * _VALUE_WIDTH)), 7.5)
        _frame_feature(axes, low, high, margin=0.18 * ((high - low) or 1.0))
    first = next(iter(values.values())).array[0]
    label = f"{_cut(feature.title, 24)}\n{_folded(_value(feature, first, 2 * _VALUE_WIDTH, unit=True))}"
    row[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)


def _shares(steps: pd.DataFrame) -> Any:
    """How much of the path lies behind each point, by steps; not all of them need be there."""
    step = steps["step"].to_numpy(float)
    return step / step[-1] if step[-1] > 0 else np.ones(len(step))


def _differs(values: pd.Series) -> bool:
    return bool(values.astype(object).nunique(dropna=False) > 1)


def _color(method: str) -> str:
    return COLORS.get(method, PALETTE[0])


def _write_only(fig: Figure, words: str) -> Figure:
    fig.text(0.5, 0.5, words, ha="center", va="center", color=SOFT)
    return fig


def _marker(step: Any) -> str:
    return "o" if len(step) <= 40 else ""  # dots of more steps run into each other


def _value(feature: Feature, given: Any, width: int = _LABEL_WIDTH, *, unit: bool = False) -> str:
    """A value of a feature; only the names of categories are cut, for a number without its last digits is another."""
    text = wording.amount(feature, given) if unit else wording.shown(feature, given)
    return _cut(text, width) if feature.categories else plain(text)


def _folded(text: str) -> str:
    """A text in two lines at most."""
    first, *rest = wrap(text, _VALUE_WIDTH) or [""]
    return "\n".join([first, _cut(" ".join(rest), _VALUE_WIDTH)] if rest else [first])


def _cut(text: str, width: int = _LABEL_WIDTH) -> str:
    return plain(text if len(text) <= width else text[: width - 1] + "…")
