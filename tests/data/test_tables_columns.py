from typing import Any

import numpy as np
import pandas as pd
import pytest

from counterpath.data.schema import Feature
from counterpath.data.tables import UNKNOWN, to_numbers
from counterpath.utils.errors import InputError

TEXTS = Feature("x", "categorical", categories=("b", "a", "1"))
NUMBERS = Feature("x", "categorical", categories=(3, 1, 2.5))
TRUTHS = Feature("x", "boolean")
COLUMNS: list[tuple[pd.Series, Feature, list[int]]] = [
    (pd.Series(["a", "b", "a", "c", "1"], dtype=object), TEXTS, [1, 0, 1, -1, 2]),
    (pd.Series(["a", "b", "a", "c", "1"], dtype="str"), TEXTS, [1, 0, 1, -1, 2]),
    (pd.Series(["a", "b", "a", "c"], dtype="string[pyarrow]"), TEXTS, [1, 0, 1, -1]),
    (pd.Series(pd.Categorical(["a", "b", "a"], categories=["z", "a", "b"])), TEXTS, [1, 0, 1]),
    (pd.Series([1, "1", True, 1.0], dtype=object), TEXTS, [-1, 2, -1, -1]),
    (pd.Series([1, 3, 2, 1]), NUMBERS, [1, 0, -1, 1]),
    (pd.Series([1.0, 2.5, -0.0]), NUMBERS, [1, 2, -1]),
    (pd.Series([True, 1, "1", 3.0, np.int64(3), (1, 2)], dtype=object), NUMBERS, [1, 1, -1, 0, 0, -1]),
    (pd.Series([True, False, True]), TRUTHS, [1, 0, 1]),
    (pd.Series([True, 0, 1.0, "True"], dtype=object), TRUTHS, [1, 0, 1, -1]),
    (pd.Series([False, True], dtype="boolean"), TRUTHS, [0, 1]),
    (pd.Series(["a", ["a"], {"b": 1}, "b"], dtype=object), TEXTS, [1, -1, -1, 0]),
    (pd.Series([], dtype=object), TEXTS, []),
]


@pytest.mark.parametrize(("column", "feature", "places"), COLUMNS)
def test_a_value_is_the_category_that_it_equals(column: pd.Series, feature: Feature, places: list[int]) -> None:
    numbers = to_numbers(column.rename("x"), feature)
    assert numbers.dtype == np.float64
    assert numbers.tolist() == places
    one_by_one = [dict(zip(feature.categories, range(9), strict=False)).get(_key(value), UNKNOWN) for value in column]
    assert numbers.tolist() == one_by_one


def _key(value: Any) -> Any:
    """The value, or one that is no category where it cannot be looked up."""
    return object() if isinstance(value, list | dict) else value


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_a_missing_category_is_an_error_that_names_the_row(missing: Any) -> None:
    with pytest.raises(InputError, match=r"column 'x', row 1: .* is a missing value"):
        to_numbers(pd.Series(["a", missing], dtype=object, name="x"), TEXTS)
