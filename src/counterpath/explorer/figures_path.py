"""One path in a browser: probability, uncertainty and every feature that moves, over the steps."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pandas as pd

from counterpath.explanation import Explanation, wording
from counterpath.explanation.plots.style import INK, MOST_FEATURES, PALETTE
from counterpath.explanation.tables import numeric_features, path_features
from counterpath.explorer.plotting import (
    LINE,
    PAPER,
    RISES,
    SMALL,
    Figure,
    axis,
    figure,
    in_template,
    note,
    rounded,
    shown,
    soft,
)

_HEADING = 22
"""Pixels above each panel for what it shows."""
_GAP = 10
_TALL, _LOW, _FEATURE = 112, 54, 46
_TOP, _BOTTOM, _LEFT, _RIGHT = 6, 46, 52, 16
_MOST_POINTS = 40
_MOST_NAMED = 4
_CURSOR = 0.0035
"""The width of the cursor as a share of all steps."""
_POINT = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGOQllcBAAC3AF+0tpLBAAAAAElFTkSuQmCC"
)
"""A picture of one point, in the colour `plots.INK`."""


@dataclass(frozen=True)
class _Panel:
    """One of the panels, from top to bottom.

    Attributes:
        heading: What it shows, as markup.
        height: In pixels.
        traces: Without their axes.
        axis: What its y-axis has beside its domain.
    """

    heading: str
    height: int
    traces: tuple[dict[str, Any], ...]
    axis: dict[str, Any]


def path_figure(result: Explanation, i: Any, plan: int | None = None, step: int | None = None) -> Figure:
    """The path of one row: every feature that moves, below probability and uncertainty, with a cursor at a step.

    Args:
        result: The explanation.
        i: The row, as in `Explanation.path`.
        plan: Which plan of the person, as there.
        step: Where the cursor is; by default at the end. `cursor` moves it.

    Raises:
        InputError: There is no such row, or its path was not kept.
    """
    path = result.path(i, plan)
    features = path_features(path, result.schema.names)
    moving = [name for name in result.schema.names if features[name].astype(object).nunique(dropna=False) > 1]
    drawn = moving[:MOST_FEATURES]
    numbers = numeric_features(result.schema, result.factuals)
    steps = path["step"].tolist()
    stops = result.milestones(i, plan=plan).iloc[1:]
    confidence = float(result.request["confidence"])
    outcome = wording.outcome(wording.value(result.request["target_class"]))
    panels = [_probability(path, stops, outcome)]
    if path["uncertainty"].notna().any():
        panels.append(_uncertainty(path))
    panels += [_feature(steps, features[name], name in numbers) for name in drawn]
    at = steps[-1] if step is None else step
    shapes = [_asked(confidence), *(_mark(stop) for stop in stops["step"].tolist() if len(stops) > 1)]
    hidden = len(moving) - len(drawn)
    ends = path["probability"].iloc[[0, -1]].tolist()
    alt = (
        f"Path of {steps[-1]} steps: the probability of {outcome} goes from {wording.probability(ends[0])} to "
        f"{wording.probability(ends[1])}; moving features: {wording.listed(moving) or 'none'}."
    )
    title = "step" + (f" ({hidden} more features move)" if hidden else "")
    return _stack(panels, steps, at, shapes, title, alt, confidence)


def cursor(step: int) -> dict[str, Any]:
    """What to call `Plotly.relayout` with to move the cursor of a `path_figure`: nothing else is drawn again."""
    return {"images[0].x": step}


def _stack(
    panels: list[_Panel],
    steps: list[int],
    at: int,
    shapes: list[dict[str, Any]],
    title: str,
    alt: str,
    confidence: float,
) -> Figure:
    """Panels below each other over one axis of steps, each under its heading."""
    inner = sum(panel.height + _HEADING + _GAP for panel in panels) - _GAP
    data, axes, words, top = [], {}, [], 0
    for number, panel in enumerate(panels, start=1):
        name = "" if number == 1 else str(number)
        domain = [1 - (top + _HEADING + panel.height) / inner, 1 - (top + _HEADING) / inner]
        axes[f"yaxis{name}"] = axis(domain=[max(0, domain[0]), domain[1]], **panel.axis)
        data += [{**trace, "xaxis": "x", "yaxis": f"y{name}"} for trace in panel.traces]
        words.append(note(panel.heading, x=0, y=domain[1], yshift=2, xshift=-_LEFT + 4, bgcolor=PAPER))
        top += _HEADING + panel.height + _GAP
    words.append(
        note(f"asked: {wording.value(confidence)}", x=0, y=confidence, yref="y", font=soft(), xshift=2)
        | ({"yanchor": "top"} if confidence > 0.8 else {})
    )
    span = (steps[0], steps[-1]) if len(steps) > 1 else (steps[0] - 1, steps[0] + 1)
    margin = 0.02 * (span[1] - span[0])
    last = "" if len(panels) == 1 else str(len(panels))
    across = axis(
        range=[span[0] - margin, span[1] + margin],
        anchor=f"y{last}",
        title={"text": title, "font": soft(), "standoff": 6},
        ticks="outside",
        tickcolor=LINE,
        tickformat="d",
        nticks=8,
        unifiedhovertitle={"text": "step %{x}"},
    )
    return figure(
        data,
        alt,
        height=inner + _TOP + _BOTTOM,
        margin={"l": _LEFT, "r": _RIGHT, "t": _TOP, "b": _BOTTOM},
        hovermode="x unified",
        hoversubplots="axis",
        xaxis=across,
        shapes=shapes,
        images=[_cursor(at, span[1] - span[0])],
        annotations=words,
        **axes,
    )


def _heading(name: str, told: str) -> str:
    return f"<b>{shown(name, 26)}</b>  {told}"


def _probability(path: pd.DataFrame, stops: pd.DataFrame, outcome: str) -> _Panel:
    steps, values = path["step"].tolist(), path["probability"].tolist()
    texts = [shown(wording.probability(value)) for value in values]
    line = _line(steps, values, RISES, "probability", texts)
    dots = {
        "type": "scatter",
        "x": stops["step"].tolist(),
        "y": rounded(stops["probability"]),
        "mode": "markers+text",
        "text": [str(number) for number in range(1, len(stops) + 1)],
        "textfont": {"size": SMALL, "color": "white"},
        "textposition": "middle center",
        "marker": {"size": 18, "color": RISES, "line": {"color": "white", "width": 1.5}},
        "hoverinfo": "skip",
        "cliponaxis": False,
    }
    heading = _heading(f"probability of {outcome}", f"{texts[0]} → {texts[-1]}")
    ticks = {"range": [-0.04, 1.04], "tickvals": [0, 0.5, 1], "showgrid": True, "gridcolor": "#eef1f4"}
    return _Panel(heading, _TALL, (line, dots) if len(stops) > 1 else (line,), ticks)


def _uncertainty(path: pd.DataFrame) -> _Panel:
    steps, values = path["step"].tolist(), path["uncertainty"].tolist()
    texts = [shown(value) for value in values]
    line = _line(steps, values, PALETTE[3], "uncertainty", texts)
    return _Panel(_heading("uncertainty", f"{texts[0]} → {texts[-1]}"), _LOW, (line,), _scale(values))


def _feature(steps: list[int], values: pd.Series, number: bool) -> _Panel:
    """One feature: numbers as a line over all that they move, categories as steps."""
    name = str(values.name)
    if number:
        told = wording.change(name, values.iloc[0], values.iloc[-1], ordered=False)
        line = _line(steps, values.astype(float).tolist(), PALETTE[4], name, [shown(value) for value in values])
        heading = _heading(name, f"{shown(told.old, 14)} → {shown(told.new, 14)}")
        return _Panel(heading, _FEATURE, (line,), _scale(values.astype(float).tolist()))
    codes, _ = pd.factorize(values.astype(object))
    line = _line(steps, codes.astype(float).tolist(), PALETTE[2], name, [shown(value, 40) for value in values])
    line["line"]["shape"] = "hv"
    visited = [values.iloc[0], *(new for old, new in pairwise(values.tolist()) if old != new)]
    between = visited[1:-1] if len(visited) <= _MOST_NAMED else ["…"]
    told_all = " → ".join(shown(value, 20) for value in [visited[0], *between, visited[-1]])
    return _Panel(_heading(name, told_all), _FEATURE - 14, (line,), {"range": _room(codes), "showticklabels": False})


def _line(steps: list[int], values: list[float], color: str, name: str, texts: list[str]) -> dict[str, Any]:
    few = len(steps) <= _MOST_POINTS
    return {
        "type": "scatter",
        "x": steps,
        "y": rounded(values),
        "mode": "lines+markers" if few else "lines",
        "line": {"color": color, "width": 2},
        "marker": {"color": color, "size": 4},
        "name": shown(name),
        "customdata": texts,
        "hovertemplate": f"{in_template(name)}: <b>%{{customdata}}</b><extra></extra>",
        "cliponaxis": False,
    }


def _scale(values: list[float]) -> dict[str, Any]:
    """A scale that says where it begins and ends, in original units."""
    known = [value for value in values if value == value]
    low, high = min(known), max(known)
    ends = [low, high] if high > low else [low]
    return {"range": _room(known), "tickvals": ends, "ticktext": [shown(value, 8) for value in ends]}


def _room(values: Any) -> list[float]:
    low, high = float(min(values)), float(max(values))
    margin = 0.14 * ((high - low) or 1.0)
    return [low - margin, high + margin]


def _cursor(step: int, span: int) -> dict[str, Any]:
    """A line through all panels: a picture of one dark point, stretched.

    Plotly moves a picture in under a millisecond, where it computes and draws the whole figure again for a line.
    """
    place = {"x": step, "xref": "x", "xanchor": "center", "y": 1, "yref": "paper"}
    size = {"sizex": _CURSOR * span, "sizey": 1, "sizing": "stretch"}
    return {"source": _POINT, **place, **size, "layer": "below"}


def _mark(step: int) -> dict[str, Any]:
    line = {"color": "#b9d4e6", "width": 1}
    return {"type": "line", "x0": step, "x1": step, "y0": 0, "y1": 1, "yref": "paper", "line": line, "layer": "below"}


def _asked(confidence: float) -> dict[str, Any]:
    line = {"color": INK, "width": 1, "dash": "dash"}
    ends = {"x0": 0, "x1": 1, "xref": "paper", "y0": confidence, "y1": confidence, "yref": "y"}
    return {"type": "line", **ends, "line": line, "layer": "below"}
