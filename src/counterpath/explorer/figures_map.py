"""The latent map in a browser: codes by class, the metric's volume element behind them, paths on top."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from counterpath.explainer.explainer import Explainer
from counterpath.explanation import Explanation, wording
from counterpath.explanation.plots.style import COLORS, INK, PALETTE
from counterpath.explanation.tables import position
from counterpath.explorer.plotting import (
    LINE,
    PAPER,
    SMALL,
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
from counterpath.fitting.fitted import FittedModels
from counterpath.geometry.metric import DAMPING, damped, volume
from counterpath.models.latent import context_for
from counterpath.search.methods import geometry_of
from counterpath.utils.blocks import map_blocks

MOST_CODES = 2000
"""How many codes are drawn at most."""
_HEIGHT = 560
_CELLS = 40
_TOGETHER = 0.06
"""Ends of paths nearer than this share of the map's side have one label."""
_NAME, _MOST_NAMES, _REACH = 16, 3, 0.36
"""How many characters of how many names label a point, and how much of the side of the map they take on a phone."""
_LEVELS = [[0, "#ffffff"], [0.35, "#e6e9ed"], [0.7, "#bfc6cf"], [1, "#8f99a6"]]
_CLASSES = tuple(PALETTE[place] for place in (0, 1, 3, 6, 2, 4, 5))
"""First those that no method has that is compared by default."""
_SYMBOLS = ("circle", "square", "triangle-up", "diamond", "x")


