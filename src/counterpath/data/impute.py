"""Missing values, filled in with the median or the most frequent value of the training rows.

Why not scikit-learn's SimpleImputer: it knows no bounds, no kinds and no order of categories, does not keep dtypes, and
the sum of two large middle values overflows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.data.schema import KINDS, Feature, Schema
from counterpath.data.tables import UNKNOWN, check_columns, described_dtype, from_numbers, to_numbers
from counterpath.utils.errors import InputError


@dataclass(frozen=True)
class Imputer:
    """Fills in missing values, and says where.

    Attributes:
        schema: The features.
        values: What a missing value of each becomes: the median of the training rows, within the bounds of the schema
            and whole where the kind is; for categories the most frequent one, of equally frequent ones the first.

    Example:
        >>> frame = pd.DataFrame({"age": [20.0, None, 60.0, 30.0]})
        >>> filled, imputed = Imputer.fit(frame, Schema((Feature("age", "continuous"),))).fill(frame)
        >>> filled["age"].tolist(), imputed.tolist()
        ([20.0, 30.0, 60.0, 30.0], [(), ('age',), (), ()])
    """

    schema: Schema
    values: Mapping[str, Any]

    @classmethod
    def fit(cls, frame: pd.DataFrame, schema: Schema) -> "Imputer":
        """Learn the values from the training rows.

        Raises:
            InputError: A column is missing or too many, has only missing values, or has one that is not of its kind.
        """
        check_columns(frame, schema)
        return cls(schema, {feature.name: _typical_value(frame[feature.name], feature) for feature in schema})

    def fill(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, "pd.Series[Any]"]:
        """The table without missing values, and for each row the columns that were filled in, in the schema's order.

        Dtypes stay as they are, but where integers with gaps get a fraction: they become floats. All else is left for
        `Encoder.encode` to judge, infinities too.
        """
        check_columns(frame, self.schema)
        missing = frame[list(self.schema.names)].isna()
        filled = {
            name: _filled(frame[name], missing[name].to_numpy(), self.values[name], self.schema[name])
            if missing[name].any()
            else frame[name]
            for name in frame.columns
        }
        names = np.array(self.schema.names, dtype=object)
        imputed = [tuple(names[row]) for row in missing.to_numpy()]
        return pd.DataFrame(filled, index=frame.index), pd.Series(imputed, index=frame.index, dtype=object)

    def to_json(self) -> dict[str, Any]:
        """A value that `json.dumps` takes and `from_json` turns back into an equal imputer."""
        return {"schema": self.schema.to_json(), "values": dict(self.values)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Imputer":
        """Build an imputer from the value of `to_json`."""
        if not {"schema", "values"} <= value.keys():
            raise InputError("this is not an imputer in JSON: it needs schema and values")
        schema = Schema.from_json(value["schema"])
        lacking = [name for name in schema.names if name not in value["values"]]
        if lacking:
            raise InputError(f"an imputer in JSON lacks the values of: {', '.join(lacking)}")
        return cls(schema, dict(value["values"]))


def _typical_value(column: pd.Series, feature: Feature) -> Any:
    numbers = to_numbers(column.dropna(), feature)
    if feature.categories:
        numbers = numbers[numbers != UNKNOWN]
    if numbers.size == 0:
        raise InputError(f"column {feature.name!r} has only missing or unknown values; drop it, or fill it in")
    if feature.categories:
        return feature.categories[int(np.bincount(numbers.astype(np.intp)).argmax())]
    lower = -np.inf if feature.lower is None else feature.lower
    upper = np.inf if feature.upper is None else feature.upper
    median = float(np.clip(_median(numbers), lower, upper))
    by_day = KINDS[feature.kind].times and feature.step == 1
    return float(round(median)) if KINDS[feature.kind].whole or by_day else median


def _median(numbers: NDArray[np.float64]) -> float:
    """The middle value, or halfway between the two middle ones, which may be too large to be added up."""
    low, high = np.quantile(numbers, 0.5, method="lower"), np.quantile(numbers, 0.5, method="higher")
    return float(low / 2 + high / 2)


def _filled(column: pd.Series, missing: NDArray[np.bool_], value: Any, feature: Feature) -> pd.Series:
    filled = column.copy()
    if KINDS[feature.kind].times:
        value = from_numbers(np.array([value]), feature, described_dtype(column, feature), pd.RangeIndex(1)).iloc[0]
    if isinstance(filled.dtype, pd.CategoricalDtype) and value not in filled.cat.categories:
        filled = filled.cat.add_categories([value])
    if pd.api.types.is_integer_dtype(filled.dtype) and value != round(value):
        filled = filled.astype("float64")
    if pd.api.types.is_integer_dtype(filled.dtype):
        value = int(value)
    filled[missing] = value
    return filled
