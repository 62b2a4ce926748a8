"""The part of an explanation that is told in words: changes, sentences, milestones, and a summary of all rows."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from counterpath.explanation import groups, telling, wording
from counterpath.explanation.columns import BY_ROW
from counterpath.explanation.keeping import MILESTONES
from counterpath.explanation.milestones import MOST, list_milestones, list_steps
from counterpath.explanation.person import Person, gather
from counterpath.explanation.tables import Tables


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Told(Tables):
    """The part of an explanation that knows of words, and not of figures and files.

    See `Explanation` for the attributes.
    """

    @cached_property
    def changes(self) -> pd.DataFrame:
        """Only what changed: one row a changed feature, under the label of its row.

        Columns: `feature`; `from` and `to` in original units; `change`, their difference, or "" where there is none.
        """
        return telling.list_changes(self._frames, self.schema.names, self._amounts)

    @cached_property
    def sentences(self) -> pd.Series:
        """For each row, what would have to change, in plain language."""
        texts = [row.sentence for row in self._tell(range(len(self)))]
        return pd.Series(texts, index=self.factuals.index, name="sentence", dtype=str)

    def milestones(self, i: Any, *, most: int = MOST, plan: int | None = None) -> pd.DataFrame:
        """The path of one row as a few steps that a person can follow.

        Every milestone is a point of the path, so the model was asked about it and it respects all constraints. They
        are chosen so that few features change from one to the next, and none goes back and forth: what can be done
        first and what after it reads as separate steps, and what moves evenly together is one step, however long.
        `path` has every point, the detours too. See `explanation.milestones` for the formula.

        Args:
            i: The row, as in `path`.
            most: How many milestones there may be, from 2: the first is the row as asked, the last one the row as
                returned. There are fewer where a further one would make no step simpler. If only milestones were
                kept, there are no more than these.
            plan: Which plan of the person, as in `path`.

        Returns:
            Some rows of `path`, with its columns, and `changes`: what is different from the milestone before, for
            instance "education: school → college; hours: 40 → 45", and "" in the first row. A feature of that name has
            `feature_` before it.
        """
        return list_milestones(self.path(i, plan), self.schema, self._amounts, most, chosen=self._chosen)

    def summary(self, by: groups.By | None = None) -> pd.DataFrame:
        """Who gets a counterfactual, at what cost, and through which features.

        Args:
            by: None for one row over all; or one or more columns of the factuals, or a series with one value a row, for
                one row a group. Numbers with more than 8 values are cut at their quartiles. Where there are several
                plans, a series may have one value a person, and "plan" groups by the number of the plan.

        Returns:
            For each group: `n` rows; `explained`, those for which a counterfactual was looked for; `found`, the share
            of these for which there is one; `gaps`, the share of these for which it is reached only across a gap in
            the data, so that found − gaps is the share without; over the found ones the mean `l0`, `l1`, `l2_sq`,
            `ld_sq`, `copy`, `violation` and number of `steps`; and `changes most`, the three features that change most
            often, with their share.

            Where there are several plans, `n`, `explained`, `found` and `gaps` count people, each once: one plan is
            enough to be found, and one that crosses no gap not to be among the gaps. `plans` is how many an explained
            person has, on average. All else is over all found plans.
        """
        changed = self.changed[list(self.schema.names)]
        rows = groups.cases(self.status, self._measures, changed, self.paths, self.plans)
        return groups.summarise_all(rows) if by is None else groups.summarise_groups(rows, self.factuals, by)

    @cached_property
    def _amounts(self) -> frozenset[str]:
        return telling.amounts(self.schema, self.factuals)

    @cached_property
    def _ranges(self) -> dict[str, tuple[float, float]]:
        return telling.ranges(self.factuals, self.counterfactuals, self._amounts)

    @property
    def _chosen(self) -> bool:
        """Whether all points of paths are milestones."""
        return self.keep == MILESTONES

    @property
    def _headline(self) -> str:
        return telling.headline(self.status["status"].tolist(), self.request, self._person.tolist())

    @property
    def _frames(self) -> dict[str, pd.DataFrame]:
        return {name: getattr(self, name) for name in BY_ROW}

    def _tell(self, positions: Iterable[int]) -> list[wording.Row]:
        places = list(positions)
        frames = {name: frame.iloc[places] for name, frame in self._frames.items()}
        return telling.tell(frames, self.schema.names, self._amounts, self.request)

    def _people(self, most: int, steps: bool = False) -> list[Person]:
        """The first people, at least one, whole: with all their plans, and the steps of each if they are to be told."""
        order = np.argsort(self._person, kind="stable")
        places = order[self._person[order] < max(most, 1)].tolist()
        rows = self._tell(places)
        if steps:
            rows = [replace(row, steps=self._told_steps(row, at)) for row, at in zip(rows, places, strict=True)]
        return gather(rows, self._person[places].tolist())

    def _told_steps(self, row: wording.Row, position: int) -> tuple[wording.Step, ...]:
        path = self._steps(position)
        if not row.status.found or not len(path):
            return ()
        return list_steps(path, self.schema, self._amounts, chosen=self._chosen)
