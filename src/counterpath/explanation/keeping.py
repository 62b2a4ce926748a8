"""How much of every path an explanation keeps."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from counterpath.data.schema import Schema
from counterpath.errors import choose
from counterpath.explanation.columns import path_features
from counterpath.explanation.milestones import choose_each

KEEP = "keep"
"""In a request, how much of every path is kept."""
ALL, MILESTONES, END = "all", "milestones", "end"
KEEPS = {
    ALL: "every point",
    MILESTONES: "the points that tell it in a few steps",
    END: "nothing but its end, which is the counterfactual",
}
"""What can be kept of a path."""


def check_keep(keep: Any) -> str:
    """What to keep of paths, if there is such a thing."""
    choose("way to keep paths", str(keep), KEEPS)
    return str(keep)


def keep_of(request: Mapping[str, Any]) -> str:
    """How much of every path is kept in the answer to a request; those from before it could be said keep all."""
    return check_keep(request.get(KEEP, ALL))


def only_milestones(paths: pd.DataFrame, schema: Schema, numbers: Collection[str]) -> pd.DataFrame:
    """The milestones of every path, with all that is known of them: which step of the whole path, its length so far.

    Args:
        paths: Every point, path after path, with the columns of `Explanation.paths`.
        schema: What the features are.
        numbers: Those that are numbers.
    """
    places = choose_each(path_features(paths, schema.names), paths["row"].to_numpy(np.int64), schema, numbers)
    return paths.iloc[places].reset_index(drop=True)
