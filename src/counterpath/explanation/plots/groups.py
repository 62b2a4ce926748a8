"""Figures of many people: coverage against effort, by group, and against the cost of shared plans."""

from itertools import cycle
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from counterpath.explanation.plots.style import INK, PALETTE, figure, plain

COLORS = (PALETTE[4], PALETTE[5], PALETTE[2], PALETTE[3], PALETTE[1], PALETTE[0], INK)
"""Dark ones first: thin lines in pale colours are lost on paper."""
_DASHES = ("-", "--", ":", "-.")
MOST_GROUPS = 7
"""Lines in one figure: more cannot be told apart."""


def draw_effort(effort: pd.DataFrame, path: str | Path | None = None) -> Figure:
    """Draw for each grouping which share of each group has a counterfactual for at most how much effort.

    Args:
        effort: `by`, `group`, `effort` and `share`, as `Audit.effort` has them.
        path: Where to save it, if anywhere.
    """
    names = list(dict.fromkeys(effort["by"]))
    with figure(path, 7.2, 2.9 * max(1, len(names))) as fig:
        panels = fig.subplots(max(1, len(names)), 1, squeeze=False)[:, 0]
        for axes, name in zip(panels, names, strict=False):
            lines = effort[effort["by"] == name]
            groups = list(dict.fromkeys(lines["group"]))[:MOST_GROUPS]
            for group, color, dash in zip(groups, cycle(COLORS), cycle(_DASHES), strict=False):
                own = lines[lines["group"] == group]
                axes.plot(own["effort"], own["share"], color=color, ls=dash, lw=1.8, label=plain(str(group)))
            axes.set(ylim=(0, 1.02), ylabel="share of the group", title=plain(f"By {name}"))
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
            axes.legend(loc="lower right", fontsize=8)
        panels[-1].set_xlabel("cost of the counterfactual, at most (L1)")
    return fig


def draw_curve(curve: pd.DataFrame, path: str | Path | None = None) -> Figure:
    """Draw coverage and mean cost of the first shared plan, of the first two, and so on.

    Args:
        curve: As `SharedPlans.curve`.
        path: Where to save it, if anywhere.
    """
    with figure(path, 7.2, 2.6) as fig:
        covered, cost = fig.subplots(1, 2)
        covered.plot(curve.index, curve["coverage"], color=PALETTE[4], marker="o", ms=4)
        covered.set(ylim=(0, 1.05), xlabel="number of plans", title="People served")
        covered.yaxis.set_major_formatter(PercentFormatter(1.0))
        cost.plot(curve.index, curve["mean cost"], color=PALETTE[5], marker="o", ms=4)
        top = curve["mean cost"].max()
        room = 1.1 * top if top > 0 else 1.0  # above the line, so that its points stand in the panel
        cost.set(ylim=(0, room), xlabel="number of plans", title="Mean cost of those served (L1)")
        for axes in (covered, cost):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return fig