@dataclass(frozen=True)
class Relief:
    """The volume element over the map.

    Attributes:
        x: The columns of a grid, rising.
        y: Its rows, rising.
        volume: The volume element √det M in each cell, one row a `y`; NaN where it is not known.
        note: Where in the latent space it was measured, in words.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    volume: NDArray[np.float64]
    note: str = ""


def map_figure(
    results: Mapping[str, Explanation], i: Any, *, plan: int | None = None, relief: Relief | None = None
) -> Figure:
    """The latent map with the path of one row by each method.

    Args:
        results: The explanations by the names of their methods, or by whatever they are to be called.
        i: The row, as in `Explanation.path`; results that do not have its path are left out.
        plan: Which plan of the person, as there; of results with one plan the only one.
        relief: The background; by default what `landscape` has as `volume`, averaged near each place.

    Raises:
        InputError: There is no such row.
    """
    first = next(iter(results.values()))
    walks = {name: _walk(result, i, plan) for name, result in results.items()}
    walks = {name: walk for name, walk in walks.items() if len(walk)}
    codes = first.landscape.iloc[:: max(1, -(-len(first.landscape) // MOST_CODES))]
    if not len(codes) and not walks:
        return nothing("There is no map of this explanation.")
    relief = relief or _averaged(first.landscape)
    data = [*([_background(relief)] if relief is not None else []), *_codes(codes)]
    for under, (name, walk) in zip(reversed(range(len(walks))), walks.items(), strict=True):
        data += _path(name, walk, under)
    starts = [walk.iloc[0] for walk in walks.values()]
    if starts:
        data.append(_start(starts[0]))
    box = _box(codes, list(walks.values()))
    said = f"{first.note[:1].upper()}{first.note[1:]}." + (f" {relief.note}" if relief is not None else "")
    lines = 1 + len(said) // 46
    alt = f"Latent map with the paths of {wording.listed(list(walks)) or 'nobody'}. {said}"
    return figure(
        data,
        alt,
        height=_HEIGHT + 15 * lines,
        margin={"l": 24, "r": 8, "t": 8, "b": (88 if relief is not None else 34) + 15 * lines},
        xaxis=axis(range=box[0], constraintoward="left", **_frame("map x")),
        yaxis=axis(range=box[1], scaleanchor="x", constraintoward="top", **_frame("map y")),
        showlegend=True,
        legend={"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom", "font": {"size": SMALL}, "itemwidth": 30},
        hovermode="closest",
        annotations=[*_labels(walks, box), caption(said, 78 if relief is not None else 26, left=22)],
    )


def _walk(result: Explanation, i: Any, plan: int | None) -> pd.DataFrame:
    """The path of a row; empty where it was not kept, or there is none."""
    return result.paths[result.paths["row"] == position(result.factuals.index, i, plan, result.plans)]


def _frame(title: str) -> dict[str, Any]:
    words = {"text": title, "font": soft(), "standoff": 4}
    return {"showticklabels": False, "title": words, "constrain": "domain", "showline": True, "linecolor": LINE}


def _background(relief: Relief) -> dict[str, Any]:
    bar = {
        "orientation": "h",
        "x": 0,
        "xanchor": "left",
        "y": 0,
        "yanchor": "top",
        "ypad": 26,
        "xpad": 0,
        "thickness": 8,
        "len": 220,
        "lenmode": "pixels",
        "outlinewidth": 0,
        "tickfont": soft(),
        "nticks": 5,
        "title": {"text": "volume element √det M, log₁₀", "font": soft(), "side": "bottom"},
    }
    with np.errstate(divide="ignore"):
        heights = np.log10(relief.volume)
    known = heights[np.isfinite(heights)]
    low, high = (float(share) for share in np.quantile(known, (0.01, 0.99))) if len(known) else (0.0, 1.0)
    return {
        "type": "heatmap",
        "x": rounded(relief.x),
        "y": rounded(relief.y),
        "z": [rounded(row) for row in heights],
        "zsmooth": "best",
        "zmin": low,
        "zmax": high if high > low else low + 1,
        "colorscale": _LEVELS,
        "colorbar": bar,
        "hoverinfo": "skip",
        "connectgaps": False,
    }


def _averaged(landscape: pd.DataFrame) -> Relief | None:
    """The volume element of codes, averaged (geometrically) with weights that fall off with their distance."""
    if "volume" not in landscape or len(landscape) < 3:
        return None
    points = landscape[["map_x", "map_y"]].to_numpy(float)
    heights = np.log(np.maximum(landscape["volume"].to_numpy(float), np.finfo(float).tiny))
    x, y = (np.linspace(column.min(), column.max(), _CELLS) for column in points.T)
    width = np.hypot(np.ptp(x), np.ptp(y)) / 30 or 1.0
    near = np.exp(-((x[:, None] - points[:, 0]) ** 2) / (2 * width**2))
    nigh = np.exp(-((y[:, None] - points[:, 1]) ** 2) / (2 * width**2))
    weight = nigh @ near.T
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (nigh * heights) @ near.T / weight
    return Relief(x, y, np.where(weight > 0.1, np.exp(mean), np.nan), "Background: the mean over codes nearby.")


def _codes(codes: pd.DataFrame) -> list[dict[str, Any]]:
    looks = zip(cycle(_CLASSES), cycle(_SYMBOLS), strict=False)
    return [
        {
            "type": "scattergl" if len(codes) > 5000 else "scatter",
            "x": rounded(group["map_x"]),
            "y": rounded(group["map_y"]),
            "mode": "markers",
            "marker": {"size": 4, "color": color, "symbol": symbol, "opacity": 0.65},
            "name": f"model says {shown(label, 20)}",
            "hoverinfo": "skip",
        }
        for (label, group), (color, symbol) in zip(codes.groupby("predicted", observed=True), looks, strict=False)
    ]


def _path(name: str, walk: pd.DataFrame, under: int) -> list[dict[str, Any]]:
    """A path and the star at its end; what lies under others is wider, because paths often coincide."""
    x, y = rounded(walk["map_x"]), rounded(walk["map_y"])
    color, width = COLORS.get(name, PALETTE[0]), 2.2 + 1.4 * under
    texts = [
        f"<b>{shown(name)}</b>, step {step}<br>probability {shown(wording.probability(probability))}"
        for step, probability in zip(walk["step"].tolist(), walk["probability"].tolist(), strict=True)
    ]
    line = {"type": "scatter", "x": x, "y": y, "mode": "lines", "legendgroup": name}
    return [
        {**line, "line": {"color": "white", "width": width + 2}, "hoverinfo": "skip", "showlegend": False},
        {**line, "line": {"color": color, "width": width}, "name": shown(name), "text": texts, "hoverinfo": "text"},
        {
            **line,
            "x": x[-1:],
            "y": y[-1:],
            "mode": "markers",
            "marker": {
                "symbol": "star",
                "size": 15 + 3 * under,
                "color": color,
                "line": {"color": "white", "width": 1},
            },
            "text": texts[-1:],
            "hoverinfo": "text",
            "showlegend": False,
        },
    ]


def _start(point: pd.Series) -> dict[str, Any]:
    return {
        "type": "scatter",
        "x": rounded([point["map_x"]]),
        "y": rounded([point["map_y"]]),
        "mode": "markers",
        "marker": {"size": 11, "color": "white", "line": {"color": INK, "width": 2}},
        "text": ["row as asked"],
        "hoverinfo": "text",
        "showlegend": False,
    }


def _box(codes: pd.DataFrame, walks: list[pd.DataFrame]) -> tuple[list[float], list[float]]:
    """From where to where to draw, a square: nearly all codes, and all of every path."""
    sides: list[tuple[float, float]] = []
    for name in ("map_x", "map_y"):
        ends = [walk[name].to_numpy(float) for walk in walks]
        ends += [np.quantile(codes[name].to_numpy(float), (0.002, 0.998))] if len(codes) else []
        sides.append((float(np.concatenate(ends).min()), float(np.concatenate(ends).max())))
    half = 0.55 * (max(high - low for low, high in sides) or 1.0)
    middles = [(low + high) / 2 for low, high in sides]
    return [middles[0] - half, middles[0] + half], [middles[1] - half, middles[1] + half]


def _labels(walks: Mapping[str, pd.DataFrame], box: tuple[list[float], list[float]]) -> list[dict[str, Any]]:
    """The name of each method beside the end of its path, one label for ends that lie together; and where all begin."""
    if not walks:
        return []
    reach = _TOGETHER * (box[0][1] - box[0][0])
    start = next(iter(walks.values()))[["map_x", "map_y"]].to_numpy(float)[0]
    places: list[tuple[NDArray[np.float64], list[str]]] = []
    for name, walk in walks.items():
        end = walk[["map_x", "map_y"]].to_numpy(float)[-1]
        beside = [names for place, names in places if np.hypot(*(place - end)) < reach]
        if beside:
            beside[0].append(name)
        else:
            places.append((end, [name]))
    middle = np.mean([place for place, _ in places], axis=0)
    ends = [_label(_names(names), place, _is_left(place[0], start[0], box[0])) for place, names in places]
    return [*ends, _label("as asked", start, _is_left(start[0], middle[0], box[0]))]


def _names(names: list[str]) -> str:
    told = [shown(name, _NAME) for name in names[:_MOST_NAMES]]
    more = len(names) - len(told)
    return "<br>".join([*told, *([f"and {more} more"] if more else [])])


def _is_left(place: float, other: float, side: list[float]) -> bool:
    """Whether to write a label left of a place: on the other side than its path, if there is room."""
    reach = _REACH * (side[1] - side[0])
    if min(side[1] - place, place - side[0]) < reach:
        return bool(place > (side[0] + side[1]) / 2)
    return bool(place < other)


def _label(words: str, place: NDArray[np.float64], to_the_left: bool) -> dict[str, Any]:
    x, y = (float(part) for part in place)
    side = {"xanchor": "right", "xshift": -12} if to_the_left else {"xanchor": "left", "xshift": 12}
    look = {"bgcolor": PAPER, "borderpad": 1, "font": {"size": SMALL, "color": INK}}
    return note(words, x=x, y=y, xref="x", yref="y", yanchor="middle", align="left", **side, **look)


_GRID_CELLS = 44
_CODES = 1500
_HALF = 0.58
_NEAR = 40
_FEW = 15


def relief_for(explainer: Explainer, person: pd.DataFrame, method: str = "rsgd") -> Relief | None:
    """The volume element √det M over the map, as it is for a person's own immutable features.

    It takes some 100 ms on a CPU, so it does not belong on an event loop.

    Args:
        explainer: A fitted explainer.
        person: One row, with the columns of the training table.
        method: Whose metric, a `Descent` in the latent space of the map.

    Returns:
        None where the latent space has one dimension only, and the map no area.
    """
    learned: FittedModels = explainer.models_
    view = learned.latent_map
    if len(view.center) < 2:
        return None
    x, y = _sides(view.points)
    places = torch.cartesian_prod(y, x).flip(-1)
    with torch.no_grad():
        codes = _codes_at(learned, places).to(learned.rows)
        row = learned.encoder.encode(person[list(learned.encoder.schema.names)].head(1)).to(learned.rows)
        context = context_for(learned.latent, row.expand(len(codes), -1))
        metric = geometry_of(method, learned.search_models)[1]
        heights = map_blocks(
            lambda z, context: volume(damped(metric(learned.latent.linearize(z, context)), DAMPING)), codes, context
        )
    grid = heights.double().cpu().numpy().reshape(len(y), len(x))
    flat = len(view.center) == 2
    where = "" if flat else "Background: on the surface on which the codes lie on average."
    return Relief(x.numpy(), y.numpy(), np.asarray(grid, dtype=np.float64), where)


def _sides(points: Float[Tensor, "n 2"]) -> tuple[Float[Tensor, "m"], Float[Tensor, "m"]]:
    """Both sides of a square grid: where the codes are, and somewhat beyond."""
    low, high = points.amin(0), points.amax(0)
    half = _HALF * float((high - low).max().clamp(min=1e-9))
    x, y = (
        torch.linspace(middle - half, middle + half, _GRID_CELLS, dtype=torch.float64)
        for middle in ((low + high) / 2).tolist()
    )
    return x, y


def _codes_at(learned: FittedModels, places: Float[Tensor, "m 2"]) -> Float[Tensor, "m d"]:
    """A code for every place on the map."""
    view = learned.latent_map
    order = torch.randperm(len(learned.rows), generator=torch.Generator().manual_seed(0))[:_CODES]
    codes = map_blocks(learned.latent.encode, learned.rows[order.to(learned.rows.device)]).double().cpu()
    shown = view.project(codes)
    left_out = codes - view.center - shown @ view.axes.T
    least = float((shown.amax(0) - shown.amin(0)).norm()) / _NEAR or 1.0
    apart = torch.cdist(places, shown)
    width = (least**2 + apart.topk(min(_FEW, len(codes)), largest=False).values[:, -1:].square() / 2).sqrt()
    weight = torch.softmax(-(apart / width).square() / 2, dim=-1)
    flat: Tensor = view.center + places @ view.axes.T + weight @ left_out
    return flat
