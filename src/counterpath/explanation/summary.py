"""Who gets a counterfactual, at what cost, and through which features: by group, by feature, and by method."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.data.schema import Feature, Schema
from counterpath.data.status import FOUND, StatusCode
from counterpath.explanation import wording
from counterpath.explanation.tables import PLAN, differences, plan_numbers
from counterpath.utils.errors import InputError, choose

if TYPE_CHECKING:  # it imports this module
    from counterpath.explanation.result import Explanation

MOST_VALUES = 8
"""A number with more distinct values is cut into quartiles before rows are grouped by it: as many groups as a table can
show without losing its reader, and enough for the days of a week."""
_EDGE_DIGITS = 4  # of a number at which groups are cut: fewer would round years and most prices, more are noise
_MOST_NAMED = 3  # features that change most: a cell of a table has no room for more

LASTING = ("valid_after", "valid_noise")
"""What tables have the mean of beside that, where it is known how long answers last."""
COSTS = ("l0", "l1", "l2_sq", "ld_sq", "copy", "violation", "steps")
"""What a summary has the mean of."""
MEANS = ("l0", "l1", "l2_sq", "ld_sq", "copy", "violation", "ynn", "confidence", "steps")
"""What a table of methods has the mean of: measures, and the number of steps of a path."""
OWN = "Each method over the rows that it found"
COMMON = "All methods over the rows that all of them found"
_SEARCHED = tuple(code for code in StatusCode if code.searched)
_OF_THE_SEARCH = ("flip ratio", "local", "gaps", "seconds")
"""The columns of a table of methods that do not depend on which rows the means are over."""

By: TypeAlias = str | Sequence[str] | pd.Series


def summarise(result: "Explanation", by: By | None = None) -> pd.DataFrame:
    """One row over all rows of an explanation, or for each group of them; see `Explanation.summary`."""
    plans = ["plans"] if result.plans > 1 else []
    costs_shown = (*COSTS, *lasting(result))
    columns = ["n", "explained", "found", "gaps", *plans, *costs_shown, "changes most"]
    status, costs = result.status["status"].reset_index(drop=True), result.measures().reset_index(drop=True)
    changed = result.changed[list(result.schema.names)].reset_index(drop=True)
    if "steps" not in costs and len(result.paths):  # those of the search, however much of a path is kept
        costs = costs.assign(steps=result.paths.groupby("row")["step"].max().reindex(range(len(costs))))
    costs = costs.reindex(columns=list(costs_shown)).astype(float)
    index, group = pd.Index(["all"]), np.zeros(len(status), dtype=int)
    if by is not None:
        keys = group_keys(result, by)
        grouped = status.groupby(keys if len(keys) > 1 else keys[0], observed=True, dropna=False)
        index, group = grouped.size().index, grouped.ngroup().to_numpy()
    members = [group == number for number in range(len(index))]
    titles = wording.titles(result.schema)
    each = [_summarise(status[rows], costs[rows], changed[rows], result._person[rows], titles) for rows in members]
    return pd.DataFrame(each, index=index, columns=columns)


def lasting(*results: "Explanation") -> tuple[str, ...]:
    """Which measures of how long answers last a table has: those of models where there are any, or what was asked."""
    known = [name for name in LASTING if any(_is_known(result, name) for result in results)]
    return tuple(known)


def _is_known(result: "Explanation", name: str) -> bool:
    measured = result.measures()
    shown = name == "valid_after" or result.request.get("noise") is not None or _is_known(result, "valid_after")
    return shown and name in measured and bool(measured[name].notna().any())


def _summarise(
    status: pd.Series,
    costs: pd.DataFrame,
    changed: pd.DataFrame,
    person: NDArray[np.int64],
    titles: Mapping[str, str],
) -> dict[str, Any]:
    """One row of a summary: of people, each counted once, and over all of their plans that were found."""
    found = status.isin(FOUND).to_numpy()
    most = list(change_shares(changed[found]).items())[:_MOST_NAMED]
    explained, with_plan, without_gap = (
        len(np.unique(person[rows]))
        for rows in (status.isin(_SEARCHED).to_numpy(), found, (status == StatusCode.FOUND).to_numpy())
    )
    return {
        "n": len(np.unique(person)),
        "explained": explained,
        "found": with_plan / explained if explained else np.nan,
        "gaps": (with_plan - without_gap) / explained if explained else np.nan,
        "plans": found.sum() / explained if explained else np.nan,
        **{str(name): mean for name, mean in costs[found].mean().items()},
        "changes most": ", ".join(f"{titles[name]} {wording.percent(share)}" for name, share in most),
    }


def with_labels(summary: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """A summary by group, under what people call the columns and their values, in one level of text."""
    known = {feature.name: feature for feature in schema}
    features = [known.get(str(name)) for name in summary.index.names]
    groups = (label if isinstance(label, tuple) else (label,) for label in summary.index.tolist())
    labels = [
        ", ".join(
            wording.value(part) if feature is None else wording.shown(feature, part)
            for feature, part in zip(features, group, strict=True)
        )
        for group in groups
    ]
    columns = zip(features, summary.index.names, strict=True)
    name = wording.listed([str(own or "group") if feature is None else feature.title for feature, own in columns])
    return summary.set_axis(pd.Index(labels, name=name, dtype=object), axis=0)


def group_keys(result: "Explanation", by: By) -> list[pd.Series]:
    """What to group by, cut into quartiles where it is numbers with many values; by position, not label."""
    if isinstance(by, pd.Series):
        chosen = [_expand(by if by.name is not None else by.rename("group"), result)]
    else:
        columns = {str(name): result.factuals[name] for name in result.factuals}
        if result.plans > 1:
            columns = {PLAN: pd.Series(plan_numbers(result.factuals.index, result.plans), name=PLAN)} | columns
        chosen = [choose("column", name, columns) for name in ([by] if isinstance(by, str) else by)]
    return _cut(chosen)


def keys_of(frame: pd.DataFrame, by: By) -> list[pd.Series]:
    """The same for a table of rows, one a person."""
    if isinstance(by, pd.Series):
        if len(by) != len(frame):
            raise InputError(f"by is a series of {len(by)} values for {len(frame)} rows; expected one value a row")
        return _cut([by if by.name is not None else by.rename("group")])
    columns = {str(name): frame[name] for name in frame}
    return _cut([choose("column", name, columns) for name in ([by] if isinstance(by, str) else by)])


def _cut(chosen: Sequence[pd.Series]) -> list[pd.Series]:
    if not chosen:
        raise InputError("by is an empty list; expected at least one column name, or None for one row over all")
    return [_quartiles(key.reset_index(drop=True)) for key in chosen]


def _expand(by: pd.Series, result: "Explanation") -> pd.Series:
    """A value for each row, of as many values as there are rows or people."""
    if len(by) == len(result):
        return by
    if len(by) == result._count:
        return by.iloc[result._person]
    there = f"{len(result)} rows" if result.plans == 1 else f"{len(result)} rows of {result._count} people"
    raise InputError(f"by is a series of {len(by)} values for {there}; expected one value a row, in their order")


def _quartiles(key: pd.Series) -> pd.Series:
    many = key.nunique() > MOST_VALUES
    if not many or not pd.api.types.is_numeric_dtype(key) or pd.api.types.is_bool_dtype(key):
        return key
    edges = np.unique(key.quantile([0, 0.25, 0.5, 0.75, 1]).to_numpy(float))
    labels = [
        f"{'over ' if number else ''}{wording.rounded(low, _EDGE_DIGITS)} to {wording.rounded(high, _EDGE_DIGITS)}"
        for number, (low, high) in enumerate(pairwise(edges))
    ]
    return pd.Series(pd.cut(key, edges.tolist(), labels=labels, include_lowest=True), name=key.name)


def change_shares(changed: pd.DataFrame) -> dict[str, float]:
    """The features that change at all, most often first, with the share of the rows in which they do."""
    shares = changed.mean().sort_values(ascending=False, kind="stable") if len(changed) else pd.Series(dtype=float)
    return {str(name): float(share) for name, share in shares[shares > 0].items()}


@dataclass(frozen=True)
class Tally:
    """How one feature changes over many rows.

    Attributes:
        feature: What people call it.
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


