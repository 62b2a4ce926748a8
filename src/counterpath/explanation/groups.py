"""Who gets a counterfactual, at what cost, and through which features."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from counterpath.errors import InputError, choose
from counterpath.explanation import wording
from counterpath.explanation.status import Status

MOST_VALUES = 8
"""A number with more distinct values than this is cut into quartiles before rows are grouped by it."""

COSTS = ("l0", "l1", "l2_sq", "ld_sq", "violation", "steps")
COLUMNS = ("n", "explained", "found", *COSTS, "changes most")

By: TypeAlias = str | Sequence[str] | pd.Series


def summarise(status: pd.Series, costs: pd.DataFrame, changed: pd.DataFrame) -> dict[str, Any]:
    """One row of a summary.

    Args:
        status: The status of each row.
        costs: The measures of each row; those of `COSTS` are averaged over the rows that were found.
        changed: Which features changed, for each row.

    Returns:
        A value for each of `COLUMNS`: `explained` counts the rows for which a counterfactual was looked for, and
        `found` is the share of them for which there is one.
    """
    found = (status == Status.FOUND).to_numpy()
    explained = int(status.isin([kind for kind in Status if kind.searched]).sum())
    means = costs.reindex(columns=list(COSTS)).astype(float)[found].mean()
    return {
        "n": len(status),
        "explained": explained,
        "found": found.sum() / explained if explained else np.nan,
        **{str(name): mean for name, mean in means.items()},
        "changes most": most_changed(changed[found]),
    }


def summarise_groups(
    factuals: pd.DataFrame, by: By, status: pd.Series, costs: pd.DataFrame, changed: pd.DataFrame
) -> pd.DataFrame:
    """One row of a summary for each group of rows; see `summarise` for the columns and the other arguments.

    Args:
        factuals: The rows as asked.
        by: One or more of their columns, or a series with one value a row.
        status: By position, as `costs` and `changed` are.
        costs: See `summarise`.
        changed: See `summarise`.
    """
    keys = group_keys(factuals, by)
    grouped = status.groupby(keys if len(keys) > 1 else keys[0], observed=True, dropna=False)
    index, number = grouped.size().index, grouped.ngroup()
    members = [number == group for group in range(len(index))]
    rows = [summarise(status[rows], costs[rows], changed[rows]) for rows in members]
    return pd.DataFrame(rows, index=index, columns=list(COLUMNS))


def most_changed(changed: pd.DataFrame, count: int = 3) -> str:
    """The features that change most often, with the share of rows in which they do."""
    shares = changed.mean().sort_values(ascending=False, kind="stable") if len(changed) else pd.Series(dtype=float)
    return ", ".join(f"{name} {wording.percent(share)}" for name, share in shares[shares > 0].head(count).items())


def group_keys(factuals: pd.DataFrame, by: By) -> list[pd.Series]:
    """The columns to group by, cut into quartiles where they are numbers with many values; by position, not label."""
    if isinstance(by, pd.Series):
        if len(by) != len(factuals):
            raise InputError(
                f"by is a series of {len(by)} values for {len(factuals)} rows; expected one value a row, in their order"
            )
        chosen = [by if by.name is not None else by.rename("group")]
    else:
        columns = {str(name): factuals[name] for name in factuals}
        chosen = [choose("column", name, columns) for name in ([by] if isinstance(by, str) else by)]
    if not chosen:
        raise InputError("by is an empty list; expected at least one column name, or None for one row over all")
    return [_quartiles(key.reset_index(drop=True)) for key in chosen]


def _quartiles(key: pd.Series) -> pd.Series:
    many = key.nunique() > MOST_VALUES
    if not many or not pd.api.types.is_numeric_dtype(key) or pd.api.types.is_bool_dtype(key):
        return key
    edges = np.unique(key.quantile([0, 0.25, 0.5, 0.75, 1]).to_numpy(float))
    labels = [
        f"{'over ' if place else ''}{wording.value(low)} to {wording.value(high)}"
        for place, (low, high) in enumerate(pairwise(edges))
    ]
    return pd.Series(pd.cut(key, edges.tolist(), labels=labels, include_lowest=True), name=key.name)
