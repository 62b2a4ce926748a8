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

from counterpath.data.schema import Schema
from counterpath.explainer.explainer import Explainer
from counterpath.explanation import Explanation, wording
from counterpath.explanation.plots.style import COLORS, INK, PALETTE
from counterpath.explorer import figures
from counterpath.explorer.figures import Figure
from counterpath.fitting.fitted import FittedModels, LatentMap
from counterpath.geometry.metric import DAMPING, damped, volume
from counterpath.models.latent import context_for
from counterpath.search.methods import geometry_of
from counterpath.utils.devices import map_blocks

MOST_CODES = 2000
"""How many codes are drawn at most: enough to see where they are dense, and drawn in a blink."""
_HEIGHT = 560
"""Pixels: a square map beside the form on a laptop."""
_LINE_HEIGHT, _CAPTION_WIDTH = 15, 46
"""Pixels of a line of the caption, and the fewest characters that a line holds."""
_SAME_END = 0.06
"""Ends of paths nearer than this share of the map's side have one label: two would cover each other."""
_NAME_WIDTH, _MOST_NAMES, _LABEL_REACH = 16, 3, 0.36
"""How many characters of how many names label a point, and how much of the side of the map they take on a phone."""
_GREYS = [[0, "#ffffff"], [0.35, "#e6e9ed"], [0.7, "#bfc6cf"], [1, "#8f99a6"]]
"""From white to a grey, light enough for every colour of codes and paths to stand out on it."""
_CLASS_COLORS = tuple(PALETTE[index] for index in (0, 1, 3, 6, 2, 4, 5))
"""First those that no method has that is compared by default."""
_SYMBOLS = ("circle", "square", "triangle-up", "diamond", "x")
_GRID_CELLS = 44
"""Cells on each side of a grid on which the volume element is computed: some 100 ms on a CPU, and smooth to the eye."""
_GRID_CODES = 1500
"""Codes from which the grid's own codes are interpolated: every cell is compared with each of them."""
_HALF_SIDE = 0.58
"""Half a side of the grid in units of the codes' extent: 8 % beyond them on either side, as far as the map shows."""
_LEAST_WIDTH = 1 / 40
"""The interpolation is over at least this share of the codes' extent: about a cell, else single codes stand out."""
_FEW_NEIGHBOURS = 15
"""Where codes are sparse, the interpolation is as wide as the distance to so many of them: fewer jump, more blur."""
_METRIC_METHOD = "rsgd"
"""Whose metric the volume element is of."""


@dataclass(frozen=True)
class VolumeGrid:
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


