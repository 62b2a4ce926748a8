"""What all figures in a browser share: their look, and text that is shown as text.

Plotly reads tags (`<b>`, `<a>`, `<br>`) and entities in every label, tick and hover, and `%{…}` in templates. So
whatever comes from a table goes through `shown`, or `in_template`.
"""

import html
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from nicegui import ui

from counterpath.explanation import wording
from counterpath.explanation.plots.style import INK, SOFT
from counterpath.explorer import parts

Figure: TypeAlias = dict[str, Any]
"""What `nicegui.ui.plotly` takes: `data`, `layout` and `config`, all of it plain values that fit JSON."""

RISES, FALLS, SWAPS = "#0072B2", "#D55E00", "#8a929c"
"""The colours of a number that rises, one that falls, and a category that becomes another."""
LINE = "#d9dee4"
PAPER = "rgba(255,255,255,0.85)"
"""Behind words, so that lines do not run through them."""
FONT = 12
SMALL = 11
_FAMILY = "system-ui, -apple-system, 'Segoe UI', sans-serif"
_CONFIG = {
    "displaylogo": False,
    "displayModeBar": False,
    "typesetMath": False,
    "scrollZoom": False,
    "responsive": False,  # `Drawing` sees to it
}
_DIGITS = 5


def shown(given: Any, width: int = 28) -> str:
    """A value as a label: at most so many characters, none of which plotly takes for markup."""
    text = " ".join(wording.value(given).split())
    return html.escape(text if len(text) <= width else text[: width - 1] + "…", quote=False)


def in_template(given: Any, width: int = 28) -> str:
    """A value as a part of a hover's template, in which percent signs begin fields."""
    return shown(given, width).replace("%", "&#37;")


def caption(text: str, below: int, left: int = 0, width: int = 54) -> dict[str, Any]:
    """A remark below a figure, in lines that fit a phone.

    Args:
        text: The remark.
        below: How many pixels under the panels it begins.
        left: The width of the left margin, where it begins.
        width: Characters in a line.
    """
    lines = [html.escape(line, quote=False) for line in textwrap.wrap(text.replace(" %", "\u00a0%"), width)]
    return note("<br>".join(lines), x=0, y=0, yanchor="top", yshift=-below, xshift=-left, align="left", font=soft())


def note(text: str, **where: Any) -> dict[str, Any]:
    """Words on a figure, in its own coordinates; the text is markup."""
    place = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    return {**place, "text": text, "font": {"size": FONT, "color": INK}, **where}


def soft(size: int = SMALL) -> dict[str, Any]:
    """The font of what is less important."""
    return {"size": size, "color": SOFT}


def axis(**given: Any) -> dict[str, Any]:
    """An axis without decoration that cannot be dragged."""
    bare = {"showgrid": False, "zeroline": False, "fixedrange": True, "tickfont": soft(), "ticks": ""}
    return {**bare, **given}


def figure(data: Sequence[dict[str, Any]], alt: str, *, height: int, **layout: Any) -> Figure:
    """A figure that is as wide as there is room.

    Args:
        data: The traces.
        alt: What it shows, in words, for people who do not see it: see `described`.
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
        "showlegend": False,
        "dragmode": False,
        "meta": alt,
    }
    return {"data": list(data), "layout": {**common, **layout}, "config": dict(_CONFIG)}


def described(drawn: Figure) -> str:
    """What a figure shows, in words: the label of its element for screen readers."""
    return str(drawn["layout"]["meta"])


def nothing(words: str) -> Figure:
    """A figure that says why there is nothing to see."""
    text = note(html.escape(words, quote=False), x=0.5, y=0.5, xanchor="center", yanchor="middle", font=soft(FONT))
    hidden = {"visible": False, "fixedrange": True}
    return figure([], words, height=120, annotations=[text], xaxis=hidden, yaxis=hidden)


def rounded(values: Iterable[float]) -> list[float | None]:
    """Numbers with few digits, because nobody sees more on a screen; None where there is none."""
    return [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in values]


_FIT = """() => {
    const plot = getElement(%d);
    if (plot?.Plotly && plot.$el._fullLayout && plot.$el.offsetParent) plot.Plotly.Plots.resize(plot.$el);
}"""
"""Fits a figure to the room there is, unless it is hidden: to fit one that is not displayed is an error in plotly."""


class Drawing:
    """A place for a figure, which is as wide as there is room."""

    def __init__(self) -> None:
        self._outer = ui.element("div").classes("cp-figure")
        self._outer.props["role"] = "img"
        self._plot: ui.plotly | None = None

    def show(self, figure: Figure) -> None:
        """Draw a figure instead of what is drawn."""
        parts.named(self._outer, described(figure))
        if self._plot is None:
            with self._outer:
                self._plot = ui.plotly(figure).classes("cp-figure")
                ui.element("q-resize-observer").on("resize", js_handler=_FIT % self._plot.id)
        else:
            self._plot.update_figure(figure)

    def relayout(self, changes: dict[str, Any]) -> None:
        """Change a little of the layout, without drawing all again."""
        if self._plot is not None:
            self._plot.run_plot_method("relayout", changes)

    def clear(self) -> None:
        """Draw nothing."""
        self._outer.clear()
        self._plot = None
