"""Figures of an audit and of plans that many people share, of the explorer."""

from itertools import cycle

import pandas as pd

from counterpath.explanation import wording
from counterpath.explanation.plots.groups import COLORS, MOST_GROUPS
from counterpath.explorer.figures import (
    FALLS,
    LINE,
    RISES,
    Figure,
    axis,
    empty_figure,
    figure,
    label,
    legend,
    scatter,
    title,
)

_DASHES = ("solid", "dash", "dot", "dashdot")
_GRID = {"showgrid": True, "gridcolor": LINE, "nticks": 6}


def effort_figure(effort: pd.DataFrame) -> Figure:
    """Which share of each group of one grouping has a counterfactual for at most how much effort.

    Args:
        effort: `by`, `group`, `effort` and `share`, as `Audit.effort` has them, of one grouping.
    """
    groups = list(dict.fromkeys(effort["group"]))
    if not groups:
        return empty_figure("There are no groups to compare.")
    lines = []
    for group, color, dash in zip(groups[:MOST_GROUPS], cycle(COLORS), cycle(_DASHES), strict=False):
        own = effort[effort["group"] == group]
        look = {"color": color, "dash": dash, "width": 2}
        lines.append(scatter(own["effort"], own["share"], "lines", name=label(group), line=look, hoverinfo="name"))
    hidden = len(groups) - len(lines)
    by = str(effort["by"].iloc[0])
    said = f"By {by}: the share of each group that has a counterfactual for at most this cost"
    return figure(
        lines,
        f"{said}.{f' {hidden} more groups are not drawn.' if hidden else ''}",
        height=280 + 18 * len(lines),
        margin={"l": 52, "r": 12, "t": 26 + 18 * len(lines), "b": 44},
        showlegend=True,
        legend=legend(orientation="v"),
        xaxis=axis(**_GRID, title=title("cost of the counterfactual, at most (L1)"), rangemode="tozero"),
        yaxis=axis(**_GRID, title=title("share of the group"), range=[0, 1.02], tickformat=".0%"),
    )


def curve_figure(curve: pd.DataFrame) -> Figure:
    """Whom the first shared plan serves, the first two, and so on, and at what mean cost.

    Args:
        curve: As `SharedPlans.curve`.
    """
    if not len(curve):
        return empty_figure("No shared plan serves anybody.")
    plans = curve.index.tolist()
    served = [wording.percent(share) for share in curve["coverage"]]
    cost = [wording.rounded(each) for each in curve["mean cost"]]
    top = float(curve["mean cost"].max()) or 1.0
    shown = {"textposition": "top center", "cliponaxis": False, "hoverinfo": "skip"}
    last = f"{wording.counted(len(plans), 'plan')} serve {served[-1]} at a mean cost of {cost[-1]}"
    return figure(
        [
            scatter(plans, curve["coverage"], "lines+markers+text", text=served, line={"color": RISES}, **shown),
            scatter(
                plans,
                curve["mean cost"],
                "lines+markers+text",
                text=cost,
                line={"color": FALLS},
                xaxis="x2",
                yaxis="y2",
                **shown,
            ),
        ],
        f"People served, and the mean cost of those served, by the number of plans; {last}.",
        height=240,
        margin={"l": 46, "r": 14, "t": 20, "b": 44},
        xaxis=axis(domain=[0, 0.44], dtick=1, title=title("number of plans"), range=[0.6, len(plans) + 0.4]),
        yaxis=axis(**_GRID, range=[0, 1.12], tickformat=".0%", title=title("people served")),
        xaxis2=axis(domain=[0.58, 1], dtick=1, title=title("number of plans"), range=[0.6, len(plans) + 0.4]),
        yaxis2=axis(**_GRID, anchor="x2", range=[0, 1.25 * top], title=title("mean cost of these (L1)")),
    )
