"""Several methods on the same rows, side by side, and always beside the trivial baseline."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from counterpath.explainer.explainer import Explainer
from counterpath.explainer.request import OTHER
from counterpath.explanation import Explanation, wording
from counterpath.explanation.summary import comparison_table
from counterpath.explanation.tables import ALL, numeric_features, path_features
from counterpath.search.methods import NEAREST, resolve_method
from counterpath.utils.errors import InputError, choose

if TYPE_CHECKING:  # what is imported only to draw is imported where something is drawn
    from matplotlib.figure import Figure

COMPARED = ("sgd", "rsgd", "rsgd-c", "geodesic", "face", NEAREST)
"""The methods that are compared unless others are asked for."""


@dataclass(frozen=True)
class Comparison:
    """What several methods found for the same rows.

    Attributes:
        results: The explanation by each method.
        seconds: How long each method searched.
    """

    results: dict[str, Explanation]
    seconds: dict[str, float]

    def table(self, common: bool = False) -> pd.DataFrame:
        """One row a method, by its name: see `explanation.summary.comparison_table` for its columns.

        Args:
            common: Take the means over the rows for which every method found a counterfactual, the only fair way to
                compare costs; else over those for which the method itself did. One that found none does not count.
        """
        return comparison_table(self.results, common, self.seconds)

    def plot(
        self,
        i: Any,
        path: str | Path | None = None,
        *,
        methods: Sequence[str] | None = None,
        with_map: bool = True,
    ) -> "Figure":
        """Draw the paths of one person by several methods: on one latent map, and below it a column a method.

        Args:
            i: The row, as in `Explanation.path`.
            path: Where to save it as well, as PNG and SVG.
            methods: Some of the compared methods, in the order in which they are drawn; by default all of them.
            with_map: Whether to draw the latent map above them.

        Raises:
            InputError: A method was not compared, or the row has no path.
        """
        from counterpath.explanation.plots.figures import draw_side_by_side

        names = list(self.results) if methods is None else list(methods)
        chosen = [choose("method", name, self.results) for name in names]
        first = chosen[0]
        paths = {name: result.path(i) for name, result in zip(names, chosen, strict=True)}
        (row,) = first._describe([first._position(i, None)])
        return draw_side_by_side(
            first.landscape,
            paths,
            {name: path_features(steps, first.schema.names) for name, steps in paths.items()},
            numeric_features(first.schema, first.factuals),
            first.schema,
            f"Row {wording.value(i)}, by {len(names)} method{'s' if len(names) != 1 else ''}",
            (row.measured, row.confidence),
            None if path is None else Path(path),
            with_map=with_map,
        )


def compare(
    explainer: Explainer,
    rows: Any,
    target_class: Any = OTHER,
    *,
    methods: Sequence[str] = COMPARED,
    confidence: float | None = None,
    target_range: tuple[float | None, float | None] | None = None,
    time_limit: float | None = None,
    paths: str = ALL,
) -> Comparison:
    """Explain the same rows by several methods, one after another.

    Args:
        explainer: A fitted explainer.
        rows: The rows.
        target_class: The target class, as in `Explainer.explain`.
        methods: Names of methods; "nearest" is added where it is missing: a method that does not beat the
            nearest training row that the model accepts is not worth its time.
        confidence: What the probability of the target must reach; by default what the model itself decides by.
        target_range: Of a regressor, where what it predicts must lie, as in `Explainer.explain`.
        time_limit: How long each method may search.
        paths: How much of every path to keep, as in `Explainer.explain`; `plot` needs paths or their milestones.

    Raises:
        InputError: A method is unknown, or the rows cannot be used.
        NotFittedError: The explainer was not fitted, or not for one of the methods.

    Example:
        >>> comparison = compare(explainer, rows, 1, methods=["rsgd"])  # doctest: +SKIP
        >>> comparison.table(common=True)  # doctest: +SKIP
    """
    explainer.diagnostics()  # raises an error unless it was fitted
    names = list(dict.fromkeys([*check_methods(methods), NEAREST]))
    for name in names:  # a missing flow should not show after minutes of searching
        explainer.models_.check_needs(resolve_method(name))
    results, took = {}, {}
    for name in names:
        started = time.monotonic()
        results[name] = explainer.explain(
            rows,
            target_class,
            confidence=confidence,
            target_range=target_range,
            method=name,
            time_limit=time_limit,
            paths=paths,
        )
        took[name] = time.monotonic() - started
    return Comparison(results, took)


def check_methods(methods: Sequence[str]) -> Sequence[str]:
    """The methods, if there are any and all of them exist."""
    if isinstance(methods, str) or not methods:
        raise InputError(f"methods is {methods!r}; expected at least one name in a list, for instance ['rsgd']")
    for name in methods:
        resolve_method(name)
    return methods
