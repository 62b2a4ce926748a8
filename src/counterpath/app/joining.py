"""Rows of several questions as one table, and the answer to it as one answer each."""

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import pandas as pd

from counterpath.app.asking import Asked
from counterpath.data.columns import alike
from counterpath.data.constraints import Constraints
from counterpath.data.dtypes import restore
from counterpath.data.frames import to_pandas
from counterpath.data.schema import Number
from counterpath.explainer import Explainer
from counterpath.explanation import Explanation, plan_index
from counterpath.explanation.columns import PATH_BACK, PATH_FRONT, beside
from counterpath.preparing import prepared


def checked(explainer: Explainer, rows: pd.DataFrame, asked: Asked) -> pd.DataFrame:
    """Rows in the columns and, where that changes no value, in the dtypes of the training table.

    So rows of different questions make one table, and nobody's values are told otherwise because of the others'.

    Raises:
        InputError: The rows, or what is asked about them, cannot be used: said before they wait with others.
    """
    encoder = explainer.encoder_
    filled, _ = prepared(rows, explainer.schema_, explainer.target_, explainer.imputer_)
    constraints = Constraints.of(
        explainer.schema_,
        lock=asked.lock,
        directions=asked.directions,
        ranges=asked.ranges,
        max_changes=asked.max_changes,
        difficulty=asked.difficulty,
    )
    known = filled[encoder.known(filled).to_numpy()]
    constraints.bounds(encoder, known, encoder.encode(known))
    return encoder.arranged(to_pandas(rows))


def checked_rows(explainer: Explainer, rows: pd.DataFrame) -> pd.DataFrame:
    """The same for rows about which nothing is asked but what the model predicts: it must know all their categories."""
    filled, _ = prepared(rows, explainer.schema_, explainer.target_, explainer.imputer_)
    explainer.encoder_.encode(filled)
    return explainer.encoder_.arranged(to_pandas(rows))


def alike_key(rows: pd.DataFrame) -> Hashable:
    """Equal for tables that can be one table without a change of dtypes."""
    return tuple(rows.dtypes)


def part_of(
    whole: Explanation,
    first: int,
    last: int,
    *,
    index: pd.Index,
    explainer: Explainer,
    seconds: Number | None,
) -> Explanation:
    """The explanation of some of the people, exactly as if they had been asked about alone.

    Args:
        whole: The explanation of more people, numbered from 0.
        first: The first person.
        last: Before whom to stop.
        index: Their own labels.
        explainer: Whose explanation it is.
        seconds: What their question said about time.
    """
    positions = list(range(first * whole.plans, last * whole.plans))
    part = whole._take(positions, plan_index(index, whole.plans), whole.request | {"seconds": seconds})
    kinds = {name: restore(kind) for name, kind in explainer.encoder_.dtypes.items()}
    in_paths = beside(whole.schema.names, PATH_FRONT + PATH_BACK)
    return replace(
        part,
        counterfactuals=part.counterfactuals.assign(**_narrowed(part.counterfactuals, kinds)),
        paths=part.paths.assign(**_narrowed(part.paths, {in_paths[name]: kind for name, kind in kinds.items()})),
        compute_measures=whole.measures().iloc[positions],
    )


def _narrowed(frame: pd.DataFrame, kinds: dict[str, Any]) -> dict[str, pd.Series]:
    """Columns that hold somebody else's fractions no longer."""
    columns = {name: alike(frame[name], kind) for name, kind in kinds.items() if frame[name].dtype != kind}
    return {name: column for name, column in columns.items() if column.dtype != frame[name].dtype}
