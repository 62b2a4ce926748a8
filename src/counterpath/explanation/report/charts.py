"""Small drawings for a page, as SVG of a few hundred bytes: lines along a path, and the latent map.

A report has them for hundreds of people, and Matplotlib takes almost half a second and 40 kB for a path of one.
Text stands beside them in the page and not in them, so it keeps its size on a telephone, and is never markup.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup, escape
from numpy.typing import NDArray

from counterpath.data.schema import Schema
from counterpath.explanation import wording
from counterpath.explanation.plots.style import INK, PALETTE

WIDTH, HEIGHT = 100.0, 20.0
"""Of a line, before the page stretches it: a width in percent, and a height that keeps one decimal visible."""
MAP = 300.0
"""Width of the map: at one decimal, which is what is written, a tenth of a pixel of the page's column."""
_MARGIN = 0.12  # of the height, above and below a line: room for half the width of its stroke
_ROOM = 0.04  # of the larger side of the map, around all of its points: room for the signs at the ends of paths
_FLATTEST = 1 / 6  # the least height of a map in widths: that of a one-dimensional space is not a mere line
_DOTS = ("round", "square")
"""Ends of strokes of no length: dots that can be told apart without colour, too."""


@dataclass(frozen=True)
class Axis:
    """Where along a path each of its points is drawn, and which of them are milestones.

    Attributes:
        step: The number of each point.
        stops: The positions of the milestones after the first point.
    """

    step: NDArray[np.float64]
    stops: Sequence[int] = ()

    @cached_property
    def across(self) -> NDArray[np.float64]:
        """The share of the width at which each point is."""
        first, last = float(self.step[0]), float(self.step[-1])
        return (self.step - first) / ((last - first) or 1.0)

    def line(self, values: Any, bounds: tuple[float, float], css: str, level: float | None = None) -> Markup:
        """Numbers along the path; a level is a dashed line across."""
        dashed = ""
        if level is not None:
            y = coordinate(float(_heights(np.array([level]), bounds)[0]))
            dashed = f'<line class="asked" x1="0" x2="{WIDTH:g}" y1="{y}" y2="{y}"/>'
        points = " ".join(_pairs(WIDTH * self.across, _heights(values, bounds)))
        return self._svg(f'{dashed}<polyline class="{css}" points="{points}"/>')

    def stairs(self, codes: NDArray[np.float64], css: str) -> Markup:
        """Categories along the path: each holds until the next."""
        x, y = WIDTH * self.across, _heights(codes, (0.0, float(codes.max())))
        moves = "".join(f"H{coordinate(a)}V{coordinate(b)}" for a, b in zip(x[1:], y[1:], strict=True))
        return self._svg(f'<path class="{css}" d="M{coordinate(x[0])} {coordinate(y[0])}{moves}"/>')

    def numbers(self, values: Any, bounds: tuple[float, float]) -> Markup:
        """The numbers of the milestones, to be laid over a line, if there is more than one."""
        x, y = 100 * self.across, 100 * _heights(values, bounds) / HEIGHT
        shown = enumerate(self.stops, start=1) if len(self.stops) > 1 else ()
        return Markup("").join(
            Markup(f'<span class="stop" style="left:{coordinate(x[stop])}%;top:{coordinate(y[stop])}%">{number}</span>')
            for number, stop in shown
        )

    def _svg(self, inner: str) -> Markup:
        guides = "".join(
            f'<line x1="{x}" x2="{x}" y1="0" y2="{HEIGHT:g}"/>'
            for x in (coordinate(WIDTH * self.across[stop]) for stop in self.stops[:-1])
        )
        box = f'viewBox="0 0 {WIDTH:g} {HEIGHT:g}" preserveAspectRatio="none" aria-hidden="true"'
        return Markup(f"<svg {box}>{guides}{inner}</svg>")


