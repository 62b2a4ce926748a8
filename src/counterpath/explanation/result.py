"""The answer to a request for counterfactuals."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from counterpath.data.schema import Schema
from counterpath.errors import InputError
from counterpath.explanation import figures, groups, labels, page, storage, wording
from counterpath.explanation.checks import check_tables, plain_request
from counterpath.explanation.columns import PATH_BACK, PATH_FRONT, beside
from counterpath.explanation.status import Status
from counterpath.explanation.telling import amounts, changed_places, headline, ranges, tell
from counterpath.files import write_text

_ROWS_IN_A_TERMINAL = 10
_ROWS_IN_A_NOTEBOOK = 20
_PATHS_ON_A_PAGE = 3
_BY_ROW = ("factuals", "counterfactuals", "status", "outcome", "changed")
_FRAMES = (*_BY_ROW, "paths", "landscape")


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Explanation:
    """Counterfactuals for some rows, how they were reached, and what they cost.

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
        paths: Every step of every path: `row` (position in the input), `step`, the features, `probability` (of the
            wanted outcome), `uncertainty`, `length` so far, `map_x` and `map_y`; its columns are `path_columns`. Empty
            if paths were not kept.
        schema: What the features are.
        request: What was asked for: `method`, `target_class` (`"other"` for any but the present one), `confidence` and
            whatever else, all of it fit for JSON.
        landscape: The background of the map: `map_x`, `map_y`, `predicted` (a class) and, if known, `volume`.
        note: What the map shows of the latent space.
        compute_measures: The measures, one row an input row, or a function that computes them when they are needed.
        diagnostics: What to know about the models behind it.
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

    def __post_init__(self) -> None:
        check_tables({name: getattr(self, name) for name in _FRAMES}, self.schema.names)
        object.__setattr__(self, "request", plain_request(self.request))

    def __len__(self) -> int:
        return len(self.factuals)

    def __repr__(self) -> str:
        shown = [row.line for row in self._tell(0, _ROWS_IN_A_TERMINAL)]
        more = len(self) - len(shown)
        return "\n".join([self._headline, *shown, *([f"… and {more} more"] if more else [])])

    def _repr_html_(self) -> str:
        return page.notebook(self._headline, self._tell(0, _ROWS_IN_A_NOTEBOOK), len(self))

    @property
    def valid(self) -> pd.Series:
        """For each row, whether the model decides as asked on the row as returned."""
        return self.status["status"].isin([kind for kind in Status if kind.valid]).rename("valid")

    @cached_property
    def changes(self) -> pd.DataFrame:
        """Only what changed: one row a changed feature, under the label of its row.

        Columns: `feature`; `from` and `to` in original units; `change`, their difference, or "" where there is none.
        """
        places = changed_places(self.changed, self.schema.names)
        old, new = (
            {name: frame[name].tolist() for name in self.schema.names}
            for frame in (self.factuals, self.counterfactuals)
        )
        columns = {
            "feature": [name for _, name in places],
            "from": [old[name][row] for row, name in places],
            "to": [new[name][row] for row, name in places],
            "change": [new[name][row] - old[name][row] if name in self._amounts else "" for row, name in places],
        }
        index = self.factuals.index[[row for row, _ in places]]
        return pd.DataFrame(columns, index=index, dtype=object).astype({"feature": str})

    @cached_property
    def sentences(self) -> pd.Series:
        """For each row, what would have to change, in plain language."""
        texts = [row.sentence for row in self._tell(0, len(self))]
        return pd.Series(texts, index=self.factuals.index, name="sentence", dtype=str)

    def path(self, i: Any) -> pd.DataFrame:
        """The path of one row: the first step is the row as asked, the last one exactly the row as returned.

        Args:
            i: The row's index label if the index has no label twice; else its position, from 0.

        Returns:
            One row a step: `step`, the features, `probability` of the wanted outcome, `uncertainty`, `length` so far,
            `map_x`, `map_y`. A feature that has one of these names has `feature_` before its own.
        """
        position = self._positions([i])[0]
        steps = self.paths[self.paths["row"] == position].drop(columns="row").reset_index(drop=True)
        if len(steps):
            return steps
        if self.status["status"].iloc[position] == Status.UNKNOWN_CATEGORY:
            raise InputError(f"row {i!r} has no path: {self.status['reason'].iloc[position]}")
        raise InputError(f"the path of row {i!r} was not kept; call explain(…, keep_paths=True) to keep paths")

    def measures(self) -> pd.DataFrame:
        """The measures of each row by its index label; computed once, when they are first asked for."""
        return self._measures.copy()

    def summary(self, by: groups.By | None = None) -> pd.DataFrame:
        """Who gets a counterfactual, at what cost, and through which features.

        Args:
            by: None for one row over all; or one or more columns of the factuals, or a series with one value a row, for
                one row a group. Numbers with more than 8 values are cut at their quartiles.

        Returns:
            For each group: `n` rows; `explained`, those for which a counterfactual was looked for; `found`, the share
            of these for which there is one; over the found ones the mean `l0`, `l1`, `l2_sq`, `ld_sq`, `violation` and
            number of `steps`; and `changes most`, the three features that change most often, with their share.
        """
        status = self.status["status"].reset_index(drop=True)
        costs, changed = self._costs, self.changed[list(self.schema.names)].reset_index(drop=True)
        if by is not None:
            return groups.summarise_groups(self.factuals, by, status, costs, changed)
        return pd.DataFrame([groups.summarise(status, costs, changed)], index=["all"], columns=list(groups.COLUMNS))

    def select(self, rows: Any) -> "Explanation":
        """The explanation of a few rows, by index label if no label is there twice, else by position."""
        positions = self._positions([rows] if pd.api.types.is_scalar(rows) else rows)
        return replace(
            self,
            **{name: getattr(self, name).iloc[positions] for name in _BY_ROW},
            paths=labels.take_paths(self.paths, positions),
            compute_measures=lambda: self._measures.iloc[positions],
        )

    def plot_changes(self, path: str | Path | None = None) -> Figure:
        """Draw how often each feature changes in the rows that were found, by how much, and in which direction.

        Args:
            path: Where to save it as well, as PNG and SVG.
        """
        found = (self.status["status"] == Status.FOUND).to_numpy()
        names = list(self.schema.names)
        old, new, changed = (frame[found][names] for frame in (self.factuals, self.counterfactuals, self.changed))
        return figures.draw_changes(old, new, changed, self._ranges, path=_maybe_path(path))

    def plot_path(self, i: Any, path: str | Path | None = None) -> Figure:
        """Draw the path of one row: probability and uncertainty, and below them every feature that moves.

        Args:
            i: The row, as in `path`.
            path: Where to save it as well, as PNG and SVG.
        """
        steps, position = self.path(i), self._positions([i])[0]
        row = self._tell(position, position + 1)[0]
        columns = beside(self.schema.names, PATH_FRONT + PATH_BACK)
        moves = steps[list(columns.values())].set_axis(list(columns), axis=1)
        title = f"Row {row.label}: the model says {row.before}, and {row.after} at the end"
        asked = (wording.outcome(self._wanted), float(self.request["confidence"]))
        return figures.draw_path(steps[["step", *PATH_BACK]], moves, self._ranges, title, asked, _maybe_path(path))

    def plot_map(self, rows: Iterable[Any] | None = None, path: str | Path | None = None) -> Figure:
        """Draw the latent map with the classes that the model predicts, and paths on it.

        Args:
            rows: The rows whose paths to draw, as in `select`; all by default.
            path: Where to save it as well, as PNG and SVG.
        """
        positions = range(len(self)) if rows is None else self._positions(rows)
        drawn = self.paths[self.paths["row"].isin(positions)]
        return figures.draw_map(self.landscape, drawn[["row", "map_x", "map_y"]], self.note, _maybe_path(path))

    def to_json(self, path: str | Path | None = None) -> str:
        """The explanation as JSON text, from which `from_json` makes an equal one; also written to `path`, if given."""
        frames = {name: getattr(self, name) for name in _FRAMES} | {"measures": self._measures}
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
                **{name: frames[name] for name in _FRAMES},
                schema=Schema.from_json(rest["schema"]),
                request=rest["request"],
                note=rest["note"],
                compute_measures=frames["measures"],
                diagnostics=rest["diagnostics"],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"the explanation is damaged: {type(error).__name__} {error}; write it again") from error

    def to_frame(self) -> pd.DataFrame:
        """One table: the counterfactuals with their status, reason, binding constraints, classes and probabilities.

        A feature that is called like one of these columns has `feature_` before its name.
        """
        return storage.flat(self.counterfactuals, self.status, self.outcome, self.schema.names)

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
        """Write one self-contained page: key numbers, figures, and a card for each row.

        Args:
            path: The file.
            tables: Further tables to show, by their headings.
            title: The heading of the page.
        """
        walkers = labels.walkers(self.factuals.index, self.paths)
        drawings = {"What changes, in the rows that were found": self.plot_changes()}
        if len(self.landscape):
            drawings["Where the paths lead"] = self.plot_map()
        return page.Page(
            title=title,
            headline=self._headline,
            summary=self.summary(),
            tables=tables or {},
            drawings=drawings,
            walks=[self.plot_path(row) for row in walkers[:_PATHS_ON_A_PAGE]],
            rows=self._tell(0, page.MOST_CARDS),
            total=len(self),
            diagnostics=self.diagnostics,
        ).write(Path(path))

    @cached_property
    def _measures(self) -> pd.DataFrame:
        given = self.compute_measures
        frame = given if isinstance(given, pd.DataFrame) else given()
        if len(frame) != len(self):
            raise InputError(f"compute_measures gave {len(frame)} rows for {len(self)} rows; expected one each")
        return frame.set_axis(self.factuals.index, axis=0)

    @property
    def _costs(self) -> pd.DataFrame:
        """The measures by position, with the number of steps where paths were kept."""
        costs = self._measures.reset_index(drop=True)
        if not len(self.paths):
            return costs
        return costs.assign(steps=self.paths.groupby("row")["step"].max().reindex(range(len(self))))

    @cached_property
    def _amounts(self) -> frozenset[str]:
        return amounts(self.schema, self.factuals)

    @cached_property
    def _ranges(self) -> dict[str, tuple[float, float]]:
        return ranges(self.factuals, self.counterfactuals, self._amounts)

    @property
    def _wanted(self) -> str:
        return wording.value(self.request["target_class"])

    @property
    def _headline(self) -> str:
        return headline(self.status["status"].tolist(), self.request)

    def _tell(self, start: int, stop: int) -> list[wording.Row]:
        frames = {name: getattr(self, name).iloc[start:stop] for name in _BY_ROW}
        return tell(frames, self.schema.names, self._amounts, self._wanted, float(self.request["confidence"]))

    def _positions(self, rows: Iterable[Any]) -> list[int]:
        return labels.positions(self.factuals.index, rows)


def _maybe_path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)
