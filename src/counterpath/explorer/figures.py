"""What all figures of the explorer share: their look, stacked panels, and text that is shown as text.

Figures are plain dictionaries, made without any element of the page. Plotly reads tags (`<b>`, `<a>`, `<br>`) and
entities in every label, tick and hover, and `%{…}` in templates. So whatever comes from a table goes through `label`,
or `template_label`.
"""

import html
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from counterpath.explanation import wording
from counterpath.explanation.plots.style import INK, SOFT

Figure: TypeAlias = dict[str, Any]
"""What `nicegui.ui.plotly` takes: `data`, `layout` and `config`, all of it plain values that fit JSON."""

RISES, FALLS, SWAPS = "#0072B2", "#D55E00", "#8a929c"
"""The colours of a number that rises, one that falls, and a category that becomes another."""
LINE = "#d9dee4"
BACKDROP = "rgba(255,255,255,0.85)"
"""Behind words, so that lines do not run through them."""
FONT = 12
"""Pixels, a step below the 15 of the page's text, so that names and numbers fit beside each other on a phone."""
SMALL_FONT = 11
"""Pixels, the smallest that is still read without effort."""
HEADING_INDENT = 4
"""Pixels from the left edge of a figure to headings and captions, so that no letter touches the edge."""
_FAMILY = "system-ui, -apple-system, 'Segoe UI', sans-serif"
_CONFIG = {
    "displaylogo": False,
    "displayModeBar": False,
    "typesetMath": False,
    "scrollZoom": False,
    "responsive": False,  # `elements.Drawing` sees to it
}
_DIGITS = 5
"""Significant digits of coordinates: one in 100,000 is less than a pixel, and more would double what is sent."""


def label(value: Any, width: int = 28) -> str:
    """A value as a label: at most so many characters, none of which plotly takes for markup."""
    text = " ".join(wording.value(value).split())
    return html.escape(text if len(text) <= width else text[: width - 1] + "…", quote=False)


def template_label(value: Any) -> str:
    """A value as a part of a hover's template, in which percent signs begin fields."""
    return label(value).replace("%", "&#37;")


def annotation(text: str, **options: Any) -> dict[str, Any]:
    """Words on a figure, in its own coordinates; the text is markup."""
    anchor = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    return {**anchor, "text": text, "font": {"size": FONT, "color": INK}, **options}


def caption(text: str, below: int, left: int = 0) -> dict[str, Any]:
    """A remark below a figure, in lines that fit a phone.

    Args:
        text: The remark.
        below: How many pixels under the panels it begins.
        left: How many pixels left of them.
    """
    lines = [html.escape(line, quote=False) for line in textwrap.wrap(text.replace(" %", "\u00a0%"), width=54)]
    shift = {"yanchor": "top", "yshift": -below, "xshift": -left}
    return annotation("<br>".join(lines), x=0, y=0, **shift, align="left", font=soft_font())


def soft_font(size: int = SMALL_FONT) -> dict[str, Any]:
    """The font of what is less important."""
    return {"size": size, "color": SOFT}


def axis(**options: Any) -> dict[str, Any]:
    """An axis without decoration that cannot be dragged."""
    bare = {"showgrid": False, "zeroline": False, "fixedrange": True, "tickfont": soft_font(), "ticks": ""}
    return {**bare, **options}


def legend(**options: Any) -> dict[str, Any]:
    """A legend in one line above the panels."""
    return {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "font": {"size": SMALL_FONT}, **options}


def scatter(x: Iterable[float], y: Iterable[float], mode: str, **options: Any) -> dict[str, Any]:
    """Points, a line through them, or both."""
    return {"type": "scatter", "x": rounded(x), "y": rounded(y), "mode": mode, **options}


def heatmap(values: Iterable[Iterable[float]], low: float, high: float, **options: Any) -> dict[str, Any]:
    """Cells coloured by their values, from the colour of `low` to that of `high`."""
    cells = {"type": "heatmap", "z": [rounded(row) for row in values], "zmin": low, "zmax": high, "hoverinfo": "skip"}
    return {**cells, **options}


