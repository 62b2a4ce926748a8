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

from counterpath.explanation import wording
from counterpath.explanation.plots.style import INK, PALETTE
from counterpath.explanation.report.html import Markup, escape

WIDTH, HEIGHT = 100.0, 20.0
"""Of a line, before the page stretches it."""
MAP = 300.0
"""Width of the map."""
_MARGIN = 0.12
_DOTS = ("round", "square")
"""Ends of strokes of no length: dots that can be told apart without colour, too."""


@dataclass(frozen=True)
class Axis:
    """Where along a path each of its points is drawn, and which of them are milestones.

    Attributes:
        step: The number of each point.
        stops: The positions of the milestones after the first point.
    """

    step: Any
    stops: Sequence[int] = ()

    @cached_property
    def across(self) -> Any:
        """The share of the width at which each point is."""
        first, last = float(self.step[0]), float(self.step[-1])
        return (self.step - first) / ((last - first) or 1.0)

    def line(self, values: Any, bounds: tuple[float, float], look: str, level: float | None = None) -> Markup:
        """Numbers along the path; a level is a dashed line across."""
        x, y = WIDTH * self.across, _heights(values, bounds)
        dashed = "" if level is None else _horizontal(float(_heights(np.array([level]), bounds)[0]))
        return self._svg(dashed + f'<polyline class="{look}" points="{_points(x, y)}"/>')

    def stairs(self, codes: Any, look: str) -> Markup:
        """Categories along the path: each holds until the next."""
        x, y = WIDTH * self.across, _heights(codes, (0.0, float(codes.max())))
        moves = "".join(f"H{_short(a)}V{_short(b)}" for a, b in zip(x[1:], y[1:], strict=True))
        return self._svg(f'<path class="{look}" d="M{_short(x[0])} {_short(y[0])}{moves}"/>')

    def numbers(self, values: Any, bounds: tuple[float, float]) -> Markup:
        """The numbers of the milestones, to be laid over a line, if there is more than one."""
        if len(self.stops) < 2:
            return Markup("")
        x, y = 100 * self.across, 100 * _heights(values, bounds) / HEIGHT
        places = ((number, x[stop], y[stop]) for number, stop in enumerate(self.stops, start=1))
        return Markup(
            "".join(
                f'<span class="stop" style="left:{_short(left)}%;top:{_short(top)}%">{number}</span>'
                for number, left, top in places
            )
        )

    def _svg(self, inner: str) -> Markup:
        guides = "".join(
            f'<line x1="{x}" x2="{x}" y1="0" y2="{HEIGHT:g}"/>'
            for x in (_short(WIDTH * self.across[stop]) for stop in (self.stops[:-1] if len(self.stops) > 1 else ()))
        )
        box = f'viewBox="0 0 {WIDTH:g} {HEIGHT:g}" preserveAspectRatio="none" aria-hidden="true"'
        return Markup(f"<svg {box}>{guides}{inner}</svg>")