def tally(
    old: pd.DataFrame, new: pd.DataFrame, changed: pd.DataFrame, numeric: frozenset[str], schema: Schema
) -> tuple[Tally, ...]:
    """The features that change at all, most often first.

    Args:
        old: The rows as asked.
        new: The rows as returned.
        changed: Which features differ.
        numeric: The features that are numbers.
        schema: What people call them.
    """
    moved = {name: changed[name].to_numpy(bool) for name in change_shares(changed)}
    return tuple(_tally(schema[name], old[name], new[name], rows, name in numeric) for name, rows in moved.items())


def _tally(feature: Feature, old: pd.Series, new: pd.Series, moved: NDArray[np.bool_], numeric: bool) -> Tally:
    count, before, after = len(old), old[moved], new[moved]
    if not numeric:
        text, often = commonest_change(before, after, partial(wording.shown, feature))
        return Tally(feature.title, len(before) / count, 0.0, 0.0, f"{text} ({often} of {len(before)})")
    amount = differences(feature, before, after)
    amount = amount[~np.isnan(amount)]
    if 2 * len(amount) < len(before):  # most become, or were, a code or a gap
        return _tally(feature, old, new, moved, numeric=False)
    low, middle, high = (_signed(value) for value in np.quantile(amount, (0.25, 0.5, 0.75)))
    text = wording.with_unit(feature, middle) + ("" if low == high else f" (half of them {low} to {high})")
    up, down = (float(moves.sum()) / count for moves in (amount > 0, amount < 0))
    return Tally(feature.title, len(before) / count, up, down, text)


