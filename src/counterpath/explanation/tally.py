"""Which features change most, how often, in which direction, and by how much."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from counterpath.explanation import wording


@dataclass(frozen=True)
class Tally:
    """How one feature changes over many rows.

    Attributes:
        feature: Its name.
        share: The share of the rows in which it changes.
        up: The share in which it rises.
        down: The share in which it falls; a category that has no order does neither.
        typical: Its commonest change, or the median one and the middle half, in its own units.
    """

    feature: str
    share: float
    up: float
    down: float
    typical: str


def tally(old: pd.DataFrame, new: pd.DataFrame, changed: pd.DataFrame, numbers: frozenset[str]) -> tuple[Tally, ...]:
    """The features that change at all, most often first.

    Args:
        old: The rows as asked.
        new: The rows as returned.
        changed: Which features differ.
        numbers: The features that are numbers.
    """
    shares = changed.mean().sort_values(ascending=False, kind="stable") if len(changed) else pd.Series(dtype=float)
    names = [str(name) for name in shares[shares > 0].index]
    return tuple(_tally(name, old[name], new[name], changed[name].to_numpy(bool), name in numbers) for name in names)


def _tally(name: str, old: pd.Series, new: pd.Series, moved: np.ndarray, number: bool) -> Tally:
    count, before, after = len(old), old[moved], new[moved]
    if not number:
        moves = (f"{wording.value(a)} → {wording.value(b)}" for a, b in zip(before, after, strict=True))
        commonest = pd.Series(list(moves)).value_counts()
        text = f"{commonest.index[0]} ({commonest.iloc[0]} of {len(before)})"
        return Tally(name, len(before) / count, 0.0, 0.0, text)
    amount = (after.to_numpy(float) - before.to_numpy(float)).astype(float)
    low, middle, high = (_signed(value) for value in np.quantile(amount, (0.25, 0.5, 0.75)))
    text = middle if low == high else f"{middle} (half of them {low} to {high})"
    return Tally(name, len(before) / count, float((amount > 0).sum()) / count, float((amount < 0).sum()) / count, text)


def _signed(value: float) -> str:
    text = wording.value(abs(value), digits=3)
    return f"+{text}" if value > 0 else f"−{text}" if value < 0 else text
