"""What an explanation holds: tables that fit together, and rows that can be looked up and taken out of all of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.data.schema import Schema
from counterpath.errors import InputError
from counterpath.explanation import labels
from counterpath.explanation.checks import check_tables, plain_request
from counterpath.explanation.columns import BY_ROW, FRAMES
from counterpath.explanation.keeping import keep_of
from counterpath.explanation.plans import (
    PLAN,
    check_number,
    check_plans,
    own_labels,
    people_numbers,
    plan_numbers,
    plans_held,
)
from counterpath.explanation.status import Status

T = TypeVar("T", bound="Tables")


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Tables:
    """The part of an explanation that knows of rows and plans, and not of words, figures and files.

    See `Explanation` for the attributes.
    """

    factuals: pd.DataFrame
    counterfactuals: pd.DataFrame
    status: pd.DataFrame
    outcome: pd.DataFrame
    changed: pd.DataFrame
    paths: pd.DataFrame
    schema: Schema
    request: dict[str, Any]
    landscape: pd.DataFrame
    note: str
    compute_measures: Callable[[], pd.DataFrame] | pd.DataFrame
    diagnostics: str = ""
    quality: Mapping[str, Any] = field(default_factory=dict)
    made: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_tables({name: getattr(self, name) for name in FRAMES}, self.schema.names)
        object.__setattr__(self, "request", plain_request(self.request))
        check_plans(self.factuals.index, self.request)
        keep_of(self.request)

    def __len__(self) -> int:
        return len(self.factuals)

    @property
    def plans(self) -> int:
        """How many rows each person has: one, or as many as plans were asked for, whether or not so many were found."""
        return plans_held(self.request)

    @property
    def keep(self) -> str:
        """How much there is of every path: "all" of it, its "milestones", or nothing but its "end"."""
        return keep_of(self.request)

    @property
    def valid(self) -> pd.Series:
        """For each row, whether the model decides as asked on the row as returned."""
        return self.status["status"].isin([kind for kind in Status if kind.valid]).rename("valid")

    def path(self, i: Any, plan: int | None = None) -> pd.DataFrame:
        """The path of one row: the first step is the row as asked, the last one exactly the row as returned.

        Args:
            i: The row's index label if the index has no label twice; else its position, from 0. Where there are several
                plans, the person's label or the pair (label, plan).
            plan: Which plan of the person, from 1; by default the first.

        Returns:
            One row a step: `step`, the features, `probability` of the wanted outcome, `uncertainty`, `length` so far,
            `map_x`, `map_y`. A feature that has one of these names has `feature_` before its own. If only milestones
            were kept, these steps; `step` and `length` are still those of the whole path.
        """
        position = self._position(i, plan)
        steps = self._steps(position)
        if len(steps):
            return steps
        row = f"{i!r}" if plan is None else f"{i!r}, plan {plan},"
        if self.status["status"].iloc[position] in (Status.UNKNOWN_CATEGORY, Status.NO_OTHER_PLAN):
            raise InputError(f"row {row} has no path: {self.status['reason'].iloc[position]}")
        raise InputError(f"the path of row {row} was not kept; call explain(…, keep='milestones'), or keep='all'")

    def measures(self) -> pd.DataFrame:
        """The measures of each row by its index label; computed once, when they are first asked for."""
        return self._measures.copy()

    def select(self: T, rows: Any) -> T:
        """The explanation of a few rows, by index label if no label is there twice, else by position.

        Where there are several plans, a label stands for all plans of the person, and the pair (label, plan) for one.
        """
        return self._take(self._positions(rows))

    def plan(self: T, number: int) -> T:
        """The explanation with only this plan of everybody, from 1, under their own labels.

        Its request says as `plan` which one it is, beside `plans`, how many were asked for.
        """
        check_number(number, self.request)
        if self.plans == 1:
            return self
        positions = np.flatnonzero(plan_numbers(self.factuals.index, self.plans) == number).tolist()
        own = own_labels(self.factuals.index[positions], self.plans)
        return self._take(positions, own, self.request | {PLAN: number})

    @cached_property
    def _measures(self) -> pd.DataFrame:
        given = self.compute_measures
        frame = given if isinstance(given, pd.DataFrame) else given()
        if len(frame) != len(self):
            raise InputError(f"compute_measures gave {len(frame)} rows for {len(self)} rows; expected one each")
        return frame.set_axis(self.factuals.index, axis=0)

    @cached_property
    def _person(self) -> NDArray[np.int64]:
        """For each row the number of its person, from 0."""
        return people_numbers(self.factuals.index, self.plans)

    @cached_property
    def _path_places(self) -> dict[int, NDArray[np.intp]]:
        return labels.path_places(self.paths)

    @property
    def _count(self) -> int:
        """How many people there are."""
        return int(self._person.max(initial=-1)) + 1

    def _steps(self, position: int) -> pd.DataFrame:
        return self.paths.iloc[self._path_places.get(position, [])].drop(columns="row").reset_index(drop=True)

    def _positions(self, rows: Any) -> list[int]:
        return labels.positions(self.factuals.index, rows, self.plans)

    def _position(self, row: Any, plan: int | None) -> int:
        if plan is not None:
            check_number(plan, self.request)
        return labels.position(self.factuals.index, row, plan, self.plans)

    def _take(self: T, positions: list[int], index: pd.Index | None = None, request: dict[str, Any] | None = None) -> T:
        """The rows at some positions, under another index and as the answer to another request if given."""
        tables = {name: getattr(self, name).iloc[positions] for name in BY_ROW}
        return replace(
            self,
            **tables if index is None else {name: table.set_axis(index) for name, table in tables.items()},
            paths=labels.take_paths(self.paths, self._path_places, positions),
            request=self.request if request is None else request,
            compute_measures=lambda: self._measures.iloc[positions],
        )
