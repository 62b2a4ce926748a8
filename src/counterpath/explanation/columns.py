"""Tables in which features stand beside columns of our own, and what happens if two have one name."""

from collections.abc import Iterable, Sequence

STATUS = ("status", "reason", "imputed", "binding")
OUTCOME = ("class_before", "probability_before", "class_after", "probability_after")
PATH_FRONT = ("row", "step")
PATH_BACK = ("probability", "uncertainty", "length", "map_x", "map_y")
LANDSCAPE = ("map_x", "map_y", "predicted")
TOLD = ("status", "reason", "binding")
FILE = (*TOLD, *OUTCOME)
BY_ROW = ("factuals", "counterfactuals", "status", "outcome", "changed")
FRAMES = (*BY_ROW, "paths", "landscape")

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


def path_columns(features: Iterable[str]) -> list[str]:
    """The columns of `Explanation.paths`, in order: see `beside` for a feature that has the name of one of ours."""
    return [*PATH_FRONT, *beside(features, PATH_FRONT + PATH_BACK).values(), *PATH_BACK]
