"""How sure the measures of a group are: a 95 % interval for each share and each mean.

Shares have Wilson's interval (1927), which is right at 0 and 1, too, where nothing that is resampled varies:

    (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n),  z = 1.96.

Means have percentiles of the bootstrap: the mean over people who are drawn again with replacement.
"""

import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.data.status import FOUND, StatusCode
from counterpath.explanation.audit import LEVEL, RESAMPLES, resampled_means
from counterpath.explanation.result import Explanation

_Z = 1.959964  # of the normal distribution between −z and z lie 95 %
FEWEST = 2
"""People of whom a mean has an interval: one alone varies by nothing."""
MEANS = ("l0", "l1", "ld_sq", "steps")
"""The measures that are means over those who were found."""


def share_interval(count: int, total: int) -> tuple[float, float]:
    """Wilson's interval of a share; NaN of nothing."""
    if not total:
        return math.nan, math.nan
    share, z = count / total, _Z**2 / total
    middle, reach = share + z / 2, _Z * math.sqrt(share * (1 - share) / total + z / (4 * total))
    low, high = (middle - reach) / (1 + z), (middle + reach) / (1 + z)
    return 0.0 if count == 0 else low, 1.0 if count == total else high


def mean_intervals(values: pd.DataFrame, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """For each column `low` and `high`: the interval of its mean; NaN where there are too few values."""
    plain: NDArray[np.float64] = values.to_numpy(float)
    few = (~np.isnan(plain)).sum(0) < FEWEST
    ends = np.full((2, plain.shape[1]), np.nan)
    if (~few).any():
        drawn = resampled_means(plain[:, ~few], resamples, np.random.default_rng(seed))
        ends[:, ~few] = np.nanquantile(drawn, [LEVEL / 2, 1 - LEVEL / 2], axis=0)
    return pd.DataFrame({"low": ends[0], "high": ends[1]}, index=values.columns)


def group_intervals(result: Explanation, keys: pd.Series) -> pd.DataFrame:
    """The interval of every measure of a summary, by group: columns (measure, "low") and (measure, "high").

    Args:
        result: An explanation with one plan for each person.
        keys: The group of each row, by position.
    """
    status = result.status["status"].reset_index(drop=True)
    found, gaps = status.isin(FOUND), status.isin([each for each in FOUND if each is not StatusCode.FOUND])
    searched = status.isin([code for code in StatusCode if code.searched])
    measures = result.measures().reset_index(drop=True)
    known = [name for name in MEANS if name in measures]
    rows = {}
    for group, members in pd.Series(range(len(keys))).groupby(keys.reset_index(drop=True), observed=True):
        at = members.to_numpy()
        total = int(searched.iloc[at].sum())
        ends = {
            name: share_interval(int((mask & searched).iloc[at].sum()), total)
            for name, mask in (("found", found), ("gaps", gaps))
        }
        means = mean_intervals(measures.iloc[at].loc[found.iloc[at].to_numpy(), known].astype(float))
        ends |= {str(name): (line["low"], line["high"]) for name, line in means.iterrows()}
        rows[group] = {
            (name, end): pair[side] for name, pair in ends.items() for side, end in enumerate(("low", "high"))
        }
    return pd.DataFrame.from_dict(rows, orient="index")
