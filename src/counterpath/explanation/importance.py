"""Importance from counterfactuals: how often, and how far, each feature changes over many answers.

With the answers j = 1 … m of the people i = 1 … n who have any, all plans of one person counting as much together as
one plan of another:

    often(f) = mean_i mean_j∈i  1[f changes in j]
    far(f)   = Σ_i mean_j∈i |Δf| / Σ_i mean_j∈i 1[f changes in j],   |Δf| in shares of the range of f, 1 for a category

Intervals are percentiles of a bootstrap that draws *people* with replacement (Efron and Tibshirani, 1993): plans of
one person are no independent observations. Where nobody, or everybody, changes a feature, there is nothing to vary, and
the open end is the exact binomial one, 1 − α^(1/n) or α^(1/n) with α = 2.5 %.

What it is: which features the answers use, under the constraints, costs and method that were asked for. What it is
not: an attribution of the model. A feature that is held has 0 however much the model relies on it; one that is cheap
to change has more than an equally influential one that is dear; two features that do the same share what one has.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.data.schema import Schema
from counterpath.data.status import FOUND
from counterpath.explanation.tables import differences
from counterpath.utils.errors import InputError

if TYPE_CHECKING:
    from counterpath.explanation.result import Explanation

RESAMPLES = 1000
"""How often people are drawn: the ends of a 95 % interval then rest on 25 samples each."""
LEVEL = 0.95
"""Of the intervals, as in audits."""
COLUMNS = ("often", "often_low", "often_high", "far", "far_low", "far_high", "up", "down", "held")
_BLOCK = 1 << 24  # weights of people drawn at once: 128 MB


def feature_importance(result: "Explanation", *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """How often and how far features change: see `Explanation.importance`."""
    if isinstance(resamples, bool) or not isinstance(resamples, int) or resamples < 1:
        raise InputError(f"resamples is {resamples!r}; expected how often people are drawn, a whole number from 1")
    found = result.status["status"].isin(FOUND).to_numpy()
    names = list(result.schema.names)
    old, new, changed = (frame.loc[found, names] for frame in (result.factuals, result.counterfactuals, result.changed))
    moved = changed.to_numpy(bool)
    signed, sizes = _amounts(result, old, new, moved)
    people, person = np.unique(result._person[found], return_inverse=True)
    each = np.stack([moved.astype(float), sizes, signed > 0, signed < 0])  # (4, answers, features)
    means = _by_person(each, person, len(people))
    table = _table(means, resamples, np.random.default_rng(seed))
    held = held_features(result.schema, result.request)
    table = table.assign(held=[name in held for name in names]).set_axis(pd.Index(names, name="feature"), axis=0)
    return table.sort_values(["often", "far"], ascending=False, kind="stable", na_position="last")


def held_features(schema: Schema, request: Mapping[str, Any]) -> frozenset[str]:
    """The features that no answer to a request may change of its own accord."""
    free = set(request.get("unlock", ()))
    held = {feature.name for feature in schema if feature.immutable}
    held |= {feature.name for feature in schema if not feature.actionable and feature.name not in free}
    return frozenset(held | set(request.get("lock", ())))


def _amounts(
    result: "Explanation", old: pd.DataFrame, new: pd.DataFrame, moved: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """By answer and feature the signed change of what is a number, and how far it is, a whole range for what is not."""
    signed, sizes = np.zeros(moved.shape), moved.astype(float)
    for column, name in enumerate(old.columns):
        if name not in result._ranges:
            continue
        low, high = result._ranges[name]
        difference = differences(result.schema[name], old[name], new[name])
        number = moved[:, column] & np.isfinite(difference)  # the rest becomes, or was, a code or a gap
        signed[number, column] = difference[number]
        sizes[number, column] = np.abs(difference[number]) / ((high - low) or 1.0)
    return signed, sizes


def _by_person(each: NDArray[np.float64], person: NDArray[np.intp], count: int) -> NDArray[np.float64]:
    """The mean of some values of answers over the plans of every person."""
    sums = np.zeros((each.shape[0], count, each.shape[2]))
    for values, total in zip(each, sums, strict=True):
        np.add.at(total, person, values)
    plans = np.bincount(person, minlength=count).astype(float)
    means: NDArray[np.float64] = sums / plans[:, None]
    return means


def _table(means: NDArray[np.float64], resamples: int, rng: np.random.Generator) -> pd.DataFrame:
    """The columns of numbers, with intervals over people who are drawn with replacement."""
    count, width = means.shape[1:]
    if not count:
        return pd.DataFrame(np.nan, index=range(width), columns=list(COLUMNS[:-1]))
    often, total, up, down = means.mean(1)
    often_drawn, total_drawn = _draw(means[:2], resamples, rng)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(often_drawn, (tail, 1 - tail), axis=0)
    exact = 1 - tail ** (1 / count)
    low, high = np.where(often == 1, 1 - exact, low), np.where(often == 0, exact, high)
    far_low, far_high = _quantiles(_ratio(total_drawn, often_drawn), tail)
    columns = (often, low, high, _ratio(total, often), far_low, far_high, up, down)
    return pd.DataFrame(dict(zip(COLUMNS, columns, strict=False)))


def _draw(values: NDArray[np.float64], resamples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Means over people who are drawn with replacement, (values, resamples, features)."""
    count = values.shape[1]
    block = max(1, _BLOCK // count)
    drawn = []
    for start in range(0, resamples, block):
        weights = rng.multinomial(count, np.full(count, 1 / count), size=min(block, resamples - start)) / count
        drawn.append(np.einsum("rp,vpf->vrf", weights, values, optimize=True))
    return np.concatenate(drawn, axis=1)


def _ratio(total: NDArray[np.float64], often: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far per change; NaN where nothing changes."""
    found: NDArray[np.float64] = np.divide(total, often, out=np.full_like(total, np.nan), where=often > 0)
    return found


def _quantiles(values: NDArray[np.float64], tail: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both ends of an interval of each column, over the samples in which there is a value."""
    ends = np.full((2, values.shape[1]), np.nan)
    for column, sample in enumerate(values.T):
        known = sample[np.isfinite(sample)]
        if len(known):
            ends[:, column] = np.quantile(known, (tail, 1 - tail))
    return ends[0], ends[1]
