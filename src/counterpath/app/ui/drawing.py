"""A figure on the page, with what it shows in words for those who do not see it."""

from typing import Any

from nicegui import ui

from counterpath.app.ui import parts
from counterpath.app.ui.plotting import Figure, described

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