@dataclass(frozen=True)
class Map:
    """The latent map: its codes are drawn once, in `codes`, and shown under the paths of every map on the page.

    Attributes:
        landscape: `map_x`, `map_y` and `predicted` of training rows.
        low: The smallest x and y on any map.
        high: The largest ones.
    """

    landscape: pd.DataFrame
    low: tuple[float, float]
    high: tuple[float, float]

    @classmethod
    def of(cls, landscape: pd.DataFrame, paths: pd.DataFrame) -> "Map":
        """A map that is large enough for all codes and paths."""
        both = pd.concat([frame[["map_x", "map_y"]] for frame in (landscape, paths)]).to_numpy(float)
        low, high = both.min(axis=0), both.max(axis=0)
        room = 0.04 * max(*(high - low), 1e-9)
        (left, bottom), (right, top) = low - room, high + room
        return cls(landscape, (float(left), float(bottom)), (float(right), float(top)))

    @property
    def height(self) -> float:
        """Of the map; one that is hardly higher than a line has some height."""
        return max(MAP * (self.high[1] - self.low[1]) / (self.high[0] - self.low[0]), MAP / 6)

    @property
    def codes(self) -> Markup:
        """What the maps of a page share: to be put into it once, before them."""
        groups = dict(list(self.landscape.groupby("predicted", observed=True)))
        drawn = "".join(
            f'<path d="{"".join(f"M{p}h.1" for p in self._places(groups[label]))}" stroke="{color}" '
            f'stroke-linecap="{dot}"/>'
            for label, color, dot in self._looks
        )
        group = f'<g id="codes" fill="none" stroke-width="2.6" stroke-opacity=".62">{drawn}</g>'
        return Markup(f'<svg class="shared" aria-hidden="true"><defs>{group}</defs></svg>')

    def draw(self, paths: Iterable[pd.DataFrame], label: str, look: str = "map", size: float = 1.0) -> Markup:
        """A map with paths on it.

        Args:
            paths: `map_x` and `map_y` of every point, for each path.
            label: What the picture shows, for those who cannot see it.
            look: A class of the page's style.
            size: Of the signs at the ends of paths.
        """
        lines, ends = [], []
        for path in paths:
            places = self._places(path)
            thin = [place for place, after in zip(places, [*places[1:], ""], strict=True) if place != after]
            way = " ".join(thin)
            lines.append(f'<polyline points="{way}" stroke="#fff" stroke-width="{4.4 * size:g}"/>')
            lines.append(f'<polyline points="{way}" stroke="{INK}" stroke-width="{1.9 * size:g}"/>')
            ends.append(_now(thin[0], size) + _then(thin[-1], size))
        body = f'<use href="#codes"/><g fill="none" stroke-linejoin="round">{"".join(lines)}</g>{"".join(ends)}'
        box = f'viewBox="0 0 {MAP:g} {_short(self.height)}" role="img" aria-label="{escape(label)}"'
        return Markup(f'<figure class="{escape(look)}"><svg {box}>{body}</svg></figure>')

    @cached_property
    def legend(self) -> Markup:
        """What dots and signs stand for."""
        dots = [
            (
                f'<path d="M5 5h.1" stroke="{color}" stroke-width="7" stroke-linecap="{dot}"/>',
                f"model says {wording.value(label)}",
            )
            for label, color, dot in self._looks
        ]
        signs = [*dots, (_now("5,5"), "row as asked"), (_then("5,5"), "where the path ends")]
        items = "".join(
            f'<span><svg viewBox="0 0 10 10" aria-hidden="true">{sign}</svg>{escape(text)}</span>'
            for sign, text in signs
        )
        return Markup(f'<p class="legend">{items}</p>')

    @cached_property
    def _looks(self) -> list[tuple[Any, str, str]]:
        looks = cycle((color, dot) for color, dot in zip(PALETTE, cycle(_DOTS), strict=False))
        labels = [label for label, _ in self.landscape.groupby("predicted", observed=True)]
        return [(label, *look) for label, look in zip(labels, looks, strict=False)]

    def _places(self, points: pd.DataFrame) -> list[str]:
        """Where points are drawn: y grows downwards."""
        scale = MAP / (self.high[0] - self.low[0])
        x = scale * (points["map_x"].to_numpy(float) - self.low[0])
        y = scale * (self.high[1] - points["map_y"].to_numpy(float))
        return [f"{_short(a)},{_short(b)}" for a, b in zip(x, y, strict=True)]


def bar(shares: Mapping[str, float], text: str) -> Markup:
    """A bar of parts, each a share of its whole width under its look, and a text at its end."""
    parts = "".join(
        f'<b class="{escape(look)}" style="width:{_short(100 * share)}%"></b>' for look, share in shares.items()
    )
    return Markup(f'<div class="bar"><i aria-hidden="true">{parts}</i><span>{escape(text)}</span></div>')


def gauge(before: float, after: float, asked: float, label: str) -> Markup:
    """How probable the wanted outcome is now and then, on one line from 0 to 1."""
    low, high = sorted((before, after))
    gain = f'<span class="gain" style="left:{_short(100 * low)}%;width:{_short(100 * (high - low))}%"></span>'
    marks = "".join(
        f'<span class="{look}" style="left:{_short(100 * place)}%"></span>'
        for look, place in (("asked", asked), ("now", before), ("then", after))
    )
    return Markup(
        f'<div class="gauge" role="img" aria-label="{escape(label)}"><div class="track">{gain}{marks}</div></div>'
    )


def _heights(values: Any, bounds: tuple[float, float]) -> Any:
    """From the top: the bounds lie a little within the box."""
    low, high = bounds
    share = (np.asarray(values, dtype=float) - low) / ((high - low) or 1.0)
    return HEIGHT * (1 - _MARGIN - (1 - 2 * _MARGIN) * share)


def _horizontal(y: float) -> str:
    return f'<line class="asked" x1="0" x2="{WIDTH:g}" y1="{_short(y)}" y2="{_short(y)}"/>'


def _points(x: Any, y: Any) -> str:
    return " ".join(f"{_short(a)},{_short(b)}" for a, b in zip(x, y, strict=True))


def _now(place: str, size: float = 1.0) -> str:
    x, y = place.split(",")
    look = f'r="{3.6 * size:g}" fill="#fff" stroke="{INK}" stroke-width="{1.6 * size:g}"'
    return f'<circle cx="{x}" cy="{y}" {look}/>'


def _then(place: str, size: float = 1.0) -> str:
    x, y = place.split(",")
    r = f"{4.8 * size:g}"
    shape = f"M{x} {y}m0-{r}l{r} {r}l-{r} {r}l-{r}-{r}z"
    return f'<path d="{shape}" fill="{INK}" stroke="#fff" stroke-width="{0.8 * size:g}"/>'


def _short(value: float) -> str:
    """A coordinate with as many digits as can be seen."""
    return f"{value:.1f}".removesuffix(".0")