def map_figure(results: Mapping[str, Explanation], i: Any, *, background: VolumeGrid | None = None) -> Figure:
    """The latent map with the path of one row by each method.

    Args:
        results: The explanations by the names of their methods, or by whatever they are to be called.
        i: The row, as in `Explanation.path`; results that do not have its path are left out.
        background: The volume element, or none.

    Raises:
        InputError: There is no such row.
    """
    first = next(iter(results.values()))
    kept = {name: result._steps(result._position(i, None)) for name, result in results.items()}
    paths = {name: path for name, path in kept.items() if len(path)}
    codes = first.landscape.iloc[:: max(1, -(-len(first.landscape) // MOST_CODES))]
    if not len(codes) and not paths:
        return figures.empty_figure("There is no map of this explanation.")
    traces = [*([_background_trace(background)] if background is not None else []), *_code_traces(codes, first.schema)]
    for above, (name, path) in zip(reversed(range(len(paths))), paths.items(), strict=True):
        traces += _path_traces(name, path, above)
    for start in [path.head(1) for path in paths.values()][:1]:
        ring = {"size": 11, "color": "white", "line": {"color": INK, "width": 2}}
        hover = {"text": ["now"], "hoverinfo": "text", "showlegend": False}
        traces.append(figures.scatter(start["map_x"], start["map_y"], "markers", marker=ring, **hover))
    x_range, y_range = _square(codes, list(paths.values()))
    remark = f"{first.note[:1].upper()}{first.note[1:]}." + (f" {background.note}" if background is not None else "")
    caption_height = _LINE_HEIGHT * (1 + len(remark) // _CAPTION_WIDTH)
    frame = {"showticklabels": False, "constrain": "domain", "showline": True, "linecolor": figures.LINE}
    below = 26 if background is None else 78  # under the axis title, and under the colour bar
    return figures.figure(
        traces,
        f"Latent map with the paths of {wording.listed(list(paths)) or 'nobody'}. {remark}",
        height=_HEIGHT + caption_height,
        margin={"l": 24, "r": 8, "t": 8, "b": (34 if background is None else 88) + caption_height},
        xaxis=figures.axis(range=x_range, constraintoward="left", title=figures.title("map x", standoff=4), **frame),
        yaxis=figures.axis(
            range=y_range, scaleanchor="x", constraintoward="top", title=figures.title("map y", standoff=4), **frame
        ),
        showlegend=True,
        legend=figures.legend(y=1.01, itemwidth=30),
        annotations=[*_labels(paths, x_range), figures.caption(remark, below, left=22)],
    )


def _background_trace(grid: VolumeGrid) -> dict[str, Any]:
    anchor = {"orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yanchor": "top", "ypad": 26, "xpad": 0}
    size = {"thickness": 8, "len": 220, "lenmode": "pixels", "outlinewidth": 0}
    title = figures.title("volume element √det M, log₁₀", side="bottom")
    with np.errstate(divide="ignore"):
        heights = np.log10(grid.volume)
    known = heights[np.isfinite(heights)]
    low, high = (float(level) for level in np.quantile(known, (0.01, 0.99))) if len(known) else (0.0, 1.0)
    return figures.heatmap(
        heights,
        low,
        high if high > low else low + 1,
        x=figures.rounded(grid.x),
        y=figures.rounded(grid.y),
        zsmooth="best",
        colorscale=_GREYS,
        colorbar={**anchor, **size, "tickfont": figures.soft_font(), "nticks": 5, "title": title},
        connectgaps=False,
    )


def _code_traces(codes: pd.DataFrame, schema: Schema) -> list[dict[str, Any]]:
    looks = zip(cycle(_CLASS_COLORS), cycle(_SYMBOLS), strict=False)
    return [
        figures.scatter(
            group["map_x"],
            group["map_y"],
            "markers",
            marker={"size": 4, "color": color, "symbol": symbol, "opacity": 0.65},
            name=f"predicted {figures.label(wording.class_text(schema, predicted), 20)}",
            hoverinfo="skip",
        )
        for (predicted, group), (color, symbol) in zip(codes.groupby("predicted", observed=True), looks, strict=False)
    ]


def _path_traces(name: str, path: pd.DataFrame, above: int) -> list[dict[str, Any]]:
    """A path and the star at its end; what lies under others is wider, because paths often coincide."""
    color, width = COLORS.get(name, PALETTE[0]), 2.2 + 1.4 * above
    texts = [
        f"<b>{figures.label(name)}</b>, step {step}<br>probability {figures.label(wording.probability(probability))}"
        for step, probability in zip(path["step"].tolist(), path["probability"].tolist(), strict=True)
    ]
    line = figures.scatter(path["map_x"], path["map_y"], "lines", legendgroup=name)
    star = {"symbol": "star", "size": 15 + 3 * above, "color": color, "line": {"color": "white", "width": 1}}
    end = figures.scatter(path["map_x"].iloc[-1:], path["map_y"].iloc[-1:], "markers", legendgroup=name, marker=star)
    return [
        {**line, "line": {"color": "white", "width": width + 2}, "hoverinfo": "skip", "showlegend": False},
        {
            **line,
            "line": {"color": color, "width": width},
            "name": figures.label(name),
            "text": texts,
            "hoverinfo": "text",
        },
        {**end, "text": texts[-1:], "hoverinfo": "text", "showlegend": False},
    ]


def _square(codes: pd.DataFrame, paths: list[pd.DataFrame]) -> tuple[list[float], list[float]]:
    """From where to where to draw, a square: nearly all codes, and all of every path."""
    sides: list[tuple[float, float]] = []
    for name in ("map_x", "map_y"):
        parts = [path[name].to_numpy(float) for path in paths]
        parts += [np.quantile(codes[name].to_numpy(float), (0.002, 0.998))] if len(codes) else []
        sides.append((float(np.concatenate(parts).min()), float(np.concatenate(parts).max())))
    half = 0.55 * (max(high - low for low, high in sides) or 1.0)
    x, y = ([(low + high) / 2 - half, (low + high) / 2 + half] for low, high in sides)
    return x, y


def _labels(paths: Mapping[str, pd.DataFrame], x_range: list[float]) -> list[dict[str, Any]]:
    """The name of each method beside the end of its path, one label for ends that lie together; and where all begin."""
    if not paths:
        return []
    points = {name: path[["map_x", "map_y"]].to_numpy(float) for name, path in paths.items()}
    start = next(iter(points.values()))[0]
    ends: list[tuple[NDArray[np.float64], list[str]]] = []
    for name, path in points.items():
        same = [names for end, names in ends if np.hypot(*(end - path[-1])) < _SAME_END * (x_range[1] - x_range[0])]
        if same:
            same[0].append(name)
        else:
            ends.append((path[-1], [name]))
    middle = np.mean([end for end, _ in ends], axis=0)
    labels = []
    for end, names in ends:
        words = [figures.label(name, _NAME_WIDTH) for name in names[:_MOST_NAMES]]
        words += [f"and {len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
        labels.append(_label("<br>".join(words), end, _is_left(end[0], start[0], x_range)))
    return [*labels, _label("now", start, _is_left(start[0], middle[0], x_range))]


def _is_left(x: float, other: float, x_range: list[float]) -> bool:
    """Whether to write a label left of a point: on the other side than its path, if there is room."""
    low, high = x_range
    if min(high - x, x - low) < _LABEL_REACH * (high - low):
        return bool(x > (low + high) / 2)
    return bool(x < other)


def _label(words: str, point: NDArray[np.float64], to_the_left: bool) -> dict[str, Any]:
    side = {"xanchor": "right", "xshift": -12} if to_the_left else {"xanchor": "left", "xshift": 12}
    look = {"bgcolor": figures.BACKDROP, "borderpad": 1, "font": {"size": figures.SMALL_FONT, "color": INK}}
    at = {"x": float(point[0]), "y": float(point[1]), "xref": "x", "yref": "y", "yanchor": "middle"}
    return figures.annotation(words, **at, align="left", **side, **look)


def volume_grid(explainer: Explainer, row: pd.DataFrame) -> VolumeGrid | None:
    """The volume element √det M over the map, conditioned on the immutable features of a row.

    It takes some 100 ms on a CPU, so it does not belong on an event loop.

    Args:
        explainer: A fitted explainer.
        row: One row, with the columns of the training table.

    Returns:
        None where the latent space has one dimension only, and the map no area.
    """
    models: FittedModels = explainer.models_
    latent_map, space, rows = models.latent_map, models.latent, models.rows
    if len(latent_map.center) < 2:
        return None
    low, high = latent_map.points.amin(0), latent_map.points.amax(0)
    half = _HALF_SIDE * float((high - low).max().clamp(min=1e-9))
    x, y = (  # both sides of a square grid: where the codes are, and somewhat beyond
        torch.linspace(middle - half, middle + half, _GRID_CELLS, dtype=torch.float64)
        for middle in ((low + high) / 2).tolist()
    )
    with torch.no_grad():
        sample = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:_GRID_CODES]
        known = map_blocks(space.encode, rows[sample.to(rows.device)]).double().cpu()
        codes = _codes_at(torch.cartesian_prod(y, x).flip(-1), latent_map, known).to(rows)
        encoded = models.encoder.encode(row[list(models.encoder.schema.names)].head(1)).to(rows)
        _, metric = geometry_of(_METRIC_METHOD, models.search_models)
        volumes = map_blocks(
            lambda z, context: volume(damped(metric(space.linearize(z, context)), DAMPING)),
            codes,
            context_for(space, encoded.expand(len(codes), -1)),
        )
    grid = np.asarray(volumes.double().cpu().numpy().reshape(len(y), len(x)), dtype=np.float64)
    flat = len(latent_map.center) == 2
    note = "" if flat else "Background: on the surface on which the codes lie on average."
    return VolumeGrid(x.numpy(), y.numpy(), grid, note)


def _codes_at(
    positions: Float[Tensor, "m 2"], latent_map: LatentMap, codes: Float[Tensor, "n d"]
) -> Float[Tensor, "m d"]:
    """A code for every position on the map; what the map leaves out is that of the known codes around it."""
    shown = latent_map.project(codes)
    left_out = codes - latent_map.center - shown @ latent_map.axes.T
    least = float((shown.amax(0) - shown.amin(0)).norm()) * _LEAST_WIDTH or 1.0
    distances = torch.cdist(positions, shown)
    nearby = distances.topk(min(_FEW_NEIGHBOURS, len(codes)), largest=False).values[:, -1:]
    width = (least**2 + nearby.square() / 2).sqrt()
    weight = torch.softmax(-(distances / width).square() / 2, dim=-1)
    interpolated: Tensor = latent_map.center + positions @ latent_map.axes.T + weight @ left_out
    return interpolated
