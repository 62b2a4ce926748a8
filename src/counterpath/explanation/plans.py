"""Several plans for each person: how the rows of a table are numbered, and which of them are one person's.

A table with plans has one row for each person and plan. Its index has the levels of the people's own index and, as the
last one, the number of the plan: 1 for the cheapest.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_integer_dtype

from counterpath.errors import InputError

PLAN = "plan"
"""The name of the last level of the index; in a request, the one plan that an explanation still has of several."""
PLANS = "plans"
"""In a request, how many plans were asked for."""


def plan_index(index: pd.Index, plans: int) -> pd.Index:
    """The index of a table with so many plans for each row of another one; for one plan, that one's own.

    Example:
        >>> plan_index(pd.Index(["ann", "bob"]), 2).tolist()
        [('ann', 1), ('ann', 2), ('bob', 1), ('bob', 2)]
    """
    if plans == 1:
        return index
    repeated = index.repeat(plans)
    levels = [repeated.get_level_values(level) for level in range(index.nlevels)]
    numbers = np.tile(np.arange(1, plans + 1), len(index))
    return pd.MultiIndex.from_arrays([*levels, numbers], names=[*index.names, PLAN])


def own_labels(index: pd.Index, plans: int) -> pd.Index:
    """The people's own labels, without the number of the plan."""
    return index.droplevel(-1) if plans > 1 and isinstance(index, pd.MultiIndex) else index


def plans_held(request: Mapping[str, Any]) -> int:
    """How many plans everybody has in the explanation of a request: as many as were asked for, unless one was taken."""
    return 1 if request.get(PLAN) is not None else int(request.get(PLANS, 1))


def plan_numbers(index: pd.Index, plans: int) -> NDArray[np.int64]:
    """The number of each row's plan."""
    return index.get_level_values(-1).to_numpy(np.int64) if plans > 1 else np.ones(len(index), np.int64)


def people_numbers(index: pd.Index, plans: int) -> NDArray[np.int64]:
    """Which person each row belongs to, numbered from 0 in the order in which they first appear.

    Where no label is there twice, a person is a label. Else people may have equal labels, and another one begins
    wherever the label changes or the number of the plan does not rise.
    """
    if plans == 1:
        return np.arange(len(index), dtype=np.int64)
    labels, _ = own_labels(index, plans).factorize(use_na_sentinel=False)
    if index.is_unique:
        return labels.astype(np.int64)
    begins = (np.diff(labels) != 0) | (np.diff(plan_numbers(index, plans)) <= 0)
    return np.concatenate([np.zeros(min(len(index), 1), np.int64), np.cumsum(begins)])


def check_plans(index: pd.Index, request: Mapping[str, Any]) -> None:
    """Raise an error unless the index of the tables has the plans that the request says there are."""
    asked, taken = request.get(PLANS, 1), request.get(PLAN)
    if type(asked) is not int or asked < 1:
        raise InputError(f"the request has {PLANS}={asked!r}; expected a whole number from 1")
    if taken is not None and (type(taken) is not int or not 1 <= taken <= asked):
        raise InputError(f"the request has {PLAN}={taken!r} of {asked}; expected a whole number from 1 to {asked}")
    if plans_held(request) == 1:
        return
    if not isinstance(index, pd.MultiIndex) or index.names[-1] != PLAN or not is_integer_dtype(index.levels[-1].dtype):
        raise InputError(
            f"the request has {PLANS}={asked}, but the index has no last level {PLAN!r} of whole numbers; expected one "
            f"row for each person and plan, as plan_index(index, {asked}) numbers them"
        )
    numbers = plan_numbers(index, asked)
    wrong = numbers[(numbers < 1) | (numbers > asked)]
    if len(wrong):
        raise InputError(f"the index has plan {wrong[0]} of {asked}; expected plans from 1 to {asked}")


def check_number(number: int, request: Mapping[str, Any]) -> None:
    """Raise an error unless the explanation of a request has plans of this number."""
    held = plans_held(request)
    there = list(range(1, held + 1)) if held > 1 else [request.get(PLAN) or 1]
    if isinstance(number, bool) or number not in there:
        raise InputError(
            f"the explanation has no plan {number!r}; its plans are: {', '.join(map(str, there))} (to look for more, "
            f"call explain(…, {PLANS}={max(there) + 1}))"
        )
