"""The answer to a request for counterfactuals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from counterpath.data.schema import Schema
from counterpath.errors import InputError
from counterpath.explanation import figures, groups, notebook, page, reporting, storage, wording
from counterpath.explanation.columns import FRAMES, PATH_BACK, path_features
from counterpath.explanation.milestones import choose
from counterpath.explanation.status import FOUND, Status
from counterpath.explanation.told import Told
from counterpath.files import write_text

_ROWS_IN_A_TERMINAL = 10
_ROWS_IN_A_NOTEBOOK = 20


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Explanation(Told):
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
        diagnostics: What to know about the models behind it, in words.
        quality: The same as numbers and findings, as `Diagnostics.told` has them; empty where they are not known.
        made: When and with which versions it was made, and in how many seconds; empty where that is not known.
    """

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return notebook.render(self._headline, self._people(_ROWS_IN_A_NOTEBOOK // self.plans), self._count)

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
            "quality": dict(self.quality),
            "made": dict(self.made),
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
                quality=rest.get("quality", {}),
                made=rest.get("made", {}),
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
        *,
        baselines: Mapping[str, Told] | None = None,
        by: groups.By | Sequence[groups.By] = (),
        pages: int = page.MOST_PAGES,
        about: Mapping[str, str] | None = None,
    ) -> Path:
        """Write one self-contained file for the screen and for paper, which needs no network and runs no script.

        It has a first page with the key numbers, what changes most and the contents; a table of methods side by side;
        measures by subgroup; the latent map; everybody at a glance; how good the models are; how it was made; and a
        page for each person.

        Args:
            path: The file.
            tables: Further tables to show, by their headings.
            title: The heading of the page.
            baselines: What other methods found for the same rows, by their names, to be shown beside this; for instance
                `{"nearest": explainer.explain(people, 1, method="nearest")}`, or `benchmark.compare(…).results`. Of
                several plans the first counts.
            by: What to group by, as in `summary`; a list has one table for each of its members.
            pages: How many people have a page of their own; further ones are only listed.
            about: What else to say about how it was made, for instance `{"model": "credit-2026"}`.
        """
        given = reporting.Wanted(title, tables or {}, baselines or {}, by, pages, about or {})
        return reporting.gather(self, given).write(Path(path))

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
