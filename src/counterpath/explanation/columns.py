"""Tables in which features stand beside columns of our own, and what happens if two have one name."""

from collections.abc import Iterable, Sequence

import pandas as pd

STATUS = ("status", "reason", "imputed", "binding")
OUTCOME = ("class_before", "probability_before", "class_after", "probability_after")
PATH_FRONT = ("row", "step")
PATH_BACK = ("probability", "uncertainty", "length", "map_x", "map_y")
LANDSCAPE = ("map_x", "map_y", "predicted")
TOLD = ("status", "reason", "binding")
FILE = (*TOLD, *OUTCOME)
BY_ROW = ("factuals", "counterfactuals", "status", "outcome", "changed")
FRAMES = (*BY_ROW, "paths", "landscape")

CHANGES = "changes"
"""What milestones have beside the columns of a path."""

PREFIX = "feature_"


def beside(features: Iterable[str], reserved: Sequence[str]) -> dict[str, str]:
    """The column of each feature in a table that also has the `reserved` columns.

    A feature keeps its name, unless it is reserved: then `feature_` is put before it, as often as it takes to be unlike
    every other feature.

    Example:
        >>> beside(("age", "status"), reserved=("status",))
        {'age': 'age', 'status': 'feature_status'}
    """
    names = tuple(features)
    columns = {}
    for name in names:
        column = name
        while column in reserved or (column != name and column in names):
            column = PREFIX + column
        columns[name] = column
    return columns


def path_features(path: pd.DataFrame, features: Iterable[str]) -> pd.DataFrame:
    """The features of a path under their own names."""
    columns = beside(features, PATH_FRONT + PATH_BACK)
    return path[list(columns.values())].set_axis(list(columns), axis=1)


def milestone_columns(features: Iterable[str]) -> dict[str, str]:
    """For each feature's column of a path its column among milestones, where one more name is taken."""
    names = tuple(features)
    old, new = beside(names, PATH_FRONT + PATH_BACK), beside(names, (*PATH_FRONT, *PATH_BACK, CHANGES))
    return {old[name]: new[name] for name in names}


def path_columns(features: Iterable[str]) -> list[str]:
    """The columns of `Explanation.paths`, in order: see `beside` for a feature that has the name of one of ours."""
    return [*PATH_FRONT, *beside(features, PATH_FRONT + PATH_BACK).values(), *PATH_BACK]
