"""The answer to a request for counterfactuals."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from counterpath.data.schema import Schema
from counterpath.errors import InputError
from counterpath.explanation import figures, groups, labels, page, storage, telling, wording
from counterpath.explanation.columns import BY_ROW, FRAMES, PATH_BACK, path_features
from counterpath.explanation.keeping import MILESTONES
from counterpath.explanation.milestones import MOST, choose, list_milestones, list_steps
from counterpath.explanation.person import Person, gather
from counterpath.explanation.status import FOUND, Status
from counterpath.explanation.tables import Tables
from counterpath.files import write_text

_ROWS_IN_A_TERMINAL = 10
_ROWS_IN_A_NOTEBOOK = 20
_PATHS_ON_A_PAGE = 3


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Explanation(Tables):
    """Counterfactuals for some rows, how they were reached, and what they cost.

    If several plans were asked for, each table has one row for each person and plan: a person's rows are together, the
    cheapest plan first, and the index has the number of the plan as its last level, `plan`. A person for whom there are
    fewer plans has the status `NO_OTHER_PLAN` in the rows that are left over.

    Attributes:
        factuals: The rows as asked: original columns, dtypes and index.
        counterfactuals: The rows as returned, in the same shape.
        status: For each row `status` (a value of `Status`), `reason` (a sentence), `imputed` (the columns that were
            filled in, separated by commas) and `binding` (which constraints stand in the way of a counterfactual; empty
            where there is one, or nothing is known).
        outcome: For each row `class_before`, `probability_before`, `class_after` and `probability_after`: what the real
            model predicts for the row as asked and as returned, and how probable it finds the *wanted* outcome. Nothing
            is predicted for a row with an unknown category.
        changed: For each row and feature, whether it changed.
        paths: Every step of every path: `row` (position in the tables above), `step`, the features, `probability` (of
            the wanted outcome), `uncertainty`, `length` so far, `map_x` and `map_y`; its columns are `path_columns`.
            Only those steps that are milestones, or none, if no more was to be kept: see `keep`.
        schema: What the features are.
        request: What was asked for: `method`, `target_class` (`"other"` for any but the present one), `confidence`,
            `plans` if there are several, `keep` if not all points of paths were kept, and whatever else, all of it
            fit for JSON.
        landscape: The background of the map: `map_x`, `map_y`, `predicted` (a class) and, if known, `volume`.
        note: What the map shows of the latent space.
        compute_measures: The measures, one row a row above, or a function that computes them when they are needed.
        diagnostics: What to know about the models behind it.
    """

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return page.notebook(self._headline, self._people(_ROWS_IN_A_NOTEBOOK // self.plans), self._count)

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

    def plot_changes(self, path: str | Path | None = None) -> Figure:
        """Draw how often each feature changes in the rows that were found, by how much, and in which direction.

        Args:
            path: Where to save it as well, as PNG and SVG.
        """
        found = self.status["status"].isin(FOUND).to_numpy()
        names = list(self.schema.names)
        old, new, changed = (frame[found][names] for frame in (self.factuals, self.counterfactuals, self.changed))
        unit = "row" if self.plans == 1 else "plan"
        return figures.draw_changes(old, new, changed, self._ranges, path=_maybe_path(path), unit=unit)

    def plot_path(self, i: Any, path: str | Path | None = None, *, plan: int | None = None) -> Figure:
        """Draw the path of one row: probability and uncertainty, and below them every feature that moves.

        Milestones between its ends are numbered as the steps that lead to them.

        Args:
            i: The row, as in `path`.
            path: Where to save it as well, as PNG and SVG.
            plan: Which plan of the person, as in `path`.
        """
        return self._draw_path(self.path(i, plan), self._position(i, plan), _maybe_path(path))

    def plot_map(self, rows: Iterable[Any] | None = None, path: str | Path | None = None) -> Figure:
        """Draw the latent map with the classes that the model predicts, and paths on it.

        Args:
            rows: The rows whose paths to draw, as in `select`; all by default.
            path: Where to save it as well, as PNG and SVG.
        """
        positions = range(len(self)) if rows is None else self._positions(rows)
        there = np.flatnonzero(self.status["status"] != Status.NO_OTHER_PLAN)  # a plan that is not leads nowhere
        drawn = self.paths[self.paths["row"].isin(positions) & self.paths["row"].isin(there)]
        return figures.draw_map(self.landscape, drawn[["row", "map_x", "map_y"]], self.note, _maybe_path(path))

    def to_json(self, path: str | Path | None = None) -> str:
        """The explanation as JSON text, from which `from_json` makes an equal one; also written to `path`, if given."""
        frames = {name: getattr(self, name) for name in FRAMES} | {"measures": self._measures}
        rest = {
            "schema": self.schema.to_json(),
            "request": self.request,
            "note": self.note,
            "diagnostics": self.diagnostics,
        }
        text = storage.dumps(frames, rest)
        if path is not None:
            write_text(Path(path), text)
        return text

    @classmethod
    def from_json(cls, source: str | Path) -> "Explanation":
        """The explanation in a text that `to_json` made, or in the file that holds it."""
        frames, rest = storage.loads(source)
        try:
            return cls(
                **{name: frames[name] for name in FRAMES},
                schema=Schema.from_json(rest["schema"]),
                request=rest["request"],
                note=rest["note"],
                compute_measures=frames["measures"],
                diagnostics=rest["diagnostics"],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"the explanation is damaged: {type(error).__name__} {error}; write it again") from error

    def to_text(self, steps: bool = False) -> str:
        """The first rows, or people with all plans, a line each, as `print` shows them.

        Args:
            steps: Whether to write the steps of each path below it, where it has more than one: see `milestones`.
        """
        shown = self._people(_ROWS_IN_A_TERMINAL // self.plans, steps)
        lines = [line for person in shown for line in person.lines]
        more = self._count - len(shown)
        return "\n".join([self._headline, *lines, *([f"… and {more} more"] if more else [])])

    def to_frame(self) -> pd.DataFrame:
        """One table: the counterfactuals with their status, reason, binding constraints, classes and probabilities.

        A feature that is called like one of these columns has `feature_` before its name, and where there are several
        plans, one that is called `plan` too.
        """
        return storage.flat(self.counterfactuals, self.status, self.outcome, self.schema.names, self.plans)

    def to_csv(self, path: str | Path) -> Path:
        """Write the table of `to_frame` as CSV; the rows' labels are called `row` if they have no name."""
        return storage.write_csv(self.to_frame(), Path(path))

    def to_parquet(self, path: str | Path) -> Path:
        """Write the table of `to_frame` as Parquet."""
        return storage.write_parquet(self.to_frame(), Path(path))

    def to_html(
        self,
        path: str | Path,
        tables: Mapping[str, pd.DataFrame] | None = None,
        title: str = "Counterfactual explanations",
    ) -> Path:
        """Write one self-contained page: key numbers, figures, and a card for each row, or each person with all plans.

        Args:
            path: The file.
            tables: Further tables to show, by their headings.
            title: The heading of the page.
        """
        drawings = {
            f"What changes, in the {'rows' if self.plans == 1 else 'plans'} that were found": self.plot_changes()
        }
        if len(self.landscape):
            drawings["Where the paths lead"] = self.plot_map()
        walkers = labels.walkers(self.paths)[:_PATHS_ON_A_PAGE]
        return page.Page(
            title=title,
            headline=self._headline,
            summary=self.summary(),
            tables=tables or {},
            drawings=drawings,
            walks=[self._draw_path(self._steps(position), position) for position in walkers],
            people=self._people(page.MOST_CARDS, steps=True),
            total=self._count,
            diagnostics=self.diagnostics,
        ).write(Path(path))

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

    def _draw_path(self, steps: pd.DataFrame, position: int, path: Path | None = None) -> Figure:
        (row,) = self._tell([position])
        moves = path_features(steps, self.schema.names)
        stops = choose(moves, self.schema, self._amounts, chosen=self._chosen)[1:]
        plan = f", {row.number.lower()}" if self.plans > 1 else ""
        title = f"Row {row.label}{plan}: the model says {row.before}, and {row.after} at the end"
        asked = (wording.outcome(row.wanted), row.confidence)
        return figures.draw_path(steps[["step", *PATH_BACK]], moves, self._ranges, title, asked, path, stops)


def _maybe_path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)