def rounded(values: Iterable[float]) -> list[float | None]:
    """Numbers with few digits, because nobody sees more on a screen; None where there is none."""
    return [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in values]


def figure(traces: Iterable[dict[str, Any]], description: str, *, height: int, **layout: Any) -> Figure:
    """A figure that is as wide as there is room.

    Args:
        traces: What is drawn.
        description: What it shows, in words, for people who do not see it: see `description_of`.
        height: In pixels.
        layout: The rest of the layout.
    """
    common = {
        "autosize": True,
        "height": height,
        "font": {"family": _FAMILY, "size": FONT, "color": INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {"bgcolor": "white", "bordercolor": LINE, "align": "left", "font": {"size": FONT, "color": INK}},
        "hovermode": "closest",
        "showlegend": False,
        "dragmode": False,
        "meta": description,
    }
    return {"data": list(traces), "layout": {**common, **layout}, "config": dict(_CONFIG)}


def description_of(drawn: Figure) -> str:
    """What a figure shows, in words: the label of its element for screen readers."""
    return str(drawn["layout"]["meta"])


def empty_figure(reason: str) -> Figure:
    """A figure that says why there is nothing to see."""
    middle = {"x": 0.5, "y": 0.5, "xanchor": "center", "yanchor": "middle"}
    words = annotation(html.escape(reason, quote=False), **middle, font=soft_font(FONT))
    hidden = {"visible": False, "fixedrange": True}
    return figure([], reason, height=120, annotations=[words], xaxis=hidden, yaxis=hidden)


@dataclass(frozen=True)
class Panel:
    """One of several panels below each other.

    Attributes:
        heading: What it shows, as markup.
        height: In pixels.
        traces: Without their axes.
        y: What its y-axis has beside its domain.
        x: What its x-axis has; nothing for the x-axis of the whole figure.
    """

    heading: str
    height: int
    traces: tuple[dict[str, Any], ...]
    y: dict[str, Any]
    x: dict[str, Any] = field(default_factory=dict)


def stacked(
    panels: Sequence[Panel],
    description: str,
    *,
    heading: int,
    gap: int,
    margin: dict[str, int],
    annotations: Sequence[dict[str, Any]],
    **layout: Any,
) -> Figure:
    """A figure of panels below each other, each under its heading.

    Args:
        panels: From top to bottom.
        description: As for `figure`.
        heading: Pixels above each panel for what it shows.
        gap: Pixels between a panel and the next heading.
        margin: Pixels around all of them, by `l`, `r`, `t` and `b`.
        annotations: Further words.
        layout: The rest of the layout.
    """
    inner = sum(panel.height + heading + gap for panel in panels) - gap
    traces, axes, words, top = [], {}, [], 0
    for number, panel in enumerate(panels, start=1):
        name = "" if number == 1 else str(number)
        high, low = 1 - (top + heading) / inner, 1 - (top + heading + panel.height) / inner
        axes[f"yaxis{name}"] = axis(domain=[max(0.0, low), high], **panel.y)
        if panel.x:
            axes[f"xaxis{name}"] = axis(anchor=f"y{name}", **panel.x)
            axes[f"yaxis{name}"]["anchor"] = f"x{name}"
        traces += [{**one, "xaxis": f"x{name if panel.x else ''}", "yaxis": f"y{name}"} for one in panel.traces]
        shift = {"yshift": 2, "xshift": HEADING_INDENT - margin["l"]}
        words.append(annotation(panel.heading, x=0, y=high, **shift, bgcolor=BACKDROP))
        top += heading + panel.height + gap
    height = inner + margin["t"] + margin["b"]
    return figure(
        traces, description, height=height, margin=margin, annotations=[*words, *annotations], **axes, **layout
    )
