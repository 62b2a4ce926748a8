"""The answer to a request for counterfactuals.

It says how it was made, so that it can be made again: when, with what, how fast, and what was asked for.
"""

import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from counterpath.data.schema import Schema
from counterpath.data.status import FOUND, StatusCode
from counterpath.explanation import io, summary, tables, wording
from counterpath.explanation.importance import RESAMPLES, feature_importance
from counterpath.explanation.milestones import MOST, choose_points, list_milestones, steps_between
from counterpath.explanation.summary import By
from counterpath.explanation.tables import BY_ROW, FILE, FRAMES, MILESTONES, PATH_BACK, PLAN, ROW_CONSTRAINTS, keep_of
from counterpath.explanation.wording import Person, group_by_person
from counterpath.utils.errors import InputError
from counterpath.utils.files import atomic, write_text

if TYPE_CHECKING:  # what is imported only to draw is imported where something is drawn
    from matplotlib.figure import Figure

LIBRARIES = ("torch", "numpy", "pandas", "scikit-learn")
"""What answers may depend on, beside Counterpath itself."""


def provenance(started: float) -> dict[str, Any]:
    """The provenance of something that was begun at a time of `time.monotonic`, and is done now."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - started, 3),
        "versions": versions(),
    }


@cache
def versions() -> dict[str, str]:
    """Of Counterpath, of Python, and of what answers may depend on."""
    return {
        "counterpath": import_module("counterpath").__version__,  # is still being imported when this module is
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
    }


MOST_PAGES = 200
"""How many people have a page of their own in a report unless more are asked for: a file of one megabyte."""
_BESIDE = ("request", "note", "diagnostics", "quality", "provenance")
"""What a file has beside the tables and the schema, as it is."""
_ROWS_IN_A_TERMINAL = 10  # as many lines as stay in sight above the prompt
_ROWS_IN_A_NOTEBOOK = 20  # a notebook scrolls


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Explanation:
    """Counterfactuals for some rows, how they were reached, and what they cost.

    If several plans were asked for, each table has one row for each person and plan: a person's rows are together, the
    cheapest plan first, and the index has the number of the plan as its last level, `plan`. A person for whom there are
    fewer plans has the status `NO_OTHER_PLAN` in the rows that are left over.

    Attributes:
        factuals: The rows as asked: original columns, dtypes and index.
        counterfactuals: The rows as returned, in the same shape.
        status: For each row `status` (a value of `StatusCode`), `reason` (a sentence), `fallback` (whether the search
            itself got stuck, and the fallback found it), `binding` (which constraints stand in the way of a
            counterfactual, a list of `kind`, `feature` and `reach`, as of `BindingConstraint`; empty where there is
            one, or nothing is known), `unseen` (pairs of features whose values nobody has together, where nothing
            else was found) and `imputed` (a list of the columns that were filled in).
        outcome: For each row `class_before`, `probability_before`, `class_after` and `probability_after` (of a
            regressor, the numbers it predicts, and how near they are to the asked range: 1 is within): what the real
            model predicts for the row as asked and as returned, and how probable it finds the *target*. Nothing is
            predicted for a row with an unknown category.
        changed: For each row and feature, whether it changed.
        paths: Every step of every path: `row` (position in the tables above), `step`, the features, `probability` (of
            the target), `uncertainty`, `length` so far, `map_x` and `map_y`; its columns are `path_columns`. Only those
            steps that are milestones, or none, if no more was to be kept: see `paths`.
        schema: What the features are.
        request: What was asked for: `method`, `target_class` (`"other"` for any but the present one), `confidence`,
            `plans` if there are several, `paths` if not all points of paths were kept, and whatever else, all of it
            fit for JSON.
        landscape: The background of the map: `map_x`, `map_y`, `predicted` (a class) and, if known, `volume`.
        note: What the map shows of the latent space.
        compute_measures: The measures, one row a row above, or a function that computes them when they are needed.
        diagnostics: What to know about the models behind it, in words.
        quality: The same as numbers and findings, as `Diagnostics` has them; empty where they are not known.
        provenance: When and with which versions it was made, and in how many seconds; empty where that is not known.
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
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tables.check_tables({name: getattr(self, name) for name in FRAMES}, self.schema.names)
        object.__setattr__(self, "request", tables.plain_request(self.request))
        tables.check_plans(self.factuals.index, self.request)
        keep_of(self.request)

    def __len__(self) -> int:
        return len(self.factuals)

    @property
    def pandas(self) -> "Explanation":
        """The same with tables of pandas, where the rows came in a table of another library."""
        return self

    @property
    def plans(self) -> int:
        """How many rows each person has: one, or as many as plans were asked for, whether or not so many were found."""
        return tables.plans_held(self.request)

    @property
    def kept_paths(self) -> str:
        """How much there is of every path: "all" of it, its "milestones", or nothing but its "end"."""
        return keep_of(self.request)

    @property
    def valid(self) -> pd.Series:
        """For each row, whether the model decides as asked on the row as returned."""
        return self.status["status"].isin([kind for kind in StatusCode if kind.valid]).rename("valid")

    def path(self, i: Any, plan: int | None = None) -> pd.DataFrame:
        """The path of one row: the first step is the row as asked, the last one exactly the row as returned.

        Args:
            i: The row's index label if the index has no label twice; else its position, from 0. Where there are several
                plans, the person's label or the pair (label, plan).
            plan: Which plan of the person, from 1; by default the first.

        Returns:
            One row a step: `step`, the features, `probability` of the target, `uncertainty`, `length` so far, `map_x`,
            `map_y`. A feature that has one of these names has `feature_` before its own. If only milestones were kept,
            these steps; `step` and `length` are still those of the whole path.
        """
        position = self._position(i, plan)
        steps = self._steps(position)
        if len(steps):
            return steps
        row = f"{i!r}" if plan is None else f"{i!r}, plan {plan},"
        if self.status["status"].iloc[position] in (StatusCode.UNKNOWN_CATEGORY, StatusCode.NO_OTHER_PLAN):
            raise InputError(f"row {row} has no path: {self.status['reason'].iloc[position]}")
        raise InputError(f"the path of row {row} was not kept; call explain(…, paths='milestones'), or paths='all'")

    def measures(self) -> pd.DataFrame:
        """The measures of each row by its index label; computed once, when they are first asked for."""
        return self._measures.copy()

    def units(self) -> pd.Series:
        """What each measure is in: distances between encoded rows, for instance, in shares of a feature's range."""
        return pd.Series(wording.units(self.schema), name="unit")

    def select(self, rows: Any) -> "Explanation":
        """The explanation of a few rows, by index label if no label is there twice, else by position.

        Where there are several plans, a label stands for all plans of the person, and the pair (label, plan) for one.
        """
        return self._take(self._positions(rows))

    def rejected(self) -> "Explanation":
        """The explanation without the people who have the decision already."""
        return self._take(np.flatnonzero(~self._already[self._person]).tolist())

    def plan(self, number: int) -> "Explanation":
        """The explanation with only this plan of everybody, from 1, under their own labels.

        Its request says as `plan` which one it is, beside `plans`, how many were asked for.
        """
        tables.check_plan_number(number, self.request)
        if self.plans == 1:
            return self
        positions = np.flatnonzero(tables.plan_numbers(self.factuals.index, self.plans) == number).tolist()
        own = tables.labels_without_plan(self.factuals.index[positions], self.plans)
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
        return tables.person_numbers(self.factuals.index, self.plans)

    @cached_property
    def _path_positions(self) -> dict[int, NDArray[np.intp]]:
        """By the position of a row, which lines of the paths are its own: one look at the table for all rows."""
        groups: dict[Any, Any] = self.paths.groupby("row").indices
        return {int(row): np.asarray(lines) for row, lines in groups.items()}

    @property
    def _count(self) -> int:
        """How many people there are."""
        return int(self._person.max(initial=-1)) + 1

    @property
    def _already(self) -> NDArray[np.bool_]:
        """Which people have the decision already: what became of them is in their first row."""
        already = np.zeros(self._count, dtype=bool)
        already[self._person[::-1]] = (self.status["status"] == StatusCode.ALREADY).to_numpy()[::-1]
        return already

    def _steps(self, position: int) -> pd.DataFrame:
        return self.paths.iloc[self._path_positions.get(position, [])].drop(columns="row").reset_index(drop=True)

    def _positions(self, rows: Any) -> list[int]:
        return tables.positions(self.factuals.index, rows, self.plans)

    def _position(self, row: Any, plan: int | None) -> int:
        if plan is not None:
            tables.check_plan_number(plan, self.request)
        return tables.position(self.factuals.index, row, plan, self.plans)

    def _take(
        self, positions: list[int], index: pd.Index | None = None, request: dict[str, Any] | None = None
    ) -> "Explanation":
        """The rows at some positions, under another index and as the answer to another request if given."""
        frames = self._frames(positions)
        lines = [np.asarray(self._path_positions.get(row, ()), dtype=int) for row in positions]
        numbers = np.repeat(np.arange(len(lines)), [len(steps) for steps in lines])  # positions among the chosen rows
        paths = self.paths.iloc[np.concatenate([*lines, np.empty(0, int)])].assign(row=numbers)
        request = self.request if request is None else request
        if request.get(ROW_CONSTRAINTS):
            people = dict.fromkeys(int(self._person[position]) for position in positions)
            request = {**request, ROW_CONSTRAINTS: [request[ROW_CONSTRAINTS][person] for person in people]}
        return replace(
            self,
            **frames if index is None else {name: frame.set_axis(index) for name, frame in frames.items()},
            paths=paths.astype({"row": self.paths["row"].dtype}).reset_index(drop=True),
            request=request,
            compute_measures=lambda: self._measures.iloc[positions],
        )

    @cached_property
    def changes(self) -> pd.DataFrame:
        """Only what changed: one row a changed feature, under the label of its row.

        Columns: `feature`; `from` and `to` in original units; `change`, their difference, or "" where there is none.
        """
        names = list(self.schema.names)
        cells = tables.changed_cells(self.changed, names)
        old, new = ({name: frame[name].tolist() for name in names} for frame in (self.factuals, self.counterfactuals))
        frames = (self.factuals, self.counterfactuals)
        both = {each.name: np.all([each.is_measured(frame[each.name]) for frame in frames], 0) for each in self.schema}
        columns = {
            "feature": [name for _, name in cells],
            "from": [old[name][row] for row, name in cells],
            "to": [new[name][row] for row, name in cells],
            "change": [
                new[name][row] - old[name][row] if name in self._numeric and both[name][row] else ""
                for row, name in cells
            ],
        }
        index = self.factuals.index[[row for row, _ in cells]]
        return pd.DataFrame(columns, index=index, dtype=object).astype({"feature": str})

    @cached_property
    def sentences(self) -> pd.Series:
        """For each row, what would have to change, in plain language."""
        texts = [row.sentence for row in self._describe(range(len(self)))]
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
        return list_milestones(self.path(i, plan), self.schema, self._numeric, most, chosen=self._chosen)

    def summary(self, by: By | None = None) -> pd.DataFrame:
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
        return summary.summarise(self, by)

    def importance(self, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
        """How often and how far each feature changes over all answers, with 95 % bootstrap intervals over people.

        It says which features the answers use, under what was asked for. It is no attribution of the model: a feature
        that is held has 0 however much the model relies on it. `explanation.importance` has the formulas.

        Args:
            resamples: How often people are drawn with replacement.
            seed: Of these draws.

        Returns:
            One row a feature, those that change most often first: `often`, the share of the people whose answers change
            it; `far`, how far it moves where it changes, in shares of its range in these rows, 1 for a category;
            the ends of the interval of either, `often_low` and so on; `up` and `down`, the shares in which it rises and
            falls; and `held`, whether the request or the schema keeps it. NaN where nothing was found, or nothing
            changes.
        """
        return feature_importance(self, resamples=resamples, seed=seed)

    @cached_property
    def _numeric(self) -> frozenset[str]:
        return tables.numeric_features(self.schema, self.factuals)

    @cached_property
    def _ranges(self) -> dict[str, tuple[float, float]]:
        """The smallest and the largest value of each numeric feature, in the rows as asked and as returned."""
        found = {}
        for name in sorted(self._numeric):
            both = pd.concat([self.factuals[name], self.counterfactuals[name]])
            values = both[self.schema[name].is_measured(both)].astype(float)
            found[name] = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
        return found

    @property
    def _chosen(self) -> bool:
        """Whether all points of paths are milestones."""
        return self.kept_paths == MILESTONES

    @property
    def _found(self) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        """Of the rows with a counterfactual the features as asked and as returned, and which of them changed."""
        found, names = self.status["status"].isin(FOUND).to_numpy(), list(self.schema.names)
        return self.factuals[found][names], self.counterfactuals[found][names], self.changed[found][names]

    @property
    def _headline(self) -> str:
        return wording.headline(self.status["status"].tolist(), self.request, self._person.tolist(), self.schema)

    def _frames(self, positions: list[int]) -> dict[str, Any]:
        return {name: getattr(self, name).iloc[positions] for name in BY_ROW}

    def _describe(self, positions: Iterable[int]) -> list[wording.Row]:
        classes = len(self.quality["coverage"]["class"]) if "coverage" in self.quality else 0
        positions = list(positions)
        own = self.request.get(ROW_CONSTRAINTS)
        each = [own[self._person[position]] for position in positions] if own else None
        return wording.describe_rows(self._frames(positions), self.schema, self.request, classes, each)

    @property
    def _of_numbers(self) -> bool:
        """Whether a regressor is explained, which gives no probabilities."""
        own = self.request.get(ROW_CONSTRAINTS) or ()
        return any(each.get("target_range") is not None for each in (self.request, *own))

    def _people(self, most: int, steps: bool = False, *, rejected_first: bool = False) -> list[Person]:
        """The first people, at least one, whole: with all their plans, and the steps of each if they are wanted.

        If the rejected come first, then after them those who have the decision already.
        """
        return self._people_at(self._first(most, rejected_first=rejected_first), steps)

    def _first(self, most: int, *, rejected_first: bool) -> list[int]:
        """The positions of the rows of the first people, as of `_people`."""
        order = np.argsort(self._already, kind="stable") if rejected_first else np.arange(self._count)
        shown = order[: max(most, 1)]
        rank = np.full(self._count, self._count)
        rank[shown] = np.arange(len(shown))
        ranks = rank[self._person]
        found: list[int] = np.argsort(ranks, kind="stable")[: int((ranks < self._count).sum())].tolist()
        return found

    def _people_at(self, positions: list[int], steps: bool = False) -> list[Person]:
        """The people of some rows, whose rows are together."""
        rows = self._describe(positions)
        if steps:
            rows = [self._with_steps(row, at) for row, at in zip(rows, positions, strict=True)]
        return group_by_person(rows, self._person[positions].tolist())

    def _with_steps(self, row: wording.Row, position: int) -> wording.Row:
        path = self._steps(position)
        if not row.status.found or not len(path):
            return row
        milestones = list_milestones(path, self.schema, self._numeric, chosen=self._chosen)
        return replace(row, steps=steps_between(milestones))

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        from counterpath.explanation.report.notebook import render_notebook

        return render_notebook(self, _ROWS_IN_A_NOTEBOOK // self.plans)

    def plot_changes(self, path: str | Path | None = None) -> "Figure":
        """Draw how often each feature changes in the rows that were found, by how much, and in which direction.

        Args:
            path: Where to save it as well, as PNG and SVG.
        """
        from counterpath.explanation.plots import figures

        unit = "row" if self.plans == 1 else "plan"
        return figures.draw_changes(*self._found, self._ranges, self.schema, path, unit)

    def plot_importance(self, path: str | Path | None = None, *, resamples: int = RESAMPLES, seed: int = 0) -> "Figure":
        """Draw how often and how far features change, with intervals; see `importance` for what it is and is not.

        Args:
            path: Where to save it as well, as PNG and SVG.
            resamples: As in `importance`.
            seed: As in `importance`.
        """
        from counterpath.explanation.plots import figures

        table = self.importance(resamples=resamples, seed=seed)
        people = len(np.unique(self._person[self.status["status"].isin(FOUND).to_numpy()]))
        return figures.draw_importance(table, people, self.schema, path)

    def plot_path(self, i: Any, path: str | Path | None = None, *, plan: int | None = None) -> "Figure":
        """Draw the path of one row: probability and uncertainty, and below them every feature that moves.

        Milestones between its ends are numbered as the steps that lead to them.

        Args:
            i: The row, as in `path`.
            path: Where to save it as well, as PNG and SVG.
            plan: Which plan of the person, as in `path`.
        """
        from counterpath.explanation.plots import figures

        steps = self.path(i, plan)
        (row,) = self._describe([self._position(i, plan)])
        features = tables.path_features(steps, self.schema.names)
        stops = choose_points(features, self.schema, self._numeric, chosen=self._chosen)[1:]
        number = f", {row.number.lower()}" if self.plans > 1 else ""
        title = f"Row {row.label}{number}: the model predicts {row.before}, and {row.after} at the end"
        asked = (row.measured, row.confidence)
        points = steps[["step", *PATH_BACK]]
        return figures.draw_path(points, features, self._ranges, self.schema, title, asked, path, stops)

    def plot_map(self, rows: Iterable[Any] | None = None, path: str | Path | None = None) -> "Figure":
        """Draw the latent map with the classes that the model predicts, and paths on it.

        Args:
            rows: The rows whose paths to draw, as in `select`; all by default.
            path: Where to save it as well, as PNG and SVG.
        """
        from counterpath.explanation.plots import figures

        positions = range(len(self)) if rows is None else self._positions(rows)
        there = np.flatnonzero(self.status["status"] != StatusCode.NO_OTHER_PLAN)  # a plan that is not leads nowhere
        drawn = self.paths[self.paths["row"].isin(positions) & self.paths["row"].isin(there)]
        return figures.draw_map(self.landscape, drawn[["row", "map_x", "map_y"]], self.schema, self.note, path)

    def to_json(self, path: str | Path | None = None) -> str:
        """The explanation as JSON text, from which `from_json` makes an equal one; also written to `path`, if given."""
        frames = {name: getattr(self, name) for name in FRAMES} | {"measures": self._measures}
        text = io.dumps(frames, {"schema": self.schema.to_json()} | {name: getattr(self, name) for name in _BESIDE})
        if path is not None:
            write_text(Path(path), text)
        return text

    @classmethod
    def from_json(cls, source: str | Path) -> "Explanation":
        """The explanation in a text that `to_json` wrote, or in the file that holds it."""
        frames, rest = io.loads(source)
        if "status" in frames:
            frames["status"] = tables.with_new_columns(frames["status"])
        try:
            fields: dict[str, Any] = {name: frames[name] for name in FRAMES} | {name: rest[name] for name in _BESIDE}
            return cls(**fields, schema=Schema.from_json(rest["schema"]), compute_measures=frames["measures"])
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"the explanation is damaged: {type(error).__name__} {error}; write it again") from error

    def to_text(self, steps: bool = False) -> str:
        """The first rows, or people with all plans, a line each, as `print` shows them; the rejected come first.

        Args:
            steps: Whether to write the steps of each path below it, where it has more than one: see `milestones`.
        """
        shown = self._people(_ROWS_IN_A_TERMINAL // self.plans, steps, rejected_first=True)
        lines = [line for person in shown for line in person.lines]
        more = self._count - len(shown)
        return "\n".join([self._headline, *lines, *([f"… and {more} more"] if more else [])])

    def to_frame(self) -> pd.DataFrame:
        """One table: the counterfactuals with their status, reason, binding constraints, classes and probabilities.

        A feature that is called like one of these columns has `feature_` before its name, and where there are several
        plans, one that is called `plan` too.
        """
        reserved = FILE if self.plans == 1 else (PLAN, *FILE)
        answers = pd.concat([self.status, self.outcome], axis=1)[list(FILE)]
        return pd.concat(
            [self.counterfactuals.rename(columns=tables.feature_columns(self.schema.names, reserved)), answers], axis=1
        )

    def to_csv(self, path: str | Path) -> Path:
        """Write the table of `to_frame` as CSV; the rows' labels are called `row` if they have no name."""
        with atomic(Path(path)) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
            io.stream_csv(self.to_frame(), file)
        return Path(path)

    def to_parquet(self, path: str | Path) -> Path:
        """Write the table of `to_frame` as Parquet."""
        return io.write_parquet(self.to_frame(), Path(path))

    def to_html(
        self,
        path: str | Path,
        tables: Mapping[str, pd.DataFrame] | None = None,
        title: str = "Counterfactual explanations",
        *,
        baselines: Mapping[str, "Explanation"] | None = None,
        by: By | Sequence[By] = (),
        pages: int = MOST_PAGES,
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
                `{"nearest": explainer.explain(people, 1, method="nearest")}`, or `counterpath.compare(…).results`. Of
                several plans the first counts.
            by: What to group by, as in `summary`; a list has one table for each of its members.
            pages: How many people have a page of their own; further ones are only listed.
            about: What else to say about how it was made, for instance `{"model": "credit-2026"}`.
        """
        from counterpath.explanation.report import build

        return build.write(Path(path), self, title, tables or {}, baselines or {}, by, pages, about or {})