def commonest_change(old: pd.Series, new: pd.Series, form: Callable[[Any], str]) -> tuple[str, int]:
    """The change that most rows have, as text, and how many have it."""
    changes = (f"{form(a)} → {form(b)}" for a, b in zip(old.array, new.array, strict=True))
    counts = pd.Series(list(changes)).value_counts()
    return str(counts.index[0]), int(counts.iloc[0])


def _signed(value: float) -> str:
    text = wording.rounded(abs(value))
    return f"+{text}" if value > 0 else f"−{text}" if value < 0 else text


def comparison_table(
    results: Mapping[str, "Explanation"], common: bool = False, seconds: Mapping[str, float] | None = None
) -> pd.DataFrame:
    """What several methods found for the same rows: one row a method, by its name.

    Rows that had the wanted decision from the start were not searched, and count nowhere.

    Args:
        results: What each method found, one row a person.
        common: Take the means over the rows for which every method found a counterfactual, the only fair way to compare
            costs; else over those for which the method itself did. A method that found none at all does not count.
        seconds: How long each method took; by default as the explanations say.

    Returns:
        `n`, how many rows the means are over; `flip ratio`, the share of the searched rows for which the method found a
        counterfactual; `local`, the same without rows that needed the fallback; `gaps`, the share whose counterfactual
        is reached only across a gap in the data; the means `MEANS`; and `seconds`, for all rows.
    """
    first, *others = results
    for name in others:
        if not results[name].factuals.index.equals(results[first].factuals.index):
            there = f"{len(results[name])} rows, and {first!r} {len(results[first])}"
            raise InputError(
                f"the results of {name!r} and {first!r} are not of the same rows: {name!r} has {there}; explain the "
                "same table by both"
            )
    found = {name: result.status["status"].isin(FOUND).to_numpy() for name, result in results.items()}
    shared = np.logical_and.reduce([each for each in found.values() if each.any()] or list(found.values()))
    over = {name: each & shared if common else each for name, each in found.items()}
    means = (*MEANS, *lasting(*results.values()))
    rows = [_compare(result, found[name], over[name], means) for name, result in results.items()]
    took = seconds or {name: float(result.provenance.get("seconds", np.nan)) for name, result in results.items()}
    table = pd.DataFrame(rows, index=pd.Index(list(results), name="method"))
    return table.assign(seconds=[took[name] for name in results])


def both_tables(
    results: Mapping[str, "Explanation"], seconds: Mapping[str, float] | None = None
) -> dict[str, pd.DataFrame]:
    """The table over each method's own rows and, without what would be said twice, over common ones, by their titles.

    One method alone has no common rows; methods that found none are left out of the second table.
    """
    own = comparison_table(results, seconds=seconds)
    found = own.index[own["n"] > 0]
    if len(found) < 2:
        return {OWN: own}
    common = comparison_table({name: results[name] for name in found}, common=True, seconds=seconds)
    return {OWN: own, COMMON: common.drop(columns=list(_OF_THE_SEARCH))}


def _compare(
    result: "Explanation", found: NDArray[np.bool_], over: NDArray[np.bool_], measures: Sequence[str]
) -> dict[str, Any]:
    """One row of a table of methods, with means over some rows."""
    status, searched = result.status["status"], int(result.status["status"].isin(_SEARCHED).sum())
    local = found & ~result.status["fallback"].to_numpy(bool)
    counts = {"flip ratio": found, "local": local, "gaps": (status == StatusCode.CROSSES_GAP).to_numpy()}
    means = result.measures().reindex(columns=list(measures)).astype(float)[over].mean()
    return {
        "n": int(over.sum()),
        **{name: float(rows.sum() / searched) if searched else np.nan for name, rows in counts.items()},
        **{str(name): float(mean) for name, mean in means.items()},
    }
