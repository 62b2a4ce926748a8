"""Which numbers of a column are codes, such as -9 for "no record" and 999 for "unknown", and no measurements."""

import re
from collections import Counter
from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import NDArray

_CLASSIC = re.compile(r"-([789])\1*|-?(([789])\3+|9+[6-9])")
"""What people write where there is nothing to measure: -7, 88, 999, or with the reason as the last digit 96, -98, 9997.
Single digits are codes only if they are negative, and -1 to -6 are not: they may be a temperature or a balance next to
0 just as well."""
_FEWEST_ROWS = 50
"""In a shorter table anything may be far from all others by chance."""
_REPEATED = 2
"""Codes are in several rows; a number that is there once is an outlier at most."""
_MOST = 5
"""More different ones than code books have for one column: "refused", "unknown" and "not asked" are usual."""
_APART, _GAPS = 3.0, 20.0
"""How many times the range of all others the gap before an extreme code must be, and how many times the largest gap
among them. It is 4.6 and 39 for the 96 and 98 of Give Me Some Credit's counts of days past due, where it is smallest.
For the 99,999 of Adult's capital gain it is 1.4 and 8: these are real gains of as much or more, and stay numbers (of a
hundred samples of 1,000 of these rows it is taken for a code in four)."""


def suggest_codes(values: NDArray[np.float64], known: Collection[float] = ()) -> tuple[float, ...]:
    """The numbers of a column that are no measurements, in order; none where that is doubtful.

    They are written as codes usually are, few, and in more than one row; all others are at least two different numbers.

    - Negative codes are all that is negative in a column of measurements ≥ 0; or
    - codes lie below or above all measurements, at least three times their range away, and twenty times the largest gap
      between them.

    Args:
        values: Finite numbers.
        known: Codes of other columns: here they may be in one row, and however large the gaps between the others are.
    """
    return _suggested(*np.unique(values, return_counts=True), known)


def shared_codes(columns: Iterable[NDArray[np.float64]]) -> frozenset[float]:
    """What is a code in some column of a table, where a number that is by itself in each of several is repeated, too.

    A small sample has few rows with a code, and a row that has one has it in all columns of the same source: of 2,000
    rows of Give Me Some Credit four have a 98, each in all three columns of past dues.

    Args:
        columns: Finite numbers of each.
    """
    found: set[float] = set()
    alone: Counter[float] = Counter()
    for values in columns:
        different, counts = np.unique(values, return_counts=True)
        repeated = _suggested(different, counts)
        found |= set(repeated)
        alone.update(() if repeated else _suggested(different, counts + 1))  # codes, were they in another row
    return frozenset(found | {code for code, count in alone.items() if count >= _REPEATED})


def _suggested(
    different: NDArray[np.float64], counts: NDArray[np.int64], known: Collection[float] = ()
) -> tuple[float, ...]:
    """As `suggest_codes`, of different numbers in order, and in how many rows each is."""
    if counts.sum() < _FEWEST_ROWS:
        return ()
    below = _first(different, counts, known, negative=True)
    above = _first(-different[below:][::-1], counts[below:][::-1], {-code for code in known}, negative=False)
    return (*different[:below].tolist(), *different[len(different) - above :].tolist())


def _first(
    different: NDArray[np.float64], counts: NDArray[np.int64], known: Collection[float], *, negative: bool
) -> int:
    """How many of the first different numbers are codes.

    Args:
        different: Numbers in order, from the side to look at.
        counts: In how many rows each is.
        known: Codes of other columns.
        negative: Whether all negative ones are codes if they look like it, however near to the others.
    """
    for count in range(min(_MOST, len(different) - 2), 0, -1):
        codes, rest = different[:count], different[count:]
        classic = all(_CLASSIC.fullmatch(f"{code if negative else -code:.12g}") for code in codes)
        elsewhere = all(code in known for code in codes.tolist())
        if not classic or (counts[:count].sum() < _REPEATED and not elsewhere):
            continue
        needed = max(_APART * (rest[-1] - rest[0]), 0.0 if elsewhere else _GAPS * np.diff(rest).max())
        if (negative and codes[-1] < 0 <= rest[0]) or rest[0] - codes[-1] >= needed:
            return count
    return 0