@dataclass(frozen=True)
class Map:
    """The latent map: its codes are drawn once, in `codes`, and shown under the paths of every map on the page.

    Attributes:
        landscape: `map_x`, `map_y` and `predicted` of training rows.
        schema: What people call the classes.
        low: The smallest x and y on any map.
        high: The largest ones.
    """

    landscape: pd.DataFrame
    schema: Schema
    low: tuple[float, float]
    high: tuple[float, float]

    @classmethod
    def around(cls, landscape: pd.DataFrame, paths: pd.DataFrame, schema: Schema) -> "Map":
        """A map that is large enough for all codes and paths."""
        both = pd.concat([frame[["map_x", "map_y"]] for frame in (landscape, paths)]).to_numpy(float)
        low, high = both.min(axis=0), both.max(axis=0)
        room = _ROOM * max(*(high - low), 1e-9)  # a single point has a map, too
        (left, bottom), (right, top) = low - room, high + room
        return cls(landscape, schema, (float(left), float(bottom)), (float(right), float(top)))

    @property
    def height(self) -> float:
        """Of the map; one that is hardly higher than a line has some height."""
        return max(MAP * (self.high[1] - self.low[1]) / (self.high[0] - self.low[0]), MAP * _FLATTEST)

    @property
    def codes(self) -> Markup:
        """What the maps of a page share: to be put into it once, before them."""
        drawn = "".join(
            f'<path d="{"".join(f"M{point}h.1" for point in self._points(group))}" stroke="{color}" '
            f'stroke-linecap="{dot}"/>'
            for _, group, color, dot in self._classes
        )
        group = f'<g id="codes" fill="none" stroke-width="2.6" stroke-opacity=".62">{drawn}</g>'
        return Markup(f'<svg class="shared" aria-hidden="true"><defs>{group}</defs></svg>')

    def draw(self, paths: Iterable[pd.DataFrame], label: str, css: str = "map", size: float = 1.0) -> Markup:
        """A map with paths on it.

        Args:
            paths: `map_x` and `map_y` of every point, for each path.
            label: What the picture shows, for those who cannot see it.
            css: A class of the page's style.
            size: Of the signs at the ends of paths.
        """
        lines, ends = [], []
        for path in paths:
            points = self._points(path)
            thin = [point for point, after in zip(points, [*points[1:], ""], strict=True) if point != after]
            line = " ".join(thin)
            lines.append(f'<polyline points="{line}" stroke="#fff" stroke-width="{4.4 * size:g}"/>')
            lines.append(f'<polyline points="{line}" stroke="{INK}" stroke-width="{1.9 * size:g}"/>')
            ends.append(_start(thin[0], size) + _end(thin[-1], size))
        body = f'<use href="#codes"/><g fill="none" stroke-linejoin="round">{"".join(lines)}</g>{"".join(ends)}'
        box = f'viewBox="0 0 {MAP:g} {coordinate(self.height)}" role="img" aria-label="{escape(label)}"'
        return Markup(f'<figure class="{escape(css)}"><svg {box}>{body}</svg></figure>')

    @cached_property
    def legend(self) -> Markup:
        """What dots and signs stand for."""
        dot = '<path d="M5 5h.1" stroke="{}" stroke-width="7" stroke-linecap="{}"/>'
        names = [f"predicted {wording.class_text(self.schema, label)}" for label, *_ in self._classes]
        signs = [(dot.format(*look), name) for name, (_, _, *look) in zip(names, self._classes, strict=True)]
        signs += [(_start("5,5"), "now"), (_end("5,5"), "counterfactual")]
        items = "".join(
            f'<span><svg viewBox="0 0 10 10" aria-hidden="true">{sign}</svg>{escape(text)}</span>'
            for sign, text in signs
        )
        return Markup(f'<p class="legend">{items}</p>')

    @cached_property
    def _classes(self) -> list[tuple[Any, pd.DataFrame, str, str]]:
        """The predicted classes: the label, its rows, a colour and a dot."""
        looks = cycle(zip(PALETTE, cycle(_DOTS), strict=False))
        groups = self.landscape.groupby("predicted", observed=True)
        return [(label, group, *look) for (label, group), look in zip(groups, looks, strict=False)]

    def _points(self, frame: pd.DataFrame) -> list[str]:
        """Where points are drawn: y grows downwards."""
        scale = MAP / (self.high[0] - self.low[0])
        x = scale * (frame["map_x"].to_numpy(float) - self.low[0])
        y = scale * (self.high[1] - frame["map_y"].to_numpy(float))
        return _pairs(x, y)


def bar(shares: Mapping[str, float], text: str) -> Markup:
    """A bar of parts, each a share of its whole width under its CSS class, and a text at its end."""
    parts = "".join(f'<b class="{css}" style="width:{coordinate(100 * share)}%"></b>' for css, share in shares.items())
    return Markup(f'<div class="bar"><i aria-hidden="true">{parts}</i><span>{escape(text)}</span></div>')


def _heights(values: Any, bounds: tuple[float, float]) -> NDArray[np.float64]:
    """From the top: the bounds lie a little within the box."""
    low, high = bounds
    share: NDArray[np.float64] = (np.asarray(values, dtype=float) - low) / ((high - low) or 1.0)
    return HEIGHT * (1 - _MARGIN - (1 - 2 * _MARGIN) * share)


def _pairs(x: Any, y: Any) -> list[str]:
    return [f"{coordinate(a)},{coordinate(b)}" for a, b in zip(x, y, strict=True)]


def _start(point: str, size: float = 1.0) -> str:
    """The sign of a row as asked: a ring."""
    x, y = point.split(",")
    look = f'r="{3.6 * size:g}" fill="#fff" stroke="{INK}" stroke-width="{1.6 * size:g}"'
    return f'<circle cx="{x}" cy="{y}" {look}/>'


def _end(point: str, size: float = 1.0) -> str:
    """The sign of the end of a path: a diamond."""
    x, y = point.split(",")
    r = f"{4.8 * size:g}"
    shape = f"M{x} {y}m0-{r}l{r} {r}l-{r} {r}l-{r}-{r}z"
    return f'<path d="{shape}" fill="{INK}" stroke="#fff" stroke-width="{0.8 * size:g}"/>'


def coordinate(value: float) -> str:
    """A coordinate, or a share in percent, with as many digits as can be seen."""
    return f"{value:.1f}".removesuffix(".0")
