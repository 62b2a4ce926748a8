"""How the training rows spread over the values of one feature: bars for a strip behind its control, and a few words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.data.axes import NumberAxis, value_axis
from counterpath.data.schema import KINDS, Feature
from counterpath.data.tables import to_numbers
from counterpath.explainer.explainer import Explainer
from counterpath.explanation import wording

BINS = 28
"""Bars of a strip of numbers: as many as stay apart in a strip of 150 pixels."""
TICKS = 200
"""Positions of a slider over the strip: about one a pixel."""
_FILLED = 0.86
"""The share of its place that a bar fills, so that bars stay apart."""
_DIGITS = 3
"""Significant digits of a number that a slider gives: what a pixel can say. The fields take all of them."""
_NAMED = 3
"""The commonest categories, which are named."""


@dataclass(frozen=True)
class Scale:
    """Where a number is on a strip, from 0 to 1.

    Attributes:
        low: The number at the left end.
        high: That at the right end.
        logarithmic: Whether equal distances are equal ratios, of the number and 1: for numbers that are mostly small.
        whole: Whether numbers are whole.
    """

    low: float
    high: float
    logarithmic: bool = False
    whole: bool = False

    def position(self, number: float) -> float:
        """Where a number is; at the nearer end if it is beyond."""
        low, high, here = (self._forward(each) for each in (self.low, self.high, number))
        return min(max((here - low) / (high - low), 0.0), 1.0) if high > low else 0.5

    def number(self, position: float) -> float:
        """The number at a position, with few digits."""
        low, high = self._forward(self.low), self._forward(self.high)
        exact = low + position * (high - low)
        exact = self.low + math.expm1(exact) if self.logarithmic else exact
        spread = abs(exact - self.low) if self.logarithmic else self.high - self.low
        digits = _DIGITS - 1 - math.floor(math.log10(spread)) if spread > 0 else 0
        near = round(exact) if self.whole else round(exact, digits)
        return min(max(near, self.low), self.high)

    def _forward(self, number: float) -> float:
        return math.log1p(max(number - self.low, 0.0)) if self.logarithmic else number


@dataclass(frozen=True)
class Distribution:
    """The training rows by the values of one feature.

    Attributes:
        bars: The height of each bar, from 0 to 1, as the root of how many rows it has, so that few are still seen.
        words: The same in words.
        scale: Of numbers; None for categories, which have a bar each.
        categories: Those of the bars.
    """

    bars: tuple[float, ...]
    words: str
    scale: Scale | None = None
    categories: tuple[object, ...] = ()

    @classmethod
    def of(cls, explainer: Explainer, feature: Feature, column: pd.Series) -> "Distribution":
        """The distribution of a column of training rows."""
        axis = value_axis(explainer.encoder_.axes[explainer.schema_.index(feature.name)])
        if isinstance(axis, NumberAxis):
            measured = column[feature.is_measured(column)]
            return cls._of_numbers(feature, axis, to_numbers(measured, feature))
        counts = column.value_counts()
        present = [each for each in feature.categories if counts.get(each, 0)]
        shares = [float(counts[each]) / max(len(column), 1) for each in present]
        common = sorted(zip(shares, present, strict=True), key=lambda pair: -pair[0])[:_NAMED]
        named = [f"{wording.shown(feature, each)} {wording.percent(share)}" for share, each in common]
        rest = len(present) - len(named)
        words = ", ".join([*named, *([f"and {rest} more"] if rest > 0 else [])])
        return cls(_heights(shares), f"Training rows: {words}", None, tuple(present))

    @classmethod
    def _of_numbers(cls, feature: Feature, axis: NumberAxis, numbers: NDArray[np.float64]) -> "Distribution":
        scale = Scale(axis.lower, axis.upper, feature.transform == "log1p", KINDS[feature.kind].whole)
        places = np.array([scale.position(number) for number in np.unique(numbers)])
        counts, _ = np.histogram(places[np.searchsorted(np.unique(numbers), numbers)], bins=BINS, range=(0, 1))
        if not len(numbers):
            return cls(_heights(counts.tolist()), "Training rows: no values", scale)
        low, high = np.quantile(numbers, (0.25, 0.75), method="nearest")
        ends = " to ".join(wording.grouped(wording.number(feature, float(each))) for each in (low, high))
        return cls(_heights(counts.tolist()), f"Training rows: half have {wording.with_unit(feature, ends)}", scale)

    @property
    def svg(self) -> str:
        """The bars as a drawing that fills its box: of numbers only, so that nothing of a table is in it."""
        width = 100 / max(len(self.bars), 1)
        bars = "".join(
            f'<rect x="{width * index:.2f}" y="{100 - 100 * bar:.1f}" width="{_FILLED * width:.2f}" '
            f'height="{100 * bar:.1f}"/>'
            for index, bar in enumerate(self.bars)
            if bar > 0
        )
        return f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">{bars}</svg>'

    def place(self, feature: Feature, value: object) -> float | None:
        """Where a value is on the strip, from 0 to 1; None where it is not on it."""
        if value is None or value in feature.codes:
            return None
        if self.scale is None:
            return (self.categories.index(value) + _FILLED / 2) / len(self.bars) if value in self.categories else None
        try:
            number = float(to_numbers(pd.Series([value], name=feature.name), feature)[0])
        except (ValueError, TypeError):  # a text that is no number, of which the field beside it says so
            return None
        return self.scale.position(number) if math.isfinite(number) else None


def _heights(counts: Sequence[float]) -> tuple[float, ...]:
    most = max(counts, default=0)
    return tuple(math.sqrt(count / most) if most else 0.0 for count in counts)
