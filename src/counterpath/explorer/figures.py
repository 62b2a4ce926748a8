"""The figures of the explorer: functions from explanations to what `nicegui.ui.plotly` takes."""

from counterpath.explorer.figures_group import MEASURES, changes_figure, measures_figure, shares_figure
from counterpath.explorer.figures_map import Relief, map_figure
from counterpath.explorer.figures_path import cursor, path_figure
from counterpath.explorer.plotting import Figure, described

__all__ = [
    "MEASURES",
    "Figure",
    "Relief",
    "changes_figure",
    "cursor",
    "described",
    "map_figure",
    "measures_figure",
    "path_figure",
    "shares_figure",
]
