"""What several methods found for the same rows, as one table."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from counterpath.data.status import StatusCode
from counterpath.utils.errors import InputError

MEANS = ("l0", "l1", "l2_sq", "ld_sq", "copy", "violation", "ynn", "confidence", "steps")
"""What a table has the mean of: measures, and the number of steps of a path."""
OWN = "Each method over the rows that it found"
COMMON = "All methods over the rows that all of them found"
_SEARCH = ("flip ratio", "local", "gaps", "seconds")
"""The columns that do not depend on which rows the means are over."""


def comparison_table(
    results: Mapping[str, Any], common: bool = False, seconds: Mapping[str, float] | None = None
) -> pd.DataFrame:
    """One row a method, by its name.

    Rows that had the wanted decision from the start were not searched, and count nowhere.

    Args:
        results: What each method found, one row a person.
        common: Take the means over the rows for which every method found a counterfactual, the only fair way to compare
            costs; else over those for which the method itself did.
        seconds: How long each method took; by default as the explanations say.

    Returns:
        `n`, how many rows the means are over; `flip ratio`, the share of the searched rows for which the method found a
        counterfactual; `local`, the same without rows that were led to a landmark; `gaps`, the share whose
        counterfactual is reached only across a gap in the data; the means `MEANS`; and `seconds`, for all rows.
    """
    _check_rows(results)
    took = seconds or {name: float(result.made.get("seconds", np.nan)) for name, result in results.items()}
    found = {name: _having(result, *(kind for kind in StatusCode if kind.found)) for name, result in results.items()}
    shared = np.logical_and.reduce(list(found.values()))
    rows = [
        _row(result, found[name], shared if common else found[name]) | {"seconds": took[name]}
        for name, result in results.items()
    ]
    return pd.DataFrame(rows, index=pd.Index(list(results), name="method"))


def both_tables(results: Mapping[str, Any], seconds: Mapping[str, float] | None = None) -> dict[str, pd.DataFrame]:
    """The table over each method's own rows and, without what would be said twice, over common ones, by their titles.

    One method alone has no common rows.
    """
    own = {OWN: comparison_table(results, seconds=seconds)}
    common = comparison_table(results, common=True, seconds=seconds).drop(columns=list(_SEARCH))
    return own if len(results) == 1 else own | {COMMON: common}


def _check_rows(results: Mapping[str, Any]) -> None:
    """Raise an error unless all explanations are of the same rows."""
    first, *others = results
    for name in others:
        if not results[name].factuals.index.equals(results[first].factuals.index):
            there = f"{len(results[name])} rows, and {first!r} {len(results[first])}"
            raise InputError(
                f"the results of {name!r} and {first!r} are not of the same rows: {name!r} has {there}; explain the "
                "same table by both"
            )


def _row(result: Any, found: np.ndarray, over: np.ndarray) -> dict[str, Any]:
    searched = int(_having(result, *(status for status in StatusCode if status.searched)).sum())
    gaps = _having(result, StatusCode.CROSSES_GAP)
    led = result.status["fallback"].to_numpy(bool)
    means = result.measures().reindex(columns=list(MEANS)).astype(float)[over].mean()
    return {
        "n": int(over.sum()),
        "flip ratio": float(found.sum() / searched) if searched else np.nan,
        "local": float((found & ~led).sum() / searched) if searched else np.nan,
        "gaps": float(gaps.sum() / searched) if searched else np.nan,
        **{str(name): float(mean) for name, mean in means.items()},
    }


def _having(result: Any, *wanted: StatusCode) -> np.ndarray:
    marked: np.ndarray = result.status["status"].isin(wanted).to_numpy()
    return marked
