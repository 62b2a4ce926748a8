"""Who gets a counterfactual, at what cost, and through which features."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.data.status import FOUND, StatusCode
from counterpath.explanation import wording
from counterpath.explanation.tables import PLAN, people_numbers, plan_numbers
from counterpath.utils.errors import InputError, choose

MOST_VALUES = 8
"""A number with more distinct values than this is cut into quartiles before rows are grouped by it."""

COSTS = ("l0", "l1", "l2_sq", "ld_sq", "copy", "violation", "steps")

By: TypeAlias = str | Sequence[str] | pd.Series


@dataclass(frozen=True)
class Cases:
    """Rows to summarise, all by position.

    Attributes:
        status: The status of each row.
        costs: The measures of each row; those of `COSTS` are averaged over the rows that were found.
        changed: Which features changed, for each row.
        person: Which person each row belongs to.
        plans: How many plans were asked for.
    """

    status: pd.Series
    costs: pd.DataFrame
    changed: pd.DataFrame
    person: NDArray[np.int64]
    plans: int

    @property
    def columns(self) -> list[str]:
        """The columns of a summary."""
        return ["n", "explained", "found", "gaps", *(["plans"] if self.plans > 1 else []), *COSTS, "changes most"]

    def of(self, rows: NDArray[np.bool_]) -> "Cases":
        """Some of the rows."""
        return Cases(self.status[rows], self.costs[rows], self.changed[rows], self.person[rows], self.plans)

    def summarise(self) -> dict[str, Any]:
        """One row of a summary.

        Returns:
            A value for each of `columns`. `n`, `explained` and `found` count people: all, those for whom a
            counterfactual was looked for, and the share of these for whom there is one; `gaps` is the share of these
            for whom there is one only across a gap in the data, and `plans` how many there are for each of these. All
            else is over the found rows, so over all plans.
        """
        found = self.status.isin(FOUND).to_numpy()
        reached = self._people((self.status == StatusCode.FOUND).to_numpy())
        explained = self._people(self.status.isin([kind for kind in StatusCode if kind.searched]).to_numpy())
        means = self.costs.reindex(columns=list(COSTS)).astype(float)[found].mean()
        values = {
            "n": self._people(np.ones(len(found), dtype=bool)),
            "explained": explained,
            "found": self._people(found) / explained if explained else np.nan,
            "gaps": (self._people(found) - reached) / explained if explained else np.nan,
            "plans": found.sum() / explained if explained else np.nan,
            **{str(name): mean for name, mean in means.items()},
            "changes most": most_changed(self.changed[found]),
        }
        return {name: values[name] for name in self.columns}

    def _people(self, rows: NDArray[np.bool_]) -> int:
        return len(np.unique(self.person[rows]))


def cases(
    status: pd.DataFrame, measures: pd.DataFrame, changed: pd.DataFrame, paths: pd.DataFrame, plans: int
) -> Cases:
    """The rows of an explanation, whose steps are counted where paths were kept."""
    costs = measures.reset_index(drop=True)
    if len(paths):
        costs = costs.assign(steps=paths.groupby("row")["step"].max().reindex(range(len(costs))))
    plain = status["status"].reset_index(drop=True), costs, changed.reset_index(drop=True)
    return Cases(*plain, people_numbers(status.index, plans), plans)


def summarise_all(rows: Cases) -> pd.DataFrame:
    """A summary of one row."""
    return pd.DataFrame([rows.summarise()], index=["all"], columns=rows.columns)


def summarise_groups(rows: Cases, factuals: pd.DataFrame, by: By) -> pd.DataFrame:
    """A summary with one row for each group of rows.

    Args:
        rows: The rows.
        factuals: The rows as asked.
        by: One or more of their columns, "plan", or a series with one value a row or a person.
    """
    keys = group_keys(rows, factuals, by)
    grouped = rows.status.groupby(keys if len(keys) > 1 else keys[0], observed=True, dropna=False)
    index, number = grouped.size().index, grouped.ngroup().to_numpy()
    each = [rows.of(number == group).summarise() for group in range(len(index))]
    return pd.DataFrame(each, index=index, columns=rows.columns)


def most_changed(changed: pd.DataFrame, count: int = 3) -> str:
    """The features that change most often, with the share of rows in which they do."""
    shares = changed.mean().sort_values(ascending=False, kind="stable") if len(changed) else pd.Series(dtype=float)
    return ", ".join(f"{name} {wording.percent(share)}" for name, share in shares[shares > 0].head(count).items())


def group_keys(rows: Cases, factuals: pd.DataFrame, by: By) -> list[pd.Series]:
    """What to group by, cut into quartiles where it is numbers with many values; by position, not label."""
    if isinstance(by, pd.Series):
        chosen = [_one_each(by if by.name is not None else by.rename("group"), rows)]
    else:
        columns = {str(name): factuals[name] for name in factuals}
        if rows.plans > 1:
            columns = {PLAN: pd.Series(plan_numbers(factuals.index, rows.plans), name=PLAN)} | columns
        chosen = [choose("column", name, columns) for name in ([by] if isinstance(by, str) else by)]
    if not chosen:
        raise InputError("by is an empty list; expected at least one column name, or None for one row over all")
    return [_quartiles(key.reset_index(drop=True)) for key in chosen]


def _one_each(by: pd.Series, rows: Cases) -> pd.Series:
    """A value for each row, of as many values as there are rows or people."""
    count, people = len(rows.status), int(rows.person.max(initial=-1)) + 1
    if len(by) == count:
        return by
    if len(by) == people:
        return by.iloc[rows.person]
    there = f"{count} rows" if rows.plans == 1 else f"{count} rows of {people} people"
    raise InputError(f"by is a series of {len(by)} values for {there}; expected one value a row, in their order")


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
