"""The figures of the explorer: functions from explanations to what `nicegui.ui.plotly` takes."""

from counterpath.app.ui.figures_group import changes_figure, shares_figure
from counterpath.app.ui.figures_map import Relief, map_figure
from counterpath.app.ui.figures_measures import MEASURES, measures_figure
from counterpath.app.ui.figures_path import cursor, path_figure
from counterpath.app.ui.plotting import Figure, described

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
