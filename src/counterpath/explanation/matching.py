"""Pairs of people from two groups who are alike in everything else."""

from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.data.schema import KINDS, Schema
from counterpath.data.times import to_days

Array: TypeAlias = NDArray[np.float64]

NEIGHBOURS = 10
"""Of each person in the group that may be their pair: the nearest may be taken by somebody who is nearer still."""
CALIPER = 0.75
"""Quantile of the distances between neighbours among the others: who is no farther away counts as alike."""
MOST = 20_000
"""People of either group among whom pairs are looked for: thousands of pairs say what there is to say."""
_ROUNDS = 10  # in which everybody without a pair asks the nearest who is free: hardly anybody is left after a few


def numbers_of(rows: pd.DataFrame, schema: Schema, *, scaled: bool = True) -> Array:
    """Features as numbers: in standard deviations, and a column of √½ for each category, so that another one is 1 away.

    Args:
        rows: The people.
        schema: What the features are; other columns are left out.
        scaled: Else numbers are as they are, and gaps and codes stay gaps.
    """
    known = {feature.name: feature for feature in schema}
    columns: list[Array] = []
    for name in rows.columns:
        feature = known.get(str(name))
        if feature is None:
            continue
        if feature.categories and feature.kind != "ordinal":
            codes, values = pd.factorize(rows[name].astype(object), use_na_sentinel=False)
            columns += [np.where(codes == number, np.sqrt(0.5), 0.0) for number in range(len(values))]
            continue
        columns.append(_number(rows[name], feature, scaled))
    return np.stack(columns, axis=1) if columns else np.zeros((len(rows), 0))


def _number(column: pd.Series, feature: "object", scaled: bool) -> Array:
    """One feature with an order as numbers."""
    kind, categories = feature.kind, list(feature.categories)  # type: ignore[attr-defined]
    if categories:
        order = {category: float(rank) for rank, category in enumerate(categories)}
        plain = column.map(order).to_numpy(float)
    elif KINDS[kind].times:
        plain = to_days(column, kind, feature.format)  # type: ignore[attr-defined]
    else:
        plain = column.where(feature.is_measured(column)).to_numpy(float, na_value=np.nan)  # type: ignore[attr-defined]
    if not scaled:
        return plain
    middle = float(np.nanmedian(plain)) if (~np.isnan(plain)).any() else 0.0
    filled = np.where(np.isnan(plain), middle, plain)
    spread = float(filled.std())
    return (filled - filled.mean()) / spread if spread > 0 else np.zeros_like(filled)


def match_pairs(
    numbers: Array, member: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of one from the group and one from the others who are alike, nobody twice.

    In every round those without a pair ask the nearest who is free, and who is asked by several takes the nearest of
    them. Alike is who is no farther away than three quarters of the others are from their own nearest neighbour.

    Args:
        numbers: The people, as of `numbers_of`, without what makes the group.
        member: Who is in the group.
        rng: Draws some of very many people.
    """
    from sklearn.neighbors import NearestNeighbors

    inside, outside = (
        rows[rng.permutation(len(rows))[:MOST]] for rows in (np.flatnonzero(member), np.flatnonzero(~member))
    )
    inside.sort()
    outside.sort()
    nobody = np.zeros(0, dtype=np.int64)
    if numbers.shape[1] == 0 or len(inside) == 0 or len(outside) < 2:
        return nobody, nobody
    count = min(NEIGHBOURS, len(outside))
    near = NearestNeighbors(n_neighbors=count).fit(numbers[outside])
    own = near.kneighbors(n_neighbors=1)[0][:, 0]
    reach = float(np.quantile(own, CALIPER)) + 1e-9  # who is equal is alike, too
    distance, index = near.kneighbors(numbers[inside])
    free = np.ones(len(outside), dtype=bool)
    pair = np.full(len(inside), -1)
    for _ in range(_ROUNDS):
        open_ = np.where(free[index] & (distance <= reach), distance, np.inf)
        asking = np.flatnonzero((pair < 0) & np.isfinite(open_.min(1)))
        if len(asking) == 0:
            break
        choice = open_[asking].argmin(1)
        asked, apart = index[asking, choice], open_[asking, choice]
        order = np.lexsort((asking, apart, asked))
        first = np.ones(len(order), dtype=bool)
        first[1:] = asked[order][1:] != asked[order][:-1]
        won = order[first]
        pair[asking[won]] = asked[won]
        free[asked[won]] = False
    paired = pair >= 0
    return inside[paired], outside[pair[paired]]
